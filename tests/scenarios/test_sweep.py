"""The sweep restores the node of an execution that no longer runs: within two sweeps, and with one notification."""

import pytest

from world.kubernetes.kube_client import MERGE_PATCH

#: A stop takes effect when an execution waits, so it stops in one of these states, whichever it enters before.
STATES = ["WaitForReplacement", "WaitForPods", "WaitForDisposal"]
RESTORING = ["WaitForRestore"]
#: The state that an execution reaches when nothing is left to wait for.
DISPOSING = ["WaitForDisposal"]


@pytest.fixture
def node(world):
    return node_of(world, "workers")


def node_of(world, group):
    return world.group(group, size=2, minimum=1, maximum=4).nodes[0]


def begin(world, node, **fields):
    """An execution that drains for hours, with something to evict and something to wait for."""
    node.job(f"train-{node.instance_id}", labels={"app": "train"})
    node.deployment(f"web-{node.instance_id}", replicas=2)
    return world.recycle(node, label_selector="app=train", **fields)


def stop_at(world, execution, state, nth=1):
    """An operator will stop it the moment it enters a state."""

    def hears(entered_by, entered):
        if (entered_by.arn, entered) == (execution.arn, state) and len(execution.entered(state)) == nth:
            world.clock.after(0, execution.stop)

    world.engine.on_entered.append(hears)


def stop_in(world, execution, state, nth=1):
    """An operator stops it the moment it enters a state."""
    world.clock.run(until=lambda: len(execution.entered(state)) >= nth, limit=2 * 86_400)
    assert len(execution.entered(state)) >= nth, execution.path
    execution.stop()


def cordon_as_recycle_eks(world, node):
    """Cordons with the field manager of recycle-eks, by which it recognizes its own cordon."""
    path = f"/api/v1/nodes/{node.name}?fieldManager=recycle-eks"
    world.kubernetes.must("PATCH", path, {"spec": {"unschedulable": True}}, MERGE_PATCH)


@pytest.mark.long
def test_a_node_stopped_in_any_wait_is_clean_within_two_sweeps_and_its_redriven_execution_touches_nothing(world):
    nodes = {state: node_of(world, f"in-{state}") for state in STATES + RESTORING}
    executions = {}
    for state, node in nodes.items():
        if state in DISPOSING:
            world.at("8m", node.job(f"short-{state.lower()}", labels={"app": "train"}).finishes)
            executions[state] = world.recycle(node, label_selector="app=train")
        else:
            executions[state] = begin(world, node, **({"drain_timeout": 600} if state in RESTORING else {}))
        stop_at(world, executions[state], state)
    # An execution that waits in the queue is stopped, too. The execution before it goes on.
    first, queued = world.group("queue", size=2, minimum=1, maximum=4).nodes
    running, waiting = begin(world, first), world.recycle(queued)
    stop_at(world, waiting, "WaitInQueue", nth=2)

    stopped = [*executions.values(), waiting]
    world.clock.run(until=lambda: all(each.status != "RUNNING" for each in stopped), limit=2 * 86_400)
    assert {each.status for each in stopped} == {"ABORTED"}
    assert all(executions[state].entered(state) for state in executions)
    assert [key for name, key in world.leftovers(queued.group) if name == queued.name]
    world.wait("10m")
    ends = [world.sweep().finishes(), world.sweep().finishes()]

    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert ends[1].output["nodes"] == [{}], "the node of the running execution"
    for state, node in nodes.items():
        assert world.leftovers(node.group) == [], state
        assert node.group.states[node.instance_id] == "InService", state
    assert [key for name, key in world.leftovers(queued.group) if name in (queued.name, queued.instance_id)] == []
    assert running.status == "RUNNING"

    running.stop()
    world.wait("1m")
    calls = len(world.writes())
    for state, execution in executions.items():
        execution.redrive()
        assert execution.finishes().status == "FAILED", state
    assert len(world.writes()) == calls
    assert [world.leftovers(node.group) for node in nodes.values()] == [[]] * len(nodes)


def test_the_clock_alone_restores_a_node_if_every_event_is_lost(world, node):
    world.let_sweep(after_bad_ends=False)
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=3)

    world.wait("45m")

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


def test_a_stopped_execution_is_swept_at_once_and_reported_once_and_an_end_that_no_catcher_sees_as_well(world):
    # The sweep reads the end of an execution, whose form no source shows. All other scenarios have the other form.
    world.services.full_seconds_have_fraction = True
    # Only an event starts a sweep until then, and not the clock.
    world.events.silent = ""
    nodes = [node_of(world, group) for group in ("stopped", "timed-out", "broken")]
    # The execution that breaks begins first, so that only its history reaches the limit.
    broken = begin(world, nodes[2])
    world.run("5m")
    executions = stopped, timed_out, _ = begin(world, nodes[0]), begin(world, nodes[1]), broken
    world.clock.run(until=lambda: all(len(each.entered("WaitForPods")) >= 3 for each in executions), limit=86_400)
    room, world.engine.history_limit = world.engine.history_limit, len(world.engine.execution(broken.arn).events) + 5
    world.clock.run(until=lambda: broken.status != "RUNNING", limit=2 * 86_400)
    world.engine.history_limit = room
    world.engine.finish(world.engine.execution(timed_out.arn), "TIMED_OUT")
    stopped.stop()
    stopped_at = world.clock.elapsed()
    ends = [(each.status, world.engine.execution(each.arn).error) for each in executions]
    assert ends == [("ABORTED", None), ("TIMED_OUT", None), ("FAILED", "States.Runtime")]

    world.clock.run(until=lambda: not world.leftovers(nodes[0].group), limit=stopped_at + 86_400)
    # Functions of the stopped execution may be at work for five minutes.
    assert 300 <= world.clock.elapsed() - stopped_at < 900
    world.run(stopped_at + 900)
    for node in nodes:
        assert world.leftovers(node.group) == [], node
        assert node.group.states[node.instance_id] == "InService", node
    assert len(world.executions("sweep")) == 3, "one for each bad end"
    world.events.run_schedules()
    world.wait("1h")

    assert len([text for text in world.notifications if "was restored" in text]) == 3
    for node, execution in zip(nodes, executions, strict=True):
        sent = [text for text in world.notifications if "was restored" in text and execution.arn in text]
        assert len(sent) == 1 and node.instance_id in sent[0], node


def test_a_running_execution_is_left_alone(world, node):
    execution = begin(world, node)
    world.run("10m")
    calls = len(world.writes())

    end = world.sweep().finishes()

    assert end.status == "SUCCEEDED" and execution.status == "RUNNING"
    assert len(world.writes()) == calls
    assert not world.notifications


def test_an_owner_counts_as_alive_if_it_may_not_be_read_and_as_over_ten_minutes_after_its_claim_if_it_is_unknown(world, node):
    """DescribeExecution is eventually consistent, so an execution that has just begun may be unknown, too."""
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods")

    def of_owner(parameters):
        return parameters["executionArn"] == execution.arn

    world.faults.refuse("states:DescribeExecution", code="ExecutionDoesNotExist", times=100, where=of_owner)

    world.sweep().finishes()
    assert world.leftovers(node.group) != [], "it may only be unknown yet"

    world.wait("10m")
    world.faults.clear()
    calls = len(world.writes())
    world.faults.refuse("states:DescribeExecution", code="AccessDeniedException", times=100, where=of_owner)
    assert world.sweep().finishes().status == "SUCCEEDED"
    assert len(world.writes()) == calls

    world.faults.clear()
    world.faults.refuse("states:DescribeExecution", code="ExecutionDoesNotExist", times=100, where=of_owner)
    world.sweep().finishes()

    assert world.leftovers(node.group) == []


def test_a_node_that_had_to_stay_in_standby_comes_back_when_the_group_has_room(world):
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    begin(world, node, drain_timeout=60).finishes()
    assert workers.states[node.instance_id] == "Standby"
    world.wait("10m")

    for _ in range(3):
        assert world.sweep().finishes().output["nodes"] == [{}]
    assert ["was left in Standby" in text for text in world.notifications] == [True], "only the failure was reported, once"

    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", MaxSize=3)
    world.sweep().finishes()

    assert workers.states[node.instance_id] == "InService"
    assert world.leftovers(workers) == []
    assert [text for text in world.notifications if "was restored" in text]


def tag(world, instance_id, key, value):
    """Another principal, who may tag every instance, writes a tag of recycle-eks."""
    world.aws.client("ec2").create_tags(Resources=[instance_id], Tags=[{"Key": f"recycle-eks:{key}", "Value": value}])


def stranger(world):
    """An instance that belongs to another cluster."""
    node = world.group("strangers", size=1, minimum=1, maximum=2).nodes[0]
    node.object_is_deleted()
    world.aws.client("ec2").delete_tags(Resources=[node.instance_id], Tags=[{"Key": "kubernetes.io/cluster/world"}])
    return node.instance_id


def names(world, node, key, instance_id):
    mark = {"labels" if key == "kept-for" else "annotations": {f"recycle-eks/{key}": instance_id}}
    world.kubernetes.must("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": mark}, MERGE_PATCH)


def test_a_mark_is_followed_to_an_instance_of_this_cluster_only_and_removed_with_its_instance(world, node):
    other = node.group.nodes[1]
    theirs = stranger(world)
    # An instance that is not of this cluster is not followed.
    names(world, node, "cordoned-for", theirs)
    names(world, other, "kept-for", theirs)
    calls = len(world.writes())
    end = world.sweep().finishes()
    assert (end.status, end.output["nodes"]) == ("SUCCEEDED", [])
    assert len(world.writes()) == calls and not world.notifications

    # A mark for an instance that EC2 has forgotten is removed.
    for marked, key in ((node, "cordoned-for"), (other, "kept-for")):
        names(world, marked, key, "i-0fedcba9876543210")
    end = world.sweep().finishes()
    assert end.status == "SUCCEEDED" and not world.notifications
    for marked in (node, other):
        assert not any("recycle-eks" in each for each in [*marked.annotations, *marked.kubernetes.labels])
    assert world.sweep().finishes().output["nodes"] == []

    # A tag takes no instance out of an operator's Standby.
    in_standby = node_of(world, "standby")
    world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName="standby", InstanceIds=[in_standby.instance_id], ShouldDecrementDesiredCapacity=True
    )
    # A cordon for a node that is gone is removed.
    other.annotate("recycle-eks/cordoned-for", node.instance_id)
    cordon_as_recycle_eks(world, other)
    node.is_terminated_in_the_console()
    world.wait("10m")
    tag(world, in_standby.instance_id, "standby", "2027-01-01T00:00:00Z")

    ends = [world.sweep().finishes(), world.sweep().finishes()]

    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert in_standby.group.states[in_standby.instance_id] == "Standby" and not world.calls("autoscaling:ExitStandby")
    of_standby = [text for text in world.notifications if in_standby.instance_id in text]
    assert len(of_standby) <= 1
    assert world.leftovers(node.group) == []
    # A kubelet could write the mark of the cordon again and again, so its removal is not reported.
    assert not other.unschedulable and [text for text in world.notifications if text not in of_standby] == []


def test_the_changes_of_operators_and_of_others_stay_and_delay_no_restore(world):
    nodes = {name: node_of(world, name) for name in ("unclaimed", "protected", "tainted", "unreadable")}
    others = {name: node.group.nodes[1] for name, node in nodes.items()}
    nodes["protected"].group.protect(others["protected"])
    tag(world, others["protected"].instance_id, "protected-for", nodes["protected"].instance_id)
    tag(world, stranger(world), "protected-for", nodes["protected"].instance_id)
    executions = [begin(world, node) for node in nodes.values()]
    for execution in executions:
        stop_at(world, execution, "WaitForPods", nth=2)
    world.clock.run(until=lambda: all(each.status != "RUNNING" for each in executions), limit=2 * 86_400)
    others["unreadable"].record("recycle-eks/claim", "mine!")
    nodes["tainted"].kubernetes.add_taint("recycle-eks/draining", value="mine")

    # A node whose claim an operator removed is cleaned by the next sweep.
    node = nodes["unclaimed"]
    node.record("recycle-eks/claim", None)
    world.aws.client("ec2").delete_tags(Resources=[node.instance_id], Tags=[{"Key": "recycle-eks:claim"}])
    world.sweep().finishes()
    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"

    world.wait("10m")
    for _ in range(3):
        assert world.sweep().finishes().status == "SUCCEEDED"

    # A tag removes no protection and stops no restore.
    node, other = nodes["protected"], others["protected"]
    members = world.autoscaling.group("protected").instance_states
    assert [m.instance_id for m in members if m.protected_from_scale_in] == [other.instance_id]
    assert node.group.states[node.instance_id] == "InService"
    assert [key for name, key in world.leftovers(node.group) if name in (node.name, node.instance_id)] == []

    # A taint that an operator has changed stays.
    node = nodes["tainted"]
    assert node.has_taint("recycle-eks/draining")
    assert len([text for text in world.notifications if "was restored" in text and node.instance_id in text]) == 1

    # An unreadable claim is reported once and delays no other node.
    node, other = nodes["unreadable"], others["unreadable"]
    sent = [text for text in world.notifications if "mine!" in text]
    assert len(sent) == 1 and other.name in sent[0]
    assert [key for name, key in world.leftovers(node.group) if name == node.name] == []


@pytest.mark.parametrize("stops", [(1, 2), (4,)], ids=str)
def test_a_sweep_that_is_stopped_is_followed_by_another(world, node, stops):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    world.wait("10m")
    for nth in stops:
        stop_in(world, world.sweep(), "RestoreNode", nth=nth)
        world.wait("10m")

    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    assert node.group.states[node.instance_id] == "InService"


def test_only_one_of_two_sweeps_restores_and_an_execution_started_meanwhile_names_it(world):
    world.reset(seed=1)
    node = node_of(world, "workers")
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    world.wait("10m")

    sweeps = [world.sweep(), world.sweep()]
    world.clock.run(until=lambda: any(len(sweep.entered("RestoreNode")) >= 4 for sweep in sweeps), limit=86_400)
    late = world.recycle(node, label_selector="app=train").finishes()
    assert late.outcome == "duplicate" and any(sweep.arn in late.output["reason"] for sweep in sweeps)
    for sweep in sweeps:
        assert sweep.finishes().status == "SUCCEEDED"

    assert world.leftovers(node.group) == []
    assert len(world.calls("autoscaling:ExitStandby", succeeded=True)) == 1
    assert len([text for text in world.notifications if "was restored" in text]) == 1


def test_while_the_cluster_is_away_the_instance_comes_back_and_the_rest_later(world, node):
    execution = begin(world, node)
    stop_in(world, execution, "WaitForPods", nth=2)
    world.wait("10m")
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None)
    first = world.sweep().finishes()
    world.faults.clear()
    assert node.group.states[node.instance_id] == "InService", first

    world.wait("10m")
    world.sweep().finishes()

    assert world.leftovers(node.group) == []
    # The change of the group that was made meanwhile is known: its replacement has pods by now.
    assert node.group.sizes == (1, 3, 4) and "is one larger than before" in world.notifications[-1]


def test_two_nodes_of_a_group_are_restored_one_after_the_other(world):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    executions = []
    for node in workers.nodes[:2]:
        node.job(f"train-{node.instance_id}", labels={"app": "train"})
        executions.append(world.recycle(node, label_selector="app=train"))
    world.clock.run(until=lambda: all(execution.entered("WaitForPods") for execution in executions), limit=86_400)
    for execution in executions:
        execution.stop()
    world.wait("10m")

    world.sweep().finishes()
    world.wait("10m")

    assert world.leftovers(workers) == []
    assert workers.sizes == (1, 4, 8)
    assert sorted(workers.states.values()) == ["InService"] * 4
    assert len([text for text in world.notifications if "was restored" in text]) == 2


def test_a_node_that_an_operator_took_out_of_its_group_holds_no_place_in_the_queue(world, node):
    execution = begin(world, node, drain_timeout=300)
    world.run("5m")
    world.aws.client("autoscaling").detach_instances(
        AutoScalingGroupName="workers", InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    )
    assert execution.finishes().error == "ServiceRefused"
    world.wait("10m")
    for _ in range(2):
        assert world.sweep().finishes().output["nodes"] == [{}]
    assert ["was not recycled" in text for text in world.notifications] == [True], "there is one notification"

    assert world.recycle(node.group.nodes[0]).finishes().outcome == "recycled"
