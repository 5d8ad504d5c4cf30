"""AWS and the cluster fail, for a while or for good: what can be waited for is waited for, and a failure says what it left."""

from prepare import STEPS


def cluster_is_away(world, since, until="100d", status=503):
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=status, since=since, until=until)


def test_an_api_server_that_is_away_for_an_hour_is_waited_for(world, node, job):
    def reachable(yes: bool) -> None:
        world.kubernetes.proxy.is_reachable = yes

    execution = world.recycle(node, label_selector="app=train")
    # Also beyond the time-out that an operator has extended.
    extended = world.group("extended", size=2, minimum=1, maximum=4).nodes[0]
    other = extended.job("other", labels={"app": "train"})
    beyond = world.recycle(extended, label_selector="app=train", drain_timeout=600)
    world.at("4m", lambda: extended.annotate("recycle-eks/drain-until", "2027-01-02T00:00:00Z"))
    cluster_is_away(world, "5m", "35m", 401)
    cluster_is_away(world, "35m", "45m", 503)
    world.at("45m", lambda: reachable(False))
    world.at("65m", lambda: reachable(True))
    for each in (job, other):
        world.at("70m", each.finishes)

    # Once more when the nodes are drained.
    world.clock.run(until=lambda: bool(execution.entered("DetachTerminate")))
    cluster_is_away(world, world.clock.elapsed(), world.clock.elapsed() + 1500)

    for one in (execution, beyond):
        end = one.finishes()
        assert end.outcome == "recycled", end.cause
    assert world.faults.not_struck() == []


def test_it_is_waited_for_while_the_replacement_comes(world, node, job):
    execution = world.recycle(node, label_selector="app=train", replacement_timeout=3600)
    cluster_is_away(world, "1m", "30m")
    world.at("35m", job.finishes)

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


def test_invocations_that_lambda_refuses_or_whose_answer_is_lost_are_made_again(world, node, job):
    node.deployment("web")
    world.at("20m", job.finishes)
    functions = ["claim-node", "standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate"]
    refusals = [("TooManyRequestsException", 429), ("ServiceException", 500)] * 3
    for function, (code, status) in zip(functions, refusals, strict=True):
        world.faults.invoke(function, code=code, status=status, times=3)
        world.faults.invoke(function, nth=4, after=True)

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.outcome == "recycled", end.cause
    assert not world.faults.not_struck()
    assert len(world.calls("autoscaling:EnterStandby", succeeded=True)) == 1


def test_functions_that_lambda_has_set_to_inactive_are_waited_for(world, node, job):
    """As after weeks without an execution, in a VPC. The last one is inactive when a node is to be restored."""
    recycled = world.group("recycled", size=2, minimum=1, maximum=4).nodes[0]
    recycled.deployment("web")
    functions = [f"recycle-eks-{step}" for step in STEPS if step != "select-nodes"]
    world.host.inactive.update(functions)

    execution, restored = world.recycle(recycled), world.recycle(node, label_selector="app=train", drain_timeout=600)
    end = execution.finishes()
    assert end.outcome == "recycled", end.cause
    assert world.host.inactive <= {"recycle-eks-restore-node"}

    end = restored.finishes()
    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert node.group.states[node.instance_id] == "InService"
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert not world.host.inactive


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


def test_only_one_of_three_executions_takes_over_from_a_dead_owner(world):
    world.reset(seed=1)
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    world.at("20m", node.job("train", labels={"app": "train"}).finishes)
    stopped = world.recycle(node, label_selector="app=train")
    world.run("10m")
    stopped.stop()

    executions = [world.recycle(node, label_selector="app=train") for _ in range(3)]

    outcomes = sorted(execution.finishes().outcome for execution in executions)
    assert outcomes == ["duplicate", "duplicate", "recycled"]
