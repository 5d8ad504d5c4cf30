"""Auto Scaling groups and the nodes of their instances, as a scenario handles them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.instances import Instance

from world.aws.account import Aws
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Launch
from world.aws.moto_internals import LOCK
from world.base.clock import seconds
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.handles import Node as KubernetesNode
from world.kubernetes.handles import Pod, Workload
from world.kubernetes.settled import UNREACHABLE_TAINT, is_finished, name_of

#: The software of the instances, and their launch sources.
IMAGE = "ami-12c6146b"
TEMPLATE = {"ImageId": IMAGE, "InstanceType": "m7i.2xlarge"}


@dataclass
class Arrival(Launch):
    """A planned launch, including the Node."""

    becomes_ready: bool = True
    startup_taint: str | None = None
    taint_lasts: float = 0.0
    allocatable: Mapping[str, str] | None = None


class Group:
    """An Auto Scaling group."""

    def __init__(self, aws: Aws, autoscaling: AutoScaling, name: str, cluster: str, labels: dict[str, str], kubelet: str) -> None:
        self.aws = aws
        self._autoscaling = autoscaling
        #: The kubelet version of nodes that register from now on.
        self.kubelet = kubelet
        self.name = name
        self.cluster = cluster
        self.labels = labels
        self.nodes_seen: dict[str, Node] = {}

    def __repr__(self) -> str:
        return f"group {self.name}"

    def machine(self, instance_id: str) -> Instance:
        """The instance of a member, as moto has it."""
        return self._autoscaling.ec2.instance(instance_id)

    @property
    def exists(self) -> bool:
        """Checks whether the group still exists."""
        return self.name in self._autoscaling.backend.autoscaling_groups

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Minimum, desired, maximum."""
        group = self._autoscaling.group(self.name)
        return group.min_size, group.desired_capacity, group.max_size

    @property
    def states(self) -> dict[str, str]:
        """The members' lifecycle states by instance id."""
        return {m.instance_id: m.lifecycle_state for m in self._autoscaling.group(self.name).instance_states}

    @property
    def instances(self) -> list[str]:
        """The members' instance ids."""
        return list(self.states)

    @property
    def nodes(self) -> list[Node]:
        """The members' nodes, in the order in which they registered."""
        return [node for instance, node in self.nodes_seen.items() if instance in self.states]

    @property
    def newest(self) -> Node:
        """The node that registered last."""
        return self.nodes[-1]

    def node_of(self, instance_id: str) -> Node | None:
        """The node of an instance, if it registered."""
        return self.nodes_seen.get(instance_id)

    def next_launch(
        self,
        takes: str | float | None = None,
        fails: str | None = None,
        never_registers: bool = False,
        never_ready: bool = False,
        startup_taint: str | None = None,
        taint_lasts: str | float = 0,
        allocatable: Mapping[str, str] | None = None,
        zone: str | None = None,
        instance_type: str | None = None,
    ) -> None:
        """Plans the next launch. `fails` is the message of AWS; then all further launches also fail."""
        arrival = Arrival(
            seconds=None if takes is None else seconds(takes),
            failure=fails,
            joins_cluster=not never_registers,
            becomes_ready=not never_ready,
            startup_taint=startup_taint,
            taint_lasts=seconds(taint_lasts),
            allocatable=allocatable,
            zone=zone,
            instance_type=instance_type,
        )
        self._autoscaling.plan_launches(self.name, *[arrival] * (1000 if fails else 1))

    def warm(self, count: int = 1) -> None:
        """Fills its warm pool: this many stopped instances from which its next launches come."""
        for _ in range(count):
            self._autoscaling.warm(self.name)

    def gets_a_new_template(self, **data: Any) -> None:
        """The group's launch template has a new version, which the group launches from now on: `$Latest`."""
        whole = {**TEMPLATE, **data}
        self.aws.client("ec2").create_launch_template_version(LaunchTemplateName=self.name, LaunchTemplateData=whole)
        self.aws.calls.clear()

    def refreshes_its_instances(self, standby: str = "Wait") -> None:
        """Starts an instance refresh. `standby`: its preference StandbyInstances."""
        self._autoscaling.start_refresh(self.name, standby)

    def lets_members_live(self, lifetime: str | float) -> None:
        """Max instance lifetime: members that are in service now end after so long."""
        self._autoscaling.limit_lifetime(self.name, seconds(lifetime))

    def protect(self, node: Node) -> None:
        """A person protects a member from scale-in."""
        self.aws.client("autoscaling").set_instance_protection(
            AutoScalingGroupName=self.name, InstanceIds=[node.instance_id], ProtectedFromScaleIn=True
        )

    def grow(self, desired: int) -> None:
        """A person sets the desired capacity."""
        self.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=self.name, DesiredCapacity=desired)

    def suspend(self, *processes: str) -> None:
        """A person suspends processes such as Launch."""
        self.aws.client("autoscaling").suspend_processes(AutoScalingGroupName=self.name, ScalingProcesses=processes)

    def reserve_capacity(self, instances: int) -> None:
        """Limits its machines, as a reservation does: a launch beyond the limit fails until one has terminated."""
        self._autoscaling.reserve_capacity(self.name, instances)

    def terminate(self, node: Node) -> None:
        """A person terminates a member; the group replaces it."""
        self.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=node.instance_id, ShouldDecrementDesiredCapacity=False
        )


class Node:
    """An instance of a group with its Node object."""

    def __init__(self, group: Group, cluster: Kubernetes, instance_id: str, node: KubernetesNode, ready_at: float) -> None:
        self.group = group
        self._cluster = cluster
        self.instance_id = instance_id
        self.ready_at = ready_at
        """Virtual seconds since the scenario began at which it registered."""
        self.kubernetes = node
        """The handle with everything about the Node object."""

    def __repr__(self) -> str:
        return f"{self.kubernetes!r} ({self.instance_id})"

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.kubernetes.name

    @property
    def exists(self) -> bool:
        """Checks whether the Node object exists."""
        return self.kubernetes.exists

    @property
    def unschedulable(self) -> bool:
        """Checks whether it is cordoned."""
        return self.kubernetes.is_cordoned

    @property
    def annotations(self) -> dict[str, str]:
        """The Node's annotations."""
        return self.kubernetes.annotations

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels."""
        return self.kubernetes.labels

    @property
    def progress(self) -> dict[str, Any]:
        """The progress that recycle-eks writes on it; empty if there is none."""
        return json.loads(self.annotations.get("recycle-eks/progress", "{}"))

    @property
    def zone(self) -> str:
        """Its Availability Zone."""
        return self.labels["topology.kubernetes.io/zone"]

    def has_taint(self, key: str) -> bool:
        """Checks whether it has a taint of this key."""
        return any(taint["key"] == key for taint in self.kubernetes.taints)

    def is_named_in(self, parameters: Mapping[str, Any]) -> bool:
        """Checks whether the parameters of a call name it, its instance or its group, or a namespace of the group's name."""
        text = json.dumps(parameters, default=str)
        return any(word in text for word in (self.instance_id, self.name, f'"{self.group.name}"'))

    def pods_at_work(self) -> tuple[str, ...]:
        """Returns `namespace/name` of each pod that the end of the machine would kill, because it has not ended."""
        pods = self._cluster.look_at_pods(on=self.kubernetes.name)
        return tuple(name_of(pod) for pod in pods if not is_finished(pod))

    def falls_silent(self) -> None:
        """Its kubelet falls silent. The node controller marks the Node, and gives its pods five minutes."""
        self.kubernetes.stops_reporting()
        for effect in ("NoSchedule", "NoExecute"):
            self.kubernetes.add_taint(UNREACHABLE_TAINT, effect)

    def reports_again(self) -> None:
        """Its kubelet reports again."""
        self.kubernetes.remove_taints(UNREACHABLE_TAINT, "node.cloudprovider.kubernetes.io/shutdown")
        self.kubernetes.becomes_ready()

    def becomes_spot(self) -> None:
        """Its instance was launched as a Spot instance, as some members of a group with a mixed instances policy are."""
        with LOCK:
            self.group.machine(self.instance_id).spot_instance_request_id = "sir-12345678"

    def is_terminated_in_the_console(self) -> None:
        """A person terminates its instance, behind its group's back."""
        self.group.aws.client("ec2").terminate_instances(InstanceIds=[self.instance_id])

    def is_stopped_in_the_console(self) -> None:
        """A person stops its instance, behind its group's back."""
        self.group.aws.client("ec2").stop_instances(InstanceIds=[self.instance_id])

    def object_is_deleted(self) -> None:
        """A person runs `kubectl delete node`."""
        self._cluster.remove_node(self.name)

    @property
    def records(self) -> dict[str, str]:
        """The annotations of its Lease: the claim and the records that decide."""
        return self._cluster.lease_annotations(self.instance_id)

    def annotate(self, key: str, value: str | None) -> None:
        """A person annotates it."""
        self.kubernetes.annotate(**{key: value})

    def record(self, key: str, value: str | None, **labels: str) -> None:
        """A person annotates its Lease, which is created if there is none. The labels are those of a new Lease."""
        self._cluster.annotate_lease(self.instance_id, {key: value}, labels)

    def loses_its_lease(self) -> None:
        """A person deletes its Lease."""
        self._cluster.delete_lease(self.instance_id)

    def kubelet_writes(self, metadata: Mapping[str, Any]) -> None:
        """Its kubelet changes metadata of its own Node, as far as NodeRestriction lets it."""
        self._cluster.kubelet(self.name).patch(f"/api/v1/nodes/{self.name}", {"metadata": metadata})

    # The pods of the node. Further arguments: see `pod_template`.

    def job(self, name: str, **how: Any) -> Pod:
        """The pod of a Job, which runs until the scenario says that it `finishes`."""
        return self._cluster.job(name, on=self.kubernetes, **how).pods()[0]

    def finished_job(self, name: str, **how: Any) -> Pod:
        """The pod of a Job that is done."""
        pod = self.job(name, **how)
        self._cluster.settle()
        pod.finishes()
        return pod

    def bare_pod(self, name: str, **how: Any) -> Pod:
        """Creates a pod without a controller."""
        return self._cluster.bare_pod(name, self.kubernetes, **how)

    def mirror_pod(self, name: str, **how: Any) -> Pod:
        """Creates a mirror pod, as the API server shows a pod that the kubelet runs from a file."""
        return self._cluster.static_pod(name, self.kubernetes, **how)

    def deployment(self, name: str, replicas: int = 1, **how: Any) -> Workload:
        """A Deployment whose first pods are here."""
        return self._cluster.deployment(name, replicas, on=self.kubernetes, **how)

    def stateful_set(self, name: str, replicas: int = 1, **how: Any) -> Workload:
        """A StatefulSet whose first pods are here."""
        return self._cluster.stateful_set(name, replicas, on=self.kubernetes, **how)

    def daemon_set(self, name: str, **how: Any) -> Workload:
        """A DaemonSet: one pod here, and one on every other node."""
        return self._cluster.daemon_set(name, **how)
