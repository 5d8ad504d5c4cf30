"""Deliberate bugs, each of which the judge has to see: in the state machines, and in what functions decide.

The state machines are changed as they are read for an execution; a decision is changed in the answer that carries it, or left
undone: then the function is not even asked, and its answer is made up.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from world.lambda_host import Invocation
from world.world import World

Json = Any


@dataclass(frozen=True)
class Mutation:
    """`sees` is a part of the sentence with which it is caught, in this run of the campaign."""

    name: str
    run: str
    sees: str
    machines: Callable[[str], str] = lambda definition: definition
    answers: dict[str, Callable[[Json], Json]] = dataclasses.field(default_factory=dict)
    undone: dict[str, Json] = dataclasses.field(default_factory=dict)
    """What a function answers that does nothing."""

    @contextmanager
    def inside(self, world: World) -> Iterator[None]:
        """As long as the world has this bug."""
        engine = world.engine
        resolve, invoke = engine.machines.resolve, engine.invoke

        def changed(arn: str) -> Any:
            machine = resolve(arn)
            return dataclasses.replace(machine, definition=self.machines(machine.definition))

        def wrongly_answered(arn: str, payload: Json) -> Generator[Any, Any, Any]:
            function = arn.split(":")[6].removeprefix("recycle-eks-")
            if function in self.undone:
                return Invocation(json.dumps(self.undone[function]).encode(), None, "1", "made up")
            answer = yield from invoke(arn, payload)
            if function in self.answers and not answer.function_error:
                told = self.answers[function](json.loads(answer.payload))
                return dataclasses.replace(answer, payload=json.dumps(told).encode())
            return answer

        engine.machines.resolve, engine.invoke = changed, wrongly_answered
        try:
            yield
        finally:
            del engine.machines.resolve, engine.invoke


def replaced(old: str, new: str) -> Callable[[str], str]:
    """A part of a definition, wherever it is."""

    def replace(definition: str) -> str:
        return json.dumps(_in(json.loads(definition), json.loads(old), json.loads(new)))

    return replace


def _in(value: Json, old: Json, new: Json) -> Json:
    if value == old:
        return new
    if isinstance(value, dict):
        return {key: _in(each, old, new) for key, each in value.items()}
    return [_in(each, old, new) for each in value] if isinstance(value, list) else value


def verdict(instead: str, old: str) -> Callable[[Json], Json]:
    """One verdict for another."""
    return lambda told: {**told, "verdict": instead} if told.get("verdict") == old else told


DONE = {"verdict": "done", "wait_seconds": 0, "reason": "made up", "counts": {}, "names": {}}

MUTATIONS = [
    Mutation(
        "pods are not waited for (state machine)",
        "before/undisturbed",
        "at work",
        machines=replaced(
            '{"Condition": "{% $answer.verdict = \'wait\' %}", "Next": "WaitForPods"}',
            '{"Condition": "{% $answer.verdict = \'wait\' %}", "Next": "DetachTerminate"}',
        ),
    ),
    Mutation(
        "pods are not waited for (check-pods)", "hook/undisturbed", "at work", answers={"check-pods": verdict("dispose", "wait")}
    ),
    Mutation(
        "pods are not evicted, and nobody looks again",
        "after/undisturbed",
        "at work",
        answers={"check-pods": verdict("dispose", "evict")},
    ),
    Mutation(
        "a failure is told as a success",
        "put-back/undisturbed",
        "recycled was told",
        machines=replaced(
            '{"Type": "Fail", "Error": "{% $failure.Error %}", "Cause": "{% $put_back.reason %}"}',
            '{"Type": "Succeed", "Output": {"outcome": "recycled"}}',
        ),
    ),
    Mutation(
        "nothing is disposed of",
        "before/undisturbed",
        "recycled was told",
        undone={"detach-terminate": {**DONE, "verdict": "recycled"}},
    ),
    Mutation(
        "nothing is put back",
        "put-back/undisturbed",
        "was told, but the instance is",
        undone={"restore-node": {**DONE, "verdict": "restored"}},
    ),
    Mutation(
        "the sweep looks at nothing",
        "sweep/undisturbed",
        "is left on",
        undone={"select-nodes": {"nodes": [], "ended_rotations": []}},
    ),
    Mutation(
        "the sweep mends nothing", "sweep/undisturbed", "is left on", undone={"restore-node": {**DONE, "verdict": "untouched"}}
    ),
    Mutation(
        "nobody puts back after a failure",
        "before-stop/undisturbed",
        "",
    ),
]
