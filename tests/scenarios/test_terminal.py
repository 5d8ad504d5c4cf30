"""The screen of a real terminal: a rotation of eight nodes, a window that is made narrower, and Ctrl-C."""

import re

import pytest

STEPS = "begun|queued|replacing|draining|waiting|disposing|done|failed"


@pytest.fixture
def jobs(world):
    """Four, on two nodes each of two groups of four nodes, whose launch template has a new version."""
    jobs = []
    for name in ("api", "batch"):
        group = world.group(name, size=4, minimum=3, maximum=6)
        group.gets_a_new_template()
        jobs += [node.job(f"{name}-{number}", labels={"app": "train"}) for number, node in enumerate(group.nodes[:2])]
    return jobs


def rows(screen: str) -> dict[str, str]:
    """The step of each node, as the screen says it."""
    return dict(re.findall(rf"^(?:api|batch) +(ip-\S+|i-\w+) +({STEPS})(?= |$)", screen, re.MULTILINE))


def until(terminal, cli, condition, seconds=10):
    """Lets time pass until the screen is so; answers it."""
    for _ in range(400):
        screen = terminal.text
        if condition(screen):
            return screen
        assert terminal.is_under_way, screen
        cli.lets_pass(seconds)
    raise AssertionError(f"it is not so:\n{screen}")


def until_settled(terminal, cli):
    """No time passes, but the command line reads again."""
    before = ""
    while (screen := terminal.text) != before:
        before = screen
        cli.looks_again()
    return screen


def test_a_rotation_is_watched_in_a_narrow_window_too_and_goes_on_when_the_watching_ends(world, cli, jobs):
    fields = ["--label-selector=app=train", "--drain-timeout=7200", "--load-balancer-grace=60"]
    terminal = cli.opens("rotate", "--launch-template", *fields, columns=120)
    screen = until(terminal, cli, lambda screen: "draining" in screen or "replacing" in screen)
    assert "8 nodes to recycle, in 2 of 2 groups" in screen

    screen = until(terminal, cli, lambda screen: len(rows(screen)) == 8 and "done" in rows(screen).values())
    assert {"waiting", "done"} <= set(rows(screen).values())
    is_drawn = re.compile(r"waiting +\d+m.* █+░+  2027-01-01 02:\d\dZ  restore  pods: 1 awaited$", re.MULTILINE)
    screen = until(terminal, cli, lambda screen: len(is_drawn.findall(screen)) == 4, seconds=60)
    names = re.findall(r"^GROUP.*$", screen, re.MULTILINE)
    assert [name.split() for name in names] == [["GROUP", "NODE", "STEP", "SINCE", "UNTIL", "THEN", "WHAT"]]

    terminal.resize(60, 40)
    # Until the command line has drawn again, the window has broken the wide lines, and its first lines are out of sight.
    heading = "8 nodes to recycle, in 2 of 2 groups"
    until(terminal, cli, lambda screen: heading in screen.splitlines() and "UNTIL" not in screen and len(rows(screen)) == 8)
    screen = until_settled(terminal, cli)
    lines = screen.rstrip().splitlines()
    assert max(map(len, lines)) <= 60 and heading in lines
    table = lines[lines.index(next(line for line in lines if line.startswith("GROUP"))) + 1 :]
    assert len(table) == len(rows(screen)) == 8, screen
    assert all(line.endswith(("recycled", "pods: 1 awaited")) for line in table), screen

    terminal.press("C-c")
    assert terminal.ends() == 130
    (rotation,) = world.executions("rotate-nodes")
    assert f"{rotation.arn} goes on. To watch it again: recycle-eks status --watch" in terminal.written
    assert rotation.status == "RUNNING"

    printed = cli("status", "--output", "json").document
    assert [each["execution_arn"] for each in printed["rotations"]] == [rotation.arn]
    assert [row["step"] for row in printed["nodes"]] == ["waiting"] * 4
    for job in jobs:
        job.finishes()
    assert rotation.finishes().outcome == "rotated"
