"""Which execution works on a node: races, dead owners, and refusals that touch nothing."""

import pytest


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=3).nodes[0]


@pytest.mark.parametrize("seed", range(4))
def test_only_one_of_two_executions_in_the_same_second_works(world, seed):
    world.reset(seed=seed)
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    job = node.job("train", labels={"app": "train"})
    world.at("10m", job.finishes)

    first, second = (world.recycle(node, label_selector="app=train") for _ in range(2))
    ends = [first.finishes(), second.finishes()]

    assert sorted(end.outcome for end in ends) == ["duplicate", "recycled"]
    loser = next(end for end in ends if end.outcome == "duplicate")
    assert loser.at < 60
    assert len(world.calls("autoscaling:EnterStandby")) == 1


@pytest.mark.parametrize("stop_at", ["10s", "2m", "5m", "10m40s"])
def test_the_next_execution_resumes_a_stopped_one(world, node, stop_at):
    job = node.job("train", labels={"app": "train"})
    world.at("10m", job.finishes)
    stopped = world.recycle(node, label_selector="app=train")
    world.run(stop_at)
    stopped.stop()

    end = world.recycle(node, label_selector="app=train").finishes()

    assert stopped.status == "ABORTED"
    assert end.outcome == "recycled"
    assert len(world.calls("autoscaling:EnterStandby")) == 1
    assert sorted(world.groups["workers"].states.values()) == ["InService"] * 2


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


def test_a_refusal_releases_nothing_because_nothing_was_claimed(world, node):
    node.group.protect(node)

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert "scale_in_protection" in end.cause
    assert not world.writes()


def test_a_failure_before_anything_was_touched_releases_the_claim(world, node):
    world.faults.refuse("autoscaling:EnterStandby", code="AccessDenied", status=403, times=100)

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert not [key for key in node.annotations if key.startswith("recycle-eks/")]
    assert not [key for key in node.labels if key.startswith("recycle-eks/")]
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")


def test_a_dry_run_prints_the_plan_and_writes_nothing(world, node):
    node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)

    end = world.recycle(node, label_selector="app=train", dry_run=True).finishes()

    assert end.outcome == "planned"
    plan = "\n".join(end.output["plan"]["steps"])
    assert node.instance_id in plan
    assert end.output["counts"] == {"awaited": 1, "evictable": 2}
    assert not world.writes()
