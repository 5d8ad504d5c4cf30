"""The event bus: the input of targets, its time, and faults of the delivery."""

from __future__ import annotations

import json
from typing import Any

import pytest

from world.aws.events import fill_template, payload_for, value_at
from world.stepfunctions.in_memory import FunctionFailed
from world_tests.moto_region import ROLE, MotoRegion

SPOT = "EC2 Spot Instance Interruption Warning"
FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:go"


def machine(start: str, **states: dict) -> dict:
    return {"QueryLanguage": "JSONata", "StartAt": start, "States": states}


WAIT = machine("W", W={"Type": "Wait", "Seconds": 100, "End": True})
FAIL = machine("F", F={"Type": "Fail", "Error": "NodeLost", "Cause": 'it said "no"'})


class Log(list):
    """A function that notes when it was called with what."""

    def __init__(self, region: MotoRegion):
        super().__init__()
        self.clock = region.clock

    def __call__(self, value: Any) -> None:
        self.append((self.clock.elapsed(), value))


@pytest.fixture
def calls(region: MotoRegion) -> Log:
    """Returns the requests to the function `go`, with their times."""
    region.functions["go"] = Log(region)
    return region.functions["go"]


def rule(region: MotoRegion, name: str, pattern: dict, arn: str = FUNCTION, **target: Any) -> None:
    events = region.client("events")
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": arn, "RoleArn": ROLE, **target}])


def spot(region: MotoRegion, instance: str = "i-1") -> None:
    region.events.emit("aws.ec2", SPOT, {"instance-id": instance}, [f"arn:aws:ec2:::instance/{instance}"])


def test_a_matching_event_arrives_a_second_later_whole(region: MotoRegion, calls: Log):
    rule(region, "spot", {"source": ["aws.ec2"], "detail-type": [SPOT], "detail": {"instance-id": [{"prefix": "i-1"}]}})
    region.clock.at(10, lambda: spot(region))
    region.clock.at(20, lambda: spot(region, "i-2"))
    region.clock.run()
    ((moment, event),) = calls
    assert moment == 11
    assert event == {
        "version": "0",
        "id": "00000000-0000-4000-8000-000000000001",
        "detail-type": SPOT,
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2027-01-01T00:00:10Z",
        "region": "eu-central-1",
        "resources": ["arn:aws:ec2:::instance/i-1"],
        "detail": {"instance-id": "i-1"},
    }
    assert [(e.moment, e.detail) for e in region.events.emitted] == [(10, {"instance-id": "i-1"}), (20, {"instance-id": "i-2"})]


def test_a_target_whose_role_may_not_reach_it_gets_nothing(region: MotoRegion, calls: Log):
    rule(region, "spot", {"source": ["aws.ec2"]})
    region.events.refusal = lambda role, action, parameters: f"{role} may not {action} on {parameters['FunctionName']}"
    spot(region)
    region.clock.run()
    assert calls == []
    assert [each.outcome for each in region.events.deliveries] == [f"{ROLE} may not lambda:InvokeFunction on {FUNCTION}"]


def test_a_disabled_or_removed_rule_and_a_schedule_take_nothing(region: MotoRegion, calls: Log):
    events = region.client("events")
    rule(region, "disabled", {"source": ["aws.ec2"]})
    events.disable_rule(Name="disabled")
    events.put_rule(Name="schedule", ScheduleExpression="rate(1 hour)")
    events.put_targets(Rule="schedule", Targets=[{"Id": "1", "Arn": FUNCTION}])
    spot(region)
    region.clock.run()
    assert calls == []


def test_a_state_machine_is_started_with_the_transformed_event(region: MotoRegion):
    arn = region.create("m", WAIT)
    transformer = {"InputPathsMap": {"i": "$.detail.instance-id"}, "InputTemplate": '{"instance_id": <i>, "why": "spot of <i>"}'}
    rule(region, "spot", {"source": ["aws.ec2"]}, arn, InputTransformer=transformer)
    spot(region)
    region.clock.run()
    (execution,) = region.engine.executions_of(arn)
    assert execution.input == {"instance_id": "i-1", "why": "spot of i-1"}
    assert [(d.rule, d.target, d.outcome) for d in region.events.deliveries] == [("spot", arn, "delivered")]


def test_an_alias_of_a_state_machine_is_a_target(region: MotoRegion):
    arn = region.create("m", WAIT, publish=True)
    route = [{"stateMachineVersionArn": f"{arn}:1", "weight": 100}]
    alias = region.sfn.create_state_machine_alias(name="live", routingConfiguration=route)["stateMachineAliasArn"]
    rule(region, "spot", {"source": ["aws.ec2"]}, alias)
    spot(region)
    region.clock.run()
    (execution,) = region.engine.executions_of(alias)
    assert execution.machine.version_arn == f"{arn}:1"


def test_a_topic_is_published_to(region: MotoRegion):
    topic = region.client("sns").create_topic(Name="t")["TopicArn"]
    rule(region, "spot", {"source": ["aws.ec2"]}, topic, Input='{"text":"spot"}')
    region.clock.at(10, lambda: spot(region))
    region.clock.run()
    assert [(n.moment, n.topic, n.message) for n in region.events.notifications] == [(11, topic, '{"text":"spot"}')]


def test_a_target_that_refuses_is_recorded(region: MotoRegion):
    rule(region, "machine", {"source": ["aws.ec2"]}, "arn:aws:states:eu-central-1:123456789012:stateMachine:none")
    rule(region, "topic", {"source": ["aws.ec2"]}, "arn:aws:sns:eu-central-1:123456789012:none")
    spot(region)
    region.clock.run()
    outcomes = {delivery.rule: delivery.outcome for delivery in region.events.deliveries}
    assert "StateMachineDoesNotExist" in outcomes["machine"] and outcomes["topic"] != "delivered"


def test_a_template_with_a_missing_value_is_no_json_and_not_delivered(region: MotoRegion):
    arn = region.create("m", WAIT)
    transformer = {"InputPathsMap": {"x": "$.detail.nope"}, "InputTemplate": '{"x": <x>}'}
    rule(region, "spot", {"source": ["aws.ec2"]}, arn, InputTransformer=transformer)
    spot(region)
    region.clock.run()
    assert "InvalidExecutionInput" in region.events.deliveries[0].outcome
    assert region.engine.executions_of(arn) == []


def test_put_events_reaches_the_same_targets(region: MotoRegion, calls: Log):
    rule(region, "mine", {"source": ["mine"]})
    entry = {"Source": "mine", "DetailType": "d", "Detail": '{"a": 1}'}
    region.clock.at(10, lambda: region.client("events").put_events(Entries=[entry]))
    region.clock.run()
    ((moment, event),) = calls
    assert moment == 11 and event["detail"] == {"a": 1} and event["time"] == "2027-01-01T00:00:10Z"


def test_put_events_refuses_the_sources_of_aws_services(region: MotoRegion, calls: Log):
    rule(region, "all", {"detail-type": ["d"]})
    entries = [{"Source": source, "DetailType": "d", "Detail": "{}"} for source in ("aws.ec2", "mine")]
    answer = region.client("events").put_events(Entries=entries)
    region.clock.run()
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException" and answer["FailedEntryCount"] == 1
    assert [event["source"] for _, event in calls] == ["mine"]


def test_a_function_that_fails_is_called_twice_more(region: MotoRegion):
    moments: list[float] = []

    def refuse(_: Any) -> None:
        moments.append(region.clock.elapsed())
        raise FunctionFailed("X")

    region.functions["go"] = refuse
    rule(region, "spot", {"source": ["aws.ec2"]})
    spot(region)
    region.clock.run()
    assert moments == [1, 61, 181]


# Status changes


@pytest.mark.parametrize(("how", "moment"), [("ABORTED", 51), ("FAILED", 1), ("TIMED_OUT", 31), ("SUCCEEDED", 101)])
def test_every_end_of_an_execution_is_an_event(region: MotoRegion, calls: Log, how, moment):
    definition = {"FAILED": FAIL, "TIMED_OUT": {**WAIT, "TimeoutSeconds": 30}}.get(how, WAIT)
    arn = region.create("m", definition)
    rule(region, "ended", {"source": ["aws.states"], "detail": {"status": [how], "stateMachineArn": [arn]}})
    execution = region.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a":1}')["executionArn"]
    if how == "ABORTED":
        region.clock.at(50, lambda: region.sfn.stop_execution(executionArn=execution, error="User"))
    region.clock.run()
    ((delivered, event),) = calls
    detail = event["detail"]
    assert delivered == moment and event["resources"] == [execution]
    assert event["detail-type"] == "Step Functions Execution Status Change"
    assert (detail["executionArn"], detail["name"], detail["status"]) == (execution, "one", how)
    assert detail["startDate"] == region.clock.start * 1000
    assert detail["stopDate"] == (region.clock.start + moment - 1) * 1000
    assert detail["input"] == '{"a":1}' and detail["inputDetails"] == {"included": True}
    assert detail["output"] == ('{"a":1}' if how == "SUCCEEDED" else None)
    assert detail["error"] == {"FAILED": "NodeLost", "ABORTED": "User"}.get(how)
    assert detail["redriveCount"] == 0 and detail["stateMachineVersionArn"] is None


def test_starting_and_redriving_are_running_events(region: MotoRegion):
    arn = region.create("m", FAIL)
    execution = region.sfn.start_execution(stateMachineArn=arn)["executionArn"]
    region.clock.run()
    region.sfn.redrive_execution(executionArn=execution)
    region.clock.run()
    seen = [(e.detail["status"], e.detail["redriveCount"]) for e in region.events.emitted]
    assert seen == [("RUNNING", 0), ("FAILED", 0), ("RUNNING", 1), ("FAILED", 1)]


def test_input_that_is_too_large_is_left_out_of_the_event(region: MotoRegion):
    arn = region.create("m", WAIT)
    region.sfn.start_execution(stateMachineArn=arn, input=json.dumps("x" * 250 * 1024))
    assert region.events.emitted[0].detail["input"] is None
    assert region.events.emitted[0].detail["inputDetails"] == {"included": False}


# Faults


def test_deliveries_are_lost_repeated_and_late(region: MotoRegion, calls: Log):
    rule(region, "spot", {"source": ["aws.ec2"]})
    region.events.repeat("*:go", nth=1, seconds=5)
    region.events.postpone(600, "*:go", nth=2)
    region.events.lose("*:go", nth=3)
    for moment in (10, 20, 30, 40):
        region.clock.at(moment, lambda: spot(region))
    region.clock.run()
    assert [moment for moment, _ in calls] == [11, 16, 41, 621]
    assert [delivery.outcome for delivery in region.events.deliveries].count("lost") == 1


def test_a_fault_strikes_only_its_target(region: MotoRegion, calls: Log):
    topic = region.client("sns").create_topic(Name="t")["TopicArn"]
    rule(region, "function", {"source": ["aws.ec2"]})
    rule(region, "topic", {"source": ["aws.ec2"]}, topic)
    region.events.lose("arn:aws:sns:*")
    spot(region)
    region.clock.run()
    assert len(calls) == 1 and region.events.notifications == []


# The input of a target

EVENT = {"time": "T", "detail": {"s": 'a "b"\n', "p": "plain", "n": 5, "l": [{"x-y": 1}], "o": {"k": "v"}}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.detail.n", 5),
        ("$.detail.l[0].x-y", 1),
        ("$.detail['o']['k']", "v"),
        ("$", EVENT),
        ("$.detail.l[3]", None),
        ("$.detail.s.t", None),
    ],
)
def test_a_json_path_leads_to_a_value(path, value):
    assert value_at(EVENT, path) == value


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ('{"a": <s>}', {"a": 'a "b"\n'}),
        ('{"a": "it is <p>!"}', {"a": "it is plain!"}),
        ('{"a": <n>, "b": "<n>"}', {"a": 5, "b": "5"}),
        ('{"a": <o>, "b": "<o>"}', {"a": {"k": "v"}, "b": "{k: v}"}),
        ('{"a": "<", "b": "<other>"}', {"a": "<", "b": "<other>"}),
        ('"\\"<n>\\""', '"5"'),
        ("<aws.events.event.json>", EVENT),
    ],
)
def test_a_template_is_filled_with_quoted_or_bare_values(template, filled):
    values = {name: value_at(EVENT, f"$.detail.{name}") for name in "spno"} | {"aws.events.event.json": EVENT}
    assert json.loads(fill_template(template, values)) == filled


def test_a_value_inside_quotes_is_not_escaped_so_a_quotation_mark_in_it_makes_the_text_no_json(region: MotoRegion):
    """EventBridge user guide, "Input transformation": "EventBridge doesn't escape values extracted by Input Path"."""
    assert fill_template('{"a": "it is <s>!"}', {"s": 'a "b"\n'}) == '{"a": "it is a "b"\n!"}'
    arn = region.create("m", WAIT)
    transformer = {"InputPathsMap": {"i": "$.detail.instance-id"}, "InputTemplate": '{"why": "spot of <i>"}'}
    rule(region, "spot", {"source": ["aws.ec2"]}, arn, InputTransformer=transformer)
    region.events.emit("aws.ec2", SPOT, {"instance-id": 'i-"1"'})
    region.clock.run()
    assert "InvalidExecutionInput" in region.events.deliveries[0].outcome


@pytest.mark.parametrize(
    ("target", "payload"),
    [({}, EVENT), ({"Input": '{"constant": 1}'}, {"constant": 1}), ({"InputPath": "$.detail.o"}, {"k": "v"})],
    ids=["whole", "Input", "InputPath"],
)
def test_a_target_gets_the_event_a_part_of_it_or_a_constant(target, payload):
    assert json.loads(payload_for(target, EVENT)) == payload


def subscribe(region: MotoRegion, **attributes: str) -> str:
    sns = region.client("sns")
    topic = sns.create_topic(Name="t")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=FUNCTION, Attributes=attributes)
    return topic


def test_a_function_that_subscribes_to_a_topic_gets_each_message_in_a_record(region: MotoRegion, calls: Log):
    topic = subscribe(region)
    region.client("sns").publish(TopicArn=topic, Message="hello", Subject="a subject")
    region.clock.run()
    ((moment, event),) = calls
    (record,) = event["Records"]
    assert moment == 1 and record["EventSource"] == "aws:sns"
    assert (record["Sns"]["TopicArn"], record["Sns"]["Message"], record["Sns"]["Subject"]) == (topic, "hello", "a subject")


def test_a_message_may_be_lost_repeated_or_late(region: MotoRegion, calls: Log):
    topic = subscribe(region)
    region.events.lose(FUNCTION, nth=1)
    region.events.repeat(FUNCTION, nth=2, seconds=10)
    region.events.postpone(60, FUNCTION, nth=3)
    for text in ("lost", "twice", "late"):
        region.client("sns").publish(TopicArn=topic, Message=text)
    region.clock.run()
    got = [(moment, event["Records"][0]["Sns"]["Message"]) for moment, event in calls]
    assert got == [(1, "twice"), (11, "twice"), (61, "late")]
    assert [delivery.outcome for delivery in region.events.deliveries].count("lost") == 1


def test_a_subscription_gets_only_messages_that_pass_its_filter(region: MotoRegion, calls: Log):
    topic = subscribe(region, FilterPolicy='{"severity": ["critical"]}')
    for severity in ("info", "critical"):
        attributes = {"severity": {"DataType": "String", "StringValue": severity}}
        region.client("sns").publish(TopicArn=topic, Message=severity, MessageAttributes=attributes)
    region.clock.run()
    assert [event["Records"][0]["Sns"]["Message"] for _, event in calls] == ["critical"]
