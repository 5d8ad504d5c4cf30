"""The scenes of the campaign: small worlds, each with a path, a disposal, a sweep or a rotation, and drains of a few checks.

A `Stage` is a world in which a scene plays. It records all changes of machines, pods and targets itself, so the judge never
relies on the records of recycle-eks.
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

#: The virtual seconds that executions get to end. A restore may retry for half an hour, so this is much longer.
PATIENCE = 5 * 86_400
#: The virtual seconds in which an event has started its execution.
BEGINS = 10
#: The times of the two sweeps after everything has ended. They must remove all leftovers of recycle-eks.
SWEEPS = ("6m", "15m")
#: The functions that must hold a claim before a change, and those that must respect the claim of another running execution.
UNDER_A_CLAIM = ("standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate")
UNDER_NO_OTHERS = ("claim-node", "restore-node")
#: The calls of these functions that change neither the node nor its group and pods.
ELSEWHERE = (
    "lambda:Invoke",
    "kubernetes:POST events",
    "kubernetes:POST subjectaccessreviews",
    "sns:Publish",
    "sts:",
    "logs:",
)
READS = ("Describe", "List", "Get", "GET")
#: The calls whose texts are checked for secrets.
TEXTS = ("kubernetes:PATCH", "kubernetes:POST", "kubernetes:PUT", "ec2:CreateTags", "sns:Publish", "events:PutEvents")
#: The mark that a rotation sets on nodes without a claim.
MARK = "recycle-eks/outdated"
#: The number of times that a call is repeated if its answer is lost.
REPEATS = 4


class Stage:
    """A world with nodes to recycle, and the observations there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.groups: list[Group] = []
        self.nodes: list[Node] = []
        """The nodes that are recycled."""
        self.jobs: list[Pod] = []
        self.finished: list[str] = []
        self.died: list[str] = []
        """Machines that ended with pods at work."""
        self.unclaimed: list[str] = []
        """Calls that changed something without a live claim."""
        self.short: list[str] = []
        """Machines that ended although their group had fewer usable members than before they left service."""
        self.dispose = "terminate"
        """The requested disposal."""
        self.is_stopped = False
        """Whether an operator has stopped an execution."""
        self.by_hand: set[str] = set()
        """Instances that an operator or another tool terminated."""
        self.unknown: set[str] = set()
        """Instances whose Node was deleted or whose kubelet is silent. Their pods end."""
        self.is_unclaimed = False
        """Whether an operator has removed a claim."""
        self.forgotten: set[str] = set()
        """Instances whose Lease an operator has deleted. What recycle-eks did to them is recorded nowhere else."""
        self.is_idle = False
        """Whether the action of an operator had no effect."""
        self.written: list[str] = []
        """The texts that functions wrote to nodes, events and tags."""
        self.grown: dict[str, int] = {}
        """The change that an operator made to the desired capacity of a group."""
        self.targets: list[TargetGroup] = []
        self.entered: list[str] = []
        """The states that executions have entered, each once."""
        self.to_do: dict[str, Callable[[], Any]] = {}
        """The actions on the first entry into a state. Every one of them must happen."""
        self.scripted: dict[str, Callable[[], Any]] = {}
        """The scene's own actions on the first entry into a state. They need not happen."""
        self._usable_before: dict[str, set[str]] = {}
        self._last_calls: dict[str, tuple[str, int]] = {}
        self._last_payloads: dict[str, list[dict[str, Any]]] = {}
        self._busy_until = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def watched(self) -> Iterator[Stage]:
        """Observes the world for the duration of the block."""
        observers = [
            (self.world.ec2.on_change, self._machine_changes),
            (self.world.faults.witnesses, self._call_is_made),
            (self.world.engine.on_entered, self._state_is_entered),
        ]
        for listeners, observer in observers:
            listeners.append(observer)
        try:
            yield self
        finally:
            for listeners, observer in observers:
                listeners.remove(observer)

    # The parts of a scene

    def group(self, name: str = "workers", size: int = 2, minimum: int = 1, maximum: int = 4, **how: Any) -> Group:
        group = self.world.group(name, size=size, minimum=minimum, maximum=maximum, **how)
        self.groups.append(group)
        self.sizes = {each.name: each.sizes for each in self.groups}
        self.members = {each.name: list(each.instances) for each in self.groups}
        return group

    def recycles(self, node: Node, until: str = "4m", serves: bool = True) -> Node:
        """Adds a node to recycle, with an awaited pod that ends at the given time, pods to evict, and a load balancer."""
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
        """Adds a pod that runs to completion. It does not tolerate the taint, so it is awaited."""
        if node.exists and self.world.state_of(node.instance_id) == "running":
            job = node.job("late")
            self.jobs.append(job)
            self.at(f"{self.world.clock.elapsed() + 300}s", lambda: self.finish(job))

    def at(self, time: str, action: Callable[[], Any]) -> None:
        self._busy_until = max(self._busy_until, self.world.seconds(time))
        self.world.at(time, action)

    def finish(self, job: Pod) -> None:
        """Finishes the pod, unless it was killed before."""
        if job.exists and not job.is_terminating:
            job.finishes()
            self.finished.append(job.name)

    @contextmanager
    def ends_by_hand(self, node: Node) -> Iterator[None]:
        """Excuses the end of the node and of its pods from here on, unless the node had ended before or AWS refuses the call."""
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
        """An operator deletes the Node, and its pods end. The instance must still be recycled."""
        self.unknown.add(node.instance_id)
        self._loses_jobs(node)
        node.object_is_deleted()

    def loses_the_lease(self, node: Node) -> None:
        """An operator deletes the Lease of the instance, and with it the claim and the records."""
        self.is_unclaimed = True
        self.forgotten.add(node.instance_id)
        node.loses_its_lease()

    def falls_silent(self, node: Node) -> None:
        """The kubelet ends, so the state of the pods is unknown."""
        if not node.exists:
            self.is_idle = True
            return
        self.unknown.add(node.instance_id)
        self._loses_jobs(node)
        node.falls_silent()

    def _loses_jobs(self, node: Node) -> None:
        self.jobs = [job for job in self.jobs if job.name in self.finished or not job.exists or job.node_name != node.name]

    def becomes_idle(self) -> None:
        """Runs until every execution has ended, and then two sweeps."""
        world = self.world
        self.ends()
        if world.clock.elapsed() < self._busy_until:
            world.run(self._busy_until)
            self.ends()
        for pause in SWEEPS:
            world.wait(pause)
            world.sweep()
            self.ends()

    @property
    def running(self) -> list[Any]:
        return [each for each in self.world.engine.executions.values() if each.status == "RUNNING"]

    def ends(self) -> None:
        """Runs until every execution has ended, also those that are about to start."""
        self.world.wait(BEGINS)
        self.world.clock.run(until=lambda: not self.running, limit=self.world.clock.elapsed() + PATIENCE)

    # Observations

    def node_of(self, instance_id: str) -> Node | None:
        return next((node for group in self.groups if (node := group.node_of(instance_id))), None)

    def tags(self, instance_id: str) -> dict[str, str]:
        """Returns the tags. They are empty once EC2 has forgotten the instance, about an hour after its end."""
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
            # A member whose Node an operator has deleted is not usable, whatever the execution of another node does.
            before = self._usable_before.get(instance.id, set())
            forgotten = self.unknown & before & node.group.states.keys()
            needed = min(len(before), node.group.sizes[1]) - len(forgotten)
            if (usable := len(self._usable(node.group, instance.id))) < needed:
                self.short.append(f"{node.name} ended with {usable} usable members in {node.group}, and {needed} are needed")

    def _usable(self, group: Group, besides: str = "") -> set[str]:
        """The members in service whose Node is Ready."""
        in_service = [each for each, state in group.states.items() if state == "InService" and each != besides]
        nodes = [group.node_of(each) for each in in_service if self.world.state_of(each) == "running"]
        return {node.instance_id for node in nodes if node and node.exists and node.kubernetes.is_ready}

    def _call_is_made(self, action: str, function: str | None, parameters: dict[str, Any]) -> None:
        if action == "autoscaling:EnterStandby" and function is not None:
            for node in self.nodes:
                if node.instance_id in json.dumps(parameters) and node.group.states.get(node.instance_id) == "InService":
                    self._usable_before[node.instance_id] = self._usable(node.group)
        if action == "autoscaling:SetDesiredCapacity" and (function or "").endswith("standby-node"):
            for node in self.nodes:
                if node.group.name == parameters["AutoScalingGroupName"]:
                    self._usable_before.setdefault(node.instance_id, self._usable(node.group))
        if function is not None and action.startswith(TEXTS):
            self.written.append(f"{function} {action} {json.dumps(parameters, default=str)}")
        if function is None or not function.endswith((*UNDER_A_CLAIM, *UNDER_NO_OTHERS)) or action.startswith(ELSEWHERE):
            return
        # A function repeats a call whose answer was lost. The first call may already have removed the claim.
        call = json.dumps([action, parameters], default=str)
        last, times = self._last_calls.get(function, ("", 0))
        times = times + 1 if last == call else 0
        self._last_calls[function] = (call, times)
        is_repeated = 0 < times <= REPEATS and any(fault.struck for fault in self.world.faults.faults)
        if action.partition(":")[2].startswith(READS) or is_repeated:
            return
        calls = [json.loads(payload) for name, payload in list(self.world.host.at_work) if name == function]
        if calls:
            self._last_payloads[function] = calls
        elif any(fault.struck for fault in self.world.faults.faults):
            # It was sent together with the call after which its process was killed.
            calls = self._last_payloads.get(function, [])
        marks = MARK in json.dumps(parameters.get("body"))
        if not any(marks if {"marking", "unmarking"} & call.keys() else self._may_write(function, call) for call in calls):
            with self._lock:
                self.unclaimed.append(f"{function} {action}")

    def _may_write(self, function: str, call: dict[str, Any]) -> bool:
        """Checks that the calling run of the execution holds the claim of the node. A function that restores must
        not act over the claim of another running execution."""
        asked = json.dumps(call)
        nodes = [node for node in self.nodes if node.instance_id in asked]
        claims = [claim for node in nodes for claim in self._claims_of(node)]
        mine = call["context"]["Execution"]
        running = {each.arn for each in self.running}
        if function.endswith(UNDER_NO_OTHERS):
            return not any(arn in claim for claim in claims for arn in running - {mine["Id"]})
        fence = f"{mine['Id']}#{mine.get('RedriveCount', 0)}"
        return mine["Id"] in running and any(fence in self._claim_of(node) for node in nodes)

    def _claim_of(self, node: Node) -> str:
        """Returns the claim in the Lease. Without a Lease, its copy on the instance covers the last calls of an execution."""
        lease, copy = self._claims_of(node)
        return lease if node.records else copy

    def _claims_of(self, node: Node) -> list[str]:
        """Returns the claim in the Lease, and its copy on the instance."""
        return [node.records.get("recycle-eks/claim", ""), self.tags(node.instance_id).get("recycle-eks:claim", "")]

    def _state_is_entered(self, execution: Any, state: str) -> None:
        if state in self.entered:
            return
        self.entered.append(state)
        for actions in (self.scripted, self.to_do):
            if action := actions.pop(state, None):
                self.world.clock.after(0, action)


@dataclass(frozen=True)
class Scene:
    """A scene of the campaign. `play` builds it and starts the execution. Faults strike at the calls after that."""

    name: str
    play: Callable[[Stage], None]
    goal: str
    """The outcome of the last execution without faults."""


def _started(stage: Stage, **fields: Any) -> Execution:
    stage.dispose = fields.get("dispose", stage.dispose)
    # A longer grace would hide that an instance goes while its pods are at work.
    times = {"drain_timeout": 3600, "load_balancer_grace": 60}
    execution = stage.world.recycle(stage.nodes[0], label_selector="app=train", **times, **fields)
    stage.world.forget_calls()
    return execution


def before(stage: Stage) -> None:
    """A scheduler that has not seen the taint yet binds one more pod."""
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
    """The replacement takes eight minutes. A neighbour dies before that, and its successor comes first."""
    group = stage.group(size=3)
    node, other = group.nodes[:2]
    stage.recycles(node, until="2m", serves=False)
    group.next_launch(takes="8m")

    def dies() -> None:
        try:
            with stage.ends_by_hand(other):
                other.is_terminated_in_the_console()
        except ClientError:  # The call was throttled, so it is made again.
            stage.world.clock.after(60, dies)

    stage.at("30s", dies)
    _started(stage)


def after(stage: Stage) -> None:
    """The load balancer of the group has no other healthy target until long after the pods have ended."""
    group = stage.group(minimum=2, maximum=2)
    node, other = group.nodes
    stage.recycles(node, until="2m")
    target = stage.world.target_group("workers", group, deregistration_delay=60)
    target.current(other.instance_id).healthy = stage.world.seconds("8m")
    stage.targets.append(target)
    _started(stage, replacement="after")


def surge(stage: Stage) -> None:
    """A scheduler that has not seen the taint yet binds one more pod."""
    node = stage.recycles(stage.group().nodes[0])
    stage.scripted["CheckPods"] = lambda: stage.is_given_a_late_pod(node)
    _started(stage, replacement="surge")


def surge_managed(stage: Stage) -> None:
    """Two nodes of an EKS managed node group wait for their pods side by side. The last node to begin ends first."""
    group = stage.group("managed", size=3, maximum=6, node_group="blue")
    for node, until in zip(group.nodes, ("25m", "15m"), strict=False):
        stage.recycles(node, until=until, serves=node is group.nodes[0])
    stage.world.recycle(stage.nodes[1], label_selector="app=train", drain_timeout=3600, load_balancer_grace=60)
    _started(stage)


def hook(stage: Stage) -> None:
    group = stage.group("held")
    node = stage.recycles(group.nodes[0], until="2m")
    stage.world.forget_calls()
    group.terminate(node)


def hook_retain(stage: Stage) -> None:
    """Descheduler and aws-node-termination-handler run beside it, set up as docs/troubleshooting.md says."""
    group = stage.group("retained", retains=True)
    node = stage.recycles(group.nodes[0], until="2m")
    stage.world.descheduler(["recycle-eks/draining", "recycle-eks/outdated", "node.kubernetes.io/unschedulable"])
    stage.world.termination_handler(hooks=["its-own"])
    stage.world.forget_calls()
    group.terminate(node)


def spot(stage: Stage) -> None:
    """A rebalance recommendation: EC2 may take the node away, but has not said when."""
    node = stage.recycles(stage.group().nodes[0], until="4m")
    node.becomes_spot()
    stage.world.forget_calls()
    stage.world.events.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": node.instance_id})


def restore(stage: Stage) -> None:
    """The pods need longer than the drain timeout, and the group's minimum allows no node less."""
    stage.recycles(stage.group(minimum=2).nodes[0], until="2h", serves=False)
    stage.world.recycle(stage.nodes[0], label_selector="app=train", drain_timeout=60)
    stage.world.forget_calls()


def evicted(stage: Stage) -> None:
    """The awaited pod needs longer than the drain timeout, and the input requests its eviction."""
    node = stage.recycles(stage.group().nodes[0], until="2h", serves=False)
    stage.jobs.clear()
    stage.world.recycle(node, label_selector="app=train", drain_timeout=300, on_drain_timeout="evict")
    stage.world.forget_calls()


def lost(stage: Stage) -> None:
    """The kubelet falls silent during the drain. EKS node repair may be first to replace the node."""
    node = stage.recycles(stage.group().nodes[0], until="2h")
    stage.world.node_repair(on_replaced=stage.by_hand.add)
    stage.scripted["WaitForPods"] = lambda: stage.falls_silent(node)
    # Earlier than node repair, unless a fault delays the execution.
    _started(stage, node_lost_after=900)


def sweep(stage: Stage) -> None:
    """An operator stops the execution during the drain, and a sweep restores the node."""
    stage.recycles(stage.group().nodes[0], until="2h", serves=False)
    execution = stage.world.recycle(stage.nodes[0], label_selector="app=train")
    stage.world.clock.run(until=lambda: "WaitForPods" in stage.entered)
    execution.stop()
    stage.is_stopped = True
    stage.world.wait(360)
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
    Scene("surge", surge, "recycled"),
    Scene("surge-managed", surge_managed, "recycled"),
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
    """Returns the ended executions of a state machine, in the order of their ends."""
    ended = [each for each in stage.world.executions(machine) if each.status != "RUNNING"]
    return sorted(ended, key=lambda each: stage.world.engine.execution(each.arn).stop)


def end_and_reason(execution: Execution) -> tuple[str, str]:
    """Returns the outcome and the reason of an ended execution."""
    end = execution.finishes()
    if end.status == "SUCCEEDED":
        return end.outcome or "?", json.dumps(end.output)
    return end.error or end.status, end.cause
