"""A Lambda killed before and after mutating calls of the happy path: it ends the same. `make campaign` kills at each of them."""

from world.base.faults import kills

GROUPS = ("one", "two")


def happy_path(world):
    """In each of two groups a node whose recycle has every kind of call in it. Their pods are in namespaces of their names."""
    nodes = [world.group(name, size=2, minimum=1, maximum=3).nodes[0] for name in GROUPS]
    webs = [node.deployment("web", namespace=node.group.name, replicas=2) for node in nodes]
    for node in nodes:
        job = node.job("train", namespace=node.group.name, labels={"app": "train"})
        world.at("6m", job.finishes)
    return nodes, webs


def test_a_function_killed_around_any_mutating_call_ends_the_same(world):
    nodes, _ = happy_path(world)
    executions = [world.recycle(node, label_selector="app=train") for node in nodes]
    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 2
    points = world.write_points(nodes[0])
    assert len(points) > 10

    # In a further run, each execution is struck once, before or after a call about its own node.
    at = [("after", "autoscaling:EnterStandby"), ("before", "autoscaling:TerminateInstanceInAutoScalingGroup")]
    for struck in kills(points[::2], points[1::2], at=at):
        world.reset()
        nodes, webs = happy_path(world)
        for node, (moment, function, action, nth) in zip(nodes, struck, strict=True):
            world.faults.kill(moment, action, function=function, nth=nth, where=node.is_named_in)
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
        assert [(kill, ending) for kill, ending in zip(struck, endings, strict=True) if ending != same] == []
        assert world.faults.not_struck() == [], struck


def made(world, action, node):
    return [call for call in world.calls(action, succeeded=True) if node.is_named_in(call.parameters)]
