"""Which execution works on a node: races, dead owners, and refusals that touch nothing."""

import pytest


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=3).nodes[0]


def test_only_one_of_two_executions_in_the_same_second_works(world):
    world.reset(seed=1)
    nodes = {name: world.group(name, size=2, minimum=1, maximum=3).nodes[0] for name in ("one", "two")}
    pairs = {}
    for name, node in nodes.items():
        world.at("10m", node.job(name, labels={"app": "train"}).finishes)
        pairs[name] = [world.recycle(node, label_selector="app=train") for _ in range(2)]

    for name, executions in pairs.items():
        ends = [execution.finishes() for execution in executions]
        assert sorted(end.outcome for end in ends) == ["duplicate", "recycled"], name
        loser = next(end for end in ends if end.outcome == "duplicate")
        assert loser.at < 60, name
    entered = [call.parameters for call in world.calls("autoscaling:EnterStandby")]
    assert sorted(each["AutoScalingGroupName"] for each in entered) == ["one", "two"]


def test_the_next_execution_resumes_a_stopped_one(world):
    stopped_at = {"a": "10s", "b": "2m", "c": "5m", "d": "10m40s"}
    nodes = {name: world.group(name, size=2, minimum=1, maximum=3).nodes[0] for name in stopped_at}
    stopped, resumed = {}, {}
    for name, node in nodes.items():
        world.at("10m", node.job(name, labels={"app": "train"}).finishes)
        stopped[name] = world.recycle(node, label_selector="app=train")
    for name, moment in stopped_at.items():
        world.run(moment)
        stopped[name].stop()
        resumed[name] = world.recycle(nodes[name], label_selector="app=train")

    for name, execution in resumed.items():
        assert execution.finishes().outcome == "recycled", stopped_at[name]
        assert stopped[name].status == "ABORTED", stopped_at[name]
        assert sorted(world.groups[name].states.values()) == ["InService"] * 2, stopped_at[name]
    entered = [call.parameters for call in world.calls("autoscaling:EnterStandby")]
    assert sorted(each["AutoScalingGroupName"] for each in entered) == list(stopped_at)


@pytest.mark.any_replacement
def test_a_redriven_execution_touches_nothing(world, node):
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("5m")
    execution.stop()
    calls = len(world.writes())

    execution.redrive()
    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ClaimLost")
    assert len(world.writes()) == calls


@pytest.mark.any_replacement
def test_a_refusal_and_a_dry_run_write_nothing(world, node):
    node.group.protect(node)
    other = world.group("others", size=2, minimum=1, maximum=3).nodes[0]
    other.job("train", labels={"app": "train"})
    other.deployment("web", replicas=2)

    refused = world.recycle(node).finishes()
    planned = world.recycle(other, label_selector="app=train", dry_run=True).finishes()

    assert (refused.status, refused.error) == ("FAILED", "PreflightRefused")
    assert "scale_in_protection" in refused.cause
    assert planned.outcome == "planned"
    assert other.instance_id in "\n".join(planned.output["plan"]["steps"])
    assert planned.output["counts"] == {"awaited": 1, "evictable": 2}
    assert not world.writes()


def test_a_failure_before_anything_was_touched_releases_the_claim(world, node):
    world.faults.refuse("autoscaling:EnterStandby", code="AccessDenied", status=403, times=100)

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert not [key for key in node.annotations if key.startswith("recycle-eks/")]
    assert not [key for key in node.labels if key.startswith("recycle-eks/")]
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
