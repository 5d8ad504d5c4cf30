"""Whether a value has the shape that a service model of AWS (botocore's) gives it, and the list of what has not.

A `Format` reads one way to write values: JSON, the arguments of a state machine, a query string, XML. It yields one sentence for
each field that the shape does not have, for each required one that is missing, and for each value of another type or outside of
its enumeration.

    problems = list(Json().problems({"status": "DONE"}, operation.output_shape, ""))

The violations of a process are in `VIOLATIONS`. The pytest plugin `world.model_reports` fails the test that caused them.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from world.base.beyond_models import OPTIONAL, common_errors

#: So many names of fields or values are listed; of more, those that are like the given one.
FEW = 20


class Violations:
    """Sentences about requests and answers that are in no model, each with its count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, int] = {}
        self._late: dict[str, set[str]] = {}
        #: The name of the test that runs. A request remembers it when it begins.
        self.test = ""

    def begin(self, test: str) -> None:
        """Another test begins, or none. Sentences that were not taken are those of the test before."""
        with self._lock:
            if self._found:
                self._late.setdefault(self.test, set()).update(self._found)
            self._found, self.test = {}, test

    def add(self, sentences: Iterable[str], test: str | None = None) -> None:
        """`test`: the test in which the request began, if it may be another one than the test that runs."""
        with self._lock:
            for sentence in sentences:
                if test is None or test == self.test:
                    self._found[sentence] = self._found.get(sentence, 0) + 1
                else:
                    self._late.setdefault(test, set()).add(sentence)

    def take(self) -> dict[str, int]:
        """Returns what was found since the last `take`."""
        with self._lock:
            found, self._found = self._found, {}
        return found

    def take_late(self) -> dict[str, list[str]]:
        """Returns the sentences about requests that ended after their test, by that test."""
        with self._lock:
            late, self._late = self._late, {}
        return {test: sorted(sentences) for test, sentences in late.items()}


VIOLATIONS = Violations()


def allowed(names: Iterable[str], given: str) -> str:
    """The names in words: all of a few, else those that are like the given one."""
    known = sorted(names)
    if len(known) <= FEW:
        return ", ".join(known) or "none"
    alike = difflib.get_close_matches(given, known, n=5, cutoff=0.4)
    return f"{', '.join(alike)} and {len(known) - len(alike)} others" if alike else f"{len(known)} others"


Beyond = Mapping[str, set[str]]


class Format:
    """The parts of a value as one protocol writes them. `None` for a part means that the value is of another kind."""

    #: Whether a structure's members may be elsewhere: in the path, the query or the headers of a REST request.
    body_only = True

    def __init__(self, beyond: Beyond | None = None) -> None:
        """`beyond`: values that AWS has and its models lack, by the name of the enumeration's shape."""
        self._beyond = beyond or {}
        self._names: dict[int, tuple[Shape, dict[str, str]]] = {}

    # What a protocol decides

    def name_of(self, member: str, shape: Shape) -> str:
        """The name of a structure's member on the wire."""
        return shape.serialization.get("name", member)

    def fields(self, value: Any, shape: StructureShape, names: dict[str, str]) -> dict[str, Any] | None:
        """The fields of a structure by their name on the wire; `names` has the members by that name."""
        return value if isinstance(value, dict) else None

    def items(self, value: Any, shape: ListShape) -> list[Any] | None:
        return value if isinstance(value, list) else None

    def entries(self, value: Any, shape: MapShape) -> list[tuple[Any, Any]] | None:
        return list(value.items()) if isinstance(value, dict) else None

    def text(self, value: Any) -> Any:
        """A single value as Python has it."""
        return value

    def is_a(self, kind: str, value: Any) -> bool:
        """Whether a single value is of a model's kind."""
        return _IS_A.get(kind, _anything)(value)

    def is_absent(self, value: Any) -> bool:
        """JSON's null is no value."""
        return value is None

    # The same for each protocol

    def names(self, shape: StructureShape) -> dict[str, str]:
        """The members of a structure that are in its body, by their name on the wire."""
        known = self._names.get(id(shape))
        if known is None:
            names = {self.name_of(member, of): member for member, of in shape.members.items() if not self._is_elsewhere(of)}
            # The shape lives as long as its name is remembered: another one cannot have its id.
            known = self._names[id(shape)] = (shape, names)
        return known[1]

    def problems(self, value: Any, shape: Shape, path: str) -> Iterator[str]:
        """The defects of the value, each as the end of a sentence that begins with "the request" or "the answer"."""
        kind = shape.type_name
        if kind == "structure":
            if not getattr(shape, "is_document_type", False):
                yield from self._structure(value, shape, path)
        elif kind == "list":
            items = self.items(value, shape)
            if items is None:
                yield f"has {_given(self.text(value))} at {path}; allowed is a list"
                return
            for item in items:
                if not self.is_absent(item):
                    yield from self.problems(item, shape.member, f"{path}[]")
        elif kind == "map":
            entries = self.entries(value, shape)
            if entries is None:
                yield f"has {_given(self.text(value))} at {path}; allowed is a map"
                return
            for key, item in entries:
                yield from self.problems(key, shape.key, f"{path}{{}}")
                if not self.is_absent(item):
                    yield from self.problems(item, shape.value, f"{path}{{}}")
        else:
            yield from self._single(self.text(value), shape, path)

    def _structure(self, value: Any, shape: StructureShape, path: str) -> Iterator[str]:
        names = self.names(shape)
        fields = self.fields(value, shape, names)
        if fields is None:
            yield f"has {_given(self.text(value))} at {path or 'its top'}; allowed is a structure"
            return
        given = set()
        for name, item in fields.items():
            where = f"{path}.{name}" if path else name
            if name not in names:
                yield f"has the field {where}, which does not exist; allowed are {allowed(names, name)}"
            elif not self.is_absent(item):
                given.add(names[name])
                yield from self.problems(item, shape.members[names[name]], where)
        for member in shape.required_members:
            if member in OPTIONAL.get(shape.name, ()):
                continue
            of = shape.members[member]
            if member not in given and not self._is_elsewhere(of):
                yield f"has no field {f'{path}.' if path else ''}{self.name_of(member, of)}; it is required"

    def _is_elsewhere(self, shape: Shape) -> bool:
        return self.body_only and "location" in shape.serialization

    def _single(self, value: Any, shape: Shape, path: str) -> Iterator[str]:
        kind = shape.type_name
        if not self.is_a(kind, value):
            yield f"has {_given(value)} at {path}; allowed is a value of the type {kind}"
        enum = getattr(shape, "enum", None)
        if enum and value not in enum and value not in self._beyond.get(shape.name, ()):
            yield f"has {_given(value)} at {path}; allowed are {allowed(enum, str(value))}"


def _given(value: Any) -> str:
    return repr(value)[:80]


def _anything(value: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_IS_A = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "long": _is_integer,
    "float": _is_number,
    "double": _is_number,
}


class Json(Format):
    """The JSON of an API."""


class Pascal(Format):
    """Arguments and results in a state machine: each name begins with a capital letter, however the API writes it."""

    body_only = False

    def name_of(self, member: str, shape: Shape) -> str:
        return member[0].upper() + member[1:]


class Errors:
    """The errors that an operation may answer."""

    def __init__(self, service: str, operation: OperationModel) -> None:
        shapes = operation.error_shapes
        self._own = {name for shape in shapes for name in (shape.error_code, shape.name)}
        self._common = common_errors(service)
        self._statuses = {
            name: {shape.metadata["error"]["httpStatusCode"]}
            for shape in shapes
            for name in (shape.error_code, shape.name)
            if "httpStatusCode" in shape.metadata.get("error", {})
        }

    def problems(self, code: str, status: int) -> Iterator[str]:
        if code not in self._own and code not in self._common:
            yield (
                f"has the error {code}; allowed are {allowed(self._own, code)}, "
                f"and for each operation {allowed(self._common, code)}"
            )
            return
        wanted = self._statuses.get(code) or self._common.get(code)
        if wanted and status not in wanted:
            yield f"has the error {code} with the status {status}; allowed is {' or '.join(map(str, sorted(wanted)))}"
