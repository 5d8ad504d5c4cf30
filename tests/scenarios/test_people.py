"""Operators interfere while an execution works on their node. The execution never undoes their changes."""

import pytest

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


@pytest.fixture
def job(node):
    return node.job("train", labels={"app": "train"})


def exit_standby(world, node):
    world.aws.client("autoscaling").exit_standby(AutoScalingGroupName="workers", InstanceIds=[node.instance_id])


def test_a_node_brought_back_into_service_before_its_replacement_came_stays_there(world, node, job):
    node.group.next_launch(takes="10m")
    execution = world.recycle(node, label_selector="app=train")
    world.at("3m", lambda: exit_standby(world, node))

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert "was brought back into service in group workers, which recycle-eks did not do" in end.cause
    assert len(world.calls("autoscaling:EnterStandby")) == 1
    assert "recycle-eks:claim" not in world.instance(node.instance_id).tags
    assert job.phase == "Running" and not node.unschedulable
    assert not [key for key in node.annotations if key.startswith("recycle-eks/")]


@pytest.mark.parametrize("person", ["exits Standby", "removes the taint"])
def test_a_node_that_an_operator_put_to_use_during_the_drain_is_not_disposed_of(world, node, job, person):
    execution = world.recycle(node, label_selector="app=train")
    world.run("8m")
    if person == "exits Standby":
        exit_standby(world, node)
    else:
        node.kubernetes.remove_taints("recycle-eks/draining")
    world.at("15m", job.finishes)

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert "which recycle-eks did not do" in end.cause
    assert world.instance(node.instance_id).state == "running" and node.exists
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"


def test_an_uncordoned_node_is_recycled_because_the_taint_still_keeps_pods_away(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.at("8m", node.kubernetes.uncordon)
    world.at("15m", job.finishes)

    assert execution.finishes().outcome == "recycled"


def test_a_removed_claim_ends_the_execution_and_the_next_resumes(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.at("8m", lambda: node.record("recycle-eks/claim", None))
    world.at("15m", job.finishes)

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ClaimLost")
    assert end.cause == (
        f"this execution no longer holds the claim on node {node.name}: "
        "there is no claim; the next sweep restores the node, or reports what an operator has to do"
    )
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"


def test_after_a_deleted_lease_the_node_stays_in_standby_with_its_pods_until_an_operator_acts(world, node, job):
    """Its record is gone, so that no execution can resume, and the sweep does not know what the group had before."""
    execution = world.recycle(node, label_selector="app=train")
    world.at("8m", node.loses_its_lease)

    end = execution.finishes()
    again = world.recycle(node, label_selector="app=train").finishes()
    world.sweep().finishes()

    assert (end.status, end.error) == ("FAILED", "ClaimLost")
    assert end.cause.endswith("the next sweep restores the node, or reports what an operator has to do")
    assert again.error == "PreflightRefused" and "take it out of Standby first" in again.cause
    assert node.group.states[node.instance_id] == "Standby" and job.phase == "Running"
    assert (node.instance_id, "recycle-eks:gave-up") in world.leftovers(node.group)
    assert any("Standby" in text for text in world.notifications)


def test_the_cause_for_a_deleted_node_object_does_not_offer_to_resume(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.at("20m", lambda: world.kubernetes.remove_node(node.name))

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "NodeLost")
    assert "resumes" not in end.cause and "exit-standby" not in end.cause
    assert world.instance(node.instance_id).state == "terminated"


def test_a_node_that_an_operator_terminates_in_the_drain_is_lost_and_leaves_no_marks(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.at("20m", lambda: node.group.terminate(node))

    end = execution.finishes()
    world.run(end.at + 900)
    swept = world.sweep().finishes()

    assert (end.status, end.error) == ("FAILED", "NodeLost")
    assert swept.status == "SUCCEEDED" and world.notifications and all("was restored" not in text for text in world.notifications)
    assert sorted(node.group.states.values()) == ["InService"] * len(node.group.states)
    for other in node.group.nodes:
        assert not [key for key in {**other.annotations, **other.labels} if key in ("recycle-eks/claim", "recycle-eks/record")]
        assert not [key for key in world.instance(other.instance_id).tags if key.startswith("recycle-eks:")]


def test_an_earlier_label_is_not_removed(world, node):
    node.kubernetes.label(**{EXCLUDE: "its-owner"})
    world.faults.refuse(
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        code="AccessDenied",
        status=403,
        times=None,
        function="detach-terminate",
    )

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert node.labels[EXCLUDE] == "its-owner"


def test_an_operators_end_of_a_drain_is_removed_with_the_drain(world, node, job):
    world.at("10m", lambda: node.annotate("recycle-eks/drain-until", "now"))

    end = world.recycle(node, label_selector="app=train").finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "ended the drain at" in end.cause and "recycle-eks/drain-until" not in node.annotations


def test_a_pod_that_becomes_awaited_begins_the_disposal_anew(world, node, job):
    side = node.deployment("side", annotations={"recycle-eks/drain": "ignore"}).pods()[0]

    def say(word: str) -> None:
        change = {"metadata": {"annotations": {"recycle-eks/drain": word}}}
        world.kubernetes.must("PATCH", side.path, change, "application/merge-patch+json")

    world.at("8m", job.finishes)
    world.at("8m30s", lambda: say("wait"))
    world.at("40m", lambda: say("ignore"))
    execution = world.recycle(node, label_selector="app=train", dispose="stop", load_balancer_grace=120)

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert "CheckPods" in execution.path[execution.path.index("DetachTerminate") :]
    assert world.instance(node.instance_id).state == "stopped"


def test_protection_counts_for_a_node_that_a_dead_execution_had_only_claimed(world, node):
    stopped = world.recycle(node)
    world.faults.refuse("autoscaling:EnterStandby", code="Throttling", times=None)
    world.run("5s")
    stopped.stop()
    node.group.protect(node)

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert "scale_in_protection" in end.cause


def test_the_failure_names_a_blocking_budget(world, node):
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)

    end = world.recycle(node, drain_timeout=600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "The disruption budget web needs 2 healthy pods and has 2 currently" in end.cause


def test_a_pod_with_two_budgets_is_reported_and_does_not_delay_the_others(world, node):
    twice = node.deployment("twice", replicas=1)
    world.kubernetes.budget("one", twice, max_unavailable=1)
    world.kubernetes.budget("two", twice, max_unavailable=1)
    other = node.deployment("other", replicas=1)
    before = other.pods()[0]

    end = world.recycle(node, drain_timeout=600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "more than one PodDisruptionBudget" in end.cause
    assert not before.exists
