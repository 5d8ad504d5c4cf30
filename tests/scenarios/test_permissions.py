"""Least privilege: every role's policies and Kubernetes groups allow exactly the calls that scenarios of every kind need."""

import json
import tempfile

import pytest

from prepare import ROOT
from scenarios.permissions import GROUPS, NAMESPACES, OF_EVERY_USER, granted, rules, short
from world.aws.identity import REGION
from world.cli import command_line
from world.deployment import ALARM_TOPIC

#: Statements that no scenario here needs, and the reason for each.
NOT_CALLED = {
    "WriteItsOwnLog": "Lambda itself writes with the function's role; the world keeps the functions' logs without it",
    "DeliverItsLog": "Step Functions itself asks for these with the machine's role; the world's machines have no logs",
    "scheduler's SendDeadLetters": "EventBridge Scheduler itself, after attempts that the world's does not make",
}

# The scenarios


def everything_ends(world):
    for _ in range(2):
        for machine in ("rotate-nodes", "recycle-node", "sweep"):
            for execution in world.executions(machine):
                execution.finishes()


def recyclings(world, cli):
    """Recycles a node with pods that are evicted, behind a balancer, in a group that EKS manages, and a node with volumes. The
    third node's replacement comes after it, and one of its pods is deleted past its budget. The fourth node's group gets one
    member more. The last three nodes are stopped, detached, and left without a replacement."""
    workers = world.group("workers", size=2, minimum=1, maximum=4, node_group="blue")
    world.target_group("ingress", workers)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    world.at("10m", job.finishes)
    databases = world.group("databases", size=1, minimum=1, maximum=4).nodes[0]
    databases.stateful_set("db", volume_claims=[world.kubernetes.zonal_volume("data", f"{REGION}a")])
    afterwards = world.group("afterwards", size=2, minimum=2, maximum=2).nodes[0]
    crashes = afterwards.deployment("crashes")
    world.budget(crashes, min_available=1)
    crashes.pods()[0].crash_loops()
    surge = world.group("surge", size=2, minimum=1, maximum=4).nodes[0]
    stopped = world.group("stopped", size=2, minimum=1, maximum=4).nodes[0]
    detached = world.group("detached", size=3, minimum=1, maximum=5).nodes[0]
    alone = world.group("alone", size=2, minimum=1, maximum=4)
    alone.next_launch(fails="Insufficient capacity")
    executions = [
        world.recycle(node, label_selector="app=train", override=["standby_in_managed_group"], replacement="before"),
        world.recycle(databases),
        world.recycle(afterwards, replacement="after", override=["unhealthy_budget"]),
        world.recycle(surge, replacement="surge"),
        world.recycle(stopped, dispose="stop"),
        world.recycle(detached, dispose="detach"),
    ]
    without_replacement = world.recycle(alone.nodes[0], replacement_timeout=300)
    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 6
    assert without_replacement.finishes().error == "ReplacementTimedOut"


def a_hook(world, cli):
    """The hook is kept alive, and completed by the function that disposes of the instance. A foreign member is let go at once,
    and nothing of it is touched."""
    foreign = world.group("held", size=2, minimum=0, maximum=4, cluster="production")
    workers = world.group("impatient", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    world.at("12m", node.job("train", annotations={"recycle-eks/drain": "wait"}).finishes)
    workers.terminate(node)
    foreign.grow(1)
    world.wait("1m")
    everything_ends(world)
    assert sorted(execution.finishes().outcome for execution in world.executions()) == ["recycled", "released"]


def a_hook_whose_event_is_lost(world, cli):
    """The sweep starts what the hook would have."""
    world.events.lose("*:stateMachine:recycle-eks-recycle-node*")
    workers = world.group("held", size=2, minimum=0, maximum=4)
    world.let_sweep()
    workers.terminate(workers.nodes[0])
    world.wait("40m")
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def a_hook_whose_event_is_lost_in_a_drain(world, cli):
    """The group ends the member during its drain. The execution notices that, and keeps the hook alive."""
    world.events.lose("*:stateMachine:recycle-eks-recycle-node*")
    workers = world.group("impatient", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    world.at("20m", node.job("train", annotations={"recycle-eks/drain": "wait"}).finishes)
    execution = world.recycle(node, replacement="after")
    world.run("10m")
    workers.terminate(node)
    assert execution.finishes().outcome == "recycled"


def a_cluster_that_has_moved(world, cli):
    """Each function is refused once, and asks EKS where the cluster is now."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.deployment("web", replicas=2)
    for function in ("standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate"):
        world.faults.refuse("kubernetes:*", code="Unauthorized", status=401, function=function)
    assert world.recycle(node).finishes().outcome == "recycled"
    assert world.faults.not_struck() == []


def a_restore(world, cli):
    """A member comes back from Standby. Its empty replacement ends under the hook while the others are protected."""
    # A group that trims itself ends the replacement, and the function does not.
    world.unknowns.exit_standby_trims = False
    workers = world.group("held", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    node.job("train", annotations={"recycle-eks/drain": "wait"})
    end = world.recycle(node, drain_timeout=600).finishes()
    assert end.error == "DrainTimedOut" and "was restored" in end.cause, end.cause
    everything_ends(world)


def a_lost_node(world, cli):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    world.at("8m", node.is_terminated_in_the_console)
    assert world.recycle(node, label_selector="app=train").finishes().error == "NodeLost"


def a_refresh_that_is_cancelled(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    world.at("8m", lambda: workers.refreshes_its_instances("Terminate"))
    world.at("14m", job.finishes)
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"


def spot(world, cli):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.deployment("web", replicas=2)
    node.becomes_spot()
    detail = {"instance-id": node.instance_id, "instance-action": "terminate"}
    world.events.emit("aws.ec2", "EC2 Spot Instance Interruption Warning", detail)
    world.wait("1m")
    everything_ends(world)
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def a_sweep(world, cli):
    """The sweep restores the node of a stopped execution, and sends a notification."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    world.let_sweep()
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    execution.stop()
    world.wait("40m")
    assert world.leftovers() == [] and world.notifications


def a_rotation(world, cli):
    """With a node that is lost in the middle, and others that ask about it."""
    workers = world.group("workers", size=2, minimum=1, maximum=6)
    workers.gets_a_new_template()
    lost = min(workers.nodes, key=lambda node: node.instance_id)
    lost.job("train", labels={"app": "train"})
    world.alarm("errors", InstanceId="i-0")
    rotation = world.rotate(at_once=1, failure_budget=1, alarms=["errors"], recycle={"label_selector": "app=train"})
    world.at("10m", lost.is_terminated_in_the_console)
    world.run("5m")
    assert world.rotate({"outdated": {"ami": True}}).finishes().status == "SUCCEEDED"
    end = rotation.finishes()
    (group,) = end.groups.values()
    assert (end.error, group["recycled"]) == ("RotationFailed", 1), end


def a_rotation_that_is_redriven(world, cli):
    world.group("workers", size=2, minimum=1, maximum=4).gets_a_new_template()
    rotation = world.rotate(at_once=1, failure_budget=1)
    world.run("60s")
    rotation.stop()
    world.sweep().finishes()
    rotation.redrive()
    assert rotation.finishes().error == "RotationFailed"


def a_rotation_that_is_aborted(world, cli):
    """It takes the executions with it that it waits for."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    workers.nodes[0].job("train", labels={"app": "train"})
    rotation = world.rotate({"outdated": {"all": True}}, at_once=1, recycle={"label_selector": "app=train"})
    world.run("20m")
    printed = cli("abort", "--yes", rotation.arn)
    assert printed.code == 0, printed
    everything_ends(world)


def schedules(world, cli):
    world.group("workers", size=2)
    world.let_schedules_run()
    world.run("1d1m")
    everything_ends(world)


def an_alarm_through_a_topic(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=5)
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=workers.nodes[1].instance_id)
    world.turn_alarm("node-cpu", "ALARM")
    world.wait("3m")
    everything_ends(world)
    assert [execution.finishes().outcome for execution in world.executions()] == ["recycled"]


def an_alarm_that_starts_nothing(world, cli):
    """An alarm that cannot start a rotation ends in the dead-letter queue."""
    workers = world.group("workers", size=2, minimum=1, maximum=5)
    world.alarm("node-cpu", ALARM_TOPIC, InstanceId=workers.nodes[1].instance_id)
    world.events.silent = "*alarm*"
    world.faults.refuse("states:StartExecution", code="ThrottlingException", times=None, function="start-rotation")
    world.turn_alarm("node-cpu", "ALARM")
    world.wait("5m")
    assert world.queued("dead-letters")


def an_operator(world, cli):
    """Every command, and every view."""
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    world.group("retained", size=1, minimum=1, maximum=2, retains=True)
    world.sweep().finishes()
    assert cli("doctor", "--output", "json", pace=0).code in (0, 7)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    assert cli("recycle", node.name, "--label-selector", "app=train", "--no-wait").code == 0
    world.run("8m")
    assert cli("status").code == 0
    assert cli("status", "--history").code == 0
    assert cli("extend", node.name, "--by", "1d").code == 0
    assert cli("finish", node.name).code == 0
    everything_ends(world)
    job.finishes()
    assert cli("restore", "--all").code == 0
    assert cli("pause", "workers").code == 0
    assert cli("resume", "--all").code == 0
    assert cli("plan", "--all").code == 0
    rotation = cli("rotate", "--all", "--yes", pace=300)
    assert rotation.code == 0, rotation
    assert cli("report", world.executions("rotate-nodes")[-1].arn, "--output", "json", pace=0).code == 0
    assert cli("report", world.executions()[0].arn, "--output", "json", pace=0).code == 0
    with tempfile.TemporaryDirectory() as folder:
        printed = cli("report", "--last", "--bundle", f"{folder}/bundle.json", pace=0)
        assert printed.code == 0 and "missing" not in printed.text, printed


SCENARIOS = [
    recyclings, a_hook, a_hook_whose_event_is_lost, a_hook_whose_event_is_lost_in_a_drain, a_cluster_that_has_moved,
    a_restore, a_lost_node, a_refresh_that_is_cancelled, spot, a_sweep, a_rotation, a_rotation_that_is_redriven,
    a_rotation_that_is_aborted, schedules,
    an_alarm_through_a_topic, an_alarm_that_starts_nothing, an_operator,
]  # fmt: skip


class Lived:
    """The calls of all of them."""

    def __init__(self, world):
        self.decisions = []
        self.kubernetes = []
        for scenario in SCENARIOS:
            world.reset()
            with command_line(world) as cli:
                scenario(world, cli)
            self.decisions += world.iam.decisions
            self.kubernetes += [call for call in world.aws.calls if call.action.startswith("kubernetes:")]


@pytest.mark.long
def test_policies_and_groups_allow_exactly_the_calls_of_all_scenarios(world):
    """One test, so that the scenarios are played once."""
    lived = Lived(world)
    world.reset()
    no_call_is_refused(lived)
    every_right_of_the_policies_was_needed(world, lived)
    no_call_was_refused_by_the_api_server(lived)
    every_verb_of_each_group_was_needed_by_a_function_of_the_group(world, lived)
    each_function_is_in_exactly_the_groups_that_its_calls_need(world, lived)
    the_table_of_permissions_has_exactly_the_calls_of_each_function(lived)


# The policies


def no_call_is_refused(lived):
    assert [decision for decision in lived.decisions if not decision.allowed] == []
    assert {short(decision.principal) for decision in lived.decisions} >= {
        "claim-node",
        "sweep",
        "events",
        "scheduler",
        "operator",
    }


def not_called(who, sid):
    """Its name among the exceptions, if it is one."""
    return next((name for name in (sid, f"{who}'s {sid}") if name in NOT_CALLED), None)


def every_right_of_the_policies_was_needed(world, lived):
    needed = {(short(each.principal), sid, each.action) for each in lived.decisions for sid in each.statements}
    unneeded = granted(world) - needed
    assert [each for each in sorted(unneeded) if not not_called(*each[:2])] == []
    # No exception is listed that is none, or was called after all.
    excepted = {each for each in granted(world) if not_called(*each[:2])}
    assert {not_called(*each[:2]) for each in excepted} == set(NOT_CALLED) and excepted <= unneeded


# The cluster


def groups_of_functions(world):
    """The Kubernetes groups of each function's access entry."""
    return {short(principal): set(groups) for principal, _, groups in world.eks.access_entries()}


def as_rule(call):
    """The verb by which RBAC knows a request (Kubernetes documentation, "Determine the request verb")."""
    group = call.path.split("/")[2] if call.path.startswith("/apis/") else ""
    verb = {"GET": "get" if "name" in call.parameters else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
    return group, call.action.rpartition(" ")[2], verb[call.verb]


def calls_by_function(lived):
    """The calls of each function that the API server answered, as RBAC names them."""
    of_resources = [call for call in lived.kubernetes if call.status < 300 and not call.action.endswith(" /version")]
    made = {}
    for call in of_resources:
        made.setdefault(call.function.removeprefix("recycle-eks-"), set()).add(as_rule(call))
    return {function: calls - OF_EVERY_USER for function, calls in made.items()}


def no_call_was_refused_by_the_api_server(lived):
    assert [call for call in lived.kubernetes if call.status in (401, 403) and call.fault is None] == []


def every_verb_of_each_group_was_needed_by_a_function_of_the_group(world, lived):
    made, groups_of = calls_by_function(lived), groups_of_functions(world)
    assert set().union(*groups_of.values()) == set(GROUPS)
    for group in GROUPS:
        members = [function for function, groups in groups_of.items() if group in groups]
        allowed = rules(world, group, *NAMESPACES)
        assert set().union(*(made[function] for function in members)) & allowed == allowed, group


def each_function_is_in_exactly_the_groups_that_its_calls_need(world, lived):
    made, groups_of = calls_by_function(lived), groups_of_functions(world)
    assert made.keys() == groups_of.keys()
    allowed = {group: rules(world, group, *NAMESPACES) for group in GROUPS}
    for function, calls in made.items():
        assert {group for group in GROUPS if allowed[group] & calls} == groups_of[function], function
        assert calls <= set().union(*(allowed[group] for group in groups_of[function])), function


VOLUMES = {("", "persistentvolumeclaims", "get"), ("", "persistentvolumes", "get")}
EVENTS = ("", "events", "create")
#: The calls that these scenarios do not need, by function. They read no volumes in a dry run, nor in a disposal to which pods
#: come back. No pod is blocked for five minutes, and no request is answered by a restore. No sweep claims a node that has no
#: Lease. No rotation waits for pending pods. The Node of a drain whose end is moved is found in the list.
NOT_LIVED = {
    "claim-node": VOLUMES,
    "detach-terminate": VOLUMES,
    "evict-pods": {EVENTS},
    "restore-node": {EVENTS, ("coordination.k8s.io", "leases", "create")},
    "select-nodes": {("", "pods", "list")},
    "serve-operator": {("", "nodes", "get")},
}


def the_table_of_permissions_has_exactly_the_calls_of_each_function(lived):
    table = json.loads((ROOT / "tests" / "contract" / "contract.json").read_text())["permissions"]
    listed = {}
    for permission in table:
        for function in permission["functions"]:
            listed.setdefault(function, set()).add((permission["api_group"], permission["resource"], permission["verb"]))
    made = calls_by_function(lived)
    assert made.keys() == listed.keys()
    for function, calls in made.items():
        assert calls <= listed[function], function
    missing = {function: listed[function] - calls for function, calls in made.items()}
    assert {function: calls for function, calls in missing.items() if calls} == NOT_LIVED
