"""Throttled, killed, timed out after its effect: at a mutating call of the ways `hook` and Spot, the end is the same. This tries
some of the calls, `make campaign` each."""

import pytest

from world.base.beyond_models import refusal_of
from world.base.faults import sample

WAITS = {"recycle-eks/drain": "wait"}


def by_hook(world, until="4m", retains=False):
    """A member that its group terminates, with a pod to evict and one to wait for."""
    workers = world.group("impatient", size=2, minimum=1, maximum=3, retains=retains)
    node = workers.nodes[0]
    job = node.job("train", annotations=WAITS)
    web = node.deployment("web", replicas=2)
    world.at(until, job.finishes)
    workers.terminate(node)
    return workers, node, web


def by_retained_hook(world):
    """The same for a group that retains instances, and a hook that no execution keeps alive."""
    world.faults.refuse("autoscaling:RecordLifecycleActionHeartbeat", code="ValidationError", status=400, times=None)
    return by_hook(world, until="20m", retains=True)


def by_interruption(world):
    """A node that EC2 takes away, but not so soon that a retry would come too late."""
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    # Not a Job's: its controller would make a new one ten real seconds later.
    node.bare_pod("train", annotations=WAITS, exits_after=5)
    web = node.deployment("web", replicas=2)
    node.becomes_spot()
    world.recycle(node, urgency="spot", interrupted_at="2027-01-01T00:02:00Z")
    return workers, node, web


WAYS = {"retained": by_retained_hook, "interruption": by_interruption}


def finish(world):
    world.clock.run(until=lambda: bool(world.executions()), limit=world.seconds("1h"))
    return world.executions()[0].finishes()


@pytest.fixture(scope="module", params=sorted(WAYS))
def way(request, deployed_world):
    """The way, and every (function, action, n-th time) that changes something in a run without faults."""
    world = deployed_world
    world.reset()
    WAYS[request.param](world)
    assert finish(world).outcome == "recycled"
    points = world.write_points()
    assert len(points) > 8
    return WAYS[request.param], points


#: The API server sheds load.
TOO_MANY = {"code": "ThrottlingException", "status": 503}
FAULTS = {
    "throttled": lambda world, function, action, nth: world.faults.refuse(
        action, **TOO_MANY if "kubernetes" in action else refusal_of(action, "throttled"), message="Rate exceeded",
        function=function, nth=nth, times=2,
    ),
    "killed": lambda world, function, action, nth: world.faults.kill("before", action, function=function, nth=nth),
    "timed out": lambda world, function, action, nth: world.faults.hang(action, function=function, nth=nth),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_at_any_mutating_call_changes_nothing_of_the_end(world, way, fault):
    prepare, calls = way
    endings = []
    # The campaign has no interruption, so this tries more of its calls.
    many = 2 if prepare is by_interruption else 1
    for function, action, nth in sample(calls, many, first=len(calls) * (2 * sorted(FAULTS).index(fault) + 1) // (6 * many)):
        world.reset()
        workers, node, web = prepare(world)
        FAULTS[fault](world, function, action, nth)
        end = finish(world)
        world.wait(300)
        endings.append(
            (
                (function, action, nth),
                end.outcome,
                sorted(workers.states.values()),
                node.exists,
                len(web.running_pods()),
                [each for each in world.faults.not_struck() if "Heartbeat" not in str(each)],
            )
        )
    same = ("recycled", ["InService", "InService"], False, 2, [])
    assert [ending for ending in endings if ending[1:] != same] == []
