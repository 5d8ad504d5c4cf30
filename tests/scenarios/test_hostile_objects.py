"""Objects that a tenant or a kubelet wrote to harm, on the real API server: none of them hides another one."""

import pytest

from world.kubernetes.kube_client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from world.kubernetes.virtual_times import END_OF_TIME

TENANT = "tenant"


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


def make_unreadable(world, node):
    """A kubelet may register its Node with any taint, and a controller may add one."""
    taint = {"key": "forged", "effect": "PreferNoSchedule", "timeAdded": END_OF_TIME}
    node.kubernetes.patch({"spec": {"taints": [taint]}})
    assert node.kubernetes.object["spec"]["taints"][0]["timeAdded"] == END_OF_TIME


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
    world.at("30m", lambda: progress.update(node.progress))

    execution = world.recycle(node, drain_timeout=3600)
    end = execution.finishes()

    assert execution.answers("CheckPods")[0]["counts"] == {"unreadable": 1, "awaited": 1, "to_completion": 1, "evictable": 2}
    assert progress["names"] == {"unreadable": ["tenant/odd"]}
    assert progress["held"][0].startswith("cannot read pod tenant/odd: status.startTime: ")
    assert end.error == "DrainTimedOut" and "it cannot read 1 pod (tenant/odd)" in end.cause
    assert set(world.asked_to_go()) == {"web"}
    assert pod.exists and world.leftovers() == []


def test_status_prints_commands_only_for_a_node_that_is_certain_and_that_no_execution_works_on(world, cli):
    """A wrong command would end an instance that runs, or break a claim."""
    full = world.group("full", size=2, minimum=1, maximum=2)
    node = full.nodes[0]
    node.job("train", labels={"app": "train"})
    world.at("4m", lambda: full.newest.bare_pod("new"))
    assert world.recycle(node, label_selector="app=train", drain_timeout=300).finishes().error == "LeftInStandby"

    def row():
        (row,) = cli("status", node.instance_id, "--output", "json", pace=0).document["nodes"]
        return row

    assert row()["step"] == "manual" and any("exit-standby" in command for command in row()["commands"])
    genuine = node.kubernetes.object
    spec = {"providerID": genuine["spec"]["providerID"]}
    forged = {"metadata": {"name": "a-forged-one"}, "spec": spec, "status": {"conditions": genuine["status"]["conditions"]}}
    world.kubernetes.must("POST", "/api/v1/nodes", forged)
    assert (row()["step"], row()["commands"]) == ("manual", [])
    world.kubernetes.must("DELETE", "/api/v1/nodes/a-forged-one")
    assert row()["commands"]

    world.recycle(node, label_selector="app=train")
    world.wait("10m")
    assert (row()["step"], row()["commands"]) == ("waiting", [])
    assert not [each for each in cli("doctor", "-o", "json", pace=0).document["findings"] if each["check"] == "restores"]
    assert cli("abort", node.instance_id, "--yes", "--no-wait", pace=0).code == 0
    world.wait("1m")
    world.sweep().finishes()
    make_unreadable(world, node)
    assert (row()["step"], row()["commands"]) == ("manual", [])


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
