"""An operator requests a node with kubectl: the taint `recycle-eks/request` is answered once, by the next sweep's execution."""

import itertools
import json

import pytest

from world.base.faults import sample

REQUEST = "recycle-eks/request"


def ask(node, effect="NoSchedule"):
    """`kubectl taint node X recycle-eks/request=now:NoSchedule`"""
    node.kubernetes.add_taint(REQUEST, effect, "now")


def sweep(world):
    """One sweep, and the end of what it has started, if it has started anything."""
    before = len(world.executions())
    assert world.sweep().finishes().status == "SUCCEEDED"
    started = world.executions()[before:]
    assert len(started) <= 1
    return started[0].finishes() if started else None


def events(world, node, reason):
    return [event["message"] for event in world.kubernetes.events(node.name) if event["reason"] == reason]


def test_a_node_that_is_tainted_is_recycled_by_the_next_sweep(world):
    hard, soft, other = [world.group(f"workers-{n}", size=2, minimum=1, maximum=4).nodes[0] for n in range(3)]
    for node in (hard, soft):
        world.at("20m", node.job(f"train-{node.group.name}", annotations={"recycle-eks/drain": "wait"}).finishes)
    world.let_sweep()
    ask(hard)
    ask(soft, "PreferNoSchedule")
    # A taint of another name is no request.
    other.kubernetes.add_taint("recycle-eks/requests")

    world.clock.run(until=lambda: len(world.executions()) == 2, limit=900)
    executions = world.executions()
    world.clock.run(until=lambda: all(each.entered("CheckPods") for each in executions), limit=3600)
    for node in (hard, soft):
        assert node.has_taint("recycle-eks/draining") and not node.has_taint(REQUEST), node
        assert len([each for each in executions if f":request-{node.instance_id}-" in each.arn]) == 1, node
    assert [each.finishes().outcome for each in executions] == ["recycled"] * 2
    assert [end.at >= world.seconds("20m") and not end.pods for end in world.ends] == [True] * 2, world.ends
    world.wait("1h")
    assert len(world.executions()) == 2 and len(hard.group.nodes) == len(soft.group.nodes) == 2


def refuse(world, node):
    """Pre-flight refuses a node that is protected from scale-in."""
    node.group.protect(node)
    ask(node)


def is_refused(world, node):
    """The Event for the operator, and the proof that no sweep starts it again."""
    (message,) = events(world, node, "RecycleRefused")
    assert not node.has_taint(REQUEST) and not node.unschedulable
    assert sweep(world) is None
    return message


@pytest.mark.any_replacement
def test_a_refused_request_is_reported_and_not_started_again(world, workers):
    node = workers.nodes[0]
    node.kubernetes.add_taint("team", value="blue")
    refuse(world, node)
    # An execution that no request has started answers no request.
    world.forget_calls()
    assert world.recycle(node).finishes().error == "PreflightRefused"
    assert world.writes() == [] and node.has_taint(REQUEST)

    end = sweep(world)

    assert end.error == "PreflightRefused"
    assert "scale_in_protection" in is_refused(world, node)
    assert node.has_taint("team")
    ask(node)
    world.aws.client("autoscaling").set_instance_protection(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ProtectedFromScaleIn=False
    )
    world.wait(900)
    assert sweep(world).outcome == "recycled", "a second request is answered in the next quarter of an hour"


def test_a_module_whose_defaults_make_no_sense_says_so_on_the_node_and_so_does_a_node_in_no_group(world, workers):
    node, detached = workers.nodes
    world.aws.client("autoscaling").detach_instances(
        AutoScalingGroupName="workers", InstanceIds=[detached.instance_id], ShouldDecrementDesiredCapacity=True
    )
    world.wait("5m")
    ask(detached)
    assert sweep(world).error == "PreflightRefused"
    assert "group" in is_refused(world, detached)

    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"evict": "nobody"})}
    ask(node)
    assert sweep(world).error == "InvalidInput"
    assert "evict" in is_refused(world, node)


@pytest.mark.any_replacement
def test_if_a_dry_run_is_the_default_the_plan_is_the_answer(world, workers):
    node = workers.nodes[0]
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"dry_run": True})}
    ask(node)

    assert sweep(world).outcome == "planned"

    (message,) = events(world, node, "RecyclePlanned")
    assert message.startswith("Dry run, nothing was touched; ")
    assert not node.has_taint(REQUEST) and sweep(world) is None
    world.forget_calls()
    ask(node)
    assert world.recycle(node).finishes().outcome == "planned"
    assert world.writes() == [] and node.has_taint(REQUEST), "a dry run that no taint has started writes nothing"


@pytest.mark.any_replacement
def test_a_request_for_a_node_that_is_being_recycled_is_answered_by_its_execution(world):
    """By a replacement, and by a restore before the node is tainted or after it."""
    rows = {
        "recycled": ("1m", 1800, "WaitForPods"),
        "ReplacementTimedOut": ("1h", 600, "WaitForReplacement"),
        "DrainTimedOut": ("1m", 600, "WaitForPods"),
    }
    executions = {}
    for row, (takes, drain_timeout, _) in rows.items():
        group = world.group(f"ends-{row}".lower(), size=2, minimum=1, maximum=4)
        group.next_launch(takes=takes)
        node = group.nodes[0]
        job = node.job(f"train-{row}".lower(), annotations={"recycle-eks/drain": "wait"})
        if row == "recycled":
            world.at("20m", job.finishes)
        executions[row] = (node, world.recycle(node, drain_timeout=drain_timeout))
    for row, (_, _, state) in rows.items():
        node, execution = executions[row]
        world.clock.run(until=lambda each=execution, name=state: bool(each.entered(name)), limit=3600)
        ask(node)

    assert sweep(world) is None
    for row, (node, execution) in executions.items():
        end = execution.finishes()
        assert row in (end.outcome, end.error), (row, end)
        assert node.exists == (row != "recycled") and not (node.exists and node.has_taint(REQUEST)), row
    assert sweep(world) is None and len(world.executions()) == 3


def test_a_request_whose_execution_was_stopped_is_over(world, workers):
    node = workers.nodes[0]
    ask(node)
    world.sweep().finishes()
    (execution,) = world.executions()
    world.clock.run(until=lambda: bool(execution.entered("WaitForReplacement")), limit=3600)
    execution.stop()
    world.wait("10m")

    assert sweep(world) is None and sweep(world) is None

    assert not node.has_taint(REQUEST) and node.group.states[node.instance_id] == "InService"


def test_a_request_for_a_node_that_was_left_in_standby_goes_on_with_it(world):
    node = world.group("workers", size=2, minimum=2, maximum=2).nodes[0]
    job = node.job("train", annotations={"recycle-eks/drain": "wait"})
    assert world.recycle(node, drain_timeout=600).finishes().error == "LeftInStandby"
    job.finishes()
    ask(node)

    assert sweep(world).outcome == "recycled"
    assert len(world.calls("autoscaling:EnterStandby", succeeded=True)) == 1


def test_a_node_that_its_group_terminates_is_not_begun(world):
    """The drain of the node has failed: an operator has to act."""
    workers = world.group("retained", size=2, minimum=1, maximum=3, retains=True)
    node = workers.nodes[0]
    node.job("train", annotations={"recycle-eks/drain": "wait"})
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"drain_timeout": 600})}
    workers.terminate(node)
    world.clock.run(until=lambda: bool(world.executions()), limit=3600)
    assert world.executions()[0].finishes().error == "DrainTimedOut"
    ask(node)

    assert sweep(world) is None and sweep(world) is None
    assert workers.states[node.instance_id].startswith("Terminating")


def test_a_refusal_is_reported_although_its_function_is_killed_at_each_call(world):
    def run():
        node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
        refuse(world, node)
        return node, sweep(world)

    run()
    assert len(world.writes()) == 2, "the Event, and the patch"
    seen: dict[str, int] = {}
    calls = []
    for call in world.calls():
        if call.function == "recycle-eks-restore-node":
            seen[call.action] = seen.get(call.action, 0) + 1
            calls.append((call.action, seen[call.action]))
    assert len(calls) > 8
    struck = zip(calls, itertools.cycle(["before", "after"]), strict=False)
    for (action, nth), when in sample(list(struck), 4):
        world.reset()
        world.faults.kill(when, action, function="recycle-eks-restore-node", nth=nth)
        node, end = run()
        assert end.error == "PreflightRefused", (action, nth, when)
        assert is_refused(world, node), (action, nth, when)
        assert world.faults.not_struck() == [], (action, nth, when)


def test_a_plan_is_reported_once_although_its_function_is_killed(world):
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"dry_run": True})}
    for number, (action, when) in enumerate(itertools.product(("POST events", "PATCH nodes"), ("before", "after"))):
        node = world.group(f"workers-{number}", size=2, minimum=1, maximum=4).nodes[0]
        ask(node)
        world.faults.clear()
        world.faults.kill(when, f"kubernetes:{action}", function="recycle-eks-claim-node")

        assert sweep(world).outcome == "planned", (action, when)

        assert world.faults.not_struck() == [], (action, when)
        assert len(events(world, node, "RecyclePlanned")) == 1 and not node.has_taint(REQUEST), (action, when)
