"""A running cluster: its life, how it settles, its address and its content.

The control plane is real and lives in real time; the scenario lives in virtual time. `settle` ties them together: it
lets controllers and scheduler run until they have nothing left to do, while virtual time stands still, and freezes them
again. So between two settlings the cluster changes only on request, and the same scenario gives the same
answers each time. Call it before the clock jumps, and before a function under test is started.

One control plane serves many scenarios; `reset` empties it in between.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
import time
from collections.abc import Iterable
from typing import Any

from world.base.clock import Clock
from world.base.faults import Plan
from world.kubernetes import canaries, kube_binaries, settled
from world.kubernetes.access_entries import AccessEntries, AccessEntry
from world.kubernetes.actors import kubelet_of, tenant_of
from world.kubernetes.applying import apply
from world.kubernetes.cluster_state import ClusterState
from world.kubernetes.control_plane import FROZEN_BETWEEN_SETTLES, ControlPlane
from world.kubernetes.kube_client import Answer, Json, KubeClient
from world.kubernetes.kube_proxy import KubeProxy, KubernetesCall
from world.kubernetes.kubelet import Kubelet
from world.kubernetes.settled import SETTLE_LIMIT, NotSettled
from world.kubernetes.sts import Sts, StsProxy
from world.kubernetes.virtual_times import VirtualTimes
from world.process.folders import temporary_folder

LOOK_AGAIN = 0.05
"""Real seconds after which `settle` checks again even if nothing changed, because some controllers act on a timer."""

_QUIET_LOOKS = 6
"""The number of checks in a row, each `LOOK_AGAIN` after the last, without a change and without work in progress. After them a
pod with unknown placement rules counts as not placeable, and the taints count as final where no node is ready. (A number of
seconds would be too short on a busy machine.)"""

_IDLE_LOOKS = 2
"""The number of checks in a row that find no component at work. After them the control plane counts as idle."""

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
    "resourceslices",
    # Those of recycle-eks.
    "leases/recycle-eks",
]


class RunningCluster:
    """The control plane with its authentication, its fault proxy, its kubelets."""

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
        """Stops everything. No process keeps running."""
        self._undo.close()

    def reset(self) -> None:
        """Empties the cluster for a new scenario. Namespaces and roles stay, access entries too. The clock should have been
        reset before, as whatever the cluster does from here on is dated by it."""
        self.control_plane.restarts = 0
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
        # Controllers that see the erasure of pods before that of their owner have made new pods. The DaemonSet controller would
        # take an erased pod that it still knows for one of the new scenario, if node and set have the same names (syncNodeUpdate
        # in pkg/controller/daemon).
        self.state.erase(_ERASED_ON_RESET)
        self._let_controllers_catch_up()
        # They write Events about what was erased. No controller reads Events.
        self.state.erase(["events"])
        self.state.catch_up()
        self._settled_at = self._empty_at = self.state.followed_revision

    def settle(self) -> None:
        """Returns when nothing in the cluster is going to change by itself at this moment of virtual time. Costs
        microseconds when nothing was changed since the last time; raises NotSettled after SETTLE_LIMIT real seconds."""
        if not self._touched.is_set() and self.state.followed_revision == self._settled_at:
            return
        self._touched.clear()
        self._let_kubelets_act()
        deadline = time.monotonic() + SETTLE_LIMIT
        business = ["not checked yet"]
        while business:
            self.control_plane.thaw(*FROZEN_BETWEEN_SETTLES)
            try:
                self._wait_until_idle(deadline)
            finally:
                self.control_plane.freeze(*FROZEN_BETWEEN_SETTLES)
            # A request that a controller sent before it froze may have taken effect after this check.
            self._let_kubelets_act()
            business = self._settledness.unfinished_business()
        self._settled_at = self.state.followed_revision

    def _wait_until_idle(self, deadline: float) -> None:
        quiet_looks = 0
        while True:
            revision = self.state.followed_revision
            business = self._settledness.unfinished_business()
            is_certain = not settled.has_unpredictable_pods(self.state) and not settled.has_unpredictable_taints(self.state)
            if not business and (is_certain or quiet_looks >= _QUIET_LOOKS):
                return
            self.control_plane.check_alive()
            if time.monotonic() > deadline:
                raise NotSettled(f"after {SETTLE_LIMIT:.0f} s: " + "; ".join(business or ["pods come and go"]))
            self.state.wait_for_change(revision, LOOK_AGAIN)
            is_quiet = self.state.followed_revision == revision and not self.control_plane.is_at_work()
            quiet_looks = quiet_looks + 1 if is_quiet else 0
            self._let_kubelets_act()

    def _let_controllers_catch_up(self) -> None:
        """Returns when the controllers and the scheduler have read all changes and written what follows."""
        self.control_plane.thaw(*FROZEN_BETWEEN_SETTLES)
        try:
            self._await_idleness()
        finally:
            self.control_plane.freeze(*FROZEN_BETWEEN_SETTLES)
        # A request that a controller sent right before it froze.
        self._await_idleness()

    def _await_idleness(self) -> None:
        deadline = time.monotonic() + SETTLE_LIMIT
        idle_looks = 0
        # Work that moves from one component to another during a check could be missed.
        while idle_looks < _IDLE_LOOKS:
            if time.monotonic() > deadline:
                raise NotSettled(f"after {SETTLE_LIMIT:.0f} s the control plane is still at work")
            time.sleep(0.002)
            idle_looks = 0 if self.control_plane.is_at_work() else idle_looks + 1

    def _let_kubelets_act(self) -> None:
        self.state.catch_up()
        while self._kubelet.act():
            self.state.catch_up()

    # -- how to reach it -----------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """The endpoint in DescribeCluster: the fault proxy in front of the API server."""
        return f"https://127.0.0.1:{self.proxy.port}"

    @property
    def certificate_authority_data(self) -> str:
        """The certificate authority in DescribeCluster: base64 of its PEM."""
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
        """Keeps all volumes attached to this node from now on."""
        self._kubelet.keep_volumes(node_uid)

    def volumes_detach_from(self, node_name: str, node_uid: str) -> None:
        """The end of `volumes_hang_on`."""
        self._kubelet.release_volumes(node_name, node_uid)
        self._touched.set()

    def apply(self, manifest: str) -> None:
        """Server-side apply of YAML documents. Rights given by it are in force on return."""
        apply(self._admin(), manifest, SETTLE_LIMIT)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        """Makes any request as an administrator. The answer may be a refusal."""
        return self._admin().call(method, path, body, content_type)

    def must(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        """Makes any request as an administrator, for which there is no other method."""
        return self._admin().must(method, path, body, content_type)

    def kubelet(self, node: str) -> KubeClient:
        """The client of a node's kubelet, straight to the API server."""
        self._touched.set()
        return kubelet_of(self.control_plane, node)

    def tenant(self, namespace: str) -> KubeClient:
        """The client of a user who may work with the pods of one namespace, straight to the API server."""
        self._ensure_namespace(namespace)
        return tenant_of(self.control_plane, namespace, SETTLE_LIMIT)

    # -- content -------------------------------------------------------------------------------------------------

    def events(self, about: str | None = None) -> list[Json]:
        """The Events about an object (a node's are about its name), or all, as their writers left them, oldest first."""
        listed = self.client.get("/api/v1/events")["items"]
        of_interest = [event for event in listed if about in (None, event["involvedObject"].get("name"))]
        return sorted(of_interest, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def look(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """An object as it is right now, with the API server's own times."""
        self.state.catch_up()
        return self.state.get(kind, name, namespace)

    def look_at_pods(
        self, on: str | None = None, namespace: str | None = None, label: tuple[str, str] | None = None
    ) -> list[Json]:
        """The pods of a node (by its name), of a namespace, with a label, as they are right now."""
        self.state.catch_up()
        return [
            thing
            for thing in (self.state.all("pods") if on is None else self.state.pods_on(on))
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

    def _ensure_namespace(self, name: str) -> None:
        self.state.catch_up()
        if self.state.get("namespaces", name) is None:
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._admin().create("/api/v1/namespaces", manifest)
        if self.state.get("serviceaccounts", "default", name) is None:
            self.settle()
