"""CloudWatch alarms in the world: each change of state is an event on the default bus.

    alarms = Alarms(clock, emit)                              # lays itself over moto's alarms
    aws.client("cloudwatch").put_metric_alarm(…)
    aws.client("cloudwatch").set_alarm_state(AlarmName="cpu", StateValue="ALARM", StateReason="night")

No metric is evaluated: only SetAlarmState changes an alarm. A call that sets the present state changes nothing, as with
AWS. Source of the event: CloudWatch user guide, "Alarm events and EventBridge".

An alarm publishes to the topics among its actions, in the format of "Notifying users on alarm changes" there.

Not supported: actions other than topics, composite alarms, contributors.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from moto.cloudwatch.models import Alarm

from world.aws.moto_internals import moto_original
from world.base.clock import Clock

STATE_CHANGE = "CloudWatch Alarm State Change"

Emit = Callable[[str, str, dict[str, Any], list[str]], None]
#: Publishes a text with a subject to the topic of this ARN.
Publish = Callable[[str, str, str], None]


class Alarms:
    """The alarms of the account. Their changes of state become events."""

    def __init__(self, clock: Clock, emit: Emit, publish: Publish) -> None:
        self._clock = clock
        self._emit = emit
        self._publish = publish
        original = moto_original(Alarm, "update_state")

        def update_state(alarm: Alarm, reason: str, reason_data: str, state_value: str) -> None:
            before = alarm.state_value
            original(alarm, reason, reason_data, state_value)
            if before != state_value:
                self._changed(alarm, before)

        Alarm.update_state = update_state

    def _changed(self, alarm: Alarm, before: str) -> None:
        moment = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
        detail = {
            "alarmName": alarm.name,
            "configuration": {"description": alarm.description, "metrics": list(metrics_of(alarm))},
            "previousState": {"value": before},
            "state": {"value": alarm.state_value, "reason": alarm.state_reason, "timestamp": moment},
        }
        self._emit("aws.cloudwatch", STATE_CHANGE, detail, [alarm.alarm_arn])
        for topic in actions_of(alarm):
            subject = f'{alarm.state_value}: "{alarm.name}" in {alarm.region_name}'
            self._publish(topic, json.dumps(message_of(alarm, before, moment)), subject)


def actions_of(alarm: Alarm) -> list[str]:
    """Returns the topics that the alarm notifies in its present state."""
    actions = {"ALARM": alarm.alarm_actions, "OK": alarm.ok_actions, "INSUFFICIENT_DATA": alarm.insufficient_data_actions}
    every = actions[alarm.state_value] or [] if alarm.actions_enabled else []
    return [action for action in every if action.split(":")[2] == "sns"]


def message_of(alarm: Alarm, before: str, moment: str) -> dict[str, Any]:
    """Returns the message for a topic. Its trigger contains only the fields that describe the metric."""
    trigger: dict[str, Any] = {
        "Period": alarm.period,
        "Threshold": alarm.threshold,
        "ComparisonOperator": alarm.comparison_operator,
    }
    if alarm.metric_data_queries:
        trigger["Metrics"] = [
            {
                "Id": query.id,
                "ReturnData": query.return_data == "true",
                **({"Expression": query.expression} if query.expression else {}),
                **({"MetricStat": _stat_of(query.metric_stat)} if query.metric_stat else {}),
            }
            for query in alarm.metric_data_queries
        ]
    else:
        trigger |= {"MetricName": alarm.metric_name, "Namespace": alarm.namespace, "Dimensions": _dimensions_of(alarm.dimensions)}
    return {
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.description,
        "AWSAccountId": alarm.alarm_arn.split(":")[4],
        "NewStateValue": alarm.state_value,
        "NewStateReason": alarm.state_reason,
        "StateChangeTime": moment,
        "Region": alarm.region_name,
        "AlarmArn": alarm.alarm_arn,
        "OldStateValue": before,
        "OKActions": alarm.ok_actions or [],
        "AlarmActions": alarm.alarm_actions or [],
        "InsufficientDataActions": alarm.insufficient_data_actions or [],
        "Trigger": trigger,
    }


def _stat_of(stat: Any) -> dict[str, Any]:
    metric = stat.metric
    written = {"Namespace": metric.namespace, "MetricName": metric.metric_name, "Dimensions": _dimensions_of(metric.dimensions)}
    return {"Metric": written, "Period": stat.period, "Stat": stat.stat}


def _dimensions_of(dimensions: list[Any]) -> list[dict[str, str]]:
    return [{"value": dimension.value, "name": dimension.name} for dimension in dimensions]


def metrics_of(alarm: Alarm) -> list[dict[str, Any]]:
    """The metrics of an alarm as its event shows them: its one metric, or the queries of its metric math."""
    if alarm.metric_data_queries:
        return [
            {
                "id": query.id,
                "returnData": query.return_data == "true",
                **({"expression": query.expression} if query.expression else {}),
                **({"metricStat": _stat(query.metric_stat)} if query.metric_stat else {}),
            }
            for query in alarm.metric_data_queries
        ]
    metric = {"namespace": alarm.namespace, "name": alarm.metric_name, "dimensions": _pairs(alarm.dimensions)}
    return [{"id": "m1", "returnData": True, "metricStat": {"metric": metric, "period": alarm.period, "stat": alarm.statistic}}]


def _stat(stat: Any) -> dict[str, Any]:
    metric = stat.metric
    shown = {"namespace": metric.namespace, "name": metric.metric_name, "dimensions": _pairs(metric.dimensions)}
    return {"metric": shown, "period": stat.period, "stat": stat.stat}


def _pairs(dimensions: list[Any]) -> dict[str, str]:
    return {dimension.name: dimension.value for dimension in dimensions}
