"""Writes the requests, calls and answers of the functions of each scenario to one file per test.

Two recordings of the same code are the same bytes: random values of the API server are masked, and entries of the same virtual
moment are sorted.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from world.aws.lambda_host import Invocation
from world.aws.sandbox import Sandbox
from world.world import World

#: The folder that it writes into.
FOLDER = "RECYCLE_EKS_RECORDINGS"
#: Fields that the API server draws.
DRAWN = {"uid", "resourceVersion", "continue"}
#: Calls that a process makes once: whether it is warm is no matter of the scenario.
ONCE_IN_A_PROCESS = {"eks:DescribeCluster", "sts:GetCallerIdentity"}
MASKS = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    # The end of a name that the API server or a controller draws; apimachinery/pkg/util/rand has the letters.
    (re.compile(r"(?<=[a-z0-9]-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "<drawn>"),
    # Digests of the controllers of evicted pods, whose uids are random.
    (re.compile(r'(?<=evicted": ")[0-9a-f]{8}( [0-9a-f]{8})*(?=")'), "<digests>"),
    # A name that was cut within its drawn end.
    (re.compile(r"-[a-z0-9]{1,4}(\\u2026|…)"), "-<cut>"),
    # Kubernetes may not have set it yet, and the connection may break earlier or later.
    (re.compile(r', "timeAdded": "<time>"'), ""),
    (re.compile(r"tcp connect error: "), ""),
    (re.compile(r"https://127\.0\.0\.1:\d+"), "<endpoint>"),
]


class Recorder:
    """The recording of one test."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._blocks: list[tuple[float, str]] = []

    def answered(self, sandbox: Sandbox, payload: bytes, answer: Invocation, calls_before: int) -> None:
        calls = self._world.aws.calls
        since = calls[calls_before if calls_before <= len(calls) else 0 :]
        made = sorted(line_of(call) for call in since if call.access_key == sandbox.access_key and is_recorded(call))
        lines = [
            sandbox.function,
            f"  asked    {canonical(payload)}",
            *[f"  called   {line}" for line in made],
            f"  answered {answer.function_error or ''}{canonical(answer.payload)}",
        ]
        with self._lock:
            self._blocks.append((round(self._world.clock.elapsed()), "\n".join(lines)))

    def text(self) -> str:
        """Returns all entries, with the calls of the state machines themselves."""
        machines = [call for call in self._world.aws.calls if call.access_key.startswith("step-functions")]
        asked = [(round(call.at), f"state machine\n  called   {line_of(call)}") for call in machines]
        return "".join(f"{block}\n" for _, block in sorted([*self._blocks, *asked]))


def is_recorded(call: Any) -> bool:
    return call.action not in ONCE_IN_A_PROCESS


def line_of(call: Any) -> str:
    return f"{call.action} {masked(json.dumps(without_drawn(call.parameters), sort_keys=True, default=str))} {call.status}"


def canonical(payload: bytes) -> str:
    try:
        return masked(json.dumps(without_drawn(json.loads(payload)), sort_keys=True))
    except ValueError:
        return masked(payload.decode(errors="replace"))


def without_drawn(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "<drawn>" if key in DRAWN else without_drawn(each) for key, each in value.items()}
    if isinstance(value, list):
        return without_order([without_drawn(each) for each in value])
    return value


def without_order(values: list[Any]) -> list[Any]:
    """Sorts lists whose order is random."""
    if all(isinstance(each, str) for each in values) and any(masked(each) != each for each in values):
        return sorted(map(masked, values))
    return values


def masked(text: str) -> str:
    for what, instead in MASKS:
        text = what.sub(instead, text)
    return text


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    if "world" not in request.fixturenames:
        yield
        return
    world = request.getfixturevalue("world")
    recorder = Recorder(world)
    world.host.on_answered.append(recorder.answered)
    yield
    world.host.on_answered.remove(recorder.answered)
    name = re.sub(r"[^\w.-]+", "_", request.node.name)[:150]
    path = Path(os.environ[FOLDER], request.path.stem, f"{name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(recorder.text())
