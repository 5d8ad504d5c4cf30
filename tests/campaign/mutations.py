"""Deliberate bugs in the state machines and in the decisions, reads and writes of functions. The judge must find each of them.

A state machine is changed when an execution reads it. To skip a decision, the function is not invoked, and its answer is made up.
The data that a function reads or sends is changed between the function and AWS or the cluster.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from world.aws.lambda_host import Invocation
from world.stepfunctions.executions import Execution
from world.world import World

Json = Any


@dataclass(frozen=True)
class Mutation:
    """A bug, and the run that finds it. `sees` is a part of the sentence that reports it."""

    name: str
    run: str
    sees: str
    also_sees: tuple[str, ...] = ()
    """Parts of further sentences, if several bugs share a run."""
    machine: tuple[Json, Json] | None = None
    """A part of a state machine, and its replacement."""
    undone: dict[str, Json] = field(default_factory=dict)
    """Answers of functions that are not invoked."""
    pods: Callable[[Json], bool] | None = None
    """The pods that functions see."""
    sends: tuple[bytes, bytes] | None = None
    """A pattern in the requests of functions, and its replacement."""
    reads: tuple[bytes, bytes] | None = None
    """A pattern in the answers of AWS and the cluster, and its replacement."""

    @contextmanager
    def inside(self, world: World) -> Iterator[None]:
        """Adds the bug to the world for the duration of the block."""
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
            if call.function:
                request.body = _instead(self.sends, request.body)
            response = forward(request, call)
            if call.function:
                response.body = _instead(self.reads, response.body)
            if self.pods and call.action == "kubernetes:GET pods" and call.function and response.status == 200:
                document = json.loads(response.body)
                document["items"] = [pod for pod in document.get("items", []) if self.pods(pod)]
                response.body = json.dumps(document).encode()
            return response

        def performed(environ: dict[str, Any], body: bytes, call: Any) -> Any:
            if call.function:
                body = _instead(self.sends, body)
                environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
            answer = perform(environ, body, call)
            return dataclasses.replace(answer, body=_instead(self.reads, answer.body)) if call.function else answer

        engine.machines.resolve, engine.invoke, proxy._forward, aws._perform = resolved, invoked, forwarded, performed
        try:
            yield
        finally:
            del engine.machines.resolve, engine.invoke, proxy._forward, aws._perform


def _with(value: Json, old: Json, new: Json) -> Json:
    """Returns the value with each occurrence of a part replaced."""
    if value == old:
        return new
    if isinstance(value, dict):
        return {key: _with(each, old, new) for key, each in value.items()}
    return [_with(each, old, new) for each in value] if isinstance(value, list) else value


def _instead(other: tuple[bytes, bytes] | None, text: bytes | None) -> bytes | None:
    return re.sub(*other, text) if other and text else text


def _is_waited_for(pod: Json) -> bool:
    return pod["metadata"]["name"].startswith(("train", "late"))


DONE = {"wait_seconds": 0, "reason": "made up", "counts": {}, "names": {}}
FAILS = {"Type": "Fail", "Error": "{% $failure.Error %}", "Cause": "{% $restore.reason %}"}

MUTATIONS = [
    Mutation(
        "awaited pods are overlooked",
        "before/undisturbed",
        "at work",
        pods=lambda pod: not _is_waited_for(pod),
    ),
    Mutation("pods that are to be evicted are overlooked", "after/undisturbed", "at work", pods=_is_waited_for),
    Mutation("a hook is completed although it overlooks pods", "hook/undisturbed", "at work", pods=lambda pod: False),
    Mutation(
        "a failure is reported under the wrong name",
        "put-back/seed 1",
        "it has ended as ['ServiceUnavailable'], not as DrainTimedOut",
        machine=(FAILS, {**FAILS, "Error": "ServiceUnavailable"}),
    ),
    Mutation(
        "nothing is disposed of",
        "before-detach/undisturbed",
        "recycled was reported",
        undone={"detach-terminate": {**DONE, "verdict": "recycled"}},
    ),
    Mutation(
        "no node is restored",
        "put-back/undisturbed",
        "was reported, but the instance is",
        undone={"restore-node": {**DONE, "verdict": "restored"}},
    ),
    Mutation(
        "a place of the group is lost",
        "before/undisturbed",
        "has the sizes",
        sends=(rb"(Action=TerminateInstanceInAutoScalingGroup.*ShouldDecrementDesiredCapacity=)false", rb"\1true"),
    ),
    Mutation(
        "targets that are not healthy yet count",
        "after/undisturbed",
        "had no healthy target",
        reads=(b"<State>initial</State>", b"<State>healthy</State>"),
    ),
    Mutation(
        "the claim on the Node has another name",
        "before/undisturbed",
        "without a live claim",
        sends=(b"recycle-eks(/|~1)claim", rb"recycle-eks\1pawns"),
        reads=(b"recycle-eks(/|~1)pawns", rb"recycle-eks\1claim"),
    ),
    Mutation(
        "a protection stays, and a failure contains a token",
        "put-back/undisturbed",
        "protection from scale-in is left on",
        also_sees=("has a secret",),
        sends=(b"ProtectedFromScaleIn=false", b"ProtectedFromScaleIn=true"),
        machine=(FAILS, {**FAILS, "Cause": "k8s-aws-v1.aHR0cHM6Ly9zdHM"}),
    ),
    Mutation(
        "the sweep selects no node",
        "sweep/undisturbed",
        "is left on",
        undone={"select-nodes": {"nodes": [], "ended_rotations": []}},
    ),
    Mutation(
        "the sweep restores nothing",
        "sweep/undisturbed",
        "is left on",
        undone={"restore-node": {**DONE, "verdict": "untouched"}},
    ),
    Mutation(
        "a node stays a target",
        "spot/undisturbed",
        "ended as a target",
        sends=(b"exclude-from-external-load-balancers", b"exclude-from-nothing"),
        reads=(b"exclude-from-nothing", b"exclude-from-external-load-balancers"),
    ),
    Mutation(
        "an awaited pod is evicted",
        "before-stop/undisturbed",
        "has not finished",
        reads=(rb'"recycle-eks/drain":"wait"', rb'"recycle-eks/drain":"evict"'),
    ),
    Mutation(
        "a neighbour's successor counts as the replacement",
        "neighbour/undisturbed",
        "usable members in",
        reads=(rb'(usable_before\\*":)\d+', rb"\g<1>0"),
    ),
    Mutation(
        "nothing keeps Cluster Autoscaler from a kept machine",
        "before-stop/undisturbed",
        "nothing keeps Cluster Autoscaler from it",
        sends=(rb'(scale-down-disabled": ?")true"', rb'\1false"'),
        reads=(rb'(scale-down-disabled": ?")false"', rb'\1true"'),
    ),
    Mutation(
        "a rotation counts the work of another execution as its own",
        "rotation/undisturbed",
        "found another execution at work",
        machine=("{% $ended.outcome = 'duplicate' %}", "{% false %}"),
        undone={"claim-node": {**DONE, "verdict": "duplicate"}},
    ),
]


@dataclass(frozen=True)
class WrongReport:
    """An execution that reports another end than it had. `sees` is a part of the sentence that reports it."""

    name: str
    scene: str
    sees: str
    changes: Callable[[Execution], dict[str, Any]]
    """Returns the fields of the ended execution that are not true."""

    @contextmanager
    def instead_of(self, end: Execution) -> Iterator[None]:
        """Replaces the true report for the duration of the block."""
        changed = self.changes(end)
        true = {name: getattr(end, name) for name in changed}
        for name, value in changed.items():
            setattr(end, name, value)
        try:
            yield
        finally:
            for name, value in true.items():
                setattr(end, name, value)


def _as_success(output: Json) -> dict[str, Any]:
    return {"status": "SUCCEEDED", "error": None, "cause": None, "output_text": json.dumps(output)}


WRONG_REPORTS = [
    WrongReport(
        "a failure is reported as a success",
        "put-back",
        "recycled was reported",
        lambda end: _as_success({"outcome": "recycled", "reason": "made up"}),
    ),
    WrongReport(
        "a restored node is reported as lost",
        "put-back",
        "NodeLost was reported, but the instance is",
        lambda end: {"error": "NodeLost"},
    ),
    WrongReport(
        "an own claim is reported as lost",
        "put-back",
        "ClaimLost was reported, but the claim was not removed",
        lambda end: {"error": "ClaimLost"},
    ),
    WrongReport(
        "a restored node is reported as already gone",
        "put-back",
        "already_gone was reported, but the instance is",
        lambda end: _as_success({"outcome": "already_gone", "reason": "made up"}),
    ),
    WrongReport(
        "a rotation reports too many recycled nodes",
        "rotation",
        "rotated says that 9 are recycled",
        lambda end: _as_success({**end.output, "groups": [{**group, "recycled": 9} for group in end.output["groups"]]}),
    ),
]
