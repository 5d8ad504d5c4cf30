"""A tenant of the cluster: pod rights in one namespace, with pods that it pins to any node."""

import pytest

from attacks import forgeries
from attacks.forgeries import ESCAPES, LEASES, unsafe
from world.kubernetes.kube_client import MERGE_PATCH

TENANT = "tenant"
PODS = f"/api/v1/namespaces/{TENANT}/pods"


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


@pytest.fixture
def tenant(world, workers):
    return world.kubernetes.tenant(TENANT)


def pin(tenant, node, name, arguments=(), **annotations):
    """The tenant puts a pod on a node, past the scheduler."""
    container = {"name": "main", "image": "example.invalid/image", "args": list(arguments)}
    spec = {"nodeName": node.name, "restartPolicy": "Never", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    tenant.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec})
    return f"{PODS}/{name}"


def test_pods_with_times_that_no_type_can_hold_stop_no_rotation(world):
    """E2. Before: one such pod made the list of its node's pods unreadable. No node with such a pod could be drained, and members
    that the hook held ran out of time with the pods of other tenants."""
    workers, tenant = world.group("workers", size=2, minimum=1, maximum=6), world.kubernetes.tenant(TENANT)
    for number, node in enumerate(workers.nodes):
        pod = pin(tenant, node, f"pinned-{number}", **{"recycle-eks/drain": "evict"})
        forgeries.write_the_end_of_time(tenant, pod)
    workers.nodes[0].deployment("web", replicas=2)
    workers.gets_a_new_template()

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end
    assert set(world.asked_to_go()) == {"pinned", "web"}
    assert world.leftovers() == []


def test_a_pod_that_fits_only_the_old_node_ends_no_rotation_as_rotated(world, workers, tenant):
    """H6. Before: the successor of the tenant's pod stayed Pending, and after an hour the rotation ended `rotated` with one node
    of three recycled."""
    first = workers.nodes[0]
    hostname = {"kubernetes.io/hostname": first.name}
    first.deployment("sticky", namespace=TENANT, node_selector=hostname)
    workers.gets_a_new_template()

    end = world.rotate(at_once=1).finishes()

    group = end.groups["workers"]
    assert (end.error, group["error"], group["recycled"], group["left"]) == ("RotationFailed", ["PodsPending"], 1, 2), end
    assert f"1 pod that this rotation evicted is still Pending: {TENANT}/sticky-" in group["why"][0]
    assert world.rotate(at_once=1, wait_for_pending_pods=False).finishes().outcome == "rotated"


def test_large_pods_leave_a_third_of_the_memory_of_each_function_free(world, workers, tenant):
    """E8. Before: a function held a page of up to 500 pods at once, and Lambda ended it. `make bench` measures 110 pods."""
    node = workers.nodes[0]
    for number in range(40):
        pin(tenant, node, f"large-{number}", ["x" * 1_000_000], **{"recycle-eks/drain": "evict"})
    world.host.become_cold()
    before = len(world.host.samples)

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled", end
    largest = max(world.host.samples[before:], key=lambda sample: sample.vm_hwm_kb)
    memory = min(function["MemorySize"] for function in world.aws.client("lambda").list_functions()["Functions"])
    assert largest.vm_hwm_kb / 1024 < memory * 2 / 3, largest


def test_a_pod_that_demands_to_be_awaited_holds_its_node_to_the_end_of_the_drain_and_is_named(world, workers, tenant):
    """A pod's owner may ask for that. The drain's end bounds it, the pods of other tenants leave meanwhile, and the report names
    it."""
    node = workers.nodes[0]
    pin(tenant, node, "forever", **{"recycle-eks/drain": "wait"})
    node.deployment("web", replicas=2)

    end = world.recycle(node, drain_timeout=900).finishes()

    assert end.error == "DrainTimedOut" and f"{TENANT}/forever" in end.cause
    assert set(world.asked_to_go()) == {"web"}
    assert world.leftovers() == []


def test_an_annotation_of_a_pod_sends_no_terminal_escape_to_an_operator(world, workers, tenant, cli):
    """E6. Before: texts from the cluster reached the terminal as they were."""
    node = workers.nodes[0]
    pin(tenant, node, "odd", **{"recycle-eks/drain": f"wait{ESCAPES}"})
    pin(tenant, node, "held", **{"recycle-eks/drain": "wait"})
    execution = world.recycle(node, drain_timeout=600)
    world.run("5m")

    printed = [cli("status", node.name, pace=0), cli("plan", node.name)]
    end = execution.finishes()

    for each in printed:
        assert unsafe(each.text) == [] and unsafe(each.errors) == [], each
    assert unsafe(end.cause) == []


def test_a_tenant_reaches_neither_leases_nor_nodes_nor_the_pods_of_others(world, workers, tenant):
    """E4. The records of recycle-eks lie where only recycle-eks may write."""
    node = workers.nodes[0]
    web = node.deployment("web").pods()[0]
    change = {"metadata": {"annotations": {"recycle-eks/claim": "mine!", "recycle-eks/drain": "evict"}}}
    attempts = [
        ("PATCH", f"/api/v1/nodes/{node.name}", change),
        ("DELETE", f"/api/v1/nodes/{node.name}", None),
        ("GET", LEASES, None),
        ("POST", LEASES, {"metadata": {"name": node.instance_id}}),
        ("PATCH", f"{LEASES}/{node.instance_id}", change),
        ("DELETE", f"{LEASES}/{node.instance_id}", None),
        ("PATCH", web.path, change),
        ("POST", f"{web.path}/eviction", {"metadata": {"name": web.name}}),
    ]
    for method, path, body in attempts:
        answer = tenant.call(method, path, body, MERGE_PATCH if method == "PATCH" else "application/json")
        assert answer.status == 403, (method, path, answer)
