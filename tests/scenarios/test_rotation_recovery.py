"""Rotations that are disturbed: nodes that never join, operators who do not react, AWS that refuses."""

import json

import pytest

DAY = 86_400


def workers_of(world, size=3, minimum=1, maximum=6):
    workers = world.group("workers", size=size, minimum=minimum, maximum=maximum)
    workers.gets_a_new_template()
    return workers


def only(end):
    """The rotation's report of its only group."""
    (group,) = (end.output or json.loads(end.cause))["groups"]
    return group


def started(world):
    given = [json.loads(world.engine.execution(execution.arn).input_text) for execution in world.executions()]
    return [each["instance_id"] for each in given]


def pause(world, group, value="true"):
    tag = {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused", "Value": value}
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**tag, "PropagateAtLaunch": False}])


def test_a_template_whose_nodes_never_join_costs_one_node_and_not_the_group(world):
    workers = workers_of(world)
    old = sorted(workers.instances)
    for _ in range(4):
        workers.next_launch(never_registers=True)
    end = world.rotate(at_once=1, recycle={"replacement": "after"}).finishes()
    assert end.error == "RotationFailed"
    assert started(world) == old[:1]
    assert only(end)["left"] == 2 and only(end)["why"] == ["1 of its nodes failed, and failure_budget is 0"]
    assert set(old[1:]) <= set(workers.instances)


def test_a_paused_group_of_one_at_a_time_is_left_after_one_day_in_all(world):
    workers = workers_of(world)
    pause(world, workers)
    end = world.rotate(at_once=1).finishes()
    assert DAY < end.at < 1.5 * DAY
    assert only(end)["left"] == 3 and not started(world)


def test_after_a_pause_that_was_lifted_too_late_for_the_first_the_others_are_recycled(world):
    workers = workers_of(world)
    pause(world, workers)
    world.at(f"{DAY - 3600}s", lambda: pause(world, workers, "false"))
    end = world.rotate(at_once=1).finishes()
    assert end.outcome == "rotated" and only(end)["recycled"] == 3


@pytest.mark.parametrize("code", ["InternalFailureException", "AccessDeniedException"])
def test_a_start_that_is_refused_is_a_failure_of_that_node_and_aborts_no_other(world, code):
    workers = workers_of(world)
    second = sorted(workers.instances)[1]
    world.faults.refuse("states:startExecution*", code=code, times=None, where=lambda given: second in given["Name"])
    end = world.rotate(at_once=1).finishes()
    assert end.error == "RotationFailed"
    assert only(end)["failed"] == [{"node": second, "why": f"StepFunctions.{code}"}]
    assert only(end)["recycled"] == 2 and second in workers.instances


def test_a_start_that_fails_for_a_moment_is_tried_again(world):
    workers_of(world)
    world.faults.refuse("states:startExecution*", code="InternalFailureException", times=2)
    assert only(world.rotate(at_once=1).finishes())["recycled"] == 3


@pytest.mark.parametrize("listed", [True, False])
def test_a_group_whose_execution_broke_is_not_rotated_however_aws_lists_it(world, listed):
    workers_of(world)
    world.engine.map_lists_failed_children = listed
    rotation = world.rotate(at_once=1)
    world.run("60s")
    (child,) = [each for each in world.engine.executions.values() if each.map_run_arn]
    world.engine.finish(child, "FAILED", error="States.Runtime", cause="history")
    end = rotation.finishes()
    assert (end.status, end.error) == ("FAILED", "RotationFailed")
    assert only(end) == {"group": "workers", "error": ["GroupBroken"], "why": ["its execution broke: see the Map Run"]}
    (notification,) = [each for each in world.all_notifications if each["execution"] == rotation.arn]
    assert (notification["event"], notification["outcome"]) == ("failed", "RotationFailed")
    assert notification["reason"] == "workers: GroupBroken, its execution broke: see the Map Run"
    assert notification["what_to_do"][1].endswith(rotation.arn)


def test_a_failed_admission_is_a_failure(world):
    workers = workers_of(world)
    world.faults.invoke("select-nodes", nth=3, times=None)
    end = world.rotate(at_once=1).finishes()
    world.faults.clear()
    assert end.error == "RotationFailed" and not started(world)
    assert len(only(end)["failed"]) == len(workers.instances)


def test_a_mark_without_a_known_rotation_stops_neither_the_sweep_nor_a_rotation(world):
    workers = workers_of(world)
    theirs = "arn:aws:states:eu-west-1:123456789012:execution:elses-rotate-nodes:one"
    ours = world.rotate(dry_run=True)
    ours.finishes()
    # Nodes write their annotations themselves. So one mark of a rotation that has just begun is not enough.
    gone = ours.arn.rsplit(":", 1)[0] + ":gone 2027-01-01T00:00:00Z"
    for node, mark in zip(workers.nodes, (theirs, gone), strict=False):
        node.annotate("recycle-eks/outdated", mark)
    world.faults.refuse("states:DescribeExecution", code="AccessDeniedException", times=None)
    assert world.sweep().finishes().status == "SUCCEEDED"
    world.faults.clear()
    assert world.sweep().finishes().status == "SUCCEEDED"
    marks = [node.annotations.get("recycle-eks/outdated") for node in world.kubernetes.nodes()]
    assert [mark for mark in marks if mark] == [theirs]
    assert only(world.rotate(at_once=1).finishes())["recycled"] == 3


def test_a_rotation_that_step_functions_does_not_know_yet_keeps_its_marks_for_ten_minutes(world):
    """DescribeExecution is eventually consistent."""
    workers = workers_of(world)
    known = world.rotate(dry_run=True)
    known.finishes()
    mark = known.arn.rsplit(":", 1)[0] + ":unknown 2027-01-01T00:00:00Z"
    for node in workers.nodes[:2]:
        node.annotate("recycle-eks/outdated", mark)

    def marks():
        return [node.annotations["recycle-eks/outdated"] for node in workers.nodes if "recycle-eks/outdated" in node.annotations]

    assert world.sweep().finishes().status == "SUCCEEDED"
    assert marks() == [mark] * 2
    assert "works on it" in only(world.rotate(at_once=1).finishes())["why"][0]
    world.run("11m")
    assert world.sweep().finishes().status == "SUCCEEDED"
    assert marks() == []


def of_template(world, group):
    """Whether a call asks for the group's launch template."""
    (found,) = world.aws.client("ec2").describe_launch_templates(LaunchTemplateNames=[group])["LaunchTemplates"]
    world.forget_calls()
    return lambda given: found["LaunchTemplateId"] in json.dumps(given)


def test_the_second_node_waits_half_an_hour_if_the_first_cannot_be_started(world):
    workers = workers_of(world, size=2)
    first, second = sorted(workers.instances)
    world.faults.refuse(
        "states:startExecution*", code="AccessDeniedException", times=None, where=lambda given: first in given["Name"]
    )
    end = world.rotate(at_once=2).finishes()
    assert only(end)["failed"] == [{"node": first, "why": "StepFunctions.AccessDeniedException"}]
    assert started(world) == [second] and only(end)["recycled"] == 1
    assert 1800 <= world.executions()[0].steps[0][0] < 3600


def test_a_template_that_cannot_be_read_leaves_that_group_and_is_named(world):
    api, batch = (world.group(name, size=2, minimum=1, maximum=6) for name in ("api", "batch"))
    for group in (api, batch):
        group.gets_a_new_template()
    asks_for_it = of_template(world, "batch")
    world.faults.refuse(
        "ec2:DescribeLaunchTemplateVersions", code="UnauthorizedOperation", status=403, times=None, where=asks_for_it
    )
    end = world.rotate().finishes()
    assert (end.outcome, only(end)["group"], only(end)["recycled"]) == ("rotated", "api", 2)
    assert "the launch template of batch cannot be read: " in end.output["reason"]
    assert "2 nodes to recycle, in 1 of 2 groups" in end.output["reason"]


def test_a_template_that_cannot_be_read_does_not_affect_a_rotation_without_it(world):
    workers = workers_of(world)
    first = min(workers.instances)
    world.faults.refuse("ec2:DescribeLaunchTemplateVersions", code="UnauthorizedOperation", status=403, times=None)
    assert only(world.rotate({"instance_ids": [first]}).finishes())["recycled"] == 1
    end = world.rotate({"outdated": {"all": True}}).finishes()
    assert end.outcome == "rotated" and only(end)["recycled"] == 3


def test_a_template_that_can_no_longer_be_read_leaves_the_rest_of_the_group(world):
    workers = workers_of(world)
    order = sorted(workers.instances)
    rotation = world.rotate(at_once=1)
    world.run("60s")
    world.faults.refuse("ec2:DescribeLaunchTemplateVersions", code="UnauthorizedOperation", status=403, times=None)
    end = rotation.finishes()
    assert end.outcome == "rotated" and started(world) == order[:1]
    assert (only(end)["recycled"], only(end)["left"]) == (1, 2)
    assert only(end)["why"][0].startswith("the launch template of workers cannot be read: ")


def test_the_canary_makes_no_calls_while_the_first_node_is_worked_on(world):
    for name in ("alpha", "beta", "gamma"):
        world.group(name, size=5, minimum=1, maximum=10).gets_a_new_template()
    rotation = world.rotate(at_once=5)
    world.run("60s")
    looks = [entered for child in world.engine.executions.values() if child.map_run_arn for entered in child.events]
    assert sum(event.get("stateEnteredEventDetails", {}).get("name") == "MayStart" for event in looks) == 2 * 15 - 3
    assert [call.at for call in world.calls("states:DescribeExecution")] == []
    rotation.stop()
