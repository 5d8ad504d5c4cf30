"""A node is lost while it drains: each way of losing one is a case of its own. It is disposed of by its group, nothing is put
back onto it, and the pods that were lost are named."""

import json

import pytest

from world.base.faults import sample

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

#: The cause of the loss, and the words of the failure.
CASES = {
    "silent": (lambda node: node.falls_silent(), "it has not been Ready since"),
    "terminated in the console": (lambda node: node.is_terminated_in_the_console(), "its instance is terminated"),
    "stopped in the console": (lambda node: node.is_stopped_in_the_console(), "it has not been Ready since"),
    "object deleted": (lambda node: node.object_is_deleted(), "its Node object is gone"),
}


#: Inputs that would have led to another end.
WAYS = [{"replacement": "after"}, {"dispose": "stop"}, {"dispose": "detach"}]


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


def jobs(node, count=1):
    return [node.job(f"train-{n}", labels={"app": "train"}) for n in range(count)]


def recycle(world, node, **fields):
    return world.recycle(node, label_selector="app=train", **fields)


def is_clean(world, node):
    """The instance is disposed of, its place in the group is as it was, and no name of recycle-eks is left."""
    group = node.group
    assert world.instance(node.instance_id).state == "terminated"
    assert not world.calls("autoscaling:ExitStandby") and node.instance_id not in group.states
    assert sorted(group.states.values()) == ["InService"] * group.sizes[1]
    assert world.leftovers(group) == []


@pytest.mark.reading("terminate_from_standby_launches_extra", "standby_counts_for_zone_balance")
@pytest.mark.parametrize("case", CASES)
def test_a_lost_node_is_disposed_of_and_its_pods_are_named(world, node, case, reading):
    happens, says = CASES[case]
    jobs(node, count=7)
    lost_at = "10m" if reading or case != "silent" else "7h"
    world.at(lost_at, lambda: happens(node))
    sizes = node.group.sizes

    end = recycle(world, node).finishes()
    world.run(end.at + 1800)

    assert (end.status, end.error) == ("FAILED", "NodeLost"), (end.error, end.cause)
    assert end.at < world.seconds(lost_at) + 3600
    assert case != "silent" or end.at > world.seconds(lost_at) + 1800, "for half an hour it is waited for"
    assert says in end.cause and f"node {node.name} ({node.instance_id}) is lost" in end.cause
    assert "lost with it: 7 pods (default/train-0" in end.cause and ", …), last seen at 2027-01-01T0" in end.cause
    assert "restored" not in end.cause
    assert node.group.sizes == sizes
    is_clean(world, node)
    (event,) = [event for event in world.kubernetes.events(node.name) if event["reason"] == "RecycleNodeLost"]
    assert event["type"] == "Warning" and "lost with it: 7 pods (default/train-0" in event["message"]
    assert any("lost with it: 7 pods (default/train-0" in text for text in world.notifications)
    world.sweep().finishes()
    is_clean(world, node)


@pytest.mark.parametrize(("case", "fields"), sample([(case, fields) for fields in WAYS for case in CASES], 4))
def test_a_lost_node_ends_the_same_with_every_input(world, node, case, fields):
    happens, says = CASES[case]
    jobs(node)
    world.at("10m", lambda: happens(node))

    end = recycle(world, node, **fields).finishes()
    world.run(end.at + 1800)

    assert (end.status, end.error) == ("FAILED", "NodeLost"), (end.error, end.cause)
    assert "is lost" in end.cause
    is_clean(world, node)


def test_the_pods_of_a_lost_node_start_elsewhere(world, node):
    web = node.deployment("web", annotations={"recycle-eks/drain": "wait"})
    world.at("10m", node.is_terminated_in_the_console)

    end = recycle(world, node).finishes()
    world.run(end.at + 600)

    assert end.error == "NodeLost" and "default/web-" in end.cause
    (pod,) = web.running_pods()
    assert pod.node_name != node.name


@pytest.mark.parametrize(("silent_for", "tolerates"), [("1m", 300), ("4m30s", 300), ("29m", 7200), ("50m", 7200), ("90m", None)])
def test_a_node_that_is_ready_again_while_its_pods_tolerate_it_goes_on(world, node, silent_for, tolerates):
    tolerations = [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": tolerates}]
    tolerations = [{key: value for key, value in each.items() if value is not None} for each in tolerations]
    job = node.job("train", labels={"app": "train"}, tolerations=tolerations)
    world.at("10m", node.falls_silent)
    again = world.seconds("10m") + world.seconds(silent_for)
    world.at(again, node.reports_again)
    world.at(again + 600, job.finishes)

    execution = recycle(world, node)
    end = execution.finishes()

    assert end.outcome == "recycled" and "lost" not in {answer["verdict"] for answer in execution.answers("CheckPods")}


def test_a_node_that_is_well_again_when_ec2_is_asked_goes_on_draining(world, node):
    jobs(node)
    world.at("10m", node.falls_silent)
    execution = recycle(world, node, load_balancer_grace=600)
    world.clock.run(until=lambda: bool(execution.entered("WaitForDisposal")), limit=world.seconds("1d"))
    node.reports_again()

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert any("has recovered" in answer["reason"] for answer in execution.answers("DetachTerminate"))


def test_when_all_nodes_stop_reporting_none_is_lost(world, node):
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
    world.at("75m", job.finishes)

    execution = recycle(world, node)
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert any("no node of the cluster is Ready" in answer["reason"] for answer in execution.answers("CheckPods"))


def test_a_stopped_machine_that_is_started_again_takes_pods_as_before(world, node):
    database = node.stateful_set("db", annotations={"recycle-eks/drain": "wait"})
    node.kubernetes.set_volumes("kubernetes.io/csi/ebs.csi.aws.com^vol-1")
    world.at("10m", node.is_stopped_in_the_console)
    execution = recycle(world, node, load_balancer_grace=600)
    world.clock.run(until=lambda: bool(execution.entered("WaitForDisposal")), limit=world.seconds("1d"))
    assert not node.has_taint(OUT_OF_SERVICE)
    world.aws.client("ec2").start_instances(InstanceIds=[node.instance_id])
    node.reports_again()
    world.at("50m", database.deleted)

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert not [call for call in world.calls("kubernetes:PATCH nodes") if OUT_OF_SERVICE in json.dumps(call.parameters)]


def test_an_api_server_that_is_away_is_no_lost_node(world, node):
    (job,) = jobs(node)

    def reachable(yes: bool) -> None:
        world.kubernetes.proxy.is_reachable = yes

    world.at("10m", lambda: reachable(False))
    world.at("70m", lambda: reachable(True))
    world.at("80m", job.finishes)

    assert recycle(world, node).finishes().outcome == "recycled"


def test_a_node_that_was_drained_before_it_fell_silent_is_recycled(world, node):
    (job,) = jobs(node)
    world.at("10m", job.finishes)
    world.at("10m", node.falls_silent)

    assert recycle(world, node).finishes().outcome == "recycled"


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


@pytest.mark.parametrize("case", CASES)
def test_a_node_that_is_lost_while_its_replacement_is_awaited_is_disposed_of(world, node, case):
    happens, says = CASES[case]
    jobs(node)
    node.group.next_launch(takes="12m")
    world.at("3m", lambda: happens(node))

    end = recycle(world, node).finishes()
    world.run(end.at + 1800)

    assert end.error == "NodeLost", (end.error, end.cause)
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


@pytest.mark.parametrize("case", ["silent", "object deleted"])
def test_a_sweep_restores_nothing_on_a_lost_node(world, node, case):
    happens, _ = CASES[case]
    jobs(node)
    execution = recycle(world, node)
    world.run("20m")
    happens(node)
    execution.stop()
    world.run("50m")
    world.sweep().finishes()

    assert not world.calls("autoscaling:ExitStandby")
    assert node.group.states[node.instance_id] == "Standby"
    assert any("terminate-instance-in-auto-scaling-group" in text for text in world.notifications)


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


def build(world, case):
    workers = world.group("workers", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    jobs(node, count=2)
    node.kubernetes.set_volumes("kubernetes.io/csi/ebs.csi.aws.com^vol-1")
    world.at("8m", lambda: CASES[case][0](node))
    return workers, node


@pytest.fixture(scope="module", params=CASES)
def loss_calls(request, deployed_world):
    """Which case, and every (function, action, n-th time) with which a lost node is ended in a run without faults."""
    world = deployed_world
    world.reset()
    _, node = build(world, request.param)
    assert recycle(world, node).finishes().error == "NodeLost"
    ends = ("recycle-eks-detach-terminate", "recycle-eks-restore-node")
    calls = [point for point in world.write_points() if point[0] in ends]
    assert ("recycle-eks-detach-terminate", "autoscaling:TerminateInstanceInAutoScalingGroup", 1) in calls
    return request.param, calls


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_end_of_a_lost_node_killed_around_any_mutating_call_is_the_same(world, loss_calls, moment):
    case, calls = loss_calls
    endings = []
    first = 2 * list(CASES).index(case) + (moment == "after")
    for function, action, nth in sample(calls, 2, first):
        world.reset()
        workers, node = build(world, case)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = recycle(world, node).finishes()
        world.run(end.at + 1800)
        is_clean(world, node)
        endings.append(
            ((function, action, nth), end.error, "lost with it: 2 pods" in end.cause, workers.sizes, world.faults.not_struck())
        )
    assert [ending for ending in endings if ending[1:] != ("NodeLost", True, (2, 2, 4), [])] == []
