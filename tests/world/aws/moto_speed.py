"""Makes moto answer in half the time, by caching the values that moto computes for each answer.

The answers stay the same to the byte: world_tests/test_moto_speed.py compares each replacement with moto's own code, for a
document and a shape of each kind.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape, quoteattr

import moto.core.responses
import moto.core.serialize
import xmltodict
from moto.core.serialize import AttributePicker, AttributePickerContext, ResponseSerializer, XFormedAttributePicker
from moto.core.utils import MISSING
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.tags import TagBackend


def install() -> None:
    """Replaces six functions of moto; more than once is the same as once."""
    moto.core.responses.parse_qsl = _parse_qsl
    moto.core.responses.method_names_from_class = _Methods
    moto.core.serialize.xmltodict = types.SimpleNamespace(unparse=unparse, parse=xmltodict.parse)
    for picker in (AttributePicker, XFormedAttributePicker):
        original = _ORIGINAL_KEYS.setdefault(picker, picker.get_possible_keys)
        picker.get_possible_keys = _remembering(original)
    ResponseSerializer.get_value = _get_value
    TaggedEC2Resource.get_tags = _get_tags


_ORIGINAL_KEYS: dict[type, Callable[..., Any]] = {}


_moto_get_value = ResponseSerializer.get_value
_moto_get_tags = TaggedEC2Resource.get_tags
_names: dict[Any, tuple[str, ...]] = {}

#: The size of a body in bytes from which it is no form.
_LARGE = 1_000_000


def _get_value(self: ResponseSerializer, value: Any, key: str, shape: Any) -> Any:
    """The value of one member. Most members of a shape are absent, and a question about each takes no context."""
    picker = self._value_picker
    if type(picker) is not XFormedAttributePicker or picker.response_transformers:
        return _moto_get_value(self, value, key, shape)
    names = _names.get((key, shape, type(value)))
    if names is None:
        names = tuple(picker.get_possible_keys(AttributePickerContext(value, key, shape, self.operation_model)))
        if any("." in name for name in names):
            return _moto_get_value(self, value, key, shape)
        _names[(key, shape, type(value))] = names
    if type(value) is dict:
        for name in names:
            if name in value:
                return value[name]
        return None
    if hasattr(value, "__getitem__"):
        return _moto_get_value(self, value, key, shape)
    for name in names:
        found = getattr(value, name, MISSING)
        if found is not MISSING:
            return found
    return None


def _get_tags(self: TaggedEC2Resource) -> list[dict[str, str]]:
    """The tags of one resource. moto searches them among the tags of all resources."""
    tags, one = self.ec2_backend.tags, TagBackend()
    if self.id in tags:
        one.tags[self.id] = tags[self.id]
    return _moto_get_tags(types.SimpleNamespace(id=self.id, ec2_backend=one))


def _parse_qsl(body: str, **how: Any) -> list[tuple[str, str]]:
    """moto searches each body without a query for fields of a form, also the megabytes of code in JSON."""
    return [] if len(body) >= _LARGE and body.startswith("{") else parse_qsl(body, **how)


class _Methods:
    """The names of a class's functions, for membership tests only. (moto lists all of them.)"""

    def __init__(self, owner: type) -> None:
        self._owner = owner

    def __contains__(self, name: str) -> bool:
        return inspect.isfunction(getattr(self._owner, name, None))


def _remembering(original: Callable[..., Any]) -> Callable[[Any, AttributePickerContext], tuple[str, ...]]:
    """The names for the search of an attribute depend on its shape and on the object's class."""
    known: dict[Any, tuple[str, ...]] = {}

    def get_possible_keys(self: AttributePicker, context: AttributePickerContext) -> tuple[str, ...]:
        # The shape itself, which lives as long as its service's model: an id could be another's by now.
        question = (context.key, context.shape, type(context.obj), tuple(self.alias_providers))
        if question not in known:
            known[question] = tuple(original(self, context))
        return known[question]

    return get_possible_keys


def unparse(document: dict[str, Any], **how: Any) -> str:
    """`xmltodict.unparse` as moto calls it; any other call is left to xmltodict itself."""
    if how.get("pretty") or how.keys() != {"full_document", "short_empty_elements", "pretty"} or not how["short_empty_elements"]:
        return xmltodict.unparse(document, **how)
    head = '<?xml version="1.0" encoding="utf-8"?>\n' if how["full_document"] else ""
    return head + "".join(part for name, value in document.items() for part in _elements(name, value))


def _elements(name: str, value: Any) -> Iterator[str]:
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, dict):
            yield from _element(name, each)
        else:
            text = _text(each)
            yield f"<{name}>{escape(text)}</{name}>" if text else f"<{name}/>"


def _element(name: str, fields: dict[str, Any]) -> Iterator[str]:
    attributes = "".join(f" {key[1:]}={quoteattr(_text(value))}" for key, value in fields.items() if key.startswith("@"))
    inside = "".join(
        part for key, value in fields.items() if not key.startswith(("@", "#")) for part in _elements(key, value)
    ) + escape(_text(fields.get("#text")))
    yield f"<{name}{attributes}>{inside}</{name}>" if inside else f"<{name}{attributes}/>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
