"""Cluster Autoscaler takes nodes away and always makes the group smaller: not the old node, and not its replacement."""

import pytest

from world.base.faults import sample

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


@pytest.mark.any_replacement
@pytest.mark.reading("exit_standby_trims", "terminate_from_standby_launches_extra", "standby_counts_for_zone_balance")
def test_neither_the_old_node_nor_its_replacement_is_removed_during_the_work(world, workers):
    need_the_others(workers)
    node = workers.nodes[0]
    node.daemon_set("logs")
    job = node.job("train", labels={"app": "train"})
    autoscaler = world.cluster_autoscaler()
    # Longer than a node may be unneeded, before the end of the drain and after it.
    execution = world.recycle(node, label_selector="app=train", load_balancer_grace=900)
    world.run("20m")
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
    world.run(end.at + 3600)

    assert end.outcome == "recycled" and node.instance_id not in autoscaler.removed
    assert (workers.states[node.instance_id], world.instance(node.instance_id).state) == ("Standby", "stopped")


def test_a_node_that_stays_in_standby_is_kept_until_it_is_back_in_service(world):
    """It could not go back, as its group is full and its replacement has pods."""
    before = {"without": None, "with-false": "false"}
    nodes, jobs, executions = {}, [], {}
    for name, value in before.items():
        group = world.group(name, size=3, minimum=1, maximum=3)
        need_the_others(group)
        nodes[name] = node = group.nodes[0]
        node.annotate(DISABLED, value)
        jobs.append(node.job(f"train-{name}", labels={"app": "train"}))
        executions[name] = world.recycle(node, label_selector="app=train", drain_timeout=900)
    world.run("10m")
    for node in nodes.values():
        node.group.newest.bare_pod(f"tenant-{node.group.name}")
    for name, execution in executions.items():
        end = execution.finishes()
        assert end.error == "LeftInStandby", (name, end.cause)
    for job in jobs:
        job.finishes()
    autoscaler = world.cluster_autoscaler()
    world.wait(3600)

    assert autoscaler.removed == {}
    for name, node in nodes.items():
        assert node.group.states[node.instance_id] == "Standby", name
        assert node.annotations[DISABLED] == "true", name
        world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=4)
    assert world.sweep().finishes().status == "SUCCEEDED"
    for name, node in nodes.items():
        assert node.group.states[node.instance_id] == "InService", name
        assert node.annotations.get(DISABLED) == before[name], name


def test_the_earlier_annotation_comes_back_and_a_value_that_another_client_changed_stays(world):
    before = {"without": None, "with-false": "false", "changed": None}
    nodes, jobs, executions = {}, {}, {}
    for name, value in before.items():
        nodes[name] = node = world.group(name, size=2, minimum=1, maximum=6).nodes[0]
        jobs[name] = node.job(f"train-{name}", labels={"app": "train"})
        node.annotate(DISABLED, value)
        executions[name] = world.recycle(node, label_selector="app=train", drain_timeout=600)
    world.run("5m")
    for name, node in nodes.items():
        assert node.annotations[DISABLED] == "true", name
    replacement = nodes["changed"].group.newest
    for node in (nodes["changed"], replacement):
        node.annotate(DISABLED, "false")
    replacement.bare_pod("tenant")

    for name, execution in executions.items():
        assert (execution.finishes().error, jobs[name].phase) == ("DrainTimedOut", "Running"), name
    assert nodes["changed"].annotations[DISABLED] == "false"
    assert replacement.annotations[DISABLED] == "false" and "recycle-eks/kept-for" not in replacement.labels
    for name in ("without", "with-false"):
        node = nodes[name]
        assert node.annotations.get(DISABLED) == before[name], name
        others = [other for other in node.group.nodes if other is not node]
        assert [marks(other) for other in others] == [[]] * (len(node.group.nodes) - 1), name


@pytest.mark.any_replacement
def test_a_removed_replacement_that_never_registered_is_named_and_the_node_is_restored(world):
    patient, default = [world.group(name, size=3, minimum=1, maximum=6) for name in ("patient", "default")]
    jobs = {}
    for group in (patient, default):
        need_the_others(group)
        jobs[group] = group.nodes[0].job(f"train-{group.name}", labels={"app": "train"})
        group.next_launch(never_registers=True)
    autoscaler = world.cluster_autoscaler()

    node = patient.nodes[0]
    execution = world.recycle(node, label_selector="app=train", replacement_timeout=3600)
    with_default = world.recycle(default.nodes[0])
    end = execution.finishes()
    world.run(end.at + 300)

    assert list(autoscaler.removed.values()) == ["unregistered"]
    assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut")
    assert "replacement_removed_by_autoscaler: " in end.cause
    assert end.at < world.seconds("25m"), "the execution does not wait an hour for a replacement that cannot come"
    assert patient.sizes == (1, 3, 6) and patient.states[node.instance_id] == "InService"
    assert jobs[patient].phase == "Running" and not node.unschedulable and marks(node) == []

    # The default timeout is over before Cluster Autoscaler acts.
    end = with_default.finishes()
    world.run(end.at + 1200)
    assert end.error == "ReplacementTimedOut" and "has not registered as a Node" in end.cause
    assert list(autoscaler.removed.values()) == ["unregistered"], "only the replacement of the other group"
    assert default.sizes == (1, 3, 6)


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


@pytest.mark.any_replacement
def test_a_function_killed_around_any_write_of_a_mark_leaves_none(world):
    """The first writes of two functions on Nodes, whichever carry the marks. `make campaign` tries both moments of each."""
    kills = [
        (moment, function, nth)
        for function, most in (("standby-node", 3), ("detach-terminate", 2))
        for nth in range(1, most + 1)
        for moment in (("before", "after") if nth % 2 else ("after", "before"))
    ]
    endings = []
    for number, (moment, function, nth) in enumerate(sample(kills, 5)):
        group = world.group(f"workers-{number}", size=2, minimum=1, maximum=3)
        world.faults.clear()
        world.faults.kill(moment, "kubernetes:PATCH nodes", function=function, nth=nth)
        end = world.recycle(group.nodes[0]).finishes()
        struck = not world.faults.not_struck()
        endings.append((number, struck, end.outcome, [marks(other) for other in group.nodes]))
    assert [ending for ending in endings if ending[2:] != ("recycled", [[], []])] == []
    assert sum(struck for _, struck, *_ in endings) >= 3
