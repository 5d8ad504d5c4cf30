"""The demo as a person starts it: in a terminal, without one, and stopped in the middle."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from struct import pack
from termios import TIOCSCTTY, TIOCSWINSZ
from xml.etree import ElementTree

import boto3
import pyte
import pytest

from prepare import ROOT, TESTS
from world import kube_binaries
from world_tests.processes import descendants, eventually, is_running

COLUMNS, ROWS = 110, 40
#: Real seconds that a demo may take, with Terraform's apply.
PATIENCE = 240


def _as_a_shell_does() -> None:
    """Ctrl-C is for this session, and it counts, also where the tests themselves were started in the background."""
    ioctl(0, TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A program in a real pseudo-terminal, with what a person would see of it."""

    def __init__(self, *arguments: str) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self._written = b""
        self._ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "demo", *arguments],
            cwd=TESTS,
            env={**os.environ, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_as_a_shell_does,
        )
        os.close(theirs)

    def shows(self, condition: Callable[[], bool]) -> bool:
        """Reads what the program writes until the condition holds or it has ended."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.text
            if not select.select([self._ours], [], [], 1)[0]:
                continue
            try:
                self._written += (read := os.read(self._ours, 4096))
                self._stream.feed(read)
            except OSError:  # the other side is closed
                return condition()
        return True

    def ends(self) -> int:
        self.shows(lambda: False)
        return self.process.wait(timeout=30)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def written(self) -> str:
        """All of it, also what has left the screen."""
        return self._written.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    @property
    def lit(self) -> list[str]:
        """The texts on a green ground."""
        found = []
        for row in range(ROWS):
            line = "".join(self.screen.buffer[row][at].data if self._is_lit(row, at) else "\0" for at in range(COLUMNS))
            found += [text.strip() for text in line.split("\0") if text.strip()]
        return found

    def _is_lit(self, row: int, column: int) -> bool:
        return self.screen.buffer[row][column].bg == "green"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(*arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def masked(svg: str) -> list[str]:
    """The texts of a picture without what differs each time: ids, names that Kubernetes makes up, where it puts a pod."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    words = " ".join(text.text for text in texts).replace("\xa0", " ")
    words = re.sub(r"i-[0-9a-f]{8}\S*", "i-ID", words)
    words = re.sub(r"ip-172-31-0-\d+", "ip-NODE", words)
    return sorted(re.sub(r"\b(web-[0-9a-f]+|training|log-shipper)-[a-z0-9]{5}\b", r"\1-NAME", words).split())


def test_in_a_terminal_one_screen_shows_it_all_and_the_pictured_one_is_as_committed(terminal, tmp_path):
    picture = tmp_path / "demo.svg"
    demo = terminal("--picture", str(picture))

    assert demo.shows(lambda: demo.lit == ["WaitForReplacement"])
    assert "EnteringStandby" in demo.text or "Standby" in demo.text
    assert demo.shows(lambda: "WaitForPods" in demo.lit and "gone" in demo.text)
    for words in ("tainted and cordoned", "training", "wait", "evict", "ignore", "recycle-eks/progress", "pods: 1 to wait for"):
        assert words in demo.text
    assert demo.ends() == 0
    assert "outcome          recycled" in demo.text

    committed = ROOT / "docs" / "demo.svg"
    assert masked(picture.read_text()) == masked(committed.read_text()), 'run: make demo ARGS="--picture docs/demo.svg"'


def test_ctrl_c_in_the_middle_leaves_a_usable_terminal_and_nothing_running(terminal):
    demo = terminal("label_selector=app=web")
    assert demo.shows(lambda: "WaitForReplacement" in demo.lit)
    children = descendants(demo.process.pid)
    assert children

    demo.press(b"\x03")

    assert demo.ends() == 130
    assert "nothing is left running" in demo.text
    assert not demo.screen.cursor.hidden
    assert eventually(lambda: not any(map(is_running, children)))


def test_a_world_that_is_kept_can_be_explored_with_the_settings_it_prints(terminal):
    demo = terminal("--keep", "--cluster", "full", "evict=nonsense")
    assert demo.shows(lambda: "Ctrl-C ends it all." in demo.text)
    written = demo.written()
    settings = dict(re.findall(r"^export (\w+)=(\S+)$", written, re.MULTILINE))
    environment = {**os.environ, **settings}

    kubectl = [kube_binaries.find() / "kubectl", "get", "nodes", "--output=name"]
    listed = subprocess.run(kubectl, env=environment, capture_output=True, text=True, check=True)
    assert len(listed.stdout.split()) == 3
    terraform = re.search(r"^terraform (-chdir=\S+) plan$", written, re.MULTILINE)
    plan = ["terraform", terraform[1], "plan", "-detailed-exitcode", "-no-color"]
    assert subprocess.run(plan, env=environment, capture_output=True, check=False).returncode == 0
    session = boto3.Session(settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"], region_name=settings["AWS_REGION"])
    groups = session.client("autoscaling", endpoint_url=settings["AWS_ENDPOINT_URL"])
    instance = groups.describe_auto_scaling_instances()["AutoScalingInstances"][1]["InstanceId"]
    given = {"cluster_name": "world", "instance_id": instance}
    machine = re.search(r"--state-machine-arn (\S+:live)", written)[1]
    machines = session.client("stepfunctions", endpoint_url=settings["AWS_ENDPOINT_URL"])
    machines.start_execution(stateMachineArn=machine, input=json.dumps(given))
    assert demo.shows(lambda: ": recycled" in demo.text)

    demo.press(b"\x03")
    assert demo.ends() == 0


def demo_without_terminal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_without_a_terminal_each_change_is_a_line():
    done = demo_without_terminal("--cluster", "budgets")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    for line in (
        r"0:00:00  pod training-\w+ +wait: Running",
        r"0:01:00  old node +tainted and cordoned",
        r"recycle-eks/progress .*budget.*lonely",
        r" 2:\d\d:\d\d  pod lonely-\S+ +gone|evict: gone",
        r"outcome          recycled",
    ):
        assert re.search(line, done.stdout), f"{line} in\n{done.stdout}"


def test_a_wrong_field_ends_the_demo_with_the_refusal():
    done = demo_without_terminal("--cluster", "full", "evict=everything")
    assert done.returncode == 0
    assert "outcome          InvalidInput: evict must be one of" in done.stdout


@pytest.mark.parametrize("argument", ["evict", "--cluster=tiny"])
def test_an_argument_that_cannot_be_understood_starts_nothing(argument):
    done = demo_without_terminal(argument)
    assert done.returncode == 2
    assert ("is not FIELD=VALUE" in done.stderr) or ("invalid choice: 'tiny'" in done.stderr)
