"""Deliberate bugs, each of which the judge has to see: in the state machines, in what functions decide, read and write.

A state machine is changed as it is read for an execution. A decision is left undone: the function is not asked, and its answer is
made up. What a function reads or sends is changed on the way between it and AWS or the cluster.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    machine: tuple[Json, Json] | None = None
    """A part of a state machine, and what is there instead."""
    undone: dict[str, Json] = field(default_factory=dict)
    """What a function answers that does nothing."""
    pods: Callable[[Json], bool] | None = None
    """The pods that functions see."""
    aws: Callable[[bytes], bytes] | None = None
    """Changes what a function sends to AWS."""

    @contextmanager
    def inside(self, world: World) -> Iterator[None]:
        """As long as the world has this bug."""
        engine, proxy, aws = world.engine, world.kubernetes.proxy, world.aws
        resolve, invoke, forward, perform = engine.machines.resolve, engine.invoke, proxy._forward, aws._perform

        def resolved(arn: str) -> Any:
            machine = resolve(arn)
            if self.machine is None:
                return machine
            definition = json.dumps(_with(json.loads(machine.definition), *self.machine))
            return dataclasses.replace(machine, definition=definition)

        def invoked(arn: str, payload: Json) -> Generator[Any, Any, Any]:
            function = arn.split(":")[6].removeprefix("recycle-eks-")
            if function in self.undone:
                answer = {"run": payload.get("run"), **self.undone[function]}
                return Invocation(json.dumps(answer).encode(), None, "1", "made up")
            return (yield from invoke(arn, payload))

        def forwarded(request: Any, call: Any) -> Any:
            response = forward(request, call)
            if self.pods and call.action == "kubernetes:GET pods" and call.function and response.status == 200:
                document = json.loads(response.body)
                document["items"] = [pod for pod in document.get("items", []) if self.pods(pod)]
                response.body = json.dumps(document).encode()
            return response

        def performed(environ: dict[str, Any], body: bytes, call: Any) -> Any:
            if self.aws and call.function:
                body = self.aws(body)
                environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
            return perform(environ, body, call)

        engine.machines.resolve, engine.invoke, proxy._forward, aws._perform = resolved, invoked, forwarded, performed
        try:
            yield
        finally:
            del engine.machines.resolve, engine.invoke, proxy._forward, aws._perform


def _with(value: Json, old: Json, new: Json) -> Json:
    """The same with another part, wherever it is."""
    if value == old:
        return new
    if isinstance(value, dict):
        return {key: _with(each, old, new) for key, each in value.items()}
    return [_with(each, old, new) for each in value] if isinstance(value, list) else value


def _decrements_at_the_end(request: bytes) -> bytes:
    if b"Action=TerminateInstanceInAutoScalingGroup" not in request:
        return request
    return request.replace(b"ShouldDecrementDesiredCapacity=false", b"ShouldDecrementDesiredCapacity=true")


def _is_waited_for(pod: Json) -> bool:
    return pod["metadata"]["name"].startswith("train")


DONE = {"wait_seconds": 0, "reason": "made up", "counts": {}, "names": {}}
FAILS = {"Type": "Fail", "Error": "{% $failure.Error %}", "Cause": "{% $put_back.reason %}"}
SUCCEEDS = {"Type": "Succeed", "Output": {"outcome": "recycled", "reason": "made up"}}

MUTATIONS = [
    Mutation(
        "pods that are to be waited for are overlooked",
        "before/undisturbed",
        "at work",
        pods=lambda pod: not _is_waited_for(pod),
    ),
    Mutation("pods that are to be evicted are overlooked", "after/undisturbed", "at work", pods=_is_waited_for),
    Mutation("a hook lets go of pods that it overlooks", "hook/undisturbed", "at work", pods=lambda pod: False),
    Mutation("a failure is told as a success", "put-back/undisturbed", "recycled was told", machine=(FAILS, SUCCEEDS)),
    Mutation(
        "nothing is disposed of",
        "before-detach/undisturbed",
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
        "a place of the group is lost",
        "before/undisturbed",
        "has the sizes",
        aws=_decrements_at_the_end,
    ),
    Mutation(
        "the sweep looks at nothing",
        "sweep/undisturbed",
        "is left on",
        undone={"select-nodes": {"nodes": [], "ended_rotations": []}},
    ),
    Mutation(
        "the sweep mends nothing",
        "sweep/undisturbed",
        "is left on",
        undone={"restore-node": {**DONE, "verdict": "untouched"}},
    ),
]
