"""The hook path: any termination of a member of a group with the lifecycle hook waits until its pods are done."""

import json

import pytest

WAITS = {"recycle-eks/drain": "wait"}


def group_of(world, retains: bool = False, size: int = 2, **fields):
    return world.group("retained" if retains else "held", size=size, minimum=0, maximum=4, retains=retains, **fields)


def both_kinds(world):
    """A member of a group that does not retain instances, and one of a group that does."""
    return [group_of(world, retains).nodes[0] for retains in (False, True)]


def with_job(world, node, until: str):
    job = node.job(f"train-{node.group.name}", annotations=WAITS)
    world.at(until, job.finishes)
    return job


def outlasts(world, node, until: str) -> bool:
    """Whether its machine ended after that time, and no pod with it."""
    (end,) = [end for end in world.ends if end.instance_id == node.instance_id]
    return end.at >= world.seconds(until) and end.pods == ()


def ended(world, count: int = 1, within: str = "40d"):
    """The first `count` executions, once all that there are have ended."""

    def is_over() -> bool:
        every = world.executions()
        return len(every) >= count and all(each.status != "RUNNING" for each in every)

    world.clock.run(until=is_over, limit=world.clock.elapsed() + world.seconds(within))
    every = world.executions()
    assert is_over(), [(each.arn, each.status, each.path[-3:]) for each in every]
    return [each.finishes() for each in every]


def drain_timeout(world, seconds: int) -> None:
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"drain_timeout": seconds})}


def heartbeats(world):
    return [call.at for call in world.aws.calls if call.action == "autoscaling:RecordLifecycleActionHeartbeat"]


def keeps_the_hook_alive(world, hours: int) -> None:
    """Three heartbeats in each hour that the time-out of the hook lasts."""
    beats = heartbeats(world)
    gaps = [later - earlier for earlier, later in zip([0.0, *beats], beats, strict=False)]
    assert len(beats) > hours * 3 - 5 and max(gaps) <= 1_230, gaps


def test_a_scale_in_waits_hours_for_a_job_and_then_takes_the_instance(world):
    workers = group_of(world, size=1)
    (node,) = workers.nodes
    job = with_job(world, node, "2h")
    web = node.deployment("web", replicas=1)
    workers.grow(0)

    (end,) = ended(world)

    assert end.outcome == "recycled", end.cause
    assert job.phase == "Succeeded" and not web.running_pods()
    assert world.seconds("2h") < end.at < world.seconds("2h30m")
    assert workers.states == {} and workers.sizes == (0, 0, 4)
    assert world.instance(node.instance_id).state == "terminated"
    keeps_the_hook_alive(world, hours=2)


@pytest.mark.reading("terminating_wait_counts")
def test_any_termination_of_a_member_waits(world):
    """Longer than a heartbeat lasts."""
    until = {"impatient": "20m", "held": "70m"}
    nodes = {name: world.group(name, size=2, minimum=1, maximum=3).nodes[0] for name in until}
    for name, node in nodes.items():
        with_job(world, node, until[name])
    for node in nodes.values():
        node.group.terminate(node)
    world.run("15m")
    for node in nodes.values():
        assert len(node.group.states) == (2 if world.unknowns.terminating_wait_counts else 3)
    ends = ended(world, 2)
    world.wait(300)

    assert [end.outcome for end in ends] == ["recycled"] * 2, [end.cause for end in ends]
    for name, node in nodes.items():
        assert outlasts(world, node, until[name]) and sorted(node.group.states.values()) == ["InService"] * 2, name
    assert not world.calls("autoscaling:TerminateInstanceInAutoScalingGroup")


def test_in_a_group_that_retains_instances_a_drain_outlasts_the_hook(world):
    drain_timeout(world, 30 * 86_400)
    workers = group_of(world, retains=True)
    node = workers.nodes[0]
    job = with_job(world, node, "50h")

    workers.terminate(node)
    world.run("49h")
    assert workers.states[node.instance_id] == "Terminating:Retained"
    beats = heartbeats(world)
    assert beats and max(beats) < world.seconds("48h30m"), "the hook had 48 hours"
    keeps_the_hook_alive(world, hours=48)
    end, raised_again = ended(world)

    assert end.outcome == "recycled", end.cause
    assert raised_again.outcome == "duplicate", "the termination of a retained member raises the hook once more"
    assert world.calls("autoscaling:CompleteLifecycleAction", succeeded=True)
    assert job.phase == "Succeeded" and end.history_events < 25_000
    assert node.instance_id not in workers.states
    assert len(world.calls("autoscaling:TerminateInstanceInAutoScalingGroup", succeeded=True)) == 1


def test_an_execution_that_begins_before_the_group_retains_the_member_drains_it(world):
    world.timings.retain = 600
    workers = group_of(world, retains=True)
    node = workers.nodes[0]
    job = with_job(world, node, "30m")
    hook = {"AutoScalingGroupName": workers.name, "LifecycleHookName": "recycle-eks", "InstanceId": node.instance_id}

    workers.terminate(node)
    world.aws.client("autoscaling").complete_lifecycle_action(**hook, LifecycleActionResult="ABANDON")
    assert workers.states[node.instance_id] == "Terminating:Proceed"
    first, *others = ended(world)

    assert first.outcome == "recycled" and job.phase == "Succeeded", (first.outcome, first.cause)
    assert {end.outcome for end in others} <= {"duplicate"} and node.instance_id not in workers.states


def test_without_retain_the_end_of_the_hook_is_reported_beforehand(world, cli):
    drain_timeout(world, 30 * 86_400)
    workers = group_of(world)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS)

    workers.terminate(node)
    world.run("1h")
    then = node.progress["then"]
    assert "the hook ends at 2027-01-03T00:00:0" in then and "does not retain" in then
    (row,) = cli("status", "--output", "json").document["nodes"]
    assert row["then"] == then and "  group terminates  pods: 1 awaited" in cli("status").text
    events = [event["message"] for event in world.kubernetes.events(node.name)]
    assert any("the hook ends at 2027-01-03" in message for message in events), events
    assert any("the hook ends at 2027-01-03" in text for text in world.notifications), world.notifications


def test_extend_says_if_the_hook_ends_before_the_drain_and_what_to_do(world, cli):
    held, retained = both_kinds(world)
    for node in (held, retained):
        node.job(f"train-{node.group.name}", annotations=WAITS)
        node.group.terminate(node)
    world.run("1h")

    warned, quiet = (cli("extend", node.instance_id, "--by", "10d", pace=0) for node in (held, retained))
    assert (warned.code, quiet.code) == (0, 0) and "warning" not in quiet.text, (warned, quiet)
    assert "warning: the hook ends at 2027-01-03T00:" in warned.text
    assert "does not retain it: to keep it, set TerminateHookAbandon to retain" in warned.text
    shorter = cli("extend", held.instance_id, "--until", "2027-01-02T12:00:00Z", "-o", "json", pace=0).document
    assert "warning" not in shorter
    longer = cli("extend", held.instance_id, "--until", "2027-01-12T00:00:00Z", "-o", "json", pace=0).document
    assert longer["warning"].startswith("the hook ends at 2027-01-03T00:")


def test_a_policy_that_is_set_during_the_drain_ends_the_warnings(world, cli):
    drain_timeout(world, 30 * 86_400)
    workers = group_of(world)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS)
    workers.terminate(node)
    world.run("1h")
    assert "hook_until" in node.progress

    world.aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=workers.name,
        InstanceLifecyclePolicy={"RetentionTriggers": {"TerminateHookAbandon": "retain"}},
    )
    world.run("5h")
    assert "hook_until" not in node.progress and "Terminating:Retained" in node.progress["then"], node.progress
    (row,) = cli("status", "--output", "json").document["nodes"]
    assert (row["end"], row["until"][:10]) == ("kept", "2027-01-31")
    extended = cli("extend", node.instance_id, "--by", "1d", pace=0)
    assert extended.code == 0 and "warning" not in extended.text, extended
    restore = cli("restore", node.instance_id)
    assert restore.code == 8 and "a node that a lifecycle hook holds cannot be restored" in restore.errors, restore


def test_finish_names_the_pods_that_end_with_a_held_node_and_only_yes_ends_its_drain(world, cli):
    workers = group_of(world)
    node = workers.nodes[0]
    job = node.job("train", annotations=WAITS)
    workers.terminate(node)
    world.run("1h")

    refused = cli("finish", node.instance_id)
    assert refused.code == 8 and job.name in refused.errors and "--yes" in refused.errors, refused
    assert "recycle-eks/drain-until" not in node.annotations

    assert cli("finish", "--yes", node.instance_id).code == 0
    (end,) = ended(world)
    assert end.at < world.seconds("2h")


def test_a_lost_event_costs_half_an_hour_and_nothing_else(world):
    world.let_sweep()
    for nth in (1, 2):
        world.events.lose("*:stateMachine:recycle-eks-recycle-node*", nth=nth)
    nodes = both_kinds(world)
    for node in nodes:
        with_job(world, node, "35m")
    for node in nodes:
        node.group.terminate(node)
    ends = ended(world, 2)

    assert [60 < each.steps[0][0] <= world.seconds("30m") for each in world.executions()] == [True] * 2
    assert [end.outcome for end in ends] == ["recycled"] * 2
    assert [outlasts(world, node, "35m") for node in nodes] == [True] * 2


def test_an_event_that_comes_twice_starts_nothing_twice(world):
    world.events.repeat("*:stateMachine:recycle-eks-recycle-node*")
    workers = group_of(world)
    with_job(world, workers.nodes[0], "10m")

    workers.terminate(workers.nodes[0])

    assert sorted(end.outcome for end in ended(world, 2)) == ["duplicate", "recycled"]


def test_without_any_heartbeat_a_retained_node_goes_on_and_another_is_lost_by_name(world):
    world.faults.refuse("autoscaling:RecordLifecycleActionHeartbeat", code="ValidationError", status=400, times=None)
    held, retained = both_kinds(world)
    lost = held.job("train-held", annotations=WAITS)
    with_job(world, retained, "75m")

    held.group.terminate(held)
    world.run("30s")
    retained.group.terminate(retained)
    # The end of the retained member raises the hook once more, which is a duplicate.
    of_held, of_retained, *_ = ended(world, 2)

    assert of_held.error == "NodeLost" and lost.name in of_held.cause and of_held.at < world.seconds("2h")
    assert "RestoreNode" not in world.executions()[1].path
    assert of_retained.outcome == "recycled" and outlasts(world, retained, "75m") and of_retained.at > world.seconds("75m")


def test_another_execution_follows_one_that_dies(world):
    world.let_sweep()
    nodes = both_kinds(world)
    for node in nodes:
        with_job(world, node, "55m")
    for node in nodes:
        node.group.terminate(node)
    world.run("20m")
    for execution in world.executions():
        execution.stop()

    ends = ended(world, 4)

    assert [end.outcome for end in ends] == [None, None, "recycled", "recycled"]
    assert [outlasts(world, node, "55m") for node in nodes] == [True] * 2
    assert all(each.steps[0][0] <= world.seconds("50m") for each in world.executions()[2:])


def test_a_node_whose_time_is_over_keeps_its_taint_and_is_left_to_an_operator_if_retained(world):
    world.let_sweep()
    drain_timeout(world, 1_800)
    nodes = both_kinds(world)
    jobs = [node.job(f"train-{node.group.name}", annotations=WAITS) for node in nodes]
    for node in nodes:
        node.group.terminate(node)

    for end in ended(world, 2):
        assert (end.status, end.error) == ("FAILED", "DrainTimedOut"), end.cause
        assert "terminate-instance-in-auto-scaling-group" in end.cause
    for node in nodes:
        assert node.has_taint("recycle-eks/draining") and "recycle-eks/claim" not in node.annotations, node.group
        assert "recycle-eks:gave-up" in world.instance(node.instance_id).tags, node.group
    world.wait(60)
    sent = len(world.notifications)
    world.run("2h")

    assert len(world.executions()) == 2 and len(world.notifications) == sent
    held, retained = nodes
    assert held.instance_id not in held.group.states
    assert retained.group.states[retained.instance_id] == "Terminating:Retained" and jobs[1].phase == "Running"
    world.aws.client("ec2").delete_tags(Resources=[retained.instance_id], Tags=[{"Key": "recycle-eks:gave-up"}])
    jobs[1].finishes()
    assert ended(world, 3)[2].outcome == "recycled"
    assert retained.instance_id not in retained.group.states


def test_a_member_that_goes_to_the_warm_pool_is_released_at_once(world):
    workers = group_of(world)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS)

    world.autoscaling.move_to_warm_pool(node.instance_id)
    (end,) = ended(world)

    assert end.outcome == "released" and "WarmPool" in end.output["reason"]
    assert end.at < 60 and node.instance_id not in workers.states
    assert "recycle-eks/claim" not in node.annotations


def test_a_member_whose_root_volume_is_replaced_is_released_with_its_pods(world):
    workers = group_of(world)
    node = workers.nodes[0]
    job = node.job("train", annotations=WAITS)

    world.autoscaling.replace_root_volume(node.instance_id)
    (end,) = ended(world)
    world.run(end.at + 300)

    assert end.outcome == "released" and "goes to the AutoScalingGroup of group" in end.output["reason"]
    assert end.at < 60 and workers.states[node.instance_id] == "InService"
    assert job.exists and not node.unschedulable and "recycle-eks/claim" not in node.annotations


def test_an_instance_that_never_registered_is_released_at_once_unless_the_cluster_is_away(world):
    workers = group_of(world, size=1)
    workers.next_launch(never_registers=True)
    workers.grow(2)
    world.run("10m")
    (stranger,) = set(workers.states) - {node.instance_id for node in workers.nodes if node.exists}
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None)
    world.at(world.clock.elapsed() + 120, world.faults.clear)
    world.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=stranger, ShouldDecrementDesiredCapacity=True
    )
    world.wait(100)
    assert workers.states[stranger] == "Terminating:Wait"

    (end,) = ended(world)

    assert end.outcome == "released" and "no Node in cluster world" in end.output["reason"]
    world.wait(300)
    assert stranger not in workers.states


def test_a_member_of_another_cluster_is_released_and_not_touched(world):
    workers = world.group("held", size=2, minimum=0, maximum=4, cluster="production")

    workers.grow(1)
    (end,) = ended(world)
    world.run("10m")

    assert end.outcome == "released" and "cluster production" in end.output["reason"]
    assert len(workers.states) == 1
    assert {call.action for call in world.writes()} == {"autoscaling:CompleteLifecycleAction"}


def test_other_hooks_and_other_groups_are_left_alone(world):
    workers = world.group("workers", size=2, minimum=0, maximum=3)
    held = group_of(world)
    autoscaling = world.aws.client("autoscaling")
    for group in ("workers", "held"):
        autoscaling.put_lifecycle_hook(
            AutoScalingGroupName=group,
            LifecycleHookName="theirs",
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=1_800,
            DefaultResult="CONTINUE",
        )
    theirs, ours = workers.nodes[0], held.nodes[0]
    world.let_sweep()
    workers.terminate(theirs)
    world.run("20m")
    assert not world.executions() and workers.states[theirs.instance_id] == "Terminating:Wait"

    held.terminate(ours)
    (end,) = ended(world)

    assert end.outcome == "recycled"
    assert held.states.get(ours.instance_id) in (None, "Terminating:Wait", "Terminating:Proceed")
    assert not [
        c for c in world.calls("autoscaling:CompleteLifecycleAction") if c.parameters["LifecycleHookName"] != "recycle-eks"
    ]


def test_a_heartbeat_that_fails_is_recorded_again(world):
    # Throttled, and later without an answer.
    world.faults.refuse("autoscaling:RecordLifecycleActionHeartbeat", code="Throttling", status=400, times=3)
    world.faults.lose_answer("autoscaling:RecordLifecycleActionHeartbeat", nth=5, times=2)
    workers = world.group("impatient", size=2, minimum=1, maximum=3)
    job = with_job(world, workers.nodes[0], "30m")

    workers.terminate(workers.nodes[0])
    (end,) = ended(world)

    assert end.outcome == "recycled" and job.phase == "Succeeded" and not world.faults.not_struck()


def test_a_termination_by_a_function_is_completed_by_this_function(world):
    ways = {"before": "held", "after": "impatient"}
    nodes = {way: world.group(name, size=2, minimum=0, maximum=4).nodes[0] for way, name in ways.items()}
    for node in nodes.values():
        with_job(world, node, "20m")

    planned = {way: world.recycle(node, replacement=way) for way, node in nodes.items()}
    for way, execution in planned.items():
        end = execution.finishes()
        assert end.outcome == "recycled", (way, end.cause)
    ended(world, 4)

    mine = [execution.arn for execution in planned.values()]
    others = [each.finishes().outcome for each in world.executions() if each.arn not in mine]
    assert len(others) >= 2 and set(others) <= {"duplicate", "already_gone"}
    for way, node in nodes.items():
        assert sorted(node.group.states.values()) == ["InService"] * 2, way


def test_the_termination_of_an_empty_replacement_in_a_restore_is_completed_too(world):
    workers = group_of(world)
    node = workers.nodes[0]
    node.job("train", annotations=WAITS)

    end = world.recycle(node, drain_timeout=600).finishes()
    ended(world)
    world.wait(300)

    assert end.error == "DrainTimedOut" and "was restored" in end.cause, end.cause
    assert sorted(workers.states.values()) == ["InService"] * 2 and workers.states[node.instance_id] == "InService"


def test_the_hook_takes_a_planned_drain_over(world):
    workers = group_of(world)
    node = workers.nodes[0]
    job = with_job(world, node, "30m")
    planned = world.recycle(node)
    world.run("20m")

    workers.terminate(node)
    ends = ended(world, 2)

    assert planned.finishes().outcome == "superseded"
    assert ends[1].outcome == "recycled" and job.phase == "Succeeded"
    assert node.instance_id not in workers.states


@pytest.mark.parametrize("is_lost", [False, True], ids=["its event arrives", "its event is lost"])
def test_a_drain_that_began_before_its_group_ends_the_member_keeps_the_hook_alive(world, is_lost):
    """A planned drain, and one of the same group with the urgency of Spot."""
    for nth in (1, 2) if is_lost else ():
        world.events.lose("*:stateMachine:recycle-eks-recycle-node*", nth=nth)
    workers = world.group("impatient", size=4, minimum=1, maximum=6)
    nodes = dict(zip(("planned", "spot"), workers.nodes, strict=False))
    jobs = [node.job(f"train-{urgency}", annotations=WAITS) for urgency, node in nodes.items()]
    for urgency, node in nodes.items():
        node.becomes_spot()
        world.recycle(node, urgency=urgency, replacement="after")
        world.wait(120)
    for job in jobs:
        world.at("40m", job.finishes)
    world.run("10m")

    for node in nodes.values():
        workers.terminate(node)
    ends = ended(world, 2 if is_lost else 4)

    assert [end.outcome for end in ends] == (["recycled"] * 2 if is_lost else ["superseded"] * 2 + ["recycled"] * 2)
    assert [outlasts(world, node, "40m") for node in nodes.values()] == [True] * 2
    assert not {node.instance_id for node in nodes.values()} & set(workers.states)


def test_members_that_cannot_be_worked_on_are_tried_once_in_a_quarter_of_an_hour(world):
    world.let_sweep()
    workers = world.group("retained", size=3, minimum=0, maximum=4, retains=True)
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"on_drain_timeout": "terminate"})}
    workers.grow(1)
    world.run("1h50s")

    every = world.executions()
    assert {each.finishes().error for each in every} == {"InvalidInput"}
    assert 2 * 4 <= len(every) <= 2 * 6, len(every)
    del world.host.variables["recycle-eks-claim-node"]
    world.run("2h")
    assert sorted(workers.states.values()) == ["InService"]


def test_the_sweep_goes_on_with_a_drain_that_failed_after_the_claim(world):
    world.let_sweep()
    world.faults.refuse("kubernetes:PATCH nodes", code="InternalError", status=500, function="taint-node", times=11)
    workers = group_of(world, retains=True)
    node = workers.nodes[0]
    job = with_job(world, node, "80m")
    workers.terminate(node)
    ends = ended(world, 2)

    assert ends[0].status == "FAILED" and ends[-1].outcome == "recycled", [end.error for end in ends]
    assert job.phase == "Succeeded" and "recycle-eks:gave-up" not in world.instance(node.instance_id).tags


def test_a_member_that_waits_for_another_hook_is_drained_once(world):
    world.let_sweep()
    workers = group_of(world)
    world.aws.client("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName="held",
        LifecycleHookName="theirs",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=1_800,
        DefaultResult="CONTINUE",
    )
    node = workers.nodes[0]
    workers.terminate(node)
    world.run("50m")

    assert [each.finishes().outcome for each in world.executions()] == ["recycled"]
    assert node.instance_id not in workers.states


def test_a_dry_run_by_default_also_does_nothing_for_the_hook(world):
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"dry_run": True})}
    # A group that does not retain instances, although the module says so, and one that retains them.
    for name, retains in (("retained", False), ("held", True)):
        workers = world.group(name, size=2, minimum=0, maximum=4, retains=retains)
        workers.terminate(workers.nodes[0])
        world.wait(30)
        assert not world.writes(), name

    of_declared, of_other = ended(world, 2)

    assert (of_declared.outcome, of_other.outcome) == ("planned", "planned") and not world.writes()
    notes = of_declared.output["plan"]["notes"]
    assert any("no TerminateHookAbandon" in note for note in notes), of_declared.output["plan"]
