"""One control plane for all tests of the world that need one; each test finds it empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from world.clock import Clock
from world.kubernetes import Kubernetes

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
"""What a drain needs, and no more. The product's own manifest is tested where it is written."""


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[tuple[Kubernetes, Clock]]:
    clock = Clock()
    kubernetes = Kubernetes(clock)
    kubernetes.start()
    kubernetes.apply(ROLE)
    clock.before_jump.append(kubernetes.settle)
    yield kubernetes, clock
    kubernetes.stop()


@pytest.fixture
def kubernetes(started_cluster: tuple[Kubernetes, Clock], clock: Clock) -> Kubernetes:
    return started_cluster[0]


@pytest.fixture
def clock(started_cluster: tuple[Kubernetes, Clock]) -> Clock:
    kubernetes, clock = started_cluster
    clock.reset()
    kubernetes.proxy.plan.clear()
    kubernetes.reset()
    return clock
