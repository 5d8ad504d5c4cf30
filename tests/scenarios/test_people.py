"""Operators interfere while an execution works on their node. The execution never undoes their changes."""

import time

import pytest

from world.base.faults import INVOKE

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def exit_standby(world, node):
    world.aws.client("autoscaling").exit_standby(AutoScalingGroupName=node.group.name, InstanceIds=[node.instance_id])


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


#: The acts of an operator during the drain of a node, by the name of its group, and the end of its execution.
ACTS = {
    "exits-standby": (exit_standby, "ServiceRefused"),
    "untaints": (lambda world, node: node.kubernetes.remove_taints("recycle-eks/draining"), "ServiceRefused"),
    "unclaims": (lambda world, node: node.record("recycle-eks/claim", None), "ClaimLost"),
    # The taint still keeps pods away.
    "uncordons": (lambda world, node: node.kubernetes.uncordon(), None),
}


def test_a_node_that_an_operator_put_to_use_during_the_drain_is_not_disposed_of(world):
    nodes, executions = {}, {}
    for name in ACTS:
        node = nodes[name] = world.group(name, size=2, minimum=1, maximum=4).nodes[0]
        job = node.job(name, labels={"app": "train"})
        world.at("15m", job.finishes)
        executions[name] = world.recycle(node, label_selector="app=train")
    world.run("8m")
    for name, (act, _) in ACTS.items():
        act(world, nodes[name])

    ends = {name: execution.finishes() for name, execution in executions.items()}

    for name, (_, error) in ACTS.items():
        assert (ends[name].error, ends[name].outcome) == (error, None if error else "recycled"), (name, ends[name].cause)
    for name in ("exits-standby", "untaints"):
        assert ends[name].status == "FAILED" and "which recycle-eks did not do" in ends[name].cause, name
        assert world.instance(nodes[name].instance_id).state == "running" and nodes[name].exists, name
    assert ends["unclaims"].status == "FAILED"
    assert ends["unclaims"].cause == (
        f"this execution no longer holds the claim on node {nodes['unclaims'].name}: "
        "there is no claim; the next sweep restores the node, or reports what an operator has to do"
    )
    # A node that is back in service is restored at the next check.
    back = nodes["exits-standby"]
    assert ends["exits-standby"].at < world.seconds("15m") and "its drain is over" in ends["exits-standby"].cause
    assert not back.unschedulable and not back.has_taint("recycle-eks/draining")
    assert back.group.states[back.instance_id] == "InService"
    # The next execution goes on with each of these nodes.
    again = [world.recycle(nodes[name], label_selector="app=train") for name in ("exits-standby", "untaints", "unclaims")]
    assert [execution.finishes().outcome for execution in again] == ["recycled"] * 3


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


@pytest.mark.any_replacement
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


@pytest.mark.any_replacement
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


@pytest.mark.any_replacement
def test_the_failure_of_a_drain_names_a_pod_with_two_budgets_which_delays_no_other(world, node):
    twice = node.deployment("twice", replicas=1)
    world.kubernetes.budget("one", twice, max_unavailable=1)
    world.kubernetes.budget("two", twice, max_unavailable=1)
    other = node.deployment("other", replicas=1).pods()[0]

    end = world.recycle(node, drain_timeout=600).finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "more than one PodDisruptionBudget" in end.cause
    assert not other.exists


def test_a_node_that_comes_back_while_the_cluster_does_not_answer_is_not_disposed_of(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]

    def comes_back():
        # Longer than a reading of AWS counts as fresh. AWS is read at the same time as the Node.
        time.sleep(6)
        exit_standby(world, node)

    calls = []

    def arm(action, function, parameters):
        if action == INVOKE and function == "recycle-eks-detach-terminate":
            calls.append(action)
            # The second call terminates the instance.
            if len(calls) == 2:
                world.kubernetes.proxy.just_before("kubernetes:GET nodes", comes_back)

    world.faults.witnesses.append(arm)
    end = world.recycle(node).finishes()
    assert end.status == "FAILED" and "which recycle-eks did not do: it is not disposed of" in end.cause, end
    assert not world.calls("autoscaling:TerminateInstanceInAutoScalingGroup")
    assert workers.states[node.instance_id] == "InService"
