"""Checks whether the controllers and the scheduler have nothing left to do, and lists the rest.

Each rule compares the status and the pods that a controller has written with those that it is going to write. The rules follow
the controllers' own code (pkg/controller/... of Kubernetes 1.35). A test shows the texts if the cluster does not settle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from world.kubernetes import scheduling
from world.kubernetes.cluster_state import Change, Changes, ClusterState, controller_of, key_of
from world.kubernetes.kube_client import Json

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"

SETTLE_LIMIT = 60.0
"""Real seconds that the cluster may take to settle; 0.05-0.15 are usual, 2-3 where the controllers have only just been started,
and more where several sessions share two cores."""


class NotSettled(AssertionError):
    """The cluster did not come to rest; the text says what was still going on."""


class Settledness:
    """Lists the changes that are still going to happen by themselves. Each check reads only the objects that changed since the
    last check, and those that depend on them. `everything` reads all objects."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._changes = state.changes()
        self._doubtful: set[tuple[str, str]] = set()
        self._unfinished: dict[tuple[str, str], list[str]] = {}
        self._ready_nodes: set[str] = set()

    def unfinished_business(self) -> list[str]:
        """Empty if the cluster is settled."""
        some_node_was_ready = bool(self._ready_nodes)
        for change in self._changes.take():
            self._note(change)
        if bool(self._ready_nodes) != some_node_was_ready:
            self._doubt_all("nodes")
        doubtful, self._doubtful = self._doubtful, set()
        for kind, key in doubtful:
            thing = self._state.get(kind, key)
            found = list(_RULES[kind](_View(self._state, self._ready_nodes), thing)) if thing else []
            if found:
                self._unfinished[kind, key] = found
            else:
                self._unfinished.pop((kind, key), None)
        found = [text for _, texts in sorted(self._unfinished.items()) for text in texts]
        return [*found, *_placement(self._state)]

    def _note(self, change: Change) -> None:
        """Marks a changed object for a check, with its controller, the objects that it controls, and the rules that read it."""
        kind, key, before, after = change
        if kind in _RULES:
            self._doubtful.add((kind, key))
        for thing in (before, after):
            owner = controller_of(thing) if thing else None
            if owner and owner["kind"] in _OWNERS and _OWNERS[owner["kind"]] in _RULES:
                self._doubtful.add((_OWNERS[owner["kind"]], key_of(owner["name"], thing["metadata"].get("namespace", ""))))
        if _uid(before) != _uid(after):
            for thing in filter(None, (before, after)):
                controlled = self._state.controlled_by(_uid(thing))
                self._doubtful.update((of_kind, name_of(each)) for of_kind, each in controlled if of_kind in _RULES)
        if kind == "serviceaccounts":
            self._doubtful.add(("namespaces", (after or before)["metadata"]["namespace"]))
        elif kind == "nodes":
            (self._ready_nodes.add if after and is_ready(after) else self._ready_nodes.discard)(key)
            self._doubt_all("daemonsets")
        elif kind in _COUNTED_BY_BUDGETS:
            self._doubt_all("poddisruptionbudgets")

    def _doubt_all(self, kind: str) -> None:
        self._doubtful.update((kind, name_of(thing)) for thing in self._state.all(kind))

    def everything(self) -> list[str]:
        """The same, with nothing remembered."""
        fresh = Settledness.__new__(Settledness)
        fresh._state, fresh._changes, fresh._unfinished = self._state, Changes(), {}
        fresh._ready_nodes = {name_of(node) for node in self._state.all("nodes") if is_ready(node)}
        fresh._doubtful = {(kind, name_of(thing)) for kind in _RULES for thing in self._state.all(kind)}
        return fresh.unfinished_business()


_COUNTED_BY_BUDGETS = ("pods", "deployments", "replicasets", "statefulsets")


def has_unpredictable_pods(state: ClusterState) -> bool:
    """Checks whether a pod waits for a place under rules that `scheduling.py` does not know. Only time shows that it gets
    none."""
    return any(not is_terminating(pod) and not scheduling.knows_all_rules_of(pod) for pod in state.unplaced_pods())


def has_unpredictable_taints(state: ClusterState) -> bool:
    """Checks whether no node is ready. Then the node controller takes its NoExecute taints back, while those that it has queued
    may still be added (`handleDisruption`, `doNoExecuteTaintingPass` in pkg/controller/nodelifecycle). Only time shows which
    stay."""
    nodes = state.all("nodes")
    return bool(nodes) and not any(is_ready(node) for node in nodes)


# -- small readings of objects, used by the kubelet and the scenario's handles too ---------------------------------


def condition(thing: Json, kind: str) -> str | None:
    """The status of a condition: "True", "False", "Unknown", or None if there is none of that type."""
    for each in (thing.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return each["status"]
    return None


def is_ready(thing: Json) -> bool:
    """Checks whether a pod or node reports Ready."""
    return condition(thing, "Ready") == "True"


def is_finished(pod: Json) -> bool:
    """Checks whether the pod has ended."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_terminating(thing: Json) -> bool:
    """Checks whether the deletion of the object was requested."""
    return bool(thing["metadata"].get("deletionTimestamp"))


def name_of(thing: Json) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    metadata = thing["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


# -- the rules -----------------------------------------------------------------------------------------------------


class _View:
    """The other objects that a rule may read."""

    def __init__(self, state: ClusterState, ready_nodes: set[str]) -> None:
        self.state = state
        self.some_node_is_ready = bool(ready_nodes)

    def pods_of(self, owner: Json) -> list[Json]:
        return [thing for kind, thing in self.state.controlled_by(owner["metadata"]["uid"]) if kind == "pods"]


def _namespace(view: _View, namespace: Json) -> Iterator[str]:
    name = namespace["metadata"]["name"]
    if not is_terminating(namespace) and view.state.get("serviceaccounts", "default", name) is None:
        yield f"namespace {name} has no default service account yet"


def _node(view: _View, node: Json) -> Iterator[str]:
    name = node["metadata"]["name"]
    present = {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}
    expected = set()
    if node["spec"].get("unschedulable"):
        expected.add((scheduling.UNSCHEDULABLE_TAINT, scheduling.NO_SCHEDULE))
    ready = condition(node, "Ready")
    if ready != "True":
        key = NOT_READY_TAINT if ready == "False" else UNREACHABLE_TAINT
        expected.add((key, scheduling.NO_SCHEDULE))
        # If no node is ready, the controller assumes a failure of its own and evicts nothing.
        if view.some_node_is_ready:
            expected.add((key, scheduling.NO_EXECUTE))
    own = {taint for taint in present if taint[0] in _TAINTS_OF_THE_CONTROLLER}
    if not view.some_node_is_ready:
        own = {taint for taint in own if taint[1] != scheduling.NO_EXECUTE}
    if own != expected:
        yield f"node {name} has the taints {sorted(own)} and should have {sorted(expected)}"


_TAINTS_OF_THE_CONTROLLER = (NOT_READY_TAINT, UNREACHABLE_TAINT, scheduling.UNSCHEDULABLE_TAINT)


def _placement(state: ClusterState) -> Iterator[str]:
    for pod in state.unplaced_pods():
        if is_terminating(pod) or is_finished(pod) or pod["spec"].get("schedulingGates"):
            continue
        if condition(pod, "PodScheduled") != "False":
            yield f"pod {name_of(pod)} was not looked at by the scheduler yet"
        elif scheduling.knows_all_rules_of(pod):
            for node in state.all("nodes"):
                on_node = state.pods_on(node["metadata"]["name"])
                if scheduling.fits(pod, node, on_node) and scheduling.reaches_volumes(pod, node, state.volume_of):
                    yield f"pod {name_of(pod)} is not placed and fits on node {node['metadata']['name']}"
                    break


_OWNERS = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
    "Node": "nodes",
}


def _orphan(view: _View, thing: Json) -> Iterator[str]:
    owner = controller_of(thing)
    if owner is None or is_terminating(thing) or owner["kind"] not in _OWNERS or owner["kind"] == "Node":
        return
    if owner["apiVersion"].partition("/")[0] not in ("apps", "batch"):
        # Other controllers have kinds of the same names, and do not run here.
        return
    found = view.state.get(_OWNERS[owner["kind"]], owner["name"], thing["metadata"]["namespace"])
    if found is None or found["metadata"]["uid"] != owner["uid"]:
        yield f"{name_of(thing)} outlived its {owner['kind']}"


def _deployment(view: _View, deployment: Json) -> Iterator[str]:
    status = deployment["status"]
    sets = [thing for kind, thing in view.state.controlled_by(deployment["metadata"]["uid"]) if kind == "replicasets"]
    made = sum(each["status"].get("replicas", 0) for each in sets)
    ready = sum(each["status"].get("readyReplicas", 0) for each in sets)
    wanted = sum(each["spec"].get("replicas", 0) for each in sets)
    in_rollout = wanted != deployment["spec"]["replicas"]
    if not _observed(deployment):
        yield f"deployment {name_of(deployment)} was not looked at yet"
    elif (status.get("replicas", 0), status.get("readyReplicas", 0)) != (made, ready):
        yield f"deployment {name_of(deployment)} does not know yet that it has {made} pods, {ready} of them ready"
    elif in_rollout and ready == made:
        yield f"deployment {name_of(deployment)} wants {deployment['spec']['replicas']} pods and made {wanted}"


def _replica_set(view: _View, replica_set: Json) -> Iterator[str]:
    yield from _orphan(view, replica_set)
    if is_terminating(replica_set):
        return
    status = replica_set["status"]
    live = [pod for pod in view.pods_of(replica_set) if not is_finished(pod) and not is_terminating(pod)]
    ready = sum(1 for pod in live if is_ready(pod))
    if not _observed(replica_set) or len(live) != replica_set["spec"]["replicas"]:
        yield f"replica set {name_of(replica_set)} wants {replica_set['spec']['replicas']} pods and has {len(live)}"
    elif (status.get("replicas", 0), status.get("readyReplicas", 0)) != (len(live), ready):
        yield f"replica set {name_of(replica_set)} does not know yet that it has {len(live)} pods, {ready} ready"


def _stateful_set(view: _View, stateful_set: Json) -> Iterator[str]:
    status = stateful_set["status"]
    pods = view.pods_of(stateful_set)
    made = sum(1 for pod in pods if not is_finished(pod))
    ready = sum(1 for pod in pods if not is_finished(pod) and is_ready(pod))
    held_up = any(is_terminating(pod) or not is_ready(pod) for pod in pods)
    if not _observed(stateful_set):
        yield f"stateful set {name_of(stateful_set)} was not looked at yet"
    elif any(is_finished(pod) and not is_terminating(pod) for pod in pods):
        yield f"stateful set {name_of(stateful_set)} has an ended pod to replace"
    elif (status.get("replicas", 0), status.get("readyReplicas", 0)) != (made, ready):
        yield f"stateful set {name_of(stateful_set)} does not know yet that it has {made} pods, {ready} ready"
    elif made != stateful_set["spec"]["replicas"] and not held_up:
        yield f"stateful set {name_of(stateful_set)} wants {stateful_set['spec']['replicas']} pods and has {made}"


def _daemon_set(view: _View, daemon_set: Json) -> Iterator[str]:
    if not _observed(daemon_set):
        yield f"daemon set {name_of(daemon_set)} was not looked at yet"
    pods = view.pods_of(daemon_set)
    on_nodes = {_node_of_daemon_pod(pod) for pod in pods if not is_finished(pod)}
    for pod in pods:
        if is_finished(pod) and not is_terminating(pod):
            yield f"daemon set {name_of(daemon_set)} has the ended pod {name_of(pod)} to replace"
    for node in view.state.all("nodes"):
        name = node["metadata"]["name"]
        if name not in on_nodes and scheduling.should_run_daemon_pod(daemon_set, node):
            yield f"daemon set {name_of(daemon_set)} has no pod on node {name} yet"


def _node_of_daemon_pod(pod: Json) -> str | None:
    """Returns the node of the pod, or the one that its affinity names: the controller writes the node's name there."""
    if pod["spec"].get("nodeName"):
        return pod["spec"]["nodeName"]
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return field["values"][0]
    return None


def _job(view: _View, job: Json) -> Iterator[str]:
    pods = view.pods_of(job)
    uncounted = [pod for pod in pods if _is_uncounted(pod)]
    live = [pod for pod in pods if not is_finished(pod) and not is_terminating(pod)]
    over = condition(job, "Complete") == "True" or condition(job, "Failed") == "True"
    status = job["status"]
    enough = status.get("succeeded", 0) >= job["spec"].get("completions", 1)
    may_start_one = not over and not any(is_terminating(pod) for pod in pods) and not enough
    if job["spec"].get("suspend") and condition(job, "Suspended") != "True":
        yield f"job {name_of(job)} was not looked at yet"
    elif uncounted:
        yield f"job {name_of(job)} has not counted its ended pod {name_of(uncounted[0])} yet"
    elif status.get("active", 0) != len(live):
        yield f"job {name_of(job)} does not know yet that it has {len(live)} pods at work"
    elif enough and not over:
        yield f"job {name_of(job)} does not know yet that it is complete"
    elif may_start_one and not live and not job["spec"].get("suspend"):
        yield f"job {name_of(job)} has not started a pod yet"


def _is_uncounted(pod: Json) -> bool:
    return is_finished(pod) and JOB_TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def _budget(view: _View, budget: Json) -> Iterator[str]:
    namespace = budget["metadata"]["namespace"]
    pods = [
        pod
        for pod in view.state.all("pods")
        if pod["metadata"]["namespace"] == namespace
        and scheduling.matches_selector(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
    ]
    status = budget["status"]
    healthy = sum(1 for pod in pods if is_ready(pod) and not is_terminating(pod))
    expected, desired = _expected_and_desired(budget["spec"], pods, view)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    known = tuple(status.get(key, 0) for key in ("currentHealthy", "desiredHealthy", "expectedPods"))
    if not _observed(budget):
        yield f"budget {name_of(budget)} was not looked at yet"
    elif status.get("disruptedPods"):
        yield f"budget {name_of(budget)} still awaits the end of {sorted(status['disruptedPods'])}"
    elif known != (healthy, desired, expected) or status.get("disruptionsAllowed", 0) != allowed:
        yield f"budget {name_of(budget)} does not know yet that {healthy} of {expected} pods are healthy"


def _expected_and_desired(spec: Json, pods: list[Json], view: _View) -> tuple[int, int]:
    """Counts pods as the disruption controller does (getExpectedPodCount). A minimum number counts the existing pods. A
    percentage, or a maximum number of missing pods, counts the pods that their controllers want."""
    if "maxUnavailable" in spec:
        expected = _wanted_by_controllers(pods, view)
        return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
    if isinstance(spec["minAvailable"], int):
        return len(pods), spec["minAvailable"]
    expected = _wanted_by_controllers(pods, view)
    return expected, _scaled(spec["minAvailable"], expected)


def _scaled(value: int | str, total: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%")) * total / 100)


def _wanted_by_controllers(pods: Iterable[Json], view: _View) -> int:
    wanted = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner and owner["kind"] in ("ReplicaSet", "StatefulSet"):
            controller = view.state.get(_OWNERS[owner["kind"]], owner["name"], pod["metadata"]["namespace"])
            above = controller_of(controller) if controller else None
            if above and above["kind"] == "Deployment":
                controller = view.state.get("deployments", above["name"], pod["metadata"]["namespace"])
            if controller:
                wanted[controller["metadata"]["uid"]] = controller["spec"]["replicas"]
    return sum(wanted.values())


def _observed(thing: Json) -> bool:
    return thing["status"].get("observedGeneration", 0) >= thing["metadata"].get("generation", 0)


def _uid(thing: Json | None) -> str | None:
    return thing["metadata"]["uid"] if thing else None


_RULES: dict[str, Callable[[_View, Json], Iterator[str]]] = {
    "namespaces": _namespace,
    "nodes": _node,
    "pods": _orphan,
    "deployments": _deployment,
    "replicasets": _replica_set,
    "statefulsets": _stateful_set,
    "daemonsets": _daemon_set,
    "jobs": _job,
    "poddisruptionbudgets": _budget,
}
