"""AWS principals with one permission that looks harmless. IAM's simulator decides each of their calls."""

import json
import re

import pytest

from attacks import forgeries
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.deployment import ALARM_TOPIC, CLUSTER

WAITS = {"recycle-eks/drain": "wait"}
PROTECTED_FOR = "recycle-eks:protected-for"
#: An instance that EC2 does not know.
GONE = "i-0fedcba9876543210"


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


@pytest.fixture
def theirs(world):
    """An instance of another cluster."""
    return world.group("theirs", size=1, minimum=0, maximum=3, cluster="production").instances[0]


def tag(world, *instances, **tags):
    tags = [{"Key": f"recycle-eks:{key.replace('_', '-')}", "Value": value} for key, value in tags.items()]
    world.principal("ec2:CreateTags").create_tags(Resources=list(instances), Tags=tags)


def is_protected(world, node):
    members = world.autoscaling.group(node.group.name).instance_states
    return next(each.protected_from_scale_in for each in members if each.instance_id == node.instance_id)


CALLS = {
    "ec2:CreateTags": ("create_tags", {"Resources": ["INSTANCE"], "Tags": [{"Key": "a", "Value": "b"}]}),
    "states:StartExecution": ("start_execution", {"stateMachineArn": "MACHINE", "input": "{}"}),
    "sns:Publish": ("publish", {"TopicArn": ALARM_TOPIC, "Message": "hello"}),
    "events:PutEvents": ("put_events", {"Entries": [{"Source": "a", "DetailType": "b", "Detail": "{}"}]}),
    "lambda:InvokeFunction": ("invoke", {"FunctionName": "recycle-eks-start-rotation", "InvocationType": "DryRun"}),
}


def test_each_principal_may_do_one_thing(world, workers):
    names = {"INSTANCE": workers.instances[0], "MACHINE": world.deployment.outputs["sweep_state_machine_arn"]}
    calls = json.loads(re.sub("|".join(names), lambda found: names[found[0]], json.dumps(CALLS)))
    for action, (operation, parameters) in calls.items():
        getattr(world.principal(action), operation)(**parameters)
        user = f"arn:{PARTITION}:iam::{ACCOUNT}:user/only-{action.partition(':')[2]}"
        refused = {other for other, (_, given) in calls.items() if world.iam.refusal(user, other, given)}
        assert refused == set(calls) - {action}


# ec2:CreateTags


def test_a_tag_does_not_remove_the_protection_that_a_person_has_set(world, workers):
    """E5. Before: the sweep took the tag `recycle-eks:protected-for` for its own and removed the protection."""
    for_a_member, for_one_that_is_gone, other = workers.nodes
    workers.protect(for_a_member)
    workers.protect(for_one_that_is_gone)
    tag(world, for_a_member.instance_id, protected_for=other.instance_id)
    tag(world, for_one_that_is_gone.instance_id, protected_for=GONE)

    for _ in range(2):
        assert world.sweep().finishes().status == "SUCCEEDED"
        world.wait("15m")

    assert (is_protected(world, for_a_member), is_protected(world, for_one_that_is_gone)) == (True, True)


def test_a_tag_does_not_remove_the_protection_that_a_person_has_set_while_another_node_is_restored(world, workers):
    """E5. Before: the restore of any node unprotected each member that was tagged for it."""
    node, other, _ = workers.nodes
    node.job("long", annotations=WAITS)
    workers.protect(other)
    world.at("5m", lambda: tag(world, other.instance_id, protected_for=node.instance_id))

    assert world.recycle(node, drain_timeout=600).finishes().error == "DrainTimedOut"
    world.sweep().finishes()

    assert is_protected(world, other)


def test_a_tag_on_a_foreign_instance_does_not_hold_up_a_restore(world, workers, theirs):
    """E5. Before: one foreign instance made DeleteTags fail for all, so that the restore of the node never ended."""
    node = workers.nodes[0]
    node.job("long", annotations=WAITS)
    world.at("5m", lambda: tag(world, theirs, protected_for=node.instance_id))

    execution = world.recycle(node, drain_timeout=600)
    end = execution.finishes()

    assert end.error == "DrainTimedOut", (end.error, end.cause)
    assert end.at - execution.entered("RestoreNode")[0] < 300
    assert world.leftovers(workers) == []


def test_a_tag_does_not_bring_an_instance_back_that_a_person_has_put_into_standby(world, workers):
    """E5. Before: `recycle-eks:standby` made the sweep call ExitStandby for an instance in maintenance."""
    node = workers.nodes[0]
    world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    )
    world.wait("5m")
    tag(world, node.instance_id, standby="2027-01-01T00:00:00Z")

    for _ in range(2):
        world.sweep().finishes()
        world.wait("15m")

    assert workers.states[node.instance_id] == "Standby"


def test_a_claim_in_tags_keeps_a_node_out_of_no_rotation(world, workers):
    """E4. Before: a tag with the ARN of an execution that runs took the node out of the rotation, which ended `Rotated`."""
    other = world.group("other", size=1, minimum=1, maximum=3).nodes[0]
    other.job("long", annotations=WAITS)
    running = world.recycle(other)
    world.clock.run(until=lambda: bool(running.entered("WaitForPods")), limit=86_400)
    before = set(workers.instances)
    workers.gets_a_new_template()
    client = world.principal("ec2:CreateTags")
    client.create_tags(Resources=[workers.instances[0]], Tags=forgeries.claim_tags(running.arn))

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end.cause
    assert not before & set(workers.instances), "a node has evaded the rotation"


def test_a_tag_that_names_an_instance_of_another_cluster_causes_no_alert(world, workers, theirs):
    """E7. Before: each sweep worked on the instance that a tag named, and failed or lasted half an hour."""
    tag(world, workers.instances[0], protected_for=theirs)
    began = world.clock.elapsed()

    end = world.sweep().finishes()

    assert (end.status, end.at - began < 120) == ("SUCCEEDED", True), end
    assert not world.notifications


def test_a_tag_on_an_instance_of_another_cluster_steers_nothing(world, workers, theirs):
    """E5. Only instances with this cluster's tag are read."""
    tag(world, theirs, standby="2027-01-01T00:00:00Z", protected_for=workers.instances[0], gave_up="2027-01-01T00:00:00Z")

    end = world.sweep().finishes()

    assert (end.status, world.notifications) == ("SUCCEEDED", []), end
    assert not world.writes()


def test_a_tag_of_a_stop_or_a_detach_does_not_end_a_restore(world):
    """H3. Before: an instance in Standby with such a tag of a later time counted as stopped as asked. Its node stayed out of
    service, and its record was deleted."""
    ends = {}
    for result in ("stopped", "detached"):
        group = world.group(result, size=2, minimum=1, maximum=4)
        node = group.nodes[0]
        node.job(result, annotations=WAITS)
        world.at("5m", lambda node=node, result=result: tag(world, node.instance_id, **{result: "2027-01-01T09:00:00Z"}))
        ends[result] = (node, world.recycle(node, drain_timeout=600))

    for result, (node, execution) in ends.items():
        assert execution.finishes().error == "DrainTimedOut"
        assert node.group.states[node.instance_id] == "InService", result
        assert world.leftovers(node.group) == [(node.instance_id, f"recycle-eks:{result}")]


@pytest.mark.parametrize("log", ["lower:9 exit:2", "lower:3 exit:2", "x"])
def test_a_tag_of_group_changes_neither_leaves_a_group_larger_nor_holds_up_a_restore(world, workers, log):
    """H3. Before: the restore believed that it had made its group smaller already, or could not read the tag and failed."""
    node = workers.nodes[0]
    node.job("long", annotations=WAITS)
    world.at("5m", lambda: tag(world, node.instance_id, restore_log=log))

    end = world.recycle(node, drain_timeout=600).finishes()

    assert end.error == "DrainTimedOut", end
    assert workers.sizes == (1, 3, 6) and workers.states[node.instance_id] == "InService"


def test_a_tag_of_an_instance_that_was_given_up_hides_no_failed_restore(world):
    """H3. Before: a sweep that could not restore the node did not report it, because of the tag."""
    group = world.group("workers", size=2, minimum=2, maximum=2)
    node = group.nodes[0]
    node.job("long", annotations=WAITS)
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForPods")), limit=86_400)
    execution.stop()
    tag(world, node.instance_id, gave_up="2027-01-01T00:00:00Z")
    world.wait("10m")

    world.sweep().finishes()

    assert [sent["event"] for sent in world.all_notifications if sent["event"] == "left_in_standby"], world.all_notifications


CLUSTER_TAG = f"kubernetes.io/cluster/{CLUSTER}"


@pytest.mark.parametrize("refusal", ["missing_cluster_tag", "TagLimitExceeded"])
@pytest.mark.parametrize("replacement", ["before", "surge"])
def test_tags_that_leave_no_room_or_take_a_member_out_of_the_cluster_stop_its_group_by_name(world, workers, refusal, replacement):
    """H6. This permission includes the right to stop the recycling of an instance, as documented. It is refused by name before
    anything is changed, and the rotation fails."""
    victim = min(workers.nodes, key=lambda node: node.instance_id)
    workers.gets_a_new_template()
    room = 50 - len(world.instance(victim.instance_id).tags)
    keys = [CLUSTER_TAG] if refusal == "missing_cluster_tag" else [f"filler-{number}" for number in range(room)]
    client = world.principal("ec2:CreateTags")
    client.create_tags(Resources=[victim.instance_id], Tags=[{"Key": key, "Value": "x"} for key in keys])

    end = world.rotate(recycle={"replacement": replacement}).finishes()

    assert end.error == "RotationFailed", end
    assert victim.instance_id in workers.instances and not victim.kubernetes.taints
    (cause,) = [execution.finishes().cause for execution in world.executions()]
    assert refusal in cause
    assert world.leftovers() == [] and {*workers.states.values()} == {"InService"}


# states:StartExecution


def start(world, **fields):
    """A principal with `states:StartExecution` starts an execution for a node."""
    arn = world.deployment.outputs["state_machine_alias_arn"]
    client = world.principal("states:StartExecution")
    started = client.start_execution(stateMachineArn=arn, input=json.dumps({"cluster_name": CLUSTER, **fields}))
    return next(each for each in world.executions() if each.arn == started["executionArn"])


def test_an_execution_for_a_foreign_instance_is_refused(world, workers, theirs):
    """E10. The cluster's tag decides which instances are recycled, and the environment which cluster."""
    ends = [start(world, instance_id=theirs, urgency="spot", interrupted_at="2027-01-01T00:00:00Z").finishes()]
    ends.append(start(world, instance_id=theirs, cluster_name="production").finishes())

    assert [end.error for end in ends] == ["PreflightRefused", "InvalidInput"]
    assert not world.writes()


def test_an_execution_that_poses_as_an_interruption_keeps_to_budgets_and_is_reported(world, workers):
    """E10. This permission includes the right to skip the queue and to evict every pod of one Spot instance at once, as
    documented. Budgets hold, other nodes are untouched, and the notification names the execution."""
    node, *others = workers.nodes
    node.becomes_spot()
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    jobs = [other.job(f"long-{number}", annotations=WAITS) for number, other in enumerate(others)]

    execution = start(world, instance_id=node.instance_id, urgency="spot", interrupted_at="2027-01-01T00:00:00Z")
    execution.finishes()

    assert {call.parameters["name"].split("-")[0] for call in world.calls("kubernetes:POST pods/eviction")} == {"web"}
    assert len(web.running_pods()) == 2 and {job.phase for job in jobs} == {"Running"}
    assert {sent["execution"] for sent in world.all_notifications} == {execution.arn}
    assert [other.unschedulable for other in others] == [False, False]


def test_an_execution_that_poses_as_a_spot_event_of_another_instance_is_refused(world, workers):
    """E10. It would take the claim of a running execution over, skip the checks of the group, and evict every pod at once."""
    node = workers.nodes[0]
    job = node.job("long", annotations=WAITS)
    first = world.recycle(node)
    world.run("10m")

    for event, more in {"recommendation": {}, "interruption": {"interrupted_at": "2027-01-01T00:02:00Z"}}.items():
        end = start(world, instance_id=node.instance_id, urgency="spot", **more).finishes()
        assert end.error == "PreflightRefused" and 'urgency "spot" is for Spot instances' in end.cause, (event, end)
        assert job.phase == "Running" and first.status == "RUNNING", event
        assert not world.calls("kubernetes:POST pods/eviction"), event


def test_an_execution_that_poses_as_a_hook_evicts_no_awaited_pod(world, workers):
    """E10. The input names a hook. Auto Scaling says which hook holds the member, if any."""
    node = workers.nodes[0]
    job = node.job("long", annotations=WAITS)
    hook = {"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2", "fired_at": "2027-01-01T00:00:00Z"}

    execution = start(world, instance_id=node.instance_id, hook=hook)
    world.wait("1h")

    assert job.phase == "Running" and world.instance(node.instance_id).state == "running", execution.path
    assert not world.calls("kubernetes:POST pods/eviction")


# sns:Publish


FORGED = [
    {"AWSAccountId": "210987654321"},
    {"AlarmArn": "arn:aws:cloudwatch:eu-west-1:210987654321:alarm:node-cpu"},
    {"AlarmArn": "arn:aws:cloudwatch:us-east-1:123456789012:alarm:node-cpu"},
    {"AlarmArn": "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:another"},
    {"AlarmArn": None},
    {"AlarmName": "another"},
]


def test_a_forged_alarm_starts_nothing(world, workers):
    """E10. Before: any message with the name of an alarm recycled the instance that it named."""
    arn = f"arn:{PARTITION}:cloudwatch:{REGION}:{ACCOUNT}:alarm:node-cpu"
    dimension = {"name": "InstanceId", "value": workers.instances[0]}
    change = {"OldStateValue": "OK", "NewStateValue": "ALARM", "StateChangeTime": "2027-01-01T00:00:01.000+0000"}
    alarm = {"AlarmName": "node-cpu", "AlarmArn": arn, "AWSAccountId": ACCOUNT, **change, "Trigger": {"Dimensions": [dimension]}}
    publisher = world.principal("sns:Publish")
    for forged in FORGED:
        publisher.publish(TopicArn=ALARM_TOPIC, Message=json.dumps({**alarm, **forged}))
        world.wait("10m")
        assert not world.executions("rotate-nodes") and not world.executions(), forged


# events:PutEvents


def put(world, source, kind, **detail):
    entry = {"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}
    return world.principal("events:PutEvents").put_events(Entries=[entry])["Entries"][0]


def test_an_event_in_the_name_of_aws_reaches_no_rule(world, workers):
    """E10. EventBridge keeps the sources of AWS services for these services."""
    answers = [
        put(world, "aws.ec2", "EC2 Spot Instance Interruption Warning", **{"instance-id": workers.instances[0]}),
        put(world, "aws.cloudwatch", "CloudWatch Alarm State Change", alarmName="node-cpu", state={"value": "ALARM"}),
        put(world, "aws.states", "Step Functions Execution Status Change", status="ABORTED"),
    ]
    world.wait("5m")

    assert {answer.get("ErrorCode") for answer in answers} == {"NotAuthorizedForSourceException"}
    assert not world.executions("rotate-nodes") and not world.executions()


def test_an_event_of_a_trigger_chooses_the_node_and_nothing_else(world, workers, theirs):
    """E10. The source is the owner's own. The event names an instance of this cluster, and the module's trigger says how it
    goes."""
    fields = {"drain_timeout": 60, "on_drain_timeout": "terminate", "override": ["running_pods"], "urgency": "spot"}
    own = workers.instances[0]
    for instance in (theirs, GONE, own):
        put(world, "my.monitoring", "Node is sick", machine=instance, recycle=fields, **fields)
    world.wait("3m")

    given = [json.loads(world.engine.execution(execution.arn).input_text) for execution in world.executions()]
    assert given == [{"instance_id": own, "cluster_name": CLUSTER, "drain_timeout": 7200}]
