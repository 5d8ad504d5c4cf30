"""What is recycled in the campaign: small worlds, each a way in, a disposal, a sweep or a rotation, with drains of a few polls.

A `Stage` is a world in which a scene plays. It keeps its own book of what happens to machines, pods and targets: what is judged
afterwards is the world, never recycle-eks' records.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from moto.ec2.exceptions import InvalidInstanceIdError

from world.aws.balancers import TargetGroup
from world.kubernetes.handles import Pod
from world.scenario.executions import Execution
from world.scenario.groups import Group, Node
from world.world import World

#: Virtual seconds after which executions are given up that still run: more than a put-back that is tried for half an hour.
PATIENCE = 5 * 86_400
#: Virtual seconds in which whatever an event starts has begun.
BEGINS = 10
#: When the sweeps come that nothing of ours outlives, after everything has ended.
SWEEPS = ("6m", "15m")
#: Who must hold a claim before it changes anything; and who must not act over that of another that still runs.
UNDER_A_CLAIM = ("standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate")
UNDER_NO_OTHERS = ("claim-node", "restore-node")
#: What such a function writes beside the node, its group and its pods.
ELSEWHERE = (
    "lambda:Invoke",
    "kubernetes:POST events",
    "kubernetes:POST selfsubjectaccessreviews",
    "sns:Publish",
    "sts:",
    "logs:",
)
READS = ("Describe", "List", "Get", "GET")
#: What has words of ours.
TEXTS = ("kubernetes:PATCH", "kubernetes:POST", "kubernetes:PUT", "ec2:CreateTags", "sns:Publish")
#: What a rotation marks nodes with, which it has not claimed.
MARK = "recycle-eks/outdated"
#: How often a call is made again whose answer was lost.
REPEATS = 4


class Stage:
    """A world with nodes to recycle, and what was seen there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.groups: list[Group] = []
        self.nodes: list[Node] = []
        """Those that are recycled."""
        self.jobs: list[Pod] = []
        self.finished: list[str] = []
        self.died: list[str] = []
        """Machines that ended with pods at work."""
        self.unclaimed: list[str] = []
        """Calls that changed something without a live claim."""
        self.short: list[str] = []
        """Machines that ended although their group had fewer usable members than before they left service."""
        self.dispose = "terminate"
        """What was asked for."""
        self.is_stopped = False
        """Somebody has stopped an execution."""
        self.by_hand: set[str] = set()
        """Instances that a person ended."""
        self.unknown: set[str] = set()
        """Instances whose Node a person deleted, or of which nobody hears any more: their pods end."""
        self.is_unclaimed = False
        """Somebody has taken a claim away."""
        self.is_idle = False
        """Somebody has found nothing to do."""
        self.written: list[str] = []
        """What functions wrote to nodes, events and tags."""
        self.grown: dict[str, int] = {}
        """By how much a person has changed a group's desired capacity."""
        self.targets: list[TargetGroup] = []
        self.entered: list[str] = []
        """The states that executions have entered, each once."""
        self.to_do: dict[str, Callable[[], Any]] = {}
        """What is done as soon as a state is entered for the first time, and has to be."""
        self.scripted: dict[str, Callable[[], Any]] = {}
        """The same of a scene, if a state is entered."""
        self._usable_before: dict[str, int] = {}
        self._last_calls: dict[str, tuple[str, int]] = {}
        self._busy_until = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def watched(self) -> Iterator[Stage]:
        """As long as it plays, it looks."""
        ears = [
            (self.world.ec2.on_change, self._machine_changes),
            (self.world.faults.witnesses, self._call_is_made),
            (self.world.engine.on_entered, self._state_is_entered),
        ]
        for hears, ear in ears:
            hears.append(ear)
        try:
            yield self
        finally:
            for hears, ear in ears:
                hears.remove(ear)

    # What a scene is made of

    def group(self, name: str = "workers", size: int = 2, minimum: int = 1, maximum: int = 4, **how: Any) -> Group:
        group = self.world.group(name, size=size, minimum=minimum, maximum=maximum, **how)
        self.groups.append(group)
        self.sizes = {each.name: each.sizes for each in self.groups}
        self.members = {each.name: list(each.instances) for each in self.groups}
        return group

    def recycles(self, node: Node, until: str = "4m", serves: bool = True) -> Node:
        """A node to recycle: a pod to wait for that ends then, pods to evict, and a load balancer before the cluster."""
        self.nodes.append(node)
        number = len(self.nodes)
        job = node.job(f"train-{number}", labels={"app": "train"}, annotations={"recycle-eks/drain": "wait"})
        self.jobs.append(job)
        self.at(until, lambda: self.finish(job))
        if serves:
            web = node.deployment(f"web-{number}", replicas=2)
            self.world.budget(web, max_unavailable=1)
        if not self.targets:
            self.targets.append(self.world.target_group("nodes", deregistration_delay=60))
        return node

    def is_given_a_late_pod(self, node: Node) -> None:
        """It runs to completion, so that it is waited for, as it does not tolerate the taint."""
        if node.exists and self.world.state_of(node.instance_id) == "running":
            job = node.job("late")
            self.jobs.append(job)
            self.at(f"{self.world.clock.elapsed() + 300}s", lambda: self.finish(job))

    def at(self, time: str, action: Callable[[], Any]) -> None:
        self._busy_until = max(self._busy_until, self.world.seconds(time))
        self.world.at(time, action)

    def finish(self, job: Pod) -> None:
        """A pod that was killed before has not finished."""
        if job.exists and not job.is_terminating:
            job.finishes()
            self.finished.append(job.name)

    @contextmanager
    def ends_by_hand(self, node: Node) -> Iterator[None]:
        """From now on its end, and that of its pods, is nothing of ours; unless it had ended before, or AWS refuses it."""
        by_hand, jobs = set(self.by_hand), self.jobs
        if self.world.state_of(node.instance_id) in ("running", "stopped"):
            self.by_hand.add(node.instance_id)
            self._loses_jobs(node)
        try:
            yield
        except ClientError:
            self.by_hand, self.jobs = by_hand, jobs
            raise

    def loses_its_node(self, node: Node) -> None:
        """A person deletes the Node, with which its pods end; the machine is ours still."""
        self.unknown.add(node.instance_id)
        self._loses_jobs(node)
        node.object_is_deleted()

    def falls_silent(self, node: Node) -> None:
        """Its kubelet ends, and nobody can tell what its pods do."""
        self.unknown.add(node.instance_id)
        self._loses_jobs(node)
        node.falls_silent()

    def _loses_jobs(self, node: Node) -> None:
        self.jobs = [job for job in self.jobs if job.name in self.finished or not job.exists or job.node_name != node.name]

    def becomes_idle(self) -> None:
        """Whatever was begun has ended, and two sweeps have come after that."""
        world = self.world
        self.ends()
        if world.clock.elapsed() < self._busy_until:
            world.run(self._busy_until)
            self.ends()
        for pause in SWEEPS:
            world.run(world.clock.elapsed() + world.seconds(pause))
            world.sweep()
            self.ends()

    @property
    def running(self) -> list[Any]:
        return [each for each in self.world.engine.executions.values() if each.status == "RUNNING"]

    def ends(self) -> None:
        """All that runs has ended, and what was about to begin."""
        self.world.run(self.world.clock.elapsed() + BEGINS)
        self.world.clock.run(until=lambda: not self.running, limit=self.world.clock.elapsed() + PATIENCE)

    # What it sees

    def node_of(self, instance_id: str) -> Node | None:
        return next((node for group in self.groups if (node := group.node_of(instance_id))), None)

    def tags(self, instance_id: str) -> dict[str, str]:
        """None once EC2 has forgotten it, about an hour after its end."""
        try:
            return {tag["key"]: tag["value"] for tag in self.world.ec2.instance(instance_id).get_tags()}
        except InvalidInstanceIdError:
            return {}

    def is_tagged(self, instance_id: str, key: str) -> bool:
        return key in self.tags(instance_id)

    def _machine_changes(self, instance: Any, old: str, new: str) -> None:
        node = self.node_of(instance.id)
        if new in ("shutting-down", "stopping") and node and instance.id not in self.by_hand | self.unknown:
            if killed := node.pods_at_work():
                self.died.append(f"{node.name} ended with {', '.join(killed)} at work")
            needed = min(self._usable_before.get(instance.id, 0), node.group.sizes[1])
            if (usable := self._count_usable(node.group, instance.id)) < needed:
                self.short.append(f"{node.name} ended with {usable} usable members in {node.group}, and {needed} are needed")

    def _count_usable(self, group: Group, besides: str = "") -> int:
        """Members that are in service with a Node that is Ready."""
        in_service = [each for each, state in group.states.items() if state == "InService" and each != besides]
        nodes = [group.node_of(each) for each in in_service if self.world.state_of(each) == "running"]
        return len([node for node in nodes if node and node.exists and node.kubernetes.is_ready])

    def _call_is_made(self, action: str, function: str | None, parameters: dict[str, Any]) -> None:
        if action == "autoscaling:EnterStandby" and function is not None:
            for node in self.nodes:
                if node.instance_id in json.dumps(parameters) and node.group.states.get(node.instance_id) == "InService":
                    self._usable_before[node.instance_id] = self._count_usable(node.group)
        if function is not None and action.startswith(TEXTS):
            self.written.append(f"{function} {action} {json.dumps(parameters, default=str)}")
        if function is None or not function.endswith((*UNDER_A_CLAIM, *UNDER_NO_OTHERS)) or action.startswith(ELSEWHERE):
            return
        # Whose answer was lost, calls again; the first call may have been the claim's end.
        call = json.dumps([action, parameters], default=str)
        last, times = self._last_calls.get(function, ("", 0))
        times = times + 1 if last == call else 0
        self._last_calls[function] = (call, times)
        is_repeated = 0 < times <= REPEATS and any(fault.struck for fault in self.world.faults.faults)
        if action.partition(":")[2].startswith(READS) or is_repeated:
            return
        calls = [json.loads(payload) for name, payload in list(self.world.host.at_work) if name == function]
        marks = MARK in json.dumps(parameters.get("body"))
        if not any(marks if {"marking", "unmarking"} & call.keys() else self._may_write(function, call) for call in calls):
            with self._lock:
                self.unclaimed.append(f"{function} {action}")

    def _may_write(self, function: str, call: dict[str, Any]) -> bool:
        """Whether the node that it works on is claimed by the very run of an execution that called it; who puts back, acts over
        nobody's claim who still runs."""
        asked = json.dumps(call)
        nodes = [node for node in self.nodes if node.instance_id in asked]
        claims = [claim for node in nodes for claim in self._claims_of(node)]
        mine = call["context"]["Execution"]
        running = {each.arn for each in self.running}
        if function.endswith(UNDER_NO_OTHERS):
            return not any(arn in claim for claim in claims for arn in running - {mine["Id"]})
        fence = f"{mine['Id']}#{mine.get('RedriveCount', 0)}"
        return mine["Id"] in running and any(fence in self._deciding_claim(node) for node in nodes)

    def _claims_of(self, node: Node) -> list[str]:
        on_node = [node.annotations.get("recycle-eks/claim", "")] if node.exists else []
        return [*on_node, self.tags(node.instance_id).get("recycle-eks:claim", "")]

    def _deciding_claim(self, node: Node) -> str:
        """The Node's. The instance's where there is no Node, and once it is stopped or detached: then the Node's goes first."""
        results = ("recycle-eks/stopped", "recycle-eks/detached")
        is_left = node.exists and any(taint["key"] in results for taint in node.kubernetes.taints)
        return self._claims_of(node)[-1 if is_left else 0]

    def _state_is_entered(self, execution: Any, state: str) -> None:
        if state in self.entered:
            return
        self.entered.append(state)
        for actions in (self.scripted, self.to_do):
            if action := actions.pop(state, None):
                self.world.clock.after(0, action)


@dataclass(frozen=True)
class Scene:
    """`play` builds it and starts what is watched; boundaries are what is called after that."""

    name: str
    play: Callable[[Stage], None]
    goal: str
    """How the last execution ends when nothing goes wrong."""


def _started(stage: Stage, **fields: Any) -> Execution:
    stage.dispose = fields.get("dispose", stage.dispose)
    execution = stage.world.recycle(stage.nodes[0], label_selector="app=train", drain_timeout=3600, **fields)
    stage.world.forget_calls()
    return execution


def before(stage: Stage) -> None:
    """A scheduler that had not heard of the taint yet binds one pod more."""
    node = stage.recycles(stage.group().nodes[0])
    stage.scripted["CheckPods"] = lambda: stage.is_given_a_late_pod(node)
    _started(stage)


def before_stop(stage: Stage) -> None:
    stage.recycles(stage.group().nodes[0])
    _started(stage, dispose="stop")


def before_detach(stage: Stage) -> None:
    stage.recycles(stage.group().nodes[0])
    _started(stage, dispose="detach")


def neighbour(stage: Stage) -> None:
    """The replacement takes its time. Meanwhile a neighbour dies, and its successor comes first."""
    group = stage.group(size=3)
    node, other = group.nodes[:2]
    stage.recycles(node, until="2m", serves=False)
    group.next_launch(takes="8m")

    def dies() -> None:
        try:
            with stage.ends_by_hand(other):
                other.is_terminated_in_the_console()
        except ClientError:  # It is throttled like all others, and asks again.
            stage.world.clock.after(60, dies)

    stage.at("30s", dies)
    _started(stage)


def after(stage: Stage) -> None:
    """Its group's load balancer has no other healthy target until long after its pods have ended."""
    group = stage.group(minimum=2, maximum=2)
    node, other = group.nodes
    stage.recycles(node, until="2m")
    target = stage.world.target_group("workers", group, deregistration_delay=60)
    target.current(other.instance_id).healthy = stage.world.seconds("8m")
    stage.targets.append(target)
    _started(stage, replacement="after")


def hook(stage: Stage) -> None:
    group = stage.group("held")
    node = stage.recycles(group.nodes[0], until="2m")
    stage.world.forget_calls()
    group.terminate(node)


def hook_retain(stage: Stage) -> None:
    group = stage.group("retained", retains=True)
    node = stage.recycles(group.nodes[0], until="2m")
    stage.world.forget_calls()
    group.terminate(node)


def spot(stage: Stage) -> None:
    """A rebalance recommendation: EC2 may take the node away, but has not said when."""
    node = stage.recycles(stage.group().nodes[0], until="4m")
    stage.world.forget_calls()
    stage.world.events.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": node.instance_id})


def restore(stage: Stage) -> None:
    """The pods need longer than they may; the group's minimum allows no node less."""
    stage.recycles(stage.group(minimum=2).nodes[0], until="2h", serves=False)
    stage.world.recycle(stage.nodes[0], label_selector="app=train", drain_timeout=60)
    stage.world.forget_calls()


def evicted(stage: Stage) -> None:
    """The pod that is waited for needs longer than it may, and the input says that it is evicted then."""
    node = stage.recycles(stage.group().nodes[0], until="2h", serves=False)
    stage.jobs.clear()
    stage.world.recycle(node, label_selector="app=train", drain_timeout=300, on_drain_timeout="evict")
    stage.world.forget_calls()


def lost(stage: Stage) -> None:
    """Nobody hears of the node any more, in its drain."""
    node = stage.recycles(stage.group().nodes[0], until="2h")
    stage.scripted["WaitForPods"] = lambda: stage.falls_silent(node)
    _started(stage)


def sweep(stage: Stage) -> None:
    """Somebody has stopped the execution in its drain; a sweep finds what it left."""
    stage.recycles(stage.group().nodes[0], until="2h", serves=False)
    execution = stage.world.recycle(stage.nodes[0], label_selector="app=train")
    stage.world.clock.run(until=lambda: "WaitForPods" in stage.entered)
    execution.stop()
    stage.is_stopped = True
    stage.world.run(stage.world.clock.elapsed() + 360)
    stage.entered.clear()
    stage.world.forget_calls()
    stage.world.sweep()


def rotation(stage: Stage) -> None:
    group = stage.group()
    for node in sorted(group.nodes, key=lambda node: node.instance_id):
        stage.recycles(node, until="10m", serves=node is group.nodes[0])
    group.gets_a_new_template()
    terms = {"recycle": {"label_selector": "app=train", "drain_timeout": 7200}}
    stage.world.rotate(**terms)
    stage.world.forget_calls()


SCENES = [
    Scene("before", before, "recycled"),
    Scene("before-stop", before_stop, "recycled"),
    Scene("before-detach", before_detach, "recycled"),
    Scene("neighbour", neighbour, "recycled"),
    Scene("after", after, "recycled"),
    Scene("hook", hook, "recycled"),
    Scene("hook-retain", hook_retain, "recycled"),
    Scene("spot", spot, "started"),
    Scene("put-back", restore, "DrainTimedOut"),
    Scene("evicted", evicted, "recycled"),
    Scene("lost", lost, "NodeLost"),
    Scene("sweep", sweep, "ABORTED"),
    Scene("rotation", rotation, "rotated"),
]


def ends_of(stage: Stage, machine: str = "recycle-node") -> list[Execution]:
    """The executions that recycle, or others, in the order in which they ended."""
    ended = [each for each in stage.world.executions(machine) if each.status != "RUNNING"]
    return sorted(ended, key=lambda each: stage.world.engine.execution(each.arn).stop)


def told_by(execution: Execution) -> tuple[str, str]:
    """An ended execution's outcome and its reason."""
    end = execution.finishes()
    if end.status == "SUCCEEDED":
        return end.outcome or "?", json.dumps(end.output)
    return end.error or end.status, end.cause
