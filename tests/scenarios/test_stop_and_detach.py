"""`dispose: stop` and `dispose: detach`: the instance, its Node, and the other members, with and without faults."""

import pytest

from world.base.beyond_models import refusal_of
from world.base.faults import kills

KEPT = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
TAINTS = ("recycle-eks/draining", "recycle-eks/stopped", "recycle-eks/detached", "node.kubernetes.io/out-of-service")
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


@pytest.fixture
def node(world):
    return world.group("workers", size=3, minimum=1, maximum=5).nodes[0]


def recycle(world, node, dispose, **fields):
    return world.recycle(node, label_selector="app=train", dispose=dispose, **fields)


def neighbours(node):
    """A pod on each other member, whose end would show that the member was ended."""
    return [other.bare_pod(f"neighbour-{n}") for n, other in enumerate(node.group.nodes) if other is not node]


def protected(world):
    return [m.instance_id for m in world.autoscaling.group("workers").instance_states if m.protected_from_scale_in]


def taints_of(node):
    """The taints that only recycle-eks sets."""
    return [taint["key"] for taint in node.kubernetes.taints if taint["key"] in TAINTS]


def tags_of(world, node):
    return {key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")}


@pytest.mark.reading("standby_counts_for_zone_balance")
def test_a_stopped_instance_stays_in_standby_with_its_tag_and_a_node_that_says_so(world, node):
    others = neighbours(node)

    end = recycle(world, node, "stop").finishes()
    world.run(end.at + 3600)
    swept = world.sweep().finishes()

    assert end.outcome == "recycled" and "is stopped, and stays in Standby" in end.output["reason"]
    assert world.instance(node.instance_id).state == "stopped"
    assert taints_of(node) == ["recycle-eks/stopped", "node.kubernetes.io/out-of-service"] and node.unschedulable
    assert node.annotations[KEPT] == "true" and EXCLUDE in node.labels and "recycle-eks/claim" not in node.annotations
    assert tags_of(world, node) == {"recycle-eks:stopped"}
    assert node.group.states[node.instance_id] == "Standby" and node.group.sizes == (1, 3, 5)
    assert all(pod.phase == "Running" for pod in others)
    assert swept.status == "SUCCEEDED" and not world.notifications and not world.leftovers(node.group)
    assert world.recycle(node).finishes().outcome == "already_gone"


@pytest.mark.reading("detach_from_standby_kills_another", "detach_from_standby_launches_extra")
def test_a_detached_instance_keeps_running_and_no_other_member_ends_for_it(world, node):
    others = neighbours(node)
    left = node.deployment("left-alone", annotations={"recycle-eks/drain": "ignore"}).pods()[0]

    end = recycle(world, node, "detach").finishes()
    assert not protected(world)
    world.run(end.at + 3600)
    swept = world.sweep().finishes()

    assert end.outcome == "recycled" and "has left group workers, and runs" in end.output["reason"]
    assert world.instance(node.instance_id).state == "running" and node.instance_id not in node.group.states
    assert node.group.sizes == (1, 3, 5) and sorted(node.group.states.values()) == ["InService"] * 3
    assert all(pod.phase == "Running" for pod in others) and left.phase == "Running"
    # Found by its tag or taint, left alone by other pods, and by the sweep.
    assert tags_of(world, node) == {"recycle-eks:detached"}
    assert [taint["key"] for taint in node.kubernetes.taints if taint["key"].startswith("recycle-eks/")] == [
        "recycle-eks/detached"
    ]
    assert node.unschedulable and EXCLUDE in node.labels
    assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    assert swept.status == "SUCCEEDED" and not world.notifications and not world.leftovers(node.group)


def test_the_others_are_protected_before_the_detach_and_until_the_group_has_come_to_rest(world, node):
    assert recycle(world, node, "detach").finishes().outcome == "recycled"

    actions = [call.action for call in world.writes() if call.action.startswith("autoscaling:")]
    assert actions == [
        "autoscaling:EnterStandby",
        "autoscaling:SetInstanceProtection",
        "autoscaling:DetachInstances",
        "autoscaling:SetInstanceProtection",
    ]
    # The node had no annotation for Cluster Autoscaler, and has none.
    assert KEPT not in node.annotations
    # It is refused as long as no group has it.
    assert world.recycle(node).finishes().error == "PreflightRefused"


def test_a_member_that_an_operator_protects_and_an_earlier_autoscaler_annotation_stay(world, node):
    other = node.group.nodes[1]
    node.group.protect(other)
    node.annotate(KEPT, "false")

    assert recycle(world, node, "detach").finishes().outcome == "recycled"
    assert protected(world) == [other.instance_id]
    assert node.annotations[KEPT] == "false"


def test_a_refused_detach_is_restored_and_leaves_no_member_protected(world):
    actions = ("DetachInstances", "SetInstanceProtection")
    nodes = {action: world.group(action, size=3, minimum=1, maximum=5).nodes[0] for action in actions}
    for action in actions:
        world.faults.refuse(
            f"autoscaling:{action}",
            code="AccessDenied",
            status=403,
            times=None,
            function="detach-terminate",
            where=lambda asked, group=action: asked["AutoScalingGroupName"] == group,
        )
    executions = {action: recycle(world, node, "detach") for action, node in nodes.items()}

    for action, node in nodes.items():
        end = executions[action].finishes()
        world.run(end.at + 1200)

        assert (end.status, end.error) == ("FAILED", "ServiceRefused"), (action, end.cause)
        assert node.group.states[node.instance_id] == "InService" and node.group.sizes == (1, 3, 5), action
        assert not node.unschedulable and not world.leftovers(node.group), action
    assert not world.faults.not_struck()


def test_after_a_stop_between_the_calls_the_sweep_leaves_no_member_protected(world):
    world.let_sweep()
    actions = ("SetInstanceProtection", "DetachInstances")
    nodes = {action: world.group(action, size=3, minimum=1, maximum=5).nodes[0] for action in actions}
    executions = {action: recycle(world, node, "detach") for action, node in nodes.items()}

    def has_called(action: str) -> bool:
        calls = world.calls(f"autoscaling:{action}", succeeded=True)
        return any(call.parameters["AutoScalingGroupName"] == action for call in calls)

    for action, execution in executions.items():
        world.clock.run(until=lambda name=action: has_called(name), limit=world.seconds("1d"))
        execution.stop()
    world.wait(2 * 3600)

    for action, node in nodes.items():
        assert not [m for m in world.autoscaling.group(action).instance_states if m.protected_from_scale_in], action
        assert world.instance(node.instance_id).state == "running", action
    before, after = nodes.values()
    assert not world.leftovers(before.group) and before.group.states[before.instance_id] == "InService"
    # An operator has to remove the marks of an instance that is in no group.
    sent = [each for each in world.all_notifications if f"({after.instance_id})" in str(each["reason"])][-1]
    assert {where for where, _ in world.leftovers(after.group)} == {after.name, after.instance_id}
    assert sent["severity"] == "critical" and f"({after.instance_id}) is in no group" in sent["reason"] and sent["what_to_do"]


def test_an_instance_that_dies_while_it_is_detached_leaves_no_member_protected(world, node):
    execution = recycle(world, node, "detach")
    world.clock.run(until=lambda: bool(world.calls("autoscaling:DetachInstances", succeeded=True)), limit=world.seconds("1d"))
    node.is_terminated_in_the_console()

    end = execution.finishes()

    assert end.outcome == "recycled" and "is terminated" in end.output["reason"]
    assert not protected(world) and not world.leftovers(node.group)


def test_a_repeated_last_call_does_not_touch_a_detached_instance(world, node):
    assert recycle(world, node, "detach").finishes().outcome == "recycled"
    calls = len([sample for sample in world.host.samples if sample.function == "recycle-eks-detach-terminate"])
    node = world.group("others", size=3, minimum=1, maximum=5).nodes[0]
    world.faults.invoke("detach-terminate", nth=calls, after=True)

    end = recycle(world, node, "detach").finishes()

    assert end.outcome == "recycled" and "has left group others, and runs" in end.output["reason"]
    assert not world.faults.not_struck()
    tagged = [call for call in world.calls("ec2:CreateTags") if "recycle-eks:detached" in str(call.parameters)]
    assert len(tagged) == 1 and tags_of(world, node) == {"recycle-eks:detached"}


def lists_the_kept(parameters):
    return "kept-for" in parameters.get("labelSelector", "")


def marks_it_as_stopped(parameters):
    return "recycle-eks/stopped" in str(parameters)


def untags_the_claim(parameters):
    return "recycle-eks:claim" in str(parameters)


#: The disposal, and its last calls that AWS or the cluster refuses.
REFUSED = [
    ("terminate", "kubernetes:GET nodes", lists_the_kept),
    ("stop", "kubernetes:GET nodes", lists_the_kept),
    ("detach", "kubernetes:GET nodes", lists_the_kept),
    ("stop", "kubernetes:PATCH nodes", marks_it_as_stopped),
    ("stop", "ec2:DeleteTags", untags_the_claim),
    ("detach", "ec2:DeleteTags", untags_the_claim),
]


def test_a_disposal_does_not_fail_because_its_last_call_was_refused(world):
    nodes = [world.group(f"workers-{number}", size=3, minimum=1, maximum=5).nodes[0] for number in range(len(REFUSED))]
    for node, (_, refused, where) in zip(nodes, REFUSED, strict=True):
        names = (node.name, node.instance_id)
        world.faults.refuse(
            refused,
            **refusal_of(refused, "refused"),
            function="detach-terminate",
            where=lambda asked, names=names, where=where: where(asked) and any(name in str(asked) for name in names),
            times=None,
        )
    executions = [recycle(world, node, dispose) for node, (dispose, _, _) in zip(nodes, REFUSED, strict=True)]
    ends = [execution.finishes() for execution in executions]

    for end, row in zip(ends, REFUSED, strict=True):
        assert end.outcome == "recycled", (row, end.cause)
    assert not world.faults.not_struck()
    world.run(max(end.at for end in ends) + 400)
    swept = world.sweep().finishes().output
    assert list(swept) == ["nodes"]
    # The instance is gone as asked. Any kubelet could write the mark that is left, so that it is removed without a report.
    silent = [row for row in REFUSED if row[1] == "kubernetes:GET nodes" and row[0] != "terminate"]
    reported = [node for node, row in zip(nodes, REFUSED, strict=True) if row not in silent]
    expected = [*({"restored": node.instance_id} for node in reported), *({} for _ in silent)]
    assert sorted(swept["nodes"], key=str) == sorted(expected, key=str)
    for node, row in zip(nodes, REFUSED, strict=True):
        assert not world.leftovers(node.group), row
        assert node.exists == (row[0] != "terminate"), row
        if row[0] != "terminate":
            assert tags_of(world, node) == {"recycle-eks:stopped" if row[0] == "stop" else "recycle-eks:detached"}, row


def test_the_sweep_leaves_a_stopped_instance_alone_that_an_operator_has_started(world, node):
    world.faults.refuse(
        "ec2:DeleteTags",
        code="UnauthorizedOperation",
        status=403,
        function="detach-terminate",
        where=untags_the_claim,
        times=None,
    )
    end = recycle(world, node, "stop").finishes()
    world.aws.client("ec2").start_instances(InstanceIds=[node.instance_id])
    sizes = node.group.sizes
    world.run(end.at + 400)

    assert world.sweep().finishes().output == {"nodes": [{"restored": node.instance_id}]}
    assert world.instance(node.instance_id).state == "running"
    assert node.group.states[node.instance_id] == "Standby" and node.group.sizes == sizes
    assert tags_of(world, node) == {"recycle-eks:stopped"}


def test_a_refusal_after_the_detachment_reports_that_the_instance_is_in_no_group(world, node):
    world.faults.refuse(
        "ec2:CreateTags",
        code="UnauthorizedOperation",
        status=403,
        where=lambda asked: "recycle-eks:detached" in str(asked),
        times=None,
    )

    end = recycle(world, node, "detach").finishes()

    assert end.error == "ServiceRefused"
    assert node.instance_id not in node.group.states and "is in no group" in end.cause
    assert tags_of(world, node) == {"recycle-eks:gave-up", "recycle-eks:standby"}


def were_detached_and_are_attached_again(world, *nodes):
    """An operator attaches them, and removes the taint and the cordon. The earlier tag stays."""
    executions = [recycle(world, node, "detach") for node in nodes]
    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * len(nodes)
    for node in nodes:
        world.aws.client("autoscaling").attach_instances(AutoScalingGroupName=node.group.name, InstanceIds=[node.instance_id])
        node.kubernetes.remove_taints("recycle-eks/detached")
        node.kubernetes.label(**{EXCLUDE: None})
        node.kubernetes.uncordon()
    world.wait(600)
    for node in nodes:
        assert node.group.states[node.instance_id] == "InService" and tags_of(world, node) == {"recycle-eks:detached"}


def test_a_detached_instance_that_is_attached_again_is_recycled_again(world):
    rows = ("terminate", "stop", "detach")
    nodes = {dispose: world.group(f"to-{dispose}", size=3, minimum=1, maximum=5).nodes[0] for dispose in rows}
    were_detached_and_are_attached_again(world, *nodes.values())
    pods = {dispose: node.job(f"train-{dispose}", labels={"app": "train"}) for dispose, node in nodes.items()}
    until = world.clock.elapsed() + 600
    for pod in pods.values():
        world.at(until, pod.finishes)

    executions = {dispose: recycle(world, node, dispose) for dispose, node in nodes.items()}
    for dispose, node in nodes.items():
        end = executions[dispose].finishes()

        assert end.outcome == "recycled" and end.at >= until, (dispose, end.cause)
        assert pods[dispose].phase == "Succeeded" and node.group.sizes == (1, 4, 5), dispose
        members = world.autoscaling.group(node.group.name).instance_states
        assert not [member for member in members if member.protected_from_scale_in], dispose
    detached = nodes.pop("detach")
    assert detached.instance_id not in detached.group.states and tags_of(world, detached) == {"recycle-eks:detached"}
    assert [world.state_of(node.instance_id) for node in nodes.values()] == ["terminated", "stopped"]


def test_an_earlier_result_on_the_instance_is_no_result_of_the_claim(world):
    lost, stopped = [world.group(name, size=3, minimum=1, maximum=5).nodes[0] for name in ("lost", "stopped")]
    were_detached_and_are_attached_again(world, lost, stopped)
    executions = [recycle(world, node, "detach") for node in (lost, stopped)]
    for execution in executions:
        world.clock.run(until=lambda each=execution: bool(each.entered("WaitForDisposal")), limit=world.seconds("1d"))
    lost.record("recycle-eks/claim", None)
    world.aws.client("ec2").delete_tags(Resources=[lost.instance_id], Tags=[{"Key": "recycle-eks:claim"}])
    executions[1].stop()

    assert executions[0].finishes().error == "ClaimLost"
    assert lost.instance_id in lost.group.states

    # The sweep restores the node of a stopped execution despite it.
    world.let_sweep()
    world.wait(7200)
    assert stopped.group.states[stopped.instance_id] == "InService"
    assert not stopped.unschedulable and EXCLUDE not in stopped.labels
    assert tags_of(world, stopped) == {"recycle-eks:detached"}


def test_a_one_time_spot_instance_can_be_detached_but_not_stopped(world, node):
    node.becomes_spot()
    assert "one-time Spot" in recycle(world, node, "stop").finishes().cause
    assert recycle(world, node, "detach").finishes().outcome == "recycled"


# Crashes


def build(world):
    workers = world.group("workers", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    world.at("4m", node.job("train", labels={"app": "train"}).finishes)
    return workers, node


@pytest.fixture(scope="module", params=["stop", "detach"])
def disposal_calls(request, deployed_world):
    """How it ends, and every (action, n-th time) with which `detach-terminate` changes something in a run without faults."""
    world = deployed_world
    world.reset()
    _, node = build(world)
    assert recycle(world, node, request.param).finishes().outcome == "recycled"
    calls = [(action, nth) for function, action, nth in world.write_points() if function == "recycle-eks-detach-terminate"]
    assert len(calls) > 6
    return request.param, calls


def test_a_disposal_killed_around_any_mutating_call_ends_the_same(world, disposal_calls):
    dispose, calls = disposal_calls
    last = {"stop": "ec2:StopInstances", "detach": "autoscaling:DetachInstances"}[dispose]
    endings = []
    for ((moment, action, nth),) in kills(calls, at=[("after", last)]):
        world.reset()
        workers, node = build(world)
        world.faults.kill(moment, action, function="detach-terminate", nth=nth)
        end = recycle(world, node, dispose).finishes()
        endings.append(
            (
                (moment, action, nth),
                end.outcome,
                workers.sizes,
                sorted(state for instance, state in workers.states.items() if instance != node.instance_id),
                workers.states.get(node.instance_id),
                world.instance(node.instance_id).state,
                tags_of(world, node),
                node.exists,
                world.leftovers(workers),
                world.faults.not_struck(),
            )
        )
    if dispose == "stop":
        own = ("Standby", "stopped", {"recycle-eks:stopped"}, True)
    else:
        own = (None, "running", {"recycle-eks:detached"}, True)
    same = ("recycled", (2, 2, 4), ["InService", "InService"], *own, [], [])
    assert [ending for ending in endings if ending[1:] != same] == []
