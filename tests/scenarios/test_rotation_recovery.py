"""Rotations that are disturbed: nodes that never join, operators who do not react, AWS that refuses."""

import json


def workers_of(world, name="workers", size=3):
    workers = world.group(name, size=size, minimum=1, maximum=6)
    workers.gets_a_new_template()
    return workers


def of(*groups):
    """A rotation's selection: the outdated nodes of these groups only."""
    return {"outdated": {"launch_template": True, "groups": [group.name for group in groups]}}


def only(end):
    """The rotation's report of its only group."""
    (group,) = end.groups.values()
    return group


def executions(world, nodes=None):
    """The executions of recycle-node of these nodes or of all, by the nodes, in the order in which they began."""
    given = [(execution, json.loads(world.engine.execution(execution.arn).input_text)) for execution in world.executions()]
    return {each["instance_id"]: execution for execution, each in given if nodes is None or each["instance_id"] in nodes}


def started(world, nodes=None):
    return list(executions(world, nodes))


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


def test_a_start_that_is_refused_is_a_failure_of_that_node_and_aborts_no_other(world):
    codes = {"internal": "InternalFailureException", "denied": "AccessDeniedException"}
    groups = [workers_of(world, name) for name in codes]
    second = {group.name: sorted(group.instances)[1] for group in groups}
    moment, pair = workers_of(world, "moment", size=1), workers_of(world, "pair", size=2)
    first_of_pair, second_of_pair = of_pair = sorted(pair.instances)

    def refuse(node, code, times=None):
        world.faults.refuse("states:startExecution*", code=code, times=times, where=lambda given: node in given["Name"])

    for name, code in codes.items():
        refuse(second[name], code)
    refuse(moment.instances[0], "InternalFailureException", times=2)
    refuse(first_of_pair, "AccessDeniedException")

    rotations = [world.rotate(of(*groups, moment), at_once=1), world.rotate(of(pair), at_once=2)]
    ends = [rotation.finishes() for rotation in rotations]

    assert [end.error for end in ends] == ["RotationFailed"] * 2, ends
    for group in groups:
        result = ends[0].groups[group.name]
        assert result["failed"] == [{"node": second[group.name], "why": f"StepFunctions.{codes[group.name]}"}], group
        assert result["recycled"] == 2 and second[group.name] in group.instances, group
    # A start that fails for a moment is tried again.
    assert (ends[0].groups["moment"]["recycled"], ends[0].groups["moment"]["failed"]) == (1, [])
    # The second node waits half an hour if the first cannot be started.
    assert only(ends[1])["failed"] == [{"node": first_of_pair, "why": "StepFunctions.AccessDeniedException"}]
    assert started(world, of_pair) == [second_of_pair] and only(ends[1])["recycled"] == 1
    assert 1800 <= executions(world)[second_of_pair].steps[0][0] < 3600
    assert world.faults.not_struck() == []


def test_a_group_whose_execution_broke_is_not_rotated_however_aws_lists_it(world):
    workers_of(world)
    for listed in (True, False):
        world.engine.map_lists_failed_children = listed
        rotation = world.rotate(at_once=1)
        world.wait(60)
        (child,) = [each for each in world.engine.executions.values() if each.map_run_arn and each.status == "RUNNING"]
        world.engine.finish(child, "FAILED", error="States.Runtime", cause="history")
        end = rotation.finishes()
        assert (end.status, end.error) == ("FAILED", "RotationFailed"), listed
        broken = {"group": "workers", "error": ["GroupBroken"], "why": ["its execution broke: see the Map Run"]}
        assert only(end) == broken, listed
        (notification,) = [each for each in world.all_notifications if each["execution"] == rotation.arn]
        assert (notification["event"], notification["outcome"]) == ("failed", "RotationFailed"), listed
        assert notification["reason"] == "workers: GroupBroken, its execution broke: see the Map Run", listed
        assert notification["what_to_do"][1].endswith(rotation.arn), listed


def test_neither_a_failed_admission_nor_a_mark_without_a_known_rotation_stops_the_next_rotation(world):
    workers = workers_of(world)
    # A failed admission is a failure.
    world.faults.invoke("select-nodes", nth=3, times=None)
    end = world.rotate(at_once=1).finishes()
    world.faults.clear()
    assert end.error == "RotationFailed" and not started(world)
    assert len(only(end)["failed"]) == len(workers.instances)

    # A mark without a known rotation stops neither the sweep nor a rotation.
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


def test_a_template_that_cannot_be_read_leaves_that_group_or_its_rest_and_is_named(world):
    api, batch, late = (workers_of(world, name, size=2) for name in ("api", "batch", "late"))
    order = sorted(late.instances)
    unreadable = {"code": "UnauthorizedOperation", "status": 403, "times": None}
    of_batch, of_late = of_template(world, "batch"), of_template(world, "late")
    world.faults.refuse("ec2:DescribeLaunchTemplateVersions", **unreadable, where=of_batch)
    rotation = world.rotate(at_once=1)
    world.run("60s")
    world.faults.refuse("ec2:DescribeLaunchTemplateVersions", **unreadable, where=of_late)

    end = rotation.finishes()

    assert end.outcome == "rotated" and list(end.groups) == ["api", "late"]
    assert end.groups["api"]["recycled"] == 2
    assert "the launch template of batch cannot be read: " in end.output["reason"]
    assert "4 nodes to recycle, in 2 of 3 groups" in end.output["reason"]
    # A template that can no longer be read leaves the rest of its group.
    assert started(world, order) == order[:1]
    assert (end.groups["late"]["recycled"], end.groups["late"]["left"]) == (1, 1)
    assert end.groups["late"]["why"][0].startswith("the launch template of late cannot be read: ")

    # It does not affect a rotation without it.
    world.faults.clear()
    world.faults.refuse("ec2:DescribeLaunchTemplateVersions", **unreadable)
    assert only(world.rotate({"instance_ids": [min(batch.instances)]}).finishes())["recycled"] == 1
    end = world.rotate({"outdated": {"all": True, "groups": ["batch"]}}).finishes()
    assert end.outcome == "rotated" and only(end)["recycled"] == 2


def test_the_canary_makes_no_calls_while_the_first_node_is_worked_on(world):
    for name in ("alpha", "beta", "gamma"):
        workers_of(world, name)
    rotation = world.rotate(at_once=5)
    world.run("60s")
    looks = [entered for child in world.engine.executions.values() if child.map_run_arn for entered in child.events]
    assert sum(event.get("stateEnteredEventDetails", {}).get("name") == "MayStart" for event in looks) == 2 * 9 - 3
    asked = [call.at for call in world.calls("states:DescribeExecution") if call.function != "recycle-eks-claim-node"]
    assert asked == []
    rotation.stop()
