"""A terminal's program that hangs. Clock and screen are those of the test, so no real time passes."""

import types

import pytest

from world.process import terminal
from world.process.terminal import PATIENCE, Terminal


class Slow(Terminal):
    """A program that shows these screens, a new one at each check, and has ended at the last one."""

    def __init__(self, *screens: str) -> None:
        self._screens = list(screens)
        self._shown = ""

    @property
    def text(self) -> str:
        self._shown = self._screens.pop(0) if self._screens else self._shown
        return self._shown

    @property
    def is_under_way(self) -> bool:
        return bool(self._screens)

    @property
    def code(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _almost_all_patience_between_two_looks(monkeypatch):
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += PATIENCE * 0.9

    monkeypatch.setattr(terminal, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def test_a_slow_program_is_awaited_as_long_as_its_screen_changes():
    assert Slow("one node", "two nodes", "three nodes", "four nodes").ends() == 0
    assert Slow("one node", "two nodes", "three nodes", "four nodes").shows("four") == "four nodes"


@pytest.mark.parametrize("wait", [Slow.ends, lambda slow: slow.shows("three")], ids=["ends", "shows"])
def test_a_program_whose_screen_stands_still_is_given_up_by_name(wait):
    with pytest.raises(AssertionError, match="nothing has changed for 300 seconds:\ntwo nodes"):
        wait(Slow("one node", "two nodes", "two nodes", "two nodes", "three nodes"))
