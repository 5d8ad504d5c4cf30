"""Manifests: of nodes, of pods and what they run by, of claims and volumes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from world.kubernetes.kube_client import Json
from world.kubernetes.kubelet import EXITS_AFTER, IGNORES_SIGTERM, STARTS_AFTER, STUCK

REPLICA_LABEL = "world/workload"
"""The label by which a workload selects its pods. No scenario uses this key for its own labels."""

Taint = Mapping[str, str]
"""`key`, `effect`, and perhaps `value`."""

#: The kubelet version of a node that has the control plane's own version.
KUBELET = "v1.35.4-eks-0000000"

READY = ("True", "KubeletReady", "kubelet is posting ready status")
NOT_READY = ("False", "KubeletNotReady", "container runtime network not ready")
SILENT = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

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


def node_manifest(
    name: str,
    provider_id: str,
    zone: str,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    allocatable: Mapping[str, str],
    ready: bool,
    kubelet: str,
) -> Json:
    """A Node as its kubelet registers it, with its status."""
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "58", **allocatable}
    return {
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
                "topology.kubernetes.io/region": zone[:-1],
                "topology.kubernetes.io/zone": zone,
                **labels,
            },
        },
        "spec": {"providerID": provider_id, "taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {**_NODE_INFO, "kubeletVersion": kubelet},
            "conditions": [ready_condition(READY if ready else NOT_READY)],
        },
    }


def ready_condition(how: tuple[str, str, str]) -> Json:
    """`how`: READY, NOT_READY or SILENT."""
    status, reason, message = how
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }


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


def selected_template(name: str, how: Json) -> Json:
    template = pod_template(**how)
    template["metadata"]["labels"][REPLICA_LABEL] = name
    return {"selector": {"matchLabels": {REPLICA_LABEL: name}}, "template": template}


def claim_manifest(name: str, **spec: Any) -> Json:
    resources = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec},
    }


def volume_manifest(name: str, claim: Json, needs: Json) -> Json:
    """A volume that is bound to a claim; `needs`: which nodes can reach it."""
    namespace, claim_name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            "claimRef": {"namespace": namespace, "name": claim_name, "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [needs]}]}},
        },
    }
