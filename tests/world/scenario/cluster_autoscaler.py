"""The scale-down of Cluster Autoscaler, on the virtual clock (kubernetes/autoscaler, cluster-autoscaler 1.33).

- An unneeded node (here: one without pods but those of DaemonSets and mirrors; `core/scaledown/unneeded`) that has been
  unneeded for `scale-down-unneeded-time` gets the taint `ToBeDeletedByClusterAutoscaler` (`core/scaledown/actuation`) and is
  then removed. Not if it is annotated `cluster-autoscaler.kubernetes.io/scale-down-disabled: "true"`
  (`core/scaledown/eligibility`).
- An instance that has not registered as a Node for `max-node-provision-time` is removed (`core/static_autoscaler.go`,
  removeOldUnregisteredNodes).
- Removing is TerminateInstanceInAutoScalingGroup, always with decrement, and never below the group's minimum. The lifecycle
  state of a member does not matter: Cluster Autoscaler treats a node in Standby like any other
  (`cloudprovider/aws/auto_scaling_groups.go`).

Not supported: scale-up, moving pods off nodes that are little used, priorities.
"""

from __future__ import annotations

from collections.abc import Mapping

from world.aws.account import Aws
from world.kubernetes.cluster import Kubernetes
from world.scenario.groups import Group, Node

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
TAINT = "ToBeDeletedByClusterAutoscaler"
#: Members that are on their way out are none of its business.
LEAVING = ("Terminating", "Detaching", "Terminated")


class ClusterAutoscaler:
    """Checks the nodes every `scan` seconds. All times are virtual seconds."""

    def __init__(
        self,
        aws: Aws,
        kubernetes: Kubernetes,
        groups: Mapping[str, Group],
        scan: float,
        unneeded_time: float,
        provision_time: float,
    ) -> None:
        self._aws = aws
        self._kubernetes = kubernetes
        self._groups = groups
        self._clock = kubernetes.clock
        self._scan = scan
        self._unneeded_time = unneeded_time
        self._provision_time = provision_time
        self._unneeded_since: dict[str, float] = {}
        self._unregistered_since: dict[str, float] = {}
        self.removed: dict[str, str] = {}
        """The reason for each removal of an instance: `unneeded` or `unregistered`."""
        self._clock.after(scan, self._look)

    def _look(self) -> None:
        for group in [group for group in self._groups.values() if group.cluster == self._kubernetes.name]:
            for instance, state in group.states.items():
                if not state.startswith(LEAVING) and instance not in self.removed:
                    self._judge(group, instance, group.node_of(instance))
        self._clock.after(self._scan, self._look)

    def _judge(self, group: Group, instance: str, node: Node | None) -> None:
        now = self._clock.elapsed()
        if node is None or not node.exists:
            since = self._unregistered_since.setdefault(instance, now)
            if now - since >= self._provision_time and self._may_shrink(group):
                self._remove(instance, "unregistered")
            return
        self._unregistered_since.pop(instance, None)
        if not self._is_unneeded(node):
            self._unneeded_since.pop(instance, None)
            return
        since = self._unneeded_since.setdefault(instance, now)
        if now - since >= self._unneeded_time and self._may_shrink(group):
            node.kubernetes.add_taint(TAINT, value=str(int(now)))
            self._remove(instance, "unneeded")

    def _is_unneeded(self, node: Node) -> bool:
        pods = self._kubernetes.look_at_pods(on=node.kubernetes.name)
        return node.annotations.get(DISABLED) != "true" and not any(needs_its_node(pod) for pod in pods)

    @staticmethod
    def _may_shrink(group: Group) -> bool:
        minimum, desired, _ = group.sizes
        return desired > minimum

    def _remove(self, instance: str, why: str) -> None:
        self.removed[instance] = why
        self._aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )


def needs_its_node(pod: dict) -> bool:
    """Checks whether the pod keeps its node needed."""
    metadata = pod["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
    is_mirror = "kubernetes.io/config.mirror" in metadata.get("annotations", {})
    is_done = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not (is_mirror or is_done or "DaemonSet" in owners)
