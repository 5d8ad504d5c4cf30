"""docs/performance.md, "Round trips": the calls of each function, and how many of them wait for one another."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from prepare import ROOT
from world.deployment import ALARM_TOPIC
from world.round_trips import Invoked, round_trips

PAGE = ROOT / "docs" / "performance.md"

#: The functions that recycle a node, in the order of their first invocations.
STEPS = ("claim-node", "standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate")

#: On a busy machine, calls that are made together may begin so far apart that they count as one after the other.
ATTEMPTS = 3


def test_the_table_of_the_front_page_has_the_same_numbers():
    numbers = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+ \| \d+) \|", PAGE.read_text(), re.M))
    front = dict(re.findall(r"^\| `\w+` \| \[`([a-z-]+)`\]\(crates/.+ \| (\d+ in \d+)", (ROOT / "README.md").read_text(), re.M))
    assert front == {function: number.replace(" | ", " in ") for function, number in numbers.items() if function in STEPS}


def test_the_round_trips_of_each_step_are_those_of_the_page(world):
    assert_counted(world, recycle, lambda function: function in STEPS)


def test_the_round_trips_of_the_other_functions_are_those_of_the_page(world, cli):
    def play(world) -> None:
        """A drain that times out, a question, and an alarm that starts a rotation of one node through a topic."""
        node, other = world.group("workers", size=3, minimum=1, maximum=6).nodes[:2]
        node.job("train", labels={"app": "train"})
        execution = world.recycle(node, label_selector="app=train", drain_timeout="30m")
        world.run("5m")
        assert "train" in cli("status", node.name).text
        assert execution.finishes().error == "DrainTimedOut"
        world.events.silent = "*alarm*"
        world.alarm("node-cpu", ALARM_TOPIC, InstanceId=other.instance_id)
        world.turn_alarm("node-cpu", "ALARM")
        world.wait("1m")
        (rotation,) = world.executions("rotate-nodes")
        assert rotation.finishes().outcome == "started"

    assert_counted(world, play, lambda function: function not in STEPS)


def assert_counted(world, play: Callable[[Any], None], is_counted: Callable[[str], bool]) -> None:
    """Compares the functions that `play` invokes, and that are counted here, with the page."""
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+ \| \d+ \| \d+) \|", PAGE.read_text(), re.M))
    expected = {function: text for function, text in rows.items() if is_counted(function)}
    # From here on each function has a process that has asked for its cluster.
    play(world)
    found: dict[str, str] = {}
    for _ in range(ATTEMPTS):
        world.reset()
        with round_trips(world) as invocations:
            play(world)
        functions = sorted(filter(is_counted, {each.function for each in invocations}))
        found = {function: describe([each for each in invocations if each.function == function]) for function in functions}
        if found == expected:
            break
    print(*(f"| `{function}` | {text} |" for function, text in found.items()), sep="\n")
    assert found == expected


def recycle(world) -> None:
    """Recycles a node whose Job ends after a quarter of an hour, and whose budget lets one pod go at a time."""
    node = world.group("workers", size=3, minimum=2, maximum=4).nodes[0]
    job = node.job("train", labels={"app": "train"})
    world.budget(node.deployment("web", replicas=3), min_available=2)
    world.at("15m", job.finishes)
    end = world.recycle(node, label_selector="app=train").finishes()
    assert end.outcome == "recycled", end


def describe(invocations: list[Invoked]) -> str:
    """The cells of the page: calls and round trips of the usual invocation, and the round trips of the longest one."""
    (calls, usual), _ = Counter((len(each.calls), each.depth) for each in invocations).most_common(1)[0]
    return f"{calls} | {usual} | {max(each.depth for each in invocations)}"
