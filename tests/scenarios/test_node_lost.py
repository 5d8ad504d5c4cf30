"""A node is lost while it drains: each way of losing one is a case, in a group of its own. The group disposes of it, nothing
returns to it, and the pods that were lost are named."""

import json

import pytest

from world.base.faults import kills

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

#: The cause of the loss, and the words of the failure.
CASES = {
    "silent": (lambda node: node.falls_silent(), "it has not been Ready since"),
    "terminated": (lambda node: node.is_terminated_in_the_console(), "its instance is terminated"),
    "stopped": (lambda node: node.is_stopped_in_the_console(), "it has not been Ready since"),
    "deleted": (lambda node: node.object_is_deleted(), "its Node object is gone"),
}


def nodes_of(world, names, **sizes):
    """A node for each name, in a group of this name."""
    return {name: world.group(name, **{"size": 2, "minimum": 1, "maximum": 4, **sizes}).nodes[0] for name in names}


def jobs(node, count=1):
    """The pods of Jobs, in a namespace of the name of the node's group."""
    return [node.job(f"train-{n}", namespace=node.group.name, labels={"app": "train"}) for n in range(count)]


def recycle(world, node, **fields):
    return world.recycle(node, label_selector="app=train", **fields)


def is_clean(world, node):
    """The instance is disposed of, its place in the group is as it was, and no name of recycle-eks is left."""
    group = node.group
    assert world.state_of(node.instance_id) == "terminated"
    assert not world.calls("autoscaling:ExitStandby") and node.instance_id not in group.states
    assert sorted(group.states.values()) == ["InService"] * group.sizes[1]
    assert world.leftovers(group) == []


@pytest.mark.reading("terminate_from_standby_launches_extra", "standby_counts_for_zone_balance")
def test_a_lost_node_is_disposed_of_and_its_pods_are_named(world, reading):
    nodes = nodes_of(world, CASES)
    lost_at = {case: world.seconds("10m" if reading or case != "silent" else "1h") for case in CASES}
    for case, node in nodes.items():
        # The report names five pods at most.
        jobs(node, count=7 if case == "silent" else 1)
        world.at(lost_at[case], lambda case=case, node=node: CASES[case][0](node))
    sizes = {case: node.group.sizes for case, node in nodes.items()}

    executions = {case: recycle(world, node) for case, node in nodes.items()}
    ends = {case: execution.finishes() for case, execution in executions.items()}
    world.wait(1800)

    for case, node in nodes.items():
        end, lost = ends[case], f"lost with it: {'7 pods' if case == 'silent' else '1 pod'} ({case}/train-0"
        assert (end.status, end.error) == ("FAILED", "NodeLost"), (case, end.error, end.cause)
        assert end.at < lost_at[case] + 3600, case
        assert case != "silent" or end.at > lost_at[case] + 1800, "for half an hour it is waited for"
        assert CASES[case][1] in end.cause and f"node {node.name} ({node.instance_id}) is lost" in end.cause, (case, end.cause)
        last = "), last seen at 2027-01-01T0"
        assert lost in end.cause and (f", …{last}" if case == "silent" else last) in end.cause, (case, end.cause)
        assert not [word for word in ("restored", "resumes", "exit-standby") if word in end.cause], (case, end.cause)
        assert node.group.sizes == sizes[case], case
        is_clean(world, node)
        (event,) = [event for event in world.kubernetes.events(node.name) if event["reason"] == "RecycleNodeLost"]
        assert event["type"] == "Warning" and lost in event["message"], case
        assert any(lost in text for text in world.notifications), case
    world.sweep().finishes()
    for node in nodes.values():
        is_clean(world, node)


def test_a_lost_node_ends_the_same_with_every_input_and_its_pods_start_elsewhere(world):
    # The loss, and an input that would have led to another end.
    rows = {
        "after": ("deleted", {"replacement": "after"}),
        "stop": ("stopped", {"dispose": "stop"}),
        "detach": ("silent", {"dispose": "detach"}),
        "web": ("terminated", {}),
    }
    nodes = nodes_of(world, rows)
    web = nodes["web"].deployment("web", annotations={"recycle-eks/drain": "wait"})
    for name, (case, _) in rows.items():
        if name != "web":
            jobs(nodes[name])
        world.at("10m", lambda case=case, node=nodes[name]: CASES[case][0](node))

    executions = {name: recycle(world, nodes[name], **fields) for name, (_, fields) in rows.items()}
    ends = {name: execution.finishes() for name, execution in executions.items()}
    world.wait(1800)

    for name, end in ends.items():
        assert (end.status, end.error) == ("FAILED", "NodeLost"), (rows[name], end.error, end.cause)
        assert "is lost" in end.cause, (rows[name], end.cause)
        is_clean(world, nodes[name])
    assert "default/web-" in ends["web"].cause
    (pod,) = web.running_pods()
    assert pod.node_name != nodes["web"].name


def test_a_node_that_is_ready_again_while_its_pods_tolerate_it_goes_on(world):
    # How long the node is silent, and the toleration of its pod in seconds. All bounds: `crates/recycle/src/drain/lost.rs`.
    rows = {"short": ("4m30s", 300), "tolerated-for-ever": ("50m", None)}
    nodes = nodes_of(world, rows)
    for name, (silent_for, tolerates) in rows.items():
        toleration = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
        toleration |= {} if tolerates is None else {"tolerationSeconds": tolerates}
        job = nodes[name].job(f"train-{name}", labels={"app": "train"}, tolerations=[toleration])
        world.at("10m", nodes[name].falls_silent)
        again = world.seconds("10m") + world.seconds(silent_for)
        world.at(again, nodes[name].reports_again)
        world.at(again + 600, job.finishes)

    executions = {name: recycle(world, node) for name, node in nodes.items()}

    for name, execution in executions.items():
        end = execution.finishes()
        assert end.outcome == "recycled", (rows[name], end.cause)
        assert "lost" not in {answer["verdict"] for answer in execution.answers("CheckPods")}, rows[name]


def test_a_node_that_is_well_again_when_ec2_is_asked_goes_on_draining(world):
    """The nodes are a silent one that reports again, a stopped one that is started again, and one that was drained before."""
    silent, stopped, drained = nodes_of(world, ["silent", "stopped", "drained"]).values()
    jobs(silent)
    database = stopped.stateful_set("db", annotations={"recycle-eks/drain": "wait"})
    stopped.kubernetes.set_volumes("kubernetes.io/csi/ebs.csi.aws.com^vol-1")
    (job,) = jobs(drained)
    world.at("10m", job.finishes)
    for node in (silent, drained):
        world.at("10m", node.falls_silent)
    world.at("10m", stopped.is_stopped_in_the_console)
    of_silent, of_stopped = (recycle(world, node, load_balancer_grace=600) for node in (silent, stopped))
    of_drained = recycle(world, drained)

    world.clock.run(until=lambda: bool(of_stopped.entered("WaitForDisposal")), limit=world.seconds("1d"))
    assert not stopped.has_taint(OUT_OF_SERVICE)
    world.aws.client("ec2").start_instances(InstanceIds=[stopped.instance_id])
    stopped.reports_again()
    world.at("50m", database.deleted)
    world.clock.run(until=lambda: bool(of_silent.entered("WaitForDisposal")), limit=world.seconds("1d"))
    silent.reports_again()

    for execution in (of_silent, of_stopped, of_drained):
        end = execution.finishes()
        assert end.outcome == "recycled", end.cause
    assert any("has recovered" in answer["reason"] for answer in of_silent.answers("DetachTerminate"))
    # The machine that was started again takes pods as before.
    assert not [call for call in world.calls("kubernetes:PATCH nodes") if OUT_OF_SERVICE in json.dumps(call.parameters)]


def test_when_all_nodes_stop_reporting_none_is_lost(world, node):
    """Kubernetes takes its NoExecute taints back while no node is Ready. If it asked the pod to leave before that, the pod ends
    when its node reports again, or else when its Job is done."""
    (job,) = jobs(node)
    nodes = []

    def all_fall_silent() -> None:
        nodes.extend(each for each in node.group.nodes if each.exists)
        for each in nodes:
            each.falls_silent()

    def all_report() -> None:
        for each in nodes:
            each.reports_again()

    world.at("10m", all_fall_silent)
    world.at("70m", all_report)
    world.at("80m", job.finishes)

    execution = recycle(world, node)
    end = execution.finishes()

    assert end.outcome == "recycled" and end.at >= world.seconds("70m"), end.cause
    assert any("no node of the cluster is Ready" in answer["reason"] for answer in execution.answers("CheckPods"))


def test_only_volumes_of_a_machine_that_is_off_are_detached(world, node):
    seen = []
    database = node.stateful_set("db", annotations={"recycle-eks/drain": "wait"})
    node.kubernetes.set_volumes("kubernetes.io/csi/ebs.csi.aws.com^vol-1")

    def watch() -> None:
        if node.exists and node.has_taint(OUT_OF_SERVICE):
            seen.append(world.instance(node.instance_id).state)
        elif node.exists:
            world.clock.after(0.5, watch)

    world.at("10m", node.is_stopped_in_the_console)
    world.at("10m", watch)

    end = recycle(world, node).finishes()
    world.run(end.at + 600)

    assert end.error == "NodeLost" and seen == ["stopped"]
    taints = [
        call for call in world.calls("kubernetes:PATCH nodes", succeeded=True) if call.function == "recycle-eks-detach-terminate"
    ]
    assert taints
    (pod,) = database.running_pods()
    assert pod.node_name != node.name
    is_clean(world, node)


def test_a_silent_machine_that_runs_keeps_its_volumes_until_it_is_off(world, node):
    jobs(node)
    node.kubernetes.set_volumes("kubernetes.io/csi/ebs.csi.aws.com^vol-1")
    world.has_cloud_controller = False
    marked = []

    def watch() -> None:
        if node.has_taint(OUT_OF_SERVICE):
            marked.append(world.instance(node.instance_id).state)
        else:
            world.clock.after(5, watch)

    world.at("10m", node.falls_silent)
    world.at("10m", watch)

    end = recycle(world, node).finishes()

    assert end.error == "NodeLost"
    assert marked in ([], ["terminated"])


def test_a_member_that_left_its_group_is_lost_too(world, node):
    jobs(node)

    def detach() -> None:
        world.aws.client("autoscaling").detach_instances(
            AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=False
        )
        node.object_is_deleted()

    world.at("10m", detach)
    end = recycle(world, node).finishes()

    assert (end.status, end.error) == ("FAILED", "NodeLost"), end.cause
    assert world.instance(node.instance_id).state == "running"
    assert "recycle-eks:claim" not in world.instance(node.instance_id).tags
    assert f"aws ec2 delete-tags --resources {node.instance_id}" in end.cause


def test_a_node_that_is_lost_while_its_replacement_is_awaited_is_disposed_of(world):
    nodes = nodes_of(world, [case for case in CASES if case != "stopped"])
    for case, node in nodes.items():
        jobs(node)
        node.group.next_launch(takes="12m")
        world.at("3m", lambda case=case, node=node: CASES[case][0](node))

    executions = {case: recycle(world, node) for case, node in nodes.items()}
    ends = {case: execution.finishes() for case, execution in executions.items()}
    world.wait(1800)

    for case, node in nodes.items():
        assert ends[case].error == "NodeLost", (case, ends[case].error, ends[case].cause)
        is_clean(world, node)


def test_a_lost_instance_that_cannot_be_ended_is_reported_with_commands_and_not_restored(world, node):
    jobs(node)
    world.faults.refuse("autoscaling:TerminateInstanceInAutoScalingGroup", code="AccessDenied", status=403, times=None)
    world.at("10m", node.object_is_deleted)

    end = recycle(world, node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert "exit-standby" not in end.cause and not world.calls("autoscaling:ExitStandby")
    assert f"terminate-instance-in-auto-scaling-group --instance-id {node.instance_id}" in end.cause
    assert "To end it:" in end.cause


def test_a_sweep_restores_nothing_on_a_lost_node(world):
    nodes = nodes_of(world, ["silent", "deleted"])
    executions = []
    for node in nodes.values():
        jobs(node)
        executions.append(recycle(world, node))
    world.run("20m")
    for case, node in nodes.items():
        CASES[case][0](node)
    for execution in executions:
        execution.stop()
    world.run("50m")
    world.sweep().finishes()

    assert not world.calls("autoscaling:ExitStandby")
    for case, node in nodes.items():
        assert node.group.states[node.instance_id] == "Standby", case
        command = f"terminate-instance-in-auto-scaling-group --instance-id {node.instance_id}"
        assert any(command in text for text in world.notifications), case


def test_a_sweep_removes_a_dead_member_in_standby_from_its_group(world, node):
    jobs(node)
    world.has_cloud_controller = False
    execution = recycle(world, node)
    world.run("20m")
    execution.stop()
    node.is_terminated_in_the_console()
    world.run("50m")
    world.sweep().finishes()
    world.run("2h")

    assert node.instance_id not in node.group.states
    assert sorted(node.group.states.values()) == ["InService"] * 2


# Crashes


def build(world):
    nodes = nodes_of(world, CASES, minimum=2)
    for case, node in nodes.items():
        jobs(node, count=2)
        node.kubernetes.set_volumes(f"kubernetes.io/csi/ebs.csi.aws.com^vol-{case}")
        world.at("8m", lambda case=case, node=node: CASES[case][0](node))
    return nodes


def end_points(world, node):
    """Every (function, action, n-th time) with which the functions at the end changed something of this lost node."""
    at_the_end = ("recycle-eks-detach-terminate", "recycle-eks-restore-node")
    return [point for point in world.write_points(node) if point[0] in at_the_end]


@pytest.mark.long
def test_the_end_of_a_lost_node_killed_around_any_mutating_call_is_the_same(world):
    nodes = build(world)
    for execution in [recycle(world, node) for node in nodes.values()]:
        assert execution.finishes().error == "NodeLost"
    points = {case: end_points(world, node) for case, node in nodes.items()}
    for case, calls in points.items():
        assert ("recycle-eks-detach-terminate", "autoscaling:TerminateInstanceInAutoScalingGroup", 1) in calls, case

    # In a further run, each execution is struck once, before or after a call about its own node.
    gone, lease = "autoscaling:TerminateInstanceInAutoScalingGroup", "kubernetes:DELETE leases"
    for struck in kills(*points.values(), at=[("before", gone), ("before", lease), ("after", gone), ("after", lease)]):
        world.reset()
        nodes, endings = build(world), {}
        for (case, node), (moment, function, action, nth) in zip(nodes.items(), struck, strict=True):
            world.faults.kill(moment, action, function=function, nth=nth, where=node.is_named_in)
            endings[case] = [(moment, function, action, nth)]
        for case, execution in {case: recycle(world, node) for case, node in nodes.items()}.items():
            end = execution.finishes()
            endings[case] += [end.error, "lost with it: 2 pods" in end.cause, nodes[case].group.sizes]
        world.wait(1800)
        for node in nodes.values():
            is_clean(world, node)
        assert {case: ending for case, ending in endings.items() if ending[1:] != ["NodeLost", True, (2, 2, 4)]} == {}
        assert world.faults.not_struck() == []
