"""Event patterns that EventBridge refuses, and those that an event matches.

moto accepts patterns that AWS's own engine refuses, so PutRule would fail on AWS only. world_tests/test_event_patterns.py
compares the refusals and matches of this module with that engine.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from typing import Any

from moto.events.exceptions import InvalidEventPatternException
from moto.events.models import EventPattern, EventsBackend, Rule

_PUT_RULE = EventsBackend.put_rule
#: Characters (Terraform AWS provider, cloudwatch_event_rule: "2048 by default but it is adjustable up to 4096 characters").
LONGEST = 2048
_SCALARS = (str, int, float, bool, type(None))


class Refused(ValueError):
    """The reason why EventBridge refuses a pattern."""


def install() -> Callable[[], None]:
    """PutRule refuses what EventBridge refuses. The returned function restores the previous state."""

    def put_rule(backend: EventsBackend, name: str, *arguments: Any, event_pattern: str | None = None, **options: Any) -> Rule:
        if event_pattern is not None:
            try:
                check_length(event_pattern)
                check(event_pattern)
            except Refused as refused:
                raise InvalidEventPatternException(reason=str(refused)) from refused
        return _PUT_RULE(backend, name, *arguments, event_pattern=event_pattern, **options)

    EventsBackend.put_rule = put_rule

    def uninstall() -> None:
        EventsBackend.put_rule = _PUT_RULE

    return uninstall


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Checks whether an event matches an accepted pattern. Each element of an array is a value of its field."""
    values: dict[str, list[Any]] = {}
    _collect_values("", event, values)
    return EventPattern(None, pattern)._does_event_match(values, pattern)


def _collect_values(path: str, value: Any, values: dict[str, list[Any]]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _collect_values(f"{path}.{name}" if path else name, inner, values)
    elif isinstance(value, list):
        for element in value:
            _collect_values(path, element, values)
    else:
        values.setdefault(path, []).append(value)


def check_length(pattern: str) -> None:
    """Raises `Refused` if the pattern is longer than the quota "Event pattern size" allows by default."""
    if len(pattern) > LONGEST:
        raise Refused(f"the pattern has {len(pattern)} characters, and {LONGEST} are allowed")


def check(pattern: str) -> None:
    """Raises `Refused` where EventBridge refuses the pattern."""
    try:
        parsed = json.loads(pattern)
    except json.JSONDecodeError as error:
        raise Refused("the pattern is no JSON") from error
    if not isinstance(parsed, dict):
        raise Refused("Filter is not an object")
    _check_object(parsed)


def _check_object(fields: dict[str, Any]) -> None:
    if not fields:
        raise Refused("Empty objects are not allowed")
    for name, value in fields.items():
        if name == "$or" and isinstance(value, list) and all(isinstance(each, dict) for each in value):
            if len(value) < 2:
                raise Refused("There must have at least 2 Objects in $or relationship.")
            for each in value:
                _check_object(each)
        elif isinstance(value, dict):
            _check_object(value)
        elif isinstance(value, list):
            _check_values(value)
        else:
            raise Refused(f'"{name}" must be an object or an array')


def _check_values(values: list[Any]) -> None:
    if not values:
        raise Refused("Empty arrays are not allowed")
    for value in values:
        if isinstance(value, dict):
            if len(value) != 1:
                raise Refused("Only one key allowed in match expression")
            ((operator, operand),) = value.items()
            _check_operator(operator, operand)
        elif not isinstance(value, _SCALARS):
            raise Refused("Match value must be String, number, true, false, or null")


def _check_operator(operator: str, operand: Any) -> None:
    accepted = _OPERATORS.get(operator)
    if accepted is None:
        raise Refused(f"Unrecognized match type {operator}")
    if not accepted(operand):
        raise Refused(f"{operator} does not take {json.dumps(operand)}")


def _is_text(operand: Any) -> bool:
    return isinstance(operand, str)


def _is_number(operand: Any) -> bool:
    return isinstance(operand, int | float) and not isinstance(operand, bool)


def _is_text_or_ignoring_case(operand: Any) -> bool:
    return _is_text(operand) or (
        isinstance(operand, dict) and [*operand] == ["equals-ignore-case"] and _is_text(*operand.values())
    )


def _is_numeric(operand: Any) -> bool:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        return False
    comparisons = [*zip(operand[::2], operand[1::2], strict=True)]
    names = [name for name, _ in comparisons]
    ordered = len(names) == 1 or (names[0] in (">", ">=") and names[1] in ("<", "<=") and operand[1] < operand[3])
    return ordered and all(name in ("=", "<", "<=", ">", ">=") and _is_number(number) for name, number in comparisons)


def _is_cidr(operand: Any) -> bool:
    try:
        ipaddress.ip_network(operand, strict=False)
    except ValueError:
        return False
    return True


def _is_wildcard(operand: Any) -> bool:
    return _is_text(operand) and "**" not in operand


def _is_other_than(operand: Any) -> bool:
    if isinstance(operand, dict):
        inner = {"prefix", "suffix", "equals-ignore-case", "wildcard"}
        return len(operand) == 1 and all(
            name in inner and _are_texts(text) and (text or name not in ("prefix", "suffix")) for name, text in operand.items()
        )
    return _is_text(operand) or _is_number(operand) or _are_texts(operand) or _are_numbers(operand)


def _are_texts(operand: Any) -> bool:
    values = operand if isinstance(operand, list) else [operand]
    return bool(values) and all(map(_is_text, values))


def _are_numbers(operand: Any) -> bool:
    return isinstance(operand, list) and bool(operand) and all(map(_is_number, operand))


_OPERATORS: dict[str, Callable[[Any], bool]] = {
    "anything-but": _is_other_than,
    "cidr": _is_cidr,
    "equals-ignore-case": _is_text,
    "exists": lambda operand: isinstance(operand, bool),
    "numeric": _is_numeric,
    "prefix": _is_text_or_ignoring_case,
    "suffix": _is_text_or_ignoring_case,
    "wildcard": _is_wildcard,
}
