"""Scripts that lead the state machine into every state, with functions that only answer. Any interpreter can follow them."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from prepare import ROOT, STEPS
from world.base.clock import Call, Clock
from world.stepfunctions.engine import Engine
from world.stepfunctions.in_memory import FunctionFailed, InMemoryMachines, PythonFunctions
from world.stepfunctions.state_errors import StateError

INPUT = {"instance_id": "i-0123456789abcdef0", "cluster_name": "world"}
#: An execution that no script runs.
OTHER = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:other"
HOOK = {"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2"}
#: The alias that rotate-nodes and the sweep start.
LIVE = "arn:aws:states:eu-west-1:123456789012:stateMachine:recycle-node:live"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:notifications"

#: A notification, with the fields that the state machines read.
NOTIFICATION = {
    "subject": "recycle-eks: a node",
    "reason": "it is so",
    "blocks": [],
    "what_to_do": ["Look:", "kubectl get nodes"],
    "severity": "info",
    "event": "finished",
    "group": "workers",
}
#: The answers that always have a notification, because they end an execution.
NOTIFYING = ("recycled", "restored", "kept", "left_in_standby")

#: The arguments that rotations pass, and those that the sweep passes because of rotations.
ROTATIONS = {"rotation", "members", "waiting_node", "marking", "unmarking"}

#: The answers of each function, call by call, on the direct path: a verdict, an error to fail with, or a whole answer.
STRAIGHT = {
    "claim-node": ["standby"],
    "standby-node": ["taint"],
    "taint-node": ["check_pods"],
    "check-pods": ["dispose"],
    "evict-pods": [],
    "detach-terminate": ["recycled"],
    "restore-node": ["restored"],
    "select-nodes": [{"verdict": "each_node", "nodes": [INPUT["instance_id"]]}],
}

#: the loop, the answers that lead twice round it, the states of one round
LOOPS = [
    (
        "notifications of the start and of blocked pods",
        {
            "claim_node": [{"verdict": "standby", "notification": NOTIFICATION, "run": {}}],
            "check_pods": [{"verdict": "wait", "wait_seconds": 30, "notification": NOTIFICATION, "run": {}}] * 2 + ["dispose"],
        },
        ["NotifyBlocked", "PodsGone", "WaitForPods", "CheckPods", "PodsGone"],
    ),
    ("queue", {"claim_node": ["wait", "wait", "standby"]}, ["WaitInQueue", "ClaimNode", "NodeClaimed"]),
    ("replacement", {"standby_node": ["wait", "wait", "taint"]}, ["WaitForReplacement", "StandbyNode", "ReplacementReady"]),
    ("quiet drain", {"check_pods": ["wait", "wait", "dispose"]}, ["WaitForPods", "CheckPods", "PodsGone"]),
    (
        "drain that evicts",
        {"check_pods": ["evict", "evict", "dispose"], "evict_pods": ["wait", "wait"]},
        ["EvictPods", "WaitForPods", "CheckPods", "PodsGone"],
    ),
    (
        "hook that is kept alive",
        {"check_pods": ["heartbeat", "heartbeat", "dispose"]},
        ["RecordHeartbeat", "CheckPods", "PodsGone"],
    ),
    ("disposal", {"detach_terminate": ["wait", "wait", "recycled"]}, ["WaitForDisposal", "DetachTerminate", "NodeDisposed"]),
    (
        "replacement of a node that is gone",
        {"detach_terminate": ["await_replacement"], "claim_node": ["taint"], "standby_node": ["wait", "wait", "recycled"]},
        ["WaitForReplacement", "StandbyNode", "ReplacementReady"],
    ),
    (
        "a node that is lost and well again",
        {"check_pods": ["lost", "lost", "dispose"], "detach_terminate": ["check_pods", "check_pods", "recycled"]},
        ["CheckPods", "PodsGone", "DetachTerminate", "NodeDisposed"],
    ),
    (
        "pods that came back",
        {"detach_terminate": ["check_pods", "check_pods", "recycled"], "check_pods": ["dispose"] * 3},
        ["CheckPods", "PodsGone", "EventAfterDrain", "DetachTerminate", "NodeDisposed"],
    ),
]


class Script:
    """The answers of the functions in one execution, and the requests to them."""

    def __init__(self, **answers: list[Any]) -> None:
        self._left = {name: list(answers.get(name.replace("-", "_"), STRAIGHT[name])) for name in STEPS}
        self.requests: list[dict[str, Any]] = []

    def answer(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """The next answer of a function. Raises FunctionFailed where the script says so."""
        assert set(request) <= {
            "context",
            "run",
            "owner",
            "failure",
            "restore",
            "leftover",
            "select",
            "cluster_name",
            *ROTATIONS,
        }, request
        self.requests.append(request)
        given = self._left[name].pop(0)
        if isinstance(given, FunctionFailed):
            raise given
        if isinstance(given, dict):
            return given
        return {
            "schema": 1,
            "verdict": given,
            "wait_seconds": 30,
            "reason": f"{name} says {given}",
            "counts": {},
            "names": {},
            "run": {"steps": len(self.requests), "group": "workers", "node": "a", "input": INPUT, "hook": HOOK},
            **({"start": {"name": f"hook-{INPUT['instance_id']}-12345678", "hook": HOOK}} if given == "start" else {}),
            **({"notification": NOTIFICATION} if given in NOTIFYING or (name, given) == ("restore-node", "untouched") else {}),
            **({"plan": {"steps": [], "notes": []}} if given == "planned" else {}),
        }

    def calls(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The state that each request came from, how often it had been tried before, and what was in it besides the context."""
        return [
            (request["context"]["State"]["Name"], request["context"]["State"]["RetryCount"], {**request, "context": None})
            for request in self.requests
        ]


@dataclass(frozen=True)
class Walk:
    """Returns the end of an execution, and the states that its history shows as entered."""

    path: list[str]
    status: str
    error: str | None
    cause: str | None
    output: Any


class Topic:
    """A topic takes or refuses what is published. Nothing else is known."""

    def __init__(self, refuse: bool = False):
        self.published: list[dict[str, Any]] = []
        self._refuse = refuse

    def call(self, service: str, action: str, parameters: Any) -> Any:
        if (service, action) != ("sns", "publish"):
            return NoServices().call(service, action, parameters)
        if self._refuse:
            raise StateError("Sns.AuthorizationErrorException", "no")
        self.published.append(parameters)
        return answered({"MessageId": "1"})


def answered(value: Any) -> Call:
    """A call that is answered at once."""
    return Call(lambda call: call.answer(value))


class NoServices:
    """Step Functions is asked about no execution that it knows."""

    def call(self, service: str, action: str, parameters: Any) -> Any:
        raise StateError("Sfn.ExecutionDoesNotExistException", "Execution Does Not Exist")


def follow(script: Script, definition: dict[str, Any], services: Any = None) -> Walk:
    """Runs a definition after a script, by the local world's interpreter."""
    clock, machines, functions = Clock(), InMemoryMachines(), PythonFunctions()
    functions.update({name: partial(script.answer, name) for name in STEPS})
    engine = Engine(clock, machines, functions, services or NoServices())
    execution = engine.start_execution(machines.put("machine", definition), json.dumps(INPUT))
    clock.run(until=lambda: execution.status != "RUNNING", limit=10 * 86_400)
    path = [e["stateEnteredEventDetails"]["name"] for e in execution.events if "stateEnteredEventDetails" in e]
    return Walk(path, execution.status, execution.error, execution.cause, execution.output)


def rendered(machine: str = "recycle-node", message: str = "$") -> dict[str, Any]:
    """Returns a definition as Terraform renders it, each function named like its crate. `message` is the expression
    of a notification's text for machines."""
    text = (ROOT / "state-machine" / f"{machine}.asl.json").read_text()
    for name, value in {
        "partition": "aws",
        "cluster_name": INPUT["cluster_name"],
        "notification_topic": TOPIC,
        "message": json.dumps(message)[1:-1],
        "live": LIVE,
    }.items():
        text = text.replace("${" + name + "}", value)
    for name in STEPS:
        text = text.replace("${" + name.replace("-", "_") + "}", f"arn:aws:lambda:eu-west-1:123456789012:function:{name}:1")
    retry = [{"ErrorEquals": ["ServiceUnavailable"], "IntervalSeconds": 2, "MaxAttempts": 2, "BackoffRate": 2}]
    once_more = [{"ErrorEquals": ["States.TaskFailed"], "IntervalSeconds": 2, "MaxAttempts": 1}]
    for name, rule in (("retry", retry), ("publish_retry", retry), ("event_retry", once_more)):
        text = text.replace(f'"${{{name}}}"', json.dumps(rule))
    return json.loads(text)


def branch(definition: dict[str, Any]) -> dict[str, Any]:
    """Returns the only branch of the machine as its own machine. An error that the Parallel would catch ends it."""
    (states,) = definition["States"]["Recycle"]["Branches"]
    return {"QueryLanguage": definition["QueryLanguage"], **states}
