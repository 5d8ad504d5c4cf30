"""The `after` path: no Standby. The node is drained and terminated, and the execution waits for the replacement."""

import pytest

from world.base.faults import kills

SIZES = {"m<d<M": (1, 2, 4), "m=d=M": (2, 2, 2), "alone": (1, 1, 1)}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def group_of(world, sizes: str, name: str = "workers"):
    minimum, size, maximum = SIZES[sizes]
    return world.group(name, size=size, minimum=minimum, maximum=maximum)


def with_job(world, node, until: str = "10m"):
    job = node.job(f"train-{node.group.name}", labels={"app": "train"})
    world.at(until, job.finishes)
    return job


def after(world, node, **fields):
    return world.recycle(node, label_selector="app=train", replacement="after", **fields)


@pytest.mark.reading("enter_standby_at_max_launches", "standby_counts_for_zone_balance")
def test_a_node_leaves_first_and_its_replacement_comes_after_it(world):
    groups = {sizes: group_of(world, sizes, f"workers-{n}") for n, sizes in enumerate(SIZES)}
    before = {sizes: workers.sizes for sizes, workers in groups.items()}
    nodes = {sizes: workers.nodes[0] for sizes, workers in groups.items()}
    others = [other.bare_pod(f"neighbour-{w.name}") for w in groups.values() for other in w.nodes[1:]]
    jobs = {sizes: with_job(world, node) for sizes, node in nodes.items()}

    executions = {sizes: after(world, node) for sizes, node in nodes.items()}
    ends = {sizes: execution.finishes() for sizes, execution in executions.items()}

    assert not world.calls("autoscaling:EnterStandby")
    assert all(pod.phase == "Running" for pod in others)
    for sizes, workers in groups.items():
        node, end, path = nodes[sizes], ends[sizes], executions[sizes].path
        assert end.outcome == "recycled", (sizes, end.cause)
        assert workers.sizes == before[sizes], sizes
        assert sorted(workers.states.values()) == ["InService"] * before[sizes][1], sizes
        assert world.instance(node.instance_id).state == "terminated" and not node.exists, sizes
        assert not jobs[sizes].exists or jobs[sizes].phase == "Succeeded", sizes
        newest = workers.newest
        assert newest.annotations["recycle-eks/replacement-for"] == node.instance_id, sizes
        assert newest.instance_id in end.output["reason"] and end.at >= newest.ready_at, sizes
        last = len(path) - path[::-1].index("DetachTerminate")
        assert path.index("StandbyNode") > last, sizes


def test_nothing_is_tainted_or_launched_early_and_no_pod_is_touched_before_the_taint(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2)

    # The dry run plans it so.
    end = world.recycle(node, replacement="after", dry_run=True).finishes()
    assert end.outcome == "planned" and world.writes() == []
    steps = end.output["plan"]["steps"]
    assert not any("Standby" in step for step in steps) and steps[-1].startswith(
        "wait up to 14 minutes until the group's new member"
    )
    assert not any("Standby" in note for note in end.output["plan"]["notes"])

    end = after(world, node).finishes()

    assert end.outcome == "recycled" and len(web.running_pods()) == 2
    taint = next(call.at for call in world.calls("kubernetes:PATCH nodes") if call.function == "recycle-eks-taint-node")
    evictions = [call.at for call in world.calls("kubernetes:POST pods/eviction", succeeded=True)]
    (terminated,) = [call.at for call in world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)]
    assert taint <= min(evictions) and terminated >= max(evictions) + 60


def test_a_node_left_in_standby_goes_on_from_standby_also_with_after(world):
    workers = world.group("gpu", size=1, minimum=1, maximum=1)
    workers.reserve_capacity(1)
    node = workers.nodes[0]
    # The path `before` leaves a node of a full reservation alone.
    end = world.recycle(node, replacement_timeout=120).finishes()
    assert end.error == "LeftInStandby", end.cause
    assert "no instance was launched in 120 seconds" in end.cause, end.cause
    workers.reserve_capacity(2)
    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="gpu", MaxSize=2)

    end = after(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert list(workers.states.values()) == ["InService"] and not node.exists


def test_the_new_node_has_to_be_usable_and_like_the_old_one(world):
    gpu = {"nvidia.com/gpu": "1"}
    tainted, plain = [world.group(name, size=0, minimum=0, maximum=2) for name in ("tainted", "plain")]
    for workers in (tainted, plain):
        workers.next_launch(allocatable=gpu)
        workers.grow(1)
    world.run("5m")
    tainted.next_launch(allocatable=gpu, startup_taint="node.cilium.io/agent-not-ready", taint_lasts="5m")
    plain.next_launch()
    world.at("20m", lambda: plain.newest.kubernetes.report({"allocatable": gpu, "capacity": gpu}))
    rows = {
        "still has the taint node.cilium.io/agent-not-ready": (tainted, after(world, tainted.nodes[0])),
        "does not offer nvidia.com/gpu yet": (plain, after(world, plain.nodes[0])),
    }
    for missing, (workers, execution) in rows.items():
        end = execution.finishes()

        assert end.outcome == "recycled", (missing, end.cause)
        assert end.at >= (world.seconds("20m") if workers is plain else workers.newest.ready_at + 300), missing
        reasons = [answer["reason"] for answer in execution.answers("StandbyNode")]
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


def test_after_a_failure_only_kubernetes_is_restored(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})

    # A drain that is too long.
    end = after(world, node, drain_timeout=600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "The node was restored" in end.cause and job.phase == "Running"
    assert not node.unschedulable and not node.kubernetes.taints and EXCLUDE not in node.labels
    assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    assert not [call for call in world.writes() if call.action.startswith("autoscaling:")]
    assert workers.states[node.instance_id] == "InService"
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]

    # A disposal that AWS refuses.
    job.finishes()
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
    with_job(world, first, until="12m")
    one = after(world, first)
    world.run("4m")
    two = after(world, second)

    world.run("10m")
    assert not second.unschedulable and first.unschedulable
    assert [execution.finishes().outcome for execution in (one, two)] == ["recycled", "recycled"]


def test_a_stopped_execution_leaves_no_marks(world):
    states = ("WaitForPods", "WaitForDisposal", "WaitForReplacement")
    groups = {state: group_of(world, "m=d=M", f"in-{state}".lower()) for state in states}
    executions = {}
    for state, workers in groups.items():
        with_job(world, workers.nodes[0], until="5m")
        workers.next_launch(takes="10m")
        executions[state] = after(world, workers.nodes[0])
    world.let_sweep()
    for state, execution in executions.items():
        world.clock.run(until=lambda each=execution, name=state: bool(each.entered(name)), limit=world.seconds("1d"))
        execution.stop()
    world.wait(3600)

    for state, workers in groups.items():
        assert workers.sizes == (2, 2, 2) and sorted(workers.states.values()) == ["InService"] * 2, state
        for each in workers.nodes:
            assert not each.unschedulable and not each.has_taint("recycle-eks/draining"), state
            assert not {"recycle-eks/claim", "recycle-eks/record"} & {*each.annotations, *each.labels}, state
            assert not [key for key in world.instance(each.instance_id).tags if key.startswith("recycle-eks:")], state


def test_the_next_execution_finishes_a_disposal_that_a_stopped_one_began(world):
    workers = group_of(world, "m=d=M")
    node = workers.nodes[0]
    execution = after(world, node)
    world.clock.run(until=lambda: len(execution.entered("WaitForDisposal")) > 1, limit=world.seconds("1d"))
    execution.stop()

    end = after(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert workers.newest.annotations["recycle-eks/replacement-for"] == node.instance_id


# Crashes


def build(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    with_job(world, node, until="5m")
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


def test_a_function_killed_around_any_mutating_call_ends_the_same(world, mutating_calls):
    endings = []
    at = [("after", "autoscaling:TerminateInstanceInAutoScalingGroup")]
    for ((moment, function, action, nth),) in kills(mutating_calls, at=at):
        world.reset()
        workers, node, web = build(world)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = after(world, node).finishes()
        endings.append(
            (
                (moment, function, action, nth),
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


def test_a_refusal_after_the_node_has_gone_says_that_it_is_gone(world):
    node = group_of(world, "m<d<M").nodes[0]
    world.faults.refuse("kubernetes:PATCH nodes", code="Forbidden", status=403, function="standby-node", times=None)
    end = after(world, node).finishes()
    assert end.error == "ServiceRefused" and world.instance(node.instance_id).state == "terminated"
    assert end.cause.endswith(f"\ninstance {node.instance_id} is gone.")
    assert end.cause in [each["reason"] for each in world.all_notifications if each["event"] == "failed"]
