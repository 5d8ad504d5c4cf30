"""Handles of cluster objects: nodes, pods, workloads, budgets. Each property reads the present state."""

from __future__ import annotations

from typing import Any

from world.kubernetes import settled
from world.kubernetes.kube_client import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Json
from world.kubernetes.kubelet import STUCK, status_of_volumes
from world.kubernetes.manifests import NOT_READY, READY, REPLICA_LABEL, SILENT, ready_condition
from world.kubernetes.running_cluster import RunningCluster

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class Node:
    """A handle of one Node object. Each property reads the present state."""

    def __init__(self, kubernetes: RunningCluster, name: str, uid: str) -> None:
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
            raise LookupError(f"there is no longer a node {self.name}")
        return thing

    @property
    def exists(self) -> bool:
        """Checks whether this very Node object still exists."""
        thing = self._kubernetes.look("nodes", self.name)
        return thing is not None and thing["metadata"]["uid"] == self.uid

    @property
    def is_ready(self) -> bool:
        """Checks whether it reports Ready."""
        return settled.is_ready(self.object)

    @property
    def is_cordoned(self) -> bool:
        """Checks whether it is unschedulable."""
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
        return [Pod(self._kubernetes, thing) for thing in self._kubernetes.look_at_pods(on=self.name)]

    def becomes_ready(self) -> None:
        """The kubelet reports that all is well."""
        self.report({"conditions": [ready_condition(READY)]})

    def becomes_unready(self) -> None:
        """The kubelet reports that something is missing, as it does before the network plugin runs."""
        self.report({"conditions": [ready_condition(NOT_READY)]})

    def stops_reporting(self) -> None:
        """The kubelet reports nothing any more, because the machine hangs or is gone."""
        self.report({"conditions": [ready_condition(SILENT)]})

    def cordon(self) -> None:
        """A person runs `kubectl cordon`."""
        self.patch({"spec": {"unschedulable": True}})

    def uncordon(self) -> None:
        """A person runs `kubectl uncordon`."""
        self.patch({"spec": {"unschedulable": None}})

    def add_taint(self, key: str, effect: str = "NoSchedule", value: str | None = None) -> None:
        """Adds a taint and keeps all other taints."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        kept = [each for each in self.taints if (each["key"], each["effect"]) != (key, effect)]
        self.patch({"spec": {"taints": [*kept, taint]}})

    def remove_taints(self, *keys: str) -> None:
        """Removes taints, if the node exists and has them."""
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
        """Keeps all volumes attached from now on."""
        self._kubernetes.volumes_hang_on(self.uid)

    def volumes_detach(self) -> None:
        """Volumes are detached from it again as soon as no pod uses them."""
        self._kubernetes.volumes_detach_from(self.name, self.uid)

    def offers_devices(self, driver: str) -> None:
        """A driver of dynamic resource allocation offers a device on it."""
        pool = {"name": self.name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": self.name, "pool": pool, "devices": [{"name": "device-0"}]}
        slice_ = {"metadata": {"name": f"{self.name}-{driver}"}, "spec": spec}
        self._kubernetes.must("POST", _SLICES, slice_)

    def withdraws_devices(self, driver: str) -> None:
        """The driver ends, or the kubelet starts again: nothing of it is offered any more."""
        self._kubernetes.must("DELETE", f"{_SLICES}/{self.name}-{driver}")

    def patch(self, change: Json) -> None:
        """Any merge patch."""
        self._kubernetes.must("PATCH", f"/api/v1/nodes/{self.name}", change, MERGE_PATCH)

    def report(self, status: Json) -> None:
        """Any merge patch of its status, as its kubelet reports."""
        path = f"/api/v1/nodes/{self.name}/status"
        self._kubernetes.must("PATCH", path, {"status": status}, STRATEGIC_MERGE_PATCH)


class Pod:
    """A handle on one pod (by uid: a namesake that comes later is another pod)."""

    def __init__(self, kubernetes: RunningCluster, thing: Json) -> None:
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
            raise LookupError(f"{self!r} no longer exists")
        return thing

    @property
    def exists(self) -> bool:
        """Checks whether this very pod is still listed."""
        return self._find() is not None

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed; Gone if it is no longer listed."""
        pod = self._find()
        return pod["status"].get("phase", "Pending") if pod else "Gone"

    @property
    def is_ready(self) -> bool:
        """Checks whether it reports Ready."""
        return settled.is_ready(self.object)

    @property
    def is_terminating(self) -> bool:
        """Checks whether its deletion was requested."""
        return settled.is_terminating(self.object)

    @property
    def annotations(self) -> dict[str, str]:
        """All annotations."""
        return self.object["metadata"].get("annotations") or {}

    @property
    def node_name(self) -> str | None:
        """The node it was placed on."""
        return self.object["spec"].get("nodeName")

    def finishes(self) -> None:
        """Ends its containers successfully: the phase is Succeeded, and the Job is complete."""
        self._end("Succeeded", 0)

    def fails(self) -> None:
        """Ends its containers with an error: the phase is Failed, and the Job retries."""
        self._end("Failed", 1)

    def becomes_unready(self) -> None:
        """Makes its readiness probe fail."""
        self._probe("False", "ContainersNotReady")

    def crash_loops(self) -> None:
        """Makes its container fail again and again."""
        self.becomes_unready()
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        shown = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 9, "state": waiting}
        change = {"status": {"containerStatuses": [shown]}}
        self._kubernetes.must("PATCH", f"{self.path}/status", change, STRATEGIC_MERGE_PATCH)

    def becomes_ready(self) -> None:
        """Makes its readiness probe succeed again."""
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
        """Removes its finalizers."""
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

    def __init__(self, kubernetes: RunningCluster, name: str, namespace: str, path: str, resource: str) -> None:
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
            raise LookupError(f"{self!r} no longer exists")
        return thing

    def pods(self) -> list[Pod]:
        """Its pods, by name, also terminating ones."""
        return [Pod(self._kubernetes, thing) for thing in self.look_at_pods()]

    def owns(self, pod: Json) -> bool:
        """Checks whether the pod belongs to the workload."""
        metadata = pod["metadata"]
        return metadata["namespace"] == self.namespace and (metadata.get("labels") or {}).get(REPLICA_LABEL) == self.name

    def look_at_pods(self) -> list[Json]:
        """The same, as the objects themselves."""
        return self._kubernetes.look_at_pods(namespace=self.namespace, label=(REPLICA_LABEL, self.name))

    def running_pods(self) -> list[Pod]:
        """Its running pods that do not terminate."""
        return [pod for pod in self.pods() if pod.phase == "Running" and not pod.is_terminating]

    @property
    def is_complete(self) -> bool:
        """Whether a Job is complete."""
        return settled.condition(self.object, "Complete") == "True"

    def scale(self, replicas: int) -> None:
        """A person runs `kubectl scale`."""
        self._kubernetes.must("PATCH", self._path, {"spec": {"replicas": replicas}}, MERGE_PATCH)

    def deleted(self) -> None:
        """A person deletes it, and with it its pods."""
        self._kubernetes.must("DELETE", self._path, {"propagationPolicy": "Background"})


class Budget:
    """A handle on a PodDisruptionBudget."""

    def __init__(self, kubernetes: RunningCluster, name: str, namespace: str) -> None:
        self._kubernetes = kubernetes
        self.name = name
        self.namespace = namespace
        self._path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"

    @property
    def disruptions_allowed(self) -> int:
        """The number of pods that may be evicted now."""
        thing = self._kubernetes.look("poddisruptionbudgets", self.name, self.namespace)
        if thing is None:
            raise LookupError(f"there is no longer a budget {self.namespace}/{self.name}")
        return thing["status"].get("disruptionsAllowed", 0)

    def change(self, **spec: Any) -> None:
        """Changes the budget: `change(minAvailable=None, maxUnavailable=1)`."""
        self._kubernetes.must("PATCH", self._path, {"spec": spec}, MERGE_PATCH)

    def deleted(self) -> None:
        """Deletes the budget."""
        self._kubernetes.must("DELETE", self._path)
