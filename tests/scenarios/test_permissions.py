"""Least privilege: every role's policies and Kubernetes groups allow exactly the calls that scenarios of every kind need."""

import json

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from prepare import LAMBDAS, ROOT
from world.aws.iam_resources import ROWS, everything
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.aws.requests import BOTO3_SERVICE
from world.cli import command_line
from world.deployment import ALARM_TOPIC, CLUSTER
from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import KubeClient

#: Statements that no scenario here needs, and the reason for each.
NOT_CALLED = {
    "WriteItsOwnLog": "Lambda itself writes with the function's role; the world keeps the functions' logs without it",
    "DeliverItsLog": "Step Functions itself asks for these with the machine's role; the world's machines have no logs",
    "scheduler's SendDeadLetters": "EventBridge Scheduler itself, after attempts that the world's does not make",
}

# The scenarios


def wait(world, time):
    world.run(world.clock.elapsed() + world.seconds(time))


def everything_ends(world):
    for _ in range(2):
        for machine in ("rotate-nodes", "recycle-node", "sweep"):
            for execution in world.executions(machine):
                execution.finishes()


def recyclings(world, cli):
    """Recycles a node with pods that are evicted, behind a balancer, in a group that EKS manages, and a node with volumes. The
    third node's replacement comes after it, and one of its pods is deleted past its budget. The last three nodes are stopped,
    detached, and left without a replacement."""
    workers = world.group("workers", size=2, minimum=1, maximum=4, labels={"eks.amazonaws.com/nodegroup": "blue"})
    world.eks.set_node_group(CLUSTER, "blue", "ACTIVE")
    world.target_group("ingress", workers)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    world.at("10m", job.finishes)
    databases = world.group("databases", size=1, minimum=1, maximum=4).nodes[0]
    databases.stateful_set("db", volume_claims=[world.kubernetes.zonal_volume("data", f"{REGION}a")])
    afterwards = world.group("afterwards", size=2, minimum=2, maximum=2).nodes[0]
    crashes = afterwards.deployment("crashes")
    world.budget(crashes, min_available=1)
    crashes.pods()[0].crash_loops()
    stopped = world.group("stopped", size=2, minimum=1, maximum=4).nodes[0]
    detached = world.group("detached", size=3, minimum=1, maximum=5).nodes[0]
    alone = world.group("alone", size=2, minimum=1, maximum=4)
    alone.next_launch(fails="Insufficient capacity")
    executions = [
        world.recycle(node, label_selector="app=train"),
        world.recycle(databases),
        world.recycle(afterwards, replacement="after", override=["unhealthy_budget"]),
        world.recycle(stopped, dispose="stop"),
        world.recycle(detached, dispose="detach"),
    ]
    without_replacement = world.recycle(alone.nodes[0], replacement_timeout=300)
    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 5
    assert without_replacement.finishes().error == "ReplacementTimedOut"


def a_hook(world, cli):
    """The hook is kept alive, and completed by the function that disposes of the instance. A foreign member is let go at once,
    and nothing of it is touched."""
    foreign = world.group("held", size=2, minimum=0, maximum=4, cluster="production")
    workers = world.group("impatient", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    world.at("40m", node.job("train", annotations={"recycle-eks/drain": "wait"}).finishes)
    workers.terminate(node)
    foreign.grow(1)
    wait(world, "1m")
    everything_ends(world)
    assert sorted(execution.finishes().outcome for execution in world.executions()) == ["recycled", "released"]


def a_hook_whose_event_is_lost(world, cli):
    """The sweep starts what the hook would have."""
    world.events.lose("*:stateMachine:recycle-eks-recycle-node*")
    workers = world.group("held", size=2, minimum=0, maximum=4)
    world.let_sweep()
    workers.terminate(workers.nodes[0])
    wait(world, "40m")
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def a_hook_whose_event_is_lost_in_a_drain(world, cli):
    """The group ends the member during its drain. The execution notices that, and keeps the hook alive."""
    world.events.lose("*:stateMachine:recycle-eks-recycle-node*")
    workers = world.group("impatient", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    world.at("40m", node.job("train", annotations={"recycle-eks/drain": "wait"}).finishes)
    execution = world.recycle(node, replacement="after")
    world.run("10m")
    workers.terminate(node)
    assert execution.finishes().outcome == "recycled"


def a_cluster_that_has_moved(world, cli):
    """Each function is refused once, and asks EKS where the cluster is now."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.deployment("web", replicas=2)
    for function in ("standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate"):
        world.faults.refuse("kubernetes:*", code="Unauthorized", status=401, function=function)
    assert world.recycle(node).finishes().outcome == "recycled"
    assert world.faults.not_struck() == []


def a_restore(world, cli):
    """A member comes back from Standby. Its empty replacement ends under the hook while the others are protected."""
    # A group that trims itself ends the replacement, and the function does not.
    world.unknowns.exit_standby_trims = False
    workers = world.group("held", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    node.job("train", annotations={"recycle-eks/drain": "wait"})
    end = world.recycle(node, drain_timeout=600).finishes()
    assert end.error == "DrainTimedOut" and "was restored" in end.cause, end.cause
    everything_ends(world)


def a_lost_node(world, cli):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    world.at("20m", node.is_terminated_in_the_console)
    assert world.recycle(node, label_selector="app=train").finishes().error == "NodeLost"


def spot(world, cli):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.deployment("web", replicas=2)
    node.becomes_spot()
    detail = {"instance-id": node.instance_id, "instance-action": "terminate"}
    world.events.emit("aws.ec2", "EC2 Spot Instance Interruption Warning", detail)
    wait(world, "1m")
    everything_ends(world)
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def a_sweep(world, cli):
    """The sweep restores the node of a stopped execution, and sends a notification."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    world.let_sweep()
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    execution.stop()
    wait(world, "40m")
    assert world.leftovers() == [] and world.notifications


def a_rotation(world, cli):
    """With a node that is lost in the middle, and others that ask about it."""
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    workers.gets_a_new_template()
    lost = min(workers.nodes, key=lambda node: node.instance_id)
    lost.job("train", labels={"app": "train"})
    world.alarm("errors", InstanceId="i-0")
    rotation = world.rotate(at_once=1, failure_budget=1, alarms=["errors"], recycle={"label_selector": "app=train"})
    world.at("10m", lost.is_terminated_in_the_console)
    world.run("5m")
    assert world.rotate({"outdated": {"ami": True}}).finishes().status == "SUCCEEDED"
    end = rotation.finishes()
    (group,) = json.loads(end.cause)["groups"]
    assert (end.error, group["recycled"]) == ("RotationFailed", 2), end


def a_rotation_that_is_redriven(world, cli):
    world.group("workers", size=2, minimum=1, maximum=4).gets_a_new_template()
    rotation = world.rotate(at_once=1, failure_budget=1)
    world.run("60s")
    rotation.stop()
    world.sweep().finishes()
    rotation.redrive()
    assert rotation.finishes().error == "RotationFailed"


def a_rotation_that_is_aborted(world, cli):
    """It takes the executions with it that it waits for."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    workers.nodes[0].job("train", labels={"app": "train"})
    rotation = world.rotate({"outdated": {"all": True}}, at_once=1, recycle={"label_selector": "app=train"})
    world.run("20m")
    printed = cli("abort", rotation.arn)
    assert printed.code == 0, printed
    everything_ends(world)


def schedules(world, cli):
    world.group("workers", size=2)
    world.let_schedules_run()
    world.run("1d1m")
    everything_ends(world)


def an_alarm_through_a_topic(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=5)
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=workers.nodes[1].instance_id)
    world.turn_alarm("node-cpu", "ALARM")
    wait(world, "3m")
    everything_ends(world)
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def an_alarm_that_starts_nothing(world, cli):
    """An alarm that cannot start a rotation ends in the dead-letter queue."""
    workers = world.group("workers", size=2, minimum=1, maximum=5)
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=workers.nodes[1].instance_id)
    world.events.silent = "*alarm*"
    world.faults.refuse("states:StartExecution", code="ThrottlingException", times=None, function="start-rotation")
    world.turn_alarm("node-cpu", "ALARM")
    wait(world, "5m")
    assert world.queued("dead-letters")


def an_operator(world, cli):
    """Every command, and every view."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    world.group("retained", size=1, minimum=1, maximum=2, retains=True)
    world.sweep().finishes()
    assert cli("doctor", "--output", "json", pace=0).code in (0, 7)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    assert cli("recycle", node.name, "--label-selector", "app=train", "--no-wait").code == 0
    world.run("30m")
    assert cli("status").code == 0
    assert cli("extend", node.name, "--by", "1d").code == 0
    assert cli("finish", node.name).code == 0
    everything_ends(world)
    job.finishes()
    assert cli("restore", "--all").code == 0
    assert cli("pause", "workers").code == 0
    assert cli("resume", "--all").code == 0
    assert cli("plan", "--all").code == 0
    rotation = cli("rotate", "--all", pace=300)
    assert rotation.code == 0, rotation
    assert cli("report", world.executions("rotate-nodes")[-1].arn, "--output", "json", pace=0).code == 0
    assert cli("report", world.executions()[0].arn, "--output", "json", pace=0).code == 0


SCENARIOS = [
    recyclings, a_hook, a_hook_whose_event_is_lost, a_hook_whose_event_is_lost_in_a_drain, a_cluster_that_has_moved,
    a_restore, a_lost_node, spot, a_sweep, a_rotation, a_rotation_that_is_redriven, a_rotation_that_is_aborted, schedules,
    an_alarm_through_a_topic, an_alarm_that_starts_nothing, an_operator,
]  # fmt: skip


class Lived:
    """The calls of all of them."""

    def __init__(self, world):
        self.decisions = []
        self.kubernetes = []
        for scenario in SCENARIOS:
            world.reset()
            with command_line(world) as cli:
                scenario(world, cli)
            self.decisions += world.iam.decisions
            self.kubernetes += [call for call in world.aws.calls if call.action.startswith("kubernetes:")]


def test_policies_and_groups_allow_exactly_the_calls_of_all_scenarios(world):
    """One test, so that the scenarios are played once."""
    lived = Lived(world)
    world.reset()
    no_call_is_refused(lived)
    every_right_of_the_policies_was_needed(world, lived)
    no_call_was_refused_by_the_api_server(lived)
    every_verb_of_each_group_was_needed_by_a_function_of_the_group(world, lived)
    each_function_is_in_exactly_the_groups_that_its_calls_need(world, lived)
    the_table_of_permissions_has_exactly_the_calls_of_each_function(lived)


# The policies


def short(principal):
    return principal.rpartition("/")[2].removeprefix("recycle-eks-")


def granted(world):
    """Role or user, statement, action: everything that the policies allow as they stand in IAM."""
    iam = world.aws.client("iam")
    world.operators_environment()
    documents = {
        role["RoleName"]: [
            *(
                iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
                for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
            ),
            *(
                iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId="v1")["PolicyVersion"]["Document"]
                for policy in iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
            ),
        ]
        for role in iam.list_roles()["Roles"]
        if role["RoleName"].startswith("recycle-eks-")
    }
    documents["operator"] = [json.loads(world.deployment.outputs["operator_policy_json"])]
    return {
        (short(name), statement["Sid"], action)
        for name, policies in documents.items()
        for policy in policies
        for statement in policy["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }


def no_call_is_refused(lived):
    assert [decision for decision in lived.decisions if not decision.allowed] == []
    assert {short(decision.principal) for decision in lived.decisions} >= {
        "claim-node",
        "sweep",
        "events",
        "scheduler",
        "operator",
    }


def not_called(who, sid):
    """Its name among the exceptions, if it is one."""
    return next((name for name in (sid, f"{who}'s {sid}") if name in NOT_CALLED), None)


def every_right_of_the_policies_was_needed(world, lived):
    needed = {(short(each.principal), sid, each.action) for each in lived.decisions for sid in each.statements}
    unneeded = granted(world) - needed
    assert [each for each in sorted(unneeded) if not not_called(*each[:2])] == []
    # No exception is listed that is none, or was called after all.
    excepted = {each for each in granted(world) if not_called(*each[:2])}
    assert {not_called(*each[:2]) for each in excepted} == set(NOT_CALLED) and excepted <= unneeded


# Foreign resources


def arn(service, rest):
    return f"arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}"


THEIR_EXECUTION = arn("states", "execution:payments:1")
THEIR_MACHINE = arn("states", "stateMachine:payments")

PAUSE = {"ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused"}
OF_A_HOOK = {"AutoScalingGroupName": "GROUP", "LifecycleHookName": "theirs", "InstanceId": "INSTANCE"}

#: Every action that takes resources, on foreign ones: GROUP and INSTANCE belong to another owner.
FOREIGN = {
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
    "events:PutRule": {"Name": "payments", "ScheduleExpression": "rate(1 minute)"},
    "events:PutTargets": {"Rule": "payments", "Targets": [{"Id": "1", "Arn": THEIR_MACHINE}]},
    "lambda:GetFunctionConfiguration": {"FunctionName": "payments"},
    "lambda:InvokeFunction": {"FunctionName": "payments"},
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


def credentials(world, who):
    if who == "operator":
        known = world.operators_environment()
        return known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"]
    return world.aws.session(f"arn:{PARTITION}:iam::{ACCOUNT}:role/recycle-eks-{who}", "somebody")


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


# The cluster


RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUPS = ("recycle-eks-read", "recycle-eks-write", "recycle-eks-lease", "recycle-eks-evict", "recycle-eks-review")
#: The namespace of recycle-eks, and another one.
NAMESPACES = ("recycle-eks", "default")


def rules(world, group, *namespaces):
    """(API group, resource, verb) of a group's ClusterRole and of its Roles in namespaces, as they stand on the API server."""
    roles = world.kubernetes.must("GET", f"{RBAC}/clusterroles")["items"]
    for namespace in namespaces:
        roles += world.kubernetes.must("GET", f"{RBAC}/namespaces/{namespace}/roles")["items"]
    return {
        (api_group, resource, verb)
        for role in roles
        if role["metadata"]["name"] == group
        for rule in role["rules"]
        for api_group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def groups_of_functions(world):
    """The Kubernetes groups of each function's access entry."""
    return {short(principal): set(groups) for principal, _, groups in world.eks.access_entries()}


def as_rule(call):
    """The verb by which RBAC knows a request (Kubernetes documentation, "Determine the request verb")."""
    group = call.path.split("/")[2] if call.path.startswith("/apis/") else ""
    verb = {"GET": "get" if "name" in call.parameters else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
    return group, call.action.rpartition(" ")[2], verb[call.verb]


#: Calls that every user of the cluster may make (Kubernetes documentation, "Discovery roles").
OF_EVERY_USER = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
}


def calls_by_function(lived):
    """The calls of each function that the API server answered, as RBAC names them."""
    of_resources = [call for call in lived.kubernetes if call.status < 300 and not call.action.endswith(" /version")]
    made = {}
    for call in of_resources:
        made.setdefault(call.function.removeprefix("recycle-eks-"), set()).add(as_rule(call))
    return {function: calls - OF_EVERY_USER for function, calls in made.items()}


def no_call_was_refused_by_the_api_server(lived):
    assert [call for call in lived.kubernetes if call.status in (401, 403) and call.fault is None] == []


def every_verb_of_each_group_was_needed_by_a_function_of_the_group(world, lived):
    made, groups_of = calls_by_function(lived), groups_of_functions(world)
    assert set().union(*groups_of.values()) == set(GROUPS)
    for group in GROUPS:
        members = [function for function, groups in groups_of.items() if group in groups]
        allowed = rules(world, group, *NAMESPACES)
        assert set().union(*(made[function] for function in members)) & allowed == allowed, group


def each_function_is_in_exactly_the_groups_that_its_calls_need(world, lived):
    made, groups_of = calls_by_function(lived), groups_of_functions(world)
    assert made.keys() == groups_of.keys()
    allowed = {group: rules(world, group, *NAMESPACES) for group in GROUPS}
    for function, calls in made.items():
        assert {group for group in GROUPS if allowed[group] & calls} == groups_of[function], function
        assert calls <= set().union(*(allowed[group] for group in groups_of[function])), function


VOLUMES = {("", "persistentvolumeclaims", "get"), ("", "persistentvolumes", "get")}
EVENTS = ("", "events", "create")
#: The calls that these scenarios do not need, by function. They read no volumes in a dry run, nor in a disposal to which pods
#: come back. No pod is blocked for five minutes, and no request is answered by a restore. No sweep claims a node that has no
#: Lease. No rotation waits for pending pods. The Node of a drain whose end is moved is found in the list.
NOT_LIVED = {
    "claim-node": VOLUMES,
    "detach-terminate": VOLUMES,
    "evict-pods": {EVENTS},
    "restore-node": {EVENTS, ("coordination.k8s.io", "leases", "create")},
    "select-nodes": {("", "pods", "list")},
    "serve-operator": {("", "nodes", "get")},
}


def the_table_of_permissions_has_exactly_the_calls_of_each_function(lived):
    table = json.loads((ROOT / "tests" / "contract" / "contract.json").read_text())["permissions"]
    listed = {}
    for permission in table:
        for function in permission["functions"]:
            listed.setdefault(function, set()).add((permission["api_group"], permission["resource"], permission["verb"]))
    made = calls_by_function(lived)
    assert made.keys() == listed.keys()
    for function, calls in made.items():
        assert calls <= listed[function], function
    missing = {function: listed[function] - calls for function, calls in made.items()}
    assert {function: calls for function, calls in missing.items() if calls} == NOT_LIVED


def every_verb(world):
    """Every verb of every resource that the API server has."""
    groups = [("", "/api/v1")]
    for group in world.kubernetes.must("GET", "/apis")["groups"]:
        groups.append((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"))
    for group, path in groups:
        for resource in world.kubernetes.must("GET", path)["resources"]:
            for verb in resource["verbs"]:
                yield group, resource["name"], verb


def test_a_group_may_do_nothing_else(world):
    def is_allowed(groups, namespace, group, resource, verb):
        name, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": namespace}
        asked = {"user": "somebody", "groups": [*groups, "system:authenticated"], "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
        return world.kubernetes.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]

    every = set(every_verb(world))
    assert len(every) > 300
    for namespace in NAMESPACES:
        # RBAC only adds: a user in all groups may do everything that a user in one of them may do.
        together = {each for each in every if is_allowed(GROUPS, namespace, *each)}
        assert together == set().union(*(rules(world, role, namespace) for role in GROUPS)) | OF_EVERY_USER, namespace
        for role in GROUPS:
            alone = {each for each in together if is_allowed([role], namespace, *each)}
            assert alone == rules(world, role, namespace) | OF_EVERY_USER, (role, namespace)


NODE = "/api/v1/nodes/{node}"


#: Calls that no function may make.
ELSE = [
    ("PUT", NODE),
    ("PATCH", f"{NODE}/status"),
    ("GET", f"{NODE}/proxy/"),
    ("POST", "/api/v1/nodes"),
    ("DELETE", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes?watch=true"),
    ("GET", "/api/v1/namespaces/default/pods/web"),
    ("DELETE", "/api/v1/namespaces/default/pods"),
    ("PATCH", "/api/v1/namespaces/default/pods/web"),
    ("POST", "/api/v1/namespaces/default/pods/web/exec"),
    ("GET", "/api/v1/namespaces/default/secrets"),
    ("GET", "/api/v1/namespaces/kube-system/configmaps/aws-auth"),
    ("GET", "/apis/apps/v1/deployments"),
    ("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"),
    ("PATCH", f"{RBAC}/clusterroles/recycle-eks-evict"),
]


def client_of(world, function):
    token = eks_token(CLUSTER, REGION, *credentials(world, function))
    return KubeClient(world.kubernetes.proxy.port, world.kubernetes.control_plane.authority.file, token=token)


def call(client, method, path):
    body = {} if method in ("PUT", "PATCH", "POST") else None
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return client.call(method, path, body, content_type)


def test_the_api_server_refuses_a_function_everything_else(world):
    node = world.group("workers", size=1).nodes[0]
    client = client_of(world, "evict-pods")

    answers = {(method, path): call(client, method, path.format(node=node.name)) for method, path in ELSE}

    assert {row: answer for row, answer in answers.items() if answer.status != 403} == {}
    assert {row: answer for row, answer in answers.items() if "forbidden" not in answer.body["message"]} == {}


POD = "/api/v1/namespaces/default/pods/web"
EVICTION = f"{POD}/eviction"
#: A call of each group, and a function that is not in the group.
NOT_IN_THE_GROUP = [
    ("evict-pods", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("select-nodes", "PATCH", NODE),
    ("select-nodes", "POST", "/api/v1/namespaces/default/events"),
    *((function, "DELETE", POD) for function in LAMBDAS if function not in ("evict-pods", "start-rotation")),
    *((function, "POST", EVICTION) for function in LAMBDAS if function not in ("evict-pods", "start-rotation")),
]


def test_the_api_server_refuses_a_function_the_calls_of_other_groups(world):
    node = world.group("workers", size=1).nodes[0]
    answers = {row: call(client_of(world, row[0]), row[1], row[2].format(node=node.name)) for row in NOT_IN_THE_GROUP}
    assert {row: answer.status for row, answer in answers.items() if answer.status != 403} == {}


def test_a_function_that_does_not_call_kubernetes_has_no_access(world):
    assert client_of(world, "start-rotation").call("GET", "/api/v1/nodes").status == 401
