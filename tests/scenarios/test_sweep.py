"""The sweep restores the node of an execution that no longer runs: within two sweeps, and with one notification."""

import pytest

from world.base.faults import sample
from world.kubernetes.kube_client import MERGE_PATCH

STATES = [
    "ClaimNode", "NodeClaimed", "StandbyNode", "ReplacementReady", "WaitForReplacement", "TaintNode", "CheckPods", "PodsGone",
    "EvictPods", "WaitForPods", "DetachTerminate", "NodeDisposed", "WaitForDisposal",
]  # fmt: skip
RESTORING = ["RestoreNode", "NodeRestored", "WaitForRestore"]


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


def begin(world, node, **fields):
    """An execution that drains for hours, with something to evict and something to wait for."""
    node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    return world.recycle(node, label_selector="app=train", **fields)


def stop_in(world, execution, state, nth=1):
    """An operator stops it the moment it enters a state."""
    world.clock.run(until=lambda: len(execution.entered(state)) >= nth, limit=2 * 86_400)
    assert len(execution.entered(state)) >= nth, execution.path
    execution.stop()


def cordon_as_recycle_eks(world, node):
    """Cordons with the field manager of recycle-eks, by which it recognizes its own cordon."""
    path = f"/api/v1/nodes/{node.name}?fieldManager=recycle-eks"
    world.kubernetes.must("PATCH", path, {"spec": {"unschedulable": True}}, MERGE_PATCH)


def wait(world, time):
    world.run(world.clock.elapsed() + world.seconds(time))


@pytest.mark.parametrize("state", [*sample(STATES, 6), "TaintNode", "WaitForDisposal"])
def test_a_node_stopped_in_any_state_is_clean_within_two_sweeps(world, node, state):
    if state in ("DetachTerminate", "NodeDisposed", "WaitForDisposal"):
        job = node.job("short", labels={"app": "train"})
        world.at("8m", job.finishes)
        execution = world.recycle(node, label_selector="app=train")
    else:
        execution = begin(world, node)
    stop_in(world, execution, state)
    wait(world, "10m")

    ends = [world.sweep().finishes(), world.sweep().finishes()]

    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"
    assert ends[1].output["nodes"] == []


def test_a_queued_execution_that_is_stopped_leaves_the_queue(world, node):
    first = begin(world, node)
    other = node.group.nodes[1]
    waiting = world.recycle(other)
    stop_in(world, waiting, "WaitInQueue", nth=2)
    assert [key for name, key in world.leftovers(node.group) if name == other.name]
    wait(world, "10m")

    world.sweep().finishes()

    assert [key for name, key in world.leftovers(node.group) if name in (other.name, other.instance_id)] == []
    assert first.status == "RUNNING"


@pytest.mark.parametrize("state", RESTORING)
def test_the_sweep_finishes_a_restore_that_was_stopped(world, node, state):
    execution = begin(world, node, drain_timeout=600)
    stop_in(world, execution, state)
    wait(world, "10m")

    world.sweep().finishes()
    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


def test_the_clock_alone_restores_a_node_if_every_event_is_lost(world, node):
    world.let_sweep(after_bad_ends=False)
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=3)

    wait(world, "45m")

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


@pytest.mark.parametrize("has_fraction", [False, True])
def test_a_stopped_execution_is_swept_at_once_and_reported_once(world, node, has_fraction):
    """The sweep reads the end of the execution, whose form no source shows."""
    world.services.full_seconds_have_fraction = has_fraction
    world.let_sweep()
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=3)
    stopped_at = world.clock.elapsed()

    world.clock.run(until=lambda: not world.leftovers(node.group), limit=stopped_at + 86_400)
    # Functions of the stopped execution may be at work for five minutes.
    assert 300 <= world.clock.elapsed() - stopped_at < 900
    wait(world, "3h")

    sent = [text for text in world.notifications if "was restored" in text]
    assert len(sent) == 1 and execution.arn in sent[0] and node.instance_id in sent[0]


@pytest.mark.parametrize(("status", "error"), [("TIMED_OUT", None), ("FAILED", "States.Runtime")])
def test_an_end_that_no_catcher_sees_is_swept_as_well(world, node, status, error):
    world.let_sweep()
    execution = begin(world, node)
    world.clock.run(until=lambda: len(execution.entered("WaitForPods")) >= 3, limit=86_400)
    running = world.engine.execution(execution.arn)
    if error:
        room, world.engine.history_limit = world.engine.history_limit, len(running.events) + 5
    else:
        world.engine.finish(running, "TIMED_OUT")
    world.clock.run(until=lambda: execution.status != "RUNNING", limit=2 * 86_400)
    if error:
        world.engine.history_limit = room
    assert (execution.status, running.error) == (status, error)

    wait(world, "15m")

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


def test_a_running_execution_is_left_alone(world, node):
    execution = begin(world, node)
    world.run("30m")
    calls = len(world.writes())

    end = world.sweep().finishes()

    assert end.status == "SUCCEEDED" and execution.status == "RUNNING"
    assert len(world.writes()) == calls
    assert not world.notifications


def test_every_owner_counts_as_alive_if_it_may_not_be_read(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods")
    wait(world, "10m")
    calls = len(world.writes())
    world.faults.refuse("states:DescribeExecution", code="AccessDeniedException", status=400, times=100)

    assert world.sweep().finishes().status == "SUCCEEDED"
    assert len(world.writes()) == calls


def test_an_execution_that_step_functions_does_not_know_is_over_ten_minutes_after_its_claim(world, node):
    """DescribeExecution is eventually consistent, so an execution that has just begun may be unknown, too."""
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods")
    world.faults.refuse("states:DescribeExecution", code="ExecutionDoesNotExist", status=400, times=100)

    world.sweep().finishes()
    assert world.leftovers(node.group) != [], "it may only be unknown yet"

    wait(world, "10m")
    world.sweep().finishes()

    assert world.leftovers(node.group) == []


def test_a_node_that_had_to_stay_in_standby_comes_back_when_the_group_has_room(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    begin(world, node, drain_timeout=600).finishes()
    assert workers.states[node.instance_id] == "Standby"
    wait(world, "10m")

    for _ in range(3):
        assert world.sweep().finishes().output["nodes"] == [{}]
    assert ["was left in Standby" in text for text in world.notifications] == [True], "only the failure was reported, once"

    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", MaxSize=3)
    world.sweep().finishes()

    assert workers.states[node.instance_id] == "InService"
    assert world.leftovers(workers) == []
    assert [text for text in world.notifications if "was restored" in text]


def test_a_node_whose_claim_an_operator_removed_is_cleaned_as_well(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    node.record("recycle-eks/claim", None)
    world.aws.client("ec2").delete_tags(Resources=[node.instance_id], Tags=[{"Key": "recycle-eks:claim"}])

    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


def test_a_cordon_for_a_node_that_is_gone_is_removed(world, node):
    other = node.group.nodes[1]
    other.annotate("recycle-eks/cordoned-for", node.instance_id)
    cordon_as_recycle_eks(world, other)
    node.is_terminated_in_the_console()
    wait(world, "10m")

    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    assert len(world.notifications) == 1 and node.instance_id in world.notifications[0]


def tag(world, instance_id, key, value):
    """Another principal, who may tag every instance, writes a tag of recycle-eks."""
    world.aws.client("ec2").create_tags(Resources=[instance_id], Tags=[{"Key": f"recycle-eks:{key}", "Value": value}])


def stranger(world):
    """An instance that belongs to another cluster."""
    node = world.group("strangers", size=1, minimum=1, maximum=2).nodes[0]
    node.object_is_deleted()
    world.aws.client("ec2").delete_tags(Resources=[node.instance_id], Tags=[{"Key": "kubernetes.io/cluster/world"}])
    return node.instance_id


def names(world, node, key, instance_id):
    mark = {"labels" if key == "kept-for" else "annotations": {f"recycle-eks/{key}": instance_id}}
    world.kubernetes.must("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": mark}, MERGE_PATCH)


@pytest.mark.parametrize("key", ["cordoned-for", "kept-for"])
def test_an_instance_that_is_not_of_this_cluster_is_not_followed(world, node, key):
    names(world, node, key, stranger(world))
    calls = len(world.writes())

    end = world.sweep().finishes()

    assert (end.status, end.output["nodes"]) == ("SUCCEEDED", [])
    assert len(world.writes()) == calls and not world.notifications


@pytest.mark.parametrize("key", ["cordoned-for", "kept-for"])
def test_a_mark_for_an_instance_that_ec2_has_forgotten_is_removed(world, node, key):
    names(world, node, key, "i-0fedcba9876543210")

    end = world.sweep().finishes()

    assert end.status == "SUCCEEDED" and not world.notifications
    assert not any("recycle-eks" in each for each in [*node.annotations, *node.kubernetes.labels])
    assert world.sweep().finishes().output["nodes"] == []


def test_a_tag_removes_no_protection_and_stops_no_restore(world, node):
    other = node.group.nodes[1]
    node.group.protect(other)
    tag(world, other.instance_id, "protected-for", node.instance_id)
    tag(world, stranger(world), "protected-for", node.instance_id)
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    wait(world, "10m")

    world.sweep().finishes()
    world.sweep().finishes()

    members = world.autoscaling.group("workers").instance_states
    assert [m.instance_id for m in members if m.protected_from_scale_in] == [other.instance_id]
    assert node.group.states[node.instance_id] == "InService"
    assert [key for name, key in world.leftovers(node.group) if name in (node.name, node.instance_id)] == []


def test_a_tag_takes_no_instance_out_of_an_operators_standby(world, node):
    world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    )
    wait(world, "10m")
    tag(world, node.instance_id, "standby", "2027-01-01T00:00:00Z")

    ends = [world.sweep().finishes(), world.sweep().finishes()]

    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert node.group.states[node.instance_id] == "Standby" and not world.calls("autoscaling:ExitStandby")
    assert len(world.notifications) <= 1


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_sweep_that_is_stopped_is_followed_by_another(world, node, nth):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    wait(world, "10m")
    first = world.sweep()
    stop_in(world, first, "RestoreNode", nth=nth)
    wait(world, "10m")

    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


@pytest.mark.parametrize("seed", range(2))
def test_only_one_of_two_sweeps_restores(world, seed):
    world.reset(seed=seed)
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    wait(world, "10m")

    sweeps = [world.sweep(), world.sweep()]
    for sweep in sweeps:
        assert sweep.finishes().status == "SUCCEEDED"

    assert world.leftovers(node.group) == []
    assert len(world.calls("autoscaling:ExitStandby", succeeded=True)) == 1
    assert len([text for text in world.notifications if "was restored" in text]) == 1


def test_an_execution_started_during_a_restore_names_the_sweep(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    wait(world, "10m")
    sweep = world.sweep()
    world.clock.run(until=lambda: len(sweep.entered("RestoreNode")) >= 4, limit=86_400)

    late = world.recycle(node, label_selector="app=train").finishes()

    assert late.outcome == "duplicate" and sweep.arn in late.output["reason"]
    assert sweep.finishes().status == "SUCCEEDED"
    assert world.leftovers(node.group) == []


def test_while_the_cluster_is_away_the_instance_comes_back_and_the_rest_later(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    wait(world, "10m")
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None)
    first = world.sweep().finishes()
    world.faults.clear()
    assert node.group.states[node.instance_id] == "InService", first

    wait(world, "10m")
    world.sweep().finishes()

    assert world.leftovers(node.group) == []


def test_an_unreadable_claim_is_reported_once_and_delays_no_other_node(world, node):
    other = node.group.nodes[1]
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    other.record("recycle-eks/claim", "mine!")
    wait(world, "10m")

    for _ in range(3):
        assert world.sweep().finishes().status == "SUCCEEDED"

    sent = [text for text in world.notifications if "mine!" in text]
    assert len(sent) == 1 and other.name in sent[0]
    assert [key for name, key in world.leftovers(node.group) if name == node.name] == []


def test_two_nodes_of_a_group_are_restored_one_after_the_other(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    executions = []
    for node in workers.nodes[:2]:
        node.job(f"train-{node.instance_id}", labels={"app": "train"})
        executions.append(world.recycle(node, label_selector="app=train"))
    world.clock.run(until=lambda: all(execution.entered("WaitForPods") for execution in executions), limit=86_400)
    for execution in executions:
        execution.stop()
    wait(world, "10m")

    world.sweep().finishes()
    wait(world, "10m")

    assert world.leftovers(workers) == []
    assert workers.sizes == (1, 4, 8)
    assert sorted(workers.states.values()) == ["InService"] * 4
    assert len([text for text in world.notifications if "was restored" in text]) == 2


def test_a_node_that_an_operator_took_out_of_its_group_holds_no_place_in_the_queue(world, node):
    execution = begin(world, node, drain_timeout=900)
    world.run("10m")
    world.aws.client("autoscaling").detach_instances(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    )
    assert execution.finishes().error == "ServiceRefused"
    wait(world, "10m")
    for _ in range(2):
        assert world.sweep().finishes().output["nodes"] == [{}]
    assert ["was not recycled" in text for text in world.notifications] == [True], "there is one notification"

    assert world.recycle(node.group.nodes[0]).finishes().outcome == "recycled"


def test_a_taint_that_an_operator_has_changed_stays(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    node.kubernetes.add_taint("recycle-eks/draining", value="mine")
    wait(world, "10m")

    for _ in range(3):
        world.sweep().finishes()

    assert node.has_taint("recycle-eks/draining")
    assert len([text for text in world.notifications if "was restored" in text]) == 1


@pytest.mark.parametrize("state", sample(STATES + RESTORING, 5, first=1))
def test_an_execution_redriven_after_its_restore_touches_nothing(world, node, state):
    job = node.job("short", labels={"app": "train"})
    if state in ("DetachTerminate", "NodeDisposed", "WaitForDisposal"):
        world.at("8m", job.finishes)
    node.deployment("web", replicas=2)
    execution = world.recycle(node, label_selector="app=train", drain_timeout=900)
    stop_in(world, execution, state)
    wait(world, "10m")
    world.sweep().finishes()
    world.sweep().finishes()
    calls = len(world.writes())

    execution.redrive()
    end = execution.finishes()

    assert end.status == "FAILED"
    assert len(world.writes()) == calls
    assert world.leftovers(node.group) == []
