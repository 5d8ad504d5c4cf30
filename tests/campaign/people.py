"""Actions of operators on a node while it is recycled. Each can happen at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from campaign.scenes import Stage
from world.scenario.executions import Execution
from world.scenario.groups import Node


def _node(stage: Stage) -> Node:
    return stage.nodes[0]


def _where_there_is_one(act: Callable[[Node], Any]) -> Callable[[Stage], None]:
    """Acts only if the Node still exists."""

    def when_it_is_there(stage: Stage) -> None:
        if _node(stage).exists:
            act(_node(stage))
        else:
            stage.is_idle = True

    return when_it_is_there


def _asked_of_aws(act: Callable[[Stage], Any]) -> Callable[[Stage], None]:
    """AWS may refuse the request of an operator. Then the action has no effect."""

    def asked(stage: Stage) -> None:
        try:
            act(stage)
        except ClientError:
            stage.is_idle = True

    return asked


def _second_execution(stage: Stage) -> None:
    stage.world.recycle(_node(stage), label_selector="app=train", drain_timeout=3600)


def _exits_standby(stage: Stage) -> None:
    node = _node(stage)
    # If the group trimmed itself, it would end another member, which is the doing of the operator.
    stage.world.unknowns.exit_standby_trims = False
    stage.world.aws.client("autoscaling").exit_standby(AutoScalingGroupName=node.group.name, InstanceIds=[node.instance_id])
    stage.grown[node.group.name] = stage.grown.get(node.group.name, 0) + 1


def _terminates_it(stage: Stage) -> None:
    with stage.ends_by_hand(_node(stage)):
        _node(stage).is_terminated_in_the_console()


def _terminates_it_in_its_group(stage: Stage) -> None:
    node = _node(stage)
    # A member that its group terminates already is not terminated by another request.
    if not node.group.states.get(node.instance_id, "").startswith("Terminating"):
        with stage.ends_by_hand(node):
            node.group.terminate(node)
    else:
        stage.is_idle = True


def _deletes_its_object(stage: Stage) -> None:
    if _node(stage).exists:
        stage.loses_its_node(_node(stage))
    else:
        stage.is_idle = True


def _takes_the_claim_away(stage: Stage) -> None:
    if _node(stage).exists:
        stage.is_unclaimed = True
        _node(stage).record("recycle-eks/claim", None)
    else:
        stage.is_idle = True


def _deletes_the_lease(stage: Stage) -> None:
    """The records of the node go with the claim."""
    node = _node(stage)
    if not node.records:
        stage.is_idle = True
        return
    stage.loses_the_lease(node)


def _deletes_the_namespace(stage: Stage) -> None:
    """All Leases go, and none can be created until another operator applies the manifest again."""
    claimed = [node for node in stage.nodes if node.records]
    for node in claimed:
        stage.loses_the_lease(node)
    now = stage.world.clock.elapsed()
    missing = {"code": "NotFound", "status": 404, "message": 'namespaces "recycle-eks" not found'}
    stage.world.faults.refuse("kubernetes:POST leases", **missing, since=now, until=now + MISSING_FOR, times=None)
    stage.is_idle = not claimed


def _stopped(stage: Stage, machines: tuple[str, ...]) -> list[Execution]:
    """Stops the first running execution."""
    running = [each for machine in machines for each in stage.world.executions(machine) if each.status == "RUNNING"][:1]
    for execution in running:
        stage.is_stopped = True
        # A rotation waits until the sweep has restored the node of the stopped execution.
        stage.world.let_sweep()
        execution.stop()
    stage.is_idle = not running
    return running


def _stops(stage: Stage) -> None:
    _stopped(stage, ("recycle-node", "sweep"))


def _stops_the_rotation(stage: Stage) -> None:
    _stopped(stage, ("rotate-nodes",))


def _redrives(stage: Stage) -> None:
    for execution in _stopped(stage, ("recycle-node", "sweep")):
        stage.world.clock.after(30, execution.redrive)


def _protects(stage: Stage) -> None:
    node = _node(stage)
    node.group.protect(node)
    # The protection is removed later. Otherwise the judge would take it for a leftover of recycle-eks.
    client = stage.world.aws.client("autoscaling")
    given = {"AutoScalingGroupName": node.group.name, "InstanceIds": [node.instance_id], "ProtectedFromScaleIn": False}
    stage.at(
        f"{stage.world.clock.elapsed() + 7200}s", lambda: _asked_of_aws(lambda _: client.set_instance_protection(**given))(stage)
    )


def _grows_the_group(stage: Stage) -> None:
    group = _node(stage).group
    if group.sizes[1] < group.sizes[2]:
        group.grow(group.sizes[1] + 1)
        stage.grown[group.name] = stage.grown.get(group.name, 0) + 1
    else:
        stage.is_idle = True


SECOND = "second execution"
#: The virtual seconds until the namespace is there again.
MISSING_FOR = 20 * 60
#: Actions that need a rotation.
OF_ROTATIONS = ("stops the rotation",)

PEOPLE: dict[str, Callable[[Stage], None]] = {
    SECOND: _second_execution,
    "exits Standby": _asked_of_aws(_exits_standby),
    "removes the taint": _where_there_is_one(lambda node: node.kubernetes.remove_taints("recycle-eks/draining")),
    "uncordons": _where_there_is_one(lambda node: node.kubernetes.uncordon()),
    "takes the claim away": _takes_the_claim_away,
    "deletes the Lease": _deletes_the_lease,
    "deletes the namespace": _deletes_the_namespace,
    "ends the drain": _where_there_is_one(lambda node: node.annotate("recycle-eks/drain-until", "now")),
    "deletes the Node": _deletes_its_object,
    "terminates the instance": _asked_of_aws(_terminates_it),
    "terminates the member": _asked_of_aws(_terminates_it_in_its_group),
    "stops the execution": _stops,
    "stops the rotation": _stops_the_rotation,
    "redrives the execution": _redrives,
    "protects the member": _asked_of_aws(_protects),
    "grows the group": _asked_of_aws(_grows_the_group),
}
