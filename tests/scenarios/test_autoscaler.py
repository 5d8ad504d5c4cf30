"""Cluster Autoscaler takes nodes away and always makes the group smaller: not the old node, and not its replacement."""

import pytest

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
OURS = ("recycle-eks/kept-for", "recycle-eks/kept-before", DISABLED)


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


def need_the_others(group) -> None:
    """Something runs on all nodes but the first."""
    for other in group.nodes[1:]:
        other.bare_pod(f"busy-{other.instance_id}")


def marks(node) -> list[str]:
    return [key for key in {**node.annotations, **node.labels} if key in OURS]


@pytest.mark.reading("exit_standby_trims", "terminate_from_standby_launches_extra", "standby_counts_for_zone_balance")
def test_neither_the_old_node_nor_its_replacement_is_removed_during_the_work(world, workers):
    need_the_others(workers)
    node = workers.nodes[0]
    node.daemon_set("logs")
    job = node.job("train", labels={"app": "train"})
    autoscaler = world.cluster_autoscaler()
    execution = world.recycle(node, label_selector="app=train", load_balancer_grace=1800)
    world.run("40m")
    replacement = workers.newest
    assert node.annotations[DISABLED] == replacement.annotations[DISABLED] == "true"
    assert replacement.labels["recycle-eks/kept-for"] == node.instance_id
    job.finishes()

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert autoscaler.removed == {} and workers.sizes == (1, 3, 6)
    assert marks(replacement) == []
    world.run(end.at + 1200)
    gone = [*autoscaler.removed, *(set(workers.nodes_seen) - set(workers.states))]
    assert replacement.instance_id in gone, "afterwards it is like any other node"


def test_the_marks_are_there_before_standby_and_as_soon_as_the_replacement_has_a_node(world, workers):
    node = workers.nodes[0]
    workers.next_launch(startup_taint="node.cilium.io/agent-not-ready", taint_lasts="10m")
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(world.calls("autoscaling:EnterStandby")))
    assert node.annotations[DISABLED] == "true"
    world.run("5m")
    assert "TaintNode" not in execution.path
    assert workers.newest.annotations[DISABLED] == "true"

    assert execution.finishes().outcome == "recycled"


def test_a_stopped_instance_is_not_removed(world, workers):
    """Cluster Autoscaler lists members in Standby, and terminates one that has had no Node for 15 minutes."""
    need_the_others(workers)
    node = workers.nodes[0]
    autoscaler = world.cluster_autoscaler()

    end = world.recycle(node, dispose="stop").finishes()
    world.run(end.at + 7200)

    assert end.outcome == "recycled" and node.instance_id not in autoscaler.removed
    assert (workers.states[node.instance_id], world.instance(node.instance_id).state) == ("Standby", "stopped")


@pytest.mark.parametrize("before", [None, "false"])
def test_a_node_that_stays_in_standby_is_kept_until_it_is_back_in_service(world, before):
    """It could not go back, as its group is full and its replacement has pods."""
    workers = world.group("workers", size=3, minimum=1, maximum=3)
    need_the_others(workers)
    node = workers.nodes[0]
    node.annotate(DISABLED, before)
    job = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train", drain_timeout=1800)
    world.run("20m")
    workers.newest.bare_pod("tenant")
    end = execution.finishes()
    assert end.error == "LeftInStandby", end.cause
    job.finishes()
    autoscaler = world.cluster_autoscaler()
    world.run(end.at + 7200)

    assert autoscaler.removed == {} and workers.states[node.instance_id] == "Standby"
    assert node.annotations[DISABLED] == "true"

    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", MaxSize=4)
    assert world.sweep().finishes().status == "SUCCEEDED"
    assert workers.states[node.instance_id] == "InService" and node.annotations.get(DISABLED) == before


@pytest.mark.parametrize("before", [None, "false", "true"])
def test_the_earlier_annotation_comes_back(world, workers, before):
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    node.annotate(DISABLED, before)
    execution = world.recycle(node, label_selector="app=train", drain_timeout=600)
    world.run("5m")
    assert node.annotations[DISABLED] == "true"

    end = execution.finishes()

    assert (end.error, job.phase) == ("DrainTimedOut", "Running")
    assert node.annotations.get(DISABLED) == before
    assert [marks(other) for other in workers.nodes if other is not node] == [[]] * (len(workers.nodes) - 1)


def test_a_value_that_another_client_changed_stays(world, workers):
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train", drain_timeout=600)
    world.run("5m")
    node.annotate(DISABLED, "false")
    workers.newest.annotate(DISABLED, "false")
    replacement = workers.newest
    replacement.bare_pod("tenant")

    assert execution.finishes().error == "DrainTimedOut"
    assert node.annotations[DISABLED] == "false"
    assert replacement.annotations[DISABLED] == "false" and "recycle-eks/kept-for" not in replacement.labels


def test_a_removed_replacement_that_never_registered_is_named_and_the_node_is_restored(world, workers):
    node = workers.nodes[0]
    need_the_others(workers)
    job = node.job("train", labels={"app": "train"})
    workers.next_launch(never_registers=True)
    autoscaler = world.cluster_autoscaler()

    execution = world.recycle(node, label_selector="app=train", replacement_timeout=3600)
    end = execution.finishes()
    world.run(end.at + 300)

    assert list(autoscaler.removed.values()) == ["unregistered"]
    assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut")
    assert "replacement_removed_by_autoscaler: " in end.cause
    assert end.at < world.seconds("25m"), "the execution does not wait an hour for a replacement that cannot come"
    assert workers.sizes == (1, 3, 6) and workers.states[node.instance_id] == "InService"
    assert job.phase == "Running" and not node.unschedulable and marks(node) == []


def test_the_default_timeout_is_over_before_cluster_autoscaler_acts(world, workers):
    node = workers.nodes[0]
    need_the_others(workers)
    node.job("train", labels={"app": "train"})
    workers.next_launch(never_registers=True)
    autoscaler = world.cluster_autoscaler()

    end = world.recycle(node).finishes()
    world.run(end.at + 1200)

    assert end.error == "ReplacementTimedOut" and "has not registered as a Node" in end.cause
    assert autoscaler.removed == {} and workers.sizes == (1, 3, 6)


def test_a_replacement_that_is_removed_in_the_drain_is_reported_and_the_drain_goes_on(world, workers):
    node = workers.nodes[0]
    need_the_others(workers)
    job = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("8m")
    replacement = workers.newest
    # Another client removed the mark.
    replacement.annotate(DISABLED, None)
    autoscaler = world.cluster_autoscaler()
    world.run("25m")
    assert autoscaler.removed == {replacement.instance_id: "unneeded"}
    assert "replacement_removed_by_autoscaler" in execution.answers("CheckPods")[-1]["reason"]
    job.finishes()

    assert execution.finishes().outcome == "recycled"


def test_the_sweep_removes_the_marks_of_a_stopped_execution(world, workers):
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    execution.stop()
    world.run("20m")

    assert world.sweep().finishes().status == "SUCCEEDED"
    assert [marks(other) for other in workers.nodes] == [[]] * len(workers.nodes)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_function_killed_around_any_write_of_a_mark_leaves_none(world, moment):
    """The writes on Nodes, whichever carry the marks: all of them."""
    endings = []
    for nth in range(1, 9):
        world.reset()
        workers = world.group("workers", size=2, minimum=1, maximum=3)
        node = workers.nodes[0]
        job = node.job("train", labels={"app": "train"})
        world.at("8m", job.finishes)
        world.faults.kill(
            moment, "kubernetes:PATCH nodes", function="standby-node" if nth <= 4 else "detach-terminate", nth=(nth - 1) % 4 + 1
        )
        end = world.recycle(node, label_selector="app=train").finishes()
        struck = not world.faults.not_struck()
        endings.append((nth, struck, end.outcome, [marks(other) for other in workers.nodes]))
    assert [ending for ending in endings if ending[2:] != ("recycled", [[], []])] == []
    assert sum(struck for _, struck, *_ in endings) >= 5
