"""A Lambda killed before and after mutating calls of the happy path: it ends the same. `make campaign` kills at each of them."""

import json
from collections import Counter
from functools import partial

from world.base.faults import sample

GROUPS = ("one", "two")


def happy_path(world):
    """In each of two groups a node whose recycle has every kind of call in it. Their pods are in namespaces of their names."""
    nodes = [world.group(name, size=2, minimum=1, maximum=3).nodes[0] for name in GROUPS]
    webs = [node.deployment("web", namespace=node.group.name, replicas=2) for node in nodes]
    for node in nodes:
        job = node.job("train", namespace=node.group.name, labels={"app": "train"})
        world.at("20m", job.finishes)
    return nodes, webs


def is_about(node, parameters):
    text = json.dumps(parameters, default=str)
    return any(word in text for word in (node.instance_id, node.name, f'"{node.group.name}"'))


def test_a_function_killed_around_any_mutating_call_ends_the_same(world):
    nodes, _ = happy_path(world)
    executions = [world.recycle(node, label_selector="app=train") for node in nodes]
    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 2
    seen, points = Counter(), []
    for call in world.writes():
        if is_about(nodes[0], call.parameters):
            seen[call.function, call.action] += 1
            points.append((call.function, call.action, seen[call.function, call.action]))
    assert len(points) > 10

    # In each further run, each execution is struck once, before or after a call about its own node.
    for later, moment in enumerate(("before", "after")):
        struck = sample(points, 2, first=later)
        for first in range(0, len(struck), 2):
            world.reset()
            nodes, webs = happy_path(world)
            kills = [struck[(first + number) % len(struck)] for number in range(2)]
            for node, (function, action, nth) in zip(nodes, kills, strict=True):
                world.faults.kill(moment, action, function=function, nth=nth, where=partial(is_about, node))
            executions = [world.recycle(node, label_selector="app=train") for node in nodes]
            endings = [
                (
                    execution.finishes().outcome,
                    node.group.sizes,
                    sorted(node.group.states.values()),
                    node.exists,
                    len(web.running_pods()),
                    len(made(world, "autoscaling:EnterStandby", node)),
                    len(made(world, "autoscaling:TerminateInstanceInAutoScalingGroup", node)),
                )
                for node, web, execution in zip(nodes, webs, executions, strict=True)
            ]
            same = ("recycled", (1, 2, 3), ["InService", "InService"], False, 2, 1, 1)
            assert [(moment, kill, ending) for kill, ending in zip(kills, endings, strict=True) if ending != same] == []
            assert world.faults.not_struck() == [], (moment, kills)


def made(world, action, node):
    return [call for call in world.calls(action, succeeded=True) if is_about(node, call.parameters)]
