"""The fixtures of every scenario, wherever its file lies: `world`, `cli`, and `deployed_world` for who resets it themselves."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from world.cli import Cli, command_line
from world.world import World


def pytest_configure() -> None:
    """A session that is told to end, or whose terminal is closed, cleans up as after Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the session's world come last: it stays until the end, and moto has room for one account in a process."""
    items.sort(key=lambda item: "deployed_world" in getattr(item, "fixturenames", ()))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.fixture(scope="session")
def deployed_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One world for the whole session."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  world: {text}", flush=True)

    world = World(say)
    world.start()
    yield world
    world.stop()


@pytest.fixture
def world(deployed_world: World) -> World:
    """The world at the beginning of a scenario: recycle-eks is deployed, nothing else is there."""
    deployed_world.reset()
    return deployed_world


@pytest.fixture
def cli(world: World) -> Iterator[Cli]:
    """The command line in that world."""
    with command_line(world) as cli:
        yield cli
