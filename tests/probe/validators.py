"""Asks AWS's validators. Nothing is created."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from probe.account import Account
from probe.documents import Documents, sample_event
from world.aws import event_patterns

#: The quotas that matter, by service: a part of the name in Service Quotas, and the least value that recycle-eks assumes.
QUOTAS = [
    ("ec2", "Running On-Demand Standard", 32),
    ("autoscaling", "Auto Scaling groups per region", 25),
    ("lambda", "Concurrent executions", 100),
    ("states", "StartExecution throttle token bucket size", 500),
]
#: The values in a filter of DescribeInstances that the product sends at most (row 39 of docs/aws-evidence.md).
MOST_FILTER_VALUES = 200


@dataclass(frozen=True)
class Check:
    """`ok` is None if the validator could not be asked."""

    validator: str
    subject: str
    ok: bool | None
    detail: str = ""


def check_everything(account: Account, documents: Documents, calls: list[dict[str, Any]]) -> Iterator[Check]:
    """Yields each verdict as it comes. A refused validator does not keep the others from being asked."""
    for name, definition in documents.definitions.items():
        yield from _asked("ValidateStateMachineDefinition", name, lambda d=definition: _definition(account, d))
    for role, policies in documents.policies.items():
        for number, policy in enumerate(policies, 1):
            yield from _asked("ValidatePolicy", f"{role}, policy {number}", lambda p=policy: _policy(account, p, {}))
    kind = {"validatePolicyResourceType": "AWS::IAM::AssumeRolePolicyDocument"}
    for role, trust in documents.trusts.items():
        yield from _asked("ValidatePolicy", f"{role}, trust", lambda t=trust: _policy(account, t, kind))
    for call in calls:
        subject = f"{call['role']}: {call['action']} on {call['resource']}"
        yield from _asked("SimulateCustomPolicy", subject, lambda c=call: _call(account, documents, c))
    for rule, pattern in documents.patterns.items():
        yield from _asked("TestEventPattern", rule, lambda p=pattern: _pattern(account, p))
    for service, name, least in QUOTAS:
        yield from _asked("Service Quotas", f"{service}: {name}", lambda s=service, n=name, m=least: _quota(account, s, n, m))
    subject = f"DescribeInstances with {MOST_FILTER_VALUES} values in a filter"
    yield from _asked("EC2", subject, lambda: _filter(account))


def _asked(validator: str, subject: str, ask: Callable[[], tuple[bool | None, str]]) -> Iterator[Check]:
    try:
        yield Check(validator, subject, *ask())
    except (ClientError, BotoCoreError) as error:
        yield Check(validator, subject, None, str(error))


def _definition(account: Account, definition: str) -> tuple[bool, str]:
    answer = account.client("stepfunctions").validate_state_machine_definition(
        definition=definition, type="STANDARD", severity="WARNING"
    )
    found = [f"{each['severity']} {each['code']} {each.get('location', '')}: {each['message']}" for each in answer["diagnostics"]]
    return answer["result"] == "OK" and not found, "; ".join(found)


def _policy(account: Account, policy: str, kind: dict[str, str]) -> tuple[bool, str]:
    policy_type = "RESOURCE_POLICY" if kind else "IDENTITY_POLICY"
    pages = account.client("accessanalyzer").get_paginator("validate_policy")
    pages = pages.paginate(policyDocument=policy, policyType=policy_type, **kind)
    findings = [finding for page in pages for finding in page["findings"]]
    found = [f"{each['findingType']} {each['issueCode']}: {each['findingDetails']}" for each in findings]
    return all(each["findingType"] == "SUGGESTION" for each in findings), "; ".join(found)


def _call(account: Account, documents: Documents, call: dict[str, Any]) -> tuple[bool, str]:
    context = [
        {"ContextKeyName": key, "ContextKeyType": "string", "ContextKeyValues": [value]}
        if isinstance(value, str)
        else {"ContextKeyName": key, "ContextKeyType": "stringList", "ContextKeyValues": value}
        for key, value in call["context"].items()
    ]
    (result,) = account.client("iam").simulate_custom_policy(
        PolicyInputList=documents.policies.get(call["role"], []),
        ActionNames=[call["action"]],
        ResourceArns=[call["resource"]],
        ContextEntries=context,
    )["EvaluationResults"]
    decision = result["EvalDecision"]
    return (decision == "allowed") == call["allowed"], f"AWS says {decision}, the local world {_word(call['allowed'])}"


def _word(allowed: bool) -> str:
    return "allowed" if allowed else "denied"


def _pattern(account: Account, pattern: str) -> tuple[bool, str]:
    """AWS refuses a pattern that it cannot read. Its answer to two events has to be that of the local world."""
    parsed = json.loads(pattern)
    sample = sample_event(parsed, "123456789012", str(account.region))
    wrong = []
    for event in (sample, {**sample, "source": "recycle-eks.probe", "detail-type": "none"}):
        answer = account.client("events").test_event_pattern(EventPattern=pattern, Event=json.dumps(event))["Result"]
        if answer != event_patterns.matches(parsed, event):
            wrong.append(f"AWS answers {answer} to {json.dumps(event)}")
    return not wrong, "; ".join(wrong)


def _quota(account: Account, service: str, name: str, least: int) -> tuple[bool | None, str]:
    pages = account.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode=service)
    found = [quota for page in pages for quota in page["Quotas"] if name.lower() in quota["QuotaName"].lower()]
    if not found:
        return None, "Service Quotas has no quota of this name"
    value = min(quota["Value"] for quota in found)
    return value >= least, f"{value:.0f}, at least {least} is assumed"


def _filter(account: Account) -> tuple[bool, str]:
    """AWS refuses it with FilterLimitExceeded if it takes fewer values."""
    values = [f"i-{number:017x}" for number in range(MOST_FILTER_VALUES)]
    try:
        account.client("ec2").describe_instances(Filters=[{"Name": "instance-id", "Values": values}])
    except ClientError as error:
        return False, str(error)
    return True, ""


def read_calls(file: Path) -> list[dict[str, Any]]:
    """Returns the recorded calls: role, action, resource, context, and whether the local world allowed each of them."""
    return json.loads(file.read_text()) if file.exists() else []
