"""A question to AWS, and the list of all of them. A question is one function with the decorator `question`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.group import Group

#: The value that a question has found: one of the keys of its answers.
Value = bool | str
#: A play yields the seconds until it looks again, and returns the value.
Play = Generator[float, None, Value]


@dataclass(frozen=True)
class Answer:
    """One possible answer: what AWS did, and what follows from it for recycle-eks."""

    text: str
    consequence: str


@dataclass(frozen=True)
class Setup:
    """The Auto Scaling group of a question."""

    minimum: int = 1
    desired: int = 2
    maximum: int = 4
    zones: int = 1
    hook: int | None = None
    """Heartbeat time-out of a hook for terminations, in seconds."""
    retains: bool = False
    """Whether the group retains an instance whose hook is abandoned."""
    spot: bool = False
    """Spot Instances, with Capacity Rebalancing."""


@dataclass(frozen=True)
class Question:
    """`switch` is the field of `Unknowns` in the local world that the value sets, `row` the row in docs/aws-evidence.md."""

    name: str
    asks: str
    row: int
    expected: Value
    answers: Mapping[Value, Answer]
    instances: int
    """The most instances that run at once."""
    minutes: float
    """How long the question takes on AWS, at most."""
    play: Callable[[Group], Play]
    setup: Setup = field(default_factory=Setup)
    switch: str | None = None
    needs: str | None = None
    """The option without which it is not asked."""

    def answer(self, value: Value) -> Answer:
        return self.answers.get(value) or Answer(
            str(value), "Nothing was prepared for this answer: change the local world first."
        )

    def setting(self, value: Value) -> str:
        """Returns how the local world is set for this answer."""
        return f"Unknowns.{self.switch} = {value}" if self.switch and isinstance(value, bool) else "–"


QUESTIONS: dict[str, Question] = {}


def question(**about: Any) -> Callable[[Callable[[Group], Play]], Callable[[Group], Play]]:
    """Makes a question of a function that plays it. The arguments are the fields of `Question`."""

    def register(play: Callable[[Group], Play]) -> Callable[[Group], Play]:
        name = play.__name__.replace("_", "-")
        QUESTIONS[name] = Question(name=name, play=play, **about)
        return play

    return register
