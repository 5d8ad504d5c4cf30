"""An execution that fails restores its node: each cell of the table, operators in between, crashes at every call."""

import pytest

from world.base.faults import kills
from world.scenario.groups import Group, Node

SIZES = {"m<d<M": (1, 2, 4), "m<d=M": (1, 2, 2), "m=d<M": (2, 2, 4), "m=d=M": (2, 2, 2), "Launch suspended": (1, 2, 4)}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"

#: The table: row, column -> desired capacity afterwards, or why the node stays in Standby.
STAYS, SUSPENDED = "so the instance cannot leave Standby", "the process Launch of group {group} is suspended"
TABLE = {
    "m<d<M": {"not launched": 2, "empty": 2, "has pods": 3},
    "m<d=M": {"not launched": 2, "pending": 2, "empty": 2, "has pods": STAYS},
    "m=d<M": {"not launched": 2, "pending": 2, "empty": 2, "has pods": 3},
    "m=d=M": {"not launched": STAYS, "has pods": STAYS},
    "Launch suspended": {"empty": SUSPENDED, "has pods": SUSPENDED},
}


class FailingExecution:
    """A node with a Job, whose execution fails while its replacement is as a column says."""

    def __init__(self, world, group: str, row: str, column: str) -> None:
        self.world, self.row, self.column = world, row, column
        minimum, size, maximum = SIZES[row]
        self.group: Group = world.group(group, size=size, minimum=minimum, maximum=maximum)
        self.node: Node = self.group.nodes[0]
        self.other: Node = self.group.nodes[1]
        self.neighbour = self.other.job(f"neighbour-{group}")
        self.job = self.node.job(f"train-{group}", labels={"app": "train"})
        if column == "not launched":
            self.group.next_launch(fails="Insufficient capacity")
        elif column == "pending":
            self.group.next_launch(takes="15m")
        self.execution = world.recycle(self.node, label_selector="app=train", replacement_timeout=300, drain_timeout=300)
        if column == "has pods":
            world.at("3m", lambda: self.group.newest.bare_pod(f"tenant-{group}"))
        if row == "Launch suspended":
            world.at("4m", lambda: self.group.suspend("Launch"))

    def __repr__(self) -> str:
        return f"{self.row}, {self.column}"

    def is_unharmed(self) -> None:
        """No pod was lost, no member is still protected, and no taint or cordon of recycle-eks keeps pods away."""
        assert (self.job.phase, self.job.node_name) == ("Running", self.node.name), self
        assert self.neighbour.phase == "Running", self
        if self.column == "has pods":
            assert self.group.states[self.group.newest.instance_id] == "InService", self
            assert not self.group.newest.unschedulable, self
        members = self.world.autoscaling.group(self.group.name).instance_states
        assert not [member for member in members if member.protected_from_scale_in], self
        assert not self.node.unschedulable and not self.node.has_taint("recycle-eks/draining"), self

    def ends_by_the_table(self, end, expected) -> None:
        minimum, _, maximum = SIZES[self.row]
        first = "ReplacementTimedOut" if self.column in ("not launched", "pending") else "DrainTimedOut"
        if isinstance(expected, int):
            assert (end.status, end.error) == ("FAILED", first), (self, end.cause)
            assert "The node was restored" in end.cause, (self, end.cause)
            assert ("its replacement has pods" in end.cause) == (self.column == "has pods"), (self, end.cause)
            assert self.group.sizes == (minimum, expected, maximum), self
            assert sorted(self.group.states.values()) == ["InService"] * expected, self
            self.leaves_nothing()
        else:
            assert (end.status, end.error) == ("FAILED", "LeftInStandby"), (self, end.cause)
            assert end.cause.startswith(f"{first}: "), (self, end.cause)
            assert expected.format(group=self.group.name) in end.cause, (self, end.cause)
            assert self.group.states[self.node.instance_id] == "Standby", self
            assert self.group.sizes == (minimum, 2, maximum), self
            assert "recycle-eks/claim" not in self.node.annotations, self
            tags = self.world.instance(self.node.instance_id).tags
            assert not {"recycle-eks:claim", "recycle-eks:restore-log"} & set(tags), self

    def leaves_nothing(self) -> None:
        """Not on any node, not on any instance."""
        for node in self.group.nodes:
            keys = {**node.annotations, **node.labels}
            assert not [key for key in keys if key.startswith("recycle-eks/")], (self, node)
        for instance in self.group.instances:
            assert not [key for key in self.world.instance(instance).tags if key.startswith("recycle-eks:")], (self, instance)


@pytest.mark.reading("exit_standby_trims", "enter_standby_at_max_launches", "standby_counts_for_zone_balance")
@pytest.mark.parametrize("row", TABLE)
def test_a_node_is_restored_by_the_table(world, row):
    """A world for each row. One with all rows would take longer, because it has so many pods."""
    world.kubernetes.daemon_set("logs")
    # If AWS launches nothing at the maximum, no replacement can be pending, be empty, or have pods there.
    nothing_comes = not world.unknowns.enter_standby_at_max_launches and SIZES[row][1] == SIZES[row][2]
    failing = []
    for number, column in enumerate(["not launched"] if nothing_comes else TABLE[row]):
        failing.append((FailingExecution(world, f"workers-{number}", row, column), TABLE[row][column]))

    ends = [each.execution.finishes() for each, _ in failing]
    world.run(max(end.at for end in ends) + 1200)

    for (each, expected), end in zip(failing, ends, strict=True):
        each.is_unharmed()
        each.ends_by_the_table(end, expected)


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


def fails_to_drain(world, node, **fields):
    """An execution whose drain's time is over after five minutes."""
    return world.recycle(node, label_selector="app=train", drain_timeout=300, **fields)


def marks(world, node) -> list[str]:
    """The names of recycle-eks on the node and on its instance."""
    found = [*node.annotations, *node.labels, *world.instance(node.instance_id).tags]
    return [key for key in found if key.startswith("recycle-eks")]


def nodes_with_jobs(world, *names: str) -> list[Node]:
    """A node with a Job in each of these groups."""
    nodes = [world.group(name, size=2, minimum=1, maximum=4).nodes[0] for name in names]
    for node in nodes:
        node.job(f"train-{node.group.name}", labels={"app": "train"})
    return nodes


def test_what_operators_do_to_a_node_and_its_group_stays(world):
    cordoned, anew, uncordoned, marked, with_protected = nodes = nodes_with_jobs(
        world, "cordoned", "cordoned-anew", "uncordoned", "marked", "with-protected"
    )
    cordoned.kubernetes.cordon()
    world.at("5m", anew.kubernetes.uncordon)
    world.at("6m", anew.kubernetes.cordon)
    world.at("5m", uncordoned.kubernetes.uncordon)
    marked.kubernetes.add_taint("team", "NoSchedule", "blue")
    marked.kubernetes.label(**{EXCLUDE: "its-owner"})
    world.at("5m", lambda: marked.kubernetes.add_taint("sick", "NoSchedule", "yes"))
    other = with_protected.group.nodes[1]
    other.group.protect(other)

    executions = [fails_to_drain(world, node) for node in nodes]
    ends = {node: execution.finishes() for node, execution in zip(nodes, executions, strict=True)}

    for node, end in ends.items():
        assert end.error == "DrainTimedOut" and not node.has_taint("recycle-eks/draining"), (node.group, end.cause)
    # A cordon of before, or made in the drain, stays. A node that was uncordoned stays so.
    for node in (cordoned, anew):
        assert node.unschedulable and "stays cordoned" in ends[node].cause, (node.group, ends[node].cause)
    assert not uncordoned.unschedulable
    for node in (cordoned, anew, uncordoned):
        assert not marks(world, node), node.group
    # So do taints and labels, and the protection of another member.
    assert marked.has_taint("team") and marked.has_taint("sick")
    assert marked.labels[EXCLUDE] == "its-owner"
    members = world.autoscaling.group("with-protected").instance_states
    protected = {member.instance_id: member.protected_from_scale_in for member in members}
    assert protected == {other.instance_id: True, with_protected.instance_id: False}


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


@pytest.mark.reading("exit_standby_trims")
def test_a_restore_that_stays_impossible_leaves_the_node_in_standby_with_the_reason(world):
    never, later, by_hand = nodes_with_jobs(world, "never", "later", "by-hand")
    refused = {"code": "AccessDenied", "message": "not authorized", "status": 403}
    for name, times in (("never", None), ("later", 3)):
        world.faults.refuse(
            "autoscaling:ExitStandby",
            **refused,
            times=times,
            where=lambda asked, name=name: asked["AutoScalingGroupName"] == name,
        )
    executions = [fails_to_drain(world, node) for node in (never, later, by_hand)]
    world.clock.run(until=lambda: bool(executions[2].entered("WaitForRestore")))
    world.aws.client("autoscaling").exit_standby(AutoScalingGroupName="by-hand", InstanceIds=[by_hand.instance_id])

    end = executions[0].finishes()
    assert (end.status, end.error) == ("FAILED", "LeftInStandby")
    assert "not authorized" in end.cause
    assert never.group.states[never.instance_id] == "Standby"
    assert not never.unschedulable and not never.has_taint("recycle-eks/draining")
    assert not [m for m in world.autoscaling.group("never").instance_states if m.protected_from_scale_in]

    # A restore that becomes possible is made.
    assert executions[1].finishes().error == "DrainTimedOut"
    assert later.group.states[later.instance_id] == "InService" and not marks(world, later)
    assert not world.faults.not_struck()

    # An instance that an operator takes out of Standby stays there.
    assert executions[2].finishes().error == "DrainTimedOut"
    exits = [call.parameters["AutoScalingGroupName"] for call in world.calls("autoscaling:ExitStandby")]
    assert set(exits) == {"never", "later"}
    # If the group trims itself, it does that whatever recycle-eks does.
    assert by_hand.group.sizes == (1, 2 if world.unknowns.exit_standby_trims else 3, 4)
    assert not marks(world, by_hand)


def test_another_execution_goes_on_from_standby_when_there_is_capacity(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    workers.next_launch(fails="Insufficient capacity")
    assert world.recycle(node).finishes().error == "LeftInStandby"
    world.autoscaling.capacity_is_back("workers")

    assert world.recycle(node).finishes().outcome == "recycled"
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_a_restored_node_is_recycled_by_the_next_execution_from_the_beginning(world, node, job):
    execution = fails_to_drain(world, node)
    assert execution.finishes().error == "DrainTimedOut"
    # A redriven execution touches nothing after the restore.
    writes = len(world.writes())
    execution.redrive()
    execution.finishes()
    assert len(world.writes()) == writes
    job.finishes()
    world.forget_calls()

    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"
    assert len(world.calls("autoscaling:EnterStandby", succeeded=True)) == 1
    assert node.group.sizes == (1, 2, 4)


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


def test_a_restore_killed_around_any_mutating_call_ends_the_same(world, restore_calls):
    endings = []
    for ((moment, function, action, nth),) in kills(restore_calls, at=[("after", "autoscaling:ExitStandby")]):
        world.reset()
        workers, node = failing(world)
        world.faults.kill(moment, action, function=function, nth=nth)
        end = fails_to_drain(world, node).finishes()
        world.run(end.at + 600)
        endings.append(
            (
                (moment, action, nth),
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
