"""Twenty scale-ins in one minute in an account that runs four functions at once: every heartbeat in time, nothing failed."""

import pytest

WAITS = {"recycle-eks/drain": "wait"}
NODES = 20


@pytest.mark.long
def test_twenty_nodes_that_a_group_terminates_at_once_are_all_drained(world):
    workers = world.group("held", size=NODES, minimum=0, maximum=NODES)
    jobs = [node.job(f"train-{number}", annotations=WAITS) for number, node in enumerate(workers.nodes)]
    for job in jobs:
        world.at("22m", job.finishes)
    world.host.concurrency = 4
    for function in ("claim-node", "taint-node", "check-pods", "evict-pods", "detach-terminate"):
        world.host.duration[f"recycle-eks-{function}"] = 6.0

    for left in range(NODES - 1, -1, -1):
        world.at((NODES - left) * 60 / NODES, lambda left=left: workers.grow(left))
    world.clock.run(until=lambda: len(world.executions()) == NODES, limit=120)
    every = world.executions()
    world.clock.run(until=lambda: all(each.status != "RUNNING" for each in every), limit=world.seconds("6h"))

    ends = [each.finishes() for each in every]
    assert {(end.status, end.outcome) for end in ends} == {("SUCCEEDED", "recycled")}, [end.cause for end in ends if end.cause]
    assert workers.states == {} and not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    throttled = [error for each in every for state in ("ClaimNode", "CheckPods") for error in each.errors(state)]
    assert throttled.count("Lambda.TooManyRequestsException") > NODES
    assert set(throttled) == {"Lambda.TooManyRequestsException"}
    first_waits = {each.answers("CheckPods")[0]["wait_seconds"] for each in every}
    assert len(first_waits) > 10 and first_waits <= set(range(30, 60)), first_waits
    beats: dict[str, list[float]] = {}
    for call in world.aws.calls:
        if call.action == "autoscaling:RecordLifecycleActionHeartbeat":
            beats.setdefault(call.parameters["InstanceId"], []).append(call.at)
    assert len(beats) == NODES
    for moments in beats.values():
        gaps = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
        assert max(gaps) < 3_600 * 2 / 3, gaps
