"""All outdated nodes of a cluster, group by group, node after node: by hand, by the clock, and on apply."""

import itertools
import json

MARK = "recycle-eks/outdated"
HOUR, DAY = 3_600, 86_400


def outdated(world, *names, size=2, **terms):
    """Groups whose launch template has a new version."""
    groups = [world.group(name, size=size, minimum=1, maximum=8, **terms) for name in names]
    for group in groups:
        group.gets_a_new_template()
    return groups


def of(*groups):
    """A rotation's selection: the outdated nodes of these groups only."""
    return {"outdated": {"launch_template": True, "groups": [group.name for group in groups]}}


def marked(world):
    return [node for node in world.kubernetes.nodes() if any(taint["key"] == MARK for taint in node.taints)]


def marks(world):
    """The effects of the taints that mark nodes, and how many nodes have the annotation that marks them for another rotation."""
    effects = [taint["effect"] for node in marked(world) for taint in node.taints if taint["key"] == MARK]
    return effects, sum(MARK in node.annotations for node in world.kubernetes.nodes())


def given(world):
    """Each execution of recycle-node in the order in which they began, with its input."""
    return [(execution, json.loads(world.engine.execution(execution.arn).input_text)) for execution in world.executions()]


def executions(world, nodes=None):
    """The executions of recycle-node that are no dry runs, in the order in which they began: of these nodes or of all."""
    real = [(execution, each) for execution, each in given(world) if not each.get("dry_run")]
    return [execution for execution, each in real if nodes is None or each["instance_id"] in nodes]


def started(world, nodes=None):
    """Their nodes."""
    return [each["instance_id"] for _, each in given(world) if nodes is None or each["instance_id"] in nodes]


def runs(world, nodes=None):
    """When each of them began and ended."""
    return [(execution.steps[0][0], execution.steps[-1][0]) for execution in executions(world, nodes)]


def only(end):
    """The rotation's report of its only group."""
    (group,) = end.groups.values()
    return group


def first_of(group):
    """The node that comes first, in a group of one zone."""
    return min(group.nodes, key=lambda node: node.instance_id)


def pause(world, group, value="true"):
    tag = {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused", "Value": value}
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**tag, "PropagateAtLaunch": False}])


def test_an_alarm_holds_or_stops_a_rotation_and_the_first_node_proves_itself_alone(world):
    """One group waits while an alarm is on, one stops, one names an unknown alarm, and one waits after its first node."""
    waits, stops = outdated(world, "waits", "stops")
    (misnamed,), (alone,) = outdated(world, "misnamed", size=1), outdated(world, "alone", size=3)
    groups = waits, stops, misnamed, alone
    old = {group.name: list(group.instances) for group in groups}
    for name in ("errors", "latency"):
        world.alarm(name, InstanceId="i-0")
    world.turn_alarm("latency", "INSUFFICIENT_DATA")
    world.at("2m", lambda: world.turn_alarm("errors", "ALARM"))
    world.at("2h", lambda: world.turn_alarm("errors", "OK"))
    held = world.rotate(selection=of(waits), at_once=1, alarms=["errors", "latency"])
    stopped = world.rotate(selection=of(stops), at_once=1, alarms=["latency", "errors"], on_alarm="stop").finishes()
    assert only(stopped)["why"] == ["the alarm errors is in ALARM"]
    assert (only(stopped)["recycled"], only(stopped)["left"]) == (1, 1)
    unknown = world.rotate(selection=of(misnamed), alarms=["errors", "eror"]).finishes()
    assert only(unknown)["why"] == ["CloudWatch has no alarm eror"] and started(world, old["misnamed"]) == []
    after_first = world.rotate(selection=of(alone), at_once=2, wait_after_first_node="1h").finishes()
    assert only(after_first)["recycled"] == 3
    (_, first_end), *others = runs(world, old["alone"])
    assert [HOUR <= begin - first_end <= HOUR + 120 for begin, _ in others] == [True, True]
    assert only(held.finishes())["recycled"] == 2
    (first, _), (later, _) = runs(world, old["waits"])
    assert first < 120 and later >= 2 * HOUR


def test_outdated_nodes_are_replaced_group_by_group_a_share_at_once_and_no_mark_stays(world):
    groups = outdated(world, "api", size=4) + outdated(world, "batch")
    before = {instance for group in groups for instance in group.instances}
    of_api, of_batch = (list(group.instances) for group in groups)

    # More at once than the module allows is refused, naming both. A dry run has a plan for each node. Neither writes anything.
    end = world.rotate(at_once=6).finishes()
    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    assert "at_once must be at most 5, the module's max_surge_per_group, but is 6" in end.cause
    end = world.rotate(selection=of(groups[1]), dry_run=True).finishes()
    assert end.outcome == "rotated" and only(end)["why"] == ["planned"]
    plans = [world.engine.execution(execution.arn).output["plan"] for execution in world.executions()]
    assert len(plans) == 2 and all(plan["steps"] for plan in plans)
    assert not world.writes()

    seen = []
    world.at("90s", lambda: seen.append(len(marked(world))))
    end = world.rotate(at_once="50%").finishes()

    assert end.outcome == "rotated", end
    assert [(group["group"], group["recycled"], group["failed"], group["left"]) for group in end.output["groups"]] == [
        ("api", 4, [], 0),
        ("batch", 2, [], 0),
    ]
    assert seen == [6]
    after = {instance for group in groups for instance in group.instances}
    assert len(after) == 6 and not before & after
    assert not marked(world)
    assert [group.sizes for group in groups] == [(1, 4, 8), (1, 2, 8)]
    assert world.rotate().finishes().outcome == "nothing_selected"

    # A share is how many nodes of the group are recycled at once. The second waits for the replacement of the first.
    began, ended = zip(*runs(world, of_api), strict=True)
    assert began[1] < min(ended) <= began[2]
    for nodes, at_once in ((of_api, 2), (of_batch, 1)):
        times = runs(world, nodes)
        assert max(sum(start <= moment < stop for start, stop in times) for moment, _ in times) == at_once


def test_a_group_that_is_larger_than_a_pass_is_rotated_by_one_start(world):
    """With alarms and ten retries a pass has 16 nodes. Most nodes leave the group meanwhile, so that it does not take long."""
    workers = world.group("workers", size=18, minimum=1, maximum=30)
    workers.gets_a_new_template()
    world.alarm("errors", InstanceId="i-0")
    client = world.aws.client("autoscaling")
    old = sorted(workers.instances)

    def detach():
        client.detach_instances(AutoScalingGroupName=workers.name, InstanceIds=old[2:16], ShouldDecrementDesiredCapacity=True)

    world.at("1m", detach)
    end = world.rotate(selection=of(workers), at_once=2, retries=10, alarms=["errors"]).finishes()
    result = only(end)
    assert (result["passes"], result["recycled"], result["left"], result["failed"]) == (2, 4, 0, [])
    assert result["why"] == [] and end.outcome == "rotated"
    assert started(world) == [*old[:2], *old[16:]]
    assert marks(world) == ([], 0)


def test_the_nodes_come_zone_by_zone_the_oldest_first_with_the_pause_and_the_mark_of_the_input(world):
    (workers,) = outdated(world, "workers", size=3, zones=("eu-west-1a", "eu-west-1b"))
    zones = {node.instance_id: node.zone for node in workers.nodes}
    oldest = {zone: min(node for node in zones if zones[node] == zone) for zone in zones.values()}
    assert len(oldest) == 2
    seen = []
    world.at("90s", lambda: seen.append(marks(world)))

    end = world.rotate(at_once=1, wait_between_nodes="30m", mark="hard").finishes()

    assert only(end)["recycled"] == 3
    assert started(world) == sorted(zones, key=lambda node: (oldest[zones[node]], node))
    began = [execution.entered("ClaimNode")[0] for execution in world.executions()]
    ended = [execution.steps[-1][0] for execution in world.executions()]
    assert [1800 < began[n + 1] - ended[n] < 1900 for n in range(2)] == [True] * 2
    assert seen == [(["NoSchedule"] * 3, 3)] and not marked(world)


def test_a_stopped_rotation_leaves_no_mark_after_a_sweep_and_when_redriven_goes_on_with_the_nodes_that_had_not_begun(world):
    (workers,) = outdated(world, "workers", size=3)
    order = sorted(workers.instances)
    rotation = world.rotate(at_once=1, failure_budget=1)
    world.run("60s")

    # A second rotation leaves out the groups of the first, and their marks.
    second = world.rotate().finishes()
    assert second.outcome == "rotated" and only(second)["recycled"] == 0
    assert only(second)["why"] == [f"{rotation.arn} works on it"]
    assert len(marked(world)) == 3

    # The marks of a rotation that was stopped are gone after a sweep.
    rotation.stop()
    world.sweep().finishes()
    assert not marked(world)
    world.sweep().finishes()
    assert not any(MARK in node.annotations for node in world.kubernetes.nodes())
    assert sorted(workers.states.values()) == ["InService"] * 3

    rotation.redrive()
    end = rotation.finishes()
    assert only(end)["failed"] == [{"node": order[0], "why": "ABORTED"}]
    assert only(end)["recycled"] == 2 and started(world) == order
    assert order[0] in workers.instances and not marked(world)


def test_a_paused_group_is_waited_for_and_left_after_a_day(world):
    soon, never, late, never_one_by_one = groups = outdated(world, "soon", "never", "late", "never-one-by-one")
    old = {group.name: list(group.instances) for group in groups}
    for group in groups:
        pause(world, group)
    world.at("1h", lambda: pause(world, soon, "false"))
    world.at("23h", lambda: pause(world, late, "false"))

    several = world.rotate(of(soon, never))
    one_by_one = world.rotate(of(late, never_one_by_one), at_once=1)
    ends = [several.finishes(), one_by_one.finishes()]

    assert [end.outcome for end in ends] == ["rotated"] * 2, ends
    assert DAY < ends[0].at < 37 * HOUR and DAY < ends[1].at < 36 * HOUR
    found = ends[0].groups | ends[1].groups
    # A pause that was lifted, also too late for the first node.
    assert [found[group.name]["recycled"] for group in (soon, late)] == [2, 2]
    assert all(began > HOUR and ended < 4 * HOUR for began, ended in runs(world, old["soon"]))
    assert executions(world, old["soon"])[0].entered("ClaimNode")[0] > HOUR
    # A pause for longer than a day in all.
    paused = {group.name: f"group {group.name} has the tag recycle-eks:paused" for group in groups}
    assert found["never"]["why"] == [f"waited for a day: {paused['never']}"]
    # The second node waits for no further day.
    assert found["never-one-by-one"]["why"] == [f"waited for a day: {paused['never-one-by-one']}", paused["never-one-by-one"]]
    for group in (never, never_one_by_one):
        assert found[group.name]["left"] == 2 and not started(world, old[group.name])
    assert not marked(world)


def test_after_the_window_no_new_node_is_started_and_the_next_rotation_goes_on(world):
    (workers,) = outdated(world, "workers")
    job = first_of(workers).job("train", labels={"app": "train"})
    world.at("20m", job.finishes)
    end = world.rotate(at_once=1, start_no_new_node_after="10m", recycle={"label_selector": "app=train"}).finishes()

    assert end.outcome == "rotated" and job.phase == "Succeeded"
    assert (only(end)["recycled"], only(end)["left"]) == (1, 1)
    assert only(end)["why"] == ["start_no_new_node_after was 2027-01-01T00:10:00Z"]

    again = world.rotate().finishes()
    assert only(again)["recycled"] == 1


def test_a_failed_node_is_tried_again_after_a_pause_and_stops_the_others_unless_the_budget_allows_it(world):
    rows = {
        "strict": {},
        "budget": {"retries": 2, "failure_budget": 1},
        "pause": {"retries": 1, "wait_between_nodes": 1800},
    }
    groups = {group.name: group for group in outdated(world, *rows)}
    old = {name: list(group.instances) for name, group in groups.items()}
    stubborn = {name: first_of(group) for name, group in groups.items()}
    for name, node in stubborn.items():
        node.job(f"train-{name}", labels={"app": "train"})

    recycle = {"label_selector": "app=train", "drain_timeout": 120}
    rotations = {name: world.rotate(of(groups[name]), at_once=1, recycle=recycle, **terms) for name, terms in rows.items()}
    ends = {name: rotation.finishes() for name, rotation in rotations.items()}

    for name, end in ends.items():
        assert (end.status, end.error) == ("FAILED", "RotationFailed"), (name, end)
        assert only(end)["failed"] == [{"node": stubborn[name].instance_id, "why": "DrainTimedOut"}], (name, end)
        assert stubborn[name].instance_id in groups[name].instances and not stubborn[name].unschedulable, name
    assert not marked(world)
    tries = {name: [stubborn[name].instance_id] for name in rows}
    # When a node fails, no other is begun.
    assert only(ends["strict"])["left"] == 1
    assert only(ends["strict"])["why"] == ["1 of its nodes failed, and failure_budget is 0"]
    assert started(world, old["strict"]) == tries["strict"]
    assert (only(ends["pause"])["recycled"], only(ends["pause"])["left"]) == (0, 1)
    assert started(world, old["pause"]) == tries["pause"] * 2
    # A failure within the budget stops nothing.
    assert (only(ends["budget"])["recycled"], only(ends["budget"])["left"]) == (1, 0)
    assert started(world, old["budget"])[:3] == tries["budget"] * 3
    # The pause before each further attempt: a minute, or that between nodes.
    for name, retries, seconds in (("budget", 2, 60), ("pause", 1, 1800)):
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(runs(world, tries[name]))]
        assert len(gaps) == retries and all(seconds <= gap < seconds + 30 for gap in gaps), (name, gaps)
        assert {execution.status for execution in executions(world, tries[name])} == {"FAILED"}, name

    # A failed rotation only fails again when it is redriven.
    rotations["strict"].redrive()
    again = rotations["strict"].finishes()
    assert (again.error, again.cause) == ("RotationFailed", ends["strict"].cause)
    assert started(world, old["strict"]) == tries["strict"]


def label_of(group):
    """The value of the label `recycle-eks/group`: short_hash of crates/recycle/src/base/ids.rs."""
    found = 0xCBF29CE484222325
    for byte in group.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return f"{found >> 32:08x}"


#: Claims that no execution of this installation has written.
NEWER_SCHEMA = '{"schema": 2}'
ANOTHER_INSTALLATION = json.dumps(
    {
        "schema": 1,
        "fence": "arn:aws:states:eu-west-1:123456789012:execution:other-recycle-node:run#0",
        "group": "workers",
        "phase": "draining",
        "urgency": "planned",
        "claimed_at": "2027-01-01T00:00:00Z",
    }
)
#: The claim, whether its Lease has the label of the group, and the node's place among those of its group.
FOREIGN = {
    "newer-schema-first": (NEWER_SCHEMA, True, 0),
    "newer-schema-without-label": (NEWER_SCHEMA, False, 0),
    "another-installation-second": (ANOTHER_INSTALLATION, True, 1),
    "another-installation-without-label": (ANOTHER_INSTALLATION, False, 0),
}


def test_a_node_with_a_claim_of_no_execution_of_this_installation_fails_by_name_and_holds_up_no_other(world):
    held = {}
    for group in outdated(world, *FOREIGN):
        claim, is_labelled, place = FOREIGN[group.name]
        labels = {"recycle-eks/group": label_of(group.name)} if is_labelled else {}
        held[group.name] = group.nodes[place]
        held[group.name].record("recycle-eks/claim", claim.replace("workers", group.name), **labels)
    # A tag holds no node up.
    (tagged,) = outdated(world, "tagged")
    tags = [{"Key": "recycle-eks:claim", "Value": "2 x"}, {"Key": "recycle-eks:group", "Value": "tagged"}]
    world.aws.client("ec2").create_tags(Resources=[tagged.nodes[0].instance_id], Tags=tags)

    end = world.rotate(at_once=1, on_failure="continue").finishes()

    assert (end.status, end.error) == ("FAILED", "RotationFailed") and end.at < world.seconds("3h"), end
    found = end.groups
    assert (found["tagged"]["recycled"], found["tagged"]["failed"], found["tagged"]["left"]) == (2, [], 0)
    (of_rotation,) = [text for text in world.notifications if "a rotation failed" in text]
    for name, node in held.items():
        assert found[name]["failed"] == [{"node": node.instance_id, "why": "PreflightRefused"}], name
        assert found[name]["recycled"] == 1 and node.exists, name
        (execution,) = executions(world, [node.instance_id])
        assert execution.finishes().cause.startswith("foreign_claim: "), (name, execution.finishes().cause)
        sent = [text for text in world.notifications if "foreign_claim" in text and node.instance_id in text]
        remedy = f"kubectl annotate lease --namespace recycle-eks {node.instance_id} recycle-eks/claim-"
        assert len(sent) == 1 and remedy in sent[0], (name, sent)
        assert node.instance_id in of_rotation, name


def test_a_node_that_another_execution_works_on_is_not_done_and_the_rotation_says_so(world):
    (workers,) = outdated(world, "workers", size=3)
    seen = []
    world.at("90s", lambda: seen.append(marks(world)))
    rotation = world.rotate(at_once=1, mark="none")
    world.clock.run(until=lambda: bool(started(world)))
    node = next(node for node in workers.nodes if node.instance_id not in started(world))
    world.at("20m", node.job("train", labels={"app": "train"}).finishes)
    other = world.recycle(node, label_selector="app=train", replacement="after")

    end = rotation.finishes()

    assert (end.status, end.error) == ("FAILED", "RotationFailed"), end
    (failed,) = only(end)["failed"]
    assert failed["node"] == node.instance_id and failed["why"].startswith(f"duplicate: {other.arn} (RUNNING)")
    assert only(end)["recycled"] == 2 and only(end)["left"] == 0
    assert other.finishes().outcome == "recycled"
    # Without a mark in the input, the nodes have no taint, but the annotation that marks them for another rotation.
    assert seen == [([], 3)] and not marked(world)


def test_a_replacement_that_is_outdated_too_or_newer_than_the_control_plane_stops_its_group_by_name(world):
    still_outdated = world.group("outdated", size=2, minimum=1, maximum=6, kubelet="v1.34.1-eks-0000000")
    (too_new,) = outdated(world, "new")
    too_new.kubelet = "v1.99.0"
    first, second = (list(group.instances) for group in (still_outdated, too_new))

    rotations = [world.rotate({"outdated": {"kubelet": True, "groups": ["outdated"]}}), world.rotate(of(too_new))]
    ends = [rotation.finishes() for rotation in rotations]

    assert ends[0].error == "RotationFailed"
    assert only(ends[0])["error"] == ["ReplacementStillOutdated"]
    assert "group uses template version 1 = $Latest; newest is 1" in only(ends[0])["why"][0]
    assert len(started(world, first)) == 1 and only(ends[0])["recycled"] == 1
    assert sorted(still_outdated.states.values()) == ["InService"] * 2

    assert only(ends[1])["error"] == ["KubeletTooNew"] and len(started(world, second)) == 1
    assert "has kubelet 1.99, but the control plane is 1.35" in only(ends[1])["why"][0]
    assert not marked(world)

    again = world.rotate(of(too_new)).finishes()
    assert only(again)["error"] == ["KubeletTooNew"] and len(started(world, second)) == 1


def test_the_next_node_waits_for_the_pods_that_this_rotation_evicted_for_an_hour_and_for_no_others(world):
    (api,) = outdated(world, "api", size=3)
    (batch,) = outdated(world, "batch")
    of_api = list(api.instances)
    for group in (api, batch):
        first_of(group).kubernetes.label(pool=group.name)
        first_of(group).deployment(f"web-of-{group.name}", node_selector={"pool": group.name})
    world.kubernetes.deployment("others", node_selector={"nowhere": "true"})
    world.at("30m", lambda: api.newest.kubernetes.label(pool="api"))

    end = world.rotate(at_once=1).finishes()

    assert end.error == "RotationFailed" and end.at < 3 * HOUR
    found = end.groups
    assert found["api"]["recycled"] == 3
    began = [execution.entered("ClaimNode")[0] for execution in executions(world, of_api)]
    assert 1800 < began[1] < 3600 and began[2] < began[1] + 1200
    # Pods that find no place for an hour stop the group.
    assert (found["batch"]["recycled"], found["batch"]["left"]) == (1, 1)
    assert "1 pod that this rotation evicted is still Pending: default/web-of-batch-" in found["batch"]["why"][0]
    assert found["batch"]["error"] == ["PodsPending"] and not found["api"]["error"]
    assert only(world.rotate(wait_for_pending_pods=False).finishes())["recycled"] == 1
