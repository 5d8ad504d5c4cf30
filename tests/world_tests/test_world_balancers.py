"""The model of target groups: its book says who got traffic when."""

import pytest

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


@pytest.fixture
def workers(world):
    return world.group("workers", size=2, minimum=0, maximum=4)


def health(world, group) -> dict[str, str]:
    """Returns the state as AWS shows it."""
    answer = world.aws.client("elbv2").describe_target_health(TargetGroupArn=group.arn)["TargetHealthDescriptions"]
    return {target["Target"]["Id"]: target["TargetHealth"]["State"] for target in answer}


def standby(world, node) -> None:
    world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=False
    )


def test_an_attached_group_follows_its_members(world, workers):
    group = world.target_group("ingress", workers, deregistration_delay="2m", checks="1m")
    first = workers.nodes[0]
    assert health(world, group) == group.targets == dict.fromkeys(workers.states, "healthy")
    world.run("1m")
    standby(world, first)
    assert group.targets[first.instance_id] == "draining"
    world.run("2m30s")
    new = workers.newest.instance_id
    assert (group.targets[new], health(world, group)[new]) == ("initial", "initial")
    world.run("4m")
    assert group.targets == dict.fromkeys(set(workers.states) - {first.instance_id}, "healthy")
    (entry,) = [entry for entry in group.book if entry.target == first.instance_id]
    assert (entry.deregistered, entry.gone) == (60, 180)


def test_the_times_without_a_healthy_target_are_known_to_the_second(world):
    workers = world.group("workers", size=1, minimum=0, maximum=4)
    group = world.target_group("ingress", workers, checks="45s")
    node = workers.nodes[0]
    world.run("100s")
    standby(world, node)
    world.run("10m")
    assert group.unserved() == [(100, 100 + 60 + 45)]
    assert group.unserved(since=120) == [(120, 205)]
    assert group.unserved(since=300) == []


@pytest.mark.parametrize("end", ["terminate_instances", "stop_instances"])
def test_an_instance_that_ends_as_a_target_is_cut_off(world, workers, end):
    group = world.target_group("ingress", workers)
    first, second = workers.nodes
    world.run("1m")
    getattr(world.aws.client("ec2"), end)(InstanceIds=[first.instance_id])
    assert group.cut_off == [first.instance_id]
    workers.terminate(second)
    world.run("20m")
    assert group.cut_off == [first.instance_id], "the group waits until its connections are drained"


def test_nodes_are_targets_unless_they_are_excluded_or_about_to_go(world, workers):
    group = world.target_group("nodes")
    first, second = workers.nodes
    assert sorted(group.targets) == sorted(workers.states)
    first.kubernetes.cordon()
    world.run("1m")
    assert sorted(group.targets) == sorted(workers.states)
    first.kubernetes.label(**{EXCLUDE: "true"})
    second.kubernetes.add_taint("ToBeDeletedByClusterAutoscaler")
    world.run("2m")
    assert group.targets == dict.fromkeys(workers.states, "draining")
    first.kubernetes.label(**{EXCLUDE: None})
    world.run("3m")
    assert group.targets[first.instance_id] in ("initial", "healthy")


def test_a_reset_forgets_them(world, workers):
    group = world.target_group("ingress", workers)
    world.reset()
    assert world.balancers.find(group.arn) is None
