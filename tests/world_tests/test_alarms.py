"""Alarms: what becomes of SetAlarmState on the bus."""

import pytest

from world.alarms import STATE_CHANGE
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
