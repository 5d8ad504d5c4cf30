"""Target groups of load balancers: which targets get traffic, and in which time, on the virtual clock.

There are two kinds. One is attached to Auto Scaling groups, which register and deregister their members
(`autoscaling/targets.py`). The other has the nodes of the cluster as its targets, as the AWS Load Balancer Controller registers
them in instance mode (kubernetes-sigs/aws-load-balancer-controller, `pkg/backend/endpoint_utils.go`). It has every Node but
those with the label `node.kubernetes.io/exclude-from-external-load-balancers`, the taint `ToBeDeletedByClusterAutoscaler` or
`karpenter.sh/disrupted`. A cordon does not matter.

A target is `initial` until its health checks have passed, then `healthy`. After it is deregistered, it is `draining` for the
target group's delay, in which it finishes its requests, and then it is gone. Not supported: traffic, listeners, health that
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.instances import Instance
from moto.elbv2.exceptions import TargetNotRunning
from moto.elbv2.models import ELBv2Backend, FakeHealthStatus, FakeTargetGroup, elbv2_backends

from world.aws.account import Aws
from world.aws.ec2 import Ec2
from world.aws.identity import ACCOUNT, REGION
from world.aws.moto_internals import LOCK, moto_original
from world.base.clock import Clock

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
GOING = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
DELAY = "deregistration_delay.timeout_seconds"


@dataclass
class Registration:
    """One target from its registration to its end. All moments in virtual seconds since the scenario began."""

    target: str
    registered: float
    healthy: float
    deregistered: float | None = None
    gone: float | None = None
    """The end of its draining."""
    ended: float | None = None
    """The time at which its machine ended or was stopped."""

    def state(self, now: float) -> str | None:
        """Returns the state as DescribeTargetHealth shows it, or None if it is not a target."""
        if self.gone is not None:
            return "draining" if now < self.gone else None
        return "initial" if now < self.healthy else "healthy"

    def serves(self, since: float, until: float) -> tuple[float, float]:
        """The part of a time in which it gets new connections."""
        ends = [end for end in (self.deregistered, self.ended) if end is not None]
        return max(since, self.healthy), min([until, *ends])


class TargetGroup:
    """A target group and its book."""

    def __init__(self, balancers: Balancers, moto: FakeTargetGroup, of_nodes: bool, checks: float) -> None:
        self._balancers = balancers
        self._moto = moto
        self._checks = checks
        self.of_nodes = of_nodes
        self.book: list[Registration] = []
        """Every registration, the oldest first."""
        self.cut_off: list[str] = []
        """The instances that ended, or were stopped, while they were registered or draining."""

    def __repr__(self) -> str:
        return f"target group {self._moto.name}"

    @property
    def arn(self) -> str:
        return self._moto.arn

    @property
    def targets(self) -> dict[str, str]:
        """The state of each target now, those that are draining included."""
        now = self._balancers.clock.elapsed()
        states = {entry.target: entry.state(now) for entry in self.book}
        return {target: state for target, state in states.items() if state is not None}

    def unserved(self, since: float = 0) -> list[tuple[float, float]]:
        """The times since a moment in which no target was healthy."""
        now = self._balancers.clock.elapsed()
        gaps, covered = [], since
        for begin, end in sorted(entry.serves(since, now) for entry in self.book):
            if begin < end:
                if begin > covered:
                    gaps.append((covered, begin))
                covered = max(covered, end)
        return gaps if covered >= now else [*gaps, (covered, now)]

    def register(self, instances: Iterable[str]) -> None:
        """Registers a target, as RegisterTargets."""
        self._moto.register([{"Id": instance, "Port": self._moto.port} for instance in instances])

    def deregister(self, instances: Iterable[str]) -> None:
        """Deregisters a target, as DeregisterTargets."""
        self._moto.deregister([{"Id": instance} for instance in instances])

    def current(self, target: str) -> Registration | None:
        """Its registration, if it is registered."""
        return next((entry for entry in self.book if entry.target == target and entry.deregistered is None), None)

    def note_registered(self, target: str) -> None:
        now = self._balancers.clock.elapsed()
        if self.current(target) is None:
            self.book.append(Registration(target, now, now + self._checks))

    def note_deregistered(self, target: str) -> None:
        entry, now = self.current(target), self._balancers.clock.elapsed()
        if entry is not None:
            entry.deregistered = now
            entry.gone = now + float(self._moto.attributes[DELAY])

    def note_ended(self, instance: str) -> None:
        if instance in self.targets:
            self.cut_off.append(instance)
        if (entry := self.current(instance)) is not None:
            entry.ended = self._balancers.clock.elapsed()


class Balancers:
    """The target groups of the account that a scenario has made."""

    def __init__(self, aws: Aws, ec2: Ec2, clock: Clock, nodes: Callable[[], Iterable[dict[str, Any]]]) -> None:
        """`nodes`: the Node objects of the cluster."""
        self.aws = aws
        self.clock = clock
        self._nodes = nodes
        self._groups: dict[str, TargetGroup] = {}
        ec2.on_change.append(self._instance_changed)
        aws.on_reset.append(self._groups.clear)
        _install(self)

    def create(self, name: str, of_nodes: bool, deregistration_delay: float, checks: float) -> TargetGroup:
        """`checks`: how long a new target is `initial`."""
        elbv2 = self.aws.client("elbv2")
        vpc = self.aws.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
        arn = elbv2.create_target_group(Name=name, Protocol="HTTP", Port=80, VpcId=vpc)["TargetGroups"][0]["TargetGroupArn"]
        moto = elbv2_backends[ACCOUNT][REGION].target_groups[arn]
        moto.attributes[DELAY] = str(int(deregistration_delay))
        self._groups[arn] = TargetGroup(self, moto, of_nodes, checks)
        return self._groups[arn]

    def find(self, arn: str) -> TargetGroup | None:
        return self._groups.get(arn)

    def follow_nodes(self) -> None:
        """Updates the targets, as the controller does after each change in the cluster."""
        groups = [group for group in self._groups.values() if group.of_nodes]
        if not groups:
            return
        with LOCK:
            wanted = {node.instance_id for node in map(_Suitable, self._nodes()) if node.is_suitable and node.instance_id}
            for group in groups:
                registered = {entry.target for entry in group.book if entry.deregistered is None}
                for instance in sorted(wanted - registered):
                    # AWS refuses one that does not run; the controller tries it again.
                    with suppress(TargetNotRunning):
                        group.register([instance])
                group.deregister(sorted(registered - wanted))

    def _instance_changed(self, instance: Instance, old: str, new: str) -> None:
        if new in ("shutting-down", "stopping"):
            for group in self._groups.values():
                group.note_ended(instance.id)


class _Suitable:
    """Returns the fields of a Node that the controller reads."""

    def __init__(self, node: dict[str, Any]) -> None:
        provider_id = node["spec"].get("providerID", "")
        self.instance_id = provider_id.rsplit("/", 1)[-1] or None
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        self.is_suitable = EXCLUDE not in node["metadata"].get("labels", {}) and not taints & set(GOING)


def _install(balancers: Balancers) -> None:
    """Keeps a book of all registered and deregistered targets. A second world replaces the first."""
    register = moto_original(FakeTargetGroup, "register")
    deregister = moto_original(FakeTargetGroup, "deregister")
    describe = moto_original(ELBv2Backend, "describe_target_health")

    def noted_register(group: FakeTargetGroup, targets: list[dict[str, Any]]) -> None:
        register(group, targets)
        book = balancers.find(group.arn)
        for target in targets if book else ():
            book.note_registered(target["Id"])

    def noted_deregister(group: FakeTargetGroup, targets: list[dict[str, Any]]) -> None:
        deregister(group, [target for target in targets if target["Id"] in group.targets])
        book = balancers.find(group.arn)
        for target in targets if book else ():
            book.note_deregistered(target["Id"])

    def health(backend: ELBv2Backend, target_group_arn: str, targets: list[dict[str, Any]]) -> list[FakeHealthStatus]:
        book = balancers.find(target_group_arn)
        if book is None or targets:
            return describe(backend, target_group_arn, targets)
        return [FakeHealthStatus(target, 80, "traffic-port", state) for target, state in book.targets.items()]

    FakeTargetGroup.register = noted_register
    FakeTargetGroup.deregister = noted_deregister
    ELBv2Backend.describe_target_health = health
