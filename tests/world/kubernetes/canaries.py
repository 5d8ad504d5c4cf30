"""Objects that show whether the controllers have caught up.

When a scenario's objects are erased, the controllers learn of it a few milliseconds later, each kind by a watch of its own. If a
new scenario uses the same names before that, it meets the state of the old one (for example, a controller assumes that a
Deployment has pods already). So after erasing, one object of each kind is created. A controller that has handled its object has
also seen the erasure.
"""

from __future__ import annotations

from world.kubernetes.kube_client import Json, KubeClient

NAMESPACE = "world-canaries"

_ROLLOUT: Json = {
    "selector": {"matchLabels": {"canary": "none"}},
    "template": {
        "metadata": {"labels": {"canary": "none"}},
        "spec": {
            "containers": [{"name": "main", "image": "example.invalid/none"}],
            "nodeSelector": {"canary": "nowhere"},
        },
    },
}


def create(client: KubeClient, generation: int) -> None:
    """One set of canaries. `generation` must differ from all before: their names must be new ones."""
    name = f"canary-{generation}"
    client.create("/api/v1/nodes", _cordoned_node(name))
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "1"}}
    client.patch(f"/api/v1/nodes/{name}/status", {"status": ready})
    for path, kind, spec in (
        ("/apis/apps/v1", "Deployment", {"replicas": 0, **_ROLLOUT}),
        ("/apis/apps/v1", "StatefulSet", {"replicas": 0, "serviceName": name, **_ROLLOUT}),
        ("/apis/apps/v1", "DaemonSet", _ROLLOUT),
        ("/apis/batch/v1", "Job", _suspended_job()),
        # It reports a healthy pod once the scheduler has placed the pod below and the kubelet has started it.
        ("/apis/policy/v1", "PodDisruptionBudget", {"minAvailable": 1, "selector": {"matchLabels": {"canary": name}}}),
    ):
        collection = f"{path}/namespaces/{NAMESPACE}/{kind.lower()}s"
        manifest = {"apiVersion": path.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec}
        client.create(collection, manifest)
    # Last, so that the scheduler knows the node by then: a pod that it could not place is tried again a second later.
    client.create(f"/api/v1/namespaces/{NAMESPACE}/pods", _pod(name))


def _suspended_job() -> Json:
    template = {"spec": {**_ROLLOUT["template"]["spec"], "restartPolicy": "Never"}}
    return {"suspend": True, "template": template}


def _pod(name: str) -> Json:
    spec = {
        **_ROLLOUT["template"]["spec"],
        "nodeSelector": {"canary": name},
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": name, "labels": {"canary": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _cordoned_node(name: str) -> Json:
    """Cordoned, so that the node controller has a taint to add."""
    metadata = {"name": name, "labels": {"canary": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}}
