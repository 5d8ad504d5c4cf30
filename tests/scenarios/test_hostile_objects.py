"""Objects that a tenant or a kubelet wrote to harm, on the real API server: none of them hides another one."""

import json

import pytest

from world.kubernetes.kube_client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, KubeClient
from world.kubernetes.virtual_times import END_OF_TIME

TENANT = "tenant"
FORGED = {
    "manager": "forger",
    "operation": "Update",
    "apiVersion": "v1",
    "time": END_OF_TIME,
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:forged": {}}}},
}
#: deeper than the functions' JSON parser goes by default (128), and not deeper than that of the local world's proxy (254)
LEVELS = 200


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


@pytest.fixture
def tenant(world, workers):
    """A user who may work with pods in one namespace, and nowhere else."""
    # The namespace comes with its first pod, and stays from one scenario to the next.
    workers.nodes[0].bare_pod("first", namespace=TENANT).deleted()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "patch"]}]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": TENANT}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}"
    for resource, body in (("roles", {"rules": rules}), ("rolebindings", {"subjects": [subject], "roleRef": role})):
        answer = world.kubernetes.call("POST", f"{rbac}/{resource}", {"metadata": {"name": "pods"}, **body})
        assert answer.status in (201, 409), answer
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    accounts = f"/api/v1/namespaces/{TENANT}/serviceaccounts"
    token = world.kubernetes.must("POST", f"{accounts}/default/token", request)["status"]["token"]
    plane = world.kubernetes.control_plane
    return KubeClient(plane.api_port, plane.authority.file, token=token)


def forge(client, path):
    """A client claims that another one wrote a label of the object at the end of time."""
    client.patch(path, {"metadata": {"labels": {"forged": "yes"}}})
    entries = client.get(path)["metadata"]["managedFields"]
    for entry in entries:
        entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {}).pop("f:forged", None)
    nested: dict = {}
    for _ in range(LEVELS):
        nested = {"f:forged": nested}
    deep = {**FORGED, "manager": "digger", "fieldsV1": {"f:spec": nested}}
    forged = client.patch(path, {"metadata": {"managedFields": [*entries, FORGED, deep]}})
    assert any(len(json.dumps(entry)) > LEVELS * 10 for entry in forged["metadata"]["managedFields"])
    assert END_OF_TIME in [entry["time"] for entry in forged["metadata"]["managedFields"]]


def pin(tenant, node, name, **annotations):
    """The tenant puts a pod on a node, past the scheduler."""
    container = {"name": "main", "image": "example.invalid/image"}
    spec = {"nodeName": node.name, "restartPolicy": "Never", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    pods = f"/api/v1/namespaces/{TENANT}/pods"
    tenant.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec})
    forge(tenant, f"{pods}/{name}")
    return f"{pods}/{name}"


def make_unreadable(world, node):
    """A kubelet may register its Node with any taint, and a controller may add one."""
    taint = {"key": "forged", "effect": "PreferNoSchedule", "timeAdded": END_OF_TIME}
    node.kubernetes.patch({"spec": {"taints": [taint]}})
    assert node.kubernetes.object["spec"]["taints"][0]["timeAdded"] == END_OF_TIME


def progress_of(node):
    return json.loads(node.annotations["recycle-eks/progress"])


def asked_to_go(world):
    return {call.parameters["name"].split("-")[0] for call in world.calls("kubernetes:POST pods/eviction")}


def test_tenants_and_kubelets_that_claim_the_end_of_time_stop_no_rotation(world, workers, tenant):
    for number, node in enumerate(workers.nodes):
        pin(tenant, node, f"pinned-{number}", **{"recycle-eks/drain": "evict"})
        forge(world.kubernetes.client, f"/api/v1/nodes/{node.name}")
        pressure = {"type": "DiskPressure", "status": "False", "lastTransitionTime": END_OF_TIME}
        node.kubernetes.report({"conditions": [pressure]})
    workers.nodes[0].deployment("web", replicas=2)
    workers.gets_a_new_template()

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end
    assert asked_to_go(world) == {"pinned", "web"}
    assert world.leftovers() == []


def test_a_pod_that_cannot_be_read_is_named_and_holds_its_node_to_the_end_of_the_drain(world, workers):
    node = workers.nodes[0]
    node.deployment("web", replicas=2)
    pod = node.bare_pod("odd", namespace=TENANT, restart_policy="Never")
    job = node.job("train")
    world.run("10s")
    status = {"status": {"startTime": END_OF_TIME}}
    world.kubernetes.must("PATCH", f"{pod.path}/status", status, STRATEGIC_MERGE_PATCH)
    world.at("10m", job.finishes)
    progress = {}
    world.at("30m", lambda: progress.update(progress_of(node)))

    execution = world.recycle(node, drain_timeout=3600)
    end = execution.finishes()

    assert execution.answers("CheckPods")[0]["counts"] == {"unreadable": 1, "awaited": 1, "to_completion": 1, "evictable": 2}
    assert progress["names"] == {"unreadable": ["tenant/odd"]}
    assert progress["held"][0].startswith("cannot read pod tenant/odd: status.startTime: ")
    assert end.error == "DrainTimedOut" and "it cannot read 1 pod (tenant/odd)" in end.cause
    assert asked_to_go(world) == {"web"}
    assert pod.exists and world.leftovers() == []


def test_a_node_that_cannot_be_read_hides_no_other_from_the_sweep_or_a_rotation(world, workers):
    other = world.group("other", size=1).nodes[0]
    make_unreadable(world, other)
    stopped = world.recycle(workers.nodes[0])
    world.clock.run(until=lambda: bool(stopped.entered("CheckPods")), limit=86_400)
    stopped.stop()
    named = f"cannot read 1 Node: {other.name} (spec.taints.0.timeAdded: "

    swept = world.sweep()

    assert swept.finishes().status == "SUCCEEDED"
    assert workers.nodes[0].group.states[workers.nodes[0].instance_id] == "InService"
    assert named in swept.answers("SelectNodes")[0]["reason"]
    assert world.leftovers(workers) == []

    workers.gets_a_new_template()
    assert world.rotate().finishes().outcome == "rotated"
    assert world.leftovers(workers) == []

    end = world.recycle(other).finishes()
    assert end.status == "FAILED" and f"cannot read Node {other.name}: spec.taints.0.timeAdded: " in end.cause
    world.kubernetes.must("PATCH", f"/api/v1/nodes/{other.name}", {"spec": {"taints": None}}, MERGE_PATCH)
    assert world.recycle(other).finishes().outcome == "recycled"
