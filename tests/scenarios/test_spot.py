"""Spot: a node that EC2 takes away in two minutes, and one that it is likely to take away. The rules that start these executions
are tested with the other triggers; here they are started as those do it."""

import datetime

import pytest

WAITS = {"recycle-eks/drain": "wait"}


def interrupted(world, node, **fields):
    """The execution that the rule for interruption warnings starts, two minutes before EC2 takes the instance."""
    node.becomes_spot()
    at = world.clock.now() + 120
    world.at(world.clock.elapsed() + 120, node.is_terminated_in_the_console)
    return world.recycle(node, urgency="spot", interrupted_at=iso(at), **fields)


def iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_every_pod_gets_the_rest_of_two_minutes(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2, grace=30, exits_after=5)
    job = node.job("train", annotations=WAITS, grace=3_600, exits_after=60)

    execution = interrupted(world, node)
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    evictions = world.calls("kubernetes:POST pods/eviction", succeeded=True)
    assert len(evictions) == 3 and max(call.at for call in evictions) < 15
    assert not job.exists and len(web.running_pods()) == 2
    (terminated,) = world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)
    assert terminated.at < 120
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_pods_that_do_not_end_in_time_are_named(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    web = node.deployment("web", replicas=1)
    world.budget(web, min_available=1)

    end = interrupted(world, node).finishes()
    world.run(world.clock.elapsed() + 900)

    assert end.error == "NodeLost" and "web" in end.cause, end.cause
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_a_node_that_could_not_be_emptied_is_restored_if_the_interruption_does_not_come(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    web = node.deployment("web", replicas=1)
    world.budget(web, min_available=1)

    node.becomes_spot()
    end = world.recycle(node, urgency="spot", interrupted_at=iso(world.clock.now() + 120)).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut"), end.cause
    assert 720 <= end.at < 900 and not node.has_taint("recycle-eks/draining")
    assert len(web.running_pods()) == 1 and workers.states[node.instance_id] == "InService"


@pytest.mark.parametrize("after", ["5m", "20s"])
def test_an_interruption_takes_a_planned_drain_over_in_standby_or_before(world, after):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS, exits_after=10)
    planned = world.recycle(node)
    world.run(after)

    end = interrupted(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert planned.finishes().outcome == "superseded"
    world.run(world.clock.elapsed() + 600)
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_an_interruption_takes_over_from_a_recommendation(world):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS, exits_after=10)
    node.becomes_spot()
    recommended = world.recycle(node, urgency="spot")
    world.run("10m")

    end = interrupted(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert recommended.finishes().outcome == "superseded"


def test_a_recommendation_is_an_ordinary_drain_that_does_not_queue(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, second = workers.nodes[:2]
    first.deployment("slow", replicas=1, exits_after=1_200, grace=3_600)
    world.recycle(first)
    world.run("5m")
    job = second.job("train", annotations=WAITS)
    world.at("20m", job.finishes)

    second.becomes_spot()
    end = world.recycle(second, urgency="spot").finishes()

    assert end.outcome == "recycled" and job.phase == "Succeeded"
    assert world.executions()[1].entered("WaitInQueue") == []


def test_an_interruption_of_a_member_under_the_hook_completes_it_in_time(world):
    workers = world.group("held", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS, exits_after=10)
    workers.terminate(node)
    world.run("5m")

    end = interrupted(world, node).finishes()

    assert end.outcome == "recycled", end.cause
    assert world.executions()[0].finishes().outcome == "superseded"
