"""The replacement counts when pods can run on it: reserved for one node, without startup taints, with the old one's resources."""

import json

import pytest


@pytest.fixture
def workers(world):
    return world.group("workers", size=2, minimum=1, maximum=6)


def replacement_of(world, node, group):
    """The node that was reserved for another."""
    found = [other for other in group.nodes if other.annotations.get("recycle-eks/replacement-for") == node.instance_id]
    assert len(found) == 1, found
    return found[0]


def test_a_startup_taint_is_waited_out_and_one_that_stays_is_named_by_the_failure(world):
    executions = {}
    for takes in ("5m", "2d"):
        group = world.group(f"for-{takes}", size=2, minimum=1, maximum=6)
        group.next_launch(startup_taint="node.cilium.io/agent-not-ready", taint_lasts=takes)
        executions[takes] = (group, world.recycle(group.nodes[0]))

    group, execution = executions["5m"]
    assert execution.finishes().outcome == "recycled"
    assert execution.entered("TaintNode")[0] >= group.newest.ready_at + world.seconds("5m")
    end = executions["2d"][1].finishes()
    assert end.error == "ReplacementTimedOut"
    assert "still has the taint node.cilium.io/agent-not-ready:NoSchedule" in end.cause


def test_devices_of_the_old_node_are_waited_for_whether_a_plugin_or_a_driver_offers_them(world):
    driver = "gpu.example.com"
    rows = {
        "plugin": ("nvidia.com/gpu", lambda node: node.kubernetes.report({"allocatable": {"nvidia.com/gpu": "4"}}), "before"),
        "driver": (driver, lambda node: node.kubernetes.offers_devices(driver), "before"),
        "driver-after": (driver, lambda node: node.kubernetes.offers_devices(driver), "after"),
    }
    executions = {}
    for name, (_, offer, path) in rows.items():
        group = world.group(name, size=2, minimum=1, maximum=4)
        for node in group.nodes:
            offer(node)
        node = group.nodes[0]
        plan = world.recycle(node, dry_run=True).finishes().output["plan"]
        assert any(f"(with {rows[name][0]})" in step for step in plan["steps"]), plan
        executions[name] = world.recycle(node, replacement=path)
        if rows[name][0] == driver:
            # The devices of the old node before its drain count, also if their driver has gone since.
            world.at("90s", lambda node=node: node.exists and node.kubernetes.withdraws_devices(driver))
        world.at("10m", lambda offer=offer, group=group: offer(group.newest))
    world.run("9m")
    for name, (resource, _, _) in rows.items():
        assert f"does not offer {resource} yet" in executions[name].answers("StandbyNode")[-1]["reason"], name

    for name, execution in executions.items():
        end = execution.finishes()
        assert end.outcome == "recycled" and end.at >= 600, name


def test_two_executions_and_a_scale_up_at_once_take_no_node_twice(deployed_world):
    world = deployed_world
    for seed in range(2):
        world.reset(seed=seed)
        workers = world.group("workers", size=3, minimum=1, maximum=8)
        world.host.variables["recycle-eks-claim-node"] = {"MAX_PARALLEL_PER_GROUP": "2"}
        one, two = workers.nodes[:2]
        executions = [world.recycle(node) for node in (one, two)]
        world.run("10s")
        world.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=4)

        ends = [execution.finishes() for execution in executions]

        assert [end.outcome for end in ends] == ["recycled"] * 2, seed
        assert replacement_of(world, one, workers).instance_id != replacement_of(world, two, workers).instance_id, seed
        assert workers.sizes == (1, 4, 8) and sorted(workers.states.values()) == ["InService"] * 4, seed


def test_the_replacement_comes_from_the_warm_pool_or_from_a_launch_that_succeeds_at_last(world, workers):
    warm = world.autoscaling.warm("workers")
    others = world.group("others", size=2, minimum=1, maximum=6)
    world.autoscaling.out_of_capacity("others", times=3)
    node = workers.nodes[0]
    execution, patient = world.recycle(node), world.recycle(others.nodes[0])

    # A reservation is written before the old node is tainted.
    world.clock.run(until=lambda: bool(execution.entered("TaintNode")))
    record = json.loads(node.records["recycle-eks/record"])
    assert record["replacement"] == replacement_of(world, node, workers).instance_id == warm

    end = execution.finishes()
    assert end.outcome == "recycled", end.cause
    assert replacement_of(world, node, workers).instance_id == warm
    assert sorted(workers.states.values()) == ["InService"] * 2
    # A launch that fails is tried again by the group.
    assert patient.finishes().outcome == "recycled"
    assert patient.entered("TaintNode")[0] >= 3 * 60


def test_at_the_maximum_where_nothing_is_launched_the_failure_says_so(world):
    world.unknowns.enter_standby_at_max_launches = False
    workers = world.group("workers", size=2, minimum=1, maximum=2)

    end = world.recycle(workers.nodes[0]).finishes()

    assert end.error == "ReplacementTimedOut"
    assert "no instance was launched" in end.cause
    assert "group workers is at its maximum of 2, where AWS may launch no replacement" in end.cause


def test_the_successor_of_another_member_is_not_enough(world):
    workers = world.group("workers", size=3, minimum=3, maximum=4)
    node, neighbour, _ = workers.nodes
    workers.next_launch(takes="12m")
    execution = world.recycle(node)
    world.at("2m", neighbour.is_terminated_in_the_console)

    assert execution.finishes().outcome == "recycled"
    waited = [answer["reason"] for answer in execution.answers("StandbyNode")]
    assert any("2 of 3 members are usable" in reason for reason in waited), waited
    assert execution.entered("TaintNode")[0] >= world.seconds("12m")
    assert sorted(workers.states.values()) == ["InService"] * 3


def test_a_replacement_that_dies_in_the_drain_is_awaited_again_before_the_end(world):
    replaced, restored, lost = [world.group(name, size=2, minimum=1, maximum=6) for name in ("replaced", "restored", "lost")]
    nodes = [group.nodes[0] for group in (replaced, restored, lost)]
    jobs = [node.job(f"train-{node.group.name}", labels={"app": "train"}) for node in nodes]
    executions = [world.recycle(node, label_selector="app=train") for node in nodes]
    world.run("8m")
    replaced.next_launch(takes="20m")
    for group in (restored, lost):
        group.next_launch(fails="Insufficient capacity")
    for node in nodes:
        replacement_of(world, node, node.group).is_terminated_in_the_console()
    nodes[2].falls_silent()
    for job in jobs[:2]:
        world.at("18m", job.finishes)

    # The node itself is lost, so it goes, although no replacement comes.
    node, end = nodes[2], executions[2].finishes(within="1d")
    assert end.error == "NodeLost"
    assert world.instance(node.instance_id).state == "terminated"

    # Another replacement comes.
    node, execution = nodes[0], executions[0]
    assert execution.finishes(within="1d").outcome == "recycled"
    (end,) = [end for end in world.ends if end.instance_id == node.instance_id]
    assert end.at >= world.seconds("28m") and end.pods == ()
    events = [event["reason"] for event in world.kubernetes.events(node.name)]
    assert "RecycleDisturbed" in events, events
    assert any(
        "its replacement can no longer be used, and 1 of 2 members are usable" in each["reason"]
        for each in execution.answers("DetachTerminate")
    )
    assert sorted(replaced.states.values()) == ["InService"] * 2
    assert world.leftovers(replaced) == []

    # None comes: the drained node is restored.
    node, end = nodes[1], executions[1].finishes(within="1d")
    assert end.error == "ReplacementTimedOut" and "1 of 2 members are usable" in end.cause
    assert restored.states[node.instance_id] == "InService" and not node.unschedulable
    assert [each.instance_id for each in world.ends if each.instance_id == node.instance_id] == []
