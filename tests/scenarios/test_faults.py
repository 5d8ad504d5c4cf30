"""AWS and the cluster fail, for a while or for good: what can be waited for is waited for, and a failure says what it left."""

import pytest

from prepare import STEPS


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


@pytest.fixture
def job(node):
    return node.job("train", labels={"app": "train"})


def cluster_is_away(world, since, until="100d", status=503):
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=status, since=since, until=until)


@pytest.mark.parametrize("status", [401, 503])
def test_an_api_server_that_is_away_for_an_hour_in_the_drain_is_waited_for(world, node, job, status):
    execution = world.recycle(node, label_selector="app=train")
    cluster_is_away(world, "5m", "65m", status)
    world.at("70m", job.finishes)

    assert execution.finishes().outcome == "recycled"


def test_it_is_waited_for_also_beyond_the_time_out_that_an_operator_has_extended(world, node, job):
    execution = world.recycle(node, label_selector="app=train", drain_timeout=600)
    world.at("5m", lambda: node.annotate("recycle-eks/drain-until", "2027-01-02T00:00:00Z"))
    cluster_is_away(world, "8m", "50m")
    world.at("1h", job.finishes)

    assert execution.finishes().outcome == "recycled"


def test_it_is_waited_for_while_the_replacement_comes(world, node, job):
    execution = world.recycle(node, label_selector="app=train", replacement_timeout=3600)
    cluster_is_away(world, "1m", "30m")
    world.at("35m", job.finishes)

    assert execution.finishes().outcome == "recycled"


def test_it_is_waited_for_when_the_node_is_drained(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.at("20m", job.finishes)
    world.clock.run(until=lambda: bool(execution.entered("DetachTerminate")))
    cluster_is_away(world, world.clock.elapsed(), world.clock.elapsed() + 1500)

    assert execution.finishes().outcome == "recycled"


def test_if_the_cluster_is_away_for_good_the_aws_half_is_restored_and_the_next_execution_resumes(world, node, job):
    node.group.next_launch(takes="10m")
    execution = world.recycle(node, label_selector="app=train")
    cluster_is_away(world, "2m")

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceUnavailable")
    assert "Its Node object cannot be read now" in end.cause
    assert node.group.states[node.instance_id] == "InService"
    assert not [m for m in world.autoscaling.group("workers").instance_states if m.protected_from_scale_in]
    world.faults.clear()
    job.finishes()
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"


@pytest.mark.parametrize(("code", "status"), [("TooManyRequestsException", 429), ("ServiceException", 500)])
def test_invocations_that_lambda_refuses_or_whose_answer_is_lost_are_made_again(world, node, job, code, status):
    node.deployment("web")
    world.at("20m", job.finishes)
    functions = ["claim-node", "standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate"]
    for function in functions:
        world.faults.invoke(function, code=code, status=status, times=3)
        world.faults.invoke(function, code=code, status=status, nth=4, after=True)

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.outcome == "recycled", end.cause
    assert not world.faults.not_struck()
    assert len(world.calls("autoscaling:EnterStandby", succeeded=True)) == 1


def test_functions_that_lambda_has_set_to_inactive_are_waited_for(world, node):
    """As after weeks without an execution, in a VPC."""
    node.deployment("web")
    functions = [f"recycle-eks-{step}" for step in STEPS if step not in ("restore-node", "select-nodes")]
    world.host.inactive.update(functions)

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled", end.cause
    assert not world.host.inactive


def test_a_function_that_is_inactive_when_a_node_is_to_be_restored_is_waited_for(world, node, job):
    world.host.inactive.add("recycle-eks-restore-node")

    end = world.recycle(node, label_selector="app=train", drain_timeout=3600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert node.group.states[node.instance_id] == "InService"
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")


def test_volumes_that_stay_attached_hold_the_instance_for_five_minutes(world, node, job):
    node.kubernetes.set_volumes("vol-1")
    world.at("20m", job.finishes)
    execution = world.recycle(node, label_selector="app=train")

    end = execution.finishes()

    terminated = next(call for call in world.calls("autoscaling:TerminateInstanceInAutoScalingGroup"))
    assert end.outcome == "recycled"
    assert terminated.at >= execution.entered("DetachTerminate")[0] + 300


def test_a_replacement_that_vanishes_after_its_reservation_is_replaced_by_the_next(world, node, job):
    world.faults.refuse("kubernetes:PATCH nodes", code="InternalError", status=500, function="standby-node", nth=3, times=3)
    execution = world.recycle(node, label_selector="app=train")
    world.clock.run(until=lambda: "recycle-eks/replacement-for" in node.group.newest.annotations)
    vanished = node.group.newest
    node.group.terminate(vanished)
    world.at("15m", job.finishes)

    end = execution.finishes()

    assert end.outcome == "recycled"
    assert vanished.instance_id not in node.group.states
    assert sorted(node.group.states.values()) == ["InService"] * 2


@pytest.mark.parametrize("seed", range(2))
def test_only_one_of_three_executions_takes_over_from_a_dead_owner(world, seed):
    world.reset(seed=seed)
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    job = node.job("train", labels={"app": "train"})
    stopped = world.recycle(node, label_selector="app=train")
    world.run("10m")
    stopped.stop()
    world.at("20m", job.finishes)

    executions = [world.recycle(node, label_selector="app=train") for _ in range(3)]

    assert sorted(execution.finishes().outcome for execution in executions) == ["duplicate", "duplicate", "recycled"]
