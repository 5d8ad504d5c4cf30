"""Other tools that end pods and nodes, on the virtual clock.

- Descheduler, its plugin RemovePodsViolatingNodeTaints (kubernetes-sigs/descheduler, commit 02b1e8b, `node_taint.go`): it evicts
  each pod that does not tolerate a NoSchedule taint of its node, unless `excludedTaints` has the taint's key. Its default evictor
  leaves bare pods and those of DaemonSets and of nodes alone.
- aws-node-termination-handler in queue mode (aws/aws-node-termination-handler, commits 0492976 and 1ab824b,
  `pkg/monitor/sqsevent/asg-lifecycle-event.go`, `pkg/interruptionevent/draincordon/handler.go`): for each event of a termination
  hook that its EventBridge rule lets through, it drains the node like `kubectl drain --force`, then completes
  the hook of the event.
- EKS node repair (EKS user guide, "Detect node health issues and enable automatic node repair"): it replaces a node that is not
  Ready for 30 minutes.

The first two obey PodDisruptionBudgets, and try again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from botocore.exceptions import ClientError

from world.aws.account import Aws
from world.aws.events import Events
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.handles import Node
from world.kubernetes.kube_client import Json
from world.kubernetes.scheduling import untolerated_taints
from world.scenario.cluster_autoscaler import needs_its_node

LIFECYCLE_ACTION = "EC2 Instance-terminate Lifecycle Action"
#: Seconds between two looks of the Descheduler, which are configurable, and of the other two.
DESCHEDULER_INTERVAL = 300
INTERVAL = 60
#: Seconds after which a node that is not Ready is replaced.
REPAIR_AFTER = 1800


class Descheduler:
    """Evicts pods every five minutes from now on."""

    def __init__(self, kubernetes: Kubernetes, excluded_taints: Collection[str]) -> None:
        self._kubernetes = kubernetes
        self._excluded = excluded_taints
        self._look()

    def _look(self) -> None:
        for node in self._kubernetes.nodes():
            for pod in _pods_of_controllers(self._kubernetes, node):
                violated = untolerated_taints(node.object, pod["spec"], ("NoSchedule",))
                if any(taint["key"] not in self._excluded for taint in violated):
                    _evict(self._kubernetes, pod)
        self._kubernetes.clock.after(DESCHEDULER_INTERVAL, self._look)


class NodeRepair:
    """Replaces dead nodes from now on."""

    def __init__(self, aws: Aws, kubernetes: Kubernetes, on_replaced: Callable[[str], None]) -> None:
        """`on_replaced` is called with the id of each instance that it ends."""
        self._aws = aws
        self._kubernetes = kubernetes
        self._on_replaced = on_replaced
        self._dead_since: dict[str, float] = {}
        self.replaced: list[str] = []
        """The instances that it ended."""
        self._look()

    def _look(self) -> None:
        now = self._kubernetes.clock.elapsed()
        for node in self._kubernetes.nodes():
            instance = node.object["spec"]["providerID"].rpartition("/")[2]
            if node.is_ready:
                self._dead_since.pop(instance, None)
            elif now - self._dead_since.setdefault(instance, now) >= REPAIR_AFTER and instance not in self.replaced:
                self._replace(instance)
        self._kubernetes.clock.after(INTERVAL, self._look)

    def _replace(self, instance: str) -> None:
        """A call that AWS refuses is made again a minute later."""
        with contextlib.suppress(ClientError):
            self._aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=False
            )
            self.replaced.append(instance)
            self._on_replaced(instance)


class TerminationHandler:
    """Drains the nodes that termination hooks hold, from now on."""

    def __init__(self, aws: Aws, events: Events, kubernetes: Kubernetes, hooks: Collection[str] | None) -> None:
        """`hooks`: the values of `detail.LifecycleHookName` that its rule lets through; None: every hook, as in its README."""
        self._aws = aws
        self._events = events
        self._kubernetes = kubernetes
        self._hooks = hooks
        self._done: set[str] = set()
        self._look()

    def _look(self) -> None:
        for event in self._events.emitted:
            if event.detail_type == LIFECYCLE_ACTION and event.detail["LifecycleActionToken"] not in self._done:
                self._handle(event.detail)
        self._kubernetes.clock.after(INTERVAL, self._look)

    def _handle(self, action: Json) -> None:
        is_ours = self._hooks is None or action["LifecycleHookName"] in self._hooks
        if is_ours and not any(self._drain(node) for node in self._nodes_of(action["EC2InstanceId"])):
            names = ("AutoScalingGroupName", "LifecycleHookName", "LifecycleActionToken")
            self._aws.client("autoscaling").complete_lifecycle_action(
                **{name: action[name] for name in names}, InstanceId=action["EC2InstanceId"], LifecycleActionResult="CONTINUE"
            )
            self._done.add(action["LifecycleActionToken"])

    def _nodes_of(self, instance: str) -> list[Node]:
        return [node for node in self._kubernetes.nodes() if node.object["spec"]["providerID"].endswith(f"/{instance}")]

    def _drain(self, node: Node) -> bool:
        """Cordons a node, and evicts its pods; returns whether any is still there."""
        node.cordon()
        pods = list(_pods_that_a_drain_ends(self._kubernetes, node))
        for pod in pods:
            _evict(self._kubernetes, pod)
        return bool(pods)


def _pods_that_a_drain_ends(kubernetes: Kubernetes, node: Node) -> Iterator[Json]:
    return filter(needs_its_node, kubernetes.look_at_pods(on=node.name))


def _pods_of_controllers(kubernetes: Kubernetes, node: Node) -> Iterator[Json]:
    return (pod for pod in _pods_that_a_drain_ends(kubernetes, node) if pod["metadata"].get("ownerReferences"))


def _evict(kubernetes: Kubernetes, pod: Json) -> None:
    """Asks for an eviction, which a budget may refuse."""
    metadata = {key: pod["metadata"][key] for key in ("namespace", "name")}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    answer = kubernetes.call("POST", "/api/v1/namespaces/{namespace}/pods/{name}/eviction".format(**metadata), eviction)
    assert answer.status in (201, 429), answer
