"""Every request to the world's AWS, and every answer of it, beside botocore's model of the service.

    models = Models()
    models.check(call, environ, body, answer)       # what is wrong goes to VIOLATIONS, one sentence each

A defect is an operation, a field, a value of an enumeration or an error that AWS does not have, and a required field that is
missing.

A call costs 10 to 40 microseconds. The kind of an answer is the names in it and the values of its enumerations. A process
compares a good kind with the model once, so only the first answer of a kind is checked for numbers and times.

Not checked: lengths and patterns of texts, payloads (a function's input, a layer's zip), S3 (rest-xml), which only holds packages
here, and the STS of the cluster's authenticator, which is another server (world/kubernetes/sts.py).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import botocore.parsers
import orjson
from botocore.model import OperationModel, Shape, StructureShape

from world.aws.requests import Identified, service_model
from world.aws.wire_formats import Ec2Query, Query, Xml, local, parsed_xml, tree_of
from world.base.beyond_models import VALUES
from world.base.shapes import VIOLATIONS, Errors, Json, allowed

JSON, QUERY, EC2_QUERY, XML = Json(VALUES), Query(VALUES), Ec2Query(VALUES), Xml(VALUES)

_XML_TAGS = re.compile(rb"<(/?[\w:.-]+)")
_JSON_NAMES = re.compile(rb'"([\w.:/-]+)":|[\]}]')
_QUERY_ENUM = re.compile(r"(?:^|\.)(\w+)(?:\.member)?(?:\.\d+)?$")


class Reply(Protocol):
    """An answer of the server."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Models:
    """The checks of one process. Safe to ask from any thread: what two threads find out twice is the same."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Known]] = {}
        self._kinds: dict[Any, tuple[str, ...]] = {}

    def check(
        self, call: Identified, environ: dict[str, Any], body: bytes, answer: Reply | None, test: str | None = None
    ) -> None:
        """Compares a request and its answer, if it got one. An answer to a request that is itself wrong is compared, too.
        `test`: see `Violations.add`."""
        if call.protocol == "rest-xml":
            return
        operation = call.action.partition(":")[2]
        if " " in operation:  # a method and a path: moto could not read the request
            operation = named_in(environ, body) or operation
        known = self._known(call.service, operation)
        if known is None:
            VIOLATIONS.add([f"{call.service} has no operation {operation} in botocore's model."], test)
            return
        found = self._request(known, call.protocol, environ, body)
        if answer is not None:
            found = [*found, *self._answer(known, call.protocol, answer)]
        if found:
            VIOLATIONS.add(found, test)

    def _known(self, service: str, operation: str) -> Known | None:
        of = self._of.setdefault(service, {})
        if operation not in of:
            try:
                of[operation] = Known(service, service_model(service).operation_model(operation))
            except Exception:  # botocore raises one of five, by what is missing
                return None
        return of[operation]

    # Requests

    def _request(self, known: Known, protocol: str, environ: dict[str, Any], body: bytes) -> tuple[str, ...]:
        if protocol in ("query", "ec2"):
            return self._query(known, protocol, body or environ["QUERY_STRING"].encode())
        if protocol == "json":
            return known.sentences("the request", JSON.problems(_json(body), known.input, "")) if known.input else ()
        if protocol == "rest-json":
            return known.sentences("the request", _rest_problems(known, environ, body)) if known.input else ()
        if protocol == "smithy-rpc-v2-cbor":
            return known.sentences("the request", JSON.problems(_cbor(body), known.input, "")) if known.input else ()
        return ()

    def _query(self, known: Known, protocol: str, body: bytes) -> tuple[str, ...]:
        pairs = [pair.partition("=")[::2] for pair in body.decode().split("&")]
        names = tuple(name for name, _ in pairs)
        chosen = tuple(value for name, value in pairs if _last_word(name) in known.input_enums)
        kind = (known, names, chosen)
        if kind not in self._kinds:
            tree = tree_of(pairs)
            for extra in QUERY_EXTRAS:
                tree.pop(extra, None)
            reader = EC2_QUERY if protocol == "ec2" else QUERY
            found = reader.problems(tree, known.input, "") if known.input else (f"has the field {name}" for name in tree)
            self._kinds[kind] = known.sentences("the request", found)
        return self._kinds[kind]

    # Answers

    def _answer(self, known: Known, protocol: str, answer: Reply) -> tuple[str, ...]:
        if answer.status >= 400:
            code = error_code(protocol, answer)
            kind: Any = (known, answer.status, code)
            if kind not in self._kinds:
                self._kinds[kind] = known.sentences("the answer", known.errors.problems(code, answer.status))
            return self._kinds[kind]
        if known.has_payload or known.is_known(protocol, answer):
            return ()
        found = known.sentences("the answer", _answer_problems(known, protocol, answer))
        if not found:
            known.remember(protocol, answer)
        return found


#: Fields that the query protocol itself adds to each request, also to a presigned one.
QUERY_EXTRAS = (
    "Action",
    "Version",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
)


class Known:
    """An operation, with what makes its checks cheap."""

    def __init__(self, service: str, model: OperationModel) -> None:
        self.service, self.name, self.model = service, model.name, model
        self.input, self.output = model.input_shape, model.output_shape
        self.errors = Errors(service, model)
        self.input_enums = enum_names(self.input)
        names = "|".join(map(re.escape, sorted(enum_names(self.output)))).encode() or b"(?!)"
        self._enums = {True: re.compile(rb"<(" + names + rb")>([^<]*)<"), False: re.compile(rb'"(' + names + rb')": ?"([^"]*)"')}
        #: Parts of good answers as they came, and their kinds: the names in them in their order, and the values of enumerations.
        self._parts: set[tuple[int, bytes]] = set()
        self._kinds: set[Any] = set()
        #: Whether the status is a part of the answer, as that of Lambda's Invoke: there is more than one.
        members = self.output.members.values() if self.output is not None else ()
        self.has_status = any(of.serialization.get("location") == "statusCode" for of in members)
        payload = self.output.serialization.get("payload") if self.output is not None else None
        self.has_payload = payload is not None and self.output.members[payload].type_name != "structure"

    def is_known(self, protocol: str, answer: Reply) -> bool:
        """Whether an answer like this one was good."""
        is_xml = protocol in ("query", "ec2")
        new = {part for part in _parts_of(protocol, answer) if part not in self._parts}
        if not new:
            return True
        if any(self._kind(is_xml, part) not in self._kinds for part in new):
            return False
        self._keep(new)
        return True

    def remember(self, protocol: str, answer: Reply) -> None:
        is_xml, parts = protocol in ("query", "ec2"), set(_parts_of(protocol, answer))
        self._kinds |= {self._kind(is_xml, part) for part in parts}
        self._keep(parts)

    def _keep(self, parts: set[tuple[int, bytes]]) -> None:
        if len(self._parts) > MOST_PARTS:
            self._parts.clear()
        self._parts |= parts

    def _kind(self, is_xml: bool, part: tuple[int, bytes]) -> Any:
        status, text = part
        names = (_XML_TAGS if is_xml else _JSON_NAMES).findall(text)
        return status, frozenset(zip(names, names[1:], strict=False)), frozenset(self._enums[is_xml].findall(text))

    def sentences(self, part: str, problems: Any) -> tuple[str, ...]:
        return tuple(f"{self.service} {self.name}: {part} {problem}." for problem in dict.fromkeys(problems))


def enum_names(shape: Shape | None) -> set[str]:
    """The names on the wire of all fields that have one of some values; for a list, those of the list and of its members."""
    found: set[str] = set()
    seen: set[str] = set()

    def visit(shape: Shape, names: set[str]) -> None:
        if shape.type_name == "structure":
            if shape.name not in seen:
                seen.add(shape.name)
                for member, of in shape.members.items():
                    visit(of, {member, of.serialization.get("name", member), of.serialization.get("queryName", member)})
        elif shape.type_name == "list":
            visit(shape.member, names | {shape.member.serialization.get("name", "member")})
        elif shape.type_name == "map":
            visit(shape.key, {"key"})
            visit(shape.value, {"value"})
        elif getattr(shape, "enum", None):
            found.update(names, (name[0].upper() + name[1:] for name in names))

    if shape is not None:
        visit(shape, set())
    return found


#: So many parts of good answers are kept for each operation. They only save time.
MOST_PARTS = 2000
#: The beginning of a list's member, by protocol.
_BETWEEN = {"query": b"<member>", "ec2": b"<item>"}


def _parts_of(protocol: str, answer: Reply) -> list[tuple[int, bytes]]:
    """The members of lists and what is around them, each with the status: most are as they were in the last answer."""
    return [(answer.status, part) for part in answer.body.split(_BETWEEN.get(protocol, b"}, {"))]


def _last_word(name: str) -> str:
    """The name of a field in a query, without the numbers of a list's members."""
    found = _QUERY_ENUM.search(name)
    return found[1] if found else name


def _json(body: bytes) -> Any:
    return orjson.loads(body) if body.strip() else {}


def _cbor(body: bytes) -> Any:
    return _CBOR.parse_data_item(io.BufferedReader(io.BytesIO(body))) if body else {}


_CBOR = botocore.parsers.BaseCBORParser()


def _answer_problems(known: Known, protocol: str, answer: Reply) -> Iterator[str]:
    if protocol in ("query", "ec2"):
        yield from _xml_problems(known, answer)
    elif protocol != "smithy-rpc-v2-cbor":
        yield from _json_problems(known, answer)
    elif known.output is not None:
        yield from JSON.problems(_cbor(answer.body), known.output, "")


def _json_problems(known: Known, answer: Reply) -> Iterator[str]:
    wanted = known.model.http.get("responseCode", 200)
    if answer.status != wanted and not known.has_status:
        yield f"has the status {answer.status}; allowed is {wanted}"
    if known.output is not None:
        yield from JSON.problems(_json(answer.body), payload_of(known.output), "")


def _xml_problems(known: Known, answer: Reply) -> Iterator[str]:
    root = parsed_xml(answer.body)
    wrapper = known.output.serialization.get("resultWrapper") if known.output is not None else None
    around = ("requestId", "RequestId", "ResponseMetadata", "return")  # EC2 answers `return` if there is no result
    if wrapper is not None:
        yield from (
            f"has the element {local(child.tag)}; allowed are {wrapper}, ResponseMetadata"
            for child in root
            if local(child.tag) not in (wrapper, "ResponseMetadata")
        )
        root = next((child for child in root if local(child.tag) == wrapper), ElementTree.Element(wrapper))
    for child in [child for child in root if wrapper is None and local(child.tag) in around]:
        root.remove(child)
    if known.output is not None:
        yield from XML.problems(root, known.output, "")
    else:
        yield from (f"has the element {local(child.tag)}; allowed is none" for child in root)


def payload_of(shape: StructureShape) -> Shape:
    """The shape of the body of a REST answer or request: the whole one, or one member of it."""
    payload = shape.serialization.get("payload")
    return shape.members[payload] if payload else shape


def named_in(environ: dict[str, Any], body: bytes) -> str | None:
    """The operation that a request names, whatever else it is."""
    action = re.search(rb"(?:^|&)Action=(\w+)", body or environ["QUERY_STRING"].encode())
    return environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2] or (action and action[1].decode())


def _rest_problems(known: Known, environ: dict[str, Any], body: bytes) -> Iterator[str]:
    """Body, query string and headers. The router has compared the path."""
    shape, fixed = known.input, known.model.http["requestUri"].partition("?")[2]
    payload = payload_of(shape)
    if payload is shape or payload.type_name == "structure":
        yield from JSON.problems(_json(body), payload, "")
    query, names = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True)), {}
    maps = False
    for member, of in shape.members.items():
        name, location = of.serialization.get("name", member), of.serialization.get("location")
        if location == "querystring":
            maps = maps or of.type_name == "map"
            names[name] = of
            if member in shape.required_members and name not in query:
                yield f"has no field {member}; it is required"
        elif location == "header":
            value = environ.get(f"HTTP_{name.upper().replace('-', '_')}")
            if value is not None and getattr(of, "enum", None) and value not in of.enum:
                yield f"has {value!r} in the header {name}; allowed are {allowed(of.enum, value)}"
    for name, value in query.items():
        of = names.get(name)
        if of is not None and of.type_name != "map":
            of = of.member if of.type_name == "list" else of
            yield from QUERY.problems(value, of, name)
        elif not maps and name not in QUERY_EXTRAS and name not in dict(parse_qsl(fixed, keep_blank_values=True)):
            yield f"has the field {name} in its query, which does not exist; allowed are {allowed(names, name)}"


# Errors


def error_code(protocol: str, answer: Reply) -> str:
    """The code as an SDK reads it."""
    if protocol in ("query", "ec2"):
        found = re.search(rb"<Code>([^<]*)</Code>", answer.body)
        return found[1].decode() if found else f"without a code: {answer.body[:200]!r}"
    headers = {name.lower(): value for name, value in answer.headers}
    code = headers.get("x-amzn-errortype")
    if not code:
        fields = _fields(protocol, answer.body)
        code = fields.get("__type") or fields.get("code")
    return code.split(":")[0].rpartition("#")[2] if code else f"without a code: {answer.body[:200]!r}"


def _fields(protocol: str, body: bytes) -> dict[str, Any]:
    try:
        found = _cbor(body) if protocol == "smithy-rpc-v2-cbor" else _json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
