"""Calls that the policies refuse: on foreign resources, by an operator, and with other tags than those of recycle-eks."""

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from prepare import LAMBDAS
from scenarios.permissions import credentials, granted
from world.aws.iam_resources import ROWS, everything
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.aws.requests import BOTO3_SERVICE
from world.deployment import CLUSTER


def arn(service, rest):
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


THEIR_EXECUTION = arn("states", "execution:payments:1")
THEIR_MACHINE = arn("states", "stateMachine:payments")

PAUSE = {"ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused"}
OF_A_HOOK = {"AutoScalingGroupName": "GROUP", "LifecycleHookName": "theirs", "InstanceId": "INSTANCE"}

#: Every action that takes resources, on foreign ones: GROUP and INSTANCE belong to another owner.
FOREIGN = {
    "autoscaling:CancelInstanceRefresh": {"AutoScalingGroupName": "GROUP"},
    "autoscaling:CompleteLifecycleAction": {**OF_A_HOOK, "LifecycleActionResult": "CONTINUE"},
    "autoscaling:CreateOrUpdateTags": {"Tags": [{**PAUSE, "ResourceId": "GROUP", "Value": "true"}]},
    "autoscaling:DeleteTags": {"Tags": [{**PAUSE, "ResourceId": "GROUP"}]},
    "autoscaling:DetachInstances": {
        "AutoScalingGroupName": "GROUP", "InstanceIds": ["INSTANCE"], "ShouldDecrementDesiredCapacity": False,
    },
    "autoscaling:EnterStandby": {
        "AutoScalingGroupName": "GROUP", "InstanceIds": ["INSTANCE"], "ShouldDecrementDesiredCapacity": False,
    },
    "autoscaling:ExitStandby": {"AutoScalingGroupName": "GROUP", "InstanceIds": ["INSTANCE"]},
    "autoscaling:RecordLifecycleActionHeartbeat": OF_A_HOOK,
    "autoscaling:SetDesiredCapacity": {"AutoScalingGroupName": "GROUP", "DesiredCapacity": 1},
    "autoscaling:SetInstanceProtection": {
        "AutoScalingGroupName": "GROUP", "InstanceIds": ["INSTANCE"], "ProtectedFromScaleIn": True,
    },
    "autoscaling:TerminateInstanceInAutoScalingGroup": {"InstanceId": "INSTANCE", "ShouldDecrementDesiredCapacity": False},
    "ec2:CreateTags": {"Resources": ["INSTANCE"], "Tags": [{"Key": "recycle-eks:claim", "Value": "x"}]},
    "ec2:DeleteTags": {"Resources": ["INSTANCE"], "Tags": [{"Key": "recycle-eks:claim"}]},
    "ec2:StopInstances": {"InstanceIds": ["INSTANCE"]},
    "eks:DescribeAccessEntry": {"clusterName": "production", "principalArn": f"arn:{PARTITION}:iam::{ACCOUNT}:role/theirs"},
    "eks:DescribeCluster": {"name": "production"},
    "eks:DescribeNodegroup": {"clusterName": "production", "nodegroupName": "blue"},
    "events:DescribeRule": {"Name": "payments"},
    "events:ListTargetsByRule": {"Rule": "payments"},
    "events:PutEvents": {"Entries": [{"Source": "payments", "DetailType": "paid", "Detail": "{}"}]},
    "events:PutRule": {"Name": "payments", "ScheduleExpression": "rate(1 minute)"},
    "events:PutTargets": {"Rule": "payments", "Targets": [{"Id": "1", "Arn": THEIR_MACHINE}]},
    "lambda:GetFunctionConfiguration": {"FunctionName": "payments"},
    "lambda:InvokeFunction": {"FunctionName": "payments"},
    "logs:FilterLogEvents": {"logGroupName": "/aws/lambda/payments"},
    "sns:ListSubscriptionsByTopic": {"TopicArn": arn("sns", "payments")},
    "sns:Publish": {"TopicArn": arn("sns", "payments"), "Message": "x"},
    "sqs:GetQueueAttributes": {"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/payments"},
    "sqs:GetQueueUrl": {"QueueName": "payments"},
    "sqs:SendMessage": {"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/payments", "MessageBody": "x"},
    "states:DescribeExecution": {"executionArn": THEIR_EXECUTION},
    "states:DescribeStateMachine": {"stateMachineArn": THEIR_MACHINE},
    "states:DescribeStateMachineAlias": {"stateMachineAliasArn": f"{THEIR_MACHINE}:live"},
    "states:GetExecutionHistory": {"executionArn": THEIR_EXECUTION},
    "states:ListExecutions": {"stateMachineArn": THEIR_MACHINE},
    "states:ListStateMachineVersions": {"stateMachineArn": THEIR_MACHINE},
    "states:RedriveExecution": {"executionArn": THEIR_EXECUTION},
    "states:StartExecution": {"stateMachineArn": THEIR_MACHINE},
    "states:StopExecution": {"executionArn": THEIR_EXECUTION},
}  # fmt: skip
#: Actions that know no resources, all of which only read. CloudWatch shows composite alarms only to callers that may read all.
ELSEWHERE = {action for action, row in ROWS.items() if row is everything} | {"cloudwatch:DescribeAlarms"}


def filled(value, names):
    """With the names of a group and an instance."""
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def call_as(world, who, action, parameters):
    """A real call with the credentials of a role: the code of the error that answers it."""
    service, _, name = action.partition(":")
    operation = "Invoke" if name == "InvokeFunction" else name
    client = world.aws.client_as(BOTO3_SERVICE.get(service, service), *credentials(world, who))
    with pytest.raises(ClientError) as refused:
        getattr(client, xform_name(operation))(**parameters)
    return refused.value.response["Error"]["Code"]


REFUSALS = {"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation"}


def test_no_role_may_touch_foreign_resources(world):
    theirs = world.group("theirs", size=1, minimum=0, maximum=3, cluster="production")
    policies = [each for each in granted(world) if each[1] not in ("WriteItsOwnLog", "DeliverItsLog")]
    allowed = {(who, action) for who, _, action in policies if action not in ELSEWHERE}
    of_ec2 = {each for each in allowed if each[1].startswith("ec2:")}
    # An instance of another cluster, and one without a cluster.
    for instance, calls in ((theirs.instances[0], allowed), (world.instance_without_group().id, of_ec2)):
        names = {"GROUP": "theirs", "INSTANCE": instance}

        codes = {each: call_as(world, *each, filled(FOREIGN[each[1]], names)) for each in sorted(calls)}

        assert {each: code for each, code in codes.items() if code not in REFUSALS} == {}, instance
        assert world.instance(instance).state == "running" and not world.instance(instance).tags.keys() & {"recycle-eks:claim"}
    assert sorted(theirs.states.values()) == ["InService"] and theirs.sizes == (0, 1, 3)


def test_an_operator_may_not_invoke_a_function_of_the_state_machines(world):
    functions = [function for function in LAMBDAS if function != "serve-operator"]
    invocation = {function: {"FunctionName": f"recycle-eks-{function}", "Payload": b"{}"} for function in functions}
    codes = {function: call_as(world, "operator", "lambda:InvokeFunction", invocation[function]) for function in functions}
    assert {function: code for function, code in codes.items() if code not in REFUSALS} == {}


def test_only_recycle_eks_tags_are_written_and_only_claimed_instances_stopped(world):
    ours, owned = world.group("workers", size=1).instances[0], {"Key": f"kubernetes.io/cluster/{CLUSTER}"}
    refused = [
        ("claim-node", "ec2:CreateTags", {"Resources": [ours], "Tags": [{"Key": "Name", "Value": "x"}]}),
        ("claim-node", "ec2:CreateTags", {"Resources": [ours], "Tags": [{**owned, "Value": "owned"}]}),
        ("restore-node", "ec2:DeleteTags", {"Resources": [ours], "Tags": [owned]}),
        # Every tag at once.
        ("restore-node", "ec2:DeleteTags", {"Resources": [ours]}),
        ("detach-terminate", "ec2:StopInstances", {"InstanceIds": [ours]}),
        (
            "operator",
            "autoscaling:CreateOrUpdateTags",
            {"Tags": [{**PAUSE, "Key": "Name", "ResourceId": "workers", "Value": "x"}]},
        ),
    ]

    assert {call_as(world, *each) for each in refused} == {"UnauthorizedOperation", "AccessDenied"}
