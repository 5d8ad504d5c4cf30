"""The cluster as a scenario sees it: nodes, pods, workloads, budgets, and what happens to them at a virtual moment.

    cluster = Kubernetes(clock)
    cluster.start()
    old = cluster.add_node("ip-10-0-0-1", "aws:///eu-west-1a/i-0123456789abcdef0")
    web = cluster.deployment("web", replicas=3, on=old)
    pod = cluster.job("nightly", on=old).pods()[0]
    clock.before_jump.append(cluster.settle)
    clock.at(19 * 3600, pod.finishes)

The control plane is real and lives in real time; the scenario lives in virtual time. What ties them together is `settle`: it
lets controllers and scheduler run until they have nothing left to do, while virtual time stands still, and freezes them
again. So between two settlings the cluster changes only by what somebody asks of it, and the same scenario gives the same
answers each time. Call it before the clock jumps, and before a function under test is started.

One control plane serves many scenarios; `reset` empties it in between.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from world.base.clock import Clock
from world.base.faults import Plan
from world.kubernetes import canaries, kube_binaries, settled
from world.kubernetes.access_entries import AccessEntries, AccessEntry
from world.kubernetes.cluster_state import ClusterState
from world.kubernetes.control_plane import FROZEN_BETWEEN_SETTLES, ControlPlane
from world.kubernetes.kube_client import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Answer,
    Json,
    KubeClient,
    Refused,
)
from world.kubernetes.kube_proxy import KubeProxy, KubernetesCall
from world.kubernetes.kubelet import EXITS_AFTER, IGNORES_SIGTERM, STARTS_AFTER, STUCK, Kubelet, status_of_volumes
from world.kubernetes.sts import Sts, StsProxy
from world.kubernetes.virtual_times import VirtualTimes
from world.process.folders import temporary_folder

SETTLE_LIMIT = 60.0
"""Real seconds that the cluster may take to settle; 0.05-0.15 are usual, 2-3 where the controllers have only just been started,
and more where several sessions share two cores."""

_LOOK_AGAIN = 0.05
"""Real seconds after which `settle` looks again even if nothing changed: some controllers act on a timer."""

_QUIET_LOOKS = 6
"""So many looks in a row, each `_LOOK_AGAIN` after the last, at which nothing had changed and nobody was at work: then a pod
whose placement rules we do not know counts as not placeable. (Seconds alone would be too few on a busy machine.)"""

_ERASED_ON_RESET = [
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "replicasets",
    "controllerrevisions",
    "poddisruptionbudgets",
    "pods",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "events",
]

_MANAGER = "world"
_REPLICA_LABEL = "world/workload"
"""By which a workload knows its pods: a key that no scenario uses for its own labels."""

Taint = Mapping[str, str]
"""`key`, `effect`, and perhaps `value`."""


#: What a node's kubelet says that is of the control plane's own version.
KUBELET = "v1.35.4-eks-0000000"


class NotSettled(AssertionError):
    """The cluster did not come to rest; the text says what was still going on."""


class Kubernetes:
    """One cluster with its authentication, its fault proxy, and its people."""

    def __init__(self, clock: Clock, cluster: str = "world", plan: Plan | None = None) -> None:
        """`cluster`: the EKS cluster's name, which tokens are bound to. `plan`: the scenario's faults."""
        self.name = cluster
        self.clock = clock
        self._plan = plan or Plan()
        self.times = VirtualTimes(clock.now)
        self.sts = Sts()
        self.proxy: KubeProxy
        self.control_plane: ControlPlane
        self.client: KubeClient
        """The administrator's, straight to the API server."""
        self.state: ClusterState
        self._settledness: settled.Settledness
        self._kubelet: Kubelet
        self._entries: AccessEntries
        self._settled_at = self._empty_at = -1
        self._resets = 0
        self._touched = threading.Event()
        self._undo = contextlib.ExitStack()

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts everything (2-3 real seconds). Call it from the thread that will also call `stop`."""
        with contextlib.ExitStack() as undo:
            self._start(undo)
            self._undo = undo.pop_all()

    def _start(self, undo: contextlib.ExitStack) -> None:
        """Leaves in `undo` how to stop what was started."""
        folder = temporary_folder("sts")
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        sts_proxy = StsProxy(self.sts, folder)
        sts_proxy.start()
        undo.callback(sts_proxy.stop)
        plane = ControlPlane(kube_binaries.find(), self.name, sts_proxy.url, sts_proxy.authority_file)
        plane.start()
        self.control_plane = plane
        self.client = plane.client()
        self.state = ClusterState(plane.etcd_port, lambda kind, thing: self.times.observe(thing))
        self._settledness = settled.Settledness(self.state)
        undo.callback(self.state.stop)
        # After this, as the watch ends with etcd.
        undo.callback(plane.stop)
        self.state.start()
        self._kubelet = Kubelet(self.clock, self.state, self.times, self.client, self._touched.set)
        undo.callback(self._kubelet.stop)
        self._entries = AccessEntries(plane.access_entries_file, self.name, self.sts, plane.authenticator_client())
        self.proxy = KubeProxy(
            plane.api_port,
            plane.authority.file,
            plane.serving,
            self.times,
            self.clock.elapsed,
            self.sts.identity,
            self._touched.set,
        )
        self.proxy.plan = self._plan
        self.proxy.start()
        undo.callback(self.proxy.stop)
        self._ensure_namespace(canaries.NAMESPACE)
        self.reset()

    def stop(self) -> None:
        """Stops everything and leaves nothing behind."""
        self._undo.close()

    def reset(self) -> None:
        """Empties the cluster for a new scenario. Namespaces and roles stay, access entries too. The clock should have been
        reset before, as whatever the cluster does from here on is dated by it."""
        self.proxy.forget()
        self.sts.fault = None
        self.sts.answers.clear()
        self._empty()
        self._kubelet.forget_everything()
        self.times.forget_everything()

    def _empty(self) -> None:
        self.state.catch_up()
        if not self._touched.is_set() and self.state.followed_revision == self._empty_at:
            return
        self.state.erase(_ERASED_ON_RESET)
        self._resets += 1
        canaries.create(self._admin(), self._resets)
        self.settle()
        # Whatever the controllers had sent before they froze: an event of the last scenario is nothing that `settle` waits for.
        self._await_idleness()
        self.state.erase(_ERASED_ON_RESET)
        self.state.catch_up()
        self._settled_at = self._empty_at = self.state.followed_revision

    def settle(self) -> None:
        """Returns when nothing in the cluster is going to change by itself any more at this moment of virtual time. Costs
        microseconds when nothing was changed since the last time; raises NotSettled after SETTLE_LIMIT real seconds."""
        if not self._touched.is_set() and self.state.followed_revision == self._settled_at:
            return
        self._touched.clear()
        self._let_kubelets_act()
        deadline = time.monotonic() + SETTLE_LIMIT
        business = ["nobody looked"]
        while business:
            self.control_plane.thaw(*FROZEN_BETWEEN_SETTLES)
            try:
                self._wait_until_idle(deadline)
            finally:
                self.control_plane.freeze(*FROZEN_BETWEEN_SETTLES)
            # What a controller had sent before it froze may have taken effect after our look.
            self._let_kubelets_act()
            business = self._settledness.unfinished_business()
        self._settled_at = self.state.followed_revision

    def _wait_until_idle(self, deadline: float) -> None:
        quiet_looks = 0
        while True:
            revision = self.state.followed_revision
            business = self._settledness.unfinished_business()
            if not business and (quiet_looks >= _QUIET_LOOKS or not settled.has_unpredictable_pods(self.state)):
                return
            self.control_plane.check_alive()
            if time.monotonic() > deadline:
                raise NotSettled(f"after {SETTLE_LIMIT:.0f} s: " + "; ".join(business or ["pods come and go"]))
            self.state.wait_for_change(revision, _LOOK_AGAIN)
            is_quiet = self.state.followed_revision == revision and not self.control_plane.is_at_work()
            quiet_looks = quiet_looks + 1 if is_quiet else 0
            self._let_kubelets_act()

    def _await_idleness(self) -> None:
        deadline = time.monotonic() + SETTLE_LIMIT
        while self.control_plane.is_at_work():
            if time.monotonic() > deadline:
                raise NotSettled(f"after {SETTLE_LIMIT:.0f} s the API server is still at work")
            time.sleep(0.005)

    def _let_kubelets_act(self) -> None:
        self.state.catch_up()
        while self._kubelet.act():
            self.state.catch_up()

    # -- how to reach it -----------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """What DescribeCluster says: the fault proxy in front of the API server."""
        return f"https://127.0.0.1:{self.proxy.port}"

    @property
    def certificate_authority_data(self) -> str:
        """What DescribeCluster says: base64 of the authority's PEM."""
        return base64.b64encode(self.control_plane.authority.pem).decode()

    @property
    def kubeconfig(self) -> str:
        """Path of an administrator's kubeconfig, straight to the API server (times are real there)."""
        return self.control_plane.kubeconfig

    @property
    def calls(self) -> list[KubernetesCall]:
        """Every call that came through the proxy since the last reset."""
        return self.proxy.calls

    def set_access_entries(self, entries: Iterable[AccessEntry]) -> None:
        """Replaces all access entries: (ARN of a role or user, Kubernetes user name, groups). In force on return."""
        self._entries.set(entries)

    def volumes_hang_on(self, node_uid: str) -> None:
        """From now on no volume is detached from this node."""
        self._kubelet.keep_volumes(node_uid)

    def volumes_detach_from(self, node: Node) -> None:
        """The end of `volumes_hang_on`."""
        self._kubelet.release_volumes(node.name, node.uid)
        self._touched.set()

    def apply(self, manifest: str) -> None:
        """Server-side apply of YAML documents. Rights given by it are in force on return."""
        documents = [document for document in yaml.safe_load_all(manifest) if document]
        for document in documents:
            path = f"{self._path_of(document)}?fieldManager={_MANAGER}&force=true"
            self._admin().patch(path, document, APPLY_PATCH)
        self._await_rights(documents)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        """Any request of an administrator, whose answer may be a refusal."""
        return self._admin().call(method, path, body, content_type)

    def must(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        """Any request of an administrator: what no method here has a name for."""
        return self._admin().must(method, path, body, content_type)

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
        all_taints = [dict(taint) for taint in (*taints, *startup_taints)]
        region = zone[:-1]
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "58", **(allocatable or {})}
        # One request for everything, or the node controller may come to look while a node has not said yet that it is Ready. If
        # no other node is there, it takes that for a failure of its own, and if the next node is the first of another zone, it
        # never again evicts from the first one's zone (handleDisruption in pkg/controller/nodelifecycle).
        created = self._admin().create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/arch": "amd64",
                        # The node controller adds these where they are missing.
                        "beta.kubernetes.io/os": "linux",
                        "beta.kubernetes.io/arch": "amd64",
                        "node.kubernetes.io/instance-type": "m7i.2xlarge",
                        "topology.kubernetes.io/region": region,
                        "topology.kubernetes.io/zone": zone,
                        **(labels or {}),
                    },
                },
                "spec": {"providerID": provider_id, "taints": all_taints},
                "status": {
                    "capacity": capacity,
                    "allocatable": capacity,
                    "addresses": [
                        {"type": "InternalIP", "address": "10.0.0.1"},
                        {"type": "InternalDNS", "address": name},
                        {"type": "Hostname", "address": name},
                    ],
                    "nodeInfo": {**_NODE_INFO, "kubeletVersion": kubelet},
                    "conditions": [_ready_condition(*(_READY if ready else _NOT_READY))],
                },
            },
        )
        node = Node(self, name, created["metadata"]["uid"])
        if startup_taints:
            keys = [taint["key"] for taint in startup_taints]
            self.clock.after(startup_taints_go_after, lambda: node.remove_taints(*keys))
        if age:
            self.state.catch_up()
            self.times.pretend_created(node.uid, self.clock.now() - age)
        return node

    def node(self, name: str) -> Node:
        """A node by name, whoever registered it."""
        thing = self.look("nodes", name)
        if thing is None:
            raise LookupError(f"there is no node {name}")
        return Node(self, name, thing["metadata"]["uid"])

    def nodes(self) -> list[Node]:
        """All nodes, by name."""
        self.state.catch_up()
        return [Node(self, each["metadata"]["name"], each["metadata"]["uid"]) for each in self.state.all("nodes")]

    def remove_node(self, name: str) -> None:
        """The Node object is deleted, as the cloud controller does when the instance is gone; nothing happens if there is none.
        Its pods stay listed for another virtual minute."""
        self._admin().delete(f"/api/v1/nodes/{name}")

    # -- pods and workloads --------------------------------------------------------------------------------------

    def bare_pod(self, name: str, on: Node, namespace: str = "default", **how: Any) -> Pod:
        """A pod without an owner, which nobody starts again. `how`: see `pod_template`."""
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod_template(**how)}
        return self._create_pod(manifest, name, on, namespace)

    def static_pod(self, name: str, on: Node, namespace: str = "kube-system", **how: Any) -> Pod:
        """A mirror pod: what the API server shows of a pod that the kubelet runs from a file. Made again when deleted."""
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
        """A Deployment; its first pods on the given node (or in turn on several), wherever the scheduler likes without."""
        spec = {"replicas": replicas, **_selected_template(name, how)}
        return self._create_workload("apps/v1", "Deployment", "deployments", name, namespace, spec, replicas, on)

    def stateful_set(
        self, name: str, replicas: int = 1, on: Placement = None, namespace: str = "default", **how: Any
    ) -> Workload:
        """A StatefulSet; its first pods on the given node or nodes."""
        spec = {"replicas": replicas, "serviceName": name, **_selected_template(name, how)}
        return self._create_workload("apps/v1", "StatefulSet", "statefulsets", name, namespace, spec, replicas, on)

    def daemon_set(self, name: str, namespace: str = "kube-system", **how: Any) -> Workload:
        """A DaemonSet: one pod on every node whose taints it tolerates."""
        spec = _selected_template(name, how)
        return self._create_workload("apps/v1", "DaemonSet", "daemonsets", name, namespace, spec, 0, None)

    def job(self, name: str, on: Placement = None, namespace: str = "default", backoff_limit: int = 6, **how: Any) -> Workload:
        """A Job with one pod, which ends when the scenario says so (`pod.finishes`, `pod.fails`)."""
        template = pod_template(**{"restart_policy": "Never", **how})
        template["metadata"]["labels"][_REPLICA_LABEL] = name
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
            labels: Mapping[str, str] = {_REPLICA_LABEL: selects.name}
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

    def zonal_volume(self, name: str, zone: str, namespace: str = "default") -> str:
        """A bound claim on a volume that exists in one zone only; its name, for `volume_claims` of a pod."""
        return self._bound_claim(name, namespace, {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]})

    def local_volume(self, name: str, on: Node, namespace: str = "default") -> str:
        """A bound claim on a disk of this node; its name."""
        return self._bound_claim(name, namespace, {"key": "kubernetes.io/hostname", "operator": "In", "values": [on.name]})

    def unbound_claim(self, name: str, namespace: str = "default") -> str:
        """A claim that waits for its first consumer to be placed, and longer, as nobody provisions volumes here; its name."""
        self._ensure_namespace(namespace)
        self._admin().create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", _claim(name, storageClassName="gp3"))
        return name

    def _bound_claim(self, name: str, namespace: str, needs: Json) -> str:
        self._ensure_namespace(namespace)
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        claim = _claim(name, storageClassName="", volumeName=f"{namespace}-{name}")
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        created = self._admin().create(claims, claim)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{name}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{namespace}-{name}"},
                "claimRef": {"namespace": namespace, "name": name, "uid": created["metadata"]["uid"]},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [needs]}]}},
            },
        }
        self._admin().create("/api/v1/persistentvolumes", volume)
        bound = {"status": {"phase": "Bound"}}
        self._admin().patch(f"/api/v1/persistentvolumes/{namespace}-{name}/status", bound)
        self._admin().patch(f"{claims}/{name}/status", bound)
        return name

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """A pod by name, whoever made it."""
        thing = self.look("pods", name, namespace)
        if thing is None:
            raise LookupError(f"there is no pod {namespace}/{name}")
        return Pod(self, thing)

    def pods(self, on: Node | None = None, namespace: str | None = None) -> list[Pod]:
        """The pods there are, by namespace and name."""
        return [Pod(self, thing) for thing in self.look_at_pods(on, namespace)]

    def events(self, about: str | None = None) -> list[Json]:
        """The Events about an object (a node's are about its name), or all, as their writers left them, oldest first."""
        listed = self.client.get("/api/v1/events")["items"]
        of_interest = [event for event in listed if about in (None, event["involvedObject"].get("name"))]
        return sorted(of_interest, key=lambda event: int(event["metadata"]["resourceVersion"]))

    # -- for the handles below -----------------------------------------------------------------------------------

    def look(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """An object as it is right now, with the API server's own times."""
        self.state.catch_up()
        return self.state.get(kind, name, namespace)

    def look_at_pods(
        self, on: Node | None = None, namespace: str | None = None, label: tuple[str, str] | None = None
    ) -> list[Json]:
        """The pods of a node, of a namespace, with a label, as they are right now."""
        self.state.catch_up()
        return [
            thing
            for thing in (self.state.all("pods") if on is None else self.state.pods_on(on.name))
            if (namespace is None or thing["metadata"]["namespace"] == namespace)
            and (label is None or (thing["metadata"].get("labels") or {}).get(label[0]) == label[1])
        ]

    def end_pod(self, pod: Json, phase: str, exit_code: int) -> None:
        """A pod's containers end."""
        self._kubelet.end(pod, phase, exit_code)
        self._touched.set()

    def _admin(self) -> KubeClient:
        """The administrator's client, for a change after which the cluster has to settle."""
        self._touched.set()
        return self.client

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
        """Binds a new workload's pods to nodes, before the scheduler has a say: it stays frozen meanwhile."""
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
                    self.state.wait_for_change(revision, _LOOK_AGAIN)
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
        # Seen once, on a busy machine: the pod was on this very node already. What counts is where it is.
        if answer.status >= 300 and self._admin().get(pod.path)["spec"].get("nodeName") != node.name:
            raise Refused("POST", path, answer)

    def _ensure_namespace(self, name: str) -> None:
        self.state.catch_up()
        if self.state.get("namespaces", name) is None:
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._admin().create("/api/v1/namespaces", manifest)
        if self.state.get("serviceaccounts", "default", name) is None:
            self.settle()

    def _path_of(self, document: Json) -> str:
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in self.client.get(root)["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                namespace = f"/namespaces/{document['metadata'].get('namespace', 'default')}"
                return f"{root}{namespace if resource['namespaced'] else ''}/{resource['name']}/{document['metadata']['name']}"
        raise LookupError(f"the API server knows no {kind} in {version}")

    def _await_rights(self, documents: list[Json]) -> None:
        """The API server's authorizer learns of roles and bindings a few milliseconds later than it stores them."""
        rules = {each["metadata"]["name"]: each.get("rules") or [] for each in documents if each["kind"] == "ClusterRole"}
        for binding in (each for each in documents if each["kind"] == "ClusterRoleBinding"):
            for subject in binding.get("subjects") or ():
                for rule in rules.get(binding["roleRef"]["name"], []):
                    if subject["kind"] == "Group" and rule.get("resources"):
                        self._await_right(subject["name"], rule)

    def _await_right(self, group: str, rule: Json) -> None:
        resource, _, subresource = rule["resources"][-1].partition("/")
        attributes = {
            "group": rule["apiGroups"][-1],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][-1],
            "name": (rule.get("resourceNames") or [""])[-1],
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "world", "groups": [group], "resourceAttributes": attributes},
        }
        deadline = time.monotonic() + SETTLE_LIMIT
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        while not self.client.create(path, review)["status"]["allowed"]:
            if time.monotonic() > deadline:
                raise NotSettled(f"the group {group} may not {attributes}")
            time.sleep(0.005)


# -- handles -----------------------------------------------------------------------------------------------------------


class Node:
    """A handle on one Node object; what it says is as of the moment it is asked."""

    def __init__(self, kubernetes: Kubernetes, name: str, uid: str) -> None:
        self._kubernetes = kubernetes
        self.name = name
        self.uid = uid

    def __repr__(self) -> str:
        return f"node {self.name}"

    @property
    def object(self) -> Json:
        """The Node itself."""
        thing = self._kubernetes.look("nodes", self.name)
        if thing is None:
            raise LookupError(f"there is no node {self.name} any more")
        return thing

    @property
    def exists(self) -> bool:
        """Whether this very Node object is still there."""
        thing = self._kubernetes.look("nodes", self.name)
        return thing is not None and thing["metadata"]["uid"] == self.uid

    @property
    def is_ready(self) -> bool:
        """Whether it says it is Ready."""
        return settled.is_ready(self.object)

    @property
    def is_cordoned(self) -> bool:
        """Whether it is unschedulable."""
        return bool(self.object["spec"].get("unschedulable"))

    @property
    def taints(self) -> list[Json]:
        """All taints, the controllers' too."""
        return self.object["spec"].get("taints") or []

    @property
    def annotations(self) -> dict[str, str]:
        """All annotations."""
        return self.object["metadata"].get("annotations") or {}

    @property
    def labels(self) -> dict[str, str]:
        """All labels."""
        return self.object["metadata"].get("labels") or {}

    def pods(self) -> list[Pod]:
        """The pods on it."""
        return self._kubernetes.pods(on=self)

    def becomes_ready(self) -> None:
        """The kubelet reports that all is well."""
        self.report({"conditions": [_ready_condition(*_READY)]})

    def becomes_unready(self) -> None:
        """The kubelet reports that something is missing, as it does before the network plugin runs."""
        self.report({"conditions": [_ready_condition(*_NOT_READY)]})

    def stops_reporting(self) -> None:
        """The kubelet has not been heard of: the machine hangs, or is gone."""
        self.report({"conditions": [_ready_condition(*_SILENT)]})

    def cordon(self) -> None:
        """A person runs `kubectl cordon`."""
        self.patch({"spec": {"unschedulable": True}})

    def uncordon(self) -> None:
        """A person runs `kubectl uncordon`."""
        self.patch({"spec": {"unschedulable": None}})

    def add_taint(self, key: str, effect: str = "NoSchedule", value: str | None = None) -> None:
        """Somebody taints it, keeping all other taints."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        kept = [each for each in self.taints if (each["key"], each["effect"]) != (key, effect)]
        self.patch({"spec": {"taints": [*kept, taint]}})

    def remove_taints(self, *keys: str) -> None:
        """Somebody takes taints away; nothing happens if there are none, or no node."""
        if self.exists and any(each["key"] in keys for each in self.taints):
            self.patch({"spec": {"taints": [each for each in self.taints if each["key"] not in keys]}})

    def annotate(self, **annotations: str | None) -> None:
        """Sets annotations; None removes one. (Names with a slash: `annotate(**{"a/b": "c"})`.)"""
        self.patch({"metadata": {"annotations": annotations}})

    def label(self, **labels: str | None) -> None:
        """Sets labels; None removes one."""
        self.patch({"metadata": {"labels": labels}})

    def set_volumes(self, *handles: str) -> None:
        """The volumes that are attached to it and in use, replacing what was said before."""
        self.report(status_of_volumes(handles))

    def volumes_hang(self) -> None:
        """From now on no volume is detached from it."""
        self._kubernetes.volumes_hang_on(self.uid)

    def volumes_detach(self) -> None:
        """Volumes are detached from it again as soon as no pod uses them."""
        self._kubernetes.volumes_detach_from(self)

    def patch(self, change: Json) -> None:
        """Any merge patch."""
        self._kubernetes.must("PATCH", f"/api/v1/nodes/{self.name}", change, MERGE_PATCH)

    def report(self, status: Json) -> None:
        """Any merge patch of its status, as its kubelet reports."""
        path = f"/api/v1/nodes/{self.name}/status"
        self._kubernetes.must("PATCH", path, {"status": status}, STRATEGIC_MERGE_PATCH)


_READY = ("True", "KubeletReady", "kubelet is posting ready status")
_NOT_READY = ("False", "KubeletNotReady", "container runtime network not ready")
_SILENT = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def _ready_condition(status: str, reason: str, message: str) -> Json:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }


class Pod:
    """A handle on one pod (by uid: a namesake that comes later is another pod)."""

    def __init__(self, kubernetes: Kubernetes, thing: Json) -> None:
        self._kubernetes = kubernetes
        self.name: str = thing["metadata"]["name"]
        self.namespace: str = thing["metadata"]["namespace"]
        self.uid: str = thing["metadata"]["uid"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def __repr__(self) -> str:
        return f"pod {self.namespace}/{self.name}"

    @property
    def object(self) -> Json:
        """The pod itself."""
        thing = self._find()
        if thing is None:
            raise LookupError(f"there is no {self!r} any more")
        return thing

    @property
    def exists(self) -> bool:
        """Whether this very pod is still listed."""
        return self._find() is not None

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed; Gone if it is not listed any more."""
        pod = self._find()
        return pod["status"].get("phase", "Pending") if pod else "Gone"

    @property
    def is_ready(self) -> bool:
        """Whether it says it is Ready."""
        return settled.is_ready(self.object)

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion was asked for."""
        return settled.is_terminating(self.object)

    @property
    def node_name(self) -> str | None:
        """The node it was placed on."""
        return self.object["spec"].get("nodeName")

    def finishes(self) -> None:
        """Its containers end well: the phase is Succeeded, and the Job is done."""
        self._end("Succeeded", 0)

    def fails(self) -> None:
        """Its containers end badly: the phase is Failed, and the Job tries again."""
        self._end("Failed", 1)

    def becomes_unready(self) -> None:
        """Its readiness probe fails."""
        self._probe("False", "ContainersNotReady")

    def becomes_ready(self) -> None:
        """Its readiness probe succeeds again."""
        self._probe("True", None)

    def deleted(self, grace: float | None = None) -> None:
        """A person runs `kubectl delete pod`; `grace` in virtual seconds, as asked for with --grace-period."""
        options: Json = {"preconditions": {"uid": self.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = int(grace)
        self._kubernetes.must("DELETE", self.path, options)

    def annotate(self, **annotations: str | None) -> None:
        """Sets annotations; None removes one."""
        self._patch({"metadata": {"annotations": annotations}})

    def gets_unstuck(self) -> None:
        """The hanging kubelet lets go of it."""
        self.annotate(**{STUCK: None})

    def loses_finalizers(self) -> None:
        """Whoever held it by a finalizer is done."""
        self._kubernetes.must("PATCH", self.path, [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH)

    def _end(self, phase: str, exit_code: int) -> None:
        pod = self.object
        if pod["spec"].get("restartPolicy", "Always") == "Always":
            raise ValueError(f"{self!r} would be restarted: only a pod with another restart policy can end")
        self._kubernetes.end_pod(pod, phase, exit_code)

    def _probe(self, status: str, reason: str | None) -> None:
        conditions = [{"type": kind, "status": status, "reason": reason} for kind in ("Ready", "ContainersReady")]
        change = {"status": {"conditions": conditions}}
        self._kubernetes.must("PATCH", f"{self.path}/status", change, STRATEGIC_MERGE_PATCH)

    def _patch(self, change: Json) -> None:
        self._kubernetes.must("PATCH", self.path, change, MERGE_PATCH)

    def _find(self) -> Json | None:
        thing = self._kubernetes.look("pods", self.name, self.namespace)
        return thing if thing and thing["metadata"]["uid"] == self.uid else None


class Workload:
    """A handle on a Deployment, StatefulSet, DaemonSet or Job."""

    def __init__(self, kubernetes: Kubernetes, name: str, namespace: str, path: str, resource: str) -> None:
        self._kubernetes = kubernetes
        self.name = name
        self.namespace = namespace
        self._path = path
        self._resource = resource

    def __repr__(self) -> str:
        return f"{self._resource} {self.namespace}/{self.name}"

    @property
    def object(self) -> Json:
        """The object itself."""
        thing = self._kubernetes.look(self._resource, self.name, self.namespace)
        if thing is None:
            raise LookupError(f"there is no {self!r} any more")
        return thing

    def pods(self) -> list[Pod]:
        """Its pods, by name; those on their way out too."""
        return [Pod(self._kubernetes, thing) for thing in self.look_at_pods()]

    def owns(self, pod: Json) -> bool:
        """Whether it is one of its pods."""
        metadata = pod["metadata"]
        return metadata["namespace"] == self.namespace and (metadata.get("labels") or {}).get(_REPLICA_LABEL) == self.name

    def look_at_pods(self) -> list[Json]:
        """The same, as the objects themselves."""
        return self._kubernetes.look_at_pods(namespace=self.namespace, label=(_REPLICA_LABEL, self.name))

    def running_pods(self) -> list[Pod]:
        """Its pods that run and are not on their way out."""
        return [pod for pod in self.pods() if pod.phase == "Running" and not pod.is_terminating]

    @property
    def is_complete(self) -> bool:
        """Of a Job: whether it is done."""
        return settled.condition(self.object, "Complete") == "True"

    def scale(self, replicas: int) -> None:
        """A person runs `kubectl scale`."""
        self._kubernetes.must("PATCH", self._path, {"spec": {"replicas": replicas}}, MERGE_PATCH)

    def deleted(self) -> None:
        """A person deletes it, and with it its pods."""
        self._kubernetes.must("DELETE", self._path, {"propagationPolicy": "Background"})


class Budget:
    """A handle on a PodDisruptionBudget."""

    def __init__(self, kubernetes: Kubernetes, name: str, namespace: str) -> None:
        self._kubernetes = kubernetes
        self.name = name
        self.namespace = namespace
        self._path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"

    @property
    def disruptions_allowed(self) -> int:
        """How many pods may be evicted now."""
        thing = self._kubernetes.look("poddisruptionbudgets", self.name, self.namespace)
        if thing is None:
            raise LookupError(f"there is no budget {self.namespace}/{self.name} any more")
        return thing["status"].get("disruptionsAllowed", 0)

    def change(self, **spec: Any) -> None:
        """Somebody edits it: `change(minAvailable=None, maxUnavailable=1)`."""
        self._kubernetes.must("PATCH", self._path, {"spec": spec}, MERGE_PATCH)

    def deleted(self) -> None:
        """Somebody removes it."""
        self._kubernetes.must("DELETE", self._path)


Placement = Node | Sequence[Node] | None


def pod_template(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    grace: int | None = None,
    exits_after: float | None = None,
    ignores_sigterm: bool = False,
    stuck: bool = False,
    starts_after: float | None = None,
    finalizers: Sequence[str] = (),
    tolerations: Sequence[Json] = (),
    node_selector: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    volume_claims: Sequence[str] = (),
    uses_empty_dir: bool = False,
    restart_policy: str = "Always",
    **spec: Any,
) -> Json:
    """`metadata` and `spec` of a pod. All times are virtual seconds.

    `grace`: terminationGracePeriodSeconds (the API server's default is 30). `exits_after`, `ignores_sigterm`, `stuck`,
    `starts_after`: see `kubelet.py`; without them a pod starts and stops at once. `spec`: any further field of a PodSpec.
    """
    manners = {
        EXITS_AFTER: None if exits_after is None else str(exits_after),
        STARTS_AFTER: None if starts_after is None else str(starts_after),
        IGNORES_SIGTERM: "true" if ignores_sigterm else None,
        STUCK: "true" if stuck else None,
    }
    metadata: Json = {
        "labels": dict(labels or {}),
        "annotations": {**(annotations or {}), **{name: value for name, value in manners.items() if value}},
    }
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    container: Json = {"name": "main", "image": "example.invalid/none"}
    if requests:
        container["resources"] = {"requests": dict(requests)}
    volumes: list[Json] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in volume_claims]
    if uses_empty_dir:
        volumes.append({"name": "scratch", "emptyDir": {}})
    body: Json = {"containers": [container], "restartPolicy": restart_policy, "volumes": volumes, **spec}
    if grace is not None:
        body["terminationGracePeriodSeconds"] = grace
    if tolerations:
        body["tolerations"] = list(tolerations)
    if node_selector:
        body["nodeSelector"] = dict(node_selector)
    return {"metadata": metadata, "spec": body}


def _claim(name: str, **spec: Any) -> Json:
    resources = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec},
    }


def _selected_template(name: str, how: Json) -> Json:
    template = pod_template(**how)
    template["metadata"]["labels"][_REPLICA_LABEL] = name
    return {"selector": {"matchLabels": {_REPLICA_LABEL: name}}, "template": template}


_NODE_INFO = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "containerd://2.1.5",
    "kernelVersion": "6.12.53-69.119.amzn2023.x86_64",
    "kubeProxyVersion": "",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "Amazon Linux 2023",
    "systemUUID": "",
}
