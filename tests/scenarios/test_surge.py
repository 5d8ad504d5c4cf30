"""The `surge` path: no Standby. The group gets one member more, the node is drained in service, and its place goes with it."""

import json

import pytest

from world.aws.identity import REGION
from world.base.faults import kills

SIZES = {"m<d<M": (1, 2, 4), "m<d=M-1": (1, 2, 3), "m=d<M": (2, 2, 4), "alone": (1, 1, 2)}


def group_of(world, sizes: str, name: str = "workers"):
    minimum, size, maximum = SIZES[sizes]
    return world.group(name, size=size, minimum=minimum, maximum=maximum)


def with_job(world, node, until: str = "10m"):
    job = node.job(f"train-{node.group.name}", labels={"app": "train"})
    world.at(until, job.finishes)
    return job


def surge(world, node, **fields):
    return world.recycle(node, label_selector="app=train", replacement="surge", **fields)


def protected(world, node) -> bool:
    members = world.aws.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[node.instance_id])
    return members["AutoScalingInstances"][0]["ProtectedFromScaleIn"]


def in_service(workers) -> int:
    return list(workers.states.values()).count("InService")


def test_the_replacement_comes_first_and_the_group_has_its_size_again(world):
    groups = {sizes: group_of(world, sizes, f"workers-{n}") for n, sizes in enumerate(SIZES)}
    before = {sizes: workers.sizes for sizes, workers in groups.items()}
    nodes = {sizes: workers.nodes[0] for sizes, workers in groups.items()}
    others = [other.bare_pod(f"neighbour-{w.name}") for w in groups.values() for other in w.nodes[1:]]
    jobs = {sizes: with_job(world, node) for sizes, node in nodes.items()}

    executions = {sizes: surge(world, node) for sizes, node in nodes.items()}
    world.run("8m")
    for sizes, workers in groups.items():
        minimum, desired, maximum = before[sizes]
        assert workers.sizes == (minimum, desired + 1, maximum), sizes
        assert set(workers.states.values()) == {"InService"}, sizes
        assert protected(world, nodes[sizes]), sizes
    ends = {sizes: execution.finishes() for sizes, execution in executions.items()}

    assert not world.calls("autoscaling:EnterStandby")
    assert all(pod.phase == "Running" for pod in others)
    for sizes, workers in groups.items():
        node, end = nodes[sizes], ends[sizes]
        assert end.outcome == "recycled", (sizes, end.cause)
        assert workers.sizes == before[sizes], sizes
        assert sorted(workers.states.values()) == ["InService"] * before[sizes][1], sizes
        assert world.instance(node.instance_id).state == "terminated" and not node.exists, sizes
        assert not jobs[sizes].exists or jobs[sizes].phase == "Succeeded", sizes
        newest = workers.newest
        assert newest.annotations["recycle-eks/replacement-for"] == node.instance_id, sizes
        assert executions[sizes].path.index("TaintNode") > executions[sizes].path.index("StandbyNode"), sizes
        assert newest.ready_at < world.seconds("8m") and world.leftovers(workers) == [], sizes
        assert not protected(world, newest), sizes


def test_the_plan_and_the_refusals_of_pre_flight(world):
    node = group_of(world, "m<d<M").nodes[0]
    end = world.recycle(node, replacement="surge", dry_run=True).finishes()
    assert end.outcome == "planned" and world.writes() == []
    plan = end.output["plan"]
    assert plan["steps"][0] == (
        f"protect {node.instance_id} from scale-in and raise the desired capacity of group workers (min 1, desired 2, max 4, "
        "2 members) to 3"
    )
    assert plan["steps"][-1] == f"terminate {node.instance_id} with decrement: group workers has its desired capacity of 2 again"

    full = world.group("full", size=2, minimum=1, maximum=2).nodes[0]
    managed = world.group("managed", size=1, minimum=1, maximum=1, node_group="blue").nodes[0]
    zones = world.group("zones", size=2, minimum=1, maximum=4, zones=(f"{REGION}a", f"{REGION}b")).nodes[0]
    for node, start, command in (
        (full, "no_room: ", "aws autoscaling update-auto-scaling-group --auto-scaling-group-name full --max-size 3"),
        (
            managed,
            "no_room: ",
            "aws eks update-nodegroup-config --cluster-name world --nodegroup-name blue --scaling-config maxSize=2",
        ),
        (zones, "zone_rebalance: ", "aws autoscaling suspend-processes --auto-scaling-group-name zones"),
    ):
        before = node.group.sizes
        end = surge(world, node).finishes()
        assert end.error == "PreflightRefused", end
        assert end.cause.startswith(start) and command in end.cause, end.cause
        assert node.group.sizes == before and world.leftovers(node.group) == []


def test_a_managed_node_group_and_one_with_capacity_rebalancing_are_recycled_with_surge(world):
    """EKS decides what belongs to a node group: neither the label, which a node may write, nor the tag does so alone."""
    managed = world.group("managed", size=2, minimum=1, maximum=4, node_group="blue")
    rebalancing = world.group("rebalancing", size=2, minimum=1, maximum=4)
    world.autoscaling.group("rebalancing").capacity_rebalance = True
    pretending = world.group("pretending", size=2, minimum=1, maximum=4, labels={"eks.amazonaws.com/nodegroup": "blue"})
    hiding = managed.nodes[1]
    world.kubernetes.kubelet(hiding.name).patch(
        f"/api/v1/nodes/{hiding.name}", {"metadata": {"labels": {"eks.amazonaws.com/nodegroup": None}}}
    )

    for fields in ({"replacement": "before"}, {"dispose": "stop"}):
        end = world.recycle(hiding, **fields).finishes()
        assert end.cause.startswith("standby_in_managed_group: "), end
        assert "belongs to the EKS managed node group blue" in end.cause, end
    nodes = {group: group.nodes[0] for group in (managed, rebalancing, pretending)}
    executions = {group: world.recycle(node) for group, node in nodes.items()}
    assert [execution.finishes().outcome for execution in executions.values()] == ["recycled"] * 3
    assert {call.parameters["AutoScalingGroupName"] for call in world.calls("autoscaling:EnterStandby")} == {"pretending"}
    assert [group.sizes for group in nodes] == [(1, 2, 4)] * 3

    end = world.recycle(hiding, replacement="before", override=["standby_in_managed_group"]).finishes()
    assert end.outcome == "recycled" and managed.sizes == (1, 2, 4), end


def test_a_drain_that_times_out_is_undone_by_what_became_of_the_replacement(world):
    """Without pods it is terminated. With pods it stays, and so does the size."""
    empty, used = (group_of(world, "m<d<M", name) for name in ("empty", "used"))
    nodes = [workers.nodes[0] for workers in (empty, used)]
    for node in nodes:
        node.job(f"train-{node.group.name}", labels={"app": "train"})
    executions = [surge(world, node, drain_timeout=1200) for node in nodes]
    world.run("10m")
    used.newest.bare_pod("busy")

    ends = [execution.finishes() for execution in executions]
    # The empty replacement has gone.
    world.wait("10m")

    assert [end.error for end in ends] == ["DrainTimedOut"] * 2
    assert empty.sizes == (1, 2, 4) and used.sizes == (1, 3, 4)
    assert "group used is one larger than before, desired capacity 3: its replacement has pods" in ends[1].cause
    for node in nodes:
        assert node.group.states[node.instance_id] == "InService"
        assert not node.unschedulable and not protected(world, node)
        assert world.leftovers(node.group) == []
    assert (in_service(empty), in_service(used)) == (2, 3)


def test_a_replacement_that_does_not_come_leaves_the_group_as_it_was(world):
    workers = group_of(world, "m<d<M")
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2)
    workers.next_launch(fails="Insufficient capacity")

    end = surge(world, node, replacement_timeout=300).finishes()

    assert end.error == "ReplacementTimedOut" and "no usable replacement" in end.cause, end.cause
    assert workers.sizes == (1, 2, 4) and sorted(workers.states.values()) == ["InService"] * 2
    assert len(web.running_pods()) == 2 and not protected(world, node)
    assert world.leftovers(workers) == []


def surge_all(world, nodes, *ends: str):
    """An execution for each of the nodes, whose Jobs end at these times."""
    for node, end in zip(nodes, ends, strict=True):
        world.at(end, node.job(f"train-{node.instance_id}", labels={"app": "train"}).finishes)
    return [surge(world, node) for node in nodes]


def test_nodes_of_a_group_are_raised_one_after_another_and_wait_for_their_pods_side_by_side(world):
    """The first is gone last. One is restored meanwhile. Each takes its own place with it."""
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    nodes = workers.nodes[:3]
    nodes[2].job("endless", labels={"app": "train"})
    executions = [*surge_all(world, nodes[:2], "80m", "35m"), surge(world, nodes[2], drain_timeout=2700)]

    world.run("25m")
    assert workers.sizes == (1, 7, 8) and in_service(workers) == 7
    assert [call.parameters["DesiredCapacity"] for call in world.calls("autoscaling:SetDesiredCapacity")] == [5, 6, 7]
    ends = [execution.finishes() for execution in executions]
    world.wait("10m")

    assert [end.outcome or end.error for end in ends] == ["recycled", "recycled", "DrainTimedOut"], ends
    assert ends[1].at < ends[2].at < ends[0].at
    assert workers.sizes == (1, 4, 8) and in_service(workers) == 4
    assert nodes[2].instance_id in workers.states and world.leftovers(workers) == []


def test_a_capacity_that_another_client_sets_between_two_raises_is_kept(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, second, third = workers.nodes
    surge_all(world, [first], "60m")
    world.run("15m")
    kept = {"InstanceIds": [second.instance_id, workers.newest.instance_id], "AutoScalingGroupName": "workers"}
    groups = world.aws.client("autoscaling")
    groups.set_instance_protection(**kept, ProtectedFromScaleIn=True)
    groups.set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=3)
    world.run("20m")
    groups.set_instance_protection(**kept, ProtectedFromScaleIn=False)
    assert third.instance_id not in workers.states and in_service(workers) == 3

    end = surge_all(world, [second], "40m")[0].finishes()
    world.run("90m")

    assert end.outcome == "recycled" and first.instance_id not in workers.states
    assert workers.sizes == (1, 3, 6) and in_service(workers) == 3


def test_no_node_is_raised_while_another_one_of_its_group_is_restored(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, second = workers.nodes[:2]
    first.job("endless", labels={"app": "train"})
    surge(world, first, drain_timeout=1200)
    world.run("20m")
    execution = None
    while execution is None:
        world.wait("5s")
        if "recycle-eks/restoring" in first.records:
            (execution,) = surge_all(world, [second], "90m")

    end = execution.finishes()

    reasons = [answer["reason"] for answer in execution.answers("ClaimNode")]
    assert any(f"{first.instance_id} of the group is being restored" in reason for reason in reasons), reasons
    assert end.outcome == "recycled" and first.instance_id in workers.states
    assert workers.sizes == (1, 3, 6) and in_service(workers) == 3 and world.leftovers(workers) == []


def test_a_group_that_is_full_of_nodes_underway_has_a_queue(world):
    workers = world.group("workers", size=3, minimum=1, maximum=4)
    nodes = workers.nodes[:2]
    executions = surge_all(world, nodes, "30m", "30m")
    world.run("25m")
    reasons = [answer["reason"] for answer in executions[1].answers("ClaimNode")]
    assert "the group has its maximum of 4 members, 1 of them for nodes that are underway" in reasons[-1], reasons

    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 2
    assert workers.sizes == (1, 3, 4) and in_service(workers) == 3
    owners = {node.annotations.get("recycle-eks/replacement-for") for node in workers.nodes}
    assert owners == {None, *(node.instance_id for node in nodes)}


def test_a_rotation_replaces_the_nodes_of_a_group_several_at_once(world):
    """Its maximum leaves room for two more, and three are started at once."""
    workers = world.group("workers", size=4, minimum=1, maximum=6)
    before = set(workers.instances)
    workers.gets_a_new_template()

    end = world.rotate(at_once=3, recycle={"replacement": "surge"}).finishes()

    (group,) = end.groups.values()
    assert (end.outcome, group["recycled"], group["failed"]) == ("rotated", 4, []), end
    assert workers.sizes == (1, 4, 6) and in_service(workers) == 4 and not before & set(workers.instances)
    assert not world.calls("autoscaling:EnterStandby")


def test_a_lost_node_takes_the_added_place_with_it(world):
    workers = group_of(world, "m<d<M")
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    execution = surge(world, node)
    world.run("10m")
    node.falls_silent()

    end = execution.finishes()

    assert end.error == "NodeLost", end
    assert workers.sizes == (1, 2, 4) and node.instance_id not in workers.states


def test_the_sweep_undoes_what_a_stopped_execution_has_begun_and_another_execution_goes_on(world):
    swept, resumed = (group_of(world, "m<d<M", name) for name in ("swept", "resumed"))
    executions = {}
    for workers in (swept, resumed):
        workers.nodes[0].job(f"train-{workers.name}", labels={"app": "train"})
        executions[workers] = surge(world, workers.nodes[0])
    world.run("10m")
    for execution in executions.values():
        execution.stop()
    node = resumed.nodes[0]
    refused = world.recycle(node, dispose="detach").finishes()
    assert refused.cause.startswith("surge_begun: "), refused
    again = world.recycle(node, label_selector="app=none", evict="all", replacement="before")
    end = again.finishes()
    assert end.outcome == "recycled", end.cause
    assert resumed.sizes == (1, 2, 4) and not world.calls("autoscaling:EnterStandby")

    world.sweep().finishes()
    world.wait("10m")
    assert swept.sizes == (1, 2, 4) and in_service(swept) == 2
    assert world.leftovers(swept) == []


def test_what_others_do_to_the_group_and_the_node_stays(world):
    workers = group_of(world, "m<d<M")
    node = workers.nodes[0]
    with_job(world, node, until="40m")
    execution = surge(world, node)
    world.run("10m")
    groups = world.aws.client("autoscaling")
    groups.set_instance_protection(InstanceIds=[node.instance_id], AutoScalingGroupName="workers", ProtectedFromScaleIn=False)
    groups.set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=4)
    world.run("30m")
    assert not protected(world, node)
    reasons = [answer["reason"] for answer in execution.answers("CheckPods")]
    assert any("its protection from scale-in was removed" in reason for reason in reasons), reasons

    assert execution.finishes().outcome == "recycled"
    assert workers.sizes == (1, 3, 4) and in_service(workers) == 3


@pytest.mark.long
def test_a_function_killed_around_any_mutating_call_ends_the_same(world):
    def begin():
        nodes = [group_of(world, "m<d<M", name).nodes[0] for name in ("one", "two")]
        for node in nodes:
            with_job(world, node, until="15m")
        return nodes

    nodes = begin()
    assert [each.finishes().outcome for each in [surge(world, node) for node in nodes]] == ["recycled"] * 2
    points = world.write_points(nodes[0])
    for call in ("SetInstanceProtection", "SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup"):
        assert any(action == f"autoscaling:{call}" for _, action, _ in points), call

    at = [("after", "autoscaling:SetDesiredCapacity"), ("after", "autoscaling:TerminateInstanceInAutoScalingGroup")]
    for struck in kills(points[::2], points[1::2], at=at):
        world.reset()
        nodes = begin()
        for node, (moment, function, action, nth) in zip(nodes, struck, strict=True):
            world.faults.kill(moment, action, function=function, nth=nth, where=node.is_named_in)
        executions = [surge(world, node) for node in nodes]
        for node, execution, kill in zip(nodes, executions, struck, strict=True):
            end = execution.finishes()
            assert (end.outcome, node.group.sizes, in_service(node.group)) == ("recycled", (1, 2, 4), 2), (kill, end)
        assert world.faults.not_struck() == [], struck


def test_another_execution_goes_on_after_the_claim_was_removed_by_hand(world):
    node = group_of(world, "m<d<M").nodes[0]
    with_job(world, node, until="40m")
    execution = surge(world, node)
    world.run("10m")
    node.record("recycle-eks/claim", None)
    assert execution.finishes().error == "ClaimLost"

    end = surge(world, node).finishes()

    assert end.outcome == "recycled" and end.at < world.seconds("2h"), end
    assert node.group.sizes == (1, 2, 4) and in_service(node.group) == 2


def test_an_execution_that_goes_on_after_a_stopped_restore_holds_up_no_other_node(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, second = workers.nodes[:2]
    first.job("endless", labels={"app": "train"})
    execution = surge(world, first, drain_timeout=1200)
    world.clock.run(until=lambda: "recycle-eks/restoring" in first.records, limit=world.seconds("1h"))
    execution.stop()

    surge(world, first)
    world.wait("5m")

    assert "recycle-eks/restoring" not in first.records
    assert surge_all(world, [second], "60m")[0].finishes().outcome == "recycled"


def test_a_place_whose_claim_was_removed_by_hand_still_counts(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    first, second, third = workers.nodes[:3]
    surge_all(world, [first, second], "60m", "60m")
    world.run("30m")
    second.record("recycle-eks/claim", None)
    surge_all(world, [third], "70m")
    world.run("45m")
    world.sweep().finishes()
    world.run("120m")
    assert workers.sizes == (1, 4, 8) and in_service(workers) == 4


def test_a_group_that_ends_the_node_itself_stays_one_larger_and_the_reason_says_so(world):
    held = world.group("held", size=2, minimum=1, maximum=4)
    node = held.nodes[0]
    with_job(world, node, until="40m")
    execution = surge(world, node)
    world.run("10m")
    held.terminate(node)

    assert execution.finishes().outcome == "superseded"
    (by_hook,) = [each for each in world.executions() if each.arn != execution.arn]
    end = by_hook.finishes()

    assert end.outcome == "recycled" and held.sizes == (1, 3, 4), end
    assert "group held is one larger than before, desired capacity 3" in end.output["reason"]


@pytest.mark.parametrize("asked_by", ["the input", "the module"])
def test_a_rotation_starts_no_more_nodes_than_its_group_has_room_for(world, asked_by):
    surging = {"replacement": "surge"}
    if asked_by == "the module":
        for function in ["claim-node", "select-nodes"]:
            world.host.variables[f"recycle-eks-{function}"] = {"INPUT_DEFAULTS": json.dumps(surging)}
        surging = {}
    workers = world.group("workers", size=3, minimum=1, maximum=4)
    workers.gets_a_new_template()
    world.at("20m", workers.nodes[0].job("train", labels={"app": "train"}).finishes)
    rotation = world.rotate(at_once=3, recycle={**surging, "label_selector": "app=train"})
    nodes = lambda: [each for each in world.executions() if "recycle-node" in each.arn]  # noqa: E731
    underway = set()
    while rotation.status == "RUNNING":
        world.wait("2m")
        underway.add(len([each for each in nodes() if each.status == "RUNNING"]))
    (group,) = rotation.finishes().groups.values()
    assert (group["recycled"], group["failed"], max(underway)) == (3, [], 1)


def test_a_scale_in_while_the_replacement_is_awaited_fails_no_node(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, _, third = workers.nodes
    with_job(world, first, until="40m")
    workers.next_launch(takes="8m")
    execution = surge(world, first)
    world.run("2m")
    world.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=third.instance_id, ShouldDecrementDesiredCapacity=True
    )
    end = execution.finishes()
    assert end.outcome == "recycled", end.cause


def test_a_removed_replacement_is_named_although_another_node_is_underway(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    first, second = workers.nodes[:2]
    executions = surge_all(world, [first, second], "60m", "60m")
    world.run("30m")
    (lost,) = [node for node in workers.nodes if node.annotations.get("recycle-eks/replacement-for") == first.instance_id]
    world.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=lost.instance_id, ShouldDecrementDesiredCapacity=True
    )
    world.run("45m")
    assert "replacement_removed_by_autoscaler" in executions[0].answers("CheckPods")[-1]["reason"]


def test_a_node_in_the_queue_keeps_its_replacement(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    world.autoscaling.group("workers").capacity_rebalance = True
    first, second = workers.nodes[:2]
    world.budget(first.deployment("web", replicas=2), min_available=2)
    world.recycle(first)
    world.run("1m")
    queued = world.recycle(second)
    world.run("15m")
    world.autoscaling.group("workers").capacity_rebalance = False
    first.annotate("recycle-eks/drain-until", "now")
    assert queued.finishes().outcome == "recycled" and not world.calls("autoscaling:EnterStandby")
