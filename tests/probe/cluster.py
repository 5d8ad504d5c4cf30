"""Recycles one node of a small group on a real cluster, and checks what the first scenario of the local world checks
(tests/scenarios/test_first_node.py)."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from probe.account import Account
from probe.kubernetes import Kubernetes
from probe.resources import Impossible

#: The phases that the product writes as Events of the Node, in this order. A drain without awaited pods skips `RecycleWaiting`.
PHASES = ["RecycleClaimed", "RecycleStandby", "RecycleDraining", "RecyclePods", "RecycleWaiting", "RecycleDisposing"]
#: The history events of a recycle stay below this number (AWS's limit is 25,000).
MOST_EVENTS = 4_500
#: Seconds until an instance has terminated and its Node is gone.
PATIENCE, CHECK = 600.0, 15.0


class Reader(Protocol):
    """Reads from the Kubernetes API."""

    def get(self, path: str) -> dict[str, Any] | None: ...


@dataclass(frozen=True)
class Verdict:
    what: str
    ok: bool
    detail: str = ""


class Recycle:
    """One node of a group. `command` runs the command line and returns its exit code and its standard output."""

    def __init__(self, account: Account, kubernetes: Reader, cluster: str, group: str, command: Callable[[list[str]], Any]):
        self._account, self._kubernetes, self._cluster, self._group = account, kubernetes, cluster, group
        self._command = command
        self.before = self.describe()
        in_service = [each["InstanceId"] for each in self.before["Instances"] if each["LifecycleState"] == "InService"]
        if not in_service or len(in_service) != len(self.before["Instances"]):
            raise Impossible(f"all members of {group} have to be in service before one is recycled")
        self.instance = in_service[0]
        self.node = self._node_of(self.instance)

    def describe(self) -> dict[str, Any]:
        answer = self._account.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[self._group])
        if not answer["AutoScalingGroups"]:
            raise Impossible(f"there is no Auto Scaling group {self._group}")
        return answer["AutoScalingGroups"][0]

    def announcement(self) -> str:
        return "\n".join(
            [
                f"recycle-eks recycles {self.node} ({self.instance}), of the group {self._group} in the cluster {self._cluster}.",
                "  The group launches a replacement, budgets decide when its pods are evicted, and the instance ends.",
                "Time:  as long as its pods need. Cost:  one more instance during that time.",
            ]
        )

    def verdicts(self) -> Iterator[Verdict]:
        """Recycles the node, then yields what was checked."""
        code, text = self._command(["recycle", self.instance, "--cluster", self._cluster, "--output", "json"])
        line = text.strip().rpartition("\n")[2]
        end = _parsed(line)
        recycled = code == 0 and end.get("outcome") == "recycled" and "execution_arn" in end
        detail = line or f"no output, exit code {code}"
        yield Verdict("the execution ended with the outcome recycled", recycled, detail)
        if not recycled:
            return
        try:
            yield from self._checks(end["execution_arn"])
        except (Impossible, ClientError, BotoCoreError) as problem:
            yield Verdict("everything could be checked", False, str(problem))

    def _checks(self, execution: str) -> Iterator[Verdict]:
        self._wait_for_the_end()
        history = list(self._history(execution))
        yield Verdict(f"its history has less than {MOST_EVENTS} events", len(history) < MOST_EVENTS, str(len(history)))
        after = self.describe()
        new = [each["InstanceId"] for each in after["Instances"] if each["InstanceId"] not in _ids(self.before)]
        yield from self._of_the_replacement(new, history)
        sizes = [(each["MinSize"], each["DesiredCapacity"], each["MaxSize"]) for each in (self.before, after)]
        yield Verdict("the group has its sizes again", sizes[0] == sizes[1], f"{sizes[0]}, then {sizes[1]}")
        states = [each["LifecycleState"] for each in after["Instances"]]
        whole = states == ["InService"] * len(self.before["Instances"])
        yield Verdict("all members are in service, and as many as before", whole, ", ".join(states))
        yield Verdict("the instance left the group", self.instance not in _ids(after))
        yield Verdict("the instance was terminated", self._state() == "terminated", self._state())
        yield Verdict("the Node is gone", self._kubernetes.get(f"/api/v1/nodes/{self.node}") is None)
        phases = self._phases()
        in_order = phases == [each for each in PHASES if each in phases] and "RecycleDisposing" in phases
        yield Verdict("the Events of the Node have the phases in their order", in_order, ", ".join(phases))

    def _of_the_replacement(self, new: list[str], history: list[dict[str, Any]]) -> Iterator[Verdict]:
        yield Verdict("one replacement came", len(new) == 1, ", ".join(new))
        tainted = [each["timestamp"] for each in history if each.get("stateEnteredEventDetails", {}).get("name") == "TaintNode"]
        if len(new) == 1 and tainted:
            ready = self._ready_since(self._node_of(new[0]))
            early = ready is not None and ready <= tainted[0]
            yield Verdict("the replacement was Ready before the taint", early, f"{ready}, then {tainted[0]}")

    def _wait_for_the_end(self) -> None:
        end = self._account.clock.now() + PATIENCE
        while self._account.clock.now() < end:
            if self._state() == "terminated" and self._kubernetes.get(f"/api/v1/nodes/{self.node}") is None:
                return
            self._account.clock.sleep(CHECK)

    def _state(self) -> str:
        answer = self._account.client("ec2").describe_instances(InstanceIds=[self.instance])
        return answer["Reservations"][0]["Instances"][0]["State"]["Name"]

    def _history(self, execution: str) -> Iterator[dict[str, Any]]:
        pages = self._account.client("stepfunctions").get_paginator("get_execution_history")
        for page in pages.paginate(executionArn=execution, includeExecutionData=False):
            yield from page["events"]

    def _node_of(self, instance: str) -> str:
        nodes = (self._kubernetes.get("/api/v1/nodes") or {}).get("items", [])
        names = [node["metadata"]["name"] for node in nodes if node["spec"].get("providerID", "").endswith(f"/{instance}")]
        if not names:
            raise Impossible(f"the cluster {self._cluster} has no Node of {instance}")
        return names[0]

    def _ready_since(self, node: str) -> datetime.datetime | None:
        about = self._kubernetes.get(f"/api/v1/nodes/{node}") or {"status": {"conditions": []}}
        for each in about["status"]["conditions"]:
            if (each["type"], each["status"]) == ("Ready", "True"):
                return datetime.datetime.fromisoformat(each["lastTransitionTime"].replace("Z", "+00:00"))
        return None

    def _phases(self) -> list[str]:
        found = self._kubernetes.get(f"/api/v1/events?fieldSelector=involvedObject.kind=Node,involvedObject.name={self.node}")
        reasons = [(_time_of(each), each["reason"]) for each in (found or {}).get("items", []) if each["reason"] in PHASES]
        # Events of one second have no order of their own.
        return [reason for _, reason in sorted(reasons, key=lambda each: (each[0], PHASES.index(each[1])))]


def _parsed(line: str) -> dict[str, Any]:
    """Returns the object in a line of JSON, or an empty one."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _time_of(event: dict[str, Any]) -> str:
    return event.get("eventTime") or event.get("firstTimestamp") or event["metadata"]["creationTimestamp"]


def _ids(group: dict[str, Any]) -> set[str]:
    return {each["InstanceId"] for each in group["Instances"]}


def reader(account: Account, name: str) -> Reader:
    """Returns a reader of the cluster's API. The tests have one of their own."""
    return Kubernetes(account, name)


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Runs the installed command line. Its progress goes to standard error."""
    try:
        done = subprocess.run(["recycle-eks", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Impossible(f"the command line recycle-eks cannot be run: {error}") from error
    return done.returncode, done.stdout
