"""Machines: an instance as a scenario sees it, and what a cluster sees of machines that come, go off and come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import InvalidInstanceIdError

from world.aws.ec2 import Ec2
from world.base.clock import Clock
from world.kubernetes.cluster import Kubernetes
from world.scenario.groups import Arrival, Group, Node

#: Seconds until the node controller says that a kubelet is silent (kube-controller-manager's --node-monitor-grace-period).
NODE_MONITOR_GRACE = 50


@dataclass(frozen=True)
class EndOfInstance:
    """An instance of a group began to shut down or to stop."""

    at: float
    """Virtual seconds since the scenario began."""
    instance_id: str
    node_name: str
    pods: tuple[str, ...]
    """Returns `namespace/name` of each pod that still ran on its node and ended with it."""


class Instance:
    """An EC2 instance as DescribeInstances shows it."""

    def __init__(self, ec2: Ec2, instance_id: str) -> None:
        self._ec2 = ec2
        self.id = instance_id

    @property
    def state(self) -> str:
        """`running`, `stopped`, `terminated` …"""
        return self._ec2.instance(self.id)._state.name

    @property
    def tags(self) -> dict[str, str]:
        """Its tags."""
        answer = self._ec2.aws.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [self.id]}])
        return {tag["Key"]: tag["Value"] for tag in answer["Tags"]}


class Machines:
    """Kubelets that register, and the cloud controller."""

    def __init__(self, clock: Clock, ec2: Ec2, kubernetes: Kubernetes, groups: Mapping[str, Group]) -> None:
        self._clock = clock
        self._ec2 = ec2
        self._kubernetes = kubernetes
        self._groups = groups
        self.has_cloud_controller = True
        self.ends: list[EndOfInstance] = []

    def reset(self) -> None:
        self.ends.clear()
        self.has_cloud_controller = True

    def instance(self, instance_id: str) -> Instance:
        return Instance(self._ec2, instance_id)

    def state_of(self, instance_id: str) -> str:
        """`running`, `stopped`, `terminated` …: EC2 forgets an instance about an hour after its end."""
        try:
            return self.instance(instance_id).state
        except InvalidInstanceIdError:
            return "terminated"

    def joins(self, member: Any) -> None:
        """A kubelet registers when its instance is in service; one that comes back from Standby is registered already."""
        group = self._groups[member.group.name]
        arrival = member.launch if isinstance(member.launch, Arrival) else Arrival(joins_cluster=member.launch.joins_cluster)
        if group.cluster == self._kubernetes.name and arrival.joins_cluster and group.node_of(member.instance_id) is None:
            self._register(group, member.instance, arrival)

    def leaves(self, member: Any) -> None:
        """The cloud controller deletes the Node of a terminated instance."""
        group = self._groups.get(member.group.name)
        if group and self.has_cloud_controller and member.instance_id in group.nodes_seen:
            self._kubernetes.remove_node(group.nodes_seen[member.instance_id].name)

    def power_changes(self, instance: Any, old: str, new: str) -> None:
        """Shows the cluster that a machine goes off or on, whatever the cause."""
        node = next((seen for group in self._groups.values() if (seen := group.node_of(instance.id))), None)
        if node is None:
            return
        if new in ("shutting-down", "stopping"):
            self.ends.append(EndOfInstance(self._clock.elapsed(), instance.id, node.name, node.pods_at_work()))
            self._clock.after(NODE_MONITOR_GRACE, lambda: self._falls_silent(node))
        elif new == "stopped" and node.exists:
            node.kubernetes.add_taint("node.cloudprovider.kubernetes.io/shutdown")
        elif new == "terminated" and self.has_cloud_controller:
            self._kubernetes.remove_node(node.name)
        elif new == "running" and node.exists:
            node.reports_again()
        elif new == "running":
            self._register(node.group, instance, Arrival())

    def _register(self, group: Group, instance: Any, arrival: Arrival) -> None:
        taints = [{"key": arrival.startup_taint, "effect": "NoSchedule"}] if arrival.startup_taint else []
        zone = instance.placement.zone
        node = self._kubernetes.add_node(
            instance.private_dns_name,
            f"aws:///{zone}/{instance.id}",
            zone,
            labels=group.labels,
            ready=arrival.becomes_ready,
            startup_taints=taints,
            startup_taints_go_after=arrival.taint_lasts,
            allocatable=arrival.allocatable,
            kubelet=group.kubelet,
        )
        group.nodes_seen[instance.id] = Node(group, self._kubernetes, instance.id, node, self._clock.elapsed())

    def _falls_silent(self, node: Node) -> None:
        if node.exists and self.instance(node.instance_id).state != "running":
            node.falls_silent()
