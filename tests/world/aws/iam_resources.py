"""The resources and condition keys of each action in IAM.

Source: AWS's service authorization reference, whose data the simulator also has: a row that contradicts it is an error at its
first call. Resources and their tags are those in moto. A missing resource needs no permission: AWS does not document whether such
a call is refused or reported as not found, and functions must handle the service's own answer anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import moto

ACCOUNT, REGION, PARTITION = "123456789012", "eu-west-1", "aws"

# The last part of ARNs whose id no policy names.
SOME_ID = "00000000-0000-4000-8000-000000000000"

Parameters = dict[str, Any]
Context = dict[str, str | list[str]]


@dataclass(frozen=True)
class Asked:
    """One resource of a call, and the values for its conditions."""

    resource: str
    context: Context = field(default_factory=dict)


Rule = Callable[[Parameters], list[Asked]]


def _arn(service: str, rest: str) -> str:
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


def _backend(service: str) -> Any:
    return moto.backends.get_backend(service)[ACCOUNT][REGION]


def _tags(kinds: Iterable[str], tags: dict[str, str]) -> Context:
    """The tags that a resource has, under each of their keys."""
    return {f"{kind}/{name}": value for kind in kinds for name, value in tags.items()}


def _tags_in_request(tags: Iterable[dict[str, Any]]) -> Context:
    """The tags that a request names: `aws:TagKeys` is there only if it names one."""
    named = [(tag["Key"], tag.get("Value")) for tag in tags]
    values: Context = {f"aws:RequestTag/{name}": value for name, value in named if value is not None}
    return {**values, "aws:TagKeys": [name for name, _ in named]} if named else values


# Rules


def everything(parameters: Parameters) -> list[Asked]:
    """The action knows no resources: only a statement for `*` allows it."""
    return [Asked("*")]


def _group(parameters: Parameters) -> list[Asked]:
    """The Auto Scaling group that is named, or whose member is."""
    groups = _backend("autoscaling").autoscaling_groups
    name, instance = parameters.get("AutoScalingGroupName"), parameters.get("InstanceId")
    found = [groups[name]] if name in groups else []
    if name is None:
        found = [group for group in groups.values() if any(each.instance_id == instance for each in group.instance_states)]
    return [_as_group(group) for group in found]


def _as_group(group: Any, context: Context | None = None) -> Asked:
    tags = {tag.get("Key") or tag.get("key"): tag.get("Value") or tag.get("value") or "" for tag in group.tags}
    return Asked(group.arn, {**_tags(("aws:ResourceTag", "autoscaling:ResourceTag"), tags), **(context or {})})


def _tagged_groups(parameters: Parameters) -> list[Asked]:
    groups, tags = _backend("autoscaling").autoscaling_groups, parameters["Tags"]
    named = {tag["ResourceId"]: [each for each in tags if each["ResourceId"] == tag["ResourceId"]] for tag in tags}
    return [_as_group(groups[name], _tags_in_request(its)) for name, its in named.items() if name in groups]


def _instances(field: str) -> Rule:
    def rule(parameters: Parameters) -> list[Asked]:
        request = _tags_in_request(parameters.get("Tags") or [])
        backend = _backend("ec2")
        found = [id for id in parameters[field] if backend.get_instance_by_id(id) is not None]
        return [
            Asked(
                _arn("ec2", f"instance/{id}"),
                {**_tags(("aws:ResourceTag", "ec2:ResourceTag"), backend.tags.get(id, {})), **request},
            )
            for id in found
        ]

    return rule


def _cluster(parameters: Parameters) -> list[Asked]:
    return [Asked(_arn("eks", f"cluster/{parameters['name']}"))]


def _node_group(parameters: Parameters) -> list[Asked]:
    return [Asked(_arn("eks", f"nodegroup/{parameters['clusterName']}/{parameters['nodegroupName']}/{SOME_ID}"))]


def _access_entry(parameters: Parameters) -> list[Asked]:
    cluster = parameters["clusterName"] if "clusterName" in parameters else parameters["name"]
    kind, _, name = parameters["principalArn"].split(":")[5].rpartition("/")
    return [Asked(_arn("eks", f"access-entry/{cluster}/{kind.partition('/')[0]}/{ACCOUNT}/{name}/{SOME_ID}"))]


def _function(parameters: Parameters) -> list[Asked]:
    """Includes the named version or alias (Lambda developer guide, "Using Lambda aliases in … permission policies")."""
    name, qualifier = parameters["FunctionName"], parameters.get("Qualifier")
    arn = name if name.startswith("arn:") else _arn("lambda", f"function:{name}")
    return [Asked(f"{arn}:{qualifier}" if qualifier else arn)]


def _machine(field: str) -> Rule:
    def rule(parameters: Parameters) -> list[Asked]:
        # For a version or an alias, the ARN of the machine (Step Functions developer guide, "Authorization for versions and
        # aliases").
        parts = parameters[field].split(":")
        qualifier: Context = {"states:StateMachineQualifier": parts[7]} if len(parts) > 7 else {}
        return [Asked(":".join(parts[:7]), qualifier)]

    return rule


def _as_named(field: str) -> Rule:
    return lambda parameters: [Asked(parameters[field])]


def _listed_executions(parameters: Parameters) -> list[Asked]:
    return _as_named("mapRunArn")(parameters) if parameters.get("mapRunArn") else _machine("stateMachineArn")(parameters)


def _queue(parameters: Parameters) -> list[Asked]:
    """Returns the queue of a name, or of a URL, which ends in the name."""
    name = parameters.get("QueueName") or parameters["QueueUrl"].rpartition("/")[2]
    return [Asked(_arn("sqs", name))]


def _buses(parameters: Parameters) -> list[Asked]:
    """The event buses of the entries, named or by their ARN."""
    sources = {"events:source": sorted({entry["Source"] for entry in parameters["Entries"]})}
    named = {entry.get("EventBusName") or "default" for entry in parameters["Entries"]}
    return [Asked(name if name.startswith("arn:") else _arn("events", f"event-bus/{name}"), sources) for name in sorted(named)]


def _alarms(parameters: Parameters) -> list[Asked]:
    # For composite alarms, the caller needs the permission for all alarms (API reference of DescribeAlarms).
    named = parameters.get("AlarmNames") or ["any"]
    return [Asked(_arn("cloudwatch", f"alarm:{name}")) for name in named]


def _log_group(parameters: Parameters) -> list[Asked]:
    return [Asked(_arn("logs", f"log-group:{parameters['logGroupName']}"))]


def _rule(field: str) -> Rule:
    return lambda parameters: [Asked(_arn("events", f"rule/{parameters[field]}"))]


ROWS: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeAutoScalingInstances",
            "autoscaling:DescribeInstanceRefreshes",
            "autoscaling:DescribeLifecycleHooks",
            "ec2:DescribeImages",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplateVersions",
            "elasticloadbalancing:DescribeTargetHealth",
            "events:ListRules",
            "logs:DescribeLogGroups",
        ),
        everything,
    ),
    **dict.fromkeys(
        (
            "autoscaling:CancelInstanceRefresh",
            "autoscaling:CompleteLifecycleAction",
            "autoscaling:DetachInstances",
            "autoscaling:EnterStandby",
            "autoscaling:ExitStandby",
            "autoscaling:RecordLifecycleActionHeartbeat",
            "autoscaling:SetDesiredCapacity",
            "autoscaling:SetInstanceProtection",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
        ),
        _group,
    ),
    "cloudwatch:DescribeAlarms": _alarms,
    "autoscaling:CreateOrUpdateTags": _tagged_groups,
    "autoscaling:DeleteTags": _tagged_groups,
    "ec2:CreateTags": _instances("Resources"),
    "ec2:DeleteTags": _instances("Resources"),
    "ec2:StopInstances": _instances("InstanceIds"),
    "ec2:TerminateInstances": _instances("InstanceIds"),
    "eks:DescribeAccessEntry": _access_entry,
    "eks:DescribeCluster": _cluster,
    "eks:DescribeNodegroup": _node_group,
    "events:DescribeRule": _rule("Name"),
    "events:ListTargetsByRule": _rule("Rule"),
    "events:PutEvents": _buses,
    "events:PutRule": _rule("Name"),
    "events:PutTargets": _rule("Rule"),
    "lambda:GetFunctionConfiguration": _function,
    "lambda:InvokeFunction": _function,
    "logs:FilterLogEvents": _log_group,
    "sns:ListSubscriptionsByTopic": _as_named("TopicArn"),
    "sns:Publish": _as_named("TopicArn"),
    "sqs:GetQueueAttributes": _queue,
    "sqs:GetQueueUrl": _queue,
    "sqs:SendMessage": _queue,
    "states:DescribeExecution": _as_named("executionArn"),
    "states:DescribeStateMachine": _machine("stateMachineArn"),
    "states:DescribeStateMachineAlias": _machine("stateMachineAliasArn"),
    "states:GetExecutionHistory": _as_named("executionArn"),
    "states:ListExecutions": _listed_executions,
    "states:ListStateMachineVersions": _machine("stateMachineArn"),
    "states:RedriveExecution": _as_named("executionArn"),
    "states:StartExecution": _machine("stateMachineArn"),
    "states:StopExecution": _as_named("executionArn"),
}
