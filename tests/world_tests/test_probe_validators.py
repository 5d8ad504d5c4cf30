"""The parts of the probe that create nothing, or recycle one node: with scripted answers of AWS."""

from __future__ import annotations

import base64
import json
import types
import urllib.error
import urllib.request

import boto3
import pytest
from botocore.exceptions import ClientError

from probe import cluster, validators
from probe.__main__ import main
from probe.documents import read_documents
from probe.plan import limit_by_quota
from probe.question import QUESTIONS
from probe.resources import Impossible

POLICY = {"Version": "2012-10-17", "Statement": [{"Sid": "Read", "Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"}]}
PATTERN = {"source": ["aws.ec2"], "detail": {"state": [{"prefix": "run"}], "gone": [{"exists": False}]}}


def sent(target="", **body):
    """A recorded request: of the JSON protocol with a target, else of the query protocol."""
    text = json.dumps(body) if target else "&".join(f"{name}={value}" for name, value in body.items())
    return {"headers": {"X-Amz-Target": target} if target else {}, "body": base64.b64encode(text.encode()).decode()}


RECORD = [
    sent("AWSStepFunctions.CreateStateMachine", name="sweep", definition="{}"),
    sent("AWSEvents.PutRule", Name="spot", EventPattern=json.dumps(PATTERN)),
    sent("AWSEvents.PutRule", Name="rate", ScheduleExpression="rate(15 minutes)"),
    sent(Action="CreateRole", RoleName="claim-node", AssumeRolePolicyDocument=json.dumps(POLICY)),
    sent(Action="PutRolePolicy", RoleName="claim-node", PolicyDocument=json.dumps(POLICY)),
    sent(Action="CreatePolicy", PolicyName="hooks", PolicyDocument=json.dumps(POLICY)),
    sent(Action="AttachRolePolicy", RoleName="claim-node", PolicyArn="arn:aws:iam::123456789012:policy/hooks"),
]
CALLS = [{"role": "claim-node", "action": "ec2:DescribeInstances", "resource": "*", "context": {"aws:a": "b"}, "allowed": True}]


class Scripted:
    """An account whose services answer what `answers` has for an operation: an answer, or an error."""

    region = "eu-west-1"

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def client(self, service):
        return types.SimpleNamespace(get_paginator=self._paginator, **{name: self._call(name) for name in self.answers})

    def _call(self, name):
        def call(**parameters):
            self.asked.append((name, parameters))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(**parameters) if callable(answer) else answer

        return call

    def _paginator(self, name):
        return types.SimpleNamespace(paginate=lambda **parameters: [self._call(name)(**parameters)])


def refused(code):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Operation")


def matches(EventPattern, Event):
    event = json.loads(Event)
    return {"Result": event["source"] == "aws.ec2" and event["detail"]["state"].startswith("run")}


CONTENT = {
    "validate_state_machine_definition": {"result": "OK", "diagnostics": []},
    "validate_policy": {"findings": []},
    "simulate_custom_policy": {"EvaluationResults": [{"EvalDecision": "allowed"}]},
    "test_event_pattern": matches,
    "list_service_quotas": lambda ServiceCode: {
        "Quotas": [{"QuotaName": name, "Value": 10_000.0} for service, name, _ in validators.QUOTAS if service == ServiceCode]
    },
    "describe_instances": {"Reservations": []},
}


@pytest.fixture
def validate(tmp_path):
    record = tmp_path / "deployment-1.json"
    record.write_text(json.dumps(RECORD))
    (tmp_path / "calls.json").write_text(json.dumps(CALLS))

    def run(**answers):
        account = Scripted(**{**CONTENT, **answers})
        code = main(["--validate-only", "--record", str(record), "--folder", str(tmp_path)], account)
        checks = json.loads((tmp_path / "validated.json").read_text())
        return code, {each["validator"]: each["ok"] for each in checks}, account

    return run


def test_every_validator_is_asked_about_what_terraform_sends(validate, tmp_path):
    code, verdicts, account = validate()
    assert code == 0
    assert verdicts == dict.fromkeys(
        ["ValidateStateMachineDefinition", "ValidatePolicy", "SimulateCustomPolicy", "TestEventPattern", "Service Quotas", "EC2"],
        True,
    )
    asked = dict(account.asked)
    assert asked["simulate_custom_policy"] == {
        "PolicyInputList": [json.dumps(POLICY)] * 2,
        "ActionNames": ["ec2:DescribeInstances"],
        "ResourceArns": ["*"],
        "ContextEntries": [{"ContextKeyName": "aws:a", "ContextKeyType": "string", "ContextKeyValues": ["b"]}],
    }
    assert set(read_documents(tmp_path / "deployment-1.json").patterns) == {"spot"}


DIAGNOSTIC = {"severity": "ERROR", "code": "SCHEMA_VALIDATION_FAILED", "message": "bad"}
FINDING = {"findingType": "ERROR", "issueCode": "INVALID_ACTION", "findingDetails": "bad"}


@pytest.mark.parametrize(
    "operation, answer, validator, verdict",
    [
        (
            "validate_state_machine_definition",
            {"result": "FAIL", "diagnostics": [DIAGNOSTIC]},
            "ValidateStateMachineDefinition",
            False,
        ),
        ("validate_policy", {"findings": [FINDING]}, "ValidatePolicy", False),
        ("simulate_custom_policy", {"EvaluationResults": [{"EvalDecision": "implicitDeny"}]}, "SimulateCustomPolicy", False),
        ("test_event_pattern", {"Result": False}, "TestEventPattern", False),
        ("test_event_pattern", refused("InvalidEventPatternException"), "TestEventPattern", None),
        ("describe_instances", refused("FilterLimitExceeded"), "EC2", False),
        ("list_service_quotas", refused("AccessDeniedException"), "Service Quotas", None),
        ("list_service_quotas", {"Quotas": []}, "Service Quotas", None),
    ],
)
def test_a_validator_that_objects_or_refuses_is_reported(validate, operation, answer, validator, verdict):
    code, verdicts, _ = validate(**{operation: answer})
    assert (code, verdicts[validator]) == (1, verdict)


# One node of a real cluster


class Recycled(Scripted):
    """A group of two, whose first member the command line replaces. The node of an instance has its id as its name."""

    def __init__(self):
        self.members, self.states, self.nodes = ["i-1", "i-2"], {"i-1": "running"}, {"i-1", "i-2"}
        self.reasons = ["RecycleClaimed", "RecycleStandby", "RecycleDraining", "RecyclePods", "RecycleDisposing"]
        #: Times of Events, and the time since when a Node is Ready. Events without one have this time.
        self.times, self.ready = {}, "2027-01-01T00:00:00Z"
        #: `afterwards` is the desired capacity after the recycle. `output` is of the command line, where it is not the outcome.
        self.outcome, self.desired, self.afterwards, self.output = "recycled", 2, 2, None
        super().__init__(
            describe_auto_scaling_groups=lambda **_: {"AutoScalingGroups": [self._group()]},
            describe_instances=lambda **_: {"Reservations": [{"Instances": [{"State": {"Name": self.states["i-1"]}}]}]},
            get_execution_history=lambda **_: {
                "events": [{"timestamp": TAINTED, "stateEnteredEventDetails": {"name": "TaintNode"}}]
            },
        )

    def _group(self):
        members = [{"InstanceId": each, "LifecycleState": "InService"} for each in self.members]
        return {"MinSize": 1, "DesiredCapacity": self.desired, "MaxSize": 4, "Instances": members}

    clock = types.SimpleNamespace(now=lambda: 0.0, sleep=lambda seconds: None)

    def command(self, arguments):
        assert arguments == ["recycle", "i-1", "--cluster", "prod", "--output", "json"]
        if self.outcome == "recycled":
            self.members, self.states["i-1"], self.nodes = ["i-2", "i-3"], "terminated", {"i-2", "i-3"}
            self.desired = self.afterwards
        output = json.dumps({"outcome": self.outcome, "execution_arn": "arn"}) if self.output is None else self.output
        return 0 if self.outcome == "recycled" else 1, output

    def get(self, path):
        if path == "/api/v1/nodes":
            return {"items": [self._node(each) for each in sorted(self.nodes)]}
        if path.startswith("/api/v1/events"):
            times = {**dict.fromkeys(reversed(self.reasons), "2027-01-01T00:00:00Z"), **self.times}
            return {"items": [{"reason": reason, "firstTimestamp": time} for reason, time in times.items()]}
        name = path.rpartition("/")[2]
        return self._node(name) if name in self.nodes else None

    def _node(self, name):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.ready}
        about = {"metadata": {"name": name}, "spec": {"providerID": f"aws:///eu-west-1a/{name}"}}
        return {**about, "status": {"conditions": [ready]}}


#: The function itself: the fixture replaces it.
RUN_COMMAND = cluster.run_command
TAINTED = cluster.datetime.datetime(2027, 1, 1, 0, 1, tzinfo=cluster.datetime.UTC)


@pytest.fixture
def recycled(monkeypatch):
    account = Recycled()
    monkeypatch.setattr(cluster, "reader", lambda *_: account)
    monkeypatch.setattr(cluster, "run_command", account.command)
    return account


def test_a_recycled_node_passes_every_check(recycled, capsys):
    assert main(["--cluster", "prod", "--group", "workers", "--yes"], recycled) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nok ") == 10 and "PROBLEM" not in printed


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"reasons": []}, "phases in their order"),
        ({"times": {"RecycleDraining": "2027-01-01T00:05:00Z"}}, "phases in their order"),
        ({"ready": "2027-01-01T00:02:00Z"}, "Ready before the taint"),
        ({"afterwards": 3}, "has its sizes again"),
        ({"outcome": "restored"}, "ended with the outcome recycled"),
        ({"output": ""}, "ended with the outcome recycled: no output, exit code 0"),
        ({"output": "not JSON"}, "ended with the outcome recycled: not JSON"),
        ({"output": '{"outcome": "recycled"}'}, "ended with the outcome recycled"),
    ],
)
def test_a_node_that_was_not_recycled_is_a_problem(recycled, capsys, change, problem):
    vars(recycled).update(change)
    assert main(["--cluster", "prod", "--group", "workers", "--yes"], recycled) == 1
    (found,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("PROBLEM"))
    assert problem in found


def test_no_node_is_recycled_without_consent_or_a_group(recycled):
    assert main(["--cluster", "prod", "--group", "workers"], recycled, ask=lambda text: "") == 2
    assert main(["--cluster", "prod"], recycled) == 2
    assert recycled.members == ["i-1", "i-2"]


def test_an_api_that_stops_to_answer_is_a_problem(recycled, capsys, monkeypatch):
    def fails(path):
        raise Impossible("the API does not answer")

    def command(arguments):
        monkeypatch.setattr(recycled, "get", fails)
        return recycled.command(arguments)

    monkeypatch.setattr(cluster, "run_command", command)
    assert main(["--cluster", "prod", "--group", "workers", "--yes"], recycled) == 1
    assert "PROBLEM  everything could be checked: the API does not answer" in capsys.readouterr().out


def test_a_missing_command_line_is_named(recycled, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "run_command", RUN_COMMAND)
    monkeypatch.setenv("PATH", "")
    assert main(["--cluster", "prod", "--group", "workers", "--yes"], recycled) == 2
    assert "the command line recycle-eks cannot be run" in capsys.readouterr().err


def http_error(code):
    return urllib.error.HTTPError("https://cluster", code, "no", None, None)


@pytest.mark.parametrize("error", [urllib.error.URLError("no route"), TimeoutError("late"), http_error(403), http_error(500)])
def test_a_failed_read_of_the_cluster_says_so(monkeypatch, error):
    account = Scripted(describe_cluster={"cluster": {"endpoint": "https://cluster", "certificateAuthority": {"data": ""}}})
    account.session = boto3.Session("key", "secret", region_name="eu-west-1")
    reader, raised = cluster.reader(account, "prod"), [error, http_error(404)]

    def urlopen(*_, **__):
        raise raised.pop(0)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(Impossible, match="the API of the cluster prod does not answer"):
        reader.get("/api/v1/nodes")
    assert reader.get("/api/v1/nodes/gone") is None


# The quota


def test_questions_that_need_more_than_the_quota_are_left_out():
    account = Scripted(get_service_quota={"Quota": {"Value": 5.0}})
    most, too_big = limit_by_quota(account, 16, list(QUESTIONS.values()))
    assert most == 2
    assert too_big == [each for each in QUESTIONS.values() if each.instances > 2 and not each.setup.spot]
    assert limit_by_quota(account, 1, [])[0] == 1
    assert limit_by_quota(Scripted(get_service_quota=refused("AccessDenied")), 16, []) == (16, [])
