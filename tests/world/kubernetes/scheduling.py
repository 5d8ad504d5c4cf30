"""The part of the scheduler's rules that distinguishes "not yet placed" from "cannot be placed".

The real scheduler decides. With these rules the world knows that there is nothing left to wait for. Modelled: readiness,
cordon, taints, node selector, required node affinity, the topology of volumes, requests for resources, the number of pods. Not
modelled: affinity between pods, topology spread, host ports; `knows_all_rules_of` finds the pods for which that matters.
"""

from __future__ import annotations

import fractions
from collections.abc import Callable, Iterable

from world.kubernetes.kube_client import Json

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


def fits(pod: Json, node: Json, pods_on_node: Iterable[Json]) -> bool:
    """Checks whether the scheduler could place the pod on the node now."""
    return (
        not node["spec"].get("unschedulable")
        and not node["metadata"].get("deletionTimestamp")
        and not untolerated_taints(node, pod["spec"], (NO_SCHEDULE, NO_EXECUTE))
        and matches_node(pod["spec"], node)
        and _has_room(pod, node, pods_on_node)
    )


def knows_all_rules_of(pod: Json) -> bool:
    """False for a pod whose placement also depends on rules that are not modelled here."""
    affinity = pod["spec"].get("affinity") or {}
    spread = pod["spec"].get("topologySpreadConstraints") or ()
    return not (
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or any(constraint.get("whenUnsatisfiable") == "DoNotSchedule" for constraint in spread)
    )


def reaches_volumes(pod: Json, node: Json, volume_of: Callable[[str, str], Json | None]) -> bool:
    """Checks whether the node can use all volumes of the pod. `volume_of` gives the volume of a claim (namespace, name). An
    unbound claim keeps the pod away from every node, because the world provisions no volumes."""
    labels, name = node["metadata"].get("labels") or {}, node["metadata"]["name"]
    for each in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" not in each:
            continue
        volume = volume_of(pod["metadata"]["namespace"], each["persistentVolumeClaim"]["claimName"])
        required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
        if volume is None or (required and not any(_matches_term(term, labels, name) for term in required["nodeSelectorTerms"])):
            return False
    return True


def should_run_daemon_pod(daemon_set: Json, node: Json) -> bool:
    """Checks whether the DaemonSet controller puts a pod of the set on the node."""
    template = daemon_set["spec"]["template"]["spec"]
    tolerations = [*(template.get("tolerations") or ()), *_TOLERATIONS_OF_DAEMON_PODS]
    spec = {**template, "tolerations": tolerations}
    return matches_node(spec, node) and not untolerated_taints(node, spec, (NO_SCHEDULE, NO_EXECUTE))


_TOLERATIONS_OF_DAEMON_PODS = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": NO_EXECUTE},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": NO_EXECUTE},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": NO_SCHEDULE},
]
"""Returns the tolerations that the DaemonSet controller adds (pkg/controller/daemon/util/daemonset_util.go)."""


def untolerated_taints(node: Json, pod_spec: Json, effects: tuple[str, ...]) -> list[Json]:
    """The node's taints with one of the effects that the pod does not tolerate."""
    tolerations = pod_spec.get("tolerations") or ()
    return [
        taint
        for taint in node["spec"].get("taints") or ()
        if taint["effect"] in effects and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


def tolerates(toleration: Json, taint: Json) -> bool:
    """Checks whether one toleration covers one taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def matches_node(pod_spec: Json, node: Json) -> bool:
    """Checks whether node selector and required node affinity allow the node."""
    labels = node["metadata"].get("labels") or {}
    selector = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_matches_term(term, labels, node["metadata"]["name"]) for term in required["nodeSelectorTerms"])


def _matches_term(term: Json, labels: dict[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    by_label = all(matches_expression(expression, labels) for expression in expressions)
    by_name = all(matches_expression(field, {"metadata.name": name}) for field in fields)
    return by_label and by_name


def matches_expression(expression: Json, labels: dict[str, str]) -> bool:
    """Checks one requirement of a selector. The numeric operators are refused, because they are not used here."""
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    raise NotImplementedError(f"the world does not know the selector operator {operator}")


def matches_selector(selector: Json | None, labels: dict[str, str]) -> bool:
    """A LabelSelector as controllers and budgets have it; an empty one matches everything, a missing one nothing."""
    if selector is None:
        return False
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        matches_expression(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _has_room(pod: Json, node: Json, pods_on_node: Iterable[Json]) -> bool:
    allocatable = node["status"].get("allocatable") or {}
    present = [other for other in pods_on_node if other["status"].get("phase") not in ("Succeeded", "Failed")]
    if len(present) >= int(allocatable.get("pods", 0)):
        return False
    for resource, wanted in requests(pod).items():
        used = sum((requests(other).get(resource, _NOTHING) for other in present), _NOTHING)
        if used + wanted > quantity(allocatable.get(resource, "0")):
            return False
    return True


def requests(pod: Json) -> dict[str, fractions.Fraction]:
    """Returns the sum of the resource requests of the pod's containers."""
    total: dict[str, fractions.Fraction] = {}
    for container in pod["spec"].get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[resource] = total.get(resource, _NOTHING) + quantity(amount)
    return total


_NOTHING = fractions.Fraction(0)

_SUFFIXES = {
    "m": fractions.Fraction(1, 1000),
    "k": fractions.Fraction(10**3),
    "M": fractions.Fraction(10**6),
    "G": fractions.Fraction(10**9),
    "T": fractions.Fraction(10**12),
    "Ki": fractions.Fraction(2**10),
    "Mi": fractions.Fraction(2**20),
    "Gi": fractions.Fraction(2**30),
    "Ti": fractions.Fraction(2**40),
}


def quantity(text: str | int) -> fractions.Fraction:
    """A Kubernetes quantity as an exact number: `500m`, `32Gi`, `2`."""
    text = str(text)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return fractions.Fraction(text.removesuffix(suffix)) * _SUFFIXES[suffix]
    return fractions.Fraction(text)
