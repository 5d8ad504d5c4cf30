"""The use of each of the systems before this one, as its user does it here."""

import json

import pytest

#: Everything that is there when a scenario begins.
THERE = "2027-01-01T00:00:01Z"


def in_order(group):
    return sorted(group.nodes, key=lambda node: node.instance_id)


def began(world):
    """Which instances were begun, in order."""
    return [json.loads(world.engine.execution(each.arn).input_text)["instance_id"] for each in world.executions()]


@pytest.mark.any_replacement
def test_scribd_one_node_by_its_three_fields_and_the_instance_is_stopped(world):
    """scribd/terraform-aws-recycle-eks: an execution with `instance_id`, `cluster_name` and `label_selector` waits for the
    labelled pods and stops the instance. The same input is taken unchanged; that it is stopped is a field of its own."""
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    first, second = workers.nodes
    for minutes, node in ((20, first), (60, second)):
        world.at(f"{minutes}m", node.job(f"airflow-{minutes}", labels={"component": "worker"}).finishes)

    given = {"instance_id": first.instance_id, "cluster_name": "world", "label_selector": "component=worker"}
    end = world.recycle(given).finishes()
    assert end.outcome == "recycled" and end.at > world.seconds("20m")
    assert world.instance(first.instance_id).state == "terminated"

    end = world.recycle({**given, "instance_id": second.instance_id, "dispose": "stop"}).finishes()
    assert end.outcome == "recycled" and end.at > world.seconds("1h")
    assert world.instance(second.instance_id).state == "stopped" and second.has_taint("recycle-eks/stopped")
    assert list(workers.states.values()).count("InService") == 2 and workers.sizes == (1, 2, 3)


def test_ektopistis_nodes_of_an_old_image_one_at_a_time_although_pods_are_pending(world):
    """sageailabs/ektopistis with aws-ami-upgrade-tainter.sh: nodes that run another image than their group launches are drained,
    one at a time. There, any Pending pod stopped everything; here a foreign pod does not."""
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    old = [node.instance_id for node in in_order(workers)]
    web = workers.nodes[0].deployment("web", replicas=3)
    world.budget(web, max_unavailable=1)
    world.kubernetes.deployment("ci", node_selector={"nowhere": "true"})
    workers.gets_a_new_template(ImageId="ami-03cf127a")

    end = world.rotate({"outdated": {"ami": True}}, at_once=1).finishes()

    assert end.outcome == "rotated" and end.groups["workers"]["recycled"] == 3, end
    assert began(world) == old and not set(old) & set(workers.instances)
    work = [(each.entered("ClaimNode")[0], each.steps[-1][0]) for each in world.executions()]
    assert all(end <= begin for (_, end), (begin, _) in zip(work, work[1:], strict=False))
    assert len(web.running_pods()) == 3
    assert world.rotate({"outdated": {"ami": True}}).finishes().outcome == "nothing_selected"


def test_rotator_all_nodes_of_two_groups_two_at_once_and_two_failures_abort_no_other(world):
    """mattermost/rotator: all nodes of some groups, outdated or not, a set number at once, with time between them, a grace period
    and retries. There, one bare pod aborted the rotation and left detached nodes. Here a failed node is restored, the others go
    on, and the same call recycles the failed node later."""
    groups = [world.group(name, size=2, minimum=1, maximum=6) for name in ("utilities", "workers")]
    untouched = world.group("masters", size=1, minimum=1, maximum=2)
    old = {node.instance_id: node for group in groups for node in group.nodes}
    masters = untouched.instances
    (first, second), (third, fourth) = (in_order(group) for group in groups)
    bare = first.bare_pod("debug")
    single = third.deployment("single", replicas=1)
    world.budget(single, min_available=1)
    second.deployment("slow", ignores_sigterm=True, grace=7200)
    terms = {
        "at_once": 2,
        "wait_between_nodes": 60,
        "retries": 1,
        "on_failure": "continue",
        "recycle": {"grace_period": 60, "drain_timeout": 300},
    }
    selection = {"outdated": {"launched_before": THERE, "groups": ["utilities", "workers"]}}

    end = world.rotate(selection, **terms).finishes()

    assert end.error == "RotationFailed"
    failed = {name: [each["node"] for each in result["failed"]] for name, result in end.groups.items()}
    assert failed == {"utilities": [first.instance_id], "workers": [third.instance_id]}
    assert [result["recycled"] for result in end.groups.values()] == [1, 1]
    assert sorted(began(world)) == sorted([*old, first.instance_id, third.instance_id]), "each failed node had two attempts"
    assert not second.exists and not fourth.exists and end.at < world.seconds("2h"), "60 seconds of grace, not two hours"
    for node in (first, third):
        assert node.group.states[node.instance_id] == "InService" and not node.unschedulable
    assert bare.phase == "Running" and len(single.running_pods()) == 1

    bare.deleted()
    single.scale(2)
    again = world.rotate(selection, **terms).finishes()

    assert again.outcome == "rotated", again
    assert [result["recycled"] for result in again.groups.values()] == [1, 1]
    assert not any(node.exists for node in old.values()) and untouched.instances == masters


def test_rotatorctl_waits_for_the_end_and_its_exit_code_serves_a_pipeline(world, cli):
    """mattermost/rotatorctl: a synchronous command for a pipeline. Here it can be started again, and each kind of end has an
    exit code."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    first, _ = in_order(workers)
    bare = first.bare_pod("debug")
    command = ["rotate", "--launched-before", THERE, "--group", "workers", "--at-once", "1", "--on-failure", "continue"]

    printed = cli(*command, "--drain-timeout", "900", "--output", "json")
    assert printed.code == 3, printed
    assert workers.states[first.instance_id] == "InService" and len(world.executions("rotate-nodes")) == 1

    bare.deleted()
    printed = cli(*command, "--output", "json")
    assert (printed.code, printed.document["outcome"]) == (0, "rotated"), printed
    assert not first.exists
    assert cli(*command).code == 0, "there is nothing left to do"


def test_node_drainer_a_scale_in_waits_until_the_node_is_drained(world):
    """aws-samples/amazon-k8s-node-drainer: a lifecycle hook holds an instance that its group terminates until its pods are
    evicted. There all of it had to end within five minutes; here a budget may take as long as it needs."""
    workers = world.group("held", size=2, minimum=0, maximum=4)
    web = workers.nodes[0].deployment("web", replicas=1)
    other = workers.nodes[1].deployment("other", replicas=1)
    for each in (web, other):
        world.budget(each, min_available=1)
    for node in workers.nodes:
        node.daemon_set(f"logs-{node.instance_id}")
    workers.grow(1)
    world.run("15m")
    (left,) = [instance for instance, state in workers.states.items() if state == "Terminating:Wait"]
    assert world.instance(left).state == "running" and workers.node_of(left).has_taint("recycle-eks/draining")

    for each in (web, other):
        each.scale(2)
    (execution,) = world.executions()

    assert execution.finishes().outcome == "recycled"
    world.wait(600)
    assert world.instance(left).state == "terminated" and list(workers.states.values()) == ["InService"]
    assert len(web.running_pods()) == len(other.running_pods()) == 2
