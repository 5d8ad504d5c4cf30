"""The real definition of the sweep, walked into every state and twice round each loop, with functions that only answer."""

import json
from typing import Any

import pytest

from contract.scripts import HOOK, INPUT, LIVE, NOTIFICATION, OTHER, Script, Topic, Walk, answered, follow, rendered
from world.stepfunctions.in_memory import FunctionFailed
from world.stepfunctions.state_errors import StateError

NODE = INPUT["instance_id"]


class Services(Topic):
    """Step Functions starts executions, or refuses to."""

    def __init__(self, refuse: bool = False, start: str | None = None):
        super().__init__(refuse)
        self.started: list[dict[str, Any]] = []
        self._start = start

    def call(self, service: str, action: str, parameters: Any) -> Any:
        if action == "startExecution":
            self.started.append(parameters)
            if self._start:
                raise StateError(self._start, "no")
            return answered({"ExecutionArn": OTHER})
        return super().call(service, action, parameters)


def walk(services: Services | None = None, **answers: list[Any]) -> tuple[Walk, Script]:
    script = Script(**answers)
    return follow(script, rendered("sweep"), services or Services()), script


def test_a_restored_node_is_reported_once():
    services = Services()
    end, _ = walk(services)
    assert end.path == [
        "SelectNodes", "MarksLeft", "EachNode", "BeginNode", "RestoreNode", "NodeRestored", "NotifyOperators", "Restored",
        "AllRestored", "Swept",
    ]  # fmt: skip
    assert end.output == {"nodes": [{"restored": NODE}]}
    (notification,) = services.published
    assert json.loads(json.loads(notification["Message"])["default"]) == NOTIFICATION


def test_nothing_selected_is_nothing_done():
    end, _ = walk(select_nodes=[{"verdict": "each_node", "nodes": []}])
    assert end.path == ["SelectNodes", "MarksLeft", "EachNode", "AllRestored", "Swept"] and end.output == {"nodes": []}


@pytest.mark.parametrize("answer", [{"verdict": "unmarked"}, FunctionFailed("ServiceRefused", "no")])
def test_the_marks_of_rotations_that_have_ended_go_first_all_at_once(answer):
    found = {"verdict": "each_node", "nodes": [], "ended_rotations": [OTHER]}
    end, script = walk(select_nodes=[found], restore_node=[answer])
    assert end.path == ["SelectNodes", "MarksLeft", "UnmarkNodes", "EachNode", "AllRestored", "Swept"]
    assert script.requests[1]["unmarking"] == {"cluster_name": INPUT["cluster_name"], "rotations": [OTHER]}


@pytest.mark.parametrize("verdict", ["kept", "left_in_standby"])
def test_a_node_that_needs_an_operator_is_reported(verdict):
    services = Services()
    end, _ = walk(services, restore_node=[verdict])
    assert (end.status, end.output) == ("SUCCEEDED", {"nodes": [{verdict: NODE}]})
    assert len(services.published) == 1


def test_a_node_with_a_running_execution_is_not_reported():
    services = Services()
    end, _ = walk(services, restore_node=["untouched"])
    assert "NothingToRestore" in end.path and not services.published


def test_twice_round_the_loop():
    answers, states = ["wait", "wait", "restored"], ["WaitForRestore", "RestoreNode", "NodeRestored"]
    end, script = walk(restore_node=answers)
    assert any(end.path[at : at + 2 * len(states)] == states * 2 for at in range(len(end.path)))
    requests = script.requests[1:]
    assert [request["leftover"] for request in requests] == [{"instance_id": NODE, "cluster_name": "world"}] * 3
    assert [request["restore"].get("verdict") for request in requests] == [None, *answers[:2]]


@pytest.mark.parametrize("refusal", [None, "Sfn.ExecutionAlreadyExistsException"])
@pytest.mark.parametrize("more", [{"hook": HOOK}, {}], ids=["held by our hook", "asked for by a taint"])
def test_a_node_without_an_execution_is_started_without_a_notification(refusal, more):
    services = Services(start=refusal)
    start = {"name": "a-name", "instance_id": NODE, **more}
    end, _ = walk(services, restore_node=[{"verdict": "start", "start": start}])
    assert end.status == "SUCCEEDED" and "StartRecycling" in end.path and not services.published
    (started,) = services.started
    assert (started["StateMachineArn"], started["Name"]) == (LIVE, "a-name")
    assert json.loads(started["Input"]) == {"instance_id": NODE, "cluster_name": "world", **more}


def test_an_execution_that_cannot_be_started_fails_the_sweep():
    end, _ = walk(Services(start="Sfn.AccessDeniedException"), restore_node=["start"])
    assert end.error == "SweepFailed" and NODE in end.cause


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ({"restore_node": [FunctionFailed("ServiceRefused", "no")]}, f"{NODE}: ServiceRefused"),
        ({"restore_node": ["dance"]}, "unknown verdict: dance"),
    ],
)
def test_a_node_that_could_not_be_restored_fails_the_sweep_after_all_others(answers, cause):
    nodes = [{"verdict": "each_node", "nodes": [NODE, "i-0fedcba9876543210"]}]
    answers["restore_node"].append("restored")
    services = Services()
    end, _ = walk(services, select_nodes=nodes, **answers)
    assert (end.status, end.error) == ("FAILED", "SweepFailed") and cause in end.cause
    assert len(services.published) == 1


def test_the_failures_of_forty_nodes_are_cut_to_the_size_of_a_cause():
    nodes = [f"i-0fedcba98765432{number:02}" for number in range(40)]
    failures = [FunctionFailed("ServiceRefused", "no " * 400)] * len(nodes)
    end, _ = walk(select_nodes=[{"verdict": "each_node", "nodes": nodes}], restore_node=failures)
    assert (end.status, end.error) == ("FAILED", "SweepFailed"), end.cause
    assert nodes[0] in end.cause and len(end.cause) == 30_000


def test_a_topic_that_refuses_fails_the_sweep_with_the_unsent_notification():
    end, _ = walk(Services(refuse=True))
    assert end.error == "SweepFailed" and "restore-node says restored" in end.cause


def test_a_claim_that_another_execution_has_taken_is_left_alone():
    end, _ = walk(restore_node=[FunctionFailed("ClaimLost", "theirs")])
    assert "NothingToRestore" in end.path and end.status == "SUCCEEDED"


def test_these_walks_enter_every_state():
    entered: set[str] = set()
    for answers in (["wait", "restored"], ["untouched"], ["start"], ["dance"]):
        entered |= set(walk(restore_node=answers)[0].path)
    machine = rendered("sweep")
    assert entered | {"Swept", "SweepFailed", "UnmarkNodes"} == {
        *machine["States"],
        *machine["States"]["EachNode"]["ItemProcessor"]["States"],
    }
    assert walk(restore_node=["untouched"])[0].path[-1] == "Swept"
