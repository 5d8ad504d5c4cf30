"""The events for steps of other teams."""

import json

import pytest

KINDS = ["before_drain", "after_drain", "after_disposal"]


@pytest.fixture
def delivered(world):
    """A function: the events so far that a rule for recycle-eks sent to a topic, with the moments at which they left."""
    topic = world.aws.client("sns").create_topic(Name="node-events")["TopicArn"]
    rules = world.aws.client("events")
    rules.put_rule(Name="node-events", EventPattern=json.dumps({"source": ["recycle-eks"]}))
    rules.put_targets(Rule="node-events", Targets=[{"Id": "topic", "Arn": topic}])
    allow = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sns:Publish", "Resource": topic}
        ],
    }
    world.aws.client("sns").set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(allow))

    def so_far():
        world.wait("1m")
        of_the_rule = [each for each in world.events.deliveries if each.rule == "node-events"]
        assert {each.outcome for each in of_the_rule} <= {"delivered"}
        return [(json.loads(each.payload), each.moment - world.events.latency) for each in of_the_rule]

    yield so_far
    # A reset of the world keeps rules and topics.
    rules.remove_targets(Rule="node-events", Ids=["topic"])
    rules.delete_rule(Name="node-events")
    world.aws.client("sns").delete_topic(TopicArn=topic)


@pytest.mark.any_replacement
def test_the_events_of_a_node_come_before_and_after_its_drain_and_after_its_disposal(world, workers, node, job, delivered):
    web = node.deployment("web", replicas=2)
    world.at("40m", job.finishes)

    execution = world.recycle(node)
    end = execution.finishes()

    assert end.outcome == "recycled"
    events, moments = zip(*delivered(), strict=True)
    assert [event["detail-type"] for event in events] == KINDS
    before, after, disposed = moments
    assert before == execution.entered("CheckPods")[0] and not execution.entered("EvictPods")[0] < before
    assert 2_400 <= after == execution.entered("DetachTerminate")[0]
    assert disposed == end.at and world.instance(node.instance_id).state == "terminated"
    expected = {"cluster": "world", "group": "workers", "node": node.name, "instance_id": node.instance_id}
    assert all(event["detail"] == {**expected, "execution": execution.arn} for event in events)
    assert all(event["resources"][0] == execution.arn for event in events)
    assert web.running_pods()


def test_a_stopped_drain_and_an_event_that_is_refused_change_nothing(world, workers, node, delivered):
    world.faults.refuse("events:PutEvents", code="InternalException", status=500, times=None)

    end = world.recycle(node, dispose="stop").finishes()

    assert end.outcome == "recycled" and delivered() == []
    assert world.instance(node.instance_id).state == "stopped"
