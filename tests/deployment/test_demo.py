"""The demo as a person starts it: in a terminal, without one, stopped in the middle; and the documentation's pictures of it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from demo.__main__ import LOOK, parse, show, watched
from demo.clusters import FLEETS, managed
from demo.playground import stand
from prepare import ROOT, TESTS
from world.cli import command_line
from world.process.processes import descendants, eventually, is_running, run_to_its_end
from world.process.terminal import Terminal
from world.world import World

COLUMNS, ROWS = 120, 50


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        command = [sys.executable, "-m", "demo", *arguments]
        opened.append(Terminal(command, {**os.environ, "PYTHONPATH": str(TESTS)}, tmp_path, COLUMNS, ROWS))
        return opened[-1]

    yield start
    for each in opened:
        each.stop()


def masked(svg: str) -> list[str]:
    """The texts of a picture without what differs each time: ids, and names that are made up."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    words = " ".join(text.text for text in texts).replace("\xa0", " ")
    words = re.sub(r"\bi-[0-9a-f]{17}\b", "i-ID", words)
    words = re.sub(r"\brecycle-eks-\d{19}-\d+\b", "recycle-eks-NAME", words)
    words = re.sub(r"\bip-172-31-0-\d+", "ip-NODE", words)
    return sorted(re.sub(r"\b(web-[0-9a-f]+|training)-[a-z0-9]{5}\b", r"\1-NAME", words).split())


def shown_in(world: World, *arguments: str, look_again: float = LOOK) -> int:
    """The exit code of a demo in a world that stands, which saves the start of another one."""
    with command_line(world, look_again=look_again) as cli:
        return show(world, cli, parse(arguments))


@pytest.mark.parametrize(("name", "arguments"), [("demo.svg", []), ("rotation.svg", ["--rotation"])])
def test_the_pictures_of_the_documentation_are_what_is_shown_now(world, tmp_path, name, arguments):
    picture = tmp_path / name
    assert shown_in(world, *arguments, "--picture", str(picture)) == 0
    how = " ".join([*arguments, "--picture", f"docs/{name}"])
    assert masked(picture.read_text()) == masked((ROOT / "docs" / name).read_text()), f'run: make demo ARGS="{how}"'


def test_in_a_terminal_the_picture_of_the_command_line_changes_until_the_node_is_recycled(terminal):
    demo = terminal("--cluster", "budgets")

    assert "✔ ClaimNode ─ ● StandbyNode" in demo.shows("● StandbyNode")
    screen = demo.shows("● CheckPods", "blocked", "gone", "drain ░", "of 2d, until 2027-01-03")
    assert screen.count("● CheckPods") == 1 and "awaited" in screen
    assert demo.ends() == 0, demo.text
    assert "✔ CheckPods ─ ✔ DetachTerminate" in demo.text
    assert "outcome          recycled" in demo.text and "exit code        0" in demo.text


def test_ctrl_c_in_the_middle_leaves_nothing_running(terminal):
    demo = terminal("label_selector=app=web")
    demo.shows("● StandbyNode")
    children = descendants(demo.pid)
    assert children

    demo.press("C-c")

    assert demo.ends() == 130, demo.written
    assert "nothing is left running" in demo.text
    assert eventually(lambda: not any(map(is_running, children)))


def test_a_kept_world_is_a_playground_in_a_shell_of_its_own(terminal):
    demo = terminal("--keep", "--cluster", "tidy", "evict=nonsense")
    demo.shows("Ctrl-C here ends it all.")
    written = demo.written
    # The command line has refused the field; the world stands nevertheless.
    assert "invalid value 'nonsense' for '--evict <WHAT>'" in written
    # Nothing is to be exported into the user's own shell.
    assert not re.search(r"^export ", written, re.MULTILINE)
    shell = re.search(r"^(/\S+/shell)$", written, re.MULTILINE)[1]
    ours = {**os.environ, "AWS_PROFILE": "mine", "TF_CLI_CONFIG_FILE": "/mine", "KUBECONFIG": "/mine"}

    def run(command: str, code: int = 0, printed: str = "") -> str:
        """Runs a command in the shell, with settings of a user in the terminal."""
        done = subprocess.run([shell, "bash", "-c", command], env=ours, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        assert printed in done.stdout, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    assert run("echo $TF_CLI_CONFIG_FILE [$AWS_PROFILE]") == "/mine []\n"
    assert len(run("kubectl get nodes --output=name").split()) == 3
    terraform = re.search(r"^(TF_CLI_CONFIG_FILE=\S+ terraform -chdir=\S+ plan)$", written, re.MULTILINE)[1]
    run(f"{terraform} -detailed-exitcode -no-color")

    # Time goes on: a plan ends, a drain waits, and is extended, finished or aborted by hand.
    run("recycle-eks plan --all --output json")
    drains = re.findall(r"^(recycle-eks recycle (\S+) .*)$", written, re.MULTILINE)
    assert len(drains) == 2
    for drain, _ in drains:
        run(drain)
    first, second = (node for _, node in drains)

    def drained() -> list[str]:
        """The nodes that are drained now. Real seconds pass between two answers."""
        time.sleep(1)
        nodes = json.loads(run("recycle-eks status --output json"))["nodes"]
        return [node["node"] for node in nodes if node["step"] in ("draining", "waiting")]

    assert any({first, second} <= set(drained()) for _ in range(200))
    before = json.loads(run("recycle-eks status --output json"))["nodes"][0]["since"]
    now = run("skip 6h", printed="it is 20")
    assert datetime.fromisoformat(now.split()[2]) > datetime.fromisoformat(before) + timedelta(hours=6)
    run("skip soon", code=2)
    run(f"recycle-eks extend {first} --by 1d")
    run(f"recycle-eks finish {second} --yes")
    run(f"recycle-eks abort {first} --yes --no-wait")
    run("recycle-eks pause --all")
    assert json.loads(run("recycle-eks report --last --output json"))["node"]["group"] == "workers"

    demo.press("C-c")
    assert demo.ends() == 0, demo.written


def test_a_time_that_is_asked_for_while_time_passes_is_skipped_next(world, cli, tmp_path, monkeypatch):
    asked, times = tmp_path / "skip", []

    def writes_time() -> None:
        times.append(world.clock.elapsed())
        if len(times) == 1:
            asked.write_text("6h\n")
        if len(times) > 99 or times[-1] > 6 * 3600:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "writes_time", writes_time)
    stand(world, cli, tmp_path)
    assert times[-1] > 6 * 3600


def demo_without_terminal(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_to_its_end([sys.executable, "-m", "demo", *arguments], TESTS)


def test_without_a_terminal_each_change_is_a_line(world, capfd):
    code = shown_in(world, "--cluster", "budgets")
    printed, errors = capfd.readouterr()
    assert code == 0, printed + errors
    assert "\x1b" not in printed
    for line in (
        r"^awaited +1 +label_selector matches it +default/training-\w+$",
        r"^ +0:01:00  pod default/training-\w+ +awaited$",
        r"^ +\d:\d\d:\d\d  CheckPods +.*budget.*lonely",
        r"^ +0:3\d:\d\d  pod default/lonely-\S+ +gone$",
        r"^outcome          recycled",
    ):
        assert re.search(line, printed, re.MULTILINE), f"{line} in\n{printed}"


def test_a_failure_of_the_world_is_shown_and_does_not_wait_for_a_command_line_whose_time_stands(world, cli):
    node = world.group(size=2).nodes[0]
    with pytest.raises(RuntimeError, match="not settled"), watched(cli, ["recycle", node.name], plain=False):
        raise RuntimeError("not settled")


def test_a_rotation_of_a_managed_node_group_recycles_each_node(world, capfd, monkeypatch):
    # No viewer needs time to read.
    monkeypatch.setattr("demo.pace.STANDS", 0.05)
    monkeypatch.setattr("demo.pace.RESTS", 0.01)
    # Five nodes do what twelve do.
    fleet = dataclasses.replace(FLEETS["managed"], build=lambda world: managed(world, size=5))
    monkeypatch.setitem(FLEETS, "managed", fleet)
    code = shown_in(world, "--cluster", "managed", "--plain", look_again=1)
    printed, errors = capfd.readouterr()
    assert code == 0, printed + errors
    done = re.findall(r"^ +\d+:\d\d:\d\d  (ip-\S+|i-\w+) +done: recycled$", printed, re.MULTILINE)
    assert len(set(done)) == 5, printed
    assert "outcome          rotated" in printed
    assert f"group eks-blue   min 5, desired 5, max 8; {', '.join(['InService'] * 5)}" in printed


@pytest.mark.parametrize("argument", ["evict", "--cluster=tiny"])
def test_an_argument_that_cannot_be_understood_starts_nothing(argument):
    done = demo_without_terminal(argument)
    assert done.returncode == 2
    assert ("is not FIELD=VALUE" in done.stderr) or ("invalid choice: 'tiny'" in done.stderr)
