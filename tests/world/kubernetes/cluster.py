"""The cluster as a scenario sees it: nodes, pods, workloads, budgets, and what happens to them at a virtual moment.

    cluster = Kubernetes(clock)
    cluster.start()
    old = cluster.add_node("ip-10-0-0-1", "aws:///eu-west-1a/i-0123456789abcdef0")
    web = cluster.deployment("web", replicas=3, on=old)
    pod = cluster.job("nightly", on=old).pods()[0]
    clock.before_jump.append(cluster.settle)
    clock.at(19 * 3600, pod.finishes)

How it runs and settles is in `running_cluster.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from world.kubernetes.handles import Budget, Node, Pod, Workload
from world.kubernetes.kube_client import MERGE_PATCH, Json, Refused
from world.kubernetes.manifests import (
    KUBELET,
    REPLICA_LABEL,
    Taint,
    claim_manifest,
    node_manifest,
    pod_template,
    selected_template,
    volume_manifest,
)
from world.kubernetes.running_cluster import LOOK_AGAIN, RunningCluster
from world.kubernetes.settled import SETTLE_LIMIT, NotSettled

Placement = Node | Sequence[Node] | None

LEASES = "/apis/coordination.k8s.io/v1/namespaces/recycle-eks/leases"


class Kubernetes(RunningCluster):
    """One cluster, and what a scenario lets be in it."""

    # -- nodes ---------------------------------------------------------------------------------------------------

    def add_node(
        self,
        name: str,
        provider_id: str,
        zone: str = "eu-west-1a",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        allocatable: Mapping[str, str] | None = None,
        ready: bool = True,
        startup_taints: Sequence[Taint] = (),
        startup_taints_go_after: float = 0.0,
        age: float = 0.0,
        kubelet: str = KUBELET,
    ) -> Node:
        """A node registers. `startup_taints` are removed that many virtual seconds later, as an agent does once it runs.
        `age`: virtual seconds that it has existed already. `allocatable` adds to 8 CPUs, 32 GiB and 58 pods."""
        # One request for everything. Otherwise the node controller may see a node that has not reported Ready yet. If it is the
        # only node, the controller assumes a failure of its own. If the next node is the first of another zone, the controller
        # then never again evicts from the first one's zone (handleDisruption in pkg/controller/nodelifecycle).
        all_taints = [*taints, *startup_taints]
        manifest = node_manifest(name, provider_id, zone, labels or {}, all_taints, allocatable or {}, ready, kubelet)
        node = Node(self, name, self._admin().create("/api/v1/nodes", manifest)["metadata"]["uid"])
        if startup_taints:
            keys = [taint["key"] for taint in startup_taints]
            self.clock.after(startup_taints_go_after, lambda: node.remove_taints(*keys))
        if age:
            self.state.catch_up()
            self.times.pretend_created(node.uid, self.clock.now() - age)
        return node

    def node(self, name: str) -> Node:
        """Returns a node by name."""
        thing = self.look("nodes", name)
        if thing is None:
            raise LookupError(f"there is no node {name}")
        return Node(self, name, thing["metadata"]["uid"])

    def nodes(self) -> list[Node]:
        """All nodes, by name."""
        self.state.catch_up()
        return [Node(self, each["metadata"]["name"], each["metadata"]["uid"]) for each in self.state.all("nodes")]

    def leases(self) -> dict[str, dict[str, str]]:
        """The annotations of each Lease of recycle-eks, by the name of the Lease: the instance."""
        items = self.must("GET", LEASES)["items"]
        return {each["metadata"]["name"]: each["metadata"].get("annotations") or {} for each in items}

    def lease_annotations(self, instance: str) -> dict[str, str]:
        """The annotations of the Lease of an instance; none if there is no Lease."""
        return self.leases().get(instance, {})

    def annotate_lease(self, instance: str, annotations: Mapping[str, str | None], labels: Mapping[str, str]) -> None:
        """Annotates the Lease of an instance, which is created if there is none."""
        metadata = {"name": instance, "annotations": dict(annotations)}
        given = {key: value for key, value in annotations.items() if value is not None}
        if instance in self.leases():
            self.must("PATCH", f"{LEASES}/{instance}", {"metadata": metadata}, MERGE_PATCH)
        elif given:
            metadata |= {"annotations": given, "labels": dict(labels)}
            self.must("POST", LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})

    def delete_lease(self, instance: str) -> None:
        """Deletes the Lease of an instance."""
        self.must("DELETE", f"{LEASES}/{instance}")

    def remove_node(self, name: str) -> None:
        """The Node object is deleted, as the cloud controller does when the instance is gone; nothing happens if there is none.
        Its pods stay listed for another virtual minute."""
        self._admin().delete(f"/api/v1/nodes/{name}")

    # -- pods and workloads --------------------------------------------------------------------------------------

    def bare_pod(self, name: str, on: Node, namespace: str = "default", **how: Any) -> Pod:
        """Creates a pod without an owner, which no controller starts again. `how`: see `pod_template`."""
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod_template(**how)}
        return self._create_pod(manifest, name, on, namespace)

    def static_pod(self, name: str, on: Node, namespace: str = "kube-system", **how: Any) -> Pod:
        """Creates a mirror pod, as for a pod that the kubelet runs from a file. It is created again when deleted."""
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod_template(**how)}
        metadata = manifest["metadata"]
        metadata["annotations"]["kubernetes.io/config.mirror"] = "mirror"
        metadata["annotations"]["kubernetes.io/config.source"] = "file"
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": on.name, "uid": on.uid, "controller": True}]
        manifest["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoExecute"}]
        pod = self._create_pod(manifest, f"{name}-{on.name}", on, namespace)
        self._kubelet.keep_running(manifest)
        return pod

    def deployment(self, name: str, replicas: int = 1, on: Placement = None, namespace: str = "default", **how: Any) -> Workload:
        """Creates a Deployment. Its first pods run on the given node (or alternate between several), or where the scheduler puts
        them."""
        spec = {"replicas": replicas, **selected_template(name, how)}
        return self._create_workload("apps/v1", "Deployment", "deployments", name, namespace, spec, replicas, on)

    def stateful_set(
        self, name: str, replicas: int = 1, on: Placement = None, namespace: str = "default", **how: Any
    ) -> Workload:
        """A StatefulSet; its first pods on the given node or nodes."""
        spec = {"replicas": replicas, "serviceName": name, **selected_template(name, how)}
        return self._create_workload("apps/v1", "StatefulSet", "statefulsets", name, namespace, spec, replicas, on)

    def daemon_set(self, name: str, namespace: str = "kube-system", **how: Any) -> Workload:
        """A DaemonSet: one pod on every node whose taints it tolerates."""
        spec = selected_template(name, how)
        return self._create_workload("apps/v1", "DaemonSet", "daemonsets", name, namespace, spec, 0, None)

    def job(self, name: str, on: Placement = None, namespace: str = "default", backoff_limit: int = 6, **how: Any) -> Workload:
        """A Job with one pod, which ends when the scenario says so (`pod.finishes`, `pod.fails`)."""
        template = pod_template(**{"restart_policy": "Never", **how})
        template["metadata"]["labels"][REPLICA_LABEL] = name
        spec = {"backoffLimit": backoff_limit, "template": template}
        return self._create_workload("batch/v1", "Job", "jobs", name, namespace, spec, 1, on)

    def budget(
        self,
        name: str,
        selects: Workload | Mapping[str, str],
        min_available: int | str | None = None,
        max_unavailable: int | str | None = None,
        namespace: str | None = None,
        unhealthy_pods: str | None = None,
    ) -> Budget:
        """A PodDisruptionBudget over a workload's pods or over labels. `unhealthy_pods`: AlwaysAllow or IfHealthyBudget."""
        if isinstance(selects, Workload):
            labels: Mapping[str, str] = {REPLICA_LABEL: selects.name}
            namespace = namespace or selects.namespace
        else:
            labels = selects
        spec: Json = {"selector": {"matchLabels": dict(labels)}}
        if min_available is not None:
            spec["minAvailable"] = min_available
        if max_unavailable is not None:
            spec["maxUnavailable"] = max_unavailable
        if unhealthy_pods:
            spec["unhealthyPodEvictionPolicy"] = unhealthy_pods
        namespace = namespace or "default"
        self._ensure_namespace(namespace)
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        manifest = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": spec,
        }
        self._admin().create(path, manifest)
        return Budget(self, name, namespace)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """Returns a pod by name."""
        thing = self.look("pods", name, namespace)
        if thing is None:
            raise LookupError(f"there is no pod {namespace}/{name}")
        return Pod(self, thing)

    def pods(self, on: Node | None = None, namespace: str | None = None) -> list[Pod]:
        """The pods there are, by namespace and name."""
        return [Pod(self, thing) for thing in self.look_at_pods(on and on.name, namespace)]

    def _create_pod(self, manifest: Json, name: str, on: Node, namespace: str) -> Pod:
        self._ensure_namespace(namespace)
        manifest["metadata"] |= {"name": name, "namespace": namespace}
        manifest["spec"]["nodeName"] = on.name
        return Pod(self, self._admin().create(f"/api/v1/namespaces/{namespace}/pods", manifest))

    def _create_workload(
        self,
        version: str,
        kind: str,
        resource: str,
        name: str,
        namespace: str,
        spec: Json,
        pods: int,
        on: Placement,
    ) -> Workload:
        self._ensure_namespace(namespace)
        path = f"/apis/{version}/namespaces/{namespace}/{resource}"
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._admin().create(path, manifest)
        workload = Workload(self, name, namespace, f"{path}/{name}", resource)
        if on is not None:
            self._place(workload, pods, [on] if isinstance(on, Node) else list(on))
        return workload

    def _place(self, workload: Workload, count: int, nodes: list[Node]) -> None:
        """Binds the pods of a new workload to nodes while the scheduler is frozen."""
        deadline = time.monotonic() + SETTLE_LIMIT
        placed = 0
        self.control_plane.thaw("kube-controller-manager")
        try:
            while placed < count:
                revision = self.state.followed_revision
                self.state.catch_up()
                waiting = [pod for pod in self.state.unplaced_pods() if workload.owns(pod)]
                for pod in waiting:
                    self._bind(Pod(self, pod), nodes[placed % len(nodes)])
                    placed += 1
                self._let_kubelets_act()
                if not waiting:
                    if time.monotonic() > deadline:
                        raise NotSettled(f"{workload} made {placed} of its {count} pods")
                    self.state.wait_for_change(revision, LOOK_AGAIN)
        finally:
            self.control_plane.freeze("kube-controller-manager")

    def _bind(self, pod: Pod, node: Node) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
        }
        path = f"{pod.path}/binding"
        answer = self._admin().call("POST", path, binding)
        # On a busy machine the pod was once already on this node, which is not an error.
        if answer.status >= 300 and self._admin().get(pod.path)["spec"].get("nodeName") != node.name:
            raise Refused("POST", path, answer)

    # -- volumes -------------------------------------------------------------------------------------------------

    def zonal_volume(self, name: str, zone: str, namespace: str = "default") -> str:
        """A bound claim on a volume that exists in one zone only; its name, for `volume_claims` of a pod."""
        return self._bound_claim(name, namespace, {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]})

    def local_volume(self, name: str, on: Node, namespace: str = "default") -> str:
        """A bound claim on a disk of this node; its name."""
        return self._bound_claim(name, namespace, {"key": "kubernetes.io/hostname", "operator": "In", "values": [on.name]})

    def unbound_claim(self, name: str, namespace: str = "default") -> str:
        """Creates a claim that waits for its first consumer, and stays pending, because the world provisions no volumes. Returns
        its name."""
        self._ensure_namespace(namespace)
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._admin().create(claims, claim_manifest(name, storageClassName="gp3"))
        return name

    def _bound_claim(self, name: str, namespace: str, needs: Json) -> str:
        self._ensure_namespace(namespace)
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        claim = claim_manifest(name, storageClassName="", volumeName=f"{namespace}-{name}")
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        created = self._admin().create(claims, claim)
        volume = volume_manifest(f"{namespace}-{name}", created, needs)
        self._admin().create("/api/v1/persistentvolumes", volume)
        bound = {"status": {"phase": "Bound"}}
        self._admin().patch(f"/api/v1/persistentvolumes/{namespace}-{name}/status", bound)
        self._admin().patch(f"{claims}/{name}/status", bound)
        return name
