"""JSONata as Step Functions evaluates it: templates with `{% … %}`, AWS's extra functions, AWS's error.

The language itself is jsonata-python's. This module does not know where AWS allows an expression; `stepfunctions` does.
Source of the rules: AWS docs, "Transforming data with JSONata in Step Functions".
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

from jsonata import Jsonata
from jsonata.functions import Functions
from jsonata.utils import Utils

from world.base.clock import Clock


class QueryError(Exception):
    """An expression could not be evaluated, or gave nothing: States.QueryEvaluationError.

    `location` is the field of the state with the expression, such as `Output/reason`.
    """

    def __init__(self, expression: str, location: str, what: str):
        self.location = location
        super().__init__(f"The JSONata expression '{expression}' specified for the field '{location}' {what}")


#: A variable and fields of it, such as `$states.input.node`: two of three expressions of our state machines.
_PATH = re.compile(r"\$\w+(\.\w+)*")
#: There is no value, or the path does not lead through objects only.
_ABSENT = object()


def expression_in(text: Any) -> str | None:
    """The expression of a `{% … %}` string; None for any other value. AWS takes only a whole string as expression."""
    if isinstance(text, str) and text.startswith("{%") and text.endswith("%}") and len(text) >= 4:
        return text[2:-2].strip()
    return None


class Queries:
    """Evaluates templates. Each expression is parsed once for the life of this object."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._parsed: dict[str, Jsonata] = {}

    def _parse(self, expression: str) -> Jsonata:
        parsed = self._parsed.get(expression)
        if parsed is None:
            parsed = Jsonata(expression)
            parsed.set_output_convert_nulls(False)
            self._add_aws_functions(parsed)
            self._parsed[expression] = parsed
        return parsed

    def evaluate(self, template: Any, bindings: dict[str, Any], field: str) -> Any:
        """The template with every expression in it replaced by its value. `bindings` are JSON values by variable name. `field` is
        the field of the state that has the template. Raises QueryError."""
        return self._fill(template, _Frame(bindings), field)

    def _fill(self, template: Any, frame: _Frame, location: str) -> Any:
        if isinstance(template, dict):
            return {key: self._fill(value, frame, f"{location}/{key}") for key, value in template.items()}
        if isinstance(template, list):
            return [self._fill(value, frame, f"{location}[{index}]") for index, value in enumerate(template)]
        expression = expression_in(template)
        return template if expression is None else self._value_of(expression, frame, location)

    def _value_of(self, expression: str, frame: _Frame, location: str) -> Any:
        if _PATH.fullmatch(expression) and (found := frame.at(expression)) is not _ABSENT:
            return _plain(found)
        try:
            value = self._parse(expression).evaluate(None, frame.named_in(expression))
        except Exception as error:
            raise QueryError(expression, location, f"threw an error during evaluation. {error}") from error
        if value is None:
            raise QueryError(expression, location, "returned nothing (undefined).")
        try:
            return _plain(value)
        except TypeError as error:
            raise QueryError(expression, location, "returned an unsupported result type.") from error

    def _add_aws_functions(self, parsed: Jsonata) -> None:
        """AWS docs, "JSONata functions provided by Step Functions". Time and chance are the world's."""
        functions: dict[str, Callable[..., Any]] = {
            "partition": lambda items, size: [items[i : i + size] for i in range(0, len(items), size)],
            "range": _range,
            "hash": lambda text, name: hashlib.new(name.replace("-", "").lower(), text.encode()).hexdigest(),
            "random": lambda: self._clock.random.random(),
            "uuid": lambda: str(uuid.UUID(int=self._clock.random.getrandbits(128), version=4)),
            "parse": lambda text: _with_nulls(json.loads(text)),
            "millis": lambda: round(self._clock.now() * 1000),
            "now": self._now,
            "eval": _refuse_eval,
        }
        for name, function in functions.items():
            parsed.register_lambda(name, function)

    def _now(self, picture: str | None = None, timezone: str | None = None) -> str:
        return Functions.datetime_from_millis(round(self._clock.now() * 1000), picture, timezone)


class _Frame:
    """The values of variables as the library has them; each is made when an expression names it first, and of an object only the
    fields that are named."""

    def __init__(self, bindings: dict[str, Any]) -> None:
        self._bindings = bindings
        self._made: dict[tuple[str, ...], Any] = {}

    def named_in(self, expression: str) -> dict[str, Any]:
        return {name: self._part(name, fields) for name, fields in _named_in(expression).items() if name in self._bindings}

    def at(self, path: str) -> Any:
        """Returns the value at a path through objects, as the library would after two copies, which take most of its time. If a
        field is absent or an array is on the way, the library decides."""
        value: Any = self._bindings
        for name in path.removeprefix("$").split("."):
            if not isinstance(value, dict) or name not in value:
                return _ABSENT
            value = value[name]
        return value

    def _part(self, name: str, fields: frozenset[str]) -> Any:
        value = self._bindings[name]
        if not fields or not isinstance(value, dict):
            return self._converted((name,), value)
        return {field: self._converted((name, field), value[field]) for field in fields if field in value}

    def _converted(self, path: tuple[str, ...], value: Any) -> Any:
        if path not in self._made:
            self._made[path] = _with_nulls(value)
        return self._made[path]


@functools.cache
def _named_in(expression: str) -> dict[str, frozenset[str]]:
    """The variables of an expression, each with the fields that are read; no fields: it is also used as a whole."""
    paths = re.findall(r"\$(\w+)(?:\.(\w+))?", expression)
    named = {name: frozenset(field for each, field in paths if each == name) for name, _ in paths}
    return {name: frozenset() if "" in fields else fields for name, fields in named.items()}


def _range(first: int, last: int, step: int) -> list[int]:
    return list(range(first, last + (1 if step > 0 else -1), step))


def _refuse_eval(*_: Any) -> None:
    raise ValueError("$eval is not supported by Step Functions; use $parse")


def has_expression(template: Any) -> bool:
    """Checks whether a template contains an expression."""
    if isinstance(template, dict):
        return any(has_expression(value) for value in template.values())
    if isinstance(template, list):
        return any(has_expression(value) for value in template)
    return expression_in(template) is not None


def _with_nulls(value: Any) -> Any:
    """jsonata-python means "undefined" by None; JSON's null is a value of its own there."""
    if value is None:
        return Utils.NULL_VALUE
    if isinstance(value, dict):
        return {key: _with_nulls(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_nulls(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """The JSON value behind the library's own kinds of list, null and number. Raises TypeError for a value that is not JSON."""
    if value is Utils.NULL_VALUE or value is None:
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(value[index]) for index in range(len(value))]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if isinstance(value, (str, bool, int)):
        return value
    raise TypeError(f"not JSON: {value!r}")
