"""All outdated nodes of a cluster, group by group, node after node: by hand, by the clock, and on apply."""

import itertools
import json

import pytest

MARK = "recycle-eks/outdated"


@pytest.fixture
def groups(world):
    """Two groups of three nodes, whose launch template has a new version."""
    groups = [world.group(name, size=3, minimum=1, maximum=6) for name in ("api", "batch")]
    for group in groups:
        group.gets_a_new_template()
    return groups


@pytest.fixture
def workers(world):
    """One group of three nodes, whose launch template has a new version."""
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    workers.gets_a_new_template()
    return workers


def marked(world):
    return [node for node in world.kubernetes.nodes() if any(taint["key"] == MARK for taint in node.taints)]


def started(world):
    """The nodes of executions of recycle-node, in the order in which these began."""
    given = [json.loads(world.engine.execution(execution.arn).input_text) for execution in world.executions()]
    return [each["instance_id"] for each in given]


def ends(world):
    return [world.engine.execution(execution.arn).status for execution in world.executions()]


def runs(world):
    """When each execution of recycle-node began and ended."""
    return [(execution.steps[0][0], execution.steps[-1][0]) for execution in world.executions()]


def only(end):
    """The rotation's report of its only group, from its output or its error's cause."""
    (group,) = (end.output or json.loads(end.cause))["groups"]
    return group


def pause(world, group, value="true"):
    tag = {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused", "Value": value}
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**tag, "PropagateAtLaunch": False}])


def test_outdated_nodes_are_replaced_group_by_group_and_no_mark_stays(world, groups):
    before = {instance for group in groups for instance in group.instances}
    seen = []
    world.at("90s", lambda: seen.append(len(marked(world))))

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end
    assert [(group["group"], group["recycled"], group["failed"], group["left"]) for group in end.output["groups"]] == [
        ("api", 3, [], 0),
        ("batch", 3, [], 0),
    ]
    assert seen == [6]
    after = {instance for group in groups for instance in group.instances}
    assert len(after) == 6 and not before & after
    assert not marked(world)
    assert [group.sizes for group in groups] == [(1, 3, 6)] * 2
    assert world.rotate().finishes().outcome == "nothing_selected"


def test_nodes_come_one_after_the_other_with_the_time_between_that_the_input_asks_for(world, workers):
    order = sorted(workers.instances)
    end = world.rotate(at_once=1, wait_between_nodes="30m").finishes()

    assert only(end)["recycled"] == 3
    assert started(world) == order
    began = [execution.entered("ClaimNode")[0] for execution in world.executions()]
    ended = [execution.steps[-1][0] for execution in world.executions()]
    assert [1800 < began[n + 1] - ended[n] < 1900 for n in range(2)] == [True, True]


@pytest.mark.parametrize(("mark", "effects"), [("hard", ["NoSchedule"] * 3), ("none", [])])
def test_the_mark_is_the_one_that_the_input_asks_for(world, workers, mark, effects):
    seen = []
    taints = lambda: [taint["effect"] for node in marked(world) for taint in node.taints if taint["key"] == MARK]  # noqa: E731
    world.at("90s", lambda: seen.append((taints(), sum(MARK in node.annotations for node in world.kubernetes.nodes()))))
    end = world.rotate(at_once=1, mark=mark).finishes()
    # The annotation marks the nodes for another rotation, with a taint or without.
    assert seen == [(effects, 3)]
    assert only(end)["recycled"] == 3 and not marked(world)


def test_a_share_is_how_many_nodes_of_the_group_are_recycled_at_once(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    workers.gets_a_new_template()
    end = world.rotate(at_once="50%").finishes()
    assert only(end)["recycled"] == 4
    began, ended = zip(*runs(world), strict=True)
    assert began[1] < min(ended) <= began[2]
    most = max(sum(start <= moment < stop for start, stop in runs(world)) for moment in began)
    assert most == 2


def test_the_nodes_come_zone_by_zone_and_that_of_the_oldest_first(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8, zones=("eu-west-1a", "eu-west-1b"))
    workers.gets_a_new_template()
    zones = {node.instance_id: node.zone for node in workers.nodes}
    oldest = {zone: min(node for node in zones if zones[node] == zone) for zone in zones.values()}
    assert len(oldest) == 2
    end = world.rotate(at_once=1).finishes()
    assert only(end)["recycled"] == 4
    assert started(world) == sorted(zones, key=lambda node: (oldest[zones[node]], node))


def test_a_stopped_and_redriven_rotation_goes_on_with_the_nodes_that_had_not_begun(world, workers):
    order = sorted(workers.instances)
    rotation = world.rotate(at_once=1, failure_budget=1)
    world.run("60s")
    rotation.stop()
    world.sweep().finishes()
    rotation.redrive()
    end = rotation.finishes()
    assert only(end)["failed"] == [{"node": order[0], "why": "ABORTED"}]
    assert only(end)["recycled"] == 2 and started(world) == order
    assert order[0] in workers.instances and not marked(world)


def test_a_failed_rotation_only_fails_again_when_redriven(world, workers, stubborn):
    recycle = {"label_selector": "app=train", "drain_timeout": 600}
    rotation = world.rotate(at_once=1, recycle=recycle)
    first = rotation.finishes()
    rotation.redrive()
    again = rotation.finishes()
    assert (again.error, again.cause) == ("RotationFailed", first.cause)
    assert started(world) == [stubborn.instance_id]


def test_more_at_once_than_the_module_allows_is_refused_naming_both(world, workers):
    end = world.rotate(at_once=6).finishes()
    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    assert "at_once must be at most 5, the module's max_surge_per_group, but is 6" in end.cause
    assert not world.writes()


def test_a_paused_group_is_waited_for(world, workers):
    pause(world, workers)
    world.at("1h", lambda: pause(world, workers, "false"))
    end = world.rotate().finishes()
    assert only(end)["recycled"] == 3 and 3600 < end.at < 4 * 3600
    assert world.executions()[0].entered("ClaimNode")[0] > 3600


def test_a_group_that_is_paused_for_a_day_is_left(world, workers):
    pause(world, workers)
    end = world.rotate().finishes()
    assert end.outcome == "rotated" and 24 * 3600 < end.at < 37 * 3600
    assert only(end)["why"] == ["waited for a day: group workers has the tag recycle-eks:paused"]
    assert only(end)["left"] == 3 and not started(world) and not marked(world)


def test_after_the_window_no_new_node_is_started_and_the_next_rotation_goes_on(world, workers):
    job = min(workers.nodes, key=lambda node: node.instance_id).job("train", labels={"app": "train"})
    world.at("1h", job.finishes)
    end = world.rotate(at_once=1, start_no_new_node_after="30m", recycle={"label_selector": "app=train"}).finishes()

    assert end.outcome == "rotated" and job.phase == "Succeeded"
    assert (only(end)["recycled"], only(end)["left"]) == (1, 2)
    assert only(end)["why"] == ["start_no_new_node_after was 2027-01-01T00:30:00Z"]

    again = world.rotate().finishes()
    assert only(again)["recycled"] == 2


@pytest.fixture
def stubborn(world, workers):
    """The first node of the group has a pod that does not end."""
    first = min(workers.nodes, key=lambda node: node.instance_id)
    first.job("train", labels={"app": "train"})
    return first


def rotate_past(world, **terms):
    recycle = {"label_selector": "app=train", "drain_timeout": 600}
    return world.rotate(at_once=1, recycle=recycle, **terms).finishes()


def test_when_a_node_fails_no_other_is_begun(world, workers, stubborn):
    end = rotate_past(world)
    assert (end.status, end.error) == ("FAILED", "RotationFailed")
    assert only(end)["failed"] == [{"node": stubborn.instance_id, "why": "DrainTimedOut"}]
    assert only(end)["left"] == 2 and only(end)["why"] == ["1 of its nodes failed, and failure_budget is 0"]
    assert started(world) == [stubborn.instance_id]
    assert not marked(world) and stubborn.instance_id in workers.instances and not stubborn.unschedulable


@pytest.mark.parametrize("terms", [{"on_failure": "continue"}, {"failure_budget": 1}])
def test_a_failure_within_the_budget_stops_nothing(world, workers, stubborn, terms):
    end = rotate_past(world, **terms)
    assert end.error == "RotationFailed"
    assert (only(end)["recycled"], len(only(end)["failed"]), only(end)["left"]) == (2, 1, 0)


@pytest.mark.parametrize(("terms", "pause"), [({}, 60), ({"wait_between_nodes": 1800}, 1800)])
def test_a_node_that_failed_is_tried_again_after_a_pause(world, workers, stubborn, terms, pause):
    end = rotate_past(world, retries=2, **terms)
    assert only(end)["recycled"] == 0 and only(end)["left"] == 2
    assert started(world) == [stubborn.instance_id] * 3
    assert ends(world) == ["FAILED"] * 3
    tries = runs(world)
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(tries)]
    assert all(pause <= gap < pause + 30 for gap in gaps), gaps


#: The value of the label `recycle-eks/group` for the group `workers`: short_hash of crates/recycle/src/base/ids.rs.
LABEL = "e4dede02"
#: Claims that no execution of this installation has written.
FOREIGN = {
    "a newer schema": '{"schema": 2}',
    "another installation": json.dumps(
        {
            "schema": 1,
            "fence": "arn:aws:states:eu-west-1:123456789012:execution:other-recycle-node:run#0",
            "group": "workers",
            "phase": "draining",
            "urgency": "planned",
            "claimed_at": "2027-01-01T00:00:00Z",
        }
    ),
}


@pytest.mark.parametrize("claim", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("place", [0, 1])
def test_a_claim_of_no_execution_of_this_installation_holds_up_no_other_node(world, workers, claim, place):
    held = workers.nodes[place]
    held.record("recycle-eks/claim", claim, **{"recycle-eks/group": LABEL})

    end = world.rotate(at_once=1, on_failure="continue").finishes()

    assert end.error == "RotationFailed" and end.at < world.seconds("3h"), end
    assert only(end)["failed"] == [{"node": held.instance_id, "why": "PreflightRefused"}]
    assert only(end)["recycled"] == 2 and held.exists


def test_a_tag_holds_no_node_up(world, workers):
    held = workers.nodes[0]
    tags = [{"Key": "recycle-eks:claim", "Value": "2 x"}, {"Key": "recycle-eks:group", "Value": "workers"}]
    world.aws.client("ec2").create_tags(Resources=[held.instance_id], Tags=tags)

    end = world.rotate(at_once=1, on_failure="continue").finishes()

    assert end.status == "SUCCEEDED" and only(end)["recycled"] == 3, end


@pytest.mark.parametrize("is_labelled", [False, True])
@pytest.mark.parametrize("claim", FOREIGN.values(), ids=FOREIGN)
def test_a_node_with_a_claim_of_no_execution_of_this_installation_fails_the_rotation_which_names_it(
    world, workers, claim, is_labelled
):
    held = workers.nodes[0]
    held.record("recycle-eks/claim", claim, **({"recycle-eks/group": LABEL} if is_labelled else {}))

    end = world.rotate(at_once=1).finishes()

    assert (end.status, end.error) == ("FAILED", "RotationFailed"), end
    assert only(end)["failed"] == [{"node": held.instance_id, "why": "PreflightRefused"}]
    (ended,) = world.executions()
    assert ended.finishes().cause.startswith("foreign_claim: "), ended.finishes().cause
    sent = [text for text in world.notifications if "foreign_claim" in text]
    assert len(sent) == 1 and f"kubectl annotate lease --namespace recycle-eks {held.instance_id} recycle-eks/claim-" in sent[0]
    assert any("a rotation failed" in text and held.instance_id in text for text in world.notifications)


def test_a_node_that_another_execution_works_on_is_not_done_and_the_rotation_says_so(world, workers):
    rotation = world.rotate(at_once=1)
    world.clock.run(until=lambda: bool(started(world)))
    node = next(node for node in workers.nodes if node.instance_id not in started(world))
    world.at("1h", node.job("train", labels={"app": "train"}).finishes)
    other = world.recycle(node, label_selector="app=train", replacement="after")

    end = rotation.finishes()

    assert (end.status, end.error) == ("FAILED", "RotationFailed"), end
    (failed,) = only(end)["failed"]
    assert failed["node"] == node.instance_id and failed["why"].startswith(f"duplicate: {other.arn} (RUNNING)")
    assert only(end)["recycled"] == 2 and only(end)["left"] == 0
    assert other.finishes().outcome == "recycled"


def test_a_dry_run_writes_nothing_and_has_a_plan_for_each_node(world, workers):
    end = world.rotate(dry_run=True).finishes()
    assert end.outcome == "rotated" and only(end)["why"] == ["planned"]
    plans = [world.engine.execution(execution.arn).output["plan"] for execution in world.executions()]
    assert len(plans) == 3 and all(plan["steps"] for plan in plans)
    assert not world.writes()


def test_a_second_rotation_leaves_out_the_groups_of_the_first(world, workers):
    first = world.rotate(at_once=1)
    world.run("60s")
    second = world.rotate().finishes()
    assert second.outcome == "rotated" and only(second)["recycled"] == 0
    assert only(second)["why"] == [f"{first.arn} works on it"]
    assert only(first.finishes())["recycled"] == 3


def test_the_marks_of_a_rotation_that_was_stopped_are_gone_after_a_sweep(world, workers):
    rotation = world.rotate(at_once=1)
    world.run("60s")
    assert len(marked(world)) == 3
    rotation.stop()
    world.sweep().finishes()
    assert not marked(world)
    world.sweep().finishes()
    assert not any(MARK in node.annotations for node in world.kubernetes.nodes())
    assert sorted(workers.states.values()) == ["InService"] * 3


def test_a_replacement_that_is_outdated_too_stops_its_group_by_name(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6, kubelet="v1.34.1-eks-0000000")
    end = world.rotate({"outdated": {"kubelet": True}}).finishes()
    assert end.error == "RotationFailed"
    assert only(end)["error"] == ["ReplacementStillOutdated"]
    assert "group uses template version 1 = $Latest; newest is 1" in only(end)["why"][0]
    assert len(started(world)) == 1 and only(end)["recycled"] == 1
    assert sorted(workers.states.values()) == ["InService"] * 3 and not marked(world)


def test_a_kubelet_newer_than_the_control_plane_is_refused(world):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    workers.gets_a_new_template()
    workers.kubelet = "v1.99.0"
    end = world.rotate().finishes()
    assert only(end)["error"] == ["KubeletTooNew"] and len(started(world)) == 1
    assert "has kubelet 1.99, but the control plane is 1.35" in only(end)["why"][0]

    again = world.rotate().finishes()
    assert only(again)["error"] == ["KubeletTooNew"] and len(started(world)) == 1


def test_a_new_version_in_the_middle_stops_nothing(world, workers):
    world.at("30s", workers.gets_a_new_template)
    end = world.rotate(at_once=1).finishes()
    assert end.outcome == "rotated" and only(end)["recycled"] == 3


def test_the_next_node_waits_for_the_pods_that_this_rotation_evicted_and_for_no_others(world, workers):
    first = min(workers.nodes, key=lambda node: node.instance_id)
    first.kubernetes.label(pool="web")
    first.deployment("web", node_selector={"pool": "web"})
    world.kubernetes.deployment("others", node_selector={"nowhere": "true"})
    world.at("30m", lambda: workers.newest.kubernetes.label(pool="web"))

    end = world.rotate(at_once=1).finishes()

    assert only(end)["recycled"] == 3
    began = [execution.entered("ClaimNode")[0] for execution in world.executions()]
    assert 1800 < began[1] < 3600 and began[2] < began[1] + 1200


def test_pods_that_find_no_place_for_an_hour_stop_the_group(world, workers):
    first = min(workers.nodes, key=lambda node: node.instance_id)
    first.kubernetes.label(pool="web")
    first.deployment("web", node_selector={"pool": "web"})
    end = world.rotate(at_once=1).finishes()
    assert end.outcome == "rotated" and end.at < 3 * 3600
    assert (only(end)["recycled"], only(end)["left"]) == (1, 2)
    assert "1 pods that this rotation evicted are still Pending, such as default/web-" in only(end)["why"][0]
    assert only(world.rotate(wait_for_pending_pods=False).finishes())["recycled"] == 2
