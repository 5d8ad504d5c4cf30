"""A Lambda killed before and after mutating calls of the happy path: it ends the same. `make campaign` kills at each of them."""

import pytest

from world.base.faults import sample


def happy_path(world):
    """A small recycle that has every kind of call in it."""
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    web = node.deployment("web", replicas=2)
    world.at("20m", job.finishes)
    return workers, node, web


@pytest.fixture(scope="module")
def mutating_calls(deployed_world):
    """Every (function, action, n-th time) that changes something in a run without faults."""
    world = deployed_world
    world.reset()
    _, node, _ = happy_path(world)
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"
    points = world.write_points()
    assert len(points) > 10
    return points


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_function_killed_around_any_mutating_call_ends_the_same(world, mutating_calls, moment):
    endings = []
    for function, action, nth in sample(mutating_calls, 3, first=moment == "after"):
        world.reset()
        workers, node, web = happy_path(world)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = world.recycle(node, label_selector="app=train").finishes()
        endings.append(
            (
                (function, action, nth),
                end.outcome,
                workers.sizes,
                sorted(workers.states.values()),
                node.exists,
                len(web.running_pods()),
                len(world.calls("autoscaling:EnterStandby", succeeded=True)),
                len(world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)),
                world.faults.not_struck(),
            )
        )
    same = ("recycled", (1, 2, 3), ["InService", "InService"], False, 2, 1, 1, [])
    assert [ending for ending in endings if ending[1:] != same] == []
