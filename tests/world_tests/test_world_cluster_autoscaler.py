"""Cluster Autoscaler, as it takes nodes away."""

import pytest

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


def test_an_unneeded_node_goes_after_ten_minutes_and_its_place_with_it(world, workers):
    first, second, third = workers.nodes
    first.bare_pod("busy")
    second.daemon_set("logs")
    second.annotate(DISABLED, "true")
    autoscaler = world.cluster_autoscaler()

    world.run("10m")
    assert autoscaler.removed == {}
    world.clock.run(until=lambda: bool(autoscaler.removed), limit=world.seconds("12m"))

    assert autoscaler.removed == {third.instance_id: "unneeded"}
    assert third.has_taint("ToBeDeletedByClusterAutoscaler")
    assert workers.sizes == (1, 2, 6)


@pytest.mark.parametrize("value", ["false", None])
def test_only_the_value_true_keeps_a_node(world, workers, value):
    for other in workers.nodes[1:]:
        other.bare_pod(f"busy-{other.instance_id}")
    workers.nodes[0].annotate(DISABLED, value)
    autoscaler = world.cluster_autoscaler()
    world.run("15m")
    assert list(autoscaler.removed) == list(workers.nodes_seen)[:1]


def test_a_group_at_its_minimum_keeps_its_nodes(world):
    workers = world.group("workers", size=2, minimum=2, maximum=6)
    autoscaler = world.cluster_autoscaler()
    world.run("1h")
    assert autoscaler.removed == {} and workers.sizes == (2, 2, 6)


def test_an_instance_that_does_not_register_goes_after_fifteen_minutes(world, workers):
    for node in workers.nodes:
        node.bare_pod(f"busy-{node.instance_id}")
    workers.next_launch(never_registers=True)
    world.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=4)
    (new,) = set(workers.states) - {node.instance_id for node in workers.nodes}
    autoscaler = world.cluster_autoscaler()
    world.run("15m")
    assert autoscaler.removed == {}
    world.run("17m")
    assert autoscaler.removed == {new: "unregistered"} and workers.sizes == (1, 3, 6)


def test_a_node_in_standby_is_a_node_like_others(world, workers):
    first, *others = workers.nodes
    for node in others:
        node.bare_pod(f"busy-{node.instance_id}")
    world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName="workers", InstanceIds=[first.instance_id], ShouldDecrementDesiredCapacity=True
    )
    autoscaler = world.cluster_autoscaler()
    world.run("15m")
    assert autoscaler.removed == {first.instance_id: "unneeded"}
    assert workers.sizes == (1, 1, 6), "and the group gets smaller for one that did not count"
