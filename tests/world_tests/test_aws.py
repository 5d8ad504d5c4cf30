"""The account: recorded calls, principals, virtual times, resets, replayed deployments, faults, and what Terraform
needs.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import zipfile

import moto.backends
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from moto.moto_api._internal import mock_random

from prepare import TESTS
from world.aws.account import Aws, ReplayFailed
from world.aws.autoscaling.api import install
from world.aws.autoscaling.groups import AutoScaling
from world.aws.ec2 import Ec2
from world.aws.identity import ROOT
from world.aws.requests import load_requests, save_requests
from world.aws.terraform_gaps import Eks
from world.base.clock import Clock
from world.base.faults import Plan
from world.process.processes import run_to_its_end

ROLE = "arn:aws:iam::123456789012:role/claim-node"


class Account:
    def __init__(self):
        self.clock = Clock()
        self.faults = Plan()
        self.aws = Aws(self.clock, self.faults)
        ec2 = Ec2(self.aws, self.clock, lambda *event: None)
        install(AutoScaling(self.aws, ec2, self.clock, lambda *event: None))
        self.eks = Eks(self.aws)
        self.aws.start()

    def client(self, service):
        return self.aws.client(service)

    def role(self, name="claim-node"):
        self.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")

    def as_role(self, service, session="claim-node"):
        keys = self.client("sts").assume_role(RoleArn=ROLE, RoleSessionName=session)["Credentials"]
        return self.aws.client_as(service, keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])

    def function(self, code="one", **settings):
        return self.client("lambda").create_function(
            FunctionName="claim-node",
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role=ROLE,
            Code={"ZipFile": package(code)},
            **settings,
        )

    def versions(self):
        return [v["Version"] for v in self.client("lambda").list_versions_by_function(FunctionName="claim-node")["Versions"]]


def package(code):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("bootstrap"), code)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def one_account():
    account = Account()
    yield account
    account.aws.stop()


@pytest.fixture
def account(one_account):
    one_account.clock.reset()
    one_account.faults.clear()
    one_account.aws.wipe()
    yield one_account
    one_account.eks.on_access_entries = None


# Recorded calls


def test_a_call_is_recorded_with_time_principal_parameters_and_status(account):
    account.role()
    account.clock.run(limit=90)
    with pytest.raises(ClientError):
        account.as_role("ec2").create_tags(Resources=["i-12345678"], Tags=[{"Key": "recycle-eks:claim", "Value": "x"}])
    call = account.aws.calls[-1]
    assert (call.at, call.action, call.status) == (90, "ec2:CreateTags", 400)
    assert call.principal == "arn:aws:sts::123456789012:assumed-role/claim-node/claim-node"
    assert call.parameters == {"Resources": ["i-12345678"], "Tags": [{"Key": "recycle-eks:claim", "Value": "x"}]}


@pytest.mark.parametrize(
    "service, call, parameters, action, write",
    [
        ("autoscaling", "describe_auto_scaling_groups", {}, "autoscaling:DescribeAutoScalingGroups", False),
        (
            "autoscaling",
            "describe_lifecycle_hooks",
            {"AutoScalingGroupName": "g"},
            "autoscaling:DescribeLifecycleHooks",
            False,
        ),
        (
            "autoscaling",
            "set_desired_capacity",
            {"AutoScalingGroupName": "g", "DesiredCapacity": 1},
            "autoscaling:SetDesiredCapacity",
            True,
        ),
        ("ec2", "delete_tags", {"Resources": ["i-12345678"]}, "ec2:DeleteTags", True),
        ("eks", "describe_cluster", {"name": "world"}, "eks:DescribeCluster", False),
        ("eks", "delete_access_entry", {"clusterName": "world", "principalArn": ROLE}, "eks:DeleteAccessEntry", True),
        ("lambda", "get_function", {"FunctionName": "claim-node"}, "lambda:GetFunction", False),
        ("stepfunctions", "list_state_machines", {}, "states:ListStateMachines", False),
        (
            "stepfunctions",
            "delete_state_machine",
            {"stateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:m"},
            "states:DeleteStateMachine",
            True,
        ),
        ("sts", "get_caller_identity", {}, "sts:GetCallerIdentity", False),
        ("cloudwatch", "describe_alarms", {}, "cloudwatch:DescribeAlarms", False),
        ("elbv2", "describe_target_groups", {}, "elasticloadbalancing:DescribeTargetGroups", False),
        ("scheduler", "list_schedules", {}, "scheduler:ListSchedules", False),
        ("sns", "create_topic", {"Name": "t"}, "sns:CreateTopic", True),
        ("sqs", "list_queues", {}, "sqs:ListQueues", False),
        ("logs", "create_log_group", {"logGroupName": "g"}, "logs:CreateLogGroup", True),
    ],
)
def test_an_action_has_the_name_that_a_policy_gives_it(account, service, call, parameters, action, write):
    try:
        getattr(account.client(service), call)(**parameters)
    except ClientError:
        pass
    recorded = account.aws.calls[-1]
    assert (recorded.action, recorded.write, recorded.principal) == (action, write, ROOT)


def test_parameters_in_a_path_are_recorded_too(account):
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    account.client("eks").list_access_entries(clusterName="world")
    assert account.aws.calls[-1].parameters["clusterName"] == "world"


# Virtual time and identifiers


def test_moto_uses_virtual_time(account):
    account.role()
    account.clock.run(limit=3600)
    instance = account.client("ec2").run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]
    assert instance["LaunchTime"].isoformat() == "2027-01-01T01:00:00+00:00"
    keys = account.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="session", DurationSeconds=900)["Credentials"]
    assert keys["Expiration"].isoformat() == "2027-01-01T01:15:00+00:00"


def test_identifiers_depend_on_what_was_created_and_not_on_what_was_read(account):
    ids = []
    for reads in (0, 3):
        account.aws.reset()
        for _ in range(reads):
            account.client("ec2").describe_instances()
            account.client("sns").list_topics()
        ids.append(
            account.client("ec2").run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
        )
    assert ids[0] == ids[1]


# Reset


BEFORE = """
from world.aws.account import Aws
from world.base.clock import Clock

before = Aws(Clock())
before.start()
before.client("ec2").create_vpc(CidrBlock="10.9.0.0/16")
before.reset()
before.stop()
"""
TEMPLATE = """
from world_tests.test_aws import Account

data = {"ImageId": "ami-12345678"}
made = Account().client("ec2").create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
print(made["LaunchTemplate"]["LaunchTemplateId"])
"""


def test_identifiers_are_the_same_in_a_new_process_and_in_one_that_had_an_account_before():
    new, used = (run_to_its_end([sys.executable, "-c", script], TESTS) for script in (TEMPLATE, BEFORE + TEMPLATE))
    assert new.stdout.startswith("lt-"), new.stderr
    assert used.stdout == new.stdout


def test_images_of_another_region_do_not_shift_identifiers(account):
    def template():
        account.aws.wipe()
        data = {"ImageId": "ami-12345678"}
        made = account.client("ec2").create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
        return made["LaunchTemplate"]["LaunchTemplateId"]

    before = template()
    # The process has not stored the number of identifiers of images for any region.
    Ec2(account.aws, account.clock, lambda *event: None)
    mock_random.seed(0)
    assert moto.backends.get_backend("ec2")["999999999999"]["eu-central-1"].amis
    assert template() == before


def test_a_reset_keeps_what_was_deployed_and_throws_the_rest_away(account):
    account.role()
    account.function(Publish=True)
    account.client("sns").create_topic(Name="notifications")
    account.client("logs").create_log_group(logGroupName="/aws/lambda/claim-node")
    account.client("events").put_rule(Name="rule", EventPattern='{"source": ["aws.states"]}')
    account.client("cloudwatch").put_metric_alarm(
        AlarmName="failed",
        EvaluationPeriods=1,
        ComparisonOperator="GreaterThanThreshold",
        MetricName="m",
        Namespace="n",
        Period=60,
        Threshold=1,
        Statistic="Sum",
    )
    queue = account.client("sqs").create_queue(QueueName="dead-letters")["QueueUrl"]
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    account.client("eks").create_access_entry(clusterName="world", principalArn=ROLE)
    role_client = account.as_role("sts")

    account.client("ec2").run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)
    account.client("sqs").send_message(QueueUrl=queue, MessageBody="lost")
    account.client("cloudwatch").set_alarm_state(AlarmName="failed", StateValue="ALARM", StateReason="test")
    account.aws.reset()

    assert account.aws.calls == []
    assert account.client("ec2").describe_instances()["Reservations"] == []
    assert len(account.client("ec2").describe_subnets()["Subnets"]) == 3
    assert "Messages" not in account.client("sqs").receive_message(QueueUrl=queue)
    assert account.client("cloudwatch").describe_alarms()["MetricAlarms"][0]["StateValue"] == "INSUFFICIENT_DATA"
    assert account.client("iam").get_role(RoleName="claim-node")["Role"]["Arn"] == ROLE
    assert account.versions() == ["$LATEST", "1"]
    assert account.client("sns").list_topics()["Topics"] and account.client("events").list_rules()["Rules"]
    assert account.client("logs").describe_log_groups()["logGroups"]
    assert account.client("eks").list_access_entries(clusterName="world")["accessEntries"] == [ROLE]
    assert role_client.get_caller_identity()["Arn"] == "arn:aws:sts::123456789012:assumed-role/claim-node/claim-node"


# Recording and replaying


def deploy(account):
    account.role()
    account.function(Publish=True, Environment={"Variables": {"CLUSTER_NAME": "world"}})
    account.client("lambda").update_function_configuration(FunctionName="claim-node", Timeout=30)
    account.client("lambda").publish_version(FunctionName="claim-node")
    account.client("eks").create_access_entry(clusterName="world", principalArn=ROLE, kubernetesGroups=["recycle-eks"])
    account.client("sns").create_topic(Name="notifications")
    account.client("sqs").create_queue(QueueName="dead-letters")
    account.client("iam").get_role(RoleName="claim-node")
    data = {"ImageId": "ami-12345678"}
    made = account.client("ec2").create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
    template = made["LaunchTemplate"]["LaunchTemplateId"]
    account.client("ec2").create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)


def test_a_recorded_deployment_can_be_replayed_into_an_empty_account(account, tmp_path):
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    account.aws.start_recording()
    deploy(account)
    requests = account.aws.stop_recording()
    assert len(requests) == 9
    code = {name: base64.b64encode(package(name)) for name in ("one", "two")}
    save_requests(requests, tmp_path / "deployment.calls", {code["one"]: "claim-node.zip"})

    account.aws.wipe()
    # Other tests may have drawn identifiers in this process before.
    account.client("ec2").create_vpc(CidrBlock="10.9.0.0/16")
    seen = []
    account.eks.on_access_entries = seen.append
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    account.aws.replay(load_requests(tmp_path / "deployment.calls", {"claim-node.zip": code["two"]}.__getitem__))
    deployed = account.client("lambda").get_function(FunctionName="claim-node", Qualifier="2")["Configuration"]
    assert deployed["CodeSha256"] == base64.b64encode(hashlib.sha256(package("two")).digest()).decode()
    assert account.versions() == ["$LATEST", "1", "2"]
    assert deployed["Timeout"] == 30
    assert seen[-1] == [(ROLE, "arn:aws:sts::123456789012:assumed-role/claim-node/{{SessionName}}", ["recycle-eks"])]
    assert account.client("sqs").list_queues()["QueueUrls"]


def test_a_replay_that_goes_another_way_is_noticed(account):
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    account.aws.start_recording()
    deploy(account)
    requests = account.aws.stop_recording()
    account.aws.wipe()
    with pytest.raises(ReplayFailed, match="404 instead of 200"):
        account.aws.replay(requests)


# Faults


@pytest.mark.parametrize(
    "service, call, parameters, action, code, status",
    [
        (
            "autoscaling",
            "enter_standby",
            {"AutoScalingGroupName": "g", "ShouldDecrementDesiredCapacity": False},
            "autoscaling:EnterStandby",
            "Throttling",
            400,
        ),
        (
            "ec2",
            "create_tags",
            {"Resources": ["i-12345678"], "Tags": [{"Key": "a", "Value": "b"}]},
            "ec2:CreateTags",
            "RequestLimitExceeded",
            503,
        ),
        ("eks", "describe_cluster", {"name": "world"}, "eks:DescribeCluster", "ThrottlingException", 429),
        ("stepfunctions", "list_state_machines", {}, "states:ListStateMachines", "ThrottlingException", 400),
        (
            "sns",
            "publish",
            {"TopicArn": "arn:aws:sns:eu-west-1:123456789012:t", "Message": "m"},
            "sns:Publish",
            "Throttling",
            400,
        ),
    ],
)
def test_a_refusal_is_read_by_every_protocol(account, service, call, parameters, action, code, status):
    account.faults.refuse(action, code=code, message="slow down", status=status)
    with pytest.raises(ClientError) as refused:
        getattr(account.client(service), call)(**parameters)
    error, metadata = refused.value.response["Error"], refused.value.response["ResponseMetadata"]
    assert (error["Code"], error["Message"], metadata["HTTPStatusCode"]) == (code, "slow down", status)
    assert account.aws.calls[-1].status == status


def test_an_answer_can_be_lost_after_the_call_took_effect(account):
    account.faults.lose_answer("sns:CreateTopic")
    with pytest.raises(ConnectionClosedError):
        account.client("sns").create_topic(Name="t")
    assert len(account.client("sns").list_topics()["Topics"]) == 1


def test_a_call_can_be_refused_although_it_took_effect(account):
    account.faults.refuse("sns:CreateTopic", code="InternalError", status=500, after=True)
    with pytest.raises(ClientError, match="InternalError"):
        account.client("sns").create_topic(Name="t")
    assert len(account.client("sns").list_topics()["Topics"]) == 1


# EKS


def test_a_cluster_says_where_it_is_and_who_signs_for_it(account):
    account.eks.create_cluster("world", "https://127.0.0.1:6443", "-----BEGIN CERTIFICATE-----")
    cluster = account.client("eks").describe_cluster(name="world")["cluster"]
    assert cluster["endpoint"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificateAuthority"]["data"]) == b"-----BEGIN CERTIFICATE-----"
    assert cluster["accessConfig"]["authenticationMode"] == "API"
    account.eks.set_cluster("world", "https://127.0.0.1:7443", b"rotated")
    assert account.client("eks").describe_cluster(name="world")["cluster"]["endpoint"] == "https://127.0.0.1:7443"


@pytest.mark.parametrize(
    "asked, mode",
    [({}, "CONFIG_MAP"), ({"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}, "API_AND_CONFIG_MAP")],
)
def test_the_authentication_mode_is_the_one_asked_for(account, asked, mode):
    account.client("eks").create_cluster(name="other", roleArn="arn:aws:iam::123456789012:role/r", resourcesVpcConfig={}, **asked)
    assert account.client("eks").describe_cluster(name="other")["cluster"]["accessConfig"]["authenticationMode"] == mode


def test_access_entries_come_change_and_go_and_listeners_are_called(account):
    account.eks.create_cluster("world", "https://127.0.0.1:1", "PEM")
    seen = []
    account.eks.on_access_entries = seen.append
    client, arn = account.client("eks"), "arn:aws:iam::123456789012:role/path/of/it/claim-node"
    created = client.create_access_entry(
        clusterName="world", principalArn=arn, kubernetesGroups=["recycle-eks"], tags={"a": "b"}
    )["accessEntry"]
    assert (created["type"], created["tags"], created["kubernetesGroups"]) == ("STANDARD", {"a": "b"}, ["recycle-eks"])
    with pytest.raises(ClientError, match="ResourceInUseException"):
        client.create_access_entry(clusterName="world", principalArn=arn)
    client.update_access_entry(clusterName="world", principalArn=arn, kubernetesGroups=["others"])
    assert client.describe_access_entry(clusterName="world", principalArn=arn)["accessEntry"]["kubernetesGroups"] == ["others"]
    assert client.list_associated_access_policies(clusterName="world", principalArn=arn)["associatedAccessPolicies"] == []
    client.delete_access_entry(clusterName="world", principalArn=arn)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.describe_access_entry(clusterName="world", principalArn=arn)
    user = "arn:aws:sts::123456789012:assumed-role/claim-node/{{SessionName}}"
    assert seen == [[(arn, user, ["recycle-eks"])], [(arn, user, ["others"])], []]


# Lambda


def test_a_version_is_published_when_something_changed_and_only_then(account):
    account.role()
    account.function(Publish=True)
    client = account.client("lambda")
    client.publish_version(FunctionName="claim-node")
    client.update_function_code(FunctionName="claim-node", ZipFile=package("one"), Publish=True)
    assert account.versions() == ["$LATEST", "1"]
    client.update_function_code(FunctionName="claim-node", ZipFile=package("two"), Publish=True)
    client.update_function_configuration(FunctionName="claim-node", Environment={"Variables": {"A": "1"}})
    client.publish_version(FunctionName="claim-node")
    assert account.versions() == ["$LATEST", "1", "2", "3"]
    described = [client.get_function(FunctionName="claim-node", Qualifier=q)["Configuration"] for q in ("1", "2", "3")]
    assert described[0]["CodeSha256"] != described[1]["CodeSha256"] == described[2]["CodeSha256"]
    assert [d.get("Environment") for d in described] == [None, None, {"Variables": {"A": "1"}}]
    assert [d["FunctionArn"].rsplit(":", 1)[1] for d in described] == ["1", "2", "3"]


def test_a_deleted_versions_number_does_not_come_back(account):
    account.role()
    account.function(Publish=True)
    client = account.client("lambda")
    client.update_function_configuration(FunctionName="claim-node", Timeout=9)
    client.publish_version(FunctionName="claim-node")
    client.delete_function(FunctionName="claim-node", Qualifier="2")
    client.update_function_configuration(FunctionName="claim-node", Timeout=10)
    assert client.publish_version(FunctionName="claim-node")["Version"] == "3"


def test_settings_survive_create_and_update(account):
    account.role()
    account.function(LoggingConfig={"LogFormat": "JSON", "LogGroup": "/ours"}, TracingConfig={"Mode": "Active"})
    client = account.client("lambda")
    before = client.get_function_configuration(FunctionName="claim-node")
    client.update_function_configuration(
        FunctionName="claim-node", LoggingConfig={"LogGroup": "/theirs"}, TracingConfig={"Mode": "PassThrough"}
    )
    after = client.get_function_configuration(FunctionName="claim-node")
    assert (before["LoggingConfig"], before["TracingConfig"]) == (
        {"LogFormat": "JSON", "LogGroup": "/ours"},
        {"Mode": "Active"},
    )
    assert (after["LoggingConfig"], after["TracingConfig"]) == (
        {"LogFormat": "Text", "LogGroup": "/theirs"},
        {"Mode": "PassThrough"},
    )


def test_a_function_and_its_versions_have_policies_of_their_own(account):
    account.role()
    account.function(Publish=True)
    client = account.client("lambda")
    permission = {
        "FunctionName": "claim-node",
        "StatementId": "sns",
        "Action": "lambda:InvokeFunction",
        "Principal": "sns.amazonaws.com",
    }
    client.add_permission(Qualifier="1", **permission)
    policy = json.loads(client.get_policy(FunctionName="claim-node", Qualifier="1")["Policy"])
    assert policy["Statement"][0]["Resource"] == "arn:aws:lambda:eu-west-1:123456789012:function:claim-node:1"
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.get_policy(FunctionName="claim-node")
    client.remove_permission(FunctionName="claim-node", Qualifier="1", StatementId="sns")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.get_policy(FunctionName="claim-node", Qualifier="1")
