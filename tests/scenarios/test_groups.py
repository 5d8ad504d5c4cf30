"""Groups of every shape, and replacements that are slow, missing or not usable."""

import pytest


@pytest.mark.parametrize(
    ("minimum", "size", "maximum"),
    [(3, 3, 3), (1, 3, 3), (1, 3, 6), (1, 1, 1)],
    ids=["min=desired=max", "at max", "room", "one node"],
)
def test_a_group_of_any_size_is_as_large_afterwards(world, minimum, size, maximum):
    workers = world.group("workers", size=size, minimum=minimum, maximum=maximum)
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2)

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled"
    assert workers.sizes == (minimum, size, maximum)
    assert sorted(workers.states.values()) == ["InService"] * size
    assert node.instance_id not in workers.states
    assert len(web.running_pods()) == 2


def test_a_group_of_three_zones_is_recycled(world):
    zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    workers = world.group("workers", size=3, minimum=1, maximum=6, zones=zones)

    ends = [world.recycle(node).finishes() for node in list(workers.nodes)]

    assert [end.outcome for end in ends] == ["recycled"] * 3
    assert sorted(workers.states.values()) == ["InService"] * 3


def test_a_slow_replacement_is_waited_for_and_nothing_is_tainted_before(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    workers.next_launch(takes="10m")
    execution = world.recycle(node)

    world.run("9m")
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
    end = execution.finishes()

    assert end.outcome == "recycled"
    assert execution.entered("TaintNode")[0] >= 600


@pytest.mark.parametrize(
    "failure",
    [{"fails": "Insufficient capacity"}, {"never_registers": True}, {"never_ready": True}],
    ids=lambda failure: next(iter(failure)),
)
def test_without_a_usable_replacement_no_pod_is_touched(world, failure):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    workers.next_launch(**failure)

    execution = world.recycle(node, label_selector="app=train")
    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut")
    assert 840 <= execution.entered("RestoreNode")[0] <= 840 + 60
    assert job.phase == "Running"
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert not world.calls("kubernetes:POST pods/eviction")
    assert workers.sizes == (1, 2, 3) and workers.states[node.instance_id] == "InService"


def test_a_startup_taint_on_the_replacement_is_waited_out(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    workers.next_launch(startup_taint="node.cilium.io/agent-not-ready", taint_lasts="5m")
    execution = world.recycle(node)

    end = execution.finishes()

    assert end.outcome == "recycled"
    assert execution.entered("TaintNode")[0] >= workers.newest.ready_at + 300


def test_dispose_stop_leaves_a_stopped_instance_in_standby_and_a_node_that_says_so(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]

    end = world.recycle(node, dispose="stop").finishes()

    assert end.outcome == "recycled"
    assert world.instance(node.instance_id).state == "stopped"
    assert workers.states[node.instance_id] == "Standby"
    assert list(workers.states.values()).count("InService") == 2
    assert node.has_taint("recycle-eks/stopped") and node.unschedulable
    tags = world.instance(node.instance_id).tags
    assert "recycle-eks:stopped" in tags and "recycle-eks:claim" not in tags


def test_the_nodes_of_a_mixed_group_are_recycled_and_rotated_by_the_template_of_its_policy(world):
    workers = world.group("workers", size=2, maximum=4, instance_types=["m7i.2xlarge", "m7i.4xlarge"])
    workers.next_launch(instance_type="m7i.4xlarge")
    assert world.recycle(workers.nodes[0]).finishes().outcome == "recycled"
    types = [workers.machine(instance).instance_type for instance in workers.instances]
    assert sorted(types) == ["m7i.2xlarge", "m7i.4xlarge"]
    assert world.rotate().finishes().outcome == "nothing_selected"

    workers.gets_a_new_template()
    end = world.rotate().finishes()

    assert end.outcome == "rotated" and [each["recycled"] for each in end.output["groups"]] == [2], end.output
    assert sorted(workers.states.values()) == ["InService"] * 2
