"""A rotation that is stopped, crashes, is started twice, throttled or disturbed. Nodes and groups are whole
afterwards, and a rotation that is started again finishes the rest. The live state is judged, never the records of recycle-eks."""

import math

import pytest

from world.base.faults import sample

WAITED = {"recycle": {"label_selector": "app=train", "drain_timeout": 1800}}


class Fleet:
    """Groups of outdated nodes. Something serves on each node, and on the first of each group a job runs for 15 minutes."""

    def __init__(self, world, names=("api", "batch"), size=2, sizes=None):
        self.world, self.by_hand = world, {}
        self.groups = [world.group(name, size=(sizes or {}).get(name, size), minimum=1, maximum=6) for name in names]
        self.old = {group.name: list(group.instances) for group in self.groups}
        self.sizes = {group.name: group.sizes for group in self.groups}
        self.jobs, self.done = [], []
        for group in self.groups:
            group.gets_a_new_template()
            for number, node in enumerate(group.nodes):
                web = node.deployment(f"web-{group.name}-{number}", replicas=2)
                world.budget(web, max_unavailable=1)
            self.jobs.append(self.first(group).job(f"train-{group.name}", labels={"app": "train"}))
            world.at("15m", lambda job=self.jobs[-1]: self.finish(job))
        world.forget_calls()

    def first(self, group):
        return min(group.nodes, key=lambda node: node.instance_id)

    def finish(self, job):
        """A job that was killed before has not finished."""
        if job.exists and not job.is_terminating:
            job.finishes()
            self.done.append(job)

    def expects_the_end_of(self, node):
        """An operator, or the machine's own failure, ends it with all that is on it. recycle-eks did not end it."""
        self.by_hand[node.instance_id] = self.world.clock.elapsed()
        self.jobs = [job for job in self.jobs if not job.exists or job.node_name != node.name]

    @property
    def died(self):
        """The machines that ended with pods at work, before an operator or a failure of their own would have ended them."""
        return [end for end in self.world.ends if end.pods and end.at < self.by_hand.get(end.instance_id, math.inf)]

    @property
    def living(self):
        return [group for group in self.groups if group.exists]

    def idle(self):
        """Everything has ended, and two sweeps have passed."""
        world = self.world
        running = lambda: [each for each in world.engine.executions.values() if each.status == "RUNNING"]  # noqa: E731
        world.clock.run(until=lambda: not running(), limit=world.clock.elapsed() + 5 * 86_400)
        for pause in ("6m", "15m"):
            world.run(max(world.clock.elapsed(), 900) + world.seconds(pause))
            assert world.sweep().finishes().status == "SUCCEEDED"
            world.clock.run(until=lambda: not running(), limit=world.clock.elapsed() + 86_400)

    def is_whole(self):
        """The conditions after every fault. A group is larger by no more than the nodes that came back in addition to
        replacements that have pods (docs/SEMANTICS.md says so)."""
        self.idle()
        assert self.died == []
        assert sorted(job.name for job in self.done) == sorted(job.name for job in self.jobs)
        for group in self.living:
            (least, wanted, most), members = self.sizes[group.name], list(group.states.values())
            new = [node for node in group.nodes if node.instance_id not in self.old[group.name] and node.pods_at_work()]
            came_back = min(len(self.left(group)), len(new))
            assert group.sizes in [(least, wanted + more, most) for more in range(came_back + 1)], group
            assert members == ["InService"] * group.sizes[1], group
            self.sizes[group.name] = group.sizes
        assert self.world.leftovers() == []

    def left(self, group):
        """Members of the beginning that are still there."""
        return [instance for instance in self.old[group.name] if instance in group.instances]

    def is_finished_by_another(self, **terms):
        """A rotation that is started again recycles the remaining nodes, and no other."""
        rest = {group.name: len(self.left(group)) for group in self.living if self.left(group)}
        end = self.world.rotate(**{**WAITED, **terms}).finishes()
        assert end.outcome == ("rotated" if rest else "nothing_selected"), end
        assert {each["group"]: each["recycled"] for each in end.output.get("groups", [])} == rest
        assert not any(self.left(group) for group in self.living)
        self.is_whole()


def reports_are_true(fleet, *ends):
    """The reports of rotations about groups that still exist are true. Another execution has recycled a duplicate."""
    for group in fleet.living:
        results = [end.groups[group.name] for end in ends if group.name in end.groups]
        gone = set(fleet.old[group.name]) - set(group.instances) - set(fleet.by_hand)
        assert sum(each["recycled"] for each in results) == len(gone), results
        failed = {failed["node"] for each in results for failed in each["failed"] if not failed["why"].startswith("duplicate: ")}
        assert not failed & gone


def children(world):
    """The executions of the groups."""
    return [each for each in world.engine.executions.values() if each.map_run_arn]


def entered(world, state):
    """How often any execution has entered a state."""
    return sum(
        event.get("stateEnteredEventDetails", {}).get("name") == state
        for each in world.engine.executions.values()
        for event in each.events
    )


@pytest.fixture
def fleet(world):
    return Fleet(world)


PHASES = [
    "SelectNodes", "SelectNodesOfGroup", "MarkNodes", "MayStart", "WaitToStart", "ClaimNode", "WaitForReplacement", "WaitForPods",
    "EvictPods", "DetachTerminate", "UnmarkNodes",
]  # fmt: skip


@pytest.mark.parametrize(("seed", "state"), list(enumerate(sample(PHASES, 1, first=2), start=1)))
def test_a_rotation_stopped_in_any_phase_and_order_is_restored_and_finished_by_the_next(world, seed, state):
    world.reset(seed=seed)
    fleet = Fleet(world)
    rotation = world.rotate(**WAITED)
    world.clock.run(until=lambda: entered(world, state) > 0, limit=86_400)
    assert entered(world, state), rotation.path

    rotation.stop()

    fleet.is_whole()
    fleet.is_finished_by_another()


def test_the_nodes_of_a_rotation_aborted_from_the_command_line_are_restored(world, cli, fleet):
    rotation = world.rotate(**WAITED)
    world.run("10m")
    printed = cli("abort", "--yes", rotation.arn)
    assert printed.code == 0 and rotation.status == "ABORTED", printed
    assert "starts no other node" in printed.text and "restores those nodes" in printed.text, printed
    assert cli("abort", "--yes", rotation.arn.replace("recycle-eks-rotate-nodes", "payments"), pace=0).code == 2
    # Step Functions stops the executions that the rotation waits for, one level after the other.
    world.run("11m")
    assert {each.status for each in world.executions()} == {"ABORTED", "SUCCEEDED"}
    fleet.is_whole()
    fleet.is_finished_by_another()


def test_a_crashed_rotation_is_restored_and_finished_by_the_next(world, fleet):
    rotation = world.rotate(**WAITED)
    world.run("10m")
    world.engine.finish(children(world)[0], "FAILED", error="States.Runtime", cause="injected")

    end = rotation.finishes()

    # The execution of one group crashed. The other group was rotated.
    assert end.status == "FAILED", end
    assert end.error == "RotationFailed" and list(end.groups) == ["batch", "api"]
    assert end.groups["api"]["error"] == ["GroupBroken"]
    assert end.groups["batch"]["recycled"] == 2
    fleet.is_whole()

    # The rotation itself crashes while it replaces a node.
    before = entered(world, "WaitForReplacement")
    rotation = world.rotate(**WAITED)
    world.clock.run(until=lambda: entered(world, "WaitForReplacement") > before, limit=world.clock.elapsed() + 86_400)
    world.engine.finish(world.engine.execution(rotation.arn), "FAILED", error="States.Runtime", cause="injected")
    assert rotation.finishes().status == "FAILED"
    fleet.is_whole()
    fleet.is_finished_by_another()


def test_a_rotation_whose_function_is_gone_for_good_begins_no_node_and_says_so(world):
    fleet = Fleet(world, names=("api",))
    rotation = world.rotate(at_once=1, **WAITED)
    world.run("10m")
    world.faults.invoke("select-nodes", times=None)

    end = rotation.finishes()
    world.faults.clear()

    assert end.error == "RotationFailed", end
    assert {name: (group["recycled"], [each["why"] for each in group["failed"]]) for name, group in end.groups.items()} == {
        "api": (1, ["Lambda.ServiceException"])
    }
    reports_are_true(fleet, end)
    fleet.is_whole()
    fleet.is_finished_by_another()


def test_two_rotations_started_at_once_recycle_each_node_once(world):
    world.reset(seed=1)
    fleet = Fleet(world)
    rotations = [world.rotate(**WAITED) for _ in range(2)]
    ends = [rotation.finishes() for rotation in rotations]
    reports_are_true(fleet, *ends)
    for end in ends:
        failed = [failed["why"] for result in end.groups.values() for failed in result["failed"]]
        assert all(why.startswith("duplicate: ") for why in failed), failed
        assert end.error == ("RotationFailed" if failed else None), end
    assert not any(fleet.left(group) for group in fleet.groups)
    fleet.is_whole()


def test_groups_deleted_in_the_middle_do_not_affect_another(world):
    moments = {"early": "1m", "batch": "10m", "late": "25m"}
    fleet = Fleet(world, names=("api", *moments))

    def delete(group):
        for node in group.nodes:
            fleet.expects_the_end_of(node)
        world.aws.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=group.name, ForceDelete=True)

    for group in fleet.groups[1:]:
        world.at(moments[group.name], lambda group=group: delete(group))
    end = world.rotate(at_once=1, **WAITED).finishes()

    assert end.groups["api"]["recycled"] == 2
    reports_are_true(fleet, end)
    fleet.is_whole()
    fleet.is_finished_by_another()


@pytest.fixture
def three(world):
    """One group of three nodes."""
    return Fleet(world, names=("api",), size=3)


def rotates(world, group, **terms):
    """A rotation of one group, node after node."""
    selection = {"outdated": {"launch_template": True, "groups": [group.name]}}
    return world.rotate(selection, at_once=1, **WAITED, **terms)


def never_ready(world, fleet, group):
    """Its replacement is not: the second launch of the group."""
    group.next_launch()
    group.next_launch(never_ready=True)


def never_drained(world, fleet, group):
    """Its pods need longer than they may."""
    second = sorted(group.nodes, key=lambda node: node.instance_id)[1]
    job = second.job(f"slow-{group.name}", labels={"app": "train"})
    fleet.jobs.append(job)
    world.at("3h", lambda: fleet.finish(job))


@pytest.mark.long
def test_a_node_that_fails_in_the_middle_is_restored_and_stops_the_others_or_is_tried_again(world):
    # The second node's failure, the terms, and how many nodes are recycled, have failed and are left.
    rows = {
        "not-ready": (never_ready, {}, (1, 1, 1)),
        "not-ready-again": (never_ready, {"retries": 1}, (2, 0, 0)),
        "not-drained": (never_drained, {}, (1, 1, 1)),
    }
    fleet = Fleet(world, names=rows, size=3, sizes={"not-ready-again": 2})
    second = {group.name: sorted(group.instances)[1] for group in fleet.groups}
    for group in fleet.groups:
        rows[group.name][0](world, fleet, group)
    rotations = [rotates(world, group, **rows[group.name][1]) for group in fleet.groups]
    ends = dict(zip(rows, [rotation.finishes() for rotation in rotations], strict=True))

    for name, (_, _, expected) in rows.items():
        result = ends[name].groups[name]
        assert (result["recycled"], len(result["failed"]), result["left"]) == expected, (name, result)
        assert {each["node"] for each in result["failed"]} <= {second[name]}, (name, result)
        assert ends[name].error == ("RotationFailed" if result["failed"] else None), (name, ends[name])
    assert ends["not-ready-again"].outcome == "rotated"
    reports_are_true(fleet, *ends.values())
    world.run(max(world.clock.elapsed(), world.seconds("3h5m")))
    fleet.is_whole()
    fleet.is_finished_by_another()


def test_a_node_that_is_lost_has_failed_although_it_is_gone(world):
    # The terms, and how many nodes are recycled.
    rows = {"lost-again": ({"retries": 1}, 0), "lost-continue": ({"on_failure": "continue"}, 2)}
    fleet = Fleet(world, names=rows, size=3)
    nodes = {group.name: fleet.first(group) for group in fleet.groups}

    def is_lost(node):
        fleet.expects_the_end_of(node)
        node.is_terminated_in_the_console()

    def its_job_is_done_elsewhere(job):
        (again,) = [pod for pod in world.kubernetes.pods() if pod.name.rpartition("-")[0] == job and pod.phase == "Running"]
        again.finishes()

    for name, node in nodes.items():
        world.at("10m", lambda node=node: is_lost(node))
        world.at("20m", lambda name=name: its_job_is_done_elsewhere(f"train-{name}"))
    rotations = [rotates(world, group, **rows[group.name][0]) for group in fleet.groups]
    ends = dict(zip(rows, [rotation.finishes() for rotation in rotations], strict=True))

    for name, (_, recycled) in rows.items():
        result = ends[name].groups[name]
        assert result["failed"] == [{"node": nodes[name].instance_id, "why": "NodeLost"}], (name, result)
        assert (ends[name].error, result["recycled"], result["left"]) == ("RotationFailed", recycled, 2 - recycled), name
    fleet.is_whole()
    fleet.is_finished_by_another()


def test_a_new_version_in_the_middle_is_left_to_the_next_rotation(world, three):
    (group,) = three.groups
    world.at("10m", group.gets_a_new_template)
    end = world.rotate(at_once=1, **WAITED).finishes()
    assert end.outcome == "rotated" and end.groups["api"]["recycled"] == 3
    reports_are_true(three, end)
    three.is_whole()

    again = world.rotate().finishes()
    assert 1 <= again.groups["api"]["recycled"] < 3
    three.is_whole()
    assert world.rotate().finishes().outcome == "nothing_selected"


def test_an_operator_pauses_terminates_brings_back_and_resumes(world, three):
    (group,) = three.groups
    # A member that the group ended because of the operator's ExitStandby would be one more, and not what this is about.
    world.unknowns.exit_standby_trims = False
    first, second, third = sorted(group.nodes, key=lambda node: node.instance_id)
    client = world.aws.client("autoscaling")
    tag = {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": "recycle-eks:paused"}
    paused = {**tag, "Value": "true", "PropagateAtLaunch": False}

    def terminate():
        three.expects_the_end_of(second)
        group.terminate(second)

    world.at("5m", lambda: client.create_or_update_tags(Tags=[paused]))
    world.at("10m", terminate)
    world.at("11m", world.sweep)
    world.at("13m", lambda: client.exit_standby(AutoScalingGroupName=group.name, InstanceIds=[first.instance_id]))
    world.at("1h", lambda: client.delete_tags(Tags=[tag]))

    end = world.rotate(at_once=1, on_failure="continue", **WAITED).finishes()

    result = end.groups["api"]
    assert [each["node"] for each in result["failed"]] == [first.instance_id]
    assert (end.error, result["recycled"], result["left"]) == ("RotationFailed", 1, 1)
    assert result["why"] == ["is no longer a member of its group"]
    began = [each.entered("ClaimNode")[0] for each in world.executions()]
    assert len(began) == 2 and began[1] > world.seconds("1h")
    reports_are_true(three, end)
    three.is_whole()
    three.is_finished_by_another()


def test_cluster_autoscaler_removes_no_node_that_the_rotation_works_on(world, three):
    (group,) = three.groups
    autoscaler = world.cluster_autoscaler(unneeded_time="10m")
    end = world.rotate(**WAITED).finishes()

    assert end.outcome == "rotated" and end.groups["api"]["recycled"] == 3, end
    assert not set(autoscaler.removed) & set(three.old["api"])
    least, wanted, most = three.sizes["api"]
    three.sizes["api"] = (least, wanted - len(autoscaler.removed), most)
    assert three.died == [] and len(three.done) == 1
    assert group.sizes == three.sizes["api"]
