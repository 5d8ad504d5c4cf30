"""The Step Functions API as an SDK, a function or Terraform's provider sees it."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from world_tests.moto_region import ROLE, MotoRegion


def machine(start: str, **states: dict) -> dict:
    return {"QueryLanguage": "JSONata", "StartAt": start, "States": states}


def wait(seconds: int | str) -> dict:
    return machine("W", W={"Type": "Wait", "Seconds": seconds, "End": True})


def answers(value: Any) -> dict:
    return machine("P", P={"Type": "Pass", "Output": value, "End": True})


def sdk(resource: str, arguments: Any, **fields: Any) -> dict:
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, "End": True}
    return machine("T", T={**task, **fields})


def code_of(refused: pytest.ExceptionInfo[ClientError]) -> str:
    return refused.value.response["Error"]["Code"]


def test_an_execution_is_described_while_it_runs_and_after_it(region: MotoRegion):
    arn = region.create("m", wait(100))
    started = region.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 1}')
    running = region.sfn.describe_execution(executionArn=started["executionArn"])
    assert (running["status"], running["name"], running["input"]) == ("RUNNING", "one", '{"a": 1}')
    assert "stopDate" not in running and running["redriveStatus"] == "NOT_REDRIVABLE"
    region.clock.run()
    ended = region.sfn.describe_execution(executionArn=started["executionArn"])
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", {"a": 1})
    assert ended["stopDate"] - ended["startDate"] == datetime.timedelta(seconds=100)
    assert ended["startDate"].timestamp() == region.clock.start


def test_stop_and_redrive_through_the_api(region: MotoRegion):
    arn = region.create("m", wait(100))
    execution = region.sfn.start_execution(stateMachineArn=arn)["executionArn"]
    region.clock.run(limit=10)
    with pytest.raises(ClientError) as refused:
        region.sfn.redrive_execution(executionArn=execution)
    assert code_of(refused) == "ExecutionNotRedrivable"
    region.sfn.stop_execution(executionArn=execution, error="User", cause="why")
    stopped = region.sfn.describe_execution(executionArn=execution)
    assert (stopped["status"], stopped["error"], stopped["cause"]) == ("ABORTED", "User", "why")
    assert region.sfn.redrive_execution(executionArn=execution)["redriveDate"].timestamp() == region.clock.now()
    region.clock.run()
    redriven = region.sfn.describe_execution(executionArn=execution)
    assert (redriven["status"], redriven["redriveCount"]) == ("SUCCEEDED", 1)


def test_errors_have_the_names_that_sdks_know(region: MotoRegion):
    arn = region.create("m", wait(100))
    region.sfn.start_execution(stateMachineArn=arn, name="one", input="{}")
    with pytest.raises(region.sfn.exceptions.ExecutionAlreadyExists):
        region.sfn.start_execution(stateMachineArn=arn, name="one", input="[]")
    with pytest.raises(region.sfn.exceptions.InvalidExecutionInput):
        region.sfn.start_execution(stateMachineArn=arn, input="{")
    with pytest.raises(region.sfn.exceptions.StateMachineDoesNotExist):
        region.sfn.start_execution(stateMachineArn=arn + "x")
    with pytest.raises(region.sfn.exceptions.ExecutionDoesNotExist):
        region.sfn.describe_execution(executionArn=arn.replace("stateMachine", "execution") + ":none")


def test_executions_are_listed_newest_first_by_status_and_page(region: MotoRegion):
    arn = region.create("m", wait(50))
    for name in "abc":
        region.clock.run(limit=region.clock.elapsed() + 60)
        region.sfn.start_execution(stateMachineArn=arn, name=name)
    assert [e["name"] for e in region.sfn.list_executions(stateMachineArn=arn)["executions"]] == ["c", "b", "a"]
    done = region.sfn.list_executions(stateMachineArn=arn, statusFilter="SUCCEEDED")["executions"]
    assert [e["name"] for e in done] == ["b", "a"]
    pages = region.sfn.get_paginator("list_executions").paginate(stateMachineArn=arn, PaginationConfig={"PageSize": 2})
    assert [[e["name"] for e in page["executions"]] for page in pages] == [["c", "b"], ["a"]]


def test_ended_executions_are_listed_by_their_end_and_running_ones_by_their_start_or_redrive(region: MotoRegion):
    """API reference of ListExecutions: "Running executions are sorted by their startDate or redriveDate, and other executions are
    sorted by their stopDate"."""
    machine_arn = region.create("m", wait("{% $states.input.seconds %}"))

    def start(at: float, name: str, seconds: int) -> str:
        region.clock.run(limit=at)
        started = region.sfn.start_execution(stateMachineArn=machine_arn, name=name, input=json.dumps({"seconds": seconds}))
        return started["executionArn"]

    for at, name, seconds in ((0, "a", 500), (10, "b", 100), (20, "c", 300)):
        start(at, name, seconds)
    stopped = start(600, "d", 900)
    region.clock.run(limit=700)
    region.sfn.stop_execution(executionArn=stopped)
    start(750, "e", 900)
    region.clock.run(limit=800)
    region.sfn.redrive_execution(executionArn=stopped)
    listed = region.sfn.list_executions(stateMachineArn=machine_arn)["executions"]
    assert [each["name"] for each in listed] == ["d", "e", "a", "c", "b"]


def test_the_children_of_a_distributed_map_are_listed_by_its_run(region: MotoRegion):
    processor = {**answers("{% $states.input %}"), "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    arn = region.create(
        "m", machine("M", M={"Type": "Map", "Items": [1, 2], "ItemProcessor": processor, "Label": "M", "End": True})
    )
    execution = region.sfn.start_execution(stateMachineArn=arn)["executionArn"]
    region.clock.run()
    events = region.sfn.get_execution_history(executionArn=execution)["events"]
    (map_run,) = [event["mapRunStartedEventDetails"]["mapRunArn"] for event in events if event["type"] == "MapRunStarted"]
    children = region.sfn.list_executions(mapRunArn=map_run)["executions"]
    assert [child["status"] for child in children] == ["SUCCEEDED"] * 2
    assert region.sfn.list_executions(mapRunArn=map_run, statusFilter="FAILED")["executions"] == []
    assert [each["executionArn"] for each in region.sfn.list_executions(stateMachineArn=arn)["executions"]] == [execution]
    with pytest.raises(ClientError) as refused:
        region.sfn.list_executions()
    assert code_of(refused) == "ValidationException"


def test_the_history_comes_in_pages_in_both_directions(region: MotoRegion):
    execution = region.run(answers("x"))
    whole = region.sfn.get_execution_history(executionArn=execution.arn)["events"]
    assert [event["type"] for event in whole] == [
        "ExecutionStarted",
        "PassStateEntered",
        "PassStateExited",
        "ExecutionSucceeded",
    ]
    assert whole[0]["executionStartedEventDetails"]["roleArn"] == ROLE
    assert json.loads(whole[2]["stateExitedEventDetails"]["output"]) == "x"
    assert whole[0]["timestamp"].timestamp() == region.clock.start
    paginator = region.sfn.get_paginator("get_execution_history")
    pages = list(paginator.paginate(executionArn=execution.arn, PaginationConfig={"PageSize": 3}))
    assert [[event["id"] for event in page["events"]] for page in pages] == [[1, 2, 3], [4]]
    backwards = region.sfn.get_execution_history(executionArn=execution.arn, reverseOrder=True, maxResults=1)["events"]
    assert [event["id"] for event in backwards] == [4]


def publish(region: MotoRegion, *outputs: str) -> str:
    """A machine with one version per output; the answer is its ARN."""
    arn = region.create("versioned", answers(outputs[0]), publish=True)
    for output in outputs[1:]:
        region.sfn.update_state_machine(stateMachineArn=arn, definition=json.dumps(answers(output)), publish=True)
    return arn


def outcome(region: MotoRegion, arn: str) -> dict:
    started = region.sfn.start_execution(stateMachineArn=arn)
    region.clock.run()
    return region.sfn.describe_execution(executionArn=started["executionArn"])


def test_a_version_and_an_alias_run_their_own_definition(region: MotoRegion):
    arn = publish(region, "one", "two")
    route = [{"stateMachineVersionArn": f"{arn}:1", "weight": 100}]
    alias = region.sfn.create_state_machine_alias(name="live", routingConfiguration=route)["stateMachineAliasArn"]
    latest, first, live = outcome(region, arn), outcome(region, f"{arn}:1"), outcome(region, alias)
    assert [json.loads(e["output"]) for e in (latest, first, live)] == ["two", "one", "one"]
    assert {e["stateMachineArn"] for e in (latest, first, live)} == {arn}
    assert "stateMachineVersionArn" not in latest
    assert (first["stateMachineVersionArn"], first.get("stateMachineAliasArn")) == (f"{arn}:1", None)
    assert (live["stateMachineVersionArn"], live["stateMachineAliasArn"]) == (f"{arn}:1", alias)
    assert len(region.sfn.list_executions(stateMachineArn=alias)["executions"]) == 1
    region.sfn.update_state_machine_alias(
        stateMachineAliasArn=alias, routingConfiguration=[{"stateMachineVersionArn": f"{arn}:2", "weight": 100}]
    )
    assert json.loads(outcome(region, alias)["output"]) == "two"
    assert region.sfn.describe_state_machine_for_execution(executionArn=live["executionArn"])["definition"] == json.dumps(
        answers("one")
    )


def test_an_alias_with_two_versions_divides_its_executions(region: MotoRegion):
    arn = publish(region, "one", "two")
    route = [{"stateMachineVersionArn": f"{arn}:{number}", "weight": 50} for number in (1, 2)]
    alias = region.sfn.create_state_machine_alias(name="live", routingConfiguration=route)["stateMachineAliasArn"]
    assert {json.loads(outcome(region, alias)["output"]) for _ in range(12)} == {"one", "two"}


def test_versions_are_published_listed_and_deleted(region: MotoRegion):
    arn = publish(region, "one", "two")
    again = region.sfn.update_state_machine(stateMachineArn=arn, definition=json.dumps(answers("two")), publish=True)
    assert again["stateMachineVersionArn"] == f"{arn}:2"
    assert region.sfn.publish_state_machine_version(stateMachineArn=arn)["stateMachineVersionArn"] == f"{arn}:2"
    region.sfn.update_state_machine(stateMachineArn=arn, definition=json.dumps(answers("three")))
    assert region.sfn.publish_state_machine_version(stateMachineArn=arn)["stateMachineVersionArn"] == f"{arn}:3"
    route = [{"stateMachineVersionArn": f"{arn}:2", "weight": 100}]
    alias = region.sfn.create_state_machine_alias(name="live", routingConfiguration=route)["stateMachineAliasArn"]
    with pytest.raises(ClientError) as refused:
        region.sfn.delete_state_machine_version(stateMachineVersionArn=f"{arn}:2")
    assert code_of(refused) == "ConflictException"
    region.sfn.delete_state_machine_alias(stateMachineAliasArn=alias)
    for _ in range(2):
        region.sfn.delete_state_machine_version(stateMachineVersionArn=f"{arn}:2")
    listed = region.sfn.list_state_machine_versions(stateMachineArn=arn)["stateMachineVersions"]
    assert [version["stateMachineVersionArn"] for version in listed] == [f"{arn}:3", f"{arn}:1"]


def test_a_machines_revision_changes_with_its_definition(region: MotoRegion):
    arn = region.create("m", answers("one"))
    first = region.sfn.describe_state_machine(stateMachineArn=arn)["revisionId"]
    updated = region.sfn.update_state_machine(stateMachineArn=arn, definition=json.dumps(answers("two")))["revisionId"]
    assert first != updated == region.sfn.describe_state_machine(stateMachineArn=arn)["revisionId"]


def test_tags_are_kept_and_go_with_the_machine(region: MotoRegion):
    arn = region.create("m", answers("one"), tags=[{"key": "a", "value": "1"}])
    region.sfn.tag_resource(resourceArn=arn, tags=[{"key": "b", "value": "2"}])
    tags = region.sfn.list_tags_for_resource(resourceArn=arn)["tags"]
    assert {tag["key"]: tag["value"] for tag in tags} == {"a": "1", "b": "2"}
    region.sfn.delete_state_machine(stateMachineArn=arn)
    assert region.create("m", answers("one")) == arn
    assert region.sfn.list_tags_for_resource(resourceArn=arn)["tags"] == []


def test_a_bad_definition_is_refused_at_create_and_update_and_explained_by_validate(region: MotoRegion):
    bad = machine("A", A={"Type": "Pass", "Next": "B"})
    for attempt in (
        lambda: region.create("m", bad),
        lambda: region.sfn.update_state_machine(stateMachineArn=region.create("n", wait(1)), definition=json.dumps(bad)),
    ):
        with pytest.raises(region.sfn.exceptions.InvalidDefinition):
            attempt()
    verdict = region.sfn.validate_state_machine_definition(definition=json.dumps(bad))
    assert verdict["result"] == "FAIL"
    assert [(d["code"], d["location"]) for d in verdict["diagnostics"]] == [("MISSING_TRANSITION_TARGET", "/States/A/Next")]
    assert region.sfn.validate_state_machine_definition(definition=json.dumps(wait(1)))["result"] == "OK"


def test_another_definition_under_a_taken_name_is_refused(region: MotoRegion):
    arn = region.create("m", answers("one"))
    assert region.create("m", answers("one")) == arn
    with pytest.raises(region.sfn.exceptions.StateMachineAlreadyExists):
        region.create("m", answers("two"))


def test_task_tokens_are_reported_through_the_api(region: MotoRegion):
    arguments = {"FunctionName": "f", "Payload": {"token": "{% $states.context.Task.Token %}"}}

    def report_later(value: dict) -> None:
        failure = {"taskToken": value["token"], "error": "NodeLost", "cause": "gone"}
        region.clock.after(60, lambda: region.sfn.send_task_failure(**failure))

    region.functions["f"] = report_later
    execution = region.run(sdk("lambda:invoke.waitForTaskToken", arguments))
    assert (execution.error, execution.cause, execution.stop - region.clock.start) == ("NodeLost", "gone", 60)
    with pytest.raises(ClientError) as refused:
        region.sfn.send_task_heartbeat(taskToken="none")
    assert code_of(refused) == "TaskTimedOut"


# SDK integrations


def test_an_sdk_integration_writes_names_in_pascal_case_and_times_as_iso(region: MotoRegion):
    other = region.run(answers("x"))
    result = region.run(sdk("aws-sdk:sfn:describeExecution", {"ExecutionArn": other.arn})).output
    assert (result["Status"], result["ExecutionArn"]) == ("SUCCEEDED", other.arn)
    assert result["StartDate"].startswith("2027-01-01T00:00:00") and "ResponseMetadata" not in result


def test_a_switch_decides_if_an_sdk_integration_writes_a_full_second_with_a_fraction(region: MotoRegion):
    """No source shows the form of a date in an SDK integration."""
    describe = [{"ExecutionArn": region.run(answers("x")).arn} for _ in range(8)]

    def dates() -> set[str]:
        return {region.run(sdk("aws-sdk:sfn:describeExecution", each)).output["StopDate"] for each in describe}

    assert not [date for date in dates() if "." in date]
    region.services.full_seconds_have_fraction = True
    assert not [date for date in dates() if not date.endswith(".000Z")]


def test_the_cause_of_an_sdk_integrations_error_has_the_services_answer_in_brackets(region: MotoRegion):
    """LocalStack's recording services/test_aws_sdk_task_service test_sfn_send_task_outcome_with_no_such_token, 2025-11-06."""
    arguments = {"ExecutionArn": "arn:aws:states:eu-central-1:123456789012:execution:m:none"}
    cause = region.run(sdk("aws-sdk:sfn:describeExecution", arguments)).cause
    assert " (Service: Sfn, Status Code: 400, Request ID: " in cause and cause.endswith(") (SDK Attempt Count: 1)")


@pytest.mark.parametrize(
    ("resource", "arguments", "error"),
    [
        (
            "sfn:describeExecution",
            {"ExecutionArn": "arn:aws:states:eu-central-1:123456789012:execution:m:none"},
            "Sfn.ExecutionDoesNotExistException",
        ),
        (
            "autoscaling:createAutoScalingGroup",
            {"AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 1},
            "AutoScaling.AutoScalingException",
        ),
        ("ec2:describeInstances", {"InstanceIds": ["i-00000000000000000"]}, "Ec2.Ec2Exception"),
        pytest.param(
            *("sfn:describeExecution", {"Nonsense": 1}, "States.Runtime"),
            marks=pytest.mark.not_in_the_models("the field Nonsense, which does not exist", "has no field ExecutionArn"),
        ),
        ("sfn:nonsense", {}, "States.Runtime"),
    ],
    ids=["modelled", "not modelled", "a service without modelled errors", "an unknown field", "an unknown action"],
)
def test_an_sdk_integrations_error_is_named_as_the_java_sdk_does(region: MotoRegion, resource, arguments, error):
    assert region.run(sdk(f"aws-sdk:{resource}", arguments)).error == error


def test_an_endpoint_that_does_not_answer_is_an_sdk_client_exception(region: MotoRegion):
    definition = sdk("aws-sdk:sfn:listStateMachines", {})
    region.services.endpoint = "http://127.0.0.1:9"
    assert region.run(definition).error == "Sfn.SdkClientException"


def test_a_machine_may_stop_and_start_executions_by_sdk_integrations(region: MotoRegion):
    victim = region.create("victim", wait(5000))
    arn = region.sfn.start_execution(stateMachineArn=victim)["executionArn"]
    stop = sdk("aws-sdk:sfn:stopExecution", {"ExecutionArn": arn, "Error": "Stopped"}, Output={})
    region.sfn.start_execution(stateMachineArn=region.create("stopper", stop))
    region.clock.run(limit=10)
    assert region.engine.execution(arn).error == "Stopped"
    start = region.run(sdk("aws-sdk:sfn:startExecution", {"StateMachineArn": victim, "Name": "again"}))
    assert region.engine.execution(start.output["ExecutionArn"]).status == "SUCCEEDED"


def test_a_machine_may_stop_itself(region: MotoRegion):
    arguments = {"ExecutionArn": "{% $states.context.Execution.Id %}"}
    execution = region.run(sdk("aws-sdk:sfn:stopExecution", arguments))
    assert execution.status == "ABORTED"


def test_a_machine_publishes_to_a_topic(region: MotoRegion):
    topic = region.client("sns").create_topic(Name="t")["TopicArn"]
    execution = region.run(sdk("aws-sdk:sns:publish", {"TopicArn": topic, "Message": "hello", "Subject": "s"}))
    assert execution.output["MessageId"]
    assert [(n.topic, n.message, n.subject) for n in region.events.notifications] == [(topic, "hello", "s")]


@pytest.mark.parametrize(
    ("resource", "arguments", "action", "error"),
    [
        ("lambda:invoke", {"FunctionName": "go"}, "lambda:InvokeFunction", "Lambda.AWSLambdaException"),
        ("states:startExecution", {"StateMachineArn": "x"}, "states:StartExecution", "StepFunctions.AccessDeniedException"),
        ("states:startExecution.sync:2", {"StateMachineArn": "x"}, "events:PutRule", "StepFunctions.AccessDeniedException"),
    ],
)
def test_a_call_that_the_role_may_not_make_fails_with_the_services_error(region: MotoRegion, resource, arguments, action, error):
    region.engine.refusal = lambda role, asked, parameters: f"{role} may not {asked}" if asked == action else None
    execution = region.run(sdk(resource, arguments))
    assert execution.error == error
    service = "AWSLambda; Status Code: 403" if resource == "lambda:invoke" else "AWSStepFunctions; Status Code: 400"
    assert execution.cause.startswith(
        f"{ROLE} may not {action} (Service: {service}; Error Code: AccessDeniedException; Request ID"
    )


def test_a_child_that_the_role_may_not_stop_runs_on(region: MotoRegion):
    child = region.create("child", wait(50))
    parent = region.create("parent", sdk("states:startExecution.sync:2", {"StateMachineArn": child}))
    arn = region.sfn.start_execution(stateMachineArn=parent)["executionArn"]
    region.clock.run(limit=10)
    region.engine.refusal = lambda role, action, parameters: "no" if action == "states:StopExecution" else None
    region.sfn.stop_execution(executionArn=arn)
    region.clock.run()
    (other,) = [each for each in region.engine.executions.values() if each.arn != arn]
    assert (region.engine.execution(arn).status, other.status) == ("ABORTED", "SUCCEEDED")
