"""Load balancers: never without a target unless an override allows it, and no instance ends while it is a target."""

import pytest

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def group(world, size: int = 2, maximum: int = 4):
    return world.group("workers", size=size, minimum=1, maximum=maximum)


def is_served_until_its_end(world, node, *attached):
    """Recycles a node behind target groups that are attached to its group, and behind one that follows the cluster's nodes."""
    nodes = world.target_group("nodes", deregistration_delay="1m")
    job = node.job("train", labels={"app": "train"})
    world.at("5m", job.finishes)

    end = world.recycle(node, label_selector="app=train", load_balancer_grace=90).finishes()
    world.run(end.at + 900)

    assert end.outcome == "recycled", end.cause
    # AWS ends another member if it launches one more and trims itself. Only the end of that member may leave a gap.
    victims = [entry for entry in nodes.book if entry.target in nodes.cut_off]
    assert node.instance_id not in nodes.cut_off
    assert [gap for gap in nodes.unserved() if gap[0] not in [entry.ended for entry in victims]] == []
    if not world.unknowns.terminate_from_standby_launches_extra:
        assert victims == [] == nodes.unserved()
    (left,) = [entry.deregistered for entry in nodes.book if entry.target == node.instance_id]
    assert left >= world.seconds("5m"), "it serves as long as its pods are waited for"
    for target_group in (nodes, *attached):
        assert sorted(target_group.targets) == sorted(node.group.states)


@pytest.mark.reading("exit_standby_trims", "terminate_from_standby_launches_extra", "enter_standby_at_max_launches")
def test_a_group_behind_a_target_group_always_has_a_target_and_none_is_cut_off(world):
    workers = group(world)
    ingress = world.target_group("ingress", workers)

    is_served_until_its_end(world, workers.nodes[0], ingress)

    assert ingress.unserved() == [] and ingress.cut_off == []


@pytest.mark.reading("exit_standby_trims", "terminate_from_standby_launches_extra", "enter_standby_at_max_launches")
def test_targets_that_follow_the_nodes_leave_after_the_pods_and_before_the_instance(world):
    """Also those of the only node of a group."""
    is_served_until_its_end(world, group(world, size=1).nodes[0])


def test_the_last_target_is_refused_unless_overridden(world):
    workers = group(world, size=1)
    node = workers.nodes[0]
    ingress = world.target_group("ingress", workers)

    # Without an answer about a balancer nothing begins.
    world.faults.refuse("elasticloadbalancing:DescribeTargetHealth", code="AccessDenied", status=403, times=None)
    end = world.recycle(node).finishes()
    assert (end.error, world.writes()) == ("ServiceRefused", [])
    assert "elasticloadbalancing:DescribeTargetHealth" in end.cause
    world.faults.clear()

    end = world.recycle(node).finishes()
    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert end.cause.startswith("last_target: ") and "target group ingress" in end.cause
    assert world.writes() == [] and ingress.unserved() == []

    end = world.recycle(node, override=["last_target"]).finishes()
    assert end.outcome == "recycled", end.cause
    assert ingress.cut_off == []
    assert len(ingress.unserved()) == 1, "from EnterStandby until the replacement is healthy"


def test_with_after_the_only_node_of_a_group_serves_until_it_is_drained_and_its_successor_takes_over(world):
    workers = group(world, size=1, maximum=1)
    node = workers.nodes[0]
    ingress = world.target_group("ingress", workers)
    job = node.job("train", labels={"app": "train"})
    world.at("5m", job.finishes)

    execution = world.recycle(node, label_selector="app=train", replacement="after")
    world.run("4m")
    assert ingress.targets == {node.instance_id: "healthy"}
    end = execution.finishes()
    world.run(end.at + 900)

    assert end.outcome == "recycled", end.cause
    assert ingress.cut_off == []
    assert ingress.targets == {workers.nodes[0].instance_id: "healthy"} and not node.exists
    (unserved,) = ingress.unserved()
    assert unserved[0] >= world.seconds("5m"), "not before its pods were done"


def test_with_after_the_second_of_two_targets_waits_until_the_first_ones_successor_is_healthy(world):
    workers = group(world, size=2, maximum=2)
    ingress = world.target_group("ingress", workers, checks="10m")
    first, second = [world.recycle(node, replacement="after") for node in workers.nodes]

    ends = [first.finishes(), second.finishes()]
    world.run(ends[1].at + 900)

    assert [end.outcome for end in ends] == ["recycled", "recycled"], [end.cause for end in ends]
    assert ingress.unserved() == [] and ingress.cut_off == []
    assert any("has no other healthy target" in answer["reason"] for answer in second.answers("ClaimNode"))


def test_targets_of_another_group_and_only_healthy_ones_count(world):
    workers = group(world, size=1)
    others = world.group("others", size=1)
    node = workers.nodes[0]
    ingress = world.target_group("ingress", workers, others, checks="10m")
    end = world.recycle(node, dry_run=True).finishes()
    assert end.outcome == "planned"
    notes = end.output["plan"]["notes"]
    assert [note for note in notes if "takes it out of target group ingress at once" in note], notes

    other = others.nodes[0].instance_id
    ingress.deregister([other])
    ingress.register([other])
    assert ingress.targets[other] == "initial"
    assert world.recycle(node, dry_run=True).finishes().cause.startswith("last_target: ")
    world.run("11m")
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_other_attachments_count_the_groups_own_members(world):
    lattice = "arn:aws:vpc-lattice:eu-west-1:123456789012:targetgroup/front"
    # The first, because the target group has all nodes of the cluster.
    attachments = {
        "elbv2": lambda: ("traffic_sources", [{"Identifier": world.target_group("front").arn, "Type": "elbv2"}]),
        "lattice": lambda: ("traffic_sources", [{"Identifier": lattice, "Type": "vpc-lattice"}]),
        "classic": lambda: ("load_balancer_names", ["front"]),
    }
    for kind, attachment in attachments.items():
        node = world.group(kind, size=1, minimum=1, maximum=4).nodes[0]
        setattr(world.autoscaling.group(kind), *attachment())

        end = world.recycle(node, dry_run=True).finishes()

        assert end.error == "PreflightRefused" and end.cause.startswith("last_target: ") and "front" in end.cause, (kind, end)


@pytest.mark.any_replacement
def test_a_grace_that_is_shorter_than_the_draining_cuts_connections(world):
    """Without the grace the model of load balancers reports a connection that was cut off. The default grace is as long as the
    default delay of a target group."""
    node, another = group(world).nodes
    nodes = world.target_group("nodes", deregistration_delay="5m")

    assert world.recycle(node, load_balancer_grace=0).finishes().outcome == "recycled"
    assert nodes.cut_off == [node.instance_id]
    assert world.recycle(another).finishes().outcome == "recycled"
    assert nodes.cut_off == [node.instance_id]


@pytest.mark.any_replacement
def test_a_restored_node_is_a_target_again(world):
    workers = group(world)
    node = workers.nodes[0]
    ingress, nodes = world.target_group("ingress", workers), world.target_group("nodes")
    world.faults.refuse(
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        code="AccessDenied",
        status=403,
        times=None,
        function="detach-terminate",
    )

    end = world.recycle(node).finishes()
    world.run(end.at + 900)

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert EXCLUDE not in node.labels and not node.unschedulable and not world.leftovers(workers)
    assert workers.states[node.instance_id] == "InService"
    for target_group in (ingress, nodes):
        assert target_group.targets[node.instance_id] == "healthy"
        assert target_group.unserved() == [] and node.instance_id not in target_group.cut_off
