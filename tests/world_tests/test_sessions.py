"""Whole sessions from outside: several at once, and none leaves a process or a file, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from world.aws.account import Aws
from world.process import folders
from world.process.processes import descendants, eventually, is_running, listening_addresses
from world.world import World

TESTS = Path(__file__).parents[1]

STANDS_STILL = """
import signal

def test_that_never_ends(world):
    node = world.group(size=1).nodes[0]
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"
    print("standing still", flush=True)
    signal.pause()
"""


#: A shell that runs these tests in the background ignores SIGINT, which children would inherit.
AS_AT_A_TERMINAL = ["env", "--default-signal=INT"]


def begin_session(scenario: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*AS_AT_A_TERMINAL, sys.executable, "-m", "pytest", "-s", "-c", "pytest.ini", "--rootdir", ".", str(scenario)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(session: subprocess.Popen[str], text: str) -> None:
    said = []
    for line in session.stdout:
        said.append(line)
        if text in line:
            return
    pytest.fail(f"the session ended before it said {text!r}; it said\n{''.join(said)}")


@pytest.fixture
def sessions(deployed_world: World, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Three sessions at once, each in the middle of a scenario. (`deployed_world`, so that there is a deployment to repeat.)"""
    scenario = tmp_path / "test_standing_still.py"
    scenario.write_text(STANDS_STILL)
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(3):
            # One after the other: they start sooner, and all are there at the end.
            started.append(begin_session(scenario))
            read_until(started[-1], "standing still")
        yield started
    finally:
        for session in started:
            session.kill()
            session.wait()
            session.stdout.close()


def test_sessions_run_side_by_side_and_leave_nothing_however_they_end(sessions):
    children = {session.pid: descendants(session.pid) for session in sessions}
    ways = dict(zip((signal.SIGTERM, signal.SIGINT, signal.SIGKILL), sessions, strict=True))
    for session in sessions:
        # etcd, API server, controllers, scheduler, authenticator, and at least one function
        assert len(children[session.pid]) >= 6
        assert set(listening_addresses({session.pid, *children[session.pid]})) == {"127.0.0.1"}
        assert folders.left_in_place(session.pid)

    for number, session in ways.items():
        session.send_signal(number)
    for session in sessions:
        session.stdout.read()
        session.wait()
        assert eventually(lambda pids=children[session.pid]: not any(map(is_running, pids)))
    assert not folders.left_in_place(ways[signal.SIGTERM].pid)
    assert not folders.left_in_place(ways[signal.SIGINT].pid)
    # Only the next session can clean up after SIGKILL.
    assert folders.left_in_place(ways[signal.SIGKILL].pid)
    folders.temporary_folder("test").rmdir()
    assert not folders.left_in_place(ways[signal.SIGKILL].pid)


FAILS_HALFWAY = """
import os
import sys
from world import world
from world.process import folders

def fails(*_):
    raise RuntimeError("no")

step = sys.argv[1]
owner = {"start": world.Kubernetes, "deploy": world.Deployment}[step]
setattr(owner, step, fails)
try:
    world.World().start()
except RuntimeError:
    print(sorted(folders.left_in_place(os.getpid())), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("step", ["start", "deploy"])
def test_a_world_that_fails_to_start_stops_what_it_had_started(step):
    session = subprocess.Popen(
        [sys.executable, "-c", FAILS_HALFWAY, step], cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert session.stdout.readline() == "[]\n"
        assert not descendants(session.pid)
        assert not listening_addresses([session.pid])
    finally:
        session.communicate("")


def test_a_scenario_file_may_lie_anywhere(tmp_path):
    file = tmp_path / "test_mine.py"
    file.write_text("def test_mine(world):\n    assert world.group(size=1).nodes\n")

    command = [sys.executable, str(TESTS / "run.py"), "scenario", str(file), "--setup-plan"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "::test_mine (fixtures used: deployed_world, reading, request, world)" in done.stdout


def test_a_second_account_in_one_process_is_refused(deployed_world):
    with pytest.raises(AssertionError, match="another account is started in this process"):
        World()
    assert Aws._started is deployed_world.aws
    deployed_world.reset()
    assert len(deployed_world.group(size=2).nodes) == 2
