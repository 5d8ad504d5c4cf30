"""`recycle-eks doctor`: an installation in which nothing is wrong, then each thing really broken, and exactly that found."""

import contextlib
import datetime
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


def differences(found, expected):
    """Returns the findings that are not expected, and those that are missing. The expected words are a part of the text."""
    surplus = [each for each in found if not any(each[:3] == row[:3] and row[3] in each[3] for row in expected)]
    missing = [row for row in expected if sum(each[:3] == row[:3] and row[3] in each[3] for each in found) != 1]
    return surplus, missing


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

    # Without a terminal only problems are shown, with their remedies.
    healthy.groups["retained"].suspend("Launch")
    printed = cli("doctor", pace=0)
    assert printed.code == 6
    assert "Launch is suspended" in printed.text and "resume-processes" in printed.text
    assert "access entry" not in printed.text


def test_a_fresh_installation_has_no_problem_and_a_command_is_never_broken(world, cli, tmp_path):
    """The state machine of the sweep is ten minutes old. Then two hours, in which it has never run."""
    group = world.group("a-group-whose-name-is-so-long-that-its-command-fills-more-than-a-line-of-a-table", size=2, maximum=4)
    sweep = world.aws.client("stepfunctions").describe_state_machine(
        stateMachineArn=world.deployment.outputs["sweep_state_machine_arn"]
    )
    clock = tmp_path / "clock"
    for minutes, level in ((10, "ok"), (120, "problem")):
        clock.write_text((sweep["creationDate"] + datetime.timedelta(minutes=minutes)).isoformat())
        findings = cli("doctor", "-o", "json", pace=0, RECYCLE_EKS_CLOCK=str(clock)).document["findings"]
        assert [each["level"] for each in findings if each["check"] == "sweep"] == [level], minutes

    group.suspend("Launch")
    printed = cli("doctor", pace=0)
    command = f"aws autoscaling resume-processes --auto-scaling-group-name {group.name} --scaling-processes Launch"
    assert f"\n         {command}\n" in printed.text, printed.text


def test_each_problem_is_found_and_nothing_else(healthy, cli):
    """Each of them alone: `crates/recycle/src/doctor/checks/tests.rs`."""
    world = healthy
    clients = {service: world.aws.client(service) for service in ("eks", "lambda", "ec2", "events")}
    group, member = world.groups["retained"], world.groups["retained"].instances[0]
    tag, clock = f"kubernetes.io/cluster/{CLUSTER}", "recycle-eks-sweep-clock"
    role = clients["lambda"].get_function_configuration(FunctionName="recycle-eks-check-pods")["Role"]
    entry = {"clusterName": CLUSTER, "principalArn": role}
    groups = clients["eks"].describe_access_entry(**entry)["accessEntry"]["kubernetesGroups"]

    world.faults.refuse("ec2:DescribeInstances", code="UnauthorizedOperation", message="no", status=403, times=None)
    assert world.sweep().finishes().status == "FAILED"
    world.faults.clear()
    group.suspend("Launch", "Terminate")
    clients["ec2"].delete_tags(Resources=[member], Tags=[{"Key": tag}])
    clients["events"].disable_rule(Name=clock)
    clients["eks"].update_access_entry(**entry, kubernetesGroups=[*groups, "recycle-eks-evict"])
    try:
        with without_entry(world, "evict-pods"):
            code, found = examine(cli)
            findings = cli("doctor", "--output", "json", pace=0).document["findings"]
    finally:
        clients["events"].enable_rule(Name=clock)
        clients["eks"].update_access_entry(**entry, kubernetesGroups=groups)

    expected = [
        ("problem", "access entry", "evict-pods", "its role has no access entry"),
        ("problem", "access entry", "check-pods", "and no others of recycle-eks, but is in ["),
        ("problem", "suspended process", "retained", "Launch is suspended"),
        ("warning", "suspended process", "retained", "Terminate is suspended"),
        ("problem", "cluster tag", "", f"1 member without {tag} cannot be recycled: {member}"),
        ("problem", "rule", clock, "is disabled"),
        ("problem", "sweep", "", "the last sweep FAILED"),
    ]
    assert differences(found, expected) == ([], [])
    assert code == 6
    # The remedy is the command that sets the tag.
    (mend,) = [finding["remedy"] for finding in findings if (finding["level"], finding["check"]) == ("problem", "cluster tag")]
    assert mend.startswith(f"aws ec2 create-tags --resources {member} --tags 'Key={tag},Value=owned' # ")


def test_each_warning_is_found_and_nothing_else(world, cli):
    """Each of them alone: `crates/recycle/src/doctor/checks/tests.rs`. The topic has no subscription. Without the hook, one group
    has Capacity Rebalancing, and another one AZRebalance. Another tool takes the latter for its own."""
    world.group("retained", size=2, minimum=1, maximum=4, retains=True)
    world.sweep().finishes()
    scaling, queues = world.aws.client("autoscaling"), world.aws.client("sqs")
    scaling.delete_lifecycle_hook(AutoScalingGroupName="retained", LifecycleHookName="recycle-eks")
    scaling.update_auto_scaling_group(AutoScalingGroupName="retained", MinSize=2, MaxSize=2)
    world.group("impatient", size=1, minimum=1, maximum=4)
    world.group("risky", size=1, minimum=1, maximum=4)
    scaling.update_auto_scaling_group(AutoScalingGroupName="risky", CapacityRebalance=True)
    world.autoscaling.group("risky").capacity_rebalance = True
    world.group("zonal", size=2, minimum=1, maximum=4, zones=(f"{REGION}a", f"{REGION}b"))
    tag = {
        "Key": "aws-node-termination-handler/managed",
        "Value": "",
        "ResourceId": "zonal",
        "ResourceType": "auto-scaling-group",
    }
    scaling.create_or_update_tags(Tags=[{**tag, "PropagateAtLaunch": True}])
    url = queues.get_queue_url(QueueName="recycle-eks-dead-letters")["QueueUrl"]
    queues.send_message(QueueUrl=url, MessageBody=json.dumps({"lost": True}))

    code, found = examine(cli)

    expected = [
        ("warning", "notifications", "", "the topic has no subscription"),
        ("warning", "lifecycle hook", "retained", "the hook recycle-eks is missing"),
        ("warning", "sizes", "retained", "are all 2"),
        ("warning", "lifecycle hook", "impatient", "it lasts 25 hours at most, but a drain may take 48"),
        ("warning", "dead letters", "", "1 message"),
        ("problem", "lifecycle hook", "risky", "Capacity Rebalancing is on without the hook recycle-eks"),
        ("warning", "lifecycle hook", "zonal", "AZRebalance is on in 2 zones without the hook recycle-eks"),
        ("warning", "termination handler", "zonal", "the group has the tag aws-node-termination-handler/managed"),
    ]
    assert differences(found, expected) == ([], [])
    assert code == 6


def test_a_resource_that_may_not_be_read_is_unknown(healthy, cli):
    healthy.faults.refuse("events:ListRules", code="AccessDeniedException", message="no", status=400, times=None)
    code, found = examine(cli)
    assert differences(found, [("unknown", "rule", "", "unknown: not allowed to events:ListRules")]) == ([], [])
    assert code == 7


def test_groups_that_may_not_do_enough_are_named(healthy, cli):
    calls = {
        "recycle-eks-read": "get nodes",
        "recycle-eks-write": "patch nodes",
        "recycle-eks-evict": "create pods/eviction, delete pods",
        "recycle-eks-review": "create subjectaccessreviews.authorization.k8s.io",
    }
    # Without the last one, the function cannot ask about the others.
    for removed in (["recycle-eks-read", "recycle-eks-write", "recycle-eks-evict"], ["recycle-eks-review"]):
        for group in removed:
            healthy.kubernetes.must("DELETE", f"{BINDINGS}/{group}")
        try:
            _, found = examine(cli)
        finally:
            healthy.kubernetes.apply(healthy.deployment.outputs["rbac_manifest"])
        (said,) = [text for _, check, _, text in found if check == "permissions"]
        for group in removed:
            first = next(part for part in said.split("; ") if group in part)
            assert first.startswith(f"the group {group} may not {calls[group]}"), said


def test_a_cluster_that_lets_no_function_in_and_one_that_is_away_are_found(healthy, cli):
    with without_entry(healthy, "serve-operator"):
        _, found = examine(cli)
    assert ("problem", "access entry", "serve-operator") in [each[:3] for each in found]
    assert any(check == "API server" and "it refuses the functions" in text for _, check, _, text in found), found

    healthy.kubernetes.proxy.is_reachable = False
    code, found = examine(cli)
    assert code == 6
    (said,) = [text for level, check, _, text in found if (level, check) == ("problem", "API server")]
    assert "it refuses the functions" not in said


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
