"""An engine without AWS, and the states of small machines, for tests of the interpreter."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from world.base.clock import Clock
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution
from world.stepfunctions.in_memory import FunctionFailed, InMemoryMachines, PythonFunctions

DAY = 86_400


class Sfn:
    """An engine without AWS, and shorthands for tests of it."""

    def __init__(self, seed: int | None = None):
        self.clock = Clock(seed=seed)
        self.machines = InMemoryMachines()
        self.functions = PythonFunctions()
        self.engine = Engine(self.clock, self.machines, self.functions)

    def start(self, definition: dict, value: Any = None, name: str = "machine") -> Execution:
        return self.engine.start_execution(self.machines.put(name, definition), json.dumps(value or {}))

    def run(self, definition: dict, value: Any = None) -> Execution:
        execution = self.start(definition, value)
        self.clock.run(until=lambda: execution.status != "RUNNING", limit=60 * DAY)
        return execution

    def events(self, execution: Execution) -> list[str]:
        return [event["type"] for event in execution.events]


@pytest.fixture
def sfn() -> Sfn:
    return Sfn()


def machine(start: str, **states: dict) -> dict:
    return {"QueryLanguage": "JSONata", "StartAt": start, "States": states}


def wait(seconds: Any, then: str | None = None) -> dict:
    return {"Type": "Wait", "Seconds": seconds, **({"Next": then} if then else {"End": True})}


def invoke(function: str = "f", payload: Any = "{% $states.input %}", **fields: Any) -> dict:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": function, "Payload": payload},
        "Output": "{% $states.result.Payload %}",
        **fields,
    }
    return task if "Next" in task else {**task, "End": True}


def parallel(*branches: dict, **fields: Any) -> dict:
    return {"Type": "Parallel", "Branches": list(branches), **fields}


def branch(**states: dict) -> dict:
    return {"StartAt": next(iter(states)), "States": states}


def mapped(items: Any, processor: dict, **fields: Any) -> dict:
    return {"Type": "Map", "Items": items, "ItemProcessor": processor, **fields}


def fails(error: str | None, times: int = 10**9, answer: Any = None) -> Callable[[Any], Any]:
    """A function that fails `times` times, then answers."""
    counter = itertools.count(1)

    def function(_: Any) -> Any:
        if next(counter) <= times:
            raise FunctionFailed(error, "boom")
        return answer

    return function
