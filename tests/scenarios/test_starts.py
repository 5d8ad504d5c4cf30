"""Rotations that start without a rule of EventBridge: alarms that publish to a topic, schedules, a changed value."""

import json

import pytest

from world.deployment import ALARM_TOPIC
from world.scenario.groups import IMAGE, TEMPLATE


@pytest.fixture
def workers(world):
    return world.group("workers", size=2, minimum=1, maximum=5)


def outcomes(world, machine="rotate-nodes"):
    return [execution.finishes().outcome for execution in world.executions(machine)]


ELSEWHERE = "arn:aws:cloudwatch:eu-west-2:123456789012:alarm:node-cpu"


def test_an_alarm_through_a_topic_recycles_its_node_once_however_often_it_comes_and_other_messages_start_nothing(world, workers):
    node = workers.nodes[1]
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=node.instance_id)
    world.events.silent = "*alarm*"
    world.events.repeat("*start-rotation", seconds=90)

    world.turn_alarm("node-cpu", "ALARM")
    sent = json.loads(world.events.notifications[-1].message)
    world.wait("3m")
    world.turn_alarm("node-cpu", "OK")
    world.wait("3m")

    assert len([delivery for delivery in world.events.deliveries if delivery.target.endswith("start-rotation")]) == 3
    assert outcomes(world) == ["started"]
    assert outcomes(world, "recycle-node") == ["recycled"]
    assert world.instance(node.instance_id).state == "terminated"

    # Another alarm, a text, another object, and an alarm of another account or region than the topic start nothing.
    begun = [each.arn for each in world.executions("rotate-nodes")]
    world.events.silent = "*-sweep-*"
    world.alarm("disk", ALARM_TOPIC, InstanceId=workers.nodes[0].instance_id)
    world.turn_alarm("disk", "ALARM")
    later = {**sent, "StateChangeTime": "2027-01-01T03:00:00.000+0000"}
    forged = [json.dumps({**later, **elsewhere}) for elsewhere in ({"AWSAccountId": "210987654321"}, {"AlarmArn": ELSEWHERE})]
    for message in ("hello", '{"AlarmName": "node-cpu"}', *forged):
        world.aws.client("sns").publish(TopicArn=ALARM_TOPIC, Message=message)
    world.wait("10m")
    assert [each.arn for each in world.executions("rotate-nodes")] == begun and len(begun) == 1
    assert not world.queued("dead-letters")
    # The message itself would start one.
    world.aws.client("sns").publish(TopicArn=ALARM_TOPIC, Message=json.dumps(later))
    world.wait("1m")
    assert len(world.executions("rotate-nodes")) == 2


def test_an_alarm_that_comes_both_ways_begins_one_recycling(world, workers):
    node = workers.nodes[1]
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=node.instance_id)

    world.turn_alarm("node-cpu", "ALARM")
    world.wait("3m")

    assert sorted(outcomes(world)) == ["nothing_selected", "started"]
    assert len(world.executions()) == 1


def test_an_alarm_through_a_topic_selects_the_oldest_of_a_group(world, workers):
    oldest = min(workers.nodes, key=lambda node: node.instance_id)
    world.events.silent = "*alarm*"
    world.alarm("busy", ALARM_TOPIC, AutoScalingGroupName="workers")

    world.turn_alarm("busy", "ALARM")
    world.wait("1m")

    (recycling,) = world.executions()
    given = json.loads(world.engine.execution(recycling.arn).input_text)
    assert given == {
        "instance_id": oldest.instance_id,
        "cluster_name": "world",
        "label_selector": "app=train",
        "dispose": "detach",
        "evict": "none",
    }


def test_an_alarm_that_cannot_start_a_rotation_is_tried_again_and_at_last_kept(world, workers):
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=workers.nodes[0].instance_id)
    world.events.silent = "*alarm*"
    world.faults.refuse("states:StartExecution", code="ThrottlingException", status=400, times=2, function="start-rotation")
    world.turn_alarm("node-cpu", "ALARM")
    world.wait("5m")
    assert outcomes(world) == ["started"] and not world.queued("dead-letters")

    world.faults.refuse("states:StartExecution", code="AccessDeniedException", status=400, times=None, function="start-rotation")
    world.turn_alarm("node-cpu", "OK")
    world.turn_alarm("node-cpu", "ALARM")
    world.wait("5m")
    (kept,) = world.queued("dead-letters")
    assert "node-cpu" in json.dumps(kept["requestPayload"])


# Schedules: the clock of the local world begins on Friday, 2027-01-01, at midnight UTC.

DAY = 86_400


def new_version(world, **data):
    """The template of the group gets a version, which is what it launches from then."""
    whole = {**TEMPLATE, **data}
    world.aws.client("ec2").create_launch_template_version(LaunchTemplateName="workers", LaunchTemplateData=whole)


def rotations(world):
    """When rotations began that found something, as how many seconds after the scenario."""
    ends = [(execution.entered("SelectNodes")[0], execution.finishes().outcome) for execution in world.executions("rotate-nodes")]
    return [moment for moment, outcome in ends if outcome == "rotated"]


def recycled(world):
    """The instances of the executions, which have all ended well."""
    assert set(outcomes(world, "recycle-node")) == {"recycled"}
    return sorted(json.loads(world.engine.execution(each.arn).input_text)["instance_id"] for each in world.executions())


def test_schedules_rotate_nodes_of_another_template_version_or_too_old_ones_at_their_times_in_their_zones(world, workers):
    old = sorted(node.instance_id for node in workers.nodes)
    new_version(world, EbsOptimized=True)
    others = world.group("others", size=2, minimum=1, maximum=5)
    too_old = sorted(node.instance_id for node in others.nodes)
    world.at("1d", lambda: others.grow(3))
    world.let_schedules_run()

    world.run("2d2h29m")
    assert outcomes(world) == ["nothing_selected"] * 2  # each day, for another image
    world.run("2d6h")

    # Sunday, 3:30 in Berlin.
    assert rotations(world) == [2 * DAY + 2.5 * 3600]
    assert recycled(world) == old
    given = [json.loads(world.engine.execution(each.arn).input_text)["drain_timeout"] for each in world.executions()]
    assert given == [7200, 7200]
    assert sorted(workers.states.values()) == ["InService"] * 2

    # Nodes that are too old, and not the others.
    world.run("3d8h")
    assert rotations(world) == [2 * DAY + 2.5 * 3600, 3 * DAY + 3 * 3600]
    assert recycled(world) == sorted([*old, *too_old])


def test_a_schedule_rotates_nodes_of_another_image_once_however_often_it_is_delivered(world, workers):
    old = sorted(node.instance_id for node in workers.nodes)
    images = {image["ImageId"] for image in world.aws.client("ec2").describe_images()["Images"]}
    new_version(world, ImageId=min(images - {IMAGE}))
    world.events.repeat("*rotate-nodes", seconds=30)
    world.let_schedules_run()

    world.run("1d6h")

    # The second finds that the first is at work on the group.
    both = [execution.finishes() for execution in world.executions("rotate-nodes")]
    assert [end.output["groups"][0]["recycled"] for end in both] == [2, 0]
    assert recycled(world) == old
    world.run("2d1h")
    assert outcomes(world)[2:] == ["nothing_selected"]
