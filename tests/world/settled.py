"""Whether the controllers and the scheduler have nothing left to do, and if not, what.

Each rule compares what a controller says (`status`) and did (pods) with what it is going to say and do. They follow the
controllers' own code (pkg/controller/... of Kubernetes 1.35); the texts are what a test shows when the cluster does not settle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from . import scheduling
from .cluster_state import ClusterState
from .kube_client import Json

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"


def unfinished_business(state: ClusterState) -> list[str]:
    """What is still going to change by itself; empty if the cluster is settled."""
    view = _View(state)
    return [
        *_namespaces(view),
        *_nodes(view),
        *_placement(view),
        *_orphans(view),
        *_deployments(view),
        *_replica_sets(view),
        *_stateful_sets(view),
        *_daemon_sets(view),
        *_jobs(view),
        *_budgets(view),
    ]


def jobs_with_uncounted_pods(state: ClusterState) -> list[Json]:
    """Jobs whose controller has yet to take note of an ended pod, which it does a real second later unless the Job's own
    specification changes (`syncJobBatchPeriod` in pkg/controller/job)."""
    view = _View(state)
    return [job for job in state.all("jobs") if any(_is_uncounted(pod) for pod in view.pods_of(job))]


def has_unpredictable_pods(state: ClusterState) -> bool:
    """Whether a pod waits for a place under rules that `scheduling.py` does not know: only time tells that it gets none."""
    return any(
        not pod["spec"].get("nodeName") and not is_terminating(pod) and not scheduling.knows_all_rules_of(pod)
        for pod in state.all("pods")
    )


# -- small readings of objects, used by the kubelet and the scenario's handles too ---------------------------------


def condition(thing: Json, kind: str) -> str | None:
    """The status of a condition: "True", "False", "Unknown", or None if there is none of that type."""
    for each in (thing.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return each["status"]
    return None


def is_ready(thing: Json) -> bool:
    """Whether a pod or node says that it is Ready."""
    return condition(thing, "Ready") == "True"


def is_finished(pod: Json) -> bool:
    """Whether the pod came to its end."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_terminating(thing: Json) -> bool:
    """Whether the object's deletion was asked for."""
    return bool(thing["metadata"].get("deletionTimestamp"))


def controller_of(thing: Json) -> Json | None:
    """The owner reference of the controller."""
    for owner in thing["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    return None


def name_of(thing: Json) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    metadata = thing["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


# -- the rules -----------------------------------------------------------------------------------------------------


class _View:
    """One look at the cluster, with the pods sorted by where they are and whose they are."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.nodes = state.all("nodes")
        self.pods = state.all("pods")
        self.on_node: dict[str, list[Json]] = defaultdict(list)
        self.of_controller: dict[str, list[Json]] = defaultdict(list)
        for pod in self.pods:
            if pod["spec"].get("nodeName"):
                self.on_node[pod["spec"]["nodeName"]].append(pod)
            owner = controller_of(pod)
            if owner:
                self.of_controller[owner["uid"]].append(pod)

    def pods_of(self, owner: Json) -> list[Json]:
        return self.of_controller[owner["metadata"]["uid"]]


def _namespaces(view: _View) -> Iterator[str]:
    for namespace in view.state.all("namespaces"):
        name = namespace["metadata"]["name"]
        if not is_terminating(namespace) and view.state.get("serviceaccounts", "default", name) is None:
            yield f"namespace {name} has no default service account yet"


def _nodes(view: _View) -> Iterator[str]:
    some_node_is_ready = any(is_ready(node) for node in view.nodes)
    for node in view.nodes:
        name = node["metadata"]["name"]
        present = {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}
        expected = set()
        if node["spec"].get("unschedulable"):
            expected.add((scheduling.UNSCHEDULABLE_TAINT, scheduling.NO_SCHEDULE))
        ready = condition(node, "Ready")
        if ready != "True":
            key = NOT_READY_TAINT if ready == "False" else UNREACHABLE_TAINT
            expected.add((key, scheduling.NO_SCHEDULE))
            # Where no node at all is ready, the controller takes it for a failure of its own and evicts nothing.
            if some_node_is_ready:
                expected.add((key, scheduling.NO_EXECUTE))
        ours = {taint for taint in present if taint[0] in _TAINTS_OF_THE_CONTROLLER}
        if not some_node_is_ready:
            ours = {taint for taint in ours if taint[1] != scheduling.NO_EXECUTE}
        if ours != expected:
            yield f"node {name} has the taints {sorted(ours)} and should have {sorted(expected)}"


_TAINTS_OF_THE_CONTROLLER = (NOT_READY_TAINT, UNREACHABLE_TAINT, scheduling.UNSCHEDULABLE_TAINT)


def _placement(view: _View) -> Iterator[str]:
    for pod in view.pods:
        if pod["spec"].get("nodeName") or is_terminating(pod) or is_finished(pod) or pod["spec"].get("schedulingGates"):
            continue
        if condition(pod, "PodScheduled") != "False":
            yield f"pod {name_of(pod)} was not looked at by the scheduler yet"
        elif scheduling.knows_all_rules_of(pod):
            for node in view.nodes:
                on_node = view.on_node[node["metadata"]["name"]]
                if scheduling.fits(pod, node, on_node) and scheduling.reaches_volumes(pod, node, view.state.volume_of):
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


def _orphans(view: _View) -> Iterator[str]:
    for thing in [*view.pods, *view.state.all("replicasets")]:
        owner = controller_of(thing)
        if owner is None or is_terminating(thing) or owner["kind"] not in _OWNERS or owner["kind"] == "Node":
            continue
        found = view.state.get(_OWNERS[owner["kind"]], owner["name"], thing["metadata"]["namespace"])
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            yield f"{name_of(thing)} outlived its {owner['kind']}"


def _deployments(view: _View) -> Iterator[str]:
    replica_sets = defaultdict(list)
    for replica_set in view.state.all("replicasets"):
        owner = controller_of(replica_set)
        if owner:
            replica_sets[owner["uid"]].append(replica_set)
    for deployment in view.state.all("deployments"):
        status = deployment["status"]
        sets = replica_sets[deployment["metadata"]["uid"]]
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


def _replica_sets(view: _View) -> Iterator[str]:
    for replica_set in view.state.all("replicasets"):
        if is_terminating(replica_set):
            continue
        status = replica_set["status"]
        live = [pod for pod in view.pods_of(replica_set) if not is_finished(pod) and not is_terminating(pod)]
        ready = sum(1 for pod in live if is_ready(pod))
        if not _observed(replica_set) or len(live) != replica_set["spec"]["replicas"]:
            yield f"replica set {name_of(replica_set)} wants {replica_set['spec']['replicas']} pods and has {len(live)}"
        elif (status.get("replicas", 0), status.get("readyReplicas", 0)) != (len(live), ready):
            yield f"replica set {name_of(replica_set)} does not know yet that it has {len(live)} pods, {ready} ready"


def _stateful_sets(view: _View) -> Iterator[str]:
    for stateful_set in view.state.all("statefulsets"):
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


def _daemon_sets(view: _View) -> Iterator[str]:
    for daemon_set in view.state.all("daemonsets"):
        if not _observed(daemon_set):
            yield f"daemon set {name_of(daemon_set)} was not looked at yet"
        on_nodes = {_node_of_daemon_pod(pod) for pod in view.pods_of(daemon_set) if not is_finished(pod)}
        for pod in view.pods_of(daemon_set):
            if is_finished(pod) and not is_terminating(pod):
                yield f"daemon set {name_of(daemon_set)} has the ended pod {name_of(pod)} to replace"
        for node in view.nodes:
            name = node["metadata"]["name"]
            if name not in on_nodes and scheduling.should_run_daemon_pod(daemon_set, node):
                yield f"daemon set {name_of(daemon_set)} has no pod on node {name} yet"


def _node_of_daemon_pod(pod: Json) -> str | None:
    """Where it runs, or is meant to: the controller writes the node's name into the pod's affinity."""
    if pod["spec"].get("nodeName"):
        return pod["spec"]["nodeName"]
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return field["values"][0]
    return None


def _jobs(view: _View) -> Iterator[str]:
    for job in view.state.all("jobs"):
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


def _budgets(view: _View) -> Iterator[str]:
    for budget in view.state.all("poddisruptionbudgets"):
        namespace = budget["metadata"]["namespace"]
        pods = [
            pod
            for pod in view.pods
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
    """As the disruption controller counts (getExpectedPodCount): a number of pods that must be healthy counts the pods there
    are; a percentage, or a number that may be missing, counts the pods that their controllers want."""
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
