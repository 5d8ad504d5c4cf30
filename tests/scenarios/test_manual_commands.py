"""The commands that a report prints are run by an operator, and restore the node."""

import json

import pytest

from docs.pages import path_with_tools

REFUSED = {"code": "AccessDenied", "message": "not authorized", "status": 403, "times": None}
#: Virtual time passes while a command waits, so its real pauses are short.
SHORT_PAUSES = "sleep() { command sleep 0.1; }\n"
ENDS_AT_ERRORS = "set -e\n"


def exit_standby_is_refused(world, workers):
    world.faults.refuse("autoscaling:ExitStandby", **REFUSED)


def the_group_is_full(world, workers):
    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=workers.name, MaxSize=2)
    world.at("3m", lambda: workers.newest.bare_pod("tenant"))


def launch_is_suspended(world, workers):
    world.at("4m", lambda: workers.suspend("Launch"))


def tags_cannot_be_deleted(world, workers):
    world.faults.refuse("ec2:DeleteTags", **{**REFUSED, "code": "UnauthorizedOperation"})


def the_node_cannot_be_written(world, workers):
    """The report says that the next sweep restores the Node, and has a command for the rest."""
    world.faults.refuse("kubernetes:PATCH nodes", **{**REFUSED, "code": "Forbidden"}, function="restore-node")


#: Each obstacle to a restore -> the report's event.
OBSTACLES = {
    exit_standby_is_refused: "left_in_standby",
    the_group_is_full: "left_in_standby",
    launch_is_suspended: "left_in_standby",
    tags_cannot_be_deleted: "failed",
    the_node_cannot_be_written: "failed",
}


def traces(world, node) -> list[str]:
    """The marks, taints and protections of recycle-eks on the node, its instance and its group."""
    instance = world.instance(node.instance_id)
    keys = [key for key in [*node.annotations, *node.labels, *instance.tags] if key.startswith("recycle-eks")]
    taints = [taint["key"] for taint in node.kubernetes.taints if taint["key"].startswith("recycle-eks")]
    protected = [m.instance_id for m in world.autoscaling.group(node.group.name).instance_states if m.protected_from_scale_in]
    cordon = ["cordoned"] * node.unschedulable
    return [*keys, *taints, *protected, *cordon, *(f"lease {name}" for name in world.kubernetes.leases())]


def run_printed_commands(world, cli, report, options=""):
    """An operator pastes the commands of a report into a shell. Returns how the shell ended."""
    commands = [line for line in report["what_to_do"] if not line.endswith((":", "."))]
    assert commands, report
    tools = {**world.environment(), "PATH": path_with_tools()}
    return cli.in_a_shell(SHORT_PAUSES + options + "\n".join(commands), pace=15, **tools).ends()


def run_successfully(world, cli, report) -> None:
    """AWS refuses nothing any more."""
    world.faults.clear()
    ended = run_printed_commands(world, cli, report, ENDS_AT_ERRORS)
    assert ended.code == 0, f"{report['what_to_do']}\n{ended.text}\n{ended.errors}"


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda obstacle: obstacle.__name__)
def test_the_printed_commands_of_a_restore_that_was_not_made_restore_the_node(world, cli, workers, node, job, obstacle):
    obstacle(world, workers)
    end = world.recycle(node, label_selector="app=train", drain_timeout=300).finishes()
    assert end.status == "FAILED"
    report = world.all_notifications[-1]
    assert report["event"] == OBSTACLES[obstacle], report

    if OBSTACLES[obstacle] == "left_in_standby":
        status_has_the_commands(cli, node, report)
    if obstacle is exit_standby_is_refused:
        removes_no_record_while_aws_refuses(world, cli, report, node, job)
    run_successfully(world, cli, report)

    if "the next sweep restores it" in end.cause:
        assert world.sweep().finishes().status == "SUCCEEDED"
    assert (workers.states[node.instance_id], traces(world, node)) == ("InService", []), report["what_to_do"]
    assert job.exists and job.node_name == node.name
    # The node can be recycled like any other.
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def status_has_the_commands(cli, node, report) -> None:
    """Also long after the notification."""
    (row,) = cli("status", node.name, "--output", "json", pace=0).document["nodes"]
    assert row["step"] == "manual"
    assert row["commands"] == [line for line in report["what_to_do"] if not line.endswith((":", "."))]


def removes_no_record_while_aws_refuses(world, cli, report, node, job) -> None:
    """An operator runs the commands, and AWS refuses the restore again."""
    records = {*world.kubernetes.leases(), *world.instance(node.instance_id).tags}

    ended = run_printed_commands(world, cli, report)

    assert f"{node.instance_id} is not in service, so the commands below do nothing" in ended.text, ended.errors
    assert report["what_to_do"][-1].startswith("state_is InService && aws ec2 delete-tags")
    assert node.group.states[node.instance_id] == "Standby" and job.exists
    assert {*world.kubernetes.leases(), *world.instance(node.instance_id).tags} == records
    assert not [each for each in world.autoscaling.group("workers").instance_states if each.protected_from_scale_in]


def lost_in_the_drain(world):
    """Its kubelet falls silent, and the call that would end it is refused."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    world.at("10m", node.falls_silent)
    world.faults.refuse("autoscaling:TerminateInstanceInAutoScalingGroup", **REFUSED)
    world.recycle(node, label_selector="app=train")
    return node


def held_by_the_hook(world, group="held"):
    """Its group terminates it, and its pods take longer than the drain may."""
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps({"drain_timeout": 1_800})}
    node = world.group(group, size=2, minimum=0, maximum=4, retains=group == "retained").nodes[0]
    node.job("train", annotations={"recycle-eks/drain": "wait"})
    node.group.terminate(node)
    return node


def retained_after_the_hook(world):
    return held_by_the_hook(world, "retained")


@pytest.mark.parametrize("case", [lost_in_the_drain, held_by_the_hook, retained_after_the_hook], ids=lambda case: case.__name__)
def test_the_printed_commands_for_a_node_that_is_not_restored_end_its_instance(world, cli, case):
    node = case(world)
    world.clock.run(until=lambda: world.executions() and world.executions()[0].status == "FAILED", limit=world.seconds("3h"))
    report = world.all_notifications[-1]
    assert node.instance_id in node.group.states and report["event"] == "failed", report
    if case is not lost_in_the_drain:
        status_has_the_commands(cli, node, report)

    run_successfully(world, cli, report)

    world.wait("20m")
    assert node.instance_id not in node.group.states
    _, desired, _ = node.group.sizes
    assert sorted(node.group.states.values()) == ["InService"] * desired
    # As long as EC2 lists the instance, its tag `gave-up` keeps the sweep away.
    world.wait("1h")
    assert world.sweep().finishes().status == "SUCCEEDED"
    assert world.kubernetes.leases() == {}
