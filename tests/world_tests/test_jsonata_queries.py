"""Paths are read without the JSONata library; they give the same as with it."""

import json
import random
from typing import Any

import pytest

from world.base.clock import Clock
from world.stepfunctions import jsonata_queries
from world.stepfunctions.jsonata_queries import Queries, QueryError

VALUES = [
    None,
    True,
    0,
    -3,
    1.0,
    2.5,
    "",
    "text",
    [],
    [1],
    [None],
    [[]],
    [[1]],
    [1, [2, 3]],
    [{"b": 1}],
    [{"b": 1}, {"b": [2]}, {}],
    {},
    {"b": None},
    {"b": []},
    {"b": [1]},
    {"b": {"c": [{"c": 1}]}},
]
PATHS = ["$a", "$a.b", "$a.b.c", "$a.a", "$absent", "$absent.b"]


def nested(chance: random.Random, depth: int) -> Any:
    """Returns a random JSON value."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(VALUES)
    if chance.random() < 0.3:
        return [nested(chance, depth - 1) for _ in range(chance.randrange(3))]
    return {name: nested(chance, depth - 1) for name in chance.sample("abc", chance.randrange(1, 4))}


def outcome(queries: Queries, path: str, value: Any) -> tuple[str, str]:
    try:
        return "value", json.dumps(queries.evaluate(f"{{% {path} %}}", {"a": value}, "Output"))
    except QueryError as error:
        return "error", str(error)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_gives_what_the_library_gives(path, monkeypatch):
    chance = random.Random(path)
    values = [*VALUES, *(nested(chance, 4) for _ in range(300))]
    queries = Queries(Clock())
    fast = [outcome(queries, path, value) for value in values]
    monkeypatch.setattr(jsonata_queries._Frame, "at", lambda *_: jsonata_queries._ABSENT)
    assert [(value, *each) for value, each in zip(values, fast, strict=True)] == [
        (value, *outcome(queries, path, value)) for value in values
    ]


def test_a_value_is_a_copy():
    value = {"b": [{"c": 1}]}
    found = Queries(Clock()).evaluate("{% $a.b %}", {"a": value}, "Output")
    found[0]["c"] = 2
    assert value == {"b": [{"c": 1}]}
