"""Requests in a query string, and answers in XML, as trees that `world.base.shapes` compares with a shape."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from botocore.model import ListShape, MapShape, Shape, StructureShape

from world.base.shapes import Format

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")
_INTEGER = re.compile(r"[+-]?\d+$")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$|\d+(\.\d+)?$")


def _is_text_of(kind: str, text: str) -> bool:
    if kind in ("integer", "long"):
        return _INTEGER.match(text) is not None
    if kind in ("float", "double"):
        return _NUMBER.match(text) is not None
    if kind == "boolean":
        return text in ("true", "false")
    return kind != "timestamp" or _TIME.match(text) is not None


class _Text(Format):
    """Formats in which each single value is a text."""

    def is_a(self, kind: str, value: Any) -> bool:
        return isinstance(value, str) and _is_text_of(kind, value)


def tree_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`Tags.member.1.Key=a` as `{"Tags": {"member": {"1": {"Key": "a"}}}}`."""
    tree: dict[str, Any] = {}
    for name, value in pairs:
        *above, last = name.split(".")
        node = tree
        for part in above:
            inner = node.get(part)
            if not isinstance(inner, dict):
                inner = node[part] = {}
            node = inner
        node.setdefault(last, unquote_plus(value))
    return tree


class Query(_Text):
    """The body of AWS's query protocol, from `tree_of`."""

    def name_of(self, member: str, shape: Shape) -> str:
        if isinstance(shape, ListShape) and shape.serialization.get("flattened"):
            return shape.member.serialization.get("name") or shape.serialization.get("name", member)
        return shape.serialization.get("name", member)

    def items(self, value: Any, shape: ListShape) -> list[Any] | None:
        if value == "":
            return []
        if not shape.serialization.get("flattened"):
            value = self._only(value, shape.member.serialization.get("name", "member"))
        return self._numbered(value)

    def entries(self, value: Any, shape: MapShape) -> list[tuple[Any, Any]] | None:
        if value == "":
            return []
        if not shape.serialization.get("flattened"):
            value = self._only(value, "entry")
        items = self._numbered(value)
        key, of_value = shape.key.serialization.get("name", "key"), shape.value.serialization.get("name", "value")
        if items is None or not all(isinstance(item, dict) and item.keys() == {key, of_value} for item in items):
            return None
        return [(item[key], item[of_value]) for item in items]

    @staticmethod
    def _only(value: Any, name: str) -> Any:
        return value[name] if isinstance(value, dict) and value.keys() == {name} else None

    @staticmethod
    def _numbered(value: Any) -> list[Any] | None:
        return list(value.values()) if isinstance(value, dict) and all(map(str.isdigit, value)) else None


class Ec2Query(Query):
    """EC2's own kind of query: names begin with a capital letter, and lists have no level of their own."""

    def name_of(self, member: str, shape: Shape) -> str:
        if "queryName" in shape.serialization:
            return shape.serialization["queryName"]
        name = shape.serialization.get("name", member)
        return name[0].upper() + name[1:]

    def items(self, value: Any, shape: ListShape) -> list[Any] | None:
        return [] if value == "" else self._numbered(value)


class Xml(_Text):
    """An element of an answer; a list of elements for a flattened list."""

    def fields(self, value: Any, shape: StructureShape, names: dict[str, str]) -> dict[str, Any] | None:
        if isinstance(value, list):
            value = value[0]
        found: dict[str, Any] = {}
        for child in value:
            name = local(child.tag)
            of = shape.members[names[name]] if name in names else None
            if of is not None and of.serialization.get("flattened"):
                found.setdefault(name, []).append(child)
            else:
                found[name] = child
        return found

    def items(self, value: Any, shape: ListShape) -> list[Any] | None:
        if isinstance(value, list):
            return value
        wanted = shape.member.serialization.get("name", "member")
        return list(value) if all(local(child.tag) == wanted for child in value) else None

    def entries(self, value: Any, shape: MapShape) -> list[tuple[Any, Any]] | None:
        key, of_value = shape.key.serialization.get("name", "key"), shape.value.serialization.get("name", "value")
        pairs = []
        for entry in value:
            parts = {local(child.tag): child for child in entry}
            if parts.keys() != {key, of_value}:
                return None
            pairs.append((parts[key], parts[of_value]))
        return pairs

    def text(self, value: Any) -> Any:
        return (value[0] if isinstance(value, list) else value).text or ""

    def is_absent(self, value: Any) -> bool:
        """An element without content is an empty text, or no value of another kind."""
        return False


def local(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rpartition("}")[2]


def parsed_xml(body: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(body)
