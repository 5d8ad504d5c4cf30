"""The parts of the probe that create nothing, or recycle one node: with scripted answers of AWS."""

from __future__ import annotations

import base64
import json
import types

import pytest
from botocore.exceptions import ClientError

from probe import cluster, validators
from probe.__main__ import main
from probe.documents import read_documents

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
        self.outcome, self.desired = "recycled", 2
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
        return 0 if self.outcome == "recycled" else 1, json.dumps({"outcome": self.outcome, "execution_arn": "arn"})

    def get(self, path):
        if path == "/api/v1/nodes":
            return {"items": [self._node(each) for each in sorted(self.nodes)]}
        if path.startswith("/api/v1/events"):
            return {"items": [{"reason": each, "firstTimestamp": "2027-01-01T00:00:00Z"} for each in reversed(self.reasons)]}
        name = path.rpartition("/")[2]
        return self._node(name) if name in self.nodes else None

    def _node(self, name):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z"}
        about = {"metadata": {"name": name}, "spec": {"providerID": f"aws:///eu-west-1a/{name}"}}
        return {**about, "status": {"conditions": [ready]}}


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
        ({"desired": 2, "reasons": ["RecycleDisposing", "RecycleUnknown"][:0]}, "phases in their order"),
        ({"outcome": "restored"}, "ended with the outcome recycled"),
    ],
)
def test_a_node_that_was_not_recycled_is_a_problem(recycled, capsys, change, problem):
    vars(recycled).update(change)
    recycled.clock = types.SimpleNamespace(now=iter(range(0, 10_000, 700)).__next__, sleep=lambda seconds: None)
    assert main(["--cluster", "prod", "--group", "workers", "--yes"], recycled) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("PROBLEM") and problem in line]


def test_no_node_is_recycled_without_consent_or_a_group(recycled):
    assert main(["--cluster", "prod", "--group", "workers"], recycled, ask=lambda text: "") == 2
    assert main(["--cluster", "prod"], recycled) == 2
    assert recycled.members == ["i-1", "i-2"]
