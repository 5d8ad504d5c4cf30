"""The Step Functions interpreter against what AWS documents: errors, retries, JSONata, scopes, limits, stop, redrive.

Expectations are AWS's documentation. test_recordings.py has what was recorded on AWS.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from world.stepfunctions.executions import Execution
from world.stepfunctions.in_memory import FunctionFailed
from world.stepfunctions.state_errors import ApiError, ServiceError
from world_tests.state_machines import DAY, Sfn, branch, fails, invoke, machine, mapped, parallel, wait

HOUR = 3600


def retry(*errors: str, **fields: Any) -> dict:
    return {"ErrorEquals": list(errors), **fields}


def guarded(retriers: list[dict] = (), catch: list[str] = (), function: str = "f", **fields: Any) -> dict:
    """Returns one Task. Each name in `catch` is its own catcher, whose name and error become the output."""
    catchers = [
        {"ErrorEquals": [name], "Output": {"by": name, "error": "{% $states.errorOutput.Error %}"}, "Next": "Caught"}
        for name in catch
    ]
    task = invoke(function, Next="Done", **fields)
    if retriers:
        task["Retry"] = list(retriers)
    if catchers:
        task["Catch"] = catchers
    return machine("Task", Task=task, Done={"Type": "Succeed"}, Caught={"Type": "Succeed"})


def child_machine(sfn: Sfn, definition: dict) -> str:
    return sfn.machines.put("child", definition)


def nested(**fields: Any) -> dict:
    arn = "arn:aws:states:eu-west-1:123456789012:stateMachine:child"
    task = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution.sync:2", **fields}
    return {**task, "Arguments": {"StateMachineArn": arn, "Input": {"from": "parent"}}}


def fails_in_turn(*errors: str | None) -> Callable[[Any], Any]:
    """One error per call, None for a success; then it always succeeds, answering the number of the call."""
    calls = itertools.count(1)

    def function(_: Any) -> Any:
        number = next(calls)
        if number <= len(errors) and errors[number - 1]:
            raise FunctionFailed(errors[number - 1])
        return {"call": number}

    return function


def refuses(code: str) -> Callable[[Any], Any]:
    def function(_: Any) -> Any:
        raise ServiceError(code, "refused", 429 if code == "TooManyRequestsException" else 500)

    return function


# One table for single machines


@dataclass
class Case:
    """A machine, the functions behind it, and how it must end, when."""

    name: str
    definition: dict
    status: str = "SUCCEEDED"
    output: Any = None
    error: str | None = None
    at: float | None = 0
    functions: Callable[[], dict] = lambda: {"f": lambda value: value}
    latency: dict = field(default_factory=dict)
    input: Any = None
    not_in_the_models: str = ""
    """A part of the sentence about a request that AWS's models do not have."""

    def marks(self) -> list[pytest.MarkDecorator]:
        return [pytest.mark.not_in_the_models(self.not_in_the_models)] if self.not_in_the_models else []

    def __str__(self) -> str:
        return self.name


def caught(name: str, by: str, error: str, catch: list[str], function: Callable[[], Any], **fields: Any) -> Case:
    keep = {key: fields.pop(key) for key in ("latency", "at") if key in fields}
    definition = guarded(catch=catch, **fields)
    return Case(name, definition, output={"by": by, "error": error}, functions=lambda: {"f": function()}, **keep)


def retried(name: str, retriers: list[dict], function: Callable[[], Any], at: float, catch: list[str] = ()) -> Case:
    output = {"by": catch[0], "error": catch[0]} if catch else None
    return Case(name, guarded(retriers, catch), output=output, at=at, functions=lambda: {"f": function()})


def query_error(name: str, *states: dict) -> Case:
    definition = machine("A", A=states[0], Done={"Type": "Succeed"})
    return Case(name, definition, status="FAILED", error="States.QueryEvaluationError")


def choice(condition: Any) -> dict:
    return {"Type": "Choice", "Choices": [{"Condition": condition, "Next": "Done"}], "Default": "Done"}


def large(_: Any) -> str:
    return "x" * (256 * 1024 + 10)


ERROR_NAMES = [
    caught("a function's errorType is the error's name", "NodeGone", "NodeGone", ["NodeGone"], lambda: fails("NodeGone")),
    caught(
        "TaskFailed takes any function error",
        "States.TaskFailed",
        "NodeGone",
        ["Other", "States.TaskFailed"],
        lambda: fails("NodeGone"),
    ),
    caught("ALL takes any function error", "States.ALL", "NodeGone", ["States.ALL"], lambda: fails("NodeGone")),
    caught(
        "an errorType of any characters",
        "States.ALL",
        "&alloc::boxed::Box<dyn Error>",
        ["States.ALL"],
        lambda: fails("&alloc::boxed::Box<dyn Error>"),
    ),
    caught(
        "a function error without errorType",
        "Lambda.Unknown",
        "Lambda.Unknown",
        ["Lambda.Unknown", "States.ALL"],
        lambda: fails(None),
    ),
    caught(
        "a function's own time-out",
        "Sandbox.Timedout",
        "Sandbox.Timedout",
        ["Sandbox.Timedout"],
        lambda: fails("Sandbox.Timedout"),
    ),
    *[
        caught(
            f"the Lambda API's {code}", f"Lambda.{code}", f"Lambda.{code}", [f"Lambda.{code}"], lambda code=code: refuses(code)
        )
        for code in ("ServiceException", "TooManyRequestsException", "AWSLambdaException", "SdkClientException")
    ],
    caught(
        "a JSONata error is caught by ALL",
        "States.ALL",
        "States.QueryEvaluationError",
        ["States.ALL"],
        lambda: fails("", 0),
        Assign={"x": "{% $number('abc') %}"},
    ),
    caught(
        "an undefined result is a query error",
        "States.QueryEvaluationError",
        "States.QueryEvaluationError",
        ["States.QueryEvaluationError"],
        lambda: fails("", 0),
        Assign={"x": "{% $states.input.nope %}"},
    ),
    Case(
        "States.Runtime is never caught",
        machine(
            "T",
            T={
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Arguments": {},
                "End": True,
                "Catch": [{"ErrorEquals": ["States.Runtime"], "Next": "C"}, {"ErrorEquals": ["States.ALL"], "Next": "C"}],
            },
            C={"Type": "Succeed"},
        ),
        status="FAILED",
        error="States.Runtime",
        not_in_the_models="lambda Invoke: the request of a state machine has no field FunctionName",
    ),
    Case(
        "too large an output is not caught by ALL",
        guarded(catch=["States.ALL"], Output={"twice": ["{% $states.result %}", "{% $states.result %}"]}),
        status="FAILED",
        error="States.DataLimitExceeded",
        functions=lambda: {"f": lambda _: "x" * 200_000},
    ),
    Case(
        "too large a result is not caught by TaskFailed",
        guarded(catch=["States.TaskFailed"]),
        status="FAILED",
        error="States.DataLimitExceeded",
        functions=lambda: {"f": large},
    ),
    caught(
        "too large a result is caught by its name",
        "States.DataLimitExceeded",
        "States.DataLimitExceeded",
        ["States.DataLimitExceeded", "States.ALL"],
        lambda: large,
    ),
    Case(
        "no rule and no Default",
        machine("X", X={"Type": "Choice", "Choices": [{"Condition": "{% false %}", "Next": "Done"}]}, Done={"Type": "Succeed"}),
        status="FAILED",
        error="States.NoChoiceMatched",
    ),
]

RETRIES = [
    retried("back-off 1, 2, 4", [retry("X", IntervalSeconds=1, BackoffRate=2, MaxAttempts=5)], lambda: fails("X", 3), at=7),
    retried(
        "MaxDelaySeconds: 5, 10, 10",
        [retry("X", IntervalSeconds=5, BackoffRate=3, MaxDelaySeconds=10, MaxAttempts=5)],
        lambda: fails("X", 3),
        at=25,
    ),
    retried("exhausted, then caught: 1, 2", [retry("X", MaxAttempts=2)], lambda: fails("X"), at=3, catch=["X"]),
    retried("three attempts by default: 1, 2, 4", [retry("X")], lambda: fails("X"), at=7, catch=["X"]),
    retried("MaxAttempts 0 is never", [retry("X", MaxAttempts=0)], lambda: fails("X"), at=0, catch=["X"]),
    retried(
        "ALL after a named retrier",
        [retry("Y"), retry("States.ALL", IntervalSeconds=9, MaxAttempts=1)],
        lambda: fails("X", 1),
        at=9,
    ),
]

RETRY_COUNTERS = [
    Case(
        "two retriers count apart: 10, 100, 10, 100",
        guarded(
            [
                retry("A", IntervalSeconds=10, BackoffRate=1, MaxAttempts=2),
                retry("B", IntervalSeconds=100, BackoffRate=1, MaxAttempts=2),
            ]
        ),
        output={"call": 5},
        at=220,
        functions=lambda: {"f": fails_in_turn("A", "B", "A", "B")},
    ),
    Case(
        "retriers count anew when the state is entered again: 1, 2, then 1, 2",
        machine(
            "T",
            T=invoke(Retry=[retry("X", MaxAttempts=2)], Next="Q"),
            Q={"Type": "Choice", "Choices": [{"Condition": "{% $states.input.call >= 6 %}", "Next": "Done"}], "Default": "T"},
            Done={"Type": "Succeed"},
        ),
        output={"call": 6},
        at=6,
        functions=lambda: {"f": fails_in_turn("X", "X", None, "X", "X")},
    ),
    Case(
        "RetryCount is in the context",
        machine("T", T=invoke(payload={"n": "{% $states.context.State.RetryCount %}"}, Retry=[retry("X")])),
        output={"n": 2},
        at=3,
        functions=lambda: {"f": lambda value: value if value["n"] == 2 else fails("X")(value)},
    ),
    Case(
        "a Retry of Output's own error",
        machine(
            "T",
            T=invoke(
                Output="{% $states.context.State.RetryCount = 1 ? 'ok' : $error('no') %}",
                Retry=[retry("States.QueryEvaluationError")],
            ),
        ),
        output="ok",
        at=1,
    ),
]

TIMEOUTS = [
    caught(
        "TimeoutSeconds",
        "States.Timeout",
        "States.Timeout",
        ["States.Timeout"],
        lambda: fails("", 0),
        at=100,
        latency={"f": 1000},
        TimeoutSeconds=100,
    ),
    caught(
        "TaskFailed does not take a time-out",
        "States.Timeout",
        "States.Timeout",
        ["States.TaskFailed", "States.Timeout"],
        lambda: fails("", 0),
        at=100,
        latency={"f": 1000},
        TimeoutSeconds=100,
    ),
    caught(
        "ALL takes a time-out",
        "States.ALL",
        "States.Timeout",
        ["States.ALL"],
        lambda: fails("", 0),
        at=100,
        latency={"f": 500},
        TimeoutSeconds=100,
    ),
    caught(
        "TimeoutSeconds as an expression",
        "States.Timeout",
        "States.Timeout",
        ["States.Timeout"],
        lambda: fails("", 0),
        at=7,
        latency={"f": 500},
        TimeoutSeconds="{% 3 + 4 %}",
    ),
    Case("the machine's time-out", {**machine("W", W=wait(5000)), "TimeoutSeconds": 100}, status="TIMED_OUT", at=100),
    Case(
        "the machine's time-out during a back-off",
        {**guarded([retry("X", IntervalSeconds=5000)]), "TimeoutSeconds": 100},
        status="TIMED_OUT",
        at=100,
        functions=lambda: {"f": fails("X")},
    ),
    Case(
        "the machine's time-out during a task",
        {**guarded(), "TimeoutSeconds": 100},
        status="TIMED_OUT",
        at=100,
        latency={"f": 1000},
    ),
]

SWAP = machine(
    "I",
    I={"Type": "Pass", "Assign": {"a": 1, "b": 2}, "Next": "S"},
    S={"Type": "Pass", "Assign": {"a": "{% $b %}", "b": "{% $a %}"}, "Output": {"a": "{% $a %}"}, "Next": "T"},
    T=invoke(Catch=[{"ErrorEquals": ["States.ALL"], "Assign": {"e": "{% $states.errorOutput.Error %}"}, "Next": "O"}]),
    O={"Type": "Pass", "Output": {"a": "{% $a %}", "b": "{% $b %}", "e": "{% $e %}"}, "End": True},
)
SCOPED = machine(
    "I",
    I={"Type": "Pass", "Assign": {"a": 1}, "Next": "M"},
    M={
        "Type": "Map",
        "Items": [1, 2],
        "Next": "O",
        "ItemProcessor": {
            "StartAt": "P",
            "States": {
                "P": {"Type": "Pass", "Assign": {"z": "{% $a + $states.input %}"}, "Next": "Q"},
                "Q": {"Type": "Pass", "Output": "{% $z %}", "End": True},
            },
        },
    },
    O={"Type": "Pass", "Output": {"r": "{% $states.input %}", "z": "{% $exists($z) %}"}, "End": True},
)
QUOTES = 'he said "x"\n\\y'

VALUES = [
    Case("Assign takes effect after the state", SWAP, output={"a": 2, "b": 1, "e": "X"}, functions=lambda: {"f": fails("X")}),
    Case("an inner scope reads outer variables and keeps its own", SCOPED, output={"r": [2, 3], "z": False}),
    Case(
        "a rule's Assign and Output, not the state's",
        machine(
            "X",
            X={
                "Type": "Choice",
                "Assign": {"v": "state"},
                "Default": "D",
                "Choices": [{"Condition": "{% $states.input.go %}", "Assign": {"v": "rule"}, "Output": "ruled", "Next": "D"}],
            },
            D={"Type": "Pass", "Output": ["{% $v %}", "{% $states.input %}"], "End": True},
        ),
        input={"go": True},
        output=["rule", "ruled"],
    ),
    Case(
        "the state's Assign and Output with Default",
        machine(
            "X",
            X={
                "Type": "Choice",
                "Assign": {"v": "state"},
                "Output": "fell",
                "Default": "D",
                "Choices": [{"Condition": "{% $states.input.go %}", "Assign": {"v": "rule"}, "Next": "D"}],
            },
            D={"Type": "Pass", "Output": ["{% $v %}", "{% $states.input %}"], "End": True},
        ),
        input={"go": False},
        output=["state", "fell"],
    ),
    Case("$ inside a predicate", machine("X", X={"Type": "Pass", "Output": "{% [1..3][$ > 1] %}", "End": True}), output=[2, 3]),
    Case(
        "a variable with quotes and newlines",
        machine(
            "I",
            I={"Type": "Pass", "Assign": {"a": "{% $states.input.q %}"}, "Next": "O"},
            O={"Type": "Pass", "Output": "{% $a %}", "End": True},
        ),
        input={"q": QUOTES},
        output=QUOTES,
    ),
    Case(
        "null is a value, undefined fields vanish",
        machine("I", I={"Type": "Pass", "Output": "{% {'null': $states.input.n, 'gone': $states.input.nope} %}", "End": True}),
        input={"n": None},
        output={"null": None},
    ),
    Case(
        "expressions in lists and objects, other text as it is",
        machine("I", I={"Type": "Pass", "Output": {"a": ["{% 1 + 1 %}", "{%", "x {% 1 %}"]}, "End": True}),
        output={"a": [2, "{%", "x {% 1 %}"]},
    ),
    Case(
        "AWS's functions",
        machine(
            "I",
            I={
                "Type": "Pass",
                "End": True,
                "Output": {
                    "parts": "{% $partition([1..5], 2) %}",
                    "range": "{% $range(0, 10, 5) %}",
                    "parsed": "{% $parse('[null]') %}",
                    "hash": "{% $hash('a', 'MD5') %}",
                    "now": "{% $now() %}",
                    "millis": "{% $millis() %}",
                },
            },
        ),
        output={
            "parts": [[1, 2], [3, 4], [5]],
            "range": [0, 5, 10],
            "parsed": [None],
            "hash": "0cc175b9c0f1b6a831c399e269772661",
            "now": "2027-01-01T00:00:00.000Z",
            "millis": 1798761600000,
        },
    ),
    Case(
        "times in the context",
        machine(
            "W",
            W=wait(90, "I"),
            I={
                "Type": "Pass",
                "End": True,
                "Output": {
                    "start": "{% $states.context.Execution.StartTime %}",
                    "entered": "{% $states.context.State.EnteredTime %}",
                    "name": "{% $states.context.State.Name %}",
                    "machine": "{% $states.context.StateMachine.Name %}",
                    "redrive": "{% $states.context.Execution.RedriveCount %}",
                    "retry": "{% $exists($states.context.State.RetryCount) %}",
                },
            },
        ),
        at=90,
        output={
            "start": "2027-01-01T00:00:00Z",
            "entered": "2027-01-01T00:01:30Z",
            "name": "I",
            "machine": "machine",
            "redrive": 0,
            "retry": False,
        },
    ),
    Case(
        "ItemSelector sees the item and its index",
        machine(
            "M",
            M={
                "Type": "Map",
                "Items": "{% $states.input.names %}",
                "End": True,
                "ItemSelector": {"i": "{% $states.context.Map.Item.Index %}", "v": "{% $states.context.Map.Item.Value %}"},
                "ItemProcessor": {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}},
            },
        ),
        input={"names": ["x", "y"]},
        output=[{"i": 0, "v": "x"}, {"i": 1, "v": "y"}],
    ),
    Case(
        "the item and its index are in the ItemSelector's context alone",
        machine(
            "M",
            M={
                "Type": "Map",
                "Items": "{% $states.input.names %}",
                "End": True,
                "ItemProcessor": {
                    "StartAt": "P",
                    "States": {"P": {"Type": "Pass", "Output": "{% $states.context.Map.Item.Index %}", "End": True}},
                },
            },
        ),
        input={"names": ["x", "y"]},
        status="FAILED",
        error="States.QueryEvaluationError",
    ),
    Case(
        "a Fail state's Cause is as long as DescribeExecution allows",
        machine("F", F={"Type": "Fail", "Error": "NodeLost", "Cause": "x" * 32_768}),
        status="FAILED",
        error="NodeLost",
    ),
    Case(
        "a longer Cause is refused",
        machine("F", F={"Type": "Fail", "Error": "NodeLost", "Cause": "x" * 32_769}),
        status="FAILED",
        error="States.QueryEvaluationError",
    ),
    Case(
        "a Fail state's Error and Cause are expressions",
        machine("F", F={"Type": "Fail", "Error": "{% $states.input.e %}", "Cause": "{% 'because of ' & $states.input.e %}"}),
        input={"e": "NodeLost"},
        status="FAILED",
        error="NodeLost",
    ),
    Case(
        "Wait for a Timestamp with fraction and offset",
        machine("W", W={"Type": "Wait", "Timestamp": "{% '2027-01-01T02:00:30.500+01:00' %}", "End": True}),
        output={},
        at=3630.5,
    ),
    Case(
        "Wait for a Timestamp that is past",
        machine("W", W={"Type": "Wait", "Timestamp": "2020-01-01T00:00:00Z", "End": True}),
        output={},
        at=0,
    ),
    query_error("a Condition that is no boolean", choice("{% 1 %}")),
    query_error("a Condition that is undefined", choice("{% $states.input.nope %}")),
    query_error("Wait.Seconds below zero", wait("{% -5 %}")),
    query_error("Wait.Seconds with a fraction", wait("{% 1.5 %}")),
    query_error("Wait.Seconds above 99999999", wait("{% 100000000 %}")),
    query_error("Wait.Seconds that is null", wait("{% null %}")),
    query_error("a Timestamp without an offset", {"Type": "Wait", "Timestamp": "2027-01-01T00:00:00", "End": True}),
    query_error("an expression that is a function", {"Type": "Pass", "Output": "{% function($x) {$x} %}", "End": True}),
    query_error("$eval", {"Type": "Pass", "Output": "{% $eval('1') %}", "End": True}),
    query_error(
        "Items that are no array",
        {
            "Type": "Map",
            "Items": "{% 1 %}",
            "End": True,
            "ItemProcessor": {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}},
        },
    ),
]


def to_caught(error: str) -> list[dict]:
    return [{"ErrorEquals": [error], "Output": "{% $states.errorOutput.Error %}", "Next": "C"}]


DISTRIBUTED = {
    "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
    "StartAt": "W",
    "States": {"W": wait("{% $states.input * 100 %}", "F"), "F": invoke()},
}


def distributed(catch: str | None = None, **fields: Any) -> dict:
    state = mapped("{% [1..5] %}", DISTRIBUTED, MaxConcurrency=2, End=True, **fields)
    return machine("M", M={**state, **({"Catch": to_caught(catch)} if catch else {})}, C={"Type": "Succeed"})


def fails_from(first: int) -> Callable[[], dict]:
    def function(item: int) -> int:
        if item >= first:
            raise FunctionFailed("X")
        return item

    return lambda: {"f": function}


TOO_MANY = "States.ExceedToleratedFailureThreshold"

FAN_OUT = [
    Case(
        "the branch's own error leaves a Parallel, and its siblings end at once",
        machine(
            "P",
            P=parallel(branch(A=invoke()), branch(B=wait(9000, "G"), G=invoke("forbidden")), Catch=to_caught("X"), End=True),
            C=wait(20_000),
        ),
        output="X",
        at=20_000,
        functions=lambda: {"f": fails("X")},
    ),
    Case(
        "States.BranchFailed is not the branch's error",
        machine(
            "P",
            P=parallel(
                branch(A=invoke()),
                End=True,
                Catch=[
                    {"ErrorEquals": ["States.BranchFailed"], "Output": "wrong", "Next": "C"},
                    {"ErrorEquals": ["States.ALL"], "Output": "right", "Next": "C"},
                ],
            ),
            C={"Type": "Succeed"},
        ),
        output="right",
        functions=lambda: {"f": fails("X")},
    ),
    Case(
        "a Parallel's output is its branches' outputs, in order",
        machine(
            "P",
            P=parallel(
                branch(A=wait(50, "Z"), Z={"Type": "Succeed", "Output": 1}),
                branch(B={"Type": "Succeed", "Output": 2}),
                Arguments={},
                End=True,
            ),
        ),
        output=[1, 2],
        at=50,
    ),
    Case(
        "a failed iteration ends the others at once",
        machine(
            "M",
            M=mapped([10, 9000], branch(W=wait("{% $states.input %}", "F"), F=invoke()), Catch=to_caught("X"), End=True),
            C=wait(10_000),
        ),
        output="X",
        at=10_010,
        functions=lambda: {"f": fails("X", 1)},
    ),
    Case(
        "a States.* error keeps its name through a Map",
        machine(
            "M",
            M=mapped([1], branch(F=invoke(TimeoutSeconds=5)), Catch=to_caught("States.Timeout"), End=True),
            C={"Type": "Succeed"},
        ),
        output="States.Timeout",
        at=5,
        latency={"f": 100},
    ),
    Case(
        "a States.* error keeps its name through a Parallel",
        machine(
            "P",
            P=parallel(branch(W=wait("{% -1 %}")), Catch=to_caught("States.QueryEvaluationError"), End=True),
            C={"Type": "Succeed"},
        ),
        output="States.QueryEvaluationError",
    ),
    Case(
        "MaxConcurrency: the next starts as one ends",
        machine("M", M=mapped([10, 30, 10, 10], branch(W=wait("{% $states.input %}")), MaxConcurrency=2, End=True)),
        output=[10, 30, 10, 10],
        at=30,
    ),
    Case(
        "an inline Map runs 40 at once",
        machine("M", M=mapped("{% [1..41] %}", branch(W=wait(10)), End=True)),
        output=list(range(1, 42)),
        at=20,
    ),
    Case(
        "a Retry of a Parallel starts every branch anew",
        machine("P", P=parallel(branch(W=wait(10, "F"), F=invoke()), Retry=[retry("X", IntervalSeconds=5)], End=True)),
        output=[{"call": 2}],
        at=25,
        functions=lambda: {"f": fails_in_turn("X")},
    ),
    Case("an empty Map", machine("M", M=mapped([], branch(W=wait(10)), End=True)), output=[]),
    Case("a Distributed Map", distributed(), output=[1, 2, 3, 4, 5], at=900),
    Case("one failure is one too many by default", distributed(TOO_MANY), output=TOO_MANY, at=200, functions=fails_from(2)),
    Case(
        "beyond ToleratedFailureCount",
        distributed(TOO_MANY, ToleratedFailureCount=1),
        output=TOO_MANY,
        at=900,
        functions=fails_from(4),
    ),
    Case(
        "beyond ToleratedFailurePercentage",
        distributed(TOO_MANY, ToleratedFailurePercentage=30),
        output=TOO_MANY,
        at=900,
        functions=fails_from(4),
    ),
    Case(
        "either threshold counts",
        distributed(TOO_MANY, ToleratedFailureCount=5, ToleratedFailurePercentage=30),
        output=TOO_MANY,
        at=900,
        functions=fails_from(4),
    ),
]

CASES = ERROR_NAMES + RETRIES + RETRY_COUNTERS + TIMEOUTS + VALUES + FAN_OUT


@pytest.mark.parametrize("case", [pytest.param(case, marks=case.marks(), id=str(case)) for case in CASES])
def test_a_machine_ends_as_aws_documents(sfn, case):
    sfn.functions.update(case.functions())
    sfn.engine.latency.update(case.latency)
    execution = sfn.run(case.definition, case.input)
    assert (execution.status, execution.output, execution.error) == (case.status, case.output, case.error), execution.cause
    assert sfn.clock.elapsed() == case.at


def test_a_switch_decides_if_a_distributed_map_lists_the_children_that_failed(sfn):
    sfn.functions.update(fails_from(4)())
    definition = distributed(TOO_MANY, ToleratedFailureCount=2)
    listed = sfn.run(definition, [1, 2, 3, 4, 5]).output
    assert listed[:3] == [1, 2, 3]
    failed = [(child["Status"], child["Input"], child["Error"]) for child in listed[3:]]
    assert failed == [("FAILED", "4", "X"), ("FAILED", "5", "X")]
    sfn.engine.map_lists_failed_children = False
    assert sfn.run(definition, [1, 2, 3, 4, 5]).output == [1, 2, 3]


def test_full_jitter_draws_from_the_clock_between_zero_and_the_delay(sfn):
    sfn.functions["f"] = fails("X")
    sfn.run(guarded([retry("X", JitterStrategy="FULL")], catch=["X"]))
    first = sfn.clock.elapsed()
    other = Sfn(seed=1)
    other.functions["f"] = fails("X")
    other.run(guarded([retry("X", JitterStrategy="FULL")], catch=["X"]))
    assert 0 < first < 7 and 0 < other.clock.elapsed() < 7 and first != other.clock.elapsed()


# Definitions


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}, "QueryLanguage must be JSONata"),
        (machine("B", A={"Type": "Succeed"}), "Missing 'StartAt' target: B"),
        (machine("A", A={"Type": "Pass", "Next": "B"}), "Missing 'Next' target: B"),
        (machine("A", A={"Type": "Pass"}), "Exactly one of 'Next' and 'End'"),
        (machine("A", A={"Type": "Pass", "End": True, "InputPath": "$"}), "Field 'InputPath' is not supported"),
        (machine("A", A={"Type": "Pass", "End": True, "Output": "{% $( %}"}), "Not a valid JSONata expression"),
        (machine("A", A={"Type": "Walk"}), "Unknown state type 'Walk'"),
        (machine("A", A=wait(1.5)), "Seconds must be an integer"),
        (machine("A", A=invoke(Resource="arn:aws:states:::ecs:runTask")), "does not interpret the resource"),
        (machine("A", A=invoke(Resource="arn:aws:states:::aws-sdk:sfn")), "does not interpret the resource"),
        (machine("A", A=invoke(Catch=[{"ErrorEquals": ["States.ALL", "X"], "Next": "A"}])), "States.ALL must appear alone"),
        (
            machine(
                "A",
                A={"Type": "Pass", "Assign": {"v": 1}, "Next": "P"},
                P=parallel(branch(B={"Type": "Pass", "Assign": {"v": 2}, "End": True}), End=True),
            ),
            "Variable 'v' is assigned in an outer scope too",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_definition_that_aws_or_the_world_would_not_run_is_refused(sfn, definition, message):
    with pytest.raises(ApiError, match=message) as refused:
        sfn.start(definition)
    assert refused.value.code == "InvalidDefinition"


# Starting


def test_unnamed_executions_are_named_alike_in_every_run(sfn):
    other = Sfn()
    names = [sfn.start(machine("W", W=wait(1))).name for _ in range(2)]
    assert names == [other.start(machine("W", W=wait(1))).name for _ in range(2)]
    assert len(set(names)) == 2


def test_the_same_name_and_input_give_the_running_execution(sfn):
    arn = sfn.machines.put("m", machine("W", W=wait(100)))
    first = sfn.engine.start_execution(arn, '{"a":1}', "one")
    assert sfn.engine.start_execution(arn, '{"a":1}', "one") is first
    with pytest.raises(ApiError, match="ExecutionAlreadyExists"):
        sfn.engine.start_execution(arn, '{"a":2}', "one")
    sfn.clock.run()
    with pytest.raises(ApiError, match="ExecutionAlreadyExists"):
        sfn.engine.start_execution(arn, '{"a":1}', "one")


@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        ("{", None, "InvalidExecutionInput"),
        ("{}", "a b", "InvalidName"),
        ("{}", "x" * 81, "InvalidName"),
        (json.dumps("x" * 262_144), None, "ValidationException"),
    ],
    ids=["no JSON", "a blank in the name", "a long name", "a large input"],
)
def test_bad_input_and_names_are_refused(sfn, text, name, code):
    arn = sfn.machines.put("m", machine("W", W=wait(1)))
    with pytest.raises(ApiError, match=code):
        sfn.engine.start_execution(arn, text, name)


def test_a_running_execution_keeps_the_definition_it_started_with(sfn):
    execution = sfn.start(machine("W", W=wait(100, "P"), P={"Type": "Pass", "Output": "old", "End": True}))
    sfn.clock.run(limit=50)
    sfn.machines.put("machine", machine("P", P={"Type": "Pass", "Output": "new", "End": True}))
    sfn.clock.run()
    assert execution.output == "old"


# Nested executions


def test_a_parent_waits_for_its_child_and_notices_its_end_a_little_later(sfn):
    child_machine(sfn, machine("W", W=wait(5000, "X"), X={"Type": "Pass", "Output": {"ok": 1}, "End": True}))
    execution = sfn.run(machine("N", N=nested(Output="{% $states.result %}", End=True)))
    assert execution.output["Output"] == {"ok": 1} and execution.output["Input"] == {"from": "parent"}
    assert execution.output["StopDate"] == round((sfn.clock.start + 5000) * 1000)
    assert sfn.clock.elapsed() == 5001


def test_a_failed_child_is_states_task_failed_with_the_child_in_the_cause(sfn):
    child_machine(sfn, machine("F", F={"Type": "Fail", "Error": "NodeLost"}))
    execution = sfn.run(machine("N", N=nested(End=True)))
    assert execution.error == "States.TaskFailed" and json.loads(execution.cause)["Error"] == "NodeLost"


def test_start_execution_does_not_wait(sfn):
    child = child_machine(sfn, machine("W", W=wait(5000)))
    start = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "Arguments": {"StateMachineArn": child}}
    execution = sfn.run(machine("N", N={**start, "End": True}))
    assert sfn.clock.elapsed() == 0
    assert execution.output["ExecutionArn"] == sfn.engine.executions_of(child)[0].arn


def test_start_execution_of_a_missing_machine_is_a_named_error(sfn):
    start = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution"}
    arguments = {"StateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:none"}
    execution = sfn.run(machine("N", N={**start, "Arguments": arguments, "End": True}))
    assert execution.error == "StepFunctions.StateMachineDoesNotExistException"


@pytest.mark.parametrize("how", ["stopped", "timed out", "sibling failed", "task timed out"])
def test_a_child_ends_with_whatever_waited_for_it(sfn, how):
    child = child_machine(sfn, machine("W", W=wait(50_000)))
    bomb = branch(W=wait(100, "F"), F={"Type": "Fail", "Error": "X"})
    definition = {
        "stopped": machine("N", N=nested(End=True)),
        "timed out": {**machine("N", N=nested(End=True)), "TimeoutSeconds": 100},
        "sibling failed": machine("P", P=parallel(branch(N=nested(End=True)), bomb, End=True)),
        "task timed out": machine("N", N=nested(TimeoutSeconds=100, End=True)),
    }[how]
    execution = sfn.start(definition)
    if how == "stopped":
        sfn.clock.at(100, lambda: sfn.engine.stop_execution(execution.arn))
    sfn.clock.run()
    (ended,) = sfn.engine.executions_of(child)
    assert (ended.status, ended.stop - sfn.clock.start) == ("ABORTED", 100)
    assert execution.stop - sfn.clock.start == 100


# Stopping


STOPPABLE = {
    "wait": machine("B", B=wait(5000, "Z"), Z=invoke("forbidden")),
    "task": machine("B", B=invoke("slow", Next="Z"), Z=invoke("forbidden")),
    "bounded task": machine("B", B=invoke("slow", TimeoutSeconds=4000, Next="Z"), Z=invoke("forbidden")),
    "retry": machine("B", B=invoke("bad", Retry=[retry("X", IntervalSeconds=5000)], Next="Z"), Z=invoke("forbidden")),
    "map": machine("B", B=mapped([1, 2], branch(W=wait(5000, "V"), V=invoke("forbidden")), End=True)),
    "parallel": machine("B", B=parallel(branch(W=invoke("slow", Next="V"), V=invoke("forbidden")), End=True)),
}


@pytest.mark.parametrize("where", STOPPABLE)
def test_stop_is_immediate_and_nothing_runs_afterwards(sfn, where):
    sfn.functions.update(slow=lambda value: value, bad=fails("X"), forbidden=lambda _: pytest.fail("ran after the stop"))
    sfn.engine.latency["slow"] = 5000
    execution = sfn.start(STOPPABLE[where])
    sfn.clock.at(1000, lambda: sfn.engine.stop_execution(execution.arn, "User", "why"))
    sfn.clock.run()
    assert (execution.status, execution.error, execution.cause) == ("ABORTED", "User", "why")
    assert execution.stop - sfn.clock.start == 1000
    assert sfn.events(execution)[-1] == "ExecutionAborted"
    assert sfn.events(execution).count("ExecutionAborted") == 1
    assert execution.events[-1]["executionAbortedEventDetails"] == {"error": "User", "cause": "why"}


def test_stopping_an_ended_execution_changes_nothing(sfn):
    execution = sfn.run(machine("W", W=wait(1)))
    sfn.engine.stop_execution(execution.arn)
    assert execution.status == "SUCCEEDED"


def test_a_function_that_stops_its_own_execution_ends_it_there(sfn):
    execution = sfn.start(machine("A", A=invoke(Next="B"), B=invoke("forbidden")))
    sfn.functions.update(f=lambda _: sfn.engine.stop_execution(execution.arn).status, forbidden=lambda _: pytest.fail("ran"))
    sfn.clock.run()
    assert execution.status == "ABORTED"


# Redrive


def test_a_redrive_goes_on_at_the_failed_step_with_its_variables_and_input(sfn):
    sfn.functions["f"] = fails_in_turn("X", "X")
    task = invoke(payload={"v": "{% $v %}", "in": "{% $states.input %}", "n": "{% $states.context.Execution.RedriveCount %}"})
    sfn.functions["g"] = lambda value: value
    definition = machine(
        "I",
        I={"Type": "Pass", "Assign": {"v": 7}, "Output": "from I", "Next": "W"},
        W=wait(100, "T"),
        T=invoke(Next="G", Output="{% $states.input %}"),
        G={**task, "Arguments": {**task["Arguments"], "FunctionName": "g"}},
    )
    execution = sfn.run(definition)
    arn = execution.arn
    assert execution.status == "FAILED"
    for _ in (1, 2):
        sfn.clock.run(limit=sfn.clock.elapsed() + 1000)
        sfn.engine.redrive_execution(arn)
        sfn.clock.run()
    assert (execution.status, execution.arn, execution.redrive_count) == ("SUCCEEDED", arn, 2)
    assert execution.output == {"v": 7, "in": "from I", "n": 2}
    kinds = sfn.events(execution)
    assert kinds.count("ExecutionRedriven") == 2 and kinds.count("WaitStateEntered") == 1
    second = kinds.index("ExecutionRedriven")
    assert kinds[second : second + 3] == ["ExecutionRedriven", "TaskScheduled", "TaskStarted"]


def test_the_context_counts_redrives_and_has_the_time_of_the_last(sfn):
    seen: list[dict] = []

    def function(context: dict) -> None:
        seen.append(context["Execution"])
        if len(seen) == 1:
            raise FunctionFailed("X")

    sfn.functions["f"] = function
    execution = sfn.run(machine("T", T=invoke(payload="{% $states.context %}", Output={})))
    sfn.clock.run(limit=60)
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert seen[0]["RedriveCount"] == 0 and "RedriveTime" not in seen[0]
    assert (seen[1]["RedriveCount"], seen[1]["RedriveTime"]) == (1, "2027-01-01T00:01:00Z")
    assert seen[0]["StartTime"] == seen[1]["StartTime"]


@pytest.mark.parametrize(("renews", "entered"), [(True, "2027-01-01T00:01:00Z"), (False, "2027-01-01T00:00:00Z")])
def test_a_switch_decides_if_a_redrive_renews_entered_time(sfn, renews, entered):
    sfn.functions["f"] = fails_in_turn("X")
    sfn.engine.redrive_renews_entered_time = renews
    execution = sfn.run(machine("T", T=invoke(Output="{% $states.context.State.EnteredTime %}")))
    sfn.clock.run(limit=60)
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.output == entered


def test_a_redrive_runs_only_the_branches_that_did_not_succeed(sfn):
    calls: Counter[str] = Counter()

    def function(name: str) -> str:
        calls[name] += 1
        if name == "bad" and calls[name] == 1:
            raise FunctionFailed("X")
        return name

    sfn.functions["f"] = function
    one = branch(A=invoke(payload="good"))
    two = branch(
        I={"Type": "Pass", "Assign": {"kept": "inner"}, "Next": "W"},
        W=wait(100, "B"),
        B=invoke(payload="bad", Output=["{% $states.result.Payload %}", "{% $kept %}"]),
    )
    three = branch(W=wait(5000, "C"), C=invoke(payload="cut off"))
    execution = sfn.run(machine("P", P=parallel(one, two, three, End=True)))
    assert (execution.status, sfn.clock.elapsed()) == ("FAILED", 100)
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.output == ["good", ["bad", "inner"], "cut off"]
    assert calls == {"good": 1, "bad": 2, "cut off": 1}
    assert sfn.clock.elapsed() == 5100
    assert sfn.events(execution).count("ParallelStateStarted") == 1


def test_a_redrive_of_a_map_runs_only_the_unsuccessful_iterations(sfn):
    calls: Counter[int] = Counter()

    def function(item: int) -> int:
        calls[item] += 1
        if item == 2 and calls[item] == 1:
            raise FunctionFailed("X")
        return item

    sfn.functions["f"] = function
    execution = sfn.run(machine("M", M=mapped([1, 2, 3], branch(F=invoke()), MaxConcurrency=1, End=True)))
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.output == [1, 2, 3] and calls == {1: 1, 2: 2, 3: 1}


def test_a_redrive_of_a_distributed_map_redrives_the_unsuccessful_children(sfn):
    calls: Counter[int] = Counter()

    def function(item: int) -> int:
        calls[item] += 1
        if item == 3 and calls[item] == 1:
            raise FunctionFailed("X")
        return item

    sfn.functions["f"] = function
    execution = sfn.run(distributed())
    assert execution.error == TOO_MANY
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.output == [1, 2, 3, 4, 5] and calls == {1: 1, 2: 1, 3: 2, 4: 1, 5: 1}


@pytest.mark.parametrize("where", STOPPABLE)
def test_a_stopped_execution_goes_on_where_it_was(sfn, where):
    sfn.functions.update(slow=lambda value: value, bad=fails("X", 1), forbidden=lambda value: value)
    sfn.engine.latency["slow"] = 3000
    execution = sfn.start(STOPPABLE[where])
    sfn.clock.at(1000, lambda: sfn.engine.stop_execution(execution.arn))
    sfn.clock.at(2000, lambda: sfn.engine.redrive_execution(execution.arn))
    sfn.clock.run()
    assert execution.status == "SUCCEEDED"
    assert sfn.clock.elapsed() in (2000, 5000, 7000)


def test_a_fail_state_is_entered_again(sfn):
    execution = sfn.run(machine("F", F={"Type": "Fail", "Error": "X"}))
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.status == "FAILED"
    assert sfn.events(execution) == [
        "ExecutionStarted",
        "FailStateEntered",
        "ExecutionFailed",
        "ExecutionRedriven",
        "FailStateEntered",
        "ExecutionFailed",
    ]


def test_a_redrive_starts_the_machines_time_out_anew(sfn):
    execution = sfn.run({**machine("W", W=wait(90, "V"), V=wait(90)), "TimeoutSeconds": 100})
    assert execution.status == "TIMED_OUT"
    sfn.engine.redrive_execution(execution.arn)
    sfn.clock.run()
    assert execution.status == "SUCCEEDED" and sfn.clock.elapsed() == 190


def test_an_execution_that_cannot_be_redriven_is_refused(sfn):
    running, done = sfn.start(machine("W", W=wait(100))), sfn.start(machine("S", S={"Type": "Succeed"}), name="other")
    failed = sfn.start(machine("F", F={"Type": "Fail", "Error": "X"}), name="third")
    sfn.clock.run(limit=10)
    for execution in (running, done):
        with pytest.raises(ApiError, match="ExecutionNotRedrivable"):
            sfn.engine.redrive_execution(execution.arn)
        assert sfn.engine.describe(execution.arn)["redriveStatus"] == "NOT_REDRIVABLE"
    assert sfn.engine.describe(failed.arn)["redriveStatus"] == "REDRIVABLE"
    sfn.clock.run(limit=15 * DAY)
    with pytest.raises(ApiError, match="14 days"):
        sfn.engine.redrive_execution(failed.arn)
    with pytest.raises(ApiError, match="ExecutionDoesNotExist"):
        sfn.engine.redrive_execution(failed.arn + "x")


# History and limits


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (invoke(), ["TaskStateEntered", "TaskScheduled", "TaskStarted", "TaskSucceeded", "TaskStateExited"]),
        (
            invoke("once", Retry=[retry("X")]),
            [
                "TaskStateEntered",
                "TaskScheduled",
                "TaskStarted",
                "TaskFailed",
                "TaskScheduled",
                "TaskStarted",
                "TaskSucceeded",
                "TaskStateExited",
            ],
        ),
        (wait(1), ["WaitStateEntered", "WaitStateExited"]),
        ({"Type": "Pass", "End": True}, ["PassStateEntered", "PassStateExited"]),
        ({"Type": "Succeed"}, ["SucceedStateEntered", "SucceedStateExited"]),
        (
            parallel(branch(S={"Type": "Succeed"}), End=True),
            [
                "ParallelStateEntered",
                "ParallelStateStarted",
                "SucceedStateEntered",
                "SucceedStateExited",
                "ParallelStateSucceeded",
                "ParallelStateExited",
            ],
        ),
        (
            mapped([1], branch(S={"Type": "Succeed"}), End=True),
            [
                "MapStateEntered",
                "MapStateStarted",
                "MapIterationStarted",
                "SucceedStateEntered",
                "SucceedStateExited",
                "MapIterationSucceeded",
                "MapStateSucceeded",
                "MapStateExited",
            ],
        ),
        (
            nested(End=True),
            ["TaskStateEntered", "TaskScheduled", "TaskStarted", "TaskSubmitted", "TaskSucceeded", "TaskStateExited"],
        ),
    ],
    ids=["task", "task with a retry", "wait", "pass", "succeed", "parallel", "map", "nested"],
)
def test_a_state_writes_the_events_that_aws_counts(sfn, state, expected):
    sfn.functions.update(f=lambda value: value, once=fails("X", 1))
    child_machine(sfn, machine("S", S={"Type": "Succeed"}))
    execution = sfn.run(machine("A", A=state))
    assert sfn.events(execution) == ["ExecutionStarted", *expected, "ExecutionSucceeded"]
    assert [event["id"] for event in execution.events] == list(range(1, len(execution.events) + 1))
    assert all(event["previousEventId"] < event["id"] for event in execution.events)


def test_a_caught_failure_writes_three_events_in_place_of_success(sfn):
    sfn.functions["f"] = fails("X")
    execution = sfn.run(guarded(catch=["X"]))
    assert sfn.events(execution)[1:6] == ["TaskStateEntered", "TaskScheduled", "TaskStarted", "TaskFailed", "TaskStateExited"]


def test_event_25000_is_success_or_the_execution_fails(sfn):
    sfn.engine.history_limit = 12
    chain = {name: {"Type": "Pass", "Next": following} for name, following in itertools.pairwise("ABCDEF")}
    fits = machine("A", **{**chain, "E": {"Type": "Pass", "End": True}})
    assert len(sfn.run(fits).events) == 12
    execution = Sfn().run(fits)
    assert execution.status == "SUCCEEDED"
    too_long = sfn.run(machine("A", **chain, F={"Type": "Pass", "End": True}))
    assert (too_long.status, too_long.error, len(too_long.events)) == ("FAILED", "States.Runtime", 12)
    assert sfn.events(too_long)[-1] == "ExecutionFailed"
    with pytest.raises(ApiError, match="ExecutionNotRedrivable"):
        sfn.engine.redrive_execution(too_long.arn)


def test_an_endless_loop_ends_at_25000_events(sfn):
    execution = sfn.run(machine("A", A={"Type": "Pass", "Next": "A"}))
    assert (execution.status, len(execution.events)) == ("FAILED", 25_000) and "25000" in execution.cause


POLL = "{% $min([3600, $max([30, $floor(($toMillis($states.context.State.EnteredTime) - $t0) / 100000)])]) %}"
DRAIN = machine(
    "Init",
    Init={"Type": "Pass", "Assign": {"t0": "{% $toMillis($states.context.State.EnteredTime) %}"}, "Next": "Check"},
    Check=invoke("check", Assign={"done": "{% $states.result.Payload.done %}"}, Next="Done"),
    Done={"Type": "Choice", "Choices": [{"Condition": "{% $done %}", "Next": "End"}], "Default": "Pause"},
    Pause=wait(POLL, "Check"),
    End={"Type": "Succeed"},
)


def test_a_drain_of_20_hours_takes_nine_events_a_check(sfn):
    polls: list[float] = []

    def check(_: Any) -> dict:
        polls.append(sfn.clock.elapsed())
        return {"done": polls[-1] >= 20 * HOUR}

    sfn.functions["check"] = check
    execution = sfn.run(DRAIN)
    assert execution.status == "SUCCEEDED" and len(execution.events) == 9 * len(polls) + 4 == 3802
    assert sfn.clock.elapsed() == 20 * HOUR + 41


# Other threads


def test_other_threads_start_and_stop_executions_while_the_driver_runs(sfn):
    short = sfn.machines.put("short", machine("W", W=wait(10, "W2"), W2=wait(10)))
    # The driver may get through many virtual seconds before a thread comes to stop what it started, but not through these.
    long = sfn.machines.put("long", machine("W", W=wait(10, "W2"), W2=wait(99_999_999)))
    started: list[Execution] = []

    def client() -> None:
        for _ in range(25):
            started.append(sfn.engine.start_execution(short))
            stopped = sfn.engine.start_execution(long)
            started.append(stopped)
            sfn.engine.stop_execution(stopped.arn)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    sfn.run(machine("L", L=mapped("{% [1..500] %}", branch(W=wait(1)), MaxConcurrency=1, End=True)))
    for thread in threads:
        thread.join()
    sfn.clock.run()
    assert Counter(execution.status for execution in started) == {"SUCCEEDED": 100, "ABORTED": 100}
    assert all(sfn.events(execution)[-1] in ("ExecutionSucceeded", "ExecutionAborted") for execution in started)


# Task tokens


def token_task(**fields: Any) -> dict:
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken", "End": True}
    arguments = {"FunctionName": "f", "Payload": {"token": "{% $states.context.Task.Token %}"}}
    return machine("T", T={**task, "Arguments": arguments, **fields})


def test_a_task_token_ends_the_task_with_what_was_reported(sfn):
    def later(value: dict) -> None:
        sfn.clock.after(500, lambda: sfn.engine.report_task(value["token"], {"z": 1}))

    sfn.functions["f"] = later
    execution = sfn.run(token_task(TimeoutSeconds=5000))
    assert execution.output == {"z": 1} and sfn.clock.elapsed() == 500


@pytest.mark.parametrize(("beats", "ends"), [(0, 60), (5, 310)])
def test_a_missed_heartbeat_is_a_time_out(sfn, beats, ends):
    def beating(value: dict) -> None:
        for number in range(1, beats + 1):
            sfn.clock.after(50 * number, lambda: sfn.engine.report_heartbeat(value["token"]))

    sfn.functions["f"] = beating
    execution = sfn.run(token_task(TimeoutSeconds=5000, HeartbeatSeconds=60))
    assert execution.error == "States.Timeout" and sfn.clock.elapsed() == ends


@pytest.mark.parametrize("name", ["States.Timeout", "States.HeartbeatTimeout"])
def test_a_catcher_takes_a_missed_heartbeat_under_both_names(sfn, name):
    sfn.functions["f"] = lambda value: None
    definition = token_task(HeartbeatSeconds=60, Catch=[{"ErrorEquals": [name], "Next": "T2"}])
    definition["States"]["T2"] = {"Type": "Succeed"}
    assert sfn.run(definition).status == "SUCCEEDED"


# Determinism


FAN = machine(
    "M",
    M=mapped(
        "{% $map([1..6], function($v) {{'i': $v}}) %}",
        branch(D=invoke("drain", Next="W"), W=wait("{% $states.input.i * 100 %}")),
        MaxConcurrency=2,
        Next="P",
    ),
    P=parallel(branch(A=wait(50)), branch(B=wait(70, "C"), C=invoke("drain", {"i": 9})), End=True),
)


def history(seed: int | None) -> tuple[float, str]:
    sfn = Sfn(seed)
    sfn.functions["drain"] = lambda value: value
    sfn.engine.latency["drain"] = 2
    execution = sfn.run(FAN)
    assert execution.status == "SUCCEEDED"
    return sfn.clock.elapsed(), hashlib.sha256(json.dumps(execution.events).encode()).hexdigest()


def test_the_same_seed_gives_the_same_history_and_another_seed_another_order():
    assert history(None) == history(None)
    histories = [history(seed) for seed in range(8)]
    assert histories == [history(seed) for seed in range(8)]
    assert len({digest for _, digest in histories}) > 1
    assert len({elapsed for elapsed, _ in histories}) == 1


def test_many_nested_executions_run_beside_each_other(sfn):
    sfn.functions["check"] = lambda value: {"done": False}
    waiting = machine("W", W=wait("{% $states.context.Execution.Input.hours * 3600 %}"))
    child = child_machine(sfn, waiting)
    start = {**nested(End=True), "Arguments": {"StateMachineArn": child, "Input": {"hours": "{% $states.input %}"}}}
    execution = sfn.run(machine("M", M=mapped("{% [1..20] %}", branch(N=start), MaxConcurrency=5, End=True)))
    assert execution.status == "SUCCEEDED" and len(sfn.engine.executions_of(child)) == 20
    assert {e.status for e in sfn.engine.executions_of(child)} == {"SUCCEEDED"}
