"""Reads a state machine's definition (Amazon States Language, JSONata only) and reports its errors.

Deliberately not a complete validator: it refuses what AWS refuses at CreateStateMachine, and what the world's interpreter would
not interpret as AWS does, so that nothing is silently ignored. Source: AWS docs, "Amazon States Language", and the API reference
of ValidateStateMachineDefinition for the shape of a problem.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jsonata import Jsonata

from world.stepfunctions.jsonata_queries import expression_in

Json = Any

_COMMON = {"Type", "Comment", "QueryLanguage"}
_STEP = {"Output", "Assign", "Next", "End"}
_FIELDS: dict[str, set[str]] = {
    "Pass": _STEP,
    "Task": _STEP | {"Resource", "Arguments", "Credentials", "TimeoutSeconds", "HeartbeatSeconds", "Retry", "Catch"},
    "Choice": {"Choices", "Default", "Assign", "Output"},
    "Wait": _STEP | {"Seconds", "Timestamp"},
    "Parallel": _STEP | {"Branches", "Arguments", "Retry", "Catch"},
    "Map": _STEP
    | {"Items", "ItemProcessor", "ItemSelector", "MaxConcurrency", "Label", "Retry", "Catch"}
    | {"ToleratedFailureCount", "ToleratedFailurePercentage"},
    "Succeed": {"Output"},
    "Fail": {"Error", "Cause"},
}
_REQUIRED = {"Task": "Resource", "Choice": "Choices", "Parallel": "Branches", "Map": "ItemProcessor"}
_MACHINE_FIELDS = {"Comment", "QueryLanguage", "StartAt", "States", "TimeoutSeconds", "Version"}
_PROCESSOR_FIELDS = {"Comment", "StartAt", "States", "ProcessorConfig", "QueryLanguage"}
_RESOURCES = (
    "events:putEvents",
    "lambda:invoke",
    "lambda:invoke.waitForTaskToken",
    "states:startExecution",
    "states:startExecution.sync:2",
)
_SDK_RESOURCE = re.compile(r"aws-sdk:[a-z0-9]+:[a-z][A-Za-z0-9]+")


@dataclass(frozen=True)
class Problem:
    """One diagnostic, as ValidateStateMachineDefinition gives it. `location` is a JSON pointer."""

    code: str
    message: str
    location: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" at {self.location}" if self.location else "")


class DefinitionError(Exception):
    """The definition cannot be run."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


def parse(text: str) -> dict[str, Json]:
    """The definition as JSON. Raises DefinitionError with everything that is wrong."""
    found = problems_of(text)
    if found:
        raise DefinitionError(found)
    return json.loads(text)


def problems_of(text: str) -> list[Problem]:
    """Returns the errors of a definition; an empty list if it can run."""
    try:
        definition = json.loads(text)
    except ValueError as error:
        return [Problem("INVALID_JSON_DESCRIPTION", f"The definition is not JSON: {error}")]
    if not isinstance(definition, dict):
        return [Problem("SCHEMA_VALIDATION_FAILED", "The definition is not a JSON object")]
    if definition.get("QueryLanguage") != "JSONata":
        message = "QueryLanguage must be JSONata: this world does not interpret JSONPath, AWS's default"
        return [Problem("SCHEMA_VALIDATION_FAILED", message, "/QueryLanguage")]
    found = list(_unknown_fields(definition, _MACHINE_FIELDS, ""))
    return found + list(_scope_problems(definition, "", frozenset()))


def integration_of(resource: str) -> str | None:
    """`lambda:invoke` of `arn:aws:states:::lambda:invoke`; None if the resource is no service integration."""
    parts = resource.split(":", 5)
    if len(parts) == 6 and parts[0] == "arn" and parts[2] == "states":
        return parts[5]
    return None


def is_distributed(state: dict[str, Json]) -> bool:
    return state["ItemProcessor"].get("ProcessorConfig", {}).get("Mode") == "DISTRIBUTED"


def _schema(message: str, location: str) -> Problem:
    return Problem("SCHEMA_VALIDATION_FAILED", message, location)


def _unknown_fields(value: dict[str, Json], known: set[str], location: str) -> Iterator[Problem]:
    for name in value:
        if name not in known:
            yield _schema(f"Field '{name}' is not supported here", f"{location}/{name}")


def _scope_problems(scope: dict[str, Json], location: str, outer: frozenset[str]) -> Iterator[Problem]:
    """A scope has StartAt and States: the machine itself, a branch of a Parallel or the processor of a Map."""
    states = scope.get("States")
    if not isinstance(states, dict) or not states:
        yield _schema("States must be an object with at least one state", f"{location}/States")
        return
    if scope.get("StartAt") not in states:
        yield Problem("MISSING_TRANSITION_TARGET", f"Missing 'StartAt' target: {scope.get('StartAt')}", f"{location}/StartAt")
    assigned = _names_assigned_in(states)
    for name in sorted(assigned & outer):
        yield _schema(f"Variable '{name}' is assigned in an outer scope too", f"{location}/States")
    for name, state in states.items():
        # A branch may assign what the catchers of its own Parallel assign (recorded by LocalStack's `test_parallel_catch_error`).
        around = {**state, "Catch": []} if state.get("Type") == "Parallel" else state
        names = outer | _names_assigned_in({**states, name: around})
        yield from _state_problems(state, states, f"{location}/States/{name}", names)


def _names_assigned_in(states: dict[str, Json]) -> frozenset[str]:
    names: set[str] = set()
    for state in states.values():
        for holder in [state, *state.get("Choices", []), *state.get("Catch", [])]:
            names.update(holder.get("Assign", {}))
    return frozenset(names)


def _state_problems(state: dict[str, Json], siblings: dict[str, Json], location: str, names: frozenset[str]) -> Iterator[Problem]:
    kind = state.get("Type")
    if kind not in _FIELDS:
        yield _schema(f"Unknown state type '{kind}'", f"{location}/Type")
        return
    if state.get("QueryLanguage", "JSONata") != "JSONata":
        yield _schema("QueryLanguage must be JSONata: this world does not interpret JSONPath", f"{location}/QueryLanguage")
    yield from _unknown_fields(state, _COMMON | _FIELDS[kind], location)
    if kind in _REQUIRED and _REQUIRED[kind] not in state:
        yield _schema(f"Field '{_REQUIRED[kind]}' is missing", location)
        return
    yield from _transition_problems(state, siblings, location)
    yield from _expression_problems(state, location)
    yield from _handler_problems(state, location)
    yield from _detail_problems(state, location)
    for position, branch in enumerate(state.get("Branches", [])):
        yield from _scope_problems(branch, f"{location}/Branches[{position}]", names)
    if kind == "Map":
        yield from _unknown_fields(state["ItemProcessor"], _PROCESSOR_FIELDS, f"{location}/ItemProcessor")
        inherited = frozenset() if is_distributed(state) else names
        yield from _scope_problems(state["ItemProcessor"], f"{location}/ItemProcessor", inherited)


def _transition_problems(state: dict[str, Json], siblings: dict[str, Json], location: str) -> Iterator[Problem]:
    if "Next" in _FIELDS[state["Type"]] and ("Next" in state) == (state.get("End") is True):
        yield _schema("Exactly one of 'Next' and 'End' is needed", location)
    targets = [("Next", state.get("Next")), ("Default", state.get("Default"))]
    targets += [(f"Choices[{i}]/Next", rule.get("Next", "")) for i, rule in enumerate(state.get("Choices", []))]
    targets += [(f"Catch[{i}]/Next", catcher.get("Next", "")) for i, catcher in enumerate(state.get("Catch", []))]
    for field, target in targets:
        if target is not None and target not in siblings:
            yield Problem("MISSING_TRANSITION_TARGET", f"Missing '{field}' target: {target}", f"{location}/{field}")


def _expression_problems(state: dict[str, Json], location: str) -> Iterator[Problem]:
    own = {name: value for name, value in state.items() if name not in ("Branches", "ItemProcessor")}
    for pointer, text in _strings(own, location):
        expression = expression_in(text)
        if expression is None:
            continue
        try:
            Jsonata(expression)
        except Exception as error:
            yield _schema(f"Not a valid JSONata expression: {error}", pointer)


def _strings(value: Json, location: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _strings(item, f"{location}/{name}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _strings(item, f"{location}[{position}]")


def _handler_problems(state: dict[str, Json], location: str) -> Iterator[Problem]:
    """Retriers and catchers. `States.ALL` must stand alone, and last (AWS docs, "Handling errors in workflows")."""
    for field in ("Retry", "Catch"):
        handlers = state.get(field, [])
        for position, handler in enumerate(handlers):
            errors = handler.get("ErrorEquals") or []
            where = f"{location}/{field}[{position}]/ErrorEquals"
            if not errors:
                yield _schema("ErrorEquals must name at least one error", where)
            if "States.ALL" in errors and (len(errors) > 1 or position < len(handlers) - 1):
                yield _schema("States.ALL must appear alone and in the last retrier or catcher", where)


def _detail_problems(state: dict[str, Json], location: str) -> Iterator[Problem]:
    kind = state["Type"]
    if kind == "Task":
        integration = integration_of(state["Resource"]) or ""
        if integration not in _RESOURCES and not _SDK_RESOURCE.fullmatch(integration):
            yield _schema(f"This world does not interpret the resource '{state['Resource']}'", f"{location}/Resource")
    if kind == "Wait" and ("Seconds" in state) == ("Timestamp" in state):
        yield _schema("Exactly one of 'Seconds' and 'Timestamp' is needed", location)
    if kind == "Wait" and "Seconds" in state and not _is_wait(state["Seconds"]):
        yield _schema("Seconds must be an integer from 0 to 99999999, or an expression", f"{location}/Seconds")
    for position, rule in enumerate(state.get("Choices", [])):
        where = f"{location}/Choices[{position}]"
        yield from _unknown_fields(rule, {"Comment", "Condition", "Next", "Assign", "Output"}, where)
        condition = rule.get("Condition")
        if not isinstance(condition, bool) and expression_in(condition) is None:
            yield _schema("Condition must be a boolean or an expression", f"{where}/Condition")


def _is_wait(seconds: Json) -> bool:
    whole = isinstance(seconds, int) and not isinstance(seconds, bool) and 0 <= seconds <= 99_999_999
    return whole or expression_in(seconds) is not None
