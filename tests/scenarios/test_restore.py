"""An execution that fails restores its node: each cell of the table, operators in between, crashes at every call."""

import pytest

from world.base.faults import sample
from world.scenario.groups import Group, Node

SIZES = {"m<d<M": (1, 2, 4), "m<d=M": (1, 2, 2), "m=d<M": (2, 2, 4), "m=d=M": (2, 2, 2), "Launch suspended": (1, 2, 4)}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"

#: The table: row, column -> desired capacity afterwards, or why the node stays in Standby.
STAYS, SUSPENDED = "so the instance cannot leave Standby", "the process Launch of group workers is suspended"
TABLE = {
    "m<d<M": {"not launched": 2, "pending": 2, "empty": 2, "has pods": 3},
    "m<d=M": {"not launched": 2, "pending": 2, "empty": 2, "has pods": STAYS},
    "m=d<M": {"not launched": 2, "pending": 2, "empty": 2, "has pods": 3},
    "m=d=M": {"not launched": STAYS, "pending": STAYS, "empty": STAYS, "has pods": STAYS},
    "Launch suspended": {"not launched": SUSPENDED, "empty": SUSPENDED, "has pods": SUSPENDED},
}
CELLS = [(row, column) for row, columns in TABLE.items() for column in columns]


class FailingExecution:
    """A node with a Job, whose execution fails while its replacement is as a column says."""

    def __init__(self, world, row: str, column: str) -> None:
        self.world, self.row, self.column = world, row, column
        minimum, size, maximum = SIZES[row]
        self.group: Group = world.group("workers", size=size, minimum=minimum, maximum=maximum)
        self.node: Node = self.group.nodes[0]
        self.other: Node = self.group.nodes[1]
        self.neighbour = self.other.job("neighbour")
        self.node.daemon_set("logs")
        self.job = self.node.job("train", labels={"app": "train"})
        if column == "not launched":
            self.group.next_launch(fails="Insufficient capacity")
        elif column == "pending":
            self.group.next_launch(takes="15m")
        self.execution = world.recycle(self.node, label_selector="app=train", replacement_timeout=300, drain_timeout=600)
        if column == "has pods":
            world.at("3m", lambda: self.group.newest.bare_pod("tenant"))
        if row == "Launch suspended":
            world.at("4m", lambda: self.group.suspend("Launch"))

    def finishes(self):
        end = self.execution.finishes()
        self.world.run(end.at + 1200)
        return end

    def is_unharmed(self) -> None:
        """No pod was lost, no member is still protected, and no taint or cordon of recycle-eks keeps pods away."""
        assert (self.job.phase, self.job.node_name) == ("Running", self.node.name)
        assert self.neighbour.phase == "Running"
        if self.column == "has pods":
            assert self.group.states[self.group.newest.instance_id] == "InService"
            assert not self.group.newest.unschedulable
        assert not [m for m in self.world.autoscaling.group("workers").instance_states if m.protected_from_scale_in]
        assert not self.node.unschedulable and not self.node.has_taint("recycle-eks/draining")

    def leaves_nothing(self) -> None:
        """Not on any node, not on any instance."""
        for node in self.group.nodes:
            assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")], node
        for instance in self.group.instances:
            assert not [key for key in self.world.instance(instance).tags if key.startswith("recycle-eks:")], instance


@pytest.mark.reading("exit_standby_trims", "enter_standby_at_max_launches", "standby_counts_for_zone_balance")
@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_node_is_restored_by_the_table(world, row, column):
    # If AWS launches nothing at the maximum, no replacement can be pending, be empty, or have pods there.
    if not world.unknowns.enter_standby_at_max_launches and SIZES[row][1] == SIZES[row][2]:
        column = "not launched"
    failing = FailingExecution(world, row, column)
    expected = TABLE[row][column]

    end = failing.finishes()

    failing.is_unharmed()
    minimum, _, maximum = SIZES[row]
    first = "ReplacementTimedOut" if column in ("not launched", "pending") else "DrainTimedOut"
    if isinstance(expected, int):
        assert (end.status, end.error) == ("FAILED", first), end.cause
        assert "The node was restored" in end.cause
        assert ("its replacement has pods" in end.cause) == (column == "has pods")
        assert failing.group.sizes == (minimum, expected, maximum)
        assert sorted(failing.group.states.values()) == ["InService"] * expected
        failing.leaves_nothing()
    else:
        assert (end.status, end.error) == ("FAILED", "LeftInStandby"), end.cause
        assert end.cause.startswith(f"{first}: ") and expected in end.cause
        assert failing.group.states[failing.node.instance_id] == "Standby"
        assert failing.group.sizes == (minimum, 2, maximum)
        assert "recycle-eks/claim" not in failing.node.annotations
        assert not {"recycle-eks:claim", "recycle-eks:restore-log"} & set(world.instance(failing.node.instance_id).tags)


def test_a_launch_that_takes_too_long_leaves_the_group_one_larger_and_says_so(world):
    # Otherwise the group ends the pending member.
    world.unknowns.exit_standby_trims = False
    workers = world.group("workers", size=2, minimum=2, maximum=4)
    workers.next_launch(takes="3h")

    end = world.recycle(workers.nodes[0], replacement_timeout=300).finishes()

    assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut")
    assert "group workers is one larger than before, desired capacity 3" in end.cause
    assert end.at < 300 + 1800 + 300
    assert sorted(workers.states.values()) == ["InService", "InService", "Pending"]


# Operators


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


@pytest.fixture
def job(node):
    return node.job("train", labels={"app": "train"})


def fails_to_drain(world, node, **fields):
    """An execution whose drain's time is over after ten minutes."""
    return world.recycle(node, label_selector="app=train", drain_timeout=600, **fields)


def marks(world, node) -> list[str]:
    """The names of recycle-eks on the node and on its instance."""
    found = [*node.annotations, *node.labels, *world.instance(node.instance_id).tags]
    return [key for key in found if key.startswith("recycle-eks")]


def test_a_node_that_was_cordoned_before_stays_so(world, node, job):
    node.kubernetes.cordon()

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    assert node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert "stays cordoned" in end.cause
    assert not marks(world, node)


def test_a_node_that_an_operator_cordons_anew_stays_cordoned(world, node, job):
    world.at("5m", node.kubernetes.uncordon)
    world.at("6m", node.kubernetes.cordon)

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    assert node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert "stays cordoned" in end.cause
    assert not marks(world, node)


def test_a_node_that_an_operator_uncordons_stays_uncordoned(world, node, job):
    world.at("5m", node.kubernetes.uncordon)

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    assert not node.unschedulable and not marks(world, node)


def test_taints_and_labels_of_others_stay(world, node, job):
    node.kubernetes.add_taint("team", "NoSchedule", "blue")
    node.kubernetes.label(**{EXCLUDE: "its-owner"})
    world.at("5m", lambda: node.kubernetes.add_taint("sick", "NoSchedule", "yes"))

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    assert node.has_taint("team") and node.has_taint("sick") and not node.has_taint("recycle-eks/draining")
    assert node.labels[EXCLUDE] == "its-owner"


def test_a_node_that_was_leaving_comes_back_to_its_balancers(world, node):
    world.faults.refuse(
        "autoscaling:TerminateInstanceInAutoScalingGroup", code="AccessDenied", status=403, function="detach-terminate"
    )

    end = world.recycle(node).finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceRefused")
    assert EXCLUDE not in node.labels and not node.unschedulable
    assert node.group.states[node.instance_id] == "InService"
    assert not marks(world, node)


def test_if_aws_refuses_a_restore_the_cause_and_the_notification_describe_the_node(world, node, job):
    world.faults.refuse("ec2:DeleteTags", code="UnauthorizedOperation", message="no", status=403, times=None)

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    subject = f"node {node.name} ({node.instance_id})"
    left = f"{subject} has 2 members protected from scale-in, has a Lease of recycle-eks, has tags of recycle-eks"
    assert f"Now {left}." in end.cause, end.cause
    assert "The node is not restored: " in end.cause and "ec2:DeleteTags" in end.cause
    assert f"aws ec2 delete-tags --resources {node.instance_id} --tags" in end.cause
    assert "--no-protected-from-scale-in --instance-ids $id" in end.cause
    assert "errorMessage" not in end.cause
    sent = [text for text in world.notifications if subject in text]
    assert len(sent) == 1 and left in sent[0] and "delete-tags" in sent[0]
    assert node.group.states[node.instance_id] == "InService" and not node.unschedulable
    assert "recycle-eks/claim" not in {**node.annotations, **node.records}, "it would delay its group"
    # A refused restore is tried again after six hours.
    assert world.sweep().finishes().status == "SUCCEEDED"
    world.run(end.at + 6 * 3600 + 60)
    swept = world.sweep().finishes()
    assert swept.error == "SweepFailed" and left in swept.cause, swept.cause


def test_an_instance_that_an_operator_protected_stays_protected(world, node, job):
    other = node.group.nodes[1]
    node.group.protect(other)

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    members = {m.instance_id: m.protected_from_scale_in for m in world.autoscaling.group("workers").instance_states}
    assert members == {other.instance_id: True, node.instance_id: False}


@pytest.mark.reading("exit_standby_trims")
def test_an_instance_that_an_operator_takes_out_of_standby_stays_there(world, node, job):
    execution = fails_to_drain(world, node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForRestore")))
    world.aws.client("autoscaling").exit_standby(AutoScalingGroupName="workers", InstanceIds=[node.instance_id])

    end = execution.finishes()

    assert end.error == "DrainTimedOut"
    assert not world.calls("autoscaling:ExitStandby")
    # If the group trims itself, it does that whatever recycle-eks does.
    assert node.group.sizes == (1, 2 if world.unknowns.exit_standby_trims else 3, 4)
    assert not marks(world, node)


def test_a_restore_that_becomes_possible_is_made(world, node, job):
    world.faults.refuse("autoscaling:ExitStandby", code="AccessDenied", status=403, times=3)

    end = fails_to_drain(world, node).finishes()

    assert end.error == "DrainTimedOut"
    assert node.group.states[node.instance_id] == "InService" and not marks(world, node)


def test_a_restore_that_stays_impossible_leaves_the_node_in_standby_with_the_reason(world, node, job):
    world.faults.refuse("autoscaling:ExitStandby", code="AccessDenied", message="not authorized", status=403, times=None)

    end = fails_to_drain(world, node).finishes()

    assert (end.status, end.error) == ("FAILED", "LeftInStandby")
    assert "not authorized" in end.cause
    assert node.group.states[node.instance_id] == "Standby"
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert not [m for m in world.autoscaling.group("workers").instance_states if m.protected_from_scale_in]


def test_another_execution_goes_on_from_standby_when_there_is_capacity(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    workers.next_launch(fails="Insufficient capacity")
    assert world.recycle(node).finishes().error == "LeftInStandby"
    world.autoscaling.capacity_is_back("workers")

    assert world.recycle(node).finishes().outcome == "recycled"
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_a_restored_node_is_recycled_by_the_next_execution_from_the_beginning(world, node, job):
    assert fails_to_drain(world, node).finishes().error == "DrainTimedOut"
    job.finishes()
    world.forget_calls()

    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"
    assert len(world.calls("autoscaling:EnterStandby", succeeded=True)) == 1
    assert node.group.sizes == (1, 2, 4)


def test_a_redriven_execution_touches_nothing_after_the_restore(world, node, job):
    execution = fails_to_drain(world, node)
    execution.finishes()
    writes = len(world.writes())

    execution.redrive()
    execution.finishes()

    assert len(world.writes()) == writes


# Crashes


def failing(world):
    """A drain that fails at the group's minimum with an empty replacement: every kind of step is in its restore."""
    workers = world.group("workers", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    return workers, node


@pytest.fixture(scope="module")
def restore_calls(deployed_world):
    """Every (action, n-th time) with which the restore changes something in a run without faults."""
    world = deployed_world
    world.reset()
    _, node = failing(world)
    fails_to_drain(world, node).finishes()
    calls = [point for point in world.write_points() if point[0] == "recycle-eks-restore-node"]
    assert len(calls) > 10
    return calls


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_restore_killed_around_any_mutating_call_ends_the_same(world, restore_calls, moment):
    endings = []
    for function, action, nth in sample(restore_calls, 3, first=moment == "after"):
        world.reset()
        workers, node = failing(world)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = fails_to_drain(world, node).finishes()
        world.run(end.at + 600)
        endings.append(
            (
                (action, nth),
                end.error,
                "The node was restored" in end.cause,
                workers.sizes,
                sorted(workers.states.values()),
                node.unschedulable or node.has_taint("recycle-eks/draining"),
                [mark for each in workers.nodes for mark in marks(world, each)],
                [m.instance_id for m in world.autoscaling.group("workers").instance_states if m.protected_from_scale_in],
                world.faults.not_struck(),
            )
        )
    same = ("DrainTimedOut", True, (2, 2, 4), ["InService", "InService"], False, [], [], [])
    assert [ending for ending in endings if ending[1:] != same] == []


def test_a_restore_in_which_every_answer_of_lambda_is_lost_once_ends_the_same(world):
    workers, node = failing(world)
    world.faults.invoke("restore-node", code="ServiceException", status=500, after=True)
    for nth in range(3, 30, 2):
        world.faults.invoke("restore-node", code="ServiceException", status=500, nth=nth, after=True)

    end = fails_to_drain(world, node).finishes()
    world.run(end.at + 600)

    assert end.error == "DrainTimedOut"
    assert workers.sizes == (2, 2, 4) and sorted(workers.states.values()) == ["InService"] * 2
    assert not [mark for each in workers.nodes for mark in marks(world, each)]
