"""The real definition of rotate-nodes, walked into every state, with a function that only answers."""

import json
from typing import Any

import pytest

from contract.scripts import INPUT, LIVE, NoServices, Script, rendered
from prepare import STEPS
from world.clock import Clock
from world.in_memory import FunctionFailed, InMemoryMachines, PythonFunctions
from world.stepfunctions import Engine

NODE, OTHER = INPUT["instance_id"], "i-0fedcba9876543210"
ENDS_AT_ONCE = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}, "QueryLanguage": "JSONata"}


def selected(*instances: str, **recycle: Any) -> dict[str, Any]:
    starts = [{"name": f"alarm-{instance}-12345678", "instance_id": instance} for instance in instances]
    return {"verdict": "each_node", "reason": "chosen", "starts": starts, "recycle": recycle}


class Walked:
    """One execution after a script, and what it started. `there` are executions that exist before."""

    def __init__(self, answer: Any, there: tuple[str, ...] = (), without_machine: bool = False) -> None:
        clock, machines, functions = Clock(), InMemoryMachines(), PythonFunctions()
        script = Script(select_nodes=[answer])
        functions.update({name: lambda request, name=name: script.answer(name, request) for name in STEPS})
        self.engine = Engine(clock, machines, functions, NoServices())
        started = "nobody" if without_machine else machines.put("recycle-node", ENDS_AT_ONCE)
        definition = json.loads(json.dumps(rendered("rotate-nodes")).replace(LIVE, started))
        for name in there:
            self.engine.start_execution(started, json.dumps({"another": "input"}), name)
        execution = self.engine.start_execution(machines.put("rotate-nodes", definition), "{}")
        clock.run(until=lambda: execution.status != "RUNNING", limit=86_400)
        self.execution = execution
        self.path = [e["stateEnteredEventDetails"]["name"] for e in execution.events if "stateEnteredEventDetails" in e]
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


def test_what_a_repeated_event_has_started_before_is_started():
    walked = Walked(selected(NODE), there=(f"alarm-{NODE}-12345678",))
    assert walked.path[-1] == "Started" and len(walked.inputs) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [(FunctionFailed("InvalidInput", "no"), "InvalidInput"), ({"verdict": "dance"}, "InternalError")],
)
def test_what_cannot_be_selected_ends_by_name(answer, error):
    walked = Walked(answer)
    assert (walked.execution.status, walked.execution.error) == ("FAILED", error)


def test_what_could_not_be_started_fails_the_rotation_after_all_others():
    walked = Walked(selected(NODE, OTHER), without_machine=True)
    assert walked.execution.error == "RotationFailed"
    assert NODE in walked.execution.cause and OTHER in walked.execution.cause
    assert walked.path.count("NodeNotBegun") == 2
