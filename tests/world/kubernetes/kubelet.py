"""The kubelets of all nodes, and the controllers that count seconds: everything about pods that takes time.

They use the virtual clock. `act` does the work that is due now, and sets timers for later work. The behaviour of a pod is in
annotations, so that the replacement pods of a Deployment inherit it from the template:

    world/starts-after: "90"        virtual seconds between being placed on a node and being Ready
    world/exits-after: "3600"       virtual seconds it takes to stop once asked; its grace period cuts that short
    world/ignores-sigterm: "true"   it lives to the end of its grace period
    world/stuck: "true"             it never stops, as on a kubelet that hangs

By default a pod starts and stops at once. Pods on a node that is not Ready do nothing at all, and are not Ready. A static pod is
created again as long as its node lives.

This module also simulates

- pod garbage collection: pods without a Node vanish after a minute, terminating pods of an out-of-service node at once,
- eviction by NoExecute taints, after the pod's toleration,
- the attachment of volumes: a node's status lists the volumes of its bound pods until the pods are gone.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from world.base.clock import Clock
from world.kubernetes import scheduling
from world.kubernetes.cluster_state import ClusterState, key_of
from world.kubernetes.kube_client import STRATEGIC_MERGE_PATCH, Answer, Json, KubeClient, Refused
from world.kubernetes.settled import is_finished, is_ready, is_terminating
from world.kubernetes.virtual_times import VirtualTimes

STARTS_AFTER = "world/starts-after"
EXITS_AFTER = "world/exits-after"
IGNORES_SIGTERM = "world/ignores-sigterm"
STUCK = "world/stuck"

ORPHAN_LIFE = 60.0
"""Virtual seconds that the pods of a deleted Node stay listed: 40 s of quarantine and a round every 20 s in
pkg/controller/podgc; measured 57-59 s."""

_LONG_AGO = datetime.timedelta(hours=1)
"""A container's end is dated that far back. Otherwise the Job controller would wait ten real seconds before it starts the next
pod, and up to ten minutes if pods fail again and again. `virtual_times.py` sets the times that callers see."""

_PARALLEL_WRITES = 4
"""Enough to keep the API server busy while Python works on the next request."""

_EXIT_BY_SIGTERM = 143
_EXIT_BY_SIGKILL = 137


class Kubelet:
    """All kubelets of one cluster. `act` is called by the driver's thread only."""

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        times: VirtualTimes,
        client: KubeClient,
        on_awakening: Callable[[], None],
    ) -> None:
        """`on_awakening` is called whenever the clock made it act: the cluster has to settle after that."""
        self._clock = clock
        self._state = state
        self._times = times
        self._client = client
        self._on_awakening = on_awakening
        self._static_pods: dict[tuple[str, str], Json] = {}
        self._orphaned_since: dict[str, float] = {}
        self._placed_since: dict[str, float] = {}
        self._alarms: set[tuple[str, float]] = set()
        self._changes = state.changes()
        self._pods_to_look_at: set[str] = set()
        self._nodes_to_look_at: set[str] = set()
        self._volumes: dict[str, tuple[str, ...]] = {}
        self._keeping_volumes: set[str] = set()
        self._writers = ThreadPoolExecutor(_PARALLEL_WRITES, thread_name_prefix="kubelet")

    def stop(self) -> None:
        """Ends its threads."""
        self._writers.shutdown()

    def forget_everything(self) -> None:
        """Resets the kubelets for a new scenario."""
        self._changes.take()
        self._pods_to_look_at.clear()
        self._nodes_to_look_at.clear()
        self._static_pods.clear()
        self._orphaned_since.clear()
        self._placed_since.clear()
        self._alarms.clear()
        self._volumes.clear()
        self._keeping_volumes.clear()

    def keep_running(self, static_pod: Json) -> None:
        """Creates this pod again after each deletion, until its node is gone."""
        metadata = static_pod["metadata"]
        self._static_pods[metadata["namespace"], metadata["name"]] = static_pod

    def keep_volumes(self, node_uid: str) -> None:
        """Keeps all volumes attached to this node from now on."""
        self._keeping_volumes.add(node_uid)

    def release_volumes(self, node: str, node_uid: str) -> None:
        """Detaches volumes that no pod uses now."""
        self._keeping_volumes.discard(node_uid)
        self._nodes_to_look_at.add(node)

    def act(self) -> bool:
        """Does everything that is due at this moment of virtual time; whether there was anything to do."""
        self._note_changes()
        looked_at, self._pods_to_look_at = sorted(self._pods_to_look_at), set()
        pods = [pod for key in looked_at if (pod := self._state.get("pods", key))]
        due = []
        for pod in pods:
            write = self._due_for_pod(pod)
            if write:
                due.append(write)
                # The write is checked again, even if it has no effect.
                self._pods_to_look_at.add(_key(pod))
        due += self._due_for_static_pods()
        due += self._due_for_volumes()
        list(self._writers.map(lambda write: write(), due))
        return bool(due)

    def _note_changes(self) -> None:
        """A pod is looked at when it, its node, or the time that it waits for has come."""
        for change in self._changes.take():
            if change.kind == "pods":
                self._pods_to_look_at.add(change.key)
                places = (pod["spec"].get("nodeName") for pod in (change.before, change.after) if pod)
                self._nodes_to_look_at.update(place for place in places if place)
            elif change.kind == "nodes":
                self._pods_to_look_at.update(map(_key, self._state.pods_on(change.key)))
                self._nodes_to_look_at.add(change.key)
            elif change.kind == "poddisruptionbudgets":
                self._pods_to_look_at.update(_awaited_by(change.before))
            elif change.kind in ("persistentvolumeclaims", "persistentvolumes"):
                self._nodes_to_look_at.update(node["metadata"]["name"] for node in self._state.all("nodes"))

    # -- due work ------------------------------------------------------------------------------------------------

    def _due_for_pod(self, pod: Json) -> Callable[[], object] | None:
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            # No kubelet runs it yet, so the API server removes it without a grace period.
            return None
        node = self._state.get("nodes", node_name)
        if node is None:
            return self._due_for_orphan(pod)
        self._orphaned_since.pop(pod["metadata"]["uid"], None)
        if is_terminating(pod) and self._is_awaited_by_a_budget(pod):
            return None
        if not is_terminating(pod) and not is_finished(pod) and self._is_evicted_by_taint(pod, node):
            return lambda: self._evict_by_taint(pod)
        if is_terminating(pod) and not is_ready(node) and _is_out_of_service(node):
            return None if _is_only_held_by_finalizers(pod) else lambda: self._finish_deletion(pod, _EXIT_BY_SIGKILL)
        if not is_ready(node):
            return (lambda: self._report_ready(pod, False)) if is_ready(pod) else None
        if is_terminating(pod):
            return self._due_for_terminating(pod)
        if pod["status"].get("phase", "Pending") == "Pending":
            return self._due_for_pending(pod)
        if pod["status"]["phase"] == "Running" and not is_ready(pod) and _was_unready_by_node(pod):
            return lambda: self._report_ready(pod, True)
        return None

    def _due_for_pending(self, pod: Json) -> Callable[[], object] | None:
        uid = pod["metadata"]["uid"]
        placed = self._placed_since.setdefault(uid, self._clock.now())
        start = placed + float(_manner(pod, STARTS_AFTER) or 0)
        return (lambda: self._start(pod)) if self._is_due(pod, start) else None

    def _due_for_terminating(self, pod: Json) -> Callable[[], object] | None:
        metadata = pod["metadata"]
        if _manner(pod, STUCK) or _is_only_held_by_finalizers(pod):
            return None
        asked = self._times.deletion_requested(metadata["uid"])
        if asked is None:
            asked = self._clock.now()
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        needs = 0.0 if is_finished(pod) else float(_manner(pod, EXITS_AFTER) or 0)
        ends_by_force = not is_finished(pod) and (bool(_manner(pod, IGNORES_SIGTERM)) or needs > grace)
        end = asked + (grace if ends_by_force else needs)
        exit_code = _EXIT_BY_SIGKILL if ends_by_force else _EXIT_BY_SIGTERM
        return (lambda: self._finish_deletion(pod, exit_code)) if self._is_due(pod, end) else None

    def _due_for_orphan(self, pod: Json) -> Callable[[], object] | None:
        uid = pod["metadata"]["uid"]
        since = self._orphaned_since.setdefault(uid, self._clock.now())
        if _is_only_held_by_finalizers(pod) or not self._is_due(pod, since + ORPHAN_LIFE):
            return None
        return lambda: self._finish_deletion(pod, _EXIT_BY_SIGKILL)

    def _is_awaited_by_a_budget(self, pod: Json) -> bool:
        """Checks whether the disruption controller has not seen yet that an evicted pod terminates.

        A real pod needs longer to end than the controller needs to see it. Here it could be gone before, and a StatefulSet
        could have created the next pod of its name. The controller would take that one for the evicted one, and block the
        budget for two real minutes (buildDisruptedPodMap in pkg/controller/disruption).
        """
        return any(_key(pod) in _awaited_by(budget) for budget in self._state.all("poddisruptionbudgets"))

    def _is_evicted_by_taint(self, pod: Json, node: Json) -> bool:
        """Returns the time of the eviction as the taint eviction controller does: at once without a toleration, else when the
        shortest one ends."""
        patience = float("inf")
        tolerations = pod["spec"].get("tolerations") or ()
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] != scheduling.NO_EXECUTE:
                continue
            matching = [toleration for toleration in tolerations if scheduling.tolerates(toleration, taint)]
            limits = [each["tolerationSeconds"] for each in matching if "tolerationSeconds" in each]
            allowed = min(limits) if limits else (float("inf") if matching else 0)
            since = self._times.tainted(node["metadata"]["uid"], taint["key"], taint["effect"]) or self._clock.now()
            patience = min(patience, since + max(0, allowed))
        return patience < float("inf") and self._is_due(pod, patience)

    def _due_for_static_pods(self) -> list[Callable[[], object]]:
        for key, pod in list(self._static_pods.items()):
            if self._state.get("nodes", pod["spec"]["nodeName"]) is None:
                del self._static_pods[key]
        missing = [pod for pod in self._static_pods.values() if self._state.get("pods", _key(pod)) is None]
        return [lambda pod=pod: self._client.create(_pods_path(pod), pod) for pod in missing]

    def _due_for_volumes(self) -> list[Callable[[], object]]:
        due = []
        looked_at, self._nodes_to_look_at = sorted(self._nodes_to_look_at), set()
        for name in looked_at:
            node = self._state.get("nodes", name)
            if node is None:
                continue
            uid = node["metadata"]["uid"]
            before = self._volumes.get(uid, ())
            kept = before if uid in self._keeping_volumes else ()
            in_use = [volume for pod in self._state.pods_on(name) for volume in self._volumes_of(pod)]
            now = tuple(sorted({*in_use, *kept}))
            if now != before:
                self._volumes[uid] = now
                due.append(lambda name=name, now=now: self._report_volumes(name, now))
        return due

    def _volumes_of(self, pod: Json) -> Iterable[str]:
        """The bound ones, as a kubelet names them."""
        for each in pod["spec"].get("volumes") or ():
            if "persistentVolumeClaim" not in each:
                continue
            volume = self._state.volume_of(pod["metadata"]["namespace"], each["persistentVolumeClaim"]["claimName"])
            if volume:
                csi = volume["spec"]["csi"]
                yield f"kubernetes.io/csi/{csi['driver']}^{csi['volumeHandle']}"

    def _report_volumes(self, node: str, volumes: tuple[str, ...]) -> None:
        status = {"status": status_of_volumes(volumes)}
        answer = self._client.call("PATCH", f"/api/v1/nodes/{node}/status", status, STRATEGIC_MERGE_PATCH)
        if answer.status >= 300 and not _is_gone(answer):
            raise Refused("PATCH", node, answer)

    def _is_due(self, pod: Json, moment: float) -> bool:
        """Checks whether the moment (virtual epoch seconds) has come. If not, sets a timer."""
        now = self._clock.now()
        if moment <= now:
            return True
        alarm = (pod["metadata"]["uid"], moment)
        if alarm not in self._alarms:
            self._alarms.add(alarm)
            key = _key(pod)
            self._clock.after(moment - now, lambda: self._wake(key))
        return False

    def _wake(self, key: str) -> None:
        self._pods_to_look_at.add(key)
        self._on_awakening()
        self._state.catch_up()
        self.act()

    # -- doing it ------------------------------------------------------------------------------------------------

    def _start(self, pod: Json) -> None:
        now = _now()
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ]
        address = _address(pod["metadata"]["uid"])
        status = {
            "phase": "Running",
            "conditions": _conditions("True", "PodScheduled", "Initialized", "ContainersReady", "Ready"),
            "containerStatuses": containers,
            "startTime": now,
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        self._report(pod, status)

    def _report_ready(self, pod: Json, ready: bool) -> None:
        conditions = _conditions("True" if ready else "False", "Ready")
        conditions[0]["reason"] = None if ready else _NODE_NOT_READY
        self._report(pod, {"conditions": conditions})

    def end(self, pod: Json, phase: str, exit_code: int) -> None:
        """The pod's containers end: `phase` is Succeeded or Failed."""
        started = (pod["status"].get("startTime")) or _now()
        ended = _now(-_LONG_AGO)
        outcome = {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "startedAt": min(started, ended),
            "finishedAt": ended,
        }
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"terminated": outcome},
            }
            for container in pod["spec"]["containers"]
        ]
        conditions = _conditions("False", "ContainersReady", "Ready")
        for each in conditions:
            each["reason"] = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        self._report(pod, {"phase": phase, "conditions": conditions, "containerStatuses": containers})

    def _finish_deletion(self, pod: Json, exit_code: int) -> None:
        """The last two things a kubelet says about a pod: how it ended, and that it is gone. The first matters only where a
        finalizer (the Job controller's) keeps the object a little longer."""
        if pod["metadata"].get("finalizers") and not is_finished(pod):
            self.end(pod, "Failed", exit_code)
        self._client.delete(_pod_path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})

    def _evict_by_taint(self, pod: Json) -> None:
        disruption = _conditions("True", "DisruptionTarget")
        disruption[0]["reason"] = "DeletionByTaintManager"
        self._report(pod, {"conditions": disruption})
        self._client.delete(_pod_path(pod), {"preconditions": {"uid": pod["metadata"]["uid"]}})

    def _report(self, pod: Json, status: Json) -> None:
        path = f"{_pod_path(pod)}/status"
        change = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        answer = self._client.call("PATCH", path, change, STRATEGIC_MERGE_PATCH)
        if answer.status >= 300 and not _is_gone(answer):
            raise Refused("PATCH", path, answer)


def status_of_volumes(names: Iterable[str]) -> Json:
    """The part of a Node's status that says which volumes are attached to it and in use."""
    names = list(names)
    return {"volumesInUse": names, "volumesAttached": [{"name": name, "devicePath": ""} for name in names]}


_NODE_NOT_READY = "NodeNotReady"
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def _awaited_by(budget: Json | None) -> set[str]:
    """Keys of the pods that were evicted under a budget, and of which its controller has not seen the deletion."""
    if budget is None:
        return set()
    return {key_of(name, budget["metadata"]["namespace"]) for name in budget.get("status", {}).get("disruptedPods") or ()}


def _is_out_of_service(node: Json) -> bool:
    """The Node has the out-of-service taint, so pod garbage collection ends the pods that its kubelet cannot end."""
    return any(taint["key"] == _OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())


def _is_gone(answer: Answer) -> bool:
    """Checks whether the pod is gone, or another pod has its name, since it was read."""
    return answer.status in (404, 409)


def _manner(pod: Json, name: str) -> str | None:
    return (pod["metadata"].get("annotations") or {}).get(name)


def _is_only_held_by_finalizers(pod: Json) -> bool:
    """The kubelet is done with it: deletion with no grace left, and the object still there."""
    metadata = pod["metadata"]
    return is_terminating(pod) and metadata.get("deletionGracePeriodSeconds") == 0 and bool(metadata.get("finalizers"))


def _was_unready_by_node(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each.get("reason") == _NODE_NOT_READY for each in conditions)


def _conditions(status: str, *types: str) -> list[Json]:
    return [{"type": each, "status": status, "lastTransitionTime": _now()} for each in types]


def _now(offset: datetime.timedelta = datetime.timedelta()) -> str:
    moment = datetime.datetime.now(datetime.UTC) + offset
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _address(uid: str) -> str:
    number = zlib.crc32(uid.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _key(pod: Json) -> str:
    return key_of(pod["metadata"]["name"], pod["metadata"]["namespace"])


def _pods_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def _pod_path(pod: Json) -> str:
    return f"{_pods_path(pod)}/{pod['metadata']['name']}"
