"""Alarms: the events of SetAlarmState on the bus."""

import json

import pytest

from world.aws.alarms import STATE_CHANGE
from world.world import World


@pytest.fixture
def alarm(world: World):
    client = world.aws.client("cloudwatch")
    client.put_metric_alarm(
        AlarmName="cpu",
        Namespace="AWS/EC2",
        MetricName="CPUUtilization",
        Dimensions=[{"Name": "InstanceId", "Value": "i-0123456789abcdef0"}],
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=90,
        ComparisonOperator="GreaterThanThreshold",
    )
    return lambda state: client.set_alarm_state(AlarmName="cpu", StateValue=state, StateReason="because")


def emitted(world: World):
    return [event.detail for event in world.events.emitted if event.detail_type == STATE_CHANGE]


def test_a_change_of_state_is_an_event_with_the_metrics_dimensions(world, alarm):
    alarm("ALARM")
    (detail,) = emitted(world)
    assert (detail["alarmName"], detail["previousState"]["value"], detail["state"]["value"]) == ("cpu", "OK", "ALARM")
    (metric,) = detail["configuration"]["metrics"]
    assert metric["metricStat"]["metric"]["dimensions"] == {"InstanceId": "i-0123456789abcdef0"}


def test_the_state_that_it_has_already_is_no_event(world, alarm):
    for state in ("OK", "ALARM", "ALARM", "OK"):
        alarm(state)
    assert [detail["state"]["value"] for detail in emitted(world)] == ["ALARM", "OK"]


METRIC = {
    "Namespace": "AWS/EC2",
    "MetricName": "CPUUtilization",
    "Dimensions": [{"Name": "AutoScalingGroupName", "Value": "workers"}],
}


def messages_of(world: World, **options) -> list[dict]:
    """Returns the messages to the topic `t` for an alarm that goes to ALARM and back to OK."""
    topic = world.aws.client("sns").create_topic(Name="t")["TopicArn"]
    client = world.aws.client("cloudwatch")
    client.put_metric_alarm(
        AlarmName="busy",
        AlarmActions=[topic, "arn:aws:automate:eu-west-1:ec2:reboot"],
        EvaluationPeriods=1,
        Threshold=90,
        ComparisonOperator="GreaterThanThreshold",
        **options,
    )
    for state in ("ALARM", "OK"):
        client.set_alarm_state(AlarmName="busy", StateValue=state, StateReason="because")
    return [json.loads(each.message) for each in world.events.notifications if each.topic == topic]


def test_the_topic_of_an_action_gets_the_states_of_that_action(world):
    (message,) = messages_of(world, **METRIC, Statistic="Average", Period=60)
    assert (message["AlarmName"], message["OldStateValue"], message["NewStateValue"]) == ("busy", "OK", "ALARM")
    assert message["Trigger"]["Dimensions"] == [{"value": "workers", "name": "AutoScalingGroupName"}]
    (event,) = [detail for detail in emitted(world) if detail["state"]["value"] == "ALARM"]
    assert message["StateChangeTime"] == event["state"]["timestamp"]
    assert world.events.notifications[-1].subject == 'ALARM: "busy" in eu-west-1'


def test_metric_math_is_published_query_by_query(world):
    stat = {"Metric": METRIC, "Period": 60, "Stat": "Average"}
    queries = [{"Id": "m", "MetricStat": stat, "ReturnData": False}, {"Id": "e", "Expression": "m * 2", "ReturnData": True}]
    (message,) = messages_of(world, Metrics=queries)
    measured, computed = message["Trigger"]["Metrics"]
    assert measured["MetricStat"]["Metric"]["Dimensions"] == [{"value": "workers", "name": "AutoScalingGroupName"}]
    assert computed["Expression"] == "m * 2" and "MetricStat" not in computed


def test_an_alarm_whose_actions_are_switched_off_publishes_nothing(world):
    assert messages_of(world, **METRIC, Statistic="Average", Period=60, ActionsEnabled=False) == []
