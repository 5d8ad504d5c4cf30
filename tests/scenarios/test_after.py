"""The `after` path: no Standby. The node is drained and terminated, and the execution waits for the replacement."""

import pytest

from world.base.faults import sample

SIZES = {"m<d<M": (1, 2, 4), "m<d=M": (1, 2, 2), "m=d<M": (2, 2, 4), "m=d=M": (2, 2, 2), "alone": (1, 1, 1)}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def group_of(world, sizes: str):
    minimum, size, maximum = SIZES[sizes]
    return world.group("workers", size=size, minimum=minimum, maximum=maximum)


def with_job(world, node, until: str = "30m"):
    job = node.job("train", labels={"app": "train"})
    world.at(until, job.finishes)
    return job


def after(world, node, **fields):
    return world.recycle(node, label_selector="app=train", replacement="after", **fields)


@pytest.mark.reading("enter_standby_at_max_launches", "standby_counts_for_zone_balance")
@pytest.mark.parametrize("sizes", SIZES)
def test_a_node_leaves_first_and_its_replacement_comes_after_it(world, sizes):
    workers = group_of(world, sizes)
    before = workers.sizes
    node = workers.nodes[0]
    others = [other.bare_pod("neighbour") for other in workers.nodes[1:]]
    job = with_job(world, node)

    execution = after(world, node)
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert not world.calls("autoscaling:EnterStandby")
    assert workers.sizes == before and sorted(workers.states.values()) == ["InService"] * before[1]
    assert world.instance(node.instance_id).state == "terminated" and not node.exists
    assert not job.exists or job.phase == "Succeeded"
    assert all(pod.phase == "Running" for pod in others)
    newest = workers.newest
    assert newest.annotations["recycle-eks/replacement-for"] == node.instance_id
    assert newest.instance_id in end.output["reason"] and end.at >= newest.ready_at
    last = len(execution.path) - execution.path[::-1].index("DetachTerminate")
    assert execution.path.index("StandbyNode") > last


def test_nothing_is_tainted_or_launched_early_and_no_pod_is_touched_before_the_taint(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2)

    end = after(world, node).finishes()

    assert end.outcome == "recycled" and len(web.running_pods()) == 2
    taint = next(call.at for call in world.calls("kubernetes:PATCH nodes") if call.function == "recycle-eks-taint-node")
    evictions = [call.at for call in world.calls("kubernetes:POST pods/eviction", succeeded=True)]
    (terminated,) = [call.at for call in world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)]
    assert taint <= min(evictions) and terminated >= max(evictions) + 60


def test_a_group_with_a_full_reservation_is_recycled(world):
    gpu = {"nvidia.com/gpu": "8"}
    workers = world.group("gpu", size=0, minimum=0, maximum=1)
    for _ in range(2):
        workers.next_launch(allocatable=gpu)
    workers.reserve_capacity(1)
    world.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="gpu", DesiredCapacity=1)
    world.run("5m")
    node = workers.nodes[0]
    node.kubernetes.add_taint("nvidia.com/gpu", "NoSchedule", "present")
    world.at("20m", node.job("train", labels={"app": "train"}).finishes)

    end = after(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert list(workers.states.values()) == ["InService"] and not node.exists
    (new,) = workers.nodes
    assert new.ready_at > world.seconds("20m")


def test_before_leaves_a_node_of_a_full_reservation_alone(world):
    workers = world.group("gpu", size=1, minimum=1, maximum=1)
    workers.reserve_capacity(1)

    end = world.recycle(workers.nodes[0], replacement_timeout=120).finishes()

    assert end.error == "LeftInStandby", end.cause
    assert "no instance was launched in 120 seconds" in end.cause, end.cause


def test_a_node_left_in_standby_goes_on_from_standby_also_with_after(world):
    workers = world.group("gpu", size=1, minimum=1, maximum=1)
    workers.reserve_capacity(1)
    node = workers.nodes[0]
    assert world.recycle(node, replacement_timeout=120).finishes().error == "LeftInStandby"
    workers.reserve_capacity(2)
    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="gpu", MaxSize=2)

    end = after(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert list(workers.states.values()) == ["InService"] and not node.exists


@pytest.mark.parametrize("what", ["startup taint", "no GPU yet"])
def test_the_new_node_has_to_be_usable_and_like_the_old_one(world, what):
    gpu = {"nvidia.com/gpu": "1"}
    workers = world.group("gpu", size=0, minimum=0, maximum=2)
    workers.next_launch(allocatable=gpu)
    world.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="gpu", DesiredCapacity=1)
    world.run("5m")
    if what == "startup taint":
        workers.next_launch(allocatable=gpu, startup_taint="node.cilium.io/agent-not-ready", taint_lasts="5m")
    else:
        workers.next_launch()
        world.at("20m", lambda: workers.newest.kubernetes.report({"allocatable": gpu, "capacity": gpu}))
    execution = after(world, workers.nodes[0])
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    expected = world.seconds("20m") if what == "no GPU yet" else workers.newest.ready_at + 300
    assert end.at >= expected
    reasons = [answer["reason"] for answer in execution.answers("StandbyNode")]
    missing = (
        "does not offer nvidia.com/gpu yet" if what == "no GPU yet" else "still has the taint node.cilium.io/agent-not-ready"
    )
    assert any(missing in reason for reason in reasons), reasons


def test_a_replacement_that_does_not_come_ends_failed_with_nothing_to_restore(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    workers.next_launch(fails="Insufficient capacity")
    world.let_sweep()

    end = after(world, node, replacement_timeout=300).finishes()
    world.run(end.at + 3600)

    assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut")
    assert "There is nothing to restore" in end.cause and "was restored:" not in end.cause
    assert "describe-scaling-activities --auto-scaling-group-name workers" in end.cause
    assert not world.calls("autoscaling:ExitStandby") and not world.calls("autoscaling:SetDesiredCapacity")
    assert workers.sizes == (2, 2, 2)
    for other in workers.nodes:
        assert not [key for key in {**other.annotations, **other.labels} if key.startswith("recycle-eks/")]
        assert not [key for key in world.instance(other.instance_id).tags if key.startswith("recycle-eks:")]


def test_after_a_drain_that_is_too_long_only_kubernetes_is_restored(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})

    end = after(world, node, drain_timeout=600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "The node was restored" in end.cause and job.phase == "Running"
    assert not node.unschedulable and not node.kubernetes.taints and EXCLUDE not in node.labels
    assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    assert not [call for call in world.writes() if call.action.startswith("autoscaling:")]
    assert workers.states[node.instance_id] == "InService"
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]


def test_after_a_failed_disposal_only_kubernetes_is_restored(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    world.faults.refuse("autoscaling:TerminateInstanceInAutoScalingGroup", code="AccessDenied", status=403, times=None)

    end = after(world, node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining") and EXCLUDE not in node.labels
    assert workers.states[node.instance_id] == "InService"


def test_each_node_waits_until_the_group_is_whole_again(world):
    workers = world.group("workers", size=3, minimum=3, maximum=3)
    nodes = list(workers.nodes)
    workers.next_launch(takes="5m")
    executions = [after(world, node) for node in nodes]
    fewest = []
    world.autoscaling.on_state_change.append(
        lambda member, old, new: fewest.append(list(workers.states.values()).count("InService"))
    )
    try:
        ends = [execution.finishes() for execution in executions]
    finally:
        world.autoscaling.on_state_change.pop()

    assert [end.outcome for end in ends] == ["recycled"] * 3, [end.cause for end in ends]
    assert min(fewest) == 2
    reasons = [answer["reason"] for execution in executions for answer in execution.answers("ClaimNode")]
    assert any('2 of its 3 members are in service; with replacement "after"' in reason for reason in reasons), reasons


def test_a_node_that_only_waits_for_its_pods_keeps_the_next_from_beginning(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    first, second = workers.nodes
    with_job(world, first, until="40m")
    one = after(world, first)
    world.run("10m")
    two = after(world, second)

    world.run("30m")
    assert not second.unschedulable and first.unschedulable
    assert [execution.finishes().outcome for execution in (one, two)] == ["recycled", "recycled"]


@pytest.mark.parametrize("state", ["WaitForPods", "WaitForDisposal", "WaitForReplacement"])
def test_a_stopped_execution_leaves_no_marks(world, state):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    with_job(world, node, until="20m")
    workers.next_launch(takes="10m")
    world.let_sweep()
    execution = after(world, node)
    world.clock.run(until=lambda: bool(execution.entered(state)), limit=world.seconds("1d"))
    execution.stop()
    world.run(world.clock.elapsed() + 7200)

    assert workers.sizes == (2, 2, 2) and sorted(workers.states.values()) == ["InService"] * 2
    for each in workers.nodes:
        assert not each.unschedulable and not each.has_taint("recycle-eks/draining")
        assert not [key for key in {**each.annotations, **each.labels} if key in ("recycle-eks/claim", "recycle-eks/record")]
        assert not [key for key in world.instance(each.instance_id).tags if key.startswith("recycle-eks:")]


def test_the_next_execution_finishes_a_disposal_that_a_stopped_one_began(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    execution = after(world, node, load_balancer_grace=300)
    world.clock.run(until=lambda: len(execution.entered("WaitForDisposal")) > 1, limit=world.seconds("1d"))
    execution.stop()

    end = after(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert workers.newest.annotations["recycle-eks/replacement-for"] == node.instance_id


def test_a_dry_run_plans_the_replacement_after_the_disposal(world):
    workers = group_of(world, "m=d=M")
    end = world.recycle(workers.nodes[0], replacement="after", dry_run=True).finishes()

    assert end.outcome == "planned" and world.writes() == []
    steps = end.output["plan"]["steps"]
    assert not any("Standby" in step for step in steps) and steps[-1].startswith(
        "wait up to 14 minutes until the group's new member"
    )
    assert not any("Standby" in note for note in end.output["plan"]["notes"])


# Crashes


def build(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    with_job(world, node, until="20m")
    return workers, node, node.deployment("web", replicas=2)


@pytest.fixture(scope="module")
def mutating_calls(deployed_world):
    """Every (function, action, n-th time) that changes something in a run without faults."""
    world = deployed_world
    world.reset()
    _, node, _ = build(world)
    assert after(world, node).finishes().outcome == "recycled"
    calls = world.write_points()
    assert len(calls) > 10 and ("recycle-eks-standby-node", "kubernetes:PATCH nodes", 1) in calls
    return calls


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_function_killed_around_any_mutating_call_ends_the_same(world, mutating_calls, moment):
    endings = []
    for function, action, nth in sample(mutating_calls, 2, first=moment == "after"):
        world.reset()
        workers, node, web = build(world)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = after(world, node).finishes()
        endings.append(
            (
                (function, action, nth),
                end.outcome,
                workers.sizes,
                sorted(workers.states.values()),
                node.exists,
                len(web.running_pods()),
                workers.newest.annotations.get("recycle-eks/replacement-for") == node.instance_id,
                len(world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)),
                world.faults.not_struck(),
            )
        )
    same = ("recycled", (2, 2, 2), ["InService", "InService"], False, 2, True, 1, [])
    assert [ending for ending in endings if ending[1:] != same] == []
