"""Permissions: the simulator's decisions, and the answers of services to calls that no policy allows."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from prepare import ROOT
from world.aws import iam_quotas
from world.aws.account import Aws
from world.aws.iam import Iam, Simulator
from world.aws.iam_resources import ROWS, Asked, everything
from world.base.clock import Clock

INSTANCES = "arn:aws:ec2:eu-west-1:123456789012:instance/*"
ROLE = "arn:aws:iam::123456789012:role/path/worker"
SESSION = "arn:aws:sts::123456789012:assumed-role/worker/somebody"


def statement(actions, resources="*", sid="A", **conditions):
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources, "Condition": conditions}


class Account:
    def __init__(self):
        self.aws = Aws(Clock())
        self.iam = Iam(self.aws)
        self.aws.start()

    def role(self, *statements):
        """A role with these statements and nothing else."""
        client = self.aws.client("iam")
        client.create_role(RoleName="worker", Path="/path/", AssumeRolePolicyDocument="{}")
        if statements:
            policy = {"Version": "2012-10-17", "Statement": list(statements)}
            client.put_role_policy(RoleName="worker", PolicyName="worker", PolicyDocument=json.dumps(policy))

    def instance(self, **tags):
        ran = self.aws.client("ec2").run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        (instance,) = [each["InstanceId"] for each in ran["Instances"]]
        self.aws.client("ec2").create_tags(
            Resources=[instance], Tags=[{"Key": key, "Value": tags[key]} for key in tags] or NO_TAGS
        )
        return instance

    def client(self, service):
        return self.aws.client_as(service, *self.aws.session(ROLE, "somebody"))

    def refuses(self, service, operation, **parameters):
        """Code and status of what the role's call is answered."""
        with pytest.raises(ClientError) as error:
            getattr(self.client(service), operation)(**parameters)
        answer = error.value.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


NO_TAGS = [{"Key": "Name", "Value": "x"}]


@pytest.fixture(scope="module")
def one_account():
    account = Account()
    uninstall = iam_quotas.install()
    yield account
    uninstall()
    account.iam.stop()
    account.aws.stop()


@pytest.fixture
def account(one_account):
    one_account.aws.wipe()
    return one_account


def test_an_allowed_call_is_made_and_recorded_with_its_sid(account):
    account.role(statement("ec2:DescribeInstances", sid="Look"), statement("ec2:StopInstances", INSTANCES, sid="Stop"))
    instance = account.instance()

    account.client("ec2").describe_instances()
    account.client("ec2").stop_instances(InstanceIds=[instance])

    seen = [(each.principal, each.action, each.resource, each.allowed, each.statements) for each in account.iam.decisions]
    assert seen == [
        (ROLE, "ec2:DescribeInstances", "*", True, ("Look",)),
        (ROLE, "ec2:StopInstances", f"arn:aws:ec2:eu-west-1:123456789012:instance/{instance}", True, ("Stop",)),
    ]
    assert account.iam.refused == []


def policy_of(characters):
    """A policy of this many characters, and white space that counts for nothing."""
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement("ec2:DescribeInstances", sid="")]}, indent=1)
    return text.replace('"Sid": ""', f'"Sid": "{"A" * (characters - len("".join(text.split())))}"')


def test_a_policy_beyond_the_quotas_is_refused(account):
    account.role()
    iam = account.aws.client("iam")
    iam.put_role_policy(RoleName="worker", PolicyName="one", PolicyDocument=policy_of(10_000))
    iam.put_role_policy(RoleName="worker", PolicyName="two", PolicyDocument=policy_of(240))
    with pytest.raises(ClientError, match=r"LimitExceeded.*Maximum policy size of 10240 bytes exceeded for role worker"):
        iam.put_role_policy(RoleName="worker", PolicyName="two", PolicyDocument=policy_of(241))

    policies = [iam.create_policy(PolicyName=f"p{n}", PolicyDocument=policy_of(6_144))["Policy"]["Arn"] for n in range(11)]
    with pytest.raises(ClientError, match=r"LimitExceeded.*PolicySize: 6144"):
        iam.create_policy(PolicyName="large", PolicyDocument=policy_of(6_145))
    with pytest.raises(ClientError, match=r"LimitExceeded.*PolicySize: 6144"):
        iam.create_policy_version(PolicyArn=policies[0], PolicyDocument=policy_of(6_145), SetAsDefault=True)
    for policy in policies[:10]:
        iam.attach_role_policy(RoleName="worker", PolicyArn=policy)
    with pytest.raises(ClientError, match=r"LimitExceeded.*PoliciesPerRole: 10"):
        iam.attach_role_policy(RoleName="worker", PolicyArn=policies[10])


def test_the_different_calls_of_roles_can_be_asked_of_aws(account):
    account.iam.asked.clear()
    account.role(statement("ec2:CreateTags", INSTANCES, **{"ForAllValues:StringEquals": {"aws:TagKeys": ["Name"]}}))
    instance = account.instance()
    for _ in range(2):
        account.client("ec2").create_tags(Resources=[instance], Tags=NO_TAGS)
    account.refuses("ec2", "stop_instances", InstanceIds=[instance])

    tagged, stopped = account.iam.calls()

    assert tagged == {
        "role": "worker",
        "action": "ec2:CreateTags",
        "resource": INSTANCES.replace("*", instance),
        "context": {"aws:TagKeys": ["Name"]},
        "allowed": True,
    }
    assert (stopped["action"], stopped["allowed"]) == ("ec2:StopInstances", False)


RULE = "arn:aws:events:eu-west-1:123456789012:rule/mine"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:t"


@pytest.mark.parametrize(
    ("service", "source", "allowed"),
    [("events.amazonaws.com", RULE, True), ("events.amazonaws.com", f"{RULE}-not", False), ("sns.amazonaws.com", RULE, False)],
)
def test_a_service_takes_a_role_only_for_the_source_that_its_trust_policy_names(account, service, source, allowed):
    condition = {"ArnEquals": {"aws:SourceArn": RULE}, "StringEquals": {"aws:SourceAccount": "123456789012"}}
    trust = {"Sid": "A", "Effect": "Allow", "Action": "sts:AssumeRole", "Condition": condition}
    document = {"Version": "2012-10-17", "Statement": [{**trust, "Principal": {"Service": "events.amazonaws.com"}}]}
    account.aws.client("iam").create_role(RoleName="worker", Path="/path/", AssumeRolePolicyDocument=json.dumps(document))

    refusal = account.iam.trust_refusal(service, ROLE, {"aws:SourceArn": source, "aws:SourceAccount": "123456789012"})

    assert (refusal is None) == allowed, refusal


def test_the_policy_of_a_topic_decides_the_calls_of_a_service(account):
    publish = {"Effect": "Allow", "Action": "sns:Publish", "Principal": {"Service": "events.amazonaws.com"}, "Resource": TOPIC}
    any_rule = json.dumps({"Version": "2012-10-17", "Statement": [publish]})
    condition = {"ArnEquals": {"aws:SourceArn": RULE}}
    one_rule = json.dumps({"Version": "2012-10-17", "Statement": [{**publish, "Condition": condition}]})

    def refusal(policy, **context):
        return account.iam.policy_refusal("events.amazonaws.com", "sns:Publish", TOPIC, policy, context)

    assert refusal(any_rule) is None
    assert "is not authorized to perform: sns:Publish" in refusal(one_rule)
    assert refusal(one_rule, **{"aws:SourceArn": RULE}) is None


GROUP = "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:1:autoScalingGroupName/workers"
INSTANCE = "arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0"
RESERVED = {"aws:TagKeys": ["Name", "recycle-eks:standby"]}
PAUSE = {"aws:TagKeys": ["recycle-eks:paused"]}
OF_CLUSTER = {"aws:TagKeys": ["kubernetes.io/cluster/production"]}
AT_LAUNCH = {"ec2:CreateAction": "RunInstances"}
EVERY_TAG = {"aws:ResourceTag/recycle-eks:claim": "x"}
FUNCTIONS = "arn:aws:lambda:eu-west-1:123456789012:function"


@pytest.mark.parametrize(
    ("role", "action", "resource", "context", "allowed"),
    [
        ("developers", "ec2:CreateTags", INSTANCE, RESERVED, False),
        ("developers", "ec2:DeleteTags", INSTANCE, RESERVED, False),
        ("developers", "ec2:DeleteTags", INSTANCE, EVERY_TAG, False),
        ("developers", "ec2:DeleteTags", INSTANCE, {}, True),
        ("developers", "ec2:CreateTags", INSTANCE, {"aws:TagKeys": ["Name"]}, True),
        ("developers", "ec2:CreateTags", INSTANCE, OF_CLUSTER, False),
        ("developers", "ec2:DeleteTags", INSTANCE, OF_CLUSTER, False),
        ("developers", "ec2:CreateTags", INSTANCE, {**OF_CLUSTER, **AT_LAUNCH}, True),
        ("node-operators", "ec2:CreateTags", INSTANCE, OF_CLUSTER, True),
        ("developers", "autoscaling:CreateOrUpdateTags", GROUP, PAUSE, False),
        ("developers", "autoscaling:DeleteTags", GROUP, PAUSE, False),
        ("developers", "autoscaling:CreateOrUpdateTags", GROUP, {"aws:TagKeys": ["Name"]}, True),
        ("node-operators", "autoscaling:CreateOrUpdateTags", GROUP, PAUSE, True),
        ("node-operators", "ec2:CreateTags", INSTANCE, RESERVED, False),
        ("recycle-eks-restore-node", "ec2:CreateTags", INSTANCE, RESERVED, True),
        ("recycle-eks-restore-node", "ec2:DeleteTags", INSTANCE, EVERY_TAG, True),
        ("developers", "lambda:InvokeFunction", f"{FUNCTIONS}:recycle-eks-evict-pods", {}, False),
        ("developers", "lambda:InvokeFunction", f"{FUNCTIONS}:recycle-eks-evict-pods:7", {}, False),
        ("developers", "lambda:InvokeFunction", f"{FUNCTIONS}:another", {}, True),
        ("node-operators", "lambda:InvokeFunction", f"{FUNCTIONS}:recycle-eks-serve-operator", {}, True),
        ("recycle-eks-recycle-node", "lambda:InvokeFunction", f"{FUNCTIONS}:recycle-eks-evict-pods:7", {}, True),
    ],
)
def test_the_service_control_policy_reserves_the_tags_and_the_functions(account, role, action, resource, context, allowed):
    everything = json.dumps({"Version": "2012-10-17", "Statement": [statement("*")]})
    answer = account.iam._simulator.ask(
        principal=f"arn:aws:sts::123456789012:assumed-role/{role}/x",
        policies=[everything],
        action=action,
        resource=resource,
        context={**context, "aws:PrincipalArn": f"arn:aws:iam::123456789012:role/{role}"},
        organizationPolicy=(ROOT / "docs" / "service-control-policy.json").read_text(),
    )
    assert "error" not in answer and answer["allowed"] == allowed, answer


def test_a_refused_call_does_nothing_and_is_recorded_as_refused(account):
    account.role(statement("ec2:DescribeInstances"))
    instance = account.instance()

    assert account.refuses("ec2", "stop_instances", InstanceIds=[instance]) == ("UnauthorizedOperation", 403)

    (call,) = [call for call in account.aws.calls if call.action == "ec2:StopInstances"]
    assert (call.refused, call.status, call.principal) == (True, 403, SESSION)
    (decision,) = account.iam.refused
    assert (decision.action, decision.allowed, decision.statements) == ("ec2:StopInstances", False, ())
    states = account.aws.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]["State"]
    assert states["Name"] == "running"


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "answer"),
    [
        ("ec2", "describe_instances", {}, ("UnauthorizedOperation", 403)),
        ("autoscaling", "describe_auto_scaling_groups", {}, ("AccessDenied", 403)),
        ("elbv2", "describe_target_health", {"TargetGroupArn": "arn:x"}, ("AccessDenied", 403)),
        ("sns", "publish", {"TopicArn": "arn:aws:sns:eu-west-1:123456789012:t", "Message": "m"}, ("AuthorizationError", 403)),
        ("eks", "describe_cluster", {"name": "c"}, ("AccessDeniedException", 403)),
        ("lambda", "invoke", {"FunctionName": "f"}, ("AccessDeniedException", 403)),
        ("events", "list_rules", {}, ("AccessDeniedException", 400)),
        ("logs", "describe_log_groups", {}, ("AccessDeniedException", 400)),
        (
            "stepfunctions",
            "start_execution",
            {"stateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:m"},
            ("AccessDeniedException", 400),
        ),
    ],
)
def test_a_refusal_is_worded_as_each_service_does_it(account, service, operation, parameters, answer):
    account.role()
    assert account.refuses(service, operation, **parameters) == answer


def test_the_message_names_the_principal_the_action_and_the_resource(account):
    account.role()
    with pytest.raises(ClientError, match="AccessDenied") as error:
        account.client("autoscaling").describe_auto_scaling_groups()
    assert error.value.response["Error"]["Message"] == (
        f"User: {SESSION} is not authorized to perform: autoscaling:DescribeAutoScalingGroups on resource: * "
        "because no identity-based policy allows the autoscaling:DescribeAutoScalingGroups action"
    )


def test_root_and_get_caller_identity_need_no_policy(account):
    account.role()
    account.aws.client("ec2").describe_instances()
    assert account.client("sts").get_caller_identity()["Arn"] == SESSION
    assert account.iam.decisions == []


def test_an_action_without_resources_is_allowed_on_every_resource_only(account):
    logs = "arn:aws:logs:eu-west-1:123456789012:log-group:*"
    account.role(statement("logs:DescribeLogGroups", logs), statement("autoscaling:DescribeAutoScalingGroups", sid="B"))
    assert account.refuses("logs", "describe_log_groups") == ("AccessDeniedException", 400)
    account.client("autoscaling").describe_auto_scaling_groups()


def test_a_condition_reads_the_present_tags_of_the_instance(account):
    account.role(statement("ec2:StopInstances", INSTANCES, StringEquals={"aws:ResourceTag/team": ["blue", "green"]}))
    for tags, stops in (({"team": "green"}, True), ({"team": "red"}, False), ({}, False)):
        instance = account.instance(**tags)
        assert (account.iam.refusal(SESSION, "ec2:StopInstances", {"InstanceIds": [instance]}) is None) is stops
    account.aws.client("ec2").create_tags(Resources=[instance], Tags=[{"Key": "team", "Value": "blue"}])
    account.client("ec2").stop_instances(InstanceIds=[instance])


def test_one_instance_that_is_not_allowed_refuses_the_whole_call(account):
    account.role(statement("ec2:StopInstances", INSTANCES, StringEquals={"aws:ResourceTag/team": "blue"}))
    instances = [account.instance(team="blue"), account.instance(team="red")]
    assert account.refuses("ec2", "stop_instances", InstanceIds=instances)[0] == "UnauthorizedOperation"


def test_a_condition_reads_the_tags_of_the_request(account):
    conditions = {"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}, "Null": {"aws:TagKeys": "false"}}
    account.role(statement(["ec2:CreateTags", "ec2:DeleteTags"], INSTANCES, **conditions))
    instance = account.instance()
    ec2 = account.client("ec2")
    ec2.create_tags(Resources=[instance], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    ec2.delete_tags(Resources=[instance], Tags=[{"Key": "a"}])

    both = [{"Key": "a", "Value": "1"}, {"Key": "c", "Value": "2"}]
    assert account.refuses("ec2", "create_tags", Resources=[instance], Tags=both)[0] == "UnauthorizedOperation"
    # All tags at once.
    assert account.refuses("ec2", "delete_tags", Resources=[instance])[0] == "UnauthorizedOperation"


def test_an_alias_is_started_by_the_right_to_its_machine(account):
    machine = "arn:aws:states:eu-west-1:123456789012:stateMachine:m"
    account.role(
        statement("states:StartExecution", machine, **{"ForAnyValue:StringEquals": {"states:StateMachineQualifier": "live"}})
    )
    assert account.iam.refusal(SESSION, "states:StartExecution", {"stateMachineArn": f"{machine}:live"}) is None
    assert account.iam.refusal(SESSION, "states:StartExecution", {"stateMachineArn": f"{machine}:2"})
    assert account.iam.refusal(SESSION, "states:StartExecution", {"stateMachineArn": machine})


def test_a_missing_resource_gets_the_answer_of_its_service(account):
    account.role(statement("ec2:StopInstances", INSTANCES, StringEquals={"aws:ResourceTag/team": "blue"}))
    assert account.refuses("ec2", "stop_instances", InstanceIds=["i-0123456789abcdef0"])[0] == "InvalidInstanceID.NotFound"


def test_a_policy_of_ones_own_and_one_that_is_attached_count_and_may_change(account):
    account.role(statement("ec2:DescribeInstances"))
    iam = account.aws.client("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement("ec2:DescribeImages")]})
    policy = iam.create_policy(PolicyName="attached", PolicyDocument=document)["Policy"]["Arn"]
    assert account.refuses("ec2", "describe_images")[0] == "UnauthorizedOperation"
    iam.attach_role_policy(RoleName="worker", PolicyArn=policy)
    account.client("ec2").describe_images()
    iam.delete_role_policy(RoleName="worker", PolicyName="worker")
    assert account.refuses("ec2", "describe_instances")[0] == "UnauthorizedOperation"


def test_a_deny_counts_more_than_an_allow(account):
    account.role(statement("ec2:*"), {"Sid": "No", "Effect": "Deny", "Action": "ec2:DescribeImages", "Resource": "*"})
    account.client("ec2").describe_instances()
    assert account.refuses("ec2", "describe_images")[0] == "UnauthorizedOperation"


def test_a_user_has_just_the_policy_that_it_was_made_with(account):
    key, secret = account.iam.user("anna", json.dumps({"Version": "2012-10-17", "Statement": [statement("ec2:DescribeImages")]}))
    client = account.aws.client_as("ec2", key, secret)
    client.describe_images()
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        client.describe_instances()
    assert [each.principal for each in account.iam.decisions] == ["arn:aws:iam::123456789012:user/anna"] * 2


def test_a_simulator_that_was_killed_can_be_stopped():
    simulator = Simulator()
    question = {"principal": SESSION, "policies": [], "action": "ec2:DescribeImages", "resource": "*", "context": {}}
    assert simulator.ask(**question)["allowed"] is False
    simulator._process.kill()
    simulator._process.wait()
    with pytest.raises(BrokenPipeError):
        simulator.ask(**question)
    simulator.stop()


def test_an_action_without_a_row_is_refused_by_name(account):
    account.role(statement("*"))
    assert account.refuses("ec2", "describe_vpcs") == ("UnauthorizedOperation", 403)
    assert account.iam.refused[0].error == "world/aws/iam_resources.py has no row for ec2:DescribeVpcs"


# The table follows the reference, whose data the simulator has.

GROUP = "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:1:autoScalingGroupName/workers"


def ask(account, action, one):
    return account.iam._simulator.ask(principal=SESSION, policies=[], action=action, resource=one.resource, context=one.context)


@pytest.mark.parametrize("action", sorted(action for action, row in ROWS.items() if row is everything))
def test_an_action_of_which_the_table_says_so_knows_no_resources(account, action):
    assert ask(account, action, Asked("*")) == {"allowed": False, "statements": []}
    assert "must.use.wildcard" in ask(account, action, Asked(GROUP))["error"]


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("autoscaling:EnterStandby", "arn:aws:ec2:eu-west-1:123456789012:instance/i-1", {}),
        ("autoscaling:EnterStandby", GROUP, {"aws:TagKeys": ["x"]}),
        ("states:StartExecution", "arn:aws:states:eu-west-1:123456789012:execution:m:1", {}),
        (
            "states:DescribeExecution",
            "arn:aws:states:eu-west-1:123456789012:execution:m:1",
            {"states:StateMachineQualifier": "1"},
        ),
        ("logs:CreateNothing", "*", {}),
    ],
)
def test_a_row_that_contradicts_the_reference_is_an_error(account, action, resource, context):
    assert "error" in ask(account, action, Asked(resource, context))
