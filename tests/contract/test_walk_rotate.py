"""The real definition of rotate-nodes, walked into every state, with a function that only answers."""

import json
from typing import Any

import pytest

from contract.scripts import INPUT, LIVE, NoServices, Script, rendered
from prepare import STEPS
from world.base.clock import Clock
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Call
from world.stepfunctions.in_memory import FunctionFailed, InMemoryMachines, PythonFunctions
from world.stepfunctions.state_errors import StateError
from world.stepfunctions.texts import iso

NODE, OTHER = INPUT["instance_id"], "i-0fedcba9876543210"


def ends_as(*errors: str, output: dict[str, Any] | None = None) -> dict[str, Any]:
    """recycle-node: it fails with one of these for the execution whose name ends so, and is done with all others."""
    rules = [{"Condition": "{% $contains($states.context.Execution.Name, '" + error + "') %}", "Next": error} for error in errors]
    states = {
        "Which": {"Type": "Choice", "Choices": rules, "Default": "Done"} if rules else {"Type": "Pass", "Next": "Done"},
        "Done": {"Type": "Succeed", "Output": output or {"outcome": "recycled"}},
        **{error: {"Type": "Fail", "Error": error, "Cause": "so it is"} for error in errors},
    }
    return {"StartAt": "Which", "States": states, "QueryLanguage": "JSONata"}


def path_of(execution: Any) -> list[str]:
    return [e["stateEnteredEventDetails"]["name"] for e in execution.events if "stateEnteredEventDetails" in e]


def selected(*instances: str, **recycle: Any) -> dict[str, Any]:
    starts = [{"name": f"alarm-{instance}-12345678", "instance_id": instance} for instance in instances]
    return {"verdict": "each_node", "reason": "chosen", "starts": starts, "recycle": recycle}


class Walked:
    """One execution after a script, and what it started. `there` are executions that exist before."""

    def __init__(
        self,
        *answers: Any,
        there: tuple[str, ...] = (),
        without_machine: bool = False,
        ends: tuple[str, ...] = (),
        output: dict[str, Any] | None = None,
        services: Any = None,
        given: str = "{}",
        **others: list[Any],
    ) -> None:
        clock, machines, functions = Clock(), InMemoryMachines(), PythonFunctions()
        script = Script(select_nodes=list(answers), **others)
        functions.update({name: lambda request, name=name: script.answer(name, request) for name in STEPS})
        self.engine = Engine(clock, machines, functions, services or NoServices())
        started = "no machine" if without_machine else machines.put("recycle-node", ends_as(*ends, output=output))
        definition = json.loads(json.dumps(rendered("rotate-nodes")).replace(LIVE, started))
        for name in there:
            self.engine.start_execution(started, json.dumps({"another": "input"}), name)
        execution = self.engine.start_execution(machines.put("rotate-nodes", definition), given)
        clock.run(until=lambda: execution.status != "RUNNING", limit=86_400)
        self.execution, self.script = execution, script
        self.path = path_of(execution)
        children = [each for each in self.engine.executions.values() if each.map_run_arn]
        self.groups = [path_of(child) for child in children]
        self.inputs = {} if without_machine else {e.name: json.loads(e.input_text) for e in self.engine.executions_of(started)}


def test_each_selected_node_is_started_under_its_name_with_the_triggers_fields():
    walked = Walked(selected(NODE, OTHER, evict="none"))
    assert walked.execution.status == "SUCCEEDED" and walked.path[-1] == "Started"
    assert walked.execution.output["outcome"] == "started"
    assert walked.inputs == {
        f"alarm-{instance}-12345678": {"instance_id": instance, "cluster_name": "world", "evict": "none"}
        for instance in (NODE, OTHER)
    }


def test_nothing_selected_is_nothing_started():
    walked = Walked({"verdict": "nothing_selected", "reason": "others' instances"})
    assert walked.path == ["SelectNodes", "NodesSelected", "NothingSelected"] and not walked.inputs
    assert walked.execution.output == {"outcome": "nothing_selected", "reason": "others' instances"}


def test_an_execution_that_a_repeated_event_has_started_counts_as_started():
    walked = Walked(selected(NODE), there=(f"alarm-{NODE}-12345678",))
    assert walked.path[-1] == "Started" and len(walked.inputs) == 1


GROUPS = {"verdict": "each_group", "reason": "chosen", "groups": ["workers"]}
OF_GROUP = {
    "verdict": "mark_nodes",
    "reason": "1 nodes",
    "nodes": [NODE],
    "at_once": 1,
    "launch_source": "a",
    "members_before": "",
    "mark": "soft",
    "recycle": {"evict": "none"},
    "ended_rotations": [],
    "more": 0,
    "later": [],
}
START = {"verdict": "start", "reason": "it may", "start": {"name": f"manual-{NODE}-12345678", "instance_id": NODE}}


def wait(before: int = 0, seconds: int = 30) -> dict[str, Any]:
    """Returns the answer for a node that has waited so long."""
    then = {"waited": before + seconds, "waits_for": "paused", "waited_for_it": before + seconds}
    return {"verdict": "wait", "reason": "not yet", "wait_seconds": seconds, "after_wait": then}


PAUSE = {"verdict": "pause", "reason": "wait_between_nodes", "wait_seconds": 600}
MARKED, UNMARKED = {"verdict": "marked"}, {"verdict": "unmarked"}
#: The states of a group's own execution before the node and after it.
BEFORE, AFTER = ["BeginGroup", "SelectNodesOfGroup", "NodesOfGroupSelected", "MarkNodes", "EachNodeOfGroup", "StartWaiting"], [
    "NodeDone", "UnmarkNodes", "GroupDone", "GroupRotated",
]  # fmt: skip


def ended(end: str, why: str, **error: str) -> dict[str, Any]:
    verdict = "stop" if error else "skip"
    return {"verdict": verdict, "reason": why, "ended": {"end": end, "why": why, **error}}


def of_group(*answers: Any, ends: tuple[str, ...] = (), **others: Any) -> tuple[Walked, dict[str, Any]]:
    """A rotation of one group with one node, and what it says of that."""
    walked = Walked(GROUPS, OF_GROUP, *answers, ends=ends, taint_node=[MARKED], restore_node=[UNMARKED], **others)
    text = walked.execution.output or json.loads(walked.execution.cause)
    (group,) = text["groups"]
    return walked, group


def test_a_node_of_a_group_is_marked_started_waited_for_and_unmarked():
    walked, group = of_group(START)
    assert walked.path == ["SelectNodes", "NodesSelected", "EachGroup", "AllRotated", "Rotated"]
    assert walked.groups == [[*BEFORE, "MayStart", "NodeMayStart", "RecycleNodeOfGroup", "NodeEnded", *AFTER]]
    assert walked.execution.output["outcome"] == "rotated"
    assert group == {
        "group": "workers", "recycled": 1, "failed": [], "left": 0, "why": [], "error": [], "reason": "1 nodes",
        "passes": 1, "failed_nodes": 0, "failed_executions": 0, "more": 0,
    }  # fmt: skip
    assert walked.inputs == {f"manual-{NODE}-12345678": {"instance_id": NODE, "cluster_name": "world", "evict": "none"}}
    of_marks = [request for request in walked.script.requests if "marking" in request or "unmarking" in request]
    rotation, began_at = walked.execution.arn, iso(walked.execution.start)
    assert [request.get("marking", request.get("unmarking")) for request in of_marks] == [
        {"cluster_name": "world", "rotation": rotation, "began_at": began_at, "mark": "soft", "nodes": [NODE], "ended": []},
        {"cluster_name": "world", "rotations": [rotation], "nodes": [NODE]},
    ]


def test_a_node_is_checked_again_after_each_wait_and_its_waiting_time_is_counted():
    walked, _ = of_group(wait(), wait(30), START)
    loop = ["MayStart", "NodeMayStart", "WaitToStart"]
    assert walked.groups == [[*BEFORE, *loop, *loop, "MayStart", "NodeMayStart", "RecycleNodeOfGroup", "NodeEnded", *AFTER]]
    asked = [request["waiting_node"] for request in walked.script.requests if "waiting_node" in request]
    assert [node["waited"] for node in asked] == [0, 30, 60]
    assert [(node.get("waits_for"), node["waited_for_it"]) for node in asked] == [(None, 0), ("paused", 30), ("paused", 60)]
    assert {(node["instance_id"], node["index"], node["attempt"]) for node in asked} == {(NODE, 0, 1)}


def test_the_pause_between_two_nodes_does_not_count_as_waiting():
    walked, _ = of_group(PAUSE, wait(), START)
    assert walked.groups[0].count("PauseBeforeNode") == 1
    asked = [request["waiting_node"] for request in walked.script.requests if "waiting_node" in request]
    assert [node["waited"] for node in asked] == [0, 0, 30]


class CloudWatch:
    """Answers each question about alarms the same, or refuses it."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    def call(self, service: str, action: str, parameters: Any) -> Any:
        self.asked.append((service, action, parameters))
        if isinstance(self.answer, StateError):
            raise self.answer
        return Call(lambda call: call.answer(self.answer), "cloudwatch")


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (
            {"MetricAlarms": [{"AlarmName": "errors", "StateValue": "OK"}], "CompositeAlarms": []},
            {"states": [{"name": "errors", "state": "OK"}]},
        ),
        (
            {"MetricAlarms": [], "CompositeAlarms": [{"AlarmName": "errors", "StateValue": "ALARM"}]},
            {"states": [{"name": "errors", "state": "ALARM"}]},
        ),
        ({"MetricAlarms": [], "CompositeAlarms": []}, {"states": []}),
        (StateError("CloudWatch.InvalidNextTokenException", "no"), {"error": "CloudWatch.InvalidNextTokenException"}),
    ],
    ids=["metric", "composite", "none", "refused"],
)
def test_the_states_of_alarms_are_read_for_one_check_only(answer, read):
    alarms, given = CloudWatch(answer), json.dumps({"alarms": ["errors"]})
    walked, _ = of_group({"verdict": "describe_alarms", "reason": "alarms"}, wait(), START, services=alarms, given=given)
    asked = [request["waiting_node"] for request in walked.script.requests if "waiting_node" in request]
    assert [node.get("alarms") for node in asked] == [None, read, None]
    assert walked.groups[0].count("DescribeAlarms") == 1
    asked = {"AlarmNames": ["errors"], "AlarmTypes": ["MetricAlarm", "CompositeAlarm"]}
    assert alarms.asked[0] == ("cloudwatch", "describeAlarms", asked)


def test_a_node_that_fails_asks_whether_it_is_tried_again_and_from_when_on_it_pauses():
    again = {**START, "start": {"name": "again", "instance_id": NODE}}
    walked, group = of_group(wait(), START, PAUSE, again, ends=("12345678",))
    assert group["recycled"] == 1 and walked.execution.output["outcome"] == "rotated"
    first, _, second, third = [request["waiting_node"] for request in walked.script.requests if "waiting_node" in request]
    assert (second["attempt"], second["status"], second["error"]) == (2, "FAILED", "12345678")
    assert first["began_at"] < second["began_at"] == third["began_at"]


def test_a_node_that_has_failed_fails_the_rotation_and_a_group_that_stops_says_by_what():
    walked, group = of_group(START, ended("failed", "DrainTimedOut"), ends=("12345678",))
    assert walked.execution.error == "RotationFailed"
    assert group["failed"] == [{"node": NODE, "why": "DrainTimedOut"}] and group["left"] == 0
    walked, group = of_group(ended("left", "it is outdated, too", error="ReplacementStillOutdated"))
    assert walked.execution.error == "RotationFailed"
    assert (group["left"], group["why"], group["error"]) == (1, ["it is outdated, too"], ["ReplacementStillOutdated"])


def test_a_duplicate_has_not_been_recycled_and_fails_the_rotation_with_its_reason():
    walked, group = of_group(START, output={"outcome": "duplicate", "reason": "x" * 300})
    assert walked.execution.error == "RotationFailed" and "NotifyFailure" in walked.path
    assert (group["recycled"], group["left"], group["why"]) == (0, 0, [])
    assert group["failed"] == [{"node": NODE, "why": "duplicate: " + "x" * 149}]


@pytest.mark.parametrize("outcome", ["already_gone", "released", "superseded", "planned"])
def test_a_node_with_another_outcome_is_no_failure(outcome):
    walked, group = of_group(START, output={"outcome": outcome, "reason": "so it is"})
    assert walked.path[-1] == "Rotated"
    assert (group["recycled"], group["left"], group["why"], group["failed"]) == (0, 1, [outcome], [])


def test_a_skipped_node_is_not_a_failure():
    walked, group = of_group(ended("left", "is Standby"))
    assert walked.path[-1] == "Rotated" and (group["left"], group["why"]) == (1, ["is Standby"])


def test_an_execution_that_is_there_already_is_asked_about():
    walked, group = of_group(START, ended("left", "its execution had already ended"), there=(f"manual-{NODE}-12345678",))
    nodes = [request["waiting_node"] for request in walked.script.requests if "waiting_node" in request]
    assert [node.get("exists") for node in nodes] == [None, True] and group["left"] == 1


def test_a_group_of_which_nothing_is_left_is_not_marked():
    gone = {"verdict": "nothing_selected", "reason": "gone", "ended": {"end": "left", "why": "gone"}}
    walked = Walked(GROUPS, gone)
    assert walked.groups == [["BeginGroup", "SelectNodesOfGroup", "NodesOfGroupSelected", "GroupLeft"]]
    (group,) = walked.execution.output["groups"]
    assert (group["recycled"], group["why"], group["error"]) == (0, ["gone"], [])


def test_a_dry_run_marks_nothing():
    walked = Walked(GROUPS, {**OF_GROUP, "verdict": "each_node"}, START, restore_node=[UNMARKED])
    assert "MarkNodes" not in walked.groups[0] and walked.path[-1] == "Rotated"


def test_marks_that_cannot_be_set_or_removed_keep_nothing():
    failed = FunctionFailed("ServiceRefused", "no")
    walked = Walked(GROUPS, OF_GROUP, START, taint_node=[failed], restore_node=[failed])
    assert walked.path[-1] == "Rotated"


@pytest.mark.parametrize("answers", [[FunctionFailed("ServiceRefused", "no")], [{"verdict": "dance"}]])
def test_a_group_that_fails_fails_the_rotation(answers):
    walked = Walked(GROUPS, *answers)
    assert walked.execution.error == "RotationFailed" and walked.groups[0][-1] == "GroupFailed"
    (broken,) = json.loads(walked.execution.cause)["groups"]
    assert broken in [
        {"group": "workers", "error": ["ServiceRefused"], "why": ['{"errorMessage": "no", "errorType": "ServiceRefused"}']},
        {"group": "workers", "error": ["InternalError"], "why": ["unknown verdict: dance"]},
    ]
    walked, group = of_group(*answers)
    assert group["recycled"] == 0 and walked.groups[0][-1] == "GroupRotated"


def test_a_function_that_fails_for_one_node_is_a_failure_of_it():
    _, group = of_group(FunctionFailed("ServiceRefused", "no"))
    assert [each["why"] for each in group["failed"]] == ["ServiceRefused"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(FunctionFailed("InvalidInput", "no"), "InvalidInput"), ({"verdict": "dance"}, "InternalError")],
)
def test_a_selection_that_fails_ends_with_the_errors_name(answer, error):
    walked = Walked(answer)
    assert (walked.execution.status, walked.execution.error) == ("FAILED", error)


def test_a_node_that_could_not_be_started_fails_the_rotation_after_all_others():
    walked = Walked(selected(NODE, OTHER), without_machine=True)
    assert walked.execution.error == "RotationFailed"
    assert NODE in walked.execution.cause and OTHER in walked.execution.cause
    assert walked.path.count("NodeNotStarted") == 2


def test_the_failures_of_four_hundred_nodes_are_cut_to_the_size_of_a_cause():
    nodes = [f"i-0fedcba9876543{number:03}" for number in range(400)]
    walked = Walked(selected(*nodes), without_machine=True)
    assert walked.execution.error == "RotationFailed", walked.execution.cause
    assert nodes[0] in walked.execution.cause and len(walked.execution.cause) == 30_000


#: Step Functions ends an execution at 25,000 events; the rest is for the retries of Tasks.
ROOM = 23_100
DAY = 86_400


class Patience:
    """select-nodes as the real one answers at worst: each of the first forty nodes waits for a day, any other for minutes.
    Each fails as often as it may be tried, each time after a pause."""

    def __init__(self, nodes: int, at_once: int, retries: int) -> None:
        self.nodes = [f"i-{number:017x}" for number in range(nodes)]
        self.at_once, self.retries, self.paused = at_once, retries, set()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["select"] == "rotation":
            return GROUPS
        if request["select"] == "group":
            return {**OF_GROUP, "nodes": self.nodes, "at_once": self.at_once}
        node = request["waiting_node"]
        if node["waited"] < (DAY if node["index"] < 40 else 300):
            return wait(node["waited"], max(30, node["waited"] // 2))
        if node["attempt"] > self.retries + 1:
            return ended("failed", "x" * 240)
        if (this := (node["instance_id"], node["attempt"])) not in self.paused:
            self.paused.add(this)
            return PAUSE
        return {**START, "start": {"name": f"{node['instance_id']}-{node['attempt']}-fails"}}


@pytest.mark.parametrize(("nodes", "retries", "least"), [(173, 0, 18_000), (31, 10, 13_000)])
def test_the_worst_group_leaves_room_in_its_history_and_has_a_short_output(nodes, retries, least):
    """crates/recycle/src/rotation/passes.rs has these sizes of a pass. They also allow for waits between attempts, which are not
    played."""
    clock, machines, functions = Clock(), InMemoryMachines(), PythonFunctions()
    functions.update(
        {
            "select-nodes": Patience(nodes, at_once=5, retries=retries),
            "taint-node": lambda request: MARKED,
            "restore-node": lambda request: UNMARKED,
        }
    )
    engine = Engine(clock, machines, functions, NoServices())
    live = machines.put("recycle-node", ends_as("fails"))
    definition = json.loads(json.dumps(rendered("rotate-nodes")).replace(LIVE, live))
    execution = engine.start_execution(machines.put("rotate-nodes", definition), "{}")
    clock.run(until=lambda: execution.status != "RUNNING", limit=400 * DAY)
    (group,) = [each for each in engine.executions.values() if each.map_run_arn]
    assert path_of(group)[-1] == "GroupRotated" and len(engine.executions_of(live)) == nodes * (retries + 1)
    assert least < len(group.events) < ROOM
    assert len(group.output_text) < 4_000 and execution.error == "RotationFailed"


LEFT = ended("left", "the window is over")
NEXT = ended("next_pass", "paused")
STOPS = {**LEFT, "verdict": "stop"}
NOTHING = {"verdict": "nothing_selected", "reason": "done", "ended": {"end": "none", "why": "done"}}
NEWER = {"verdict": "nothing_selected", "reason": "new", "ended": {"end": "left", "why": "new", "error": "KubeletTooNew"}}
FAILED = ended("failed", "DrainTimeout")


def starting(node: str) -> dict[str, Any]:
    return {**START, "start": {"name": f"manual-{node}-12345678", "instance_id": node}}


@pytest.mark.parametrize(
    ("more", "of_first", "of_second", "expected"),
    [
        pytest.param(1, [starting(NODE)], [starting(OTHER)], (2, 0, 0, 2), id="two_passes"),
        pytest.param(7, [starting(NODE)], [STOPS], (1, 0, 1, 2), id="the_second_stops"),
        pytest.param(7, [STOPS], None, (0, 0, 8, 1), id="the_first_stops"),
        pytest.param(7, [LEFT], None, (0, 0, 8, 1), id="none_recycled"),
        pytest.param(7, [starting(NODE)], NOTHING, (1, 0, 0, 1), id="nothing_left"),
        pytest.param(7, [starting(NODE)], NEWER, (1, 0, 7, 1), id="the_second_is_refused"),
        pytest.param(7, [starting(NODE)], [FAILED], (1, 1, 0, 2), id="one_fails"),
    ],
)
def test_a_large_group_takes_several_passes(more, of_first, of_second, expected):
    second = [of_second] if isinstance(of_second, dict) else [{**OF_GROUP, "nodes": [OTHER]}, *(of_second or [])]
    answers = [GROUPS, {**OF_GROUP, "more": more, "later": [OTHER]}, *of_first, *second]
    walked = Walked(*answers, taint_node=[MARKED] * 2, restore_node=[UNMARKED] * 2)
    text = walked.execution.output or json.loads(walked.execution.cause)
    (group,) = text["groups"]
    assert (group["recycled"], len(group["failed"]), group["left"], group["passes"]) == expected
    assert walked.path.count("EachGroup") == len(walked.groups) == (1 if of_second is None else 2)
    earlier = [request["rotation"]["earlier"] for request in walked.script.requests if request.get("select") == "group"]
    assert [each["passes"] for each in earlier] == list(range(len(walked.groups)))
    marked, unmarked = ([r[what]["nodes"] for r in walked.script.requests if what in r] for what in ("marking", "unmarking"))
    assert marked[0] == [NODE, OTHER]
    assert group["why"] == ([] if group["left"] == 0 else [NEWER["reason"] if of_second is NEWER else LEFT["reason"]])
    # The nodes of the next pass keep their marks.
    assert unmarked[0] == ([NODE, OTHER] if of_second is None else [NODE])


@pytest.mark.parametrize(("first", "passes", "errors"), [(LEFT, 1, ["NodeUnreadable"]), (starting(NODE), 2, [])])
def test_members_that_no_pass_decides_about_again_are_an_error(first, passes, errors):
    undecided = {**OF_GROUP, "more": 1, "error": "NodeUnreadable"}
    walked = Walked(GROUPS, undecided, first, OF_GROUP, starting(OTHER), taint_node=[MARKED] * 2, restore_node=[UNMARKED] * 2)
    (group,) = (walked.execution.output or json.loads(walked.execution.cause))["groups"]
    assert (group["passes"], group["error"]) == (passes, errors)
    assert walked.execution.error == ("RotationFailed" if errors else None)


def test_a_node_that_waits_for_long_is_left_for_the_next_pass():
    of_both = {**OF_GROUP, "nodes": [NODE, OTHER]}
    answers = [GROUPS, of_both, starting(NODE), NEXT, {**OF_GROUP, "nodes": [OTHER]}, starting(OTHER)]
    walked = Walked(*answers, taint_node=[MARKED] * 2, restore_node=[UNMARKED] * 2)
    (group,) = walked.execution.output["groups"]
    assert (group["recycled"], group["left"], group["passes"], group["more"]) == (2, 0, 2, 0)


def test_a_group_that_breaks_in_its_second_pass_is_reported_once():
    broken = FunctionFailed("InternalError", "no")
    walked = Walked(GROUPS, {**OF_GROUP, "more": 1}, starting(NODE), *[broken] * 20, taint_node=[MARKED], restore_node=[UNMARKED])
    (group,) = json.loads(walked.execution.cause)["groups"]
    assert walked.execution.error == "RotationFailed" and group["error"] == ["InternalError"]


@pytest.mark.parametrize(
    ("second", "recycled", "failed"),
    [
        pytest.param(starting(NODE), 2, [], id="recycled"),
        pytest.param(ended("failed", "duplicate: x"), 1, [{"node": NODE, "why": "duplicate: x"}], id="fails_again"),
    ],
)
def test_a_node_that_a_later_pass_takes_again_is_judged_by_that_pass(second, recycled, failed):
    both = {**OF_GROUP, "nodes": [NODE, OTHER], "more": 1}
    answers = [GROUPS, both, FunctionFailed("ServiceRefused", "no"), starting(OTHER), OF_GROUP, second]
    walked = Walked(*answers, taint_node=[MARKED] * 2, restore_node=[UNMARKED] * 2)
    (group,) = (walked.execution.output or json.loads(walked.execution.cause))["groups"]
    assert (group["recycled"], group["failed"], group["failed_nodes"]) == (recycled, failed, len(failed))
