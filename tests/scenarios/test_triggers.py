"""Triggers that recycle nodes, each from the event that AWS sends: alarms, Spot, any other event."""

import json

import pytest


@pytest.fixture
def workers(world):
    return world.group("workers", size=2, minimum=1, maximum=5)


def put_event(world, source, detail_type, detail):
    entry = {"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail)}
    world.aws.client("events").put_events(Entries=[entry])


def rotation(world):
    """The end of the only rotation."""
    world.clock.run(until=lambda: world.executions("rotate-nodes"), limit=world.clock.elapsed() + 60)
    (execution,) = world.executions("rotate-nodes")
    return execution.finishes()


def inputs(world):
    return [json.loads(world.engine.execution(execution.arn).input_text) for execution in world.executions()]


def test_an_alarm_recycles_one_node_once_however_it_flaps(world, workers):
    """One alarm names a node, and the other one a group, whose oldest node is recycled."""
    others = world.group("others", size=2, minimum=1, maximum=5)
    node, oldest = (min(group.nodes, key=lambda node: node.instance_id) for group in (workers, others))
    world.alarm("node-cpu", InstanceId=node.instance_id)
    world.alarm("busy", AutoScalingGroupName="others")

    for state in ("ALARM", "OK", "ALARM"):
        for name in ("node-cpu", "busy"):
            world.turn_alarm(name, state)
        world.wait("5m")

    ends = [execution.finishes() for execution in world.executions("rotate-nodes")]
    assert [end.outcome for end in ends] == ["started"] * 2 + ["nothing_selected"] * 2
    reasons = [end.output["reason"] for end in ends[2:]]
    for why in ("is terminated", "group others is cooling down"):
        assert [why in reason for reason in reasons].count(True) == 1, reasons
    recyclings = world.executions()
    assert [execution.finishes().outcome for execution in recyclings] == ["recycled"] * 2
    assert {each["instance_id"] for each in inputs(world)} == {node.instance_id, oldest.instance_id}


def test_a_spike_at_night_gets_a_new_node_and_keeps_the_old_one_for_the_investigation(world, workers):
    """It is detached or, in the other group, stopped."""
    others = world.group("others", size=2, minimum=1, maximum=5)
    kept = {}
    for name, group, state in (("busy", workers, "running"), ("busy-stop", others, "stopped")):
        oldest = min(group.nodes, key=lambda node: node.instance_id)
        job = oldest.job(f"train-{group.name}", labels={"app": "train"})
        world.alarm(name, AutoScalingGroupName=group.name)
        world.at("30m", job.finishes)
        world.turn_alarm(name, "ALARM")
        kept[oldest.instance_id] = group, job, state

    world.clock.run(until=lambda: len(world.executions("rotate-nodes")) == 2, limit=world.clock.elapsed() + 60)
    assert [execution.finishes().outcome for execution in world.executions("rotate-nodes")] == ["started"] * 2
    ends = [execution.finishes() for execution in world.executions()]
    assert [end.outcome for end in ends] == ["recycled"] * 2 and all(end.at > 1800 for end in ends)
    assert {each["instance_id"] for each in inputs(world)} == kept.keys()
    for instance, (group, job, state) in kept.items():
        assert job.phase == "Succeeded", group
        assert world.instance(instance).state == state, group
        assert sorted(set(group.states.values()) - {"Standby"}) == ["InService"], group


def test_events_without_an_instance_of_the_cluster_are_refused_by_name_or_start_nothing(world, workers):
    # An alarm that names a group and no instance.
    world.alarm("group-cpu", AutoScalingGroupName="workers")
    world.turn_alarm("group-cpu", "ALARM")
    end = rotation(world)
    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    assert "the alarm names group workers and no instance" in end.cause

    # An event without an instance.
    put_event(world, "my.monitoring", "Node is sick", {"host": "web-1"})
    world.wait("2m")
    end = world.executions("rotate-nodes")[1].finishes()
    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    assert "instance_ids is empty" in end.cause

    # Events about foreign instances.
    stranger = world.instance_without_group()
    for kind in ("EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"):
        world.events.emit("aws.ec2", kind, {"instance-id": stranger.id})
    world.wait("2m")
    ends = [execution.finishes() for execution in world.executions("rotate-nodes")[2:]]
    assert [end.outcome for end in ends] == ["nothing_selected"] * 2
    assert all("is not an instance of cluster world" in end.output["reason"] for end in ends)
    assert not world.executions() and not world.writes()


def test_a_group_with_capacity_rebalancing_replaces_an_instance_at_risk_by_itself(world, workers):
    """Standby would be in its way: it launches the replacement and terminates the instance, and the hook waits for the pods."""
    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", CapacityRebalance=True)
    world.autoscaling.group("workers").capacity_rebalance = True
    node = workers.nodes[0]
    node.becomes_spot()

    world.events.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": node.instance_id})

    end = rotation(world)
    assert end.outcome == "nothing_selected", end.output
    assert end.output["reason"].endswith(
        f"the group of {node.instance_id} has Capacity Rebalancing, so it replaces the instance itself"
    )
    assert world.executions() == [] and not world.calls("autoscaling:EnterStandby")


def test_a_spot_warning_starts_the_node_urgently_and_only_once(world, workers):
    node = workers.nodes[0]
    node.becomes_spot()
    world.events.repeat("*rotate-nodes")
    world.events.emit(
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        {"instance-id": node.instance_id, "instance-action": "terminate"},
    )
    world.wait("2m")
    assert [execution.finishes().outcome for execution in world.executions("rotate-nodes")] == ["started"] * 2
    (given,) = inputs(world)
    assert given == {
        "instance_id": node.instance_id,
        "cluster_name": "world",
        "urgency": "spot",
        "interrupted_at": given["interrupted_at"],
    }


def test_any_event_that_names_an_instance_starts_its_recycling_with_the_fields_of_its_trigger(world, workers):
    node = workers.nodes[0]
    put_event(world, "my.monitoring", "Node is sick", {"machine": node.instance_id})
    world.clock.run(until=lambda: world.executions(), limit=600)
    assert inputs(world) == [{"instance_id": node.instance_id, "cluster_name": "world", "drain_timeout": 7200}]


def test_an_event_with_a_list_of_instances_starts_the_recycling_of_each_of_them(world, workers):
    """AWS Health lists all instances that EC2 retires in `resources`, as ids or ARNs."""
    first, second = (node.instance_id for node in workers.nodes)
    arn = f"arn:aws:ec2:eu-west-1:123456789012:instance/{second}"
    put_event(world, "my.monitoring", "Node is sick", {"machine": [first, arn]})
    end = rotation(world)
    assert (end.status, end.outcome) == ("SUCCEEDED", "started")
    assert sorted(each["instance_id"] for each in inputs(world)) == sorted([first, second])
