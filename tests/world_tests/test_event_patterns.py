"""The local world's event patterns are those of AWS's own engine, which takes every pattern of the module."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from prepare import TESTS, install_ruler
from world.aws import event_patterns

Question = tuple[dict[str, Any], dict[str, Any]]

#: Patterns and the value of `a` in an event: None for an event without `a`.
ABSENT = object()
TABLE = [
    ({"a": ["x"]}, "x"),
    ({"a": ["x"]}, ["y", "x"]),
    ({"a": ["x"]}, []),
    ({"a": [None]}, None),
    ({"a": [None]}, ABSENT),
    ({"a": [{"exists": False}]}, ABSENT),
    ({"a": [{"exists": False}]}, None),
    ({"a": [{"exists": False}]}, []),
    ({"a": [{"exists": True}]}, []),
    ({"a": [{"exists": True}]}, ["x"]),
    ({"a": {"b": [{"exists": True}]}}, [{"b": 1}, {"c": 2}]),
    ({"a": {"b": [1]}}, [{"b": 2}, {"b": 1}]),
    ({"a": [{"prefix": "i-"}]}, "i-1"),
    ({"a": [{"prefix": "i-"}]}, 1),
    ({"a": [{"prefix": {"equals-ignore-case": "I-"}}]}, "i-1"),
    ({"a": [{"suffix": "-1"}]}, "i-1"),
    ({"a": [{"equals-ignore-case": "X"}]}, "x"),
    ({"a": [{"anything-but": "x"}]}, "x"),
    ({"a": [{"anything-but": "x"}]}, None),
    ({"a": [{"anything-but": "x"}]}, ABSENT),
    ({"a": [{"anything-but": ["x", "y"]}]}, "z"),
    ({"a": [{"anything-but": [1, 2]}]}, 2),
    ({"a": [{"anything-but": {"prefix": "x"}}]}, "xy"),
    ({"a": [{"anything-but": {"prefix": ""}}]}, "xy"),
    ({"a": [{"numeric": [">", 1, "<=", 3]}]}, 3),
    ({"a": [{"numeric": [">", 3, "<", 1]}]}, 2),
    ({"a": [{"numeric": ["=", "1"]}]}, 1),
    ({"a": [{"cidr": "10.0.0.0/24"}]}, "10.0.0.7"),
    ({"a": [{"cidr": "10.0.0.0/99"}]}, "10.0.0.7"),
    ({"a": [{"wildcard": "x*z"}]}, "xyz"),
    ({"a": [{"wildcard": "x**z"}]}, "xyz"),
    ({"$or": [{"a": ["x"]}, {"a": ["y"]}]}, "y"),
    ({"$or": [{"a": ["x"]}, {"a": ["y"]}]}, "z"),
    ({"$or": [{"a": ["x"]}]}, "x"),
    ({"$or": []}, "x"),
    ({"$or": [{"a": ["x"]}, {}]}, "x"),
    ({}, "x"),
    ({"a": []}, "x"),
    ({"a": {}}, "x"),
    ({"a": "x"}, "x"),
    ({"a": [["x"]]}, "x"),
    ({"a": [{}]}, "x"),
    ({"a": [{"begins": "x"}]}, "x"),
    ({"a": [{"prefix": "x", "suffix": "x"}]}, "x"),
    ({"a": [{"prefix": 1}]}, "x"),
    ({"a": [{"exists": "yes"}]}, "x"),
]


def by_aws(questions: Iterable[Question]) -> list[str]:
    """Returns the result of AWS's engine for each pattern and event: refused, matches or does not match."""
    lines = "".join(json.dumps({"pattern": pattern, "event": event}) + "\n" for pattern, event in questions)
    command = ["java", "-cp", f"{install_ruler()}/*", "Rules.java"]
    done = subprocess.run(command, cwd=TESTS / "ruler", input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [_in_a_word(json.loads(line)) for line in done.stdout.splitlines()]


def _in_a_word(answer: dict[str, Any]) -> str:
    return "refused" if "refused" in answer else "matches" if answer["matches"] else "does not match"


def by_the_world(pattern: dict[str, Any], event: dict[str, Any]) -> str:
    try:
        event_patterns.check(json.dumps(pattern))
    except event_patterns.Refused:
        return "refused"
    return "matches" if event_patterns.matches(pattern, event) else "does not match"


def differences(questions: list[Question]) -> list[str]:
    return [
        f"{json.dumps(pattern)} and {json.dumps(event)}: AWS {aws}, the world {world}"
        for (pattern, event), aws in zip(questions, by_aws(questions), strict=True)
        if aws != (world := by_the_world(pattern, event))
    ]


def test_the_world_accepts_and_matches_what_the_engine_of_aws_does():
    assert differences([(pattern, {"b": 1} if value is ABSENT else {"a": value, "b": 1}) for pattern, value in TABLE]) == []


def test_a_rule_with_a_pattern_that_aws_refuses_is_refused(world):
    events = world.aws.client("events")
    with pytest.raises(ClientError, match=r"InvalidEventPatternException.*at least 2 Objects in \$or"):
        events.put_rule(Name="one-object", EventPattern='{"source": ["a"], "$or": [{"detail": {"status": ["FAILED"]}}]}')
    assert "one-object" not in {rule["Name"] for rule in events.list_rules()["Rules"]}


@pytest.fixture
def patterns(world) -> dict[str, dict[str, Any]]:
    """Returns the pattern of each rule of the module."""
    rules = world.aws.client("events").list_rules()["Rules"]
    return {rule["Name"]: json.loads(rule["EventPattern"]) for rule in rules if "EventPattern" in rule}


def status_change(machine: str, status: str, **detail: Any) -> dict[str, Any]:
    return {
        "source": "aws.states",
        "detail-type": "Step Functions Execution Status Change",
        "detail": {"stateMachineArn": machine, "status": status, **detail},
    }


ERRORS = [{}, *({"error": error} for error in (None, "States.Timeout", "ClaimLost", "RotationFailed", "InvalidInput"))]


def test_every_pattern_of_the_module_is_accepted_and_matches_as_on_aws(world, patterns):
    machines = [each["stateMachineArn"] for each in world.aws.client("stepfunctions").list_state_machines()["stateMachines"]]
    statuses = ["RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
    events = [status_change(*of, **error) for *of, error in itertools.product(machines, statuses, ERRORS)]
    # Each pattern is tested with an event that matches it, and one without its detail.
    events += [event_of(pattern) for pattern in patterns.values()]
    events += [{name: value for name, value in event_of(pattern).items() if name != "detail"} for pattern in patterns.values()]
    questions = list(itertools.product(patterns.values(), events))
    assert "refused" not in by_aws(questions)
    assert differences(questions) == []
    assert [name for name, pattern in patterns.items() if by_the_world(pattern, event_of(pattern)) != "matches"] == []


def event_of(pattern: dict[str, Any]) -> dict[str, Any]:
    """An event with the first value of each field of a pattern, and of its first alternative."""
    fields = {name: value for name, value in pattern.items() if name != "$or"} | dict(*pattern.get("$or", [{}])[:1])
    return {name: event_of(value) if isinstance(value, dict) else _value_of(value[0]) for name, value in fields.items()}


def _value_of(expected: Any) -> Any:
    if not isinstance(expected, dict):
        return expected
    ((operator, operand),) = expected.items()
    return "something else" if operator == "anything-but" else operand


@pytest.mark.parametrize(
    ("rule", "published"),
    [
        ("recycle-eks-recycle-node-unreported", [{}, None, "States.Timeout", "ClaimLost"]),
        ("recycle-eks-rotate-nodes-unreported", [{}, None, "States.Timeout", "ClaimLost", "InvalidInput"]),
        ("recycle-eks-sweep-unreported", [{}, None, "States.Timeout", "ClaimLost", "RotationFailed", "InvalidInput"]),
    ],
)
def test_a_rule_publishes_a_failed_execution_if_its_own_states_cannot(patterns, rule, published):
    """AWS does not document whether an event without an error has null or no such field."""
    (machine,) = patterns[rule]["detail"]["stateMachineArn"]
    matching = [error for error in ERRORS if event_patterns.matches(patterns[rule], status_change(machine, "FAILED", **error))]
    assert [error.get("error", error) for error in matching] == published


def test_a_pattern_that_is_too_long_is_refused():
    """The quota counts characters, which the engine does not."""
    for names, is_long in ((300, True), (100, False)):
        pattern = json.dumps({"a": [f"value-{number}" for number in range(names)]})
        assert (len(pattern) > event_patterns.LONGEST) is is_long
        if is_long:
            with pytest.raises(event_patterns.Refused, match="2048 are allowed"):
                event_patterns.check_length(pattern)
        else:
            event_patterns.check_length(pattern)
