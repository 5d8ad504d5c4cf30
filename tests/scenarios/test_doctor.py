"""`recycle-eks doctor`: an installation in which nothing is wrong, then each thing really broken, and exactly that found."""

import contextlib
import json
import time

import pytest

from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.deployment import CLUSTER

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
LEASE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/recycle-eks/rolebindings"


@pytest.fixture
def healthy(world):
    """A group with the hook and the policy `retain`, a subscription to the topic, and a sweep that has run. A reset keeps the
    subscription, so it is removed again."""
    world.group("retained", size=2, minimum=1, maximum=4, retains=True)
    topics = world.aws.client("sns")
    subscribed = topics.subscribe(
        TopicArn=world.deployment.outputs["notification_topic_arn"],
        Protocol="sqs",
        Endpoint=f"arn:{PARTITION}:sqs:{REGION}:{ACCOUNT}:recycle-eks-dead-letters",
    )
    world.sweep().finishes()
    yield world
    topics.unsubscribe(SubscriptionArn=subscribed["SubscriptionArn"])


@contextlib.contextmanager
def without_entry(world, step):
    """The access entry of a function's role is deleted."""
    role = world.aws.client("lambda").get_function_configuration(FunctionName=f"recycle-eks-{step}")["Role"]
    entry = {"clusterName": CLUSTER, "principalArn": role}
    eks = world.aws.client("eks")
    groups = eks.describe_access_entry(**entry)["accessEntry"]["kubernetesGroups"]
    eks.delete_access_entry(**entry)
    # A token that was used before is still good for a while, and two that are signed within a second are the same.
    time.sleep(1)
    yield
    eks.create_access_entry(**entry, kubernetesGroups=groups, type="STANDARD")


def examine(cli, *arguments):
    """The exit code, and what is not as it should be: level, check, of what, text."""
    printed = cli("doctor", "--output", "json", *arguments, pace=0)
    findings = printed.document["findings"]
    return printed.code, [
        (finding["level"], finding["check"], finding["of"], finding["found"]) for finding in findings if finding["level"] != "ok"
    ]


def the_only_one(cli, level, check, of, words):
    code, found = examine(cli)
    assert [each[:3] for each in found] == [(level, check, of)], found
    assert words in found[0][3], found
    assert code == {"problem": 6, "warning": 7, "unknown": 7}[level]


def test_a_healthy_installation_is_ok_and_nothing_is_written(healthy, cli):
    healthy.forget_calls()
    printed = cli("doctor", "--all", pace=0)
    assert printed.code == 0, printed.text
    assert "0 problem, 0 warning, 0 unknown" in printed.text
    for check in (
        "API server",
        "permissions",
        "access entry",
        "endpoint",
        "Step Functions",
        "sweep",
        "rule",
        "notifications",
        "dead letters",
        "logs",
        "retained",
    ):
        assert check in printed.text, printed.text
    assert healthy.writes() == []
    assert examine(cli) == (0, [])


def test_without_a_terminal_only_problems_are_shown_with_their_remedies(healthy, cli):
    healthy.groups["retained"].suspend("Launch")
    printed = cli("doctor", pace=0)
    assert printed.code == 6
    assert "Launch is suspended" in printed.text and "resume-processes" in printed.text
    assert "access entry" not in printed.text


def test_a_role_without_an_access_entry_is_named(healthy, cli):
    with without_entry(healthy, "evict-pods"):
        the_only_one(cli, "problem", "access entry", "evict-pods", "its role has no access entry")


def test_without_its_own_entry_the_cluster_does_not_let_the_function_in(healthy, cli):
    with without_entry(healthy, "serve-operator"):
        _, found = examine(cli)
    assert ("problem", "access entry", "serve-operator") in [each[:3] for each in found]
    assert any(check == "API server" and "it refuses the functions" in text for _, check, _, text in found), found


def test_a_role_in_too_many_groups_is_found(healthy, cli):
    role = healthy.aws.client("lambda").get_function_configuration(FunctionName="recycle-eks-check-pods")["Role"]
    entry = {"clusterName": CLUSTER, "principalArn": role}
    eks = healthy.aws.client("eks")
    groups = eks.describe_access_entry(**entry)["accessEntry"]["kubernetesGroups"]
    eks.update_access_entry(**entry, kubernetesGroups=[*groups, "recycle-eks-evict"])
    try:
        the_only_one(cli, "problem", "access entry", "check-pods", "and no others of recycle-eks, but is in [")
    finally:
        eks.update_access_entry(**entry, kubernetesGroups=groups)


@pytest.mark.parametrize(
    ("group", "call"),
    [
        ("recycle-eks-read", "get nodes"),
        ("recycle-eks-write", "patch nodes"),
        ("recycle-eks-evict", "create pods/eviction"),
        ("recycle-eks-review", "create subjectaccessreviews.authorization.k8s.io"),
    ],
)
def test_a_group_that_may_not_do_enough_is_named(healthy, cli, group, call):
    healthy.kubernetes.must("DELETE", f"{BINDINGS}/{group}")
    try:
        _, found = examine(cli)
    finally:
        healthy.kubernetes.apply(healthy.deployment.outputs["rbac_manifest"])
    assert [text for _, check, _, text in found if check == "permissions"][0].startswith(f"the group {group} may not {call}")


def test_the_instance_of_a_node_in_no_group_does_not_count_as_a_member(healthy, cli):
    stranger = healthy.instance_without_group()
    healthy.kubernetes.add_node("stranger", f"aws:///eu-west-1a/{stranger.id}")
    findings = cli("doctor", "--output", "json", pace=0).document["findings"]
    (ec2,) = [finding for finding in findings if (finding["check"], finding["of"]) == ("endpoint", "EC2")]
    assert ec2["found"] == "answers: it knows 2 of their members"


def test_a_namespace_without_its_roles_is_named_with_the_command(healthy, cli):
    """A namespace that was deleted takes its Roles along."""
    for group in ("recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"):
        healthy.kubernetes.must("DELETE", f"{LEASE_BINDINGS}/{group}")
    try:
        printed = cli("doctor", "--output", "json", pace=0)
    finally:
        healthy.kubernetes.apply(healthy.deployment.outputs["rbac_manifest"])
    (namespace,) = [finding for finding in printed.document["findings"] if finding["check"] == "namespace"]
    assert "the namespace or its Roles are missing" in namespace["found"]
    assert namespace["remedy"] == "terraform output -raw rbac_manifest | kubectl apply -f -"
    assert printed.code == 6


def test_an_api_server_that_is_away_is_found(healthy, cli):
    healthy.kubernetes.proxy.is_reachable = False
    code, found = examine(cli)
    assert code == 6
    assert ("problem", "API server") in [each[:2] for each in found], found


@pytest.mark.parametrize("process", ["Launch", "Terminate"])
def test_a_suspended_process_is_found(healthy, cli, process):
    healthy.groups["retained"].suspend(process)
    the_only_one(cli, "problem", "suspended process", "retained", f"{process} is suspended")


def test_a_group_whose_hook_was_deleted_is_found(healthy, cli):
    scaling = healthy.aws.client("autoscaling")
    scaling.delete_lifecycle_hook(AutoScalingGroupName="retained", LifecycleHookName="recycle-eks")
    the_only_one(cli, "warning", "lifecycle hook", "retained", "the hook recycle-eks is missing")


def test_a_hook_that_cannot_outlast_the_drain_is_found(healthy, cli):
    healthy.group("impatient", size=1, minimum=1, maximum=4)
    the_only_one(cli, "warning", "lifecycle hook", "impatient", "it lasts 25 hours at most, but a drain may take 48")


def test_a_group_that_cannot_grow_is_found(healthy, cli):
    scaling = healthy.aws.client("autoscaling")
    scaling.update_auto_scaling_group(AutoScalingGroupName="retained", MinSize=2, MaxSize=2)
    the_only_one(cli, "warning", "sizes", "retained", "are all 2")


def test_a_member_without_the_clusters_tag_is_found_with_the_command_that_sets_it(healthy, cli):
    member = healthy.groups["retained"].instances[0]
    tag = f"kubernetes.io/cluster/{CLUSTER}"
    healthy.aws.client("ec2").delete_tags(Resources=[member], Tags=[{"Key": tag}])
    the_only_one(cli, "problem", "cluster tag", "", f"1 member without {tag} cannot be recycled: {member}")
    findings = cli("doctor", "--output", "json", pace=0).document["findings"]
    (mend,) = [finding["remedy"] for finding in findings if finding["level"] != "ok"]
    assert mend.startswith(f"aws ec2 create-tags --resources {member} --tags 'Key={tag},Value=owned';")


def test_a_disabled_rule_is_found(healthy, cli):
    healthy.aws.client("events").disable_rule(Name="recycle-eks-sweep-clock")
    try:
        the_only_one(cli, "problem", "rule", "recycle-eks-sweep-clock", "is disabled")
    finally:
        healthy.aws.client("events").enable_rule(Name="recycle-eks-sweep-clock")


def test_a_topic_without_a_subscription_is_found(world, cli):
    world.group("retained", size=2, minimum=1, maximum=4, retains=True)
    world.sweep().finishes()
    the_only_one(cli, "warning", "notifications", "", "the topic has no subscription")


def test_an_event_that_could_not_be_delivered_is_found(healthy, cli):
    queues = healthy.aws.client("sqs")
    url = queues.get_queue_url(QueueName="recycle-eks-dead-letters")["QueueUrl"]
    queues.send_message(QueueUrl=url, MessageBody=json.dumps({"lost": True}))
    the_only_one(cli, "warning", "dead letters", "", "1 message")


def test_a_sweep_that_fails_is_found(healthy, cli):
    healthy.faults.refuse("ec2:DescribeInstances", code="UnauthorizedOperation", message="no", status=403, times=None)
    assert healthy.sweep().finishes().status == "FAILED"
    healthy.faults.clear()
    the_only_one(cli, "problem", "sweep", "", "the last sweep FAILED")


def test_a_resource_that_may_not_be_read_is_unknown(healthy, cli):
    healthy.faults.refuse("events:ListRules", code="AccessDeniedException", message="no", status=400, times=None)
    the_only_one(cli, "unknown", "rule", "", "unknown: not allowed to events:ListRules")
