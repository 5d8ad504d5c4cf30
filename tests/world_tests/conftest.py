"""One control plane for all tests of the world that need one; each test finds it empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from world.base.clock import Clock
from world.kubernetes.cluster import Kubernetes
from world_tests.moto_region import moto_endpoint, region  # noqa: F401 (fixtures)
from world_tests.state_machines import sfn  # noqa: F401 (a fixture)

ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: recycle-eks}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, patch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: recycle-eks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: recycle-eks}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: recycle-eks}
"""
"""The permissions of a drain, and no others. Other tests check the product's own manifest."""


@pytest.fixture(scope="session")
def started_kubernetes() -> Iterator[Kubernetes]:
    kubernetes = Kubernetes(Clock())
    kubernetes.start()
    kubernetes.apply(ROLE)
    kubernetes.clock.before_jump.append(kubernetes.settle)
    yield kubernetes
    kubernetes.stop()


@pytest.fixture
def kubernetes(started_kubernetes: Kubernetes) -> Kubernetes:
    """An empty cluster at virtual second 0."""
    started_kubernetes.clock.reset()
    started_kubernetes.proxy.plan.clear()
    started_kubernetes.reset()
    return started_kubernetes
