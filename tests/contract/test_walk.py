"""The real definition, walked into every state and twice round each loop, with functions that only answer."""

import json
from typing import Any

import pytest

from prepare import LAMBDAS, ROOT
from world.clock import Clock
from world.in_memory import FunctionFailed, InMemoryMachines, PythonFunctions
from world.state_errors import StateError
from world.stepfunctions import Engine, Execution

INPUT = {"instance_id": "i-0123456789abcdef0", "cluster_name": "world"}
OTHER = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:other"

#: What each function answers, call by call, to go straight through. A number makes it wait so many seconds.
STRAIGHT = {
    "claim-node": ["standby"],
    "standby-node": ["taint"],
    "taint-node": ["check_pods"],
    "check-pods": ["dispose"],
    "evict-pods": [],
    "detach-terminate": ["recycled"],
    "restore-node": ["kept"],
}


class NoServices:
    """Step Functions is asked about no execution that it knows."""

    def call(self, service: str, action: str, parameters: Any) -> Any:
        raise StateError("Sfn.ExecutionDoesNotExistException", "Execution Does Not Exist")


def walk(**answers: list[Any]) -> tuple[list[str], Execution]:
    """Runs the definition; the states entered, and the execution. An answer is a verdict, or an error to fail with."""
    clock, machines, functions = Clock(), InMemoryMachines(), PythonFunctions()
    for name in LAMBDAS:
        functions[name] = answering(name, answers.get(name.replace("-", "_"), STRAIGHT[name]))
    engine = Engine(clock, machines, functions, NoServices())
    execution = engine.start_execution(machines.put("recycle-node", rendered()), json.dumps(INPUT))
    clock.run(until=lambda: execution.status != "RUNNING", limit=10 * 86_400)
    return [e["stateEnteredEventDetails"]["name"] for e in execution.events if "stateEnteredEventDetails" in e], execution


def answering(name: str, answers: list[Any]) -> Any:
    left = list(answers)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        assert set(request) <= {"context", "run", "owner", "failure"}, request
        given = left.pop(0)
        if isinstance(given, FunctionFailed):
            raise given
        return {
            "schema": 1,
            "verdict": given,
            "wait_seconds": 30,
            "reason": f"{name} says {given}",
            "counts": {},
            "names": {},
            "run": {"steps": 1},
            **({"owner": OTHER} if given == "ask_owner" else {}),
            **({"plan": {"steps": [], "notes": []}} if given == "planned" else {}),
        }

    return answer


def rendered() -> dict[str, Any]:
    """What Terraform makes of the file, each function named like its crate."""
    text = (ROOT / "state-machine" / "recycle-node.asl.json").read_text().replace("${partition}", "aws")
    for name in LAMBDAS:
        text = text.replace("${" + name.replace("-", "_") + "}", f"arn:aws:lambda:eu-west-1:123456789012:function:{name}:1")
    retry = [{"ErrorEquals": ["ServiceUnavailable"], "IntervalSeconds": 2, "MaxAttempts": 2, "BackoffRate": 2}]
    return json.loads(text.replace('"${retry}"', json.dumps(retry)))


def test_straight_through():
    path, execution = walk()
    assert path == [
        "Recycle", "Begin", "ClaimNode", "NodeClaimed", "StandbyNode", "ReplacementReady", "TaintNode", "CheckPods", "PodsGone",
        "DetachTerminate", "NodeDisposed", "NodeRecycled",
    ]  # fmt: skip
    assert execution.output == {"outcome": "recycled", "reason": "detach-terminate says recycled", "counts": {}, "names": {}}


def test_the_ways_in_after_and_hook_go_straight_to_the_taint():
    path, execution = walk(claim_node=["taint"])
    assert "StandbyNode" not in path and path.index("TaintNode") == path.index("NodeClaimed") + 1
    assert execution.output["outcome"] == "recycled"


#: the loop, the answers that lead twice round it, the states of one round
LOOPS = [
    ("owner", {"claim_node": ["ask_owner", "ask_owner", "standby"]}, ["DescribeClaimOwner", "ClaimNode", "NodeClaimed"]),
    ("replacement", {"standby_node": ["wait", "wait", "taint"]}, ["WaitForReplacement", "StandbyNode", "ReplacementReady"]),
    ("quiet drain", {"check_pods": ["wait", "wait", "dispose"]}, ["WaitForPods", "CheckPods", "PodsGone"]),
    (
        "drain that evicts",
        {"check_pods": ["evict", "evict", "dispose"], "evict_pods": ["wait", "wait"]},
        ["EvictPods", "WaitForPods", "CheckPods", "PodsGone"],
    ),
    ("disposal", {"detach_terminate": ["wait", "wait", "recycled"]}, ["WaitForDisposal", "DetachTerminate", "NodeDisposed"]),
    (
        "pods that came back",
        {"detach_terminate": ["check_pods", "check_pods", "recycled"], "check_pods": ["dispose"] * 3},
        ["CheckPods", "PodsGone", "DetachTerminate", "NodeDisposed"],
    ),
]


@pytest.mark.parametrize(("answers", "states"), [loop[1:] for loop in LOOPS], ids=[loop[0] for loop in LOOPS])
def test_twice_round_each_loop(answers, states):
    path, execution = walk(**answers)
    assert execution.output["outcome"] == "recycled"
    assert any(path[at : at + 2 * len(states)] == states * 2 for at in range(len(path)))


@pytest.mark.parametrize(
    ("verdict", "last"), [("duplicate", "Duplicate"), ("already_gone", "AlreadyGone"), ("planned", "Planned")]
)
def test_nothing_to_do_ends_succeeded(verdict, last):
    path, execution = walk(claim_node=[verdict])
    assert path[-1] == last and execution.output["outcome"] == verdict


@pytest.mark.parametrize("step", ["claim_node", "standby_node", "taint_node", "check_pods", "evict_pods", "detach_terminate"])
def test_an_error_of_any_step_leads_to_restore_node_and_keeps_its_name(step):
    answers = {step: [FunctionFailed("ServiceRefused", "no")]}
    if step == "evict_pods":
        answers["check_pods"] = ["evict"]
    path, execution = walk(**answers)
    assert path[-2:] == ["RestoreNode", "NodeKept"]
    assert (execution.status, execution.error, execution.cause) == ("FAILED", "ServiceRefused", "restore-node says kept")


@pytest.mark.parametrize("step", ["claim_node", "standby_node", "check_pods", "detach_terminate"])
def test_an_unknown_verdict_is_an_error_like_any_other(step):
    path, execution = walk(**{step: ["dance"]})
    assert path[-3:] == ["UnknownVerdict", "RestoreNode", "NodeKept"]
    assert execution.error == "InternalError"


def test_a_lost_claim_touches_nothing_more():
    path, execution = walk(check_pods=[FunctionFailed("ClaimLost", "another execution's")])
    assert path[-1] == "ClaimLost" and "RestoreNode" not in path
    assert (execution.status, execution.error, execution.cause) == ("FAILED", "ClaimLost", "another execution's")


def test_what_is_unavailable_is_tried_again():
    busy = FunctionFailed("ServiceUnavailable", "busy")
    path, execution = walk(taint_node=[busy, busy, "check_pods"])
    assert execution.output["outcome"] == "recycled"


def test_a_restore_that_fails_tells_both_errors():
    failed = {
        "taint_node": [FunctionFailed("ServiceRefused", "first")],
        "restore_node": [FunctionFailed("InternalError", "second")],
    }
    path, execution = walk(**failed)
    assert path[-1] == "NotRestored" and execution.error == "ServiceRefused"
    assert "first" in execution.cause and "second" in execution.cause


def test_these_walks_enter_every_state():
    entered: set[str] = set()
    for _, answers, _ in LOOPS:
        entered |= set(walk(**answers)[0])
    for verdict in ("duplicate", "already_gone", "planned", "dance"):
        entered |= set(walk(claim_node=[verdict])[0])
    entered |= set(walk(taint_node=[FunctionFailed("ClaimLost")])[0])
    entered |= set(walk(taint_node=[FunctionFailed("X")], restore_node=[FunctionFailed("Y")])[0])
    machine = rendered()
    branch = machine["States"]["Recycle"]["Branches"][0]
    assert entered == {*machine["States"], *branch["States"]}
