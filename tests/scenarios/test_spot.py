"""Spot: a node that EC2 takes away in two minutes, and one that it is likely to take away. The rules that start these executions
are tested with the other triggers; here they are started as those do it."""

import datetime

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


def test_pods_that_do_not_end_in_time_are_named_and_their_node_is_restored_if_the_interruption_does_not_come(world):
    groups = [world.group(name, size=2, minimum=1, maximum=3) for name in ("taken", "kept")]
    taken, kept = [group.nodes[0] for group in groups]
    for node in (taken, kept):
        web = node.deployment(f"web-{node.group.name}", replicas=1)
        world.budget(web, min_available=1)

    lost = interrupted(world, taken)
    kept.becomes_spot()
    end = world.recycle(kept, urgency="spot", interrupted_at=iso(world.clock.now() + 120)).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut"), end.cause
    assert 720 <= end.at < 900 and not kept.has_taint("recycle-eks/draining")
    assert len(web.running_pods()) == 1 and kept.group.states[kept.instance_id] == "InService"
    end = lost.finishes()
    world.run(end.at + 900)
    assert end.error == "NodeLost" and "web-taken" in end.cause, end.cause
    assert sorted(taken.group.states.values()) == ["InService"] * 2


def test_an_interruption_takes_over_from_every_other_execution(world):
    """In this order: soon after the start, in Standby, under the lifecycle hook, after a recommendation, in a larger group."""
    rows = {"20s": "workers", "5m": "standby", "6m": "held", "7m": "recommended", "8m": "surge"}
    nodes = {after: world.group(name, size=2, minimum=1, maximum=4).nodes[0] for after, name in rows.items()}
    for node in nodes.values():
        # Not a Job's: its controller would make a new one ten real seconds later.
        node.bare_pod(f"train-{node.group.name}", annotations=WAITS, exits_after=10)
    nodes["7m"].becomes_spot()
    earlier = {after: world.recycle(nodes[after]) for after in ("20s", "5m")}
    earlier["7m"] = world.recycle(nodes["7m"], urgency="spot")
    earlier["8m"] = world.recycle(nodes["8m"], replacement="surge")
    nodes["6m"].group.terminate(nodes["6m"])

    interruptions = {}
    for after, node in nodes.items():
        world.run(after)
        interruptions[after] = interrupted(world, node)
    known = {each.arn for each in (*earlier.values(), *interruptions.values())}
    (earlier["6m"],) = [each for each in world.executions() if each.arn not in known]

    for after, execution in interruptions.items():
        end = execution.finishes()
        assert end.outcome == "recycled", (after, end.cause)
        assert earlier[after].finishes().outcome == "superseded", after
    world.wait(600)
    for after in ("20s", "5m", "8m"):
        assert sorted(nodes[after].group.states.values()) == ["InService"] * 2, after


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
