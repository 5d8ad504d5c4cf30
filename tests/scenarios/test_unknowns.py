"""The readings of the open questions in AWS's documentation: a node is recycled under each of them or, if no replacement can
come, restored. (The end of another member that AWS chooses as a victim of the disposal is not asserted: nothing protects it
yet.) `make readings` plays them all."""

import pytest


@pytest.mark.reading(
    "terminate_from_standby_launches_extra",
    "exit_standby_trims",
    "enter_standby_at_max_launches",
    "detach_from_standby_kills_another",
    "detach_from_standby_launches_extra",
    "standby_counts_for_zone_balance",
    "terminating_wait_counts",
    "capacity_rebalancing_ends_standby",
)
@pytest.mark.parametrize("maximum", [4, 2])
def test_a_node_is_recycled_under_either_reading(world, maximum):
    workers = world.group("workers", size=2, minimum=1, maximum=maximum)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    world.at("30m", job.finishes)

    end = world.recycle(node, label_selector="app=train").finishes()
    world.run(end.at + 1200)

    assert workers.sizes == (1, 2, maximum)
    if not world.unknowns.enter_standby_at_max_launches and maximum == 2:
        # No replacement comes: no pod is touched, and the node is restored.
        assert end.error == "ReplacementTimedOut"
        assert not world.calls("kubernetes:POST pods/eviction") and workers.states[node.instance_id] == "InService"
    else:
        assert end.outcome == "recycled", end.cause
        assert sorted(workers.states.values()) == ["InService"] * 2


@pytest.mark.reading("capacity_rebalancing_ends_standby")
def test_capacity_rebalancing_may_end_a_spot_node_in_standby(world):
    """No function guards against it. If it happens, the pods are lost and named."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    world.autoscaling.group("workers").capacity_rebalance = True
    node = workers.nodes[0]
    node.becomes_spot()
    job = node.job("train", labels={"app": "train"})
    world.recycle(node, label_selector="app=train", replacement="before")
    world.run("10m")
    assert workers.states[node.instance_id] == "Standby"

    world.autoscaling.recommend_rebalance(node.instance_id)
    if not world.unknowns.capacity_rebalancing_ends_standby:
        world.at("30m", job.finishes)
    world.run("3h")

    ends = [each.finishes() for each in world.executions()]
    if world.unknowns.capacity_rebalancing_ends_standby:
        assert [end for end in ends if end.error == "NodeLost" and "train" in end.cause], ends
    else:
        assert [end for end in ends if end.outcome == "recycled"], ends
        assert not job.exists or job.phase == "Succeeded"
    assert sorted(workers.states.values()) == ["InService"] * 2 and node.instance_id not in workers.states
