"""The fixtures of every scenario, wherever its file lies: `world`, `cli`, `deployed_world` for who resets it themselves, and
`workers`, `node` and `job` for a scenario that needs no other group of nodes.

A scenario with the mark `reading` depends on switches of `Unknowns`, and runs with their defaults. With the option `--readings`
only these scenarios run: with the defaults, and then with each named switch reversed.

A scenario with the mark `any_replacement` holds for every `replacement`, and runs with the default. With the option
`--replacement MODE` only these scenarios run, with that mode.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from world.aws.autoscaling.model import Unknowns
from world.cli import Cli, command_line
from world.kubernetes.handles import Pod
from world.scenario.groups import Group, Node
from world.world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--readings", action="store_true", help="only the tests marked `reading`, under each value of their switches"
    )
    parser.addoption("--replacement", help="only the tests marked `any_replacement`, with this `replacement`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    switches = switches_of(metafunc.definition)
    if switches and metafunc.config.getoption("--readings"):
        metafunc.parametrize("reading", [None, *switches], indirect=True, ids=lambda switch: switch or "as_assumed")


def switches_of(item: pytest.Item) -> tuple[str, ...]:
    """Returns the switches that the mark of a test names."""
    mark = item.get_closest_marker("reading")
    switches = mark.args if mark else ()
    unknown = set(switches) - set(vars(Unknowns()))
    assert not unknown, f"{item.nodeid}: Unknowns has no {', '.join(sorted(unknown))}"
    return switches


def pytest_configure() -> None:
    """Makes a session clean up as after Ctrl-C when it is terminated or its terminal is closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    _take_less_processor_time()


def _take_less_processor_time() -> None:
    """Together an eighth of the time of a session with several worlds side by side."""
    gc.set_threshold(50_000, 50, 100)
    # The processes of a world wait for each other all the time, and to wake one up on another core takes longer.
    worker, cores = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), sorted(os.sched_getaffinity(0))
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) >= len(cores):
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the deployed world come last. Moto has room for one account in a process, so a test that starts an account of
    its own ends that world, and it would have to start again. Long tests come first in each kind, so that none still runs when
    all others are done and their processes idle."""
    if config.getoption("--readings"):
        _keep(config, items, switches_of)
    if config.getoption("--replacement"):
        _keep(config, items, lambda item: item.get_closest_marker("any_replacement"))
    items.sort(key=lambda item: (_uses_deployed_world(item), item.get_closest_marker("long") is None))


def _keep(config: pytest.Config, items: list[pytest.Item], is_meant: Callable[[pytest.Item], object]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_meant(item)])
    items[:] = [item for item in items if is_meant(item)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not _uses_deployed_world(item):
        _deployed.stop()


def pytest_unconfigure() -> None:
    _deployed.stop()


def _uses_deployed_world(item: pytest.Item) -> bool:
    return "deployed_world" in getattr(item, "fixturenames", ())


class _Deployed:
    """The process's one deployed world: started by the first test that uses it, stopped by the next one that does not."""

    def __init__(self) -> None:
        self._world: World | None = None

    def running(self, say: Callable[[str], None]) -> World:
        if self._world is None:
            world = World(say)
            world.start()
            self._world = world
            # A deployed world stays in memory, so the garbage collector need not search it again and again.
            gc.collect()
            gc.freeze()
        return self._world

    def stop(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            gc.unfreeze()
            world.stop()


_deployed = _Deployed()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.fixture(scope="module")
def deployed_world(request: pytest.FixtureRequest) -> World:
    """One world for many tests."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  world: {text}", flush=True)

    return _deployed.running(say)


@pytest.fixture(scope="module")
def empty_world() -> Iterator[World]:
    """Account and cluster, with nothing of recycle-eks in them."""
    world = World()
    world.start_empty()
    yield world
    world.stop()


@pytest.fixture
def reading(request: pytest.FixtureRequest) -> str | None:
    """The switch that is reversed in this run; None if all have their defaults."""
    return getattr(request, "param", None)


@pytest.fixture
def world(deployed_world: World, reading: str | None, request: pytest.FixtureRequest) -> World:
    """The world at the beginning of a scenario: recycle-eks is deployed, nothing else is there."""
    deployed_world.reset()
    replacement = request.config.getoption("--replacement")
    deployed_world.usual_fields = {"replacement": replacement} if replacement else {}
    if reading is not None:
        setattr(deployed_world.unknowns, reading, not getattr(deployed_world.unknowns, reading))
    return deployed_world


@pytest.fixture
def cli(world: World) -> Iterator[Cli]:
    """The command line in that world."""
    with command_line(world) as cli:
        yield cli


@pytest.fixture
def workers(world: World) -> Group:
    return world.group("workers", size=2, minimum=1, maximum=4)


@pytest.fixture
def node(workers: Group) -> Node:
    return workers.nodes[0]


@pytest.fixture
def job(node: Node) -> Pod:
    return node.job("train", labels={"app": "train"})
