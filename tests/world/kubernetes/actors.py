"""Clients of the API server with few rights: a kubelet's and a tenant's. The real authorizers and NodeRestriction judge them."""

from __future__ import annotations

import time

from world.kubernetes.applying import apply
from world.kubernetes.control_plane import ControlPlane
from world.kubernetes.kube_client import KubeClient
from world.kubernetes.settled import NotSettled

_TENANT = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: tenant, namespace: {namespace}}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [create, get, patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: tenant, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: {namespace}}}
"""


def kubelet_of(plane: ControlPlane, node: str) -> KubeClient:
    """The client of a node's kubelet: the user `system:node:NAME` in the group `system:nodes`."""
    certificate = plane.authority.issue(f"system:node:{node}", organization="system:nodes")
    return KubeClient(plane.api_port, plane.authority.file, certificate)


def tenant_of(plane: ControlPlane, namespace: str, limit: float) -> KubeClient:
    """The client of a user who may create, read and change the pods of one namespace, and nothing else. `limit` is the number of
    real seconds until these rights must be in force."""
    apply(plane.client(), _TENANT.format(namespace=namespace), limit)
    client = KubeClient(plane.api_port, plane.authority.file, plane.authority.issue(namespace))
    deadline = time.monotonic() + limit
    while client.call("GET", f"/api/v1/namespaces/{namespace}/pods/none").status == 403:
        if time.monotonic() > deadline:
            raise NotSettled(f"the user {namespace} may not read a pod in its namespace")
        time.sleep(0.005)
    return client
