"""The same definition, the same scripts, two interpreters that share nothing but the JSONata library: they must agree.

Tests below also assert the features that ministack lacks. When ministack gets one of them, its test fails, and the workaround can
go. docs/second-interpreter.md explains each difference.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from contract.scripts import LOOPS, Script, Walk, branch, follow, rendered
from second_interpreter.ministack import Ministack
from world.process.processes import descendants, eventually, is_running, listening_addresses
from world.stepfunctions.in_memory import FunctionFailed

REFUSED, BUSY = FunctionFailed("ServiceRefused", "no"), FunctionFailed("ServiceUnavailable", "busy")
LOST = FunctionFailed("ClaimLost", "another execution's")

#: The owner's loop asks AWS, where the two know different errors; it has a test of its own.
SCRIPTS: dict[str, dict[str, list[Any]]] = {
    "straight through": {},
    "straight to the taint": {"claim_node": ["taint"]},
    **{f"twice round: {name}": answers for name, answers, _ in LOOPS if name not in ("owner", "hook that is kept alive")},
    **{
        f"nothing to do: {verdict}": {"claim_node": [verdict]} for verdict in ("duplicate", "already_gone", "released", "planned")
    },
    **{
        f"error of {step}": {step: [REFUSED]}
        for step in ("claim_node", "standby_node", "taint_node", "check_pods", "detach_terminate")
    },
    "error of evict_pods": {"check_pods": ["evict"], "evict_pods": [REFUSED]},
    **{
        f"unknown verdict of {step}": {step: ["dance"]}
        for step in ("claim_node", "standby_node", "check_pods", "detach_terminate")
    },
    "lost claim": {"check_pods": [LOST]},
    "claim taken over": {"claim_node": ["wait", FunctionFailed("Superseded", "another execution's")]},
    "tried again until it works": {"taint_node": [BUSY, BUSY, "check_pods"]},
    "tried again in vain": {"taint_node": [BUSY] * 3},
    "restore that waits": {"taint_node": [REFUSED], "restore_node": ["wait", "wait", "restored"]},
    "restore that leaves the node in Standby": {"taint_node": [REFUSED], "restore_node": ["left_in_standby"]},
    "restore that fails": {"taint_node": [REFUSED], "restore_node": [FunctionFailed("InternalError", "second")]},
    "answer without a run": {"claim_node": [{"verdict": "standby"}]},
    "wait without seconds": {"standby_node": [{"verdict": "wait", "run": {}}]},
    "wait that is no number": {"standby_node": [{"verdict": "wait", "run": {}, "wait_seconds": "soon"}]},
}


#: Together they enter every state that any of the scripts enters, and two end with an error or repeat a call.
PATHS = [
    *(f"twice round: {name}" for name in ("notifications of the start and of blocked pods", "queue", "replacement")),
    *(f"twice round: {name}" for name in ("drain that evicts", "disposal")),
    *(f"nothing to do: {verdict}" for verdict in ("duplicate", "already_gone", "released", "planned")),
    "unknown verdict of claim_node",
    "error of check_pods",
    "tried again until it works",
]


@pytest.fixture(scope="module")
def ministack() -> Iterator[Ministack]:
    emulator = Ministack()
    yield emulator
    emulator.stop()


def in_its_words(definition: dict[str, Any]) -> dict[str, Any]:
    """The same machine for ministack, which ignores the Output of a Succeed and of a Parallel: in both cases a Pass has it."""

    def passed(state: dict[str, Any]) -> dict[str, Any]:
        if state["Type"] == "Succeed" and "Output" in state:
            return {"Type": "Pass", "Output": state["Output"], "End": True}
        return state

    def with_passes(scope: dict[str, Any]) -> dict[str, Any]:
        return {**scope, "States": {name: passed(state) for name, state in scope["States"].items()}}

    states = with_passes(definition)["States"]
    if "Recycle" in states:
        recycle = {name: value for name, value in states["Recycle"].items() if name not in ("Output", "End")}
        assert states["Recycle"]["Output"] == "{% $states.result[0] %}" and states["Recycle"]["End"] is True
        states["Recycle"] = {
            **recycle,
            "Branches": [with_passes(part) for part in recycle["Branches"]],
            "Next": "OutputOfRecycle",
        }
        states["OutputOfRecycle"] = {"Type": "Pass", "Output": "{% $states.input[0] %}", "End": True}
    return {**definition, "States": states}


def asked(script: Script) -> list[Any]:
    """Returns the requests to the functions, without the wording of JSONata errors, which differs between interpreters."""
    calls = script.calls()
    for _, _, request in calls:
        if request.get("failure", {}).get("Error") == "States.QueryEvaluationError":
            request["failure"] = "States.QueryEvaluationError"
    return calls


def ending(walk: Walk) -> dict[str, Any]:
    """Returns a walk without its path."""
    return {name: value for name, value in vars(walk).items() if name != "path"}


@cache
def own_walk(name: str) -> tuple[list[Any], Walk]:
    """The requests to the functions, and the walk of the own interpreter through the whole machine."""
    script = Script(**SCRIPTS[name])
    walk = follow(script, rendered())
    return asked(script), walk


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_call_the_same_functions_with_the_same_and_end_alike(ministack, name):
    own_requests, own_end = own_walk(name)
    other = Script(**SCRIPTS[name])
    other_end = ministack.follow(other, in_its_words(rendered()))
    assert asked(other) == own_requests
    assert ending(other_end) == ending(own_end)


@pytest.mark.parametrize("name", PATHS)
def test_both_enter_the_same_states(ministack, name):
    """Walks only the branch, because ministack writes no history of a Parallel's branch."""
    own = follow(Script(**SCRIPTS[name]), branch(rendered()))
    other = ministack.follow(Script(**SCRIPTS[name]), in_its_words(branch(rendered())))
    assert other.path == own.path
    assert (other.status, other.error) == (own.status, own.error)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_machine_in_ministacks_words_is_the_same_machine(name):
    _, end = own_walk(name)
    end_in_its_words = follow(Script(**SCRIPTS[name]), in_its_words(rendered()))
    assert ending(end_in_its_words) == ending(end)
    assert [name for name in end_in_its_words.path if name != "OutputOfRecycle"] == end.path


def test_these_scripts_enter_every_state_but_those_that_depend_on_what_aws_answers():
    entered = {state for name in SCRIPTS for state in own_walk(name)[1].path}
    assert entered == {*rendered()["States"], *branch(rendered())["States"]} - {"RecordHeartbeat"}
    compared = {state for name in PATHS for state in follow(Script(**SCRIPTS[name]), branch(rendered())).path}
    assert compared == set(branch(rendered())["States"]) - {"RecordHeartbeat"}


def test_ministack_listens_on_loopback_only_and_leaves_nothing_behind():
    emulator = Ministack()
    try:
        emulator.follow(Script(), rendered())
        processes = {emulator.process.pid} | descendants(emulator.process.pid)
        assert len(processes) == 6  # the five functions that a straight way calls, and ministack
        assert set(listening_addresses(processes)) == {"127.0.0.1"}
    finally:
        emulator.stop()
    assert eventually(lambda: not any(is_running(process) for process in processes))
    assert not emulator.folder.exists()


# Differences between ministack and AWS


def test_ministack_ignores_the_output_of_a_succeed_and_of_a_parallel(ministack):
    as_duplicate = {"claim_node": ["duplicate"]}
    assert ministack.follow(Script(**as_duplicate), rendered()).output == [{}]
    assert follow(Script(**as_duplicate), rendered()).output["outcome"] == "duplicate"


def test_ministack_writes_no_history_of_a_branch(ministack):
    assert ministack.follow(Script(), rendered()).path == ["Recycle"]


def test_ministack_gives_a_failed_execution_an_output(ministack):
    end = ministack.describe(Script(taint_node=[REFUSED]), rendered())
    assert end["output"] == '{"Error": "ServiceRefused", "Cause": "restore-node says restored"}'


def test_ministack_has_no_limit_of_sizes(ministack):
    answers = {"claim_node": [{"verdict": "standby", "run": {"padding": "x" * 300_000}}]}
    assert ministack.follow(Script(**answers), rendered()).status == "SUCCEEDED"
    script = Script(**answers)
    assert follow(script, rendered()).error == "States.DataLimitExceeded"
    assert script.calls()[-1][0] == "RestoreNode"


def test_ministack_shows_a_branchs_variables_outside_of_it(ministack):
    inner = {"StartAt": "Set", "States": {"Set": {"Type": "Pass", "Assign": {"inside": 1}, "End": True}}}
    leaking = {
        "QueryLanguage": "JSONata",
        "StartAt": "Around",
        "States": {
            "Around": {"Type": "Parallel", "Branches": [inner], "Next": "Show"},
            "Show": {"Type": "Pass", "Output": "{% $inside %}", "End": True},
        },
    }
    assert ministack.follow(Script(), leaking).output == 1
    assert follow(Script(), leaking).error == "States.QueryEvaluationError"


def test_ministacks_context_object_has_other_fields(ministack):
    own, other = Script(), Script()
    follow(own, rendered())
    ministack.follow(other, rendered())
    owns, others = own.requests[0]["context"], other.requests[0]["context"]
    assert set(others) - set(owns) == {"QueryLanguage", "variables"}
    assert set(owns["Execution"]) - set(others["Execution"]) == {"RedriveCount", "RoleArn"}
    assert set(others["State"]) == set(owns["State"]) and set(others["StateMachine"]) == set(owns["StateMachine"])
