"""The conditions that must hold when everything has ended and two sweeps have passed, after any fault.

They are checked against the world: machines, pods, targets, groups, tags. An outcome is only checked against these facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from campaign.scenes import Stage, end_and_reason, ends_of
from world.base.shapes import VIOLATIONS
from world.kubernetes.sts import issued_secrets
from world.scenario.cluster_autoscaler import DISABLED
from world.scenario.executions import End
from world.scenario.groups import Node

#: The outcomes of docs/inputs-and-outcomes.md.
GONE = ("recycled",)
RESTORED = ("DrainTimedOut", "ReplacementTimedOut", "ServiceRefused", "ServiceUnavailable", "InternalError")
UNTOUCHED = ("PreflightRefused", "QueueTimedOut", "InvalidInput", "planned")
ANOTHERS = ("duplicate", "superseded", "ClaimLost", "already_gone", "released", "NodeLost")
#: These records remain on an instance in Standby that an operator must restore. Cluster Autoscaler leaves it alone until then.
FOR_OPERATORS = {"recycle-eks:gave-up", "recycle-eks/gave-up", "recycle-eks:standby", "recycle-eks/record", DISABLED}
FOR_OPERATORS |= {"recycle-eks/kept-before"}
#: A lost node that was reported is not restored, so these records, taints and labels also remain on it and on its pods.
FOR_LOST = FOR_OPERATORS | {"recycle-eks/draining", "recycle-eks/waits-until", "cordon"}
FOR_LOST |= {"node.kubernetes.io/exclude-from-external-load-balancers"}
#: Only the Lease says that recycle-eks has set these, and not an operator. They remain if an operator deletes it.
FOR_FORGOTTEN = {
    "recycle-eks:protected-for",
    "protection from scale-in",
    "node.kubernetes.io/exclude-from-external-load-balancers",
}
#: Tokens of EKS, presigned addresses, secrets of AWS as the local world issues them.
SECRETS = re.compile(r"k8s-aws-v1\.|X-Amz-Signature|X-Amz-Security-Token|\b(AKIA|ASIA|LSIA)[0-9A-Z]{16}\b")


def violations(stage: Stage) -> list[str]:
    """Returns a sentence for each violation."""
    found = [*stage.died, *stage.short, *(f"{call} without a live claim" for call in sorted(set(stage.unclaimed)))]
    found += [f"{each.status}: {each.arn}" for each in stage.running]
    found += _pods(stage)
    found += _kept(stage)
    found += _targets(stage)
    found += _groups(stage)
    found += _leftovers(stage)
    found += _outcomes(stage)
    found += _others(stage)
    found += _secrets(stage)
    found += VIOLATIONS.take()
    return found


def _leftovers(stage: Stage) -> Iterator[str]:
    held, standing, lost = _reported_nodes(stage)
    forgotten = stage.forgotten | {node.name for node in stage.nodes if node.instance_id in stage.forgotten}
    for group in stage.groups:
        for where, what in stage.world.leftovers(group):
            is_reported = where in held or (where in standing and what in FOR_OPERATORS) or (where in lost and what in FOR_LOST)
            is_reported |= where in forgotten and what in FOR_FORGOTTEN
            # A terminated instance has lost its tags.
            if not is_reported and not (where.startswith("i-") and stage.world.state_of(where) == "terminated"):
                yield f"{what} is left on {where}"


def _reported_nodes(stage: Stage) -> tuple[set[str], set[str], set[str]]:
    """Returns the nodes that were reported to operators, in three sets. The nodes of the first are held by a hook, or detached as
    requested. Those of the second are left in Standby. Those of the third are lost, because the kubelet is silent."""
    held, standing, lost = set(), set(), set()
    ends = [end_and_reason(each) for each in ends_of(stage)]
    ends += [("", json.dumps(each)) for each in stage.world.all_notifications]
    for node in stage.nodes:
        mine = [(outcome, reason) for outcome, reason in ends if node.instance_id in reason]
        member, last = node.group.states.get(node.instance_id), [end for end, _ in _ends_about(stage, node)][-1:]
        # After DrainTimedOut no execution continues with a node that a hook holds. In every other case the sweep does.
        is_held = member == "Terminating:Wait" and last == ["DrainTimedOut"]
        is_detached = member is None and stage.dispose == "detach"
        reasons = [(is_held, "Terminating:Wait in its group"), (is_detached, "is in no group")]
        if any(is_so and words in reason for is_so, words in reasons for _, reason in mine):
            held |= {node.instance_id, node.name}
        is_said = any(outcome == "LeftInStandby" or "Standby in its group" in reason for outcome, reason in mine)
        is_said |= node.instance_id in stage.forgotten and any(f"({node.instance_id}) is Standby" in reason for _, reason in mine)
        is_said |= node.instance_id in stage.unknown and any(f"{node.instance_id} is lost" in reason for _, reason in mine)
        if is_said and _cannot_come_back(stage, node):
            standing |= {node.instance_id, node.name}
        is_silent = node.instance_id in stage.unknown and node.exists
        if is_silent and any("is lost, its instance is" in reason for _, reason in mine):
            lost |= {node.instance_id, node.name}
    return held, standing, lost


def _cannot_come_back(stage: Stage, node: Node) -> bool:
    """Checks whether its group is full, it does not run, or its Node or its Lease was deleted."""
    _, desired, most = node.group.sizes
    is_taken = node.instance_id in stage.by_hand | stage.unknown | stage.forgotten
    return desired >= most or stage.world.state_of(node.instance_id) != "running" or is_taken


def _pods(stage: Stage) -> Iterator[str]:
    for job in stage.jobs:
        if job.name not in stage.finished:
            yield f"pod {job.name}, which was to be waited for, has not finished"


def _kept(stage: Stage) -> Iterator[str]:
    """Cluster Autoscaler terminates a member in Standby if it has no Node, or an idle Node without the annotation."""
    for node in stage.nodes:
        is_kept = (
            stage.is_tagged(node.instance_id, "recycle-eks:stopped") and node.group.states.get(node.instance_id) == "Standby"
        )
        if not is_kept or node.instance_id in stage.by_hand | stage.unknown:
            continue
        if not node.exists:
            yield f"{node.instance_id} is kept, but has no Node, so that Cluster Autoscaler takes it away"
        elif node.annotations.get(DISABLED) != "true":
            yield f"{node.instance_id} is kept, but nothing keeps Cluster Autoscaler from it"


def _targets(stage: Stage) -> Iterator[str]:
    for target in stage.targets:
        by_hand = [
            entry.serves(0, gap[0])[1] for gap in target.unserved() for entry in target.book if entry.target in stage.by_hand
        ]
        if gaps := [gap for gap in target.unserved() if gap[1] - gap[0] > 1e-6 and gap[0] not in by_hand]:
            yield f"{target} had no healthy target at {gaps}"
        kept = {node.instance_id for node in stage.nodes} - stage.by_hand - stage.unknown
        yield from (f"{instance} ended as a target of {target}" for instance in sorted(kept & set(target.cut_off)))


def _groups(stage: Stage) -> Iterator[str]:
    theirs = set.union(*_reported_nodes(stage))
    for group in stage.groups:
        least, wanted, most = stage.sizes[group.name]
        wanted += stage.grown.get(group.name, 0)
        states = group.states
        away = [each for each, state in states.items() if state != "InService"]
        left = [each for each in away if each in theirs or stage.is_tagged(each, "recycle-eks:stopped")]
        # A node that came back may have been ended since, and replaced by its group.
        back = [node for node in stage.nodes if states.get(node.instance_id) == "InService" or node.instance_id in stage.by_hand]
        old = [node for node in back if _is_said_larger(stage, node)]
        new = [node for node in group.nodes if node.instance_id not in stage.members[group.name] and node.pods_at_work()]
        # If the replacement has pods, the restore keeps both, and the outcome reports the larger group.
        # Only the Lease says that the execution has made the group larger.
        forgotten = [node for node in back if node.instance_id in stage.forgotten and node.group is group]
        allowed = [(least, wanted + more, most) for more in range(max(min(len(old), len(new)), len(forgotten)) + 1)]
        if group.sizes not in allowed:
            yield f"{group} has the sizes {group.sizes} and not {stage.sizes[group.name]}"
        odd = {instance: state for instance, state in states.items() if state != "InService" and instance not in left}
        if odd:
            yield f"{group} has members {odd}"
        if len(states) - len(left) != group.sizes[1]:
            yield f"{group} has {len(states)} members, {group.sizes[1]} are desired"


def _is_said_larger(stage: Stage, node: Node) -> bool:
    texts = [reason for _, reason in _ends_about(stage, node)]
    texts += [json.dumps(each) for each in stage.world.all_notifications]
    return any("is one larger than before" in text and node.instance_id in text for text in texts)


def _ends_about(stage: Stage, node: Node) -> list[tuple[str, str]]:
    """Returns the outcomes and reasons of its executions that describe the node, in order."""
    mine = [each for each in ends_of(stage) if node.instance_id in json.dumps(stage.world.engine.execution(each.arn).input)]
    return [end for each in mine if (end := end_and_reason(each))[0] not in ("duplicate", "superseded", "ClaimLost")]


def _outcomes(stage: Stage) -> Iterator[str]:
    for node in stage.nodes:
        mine = [each for each in ends_of(stage) if node.instance_id in json.dumps(stage.world.engine.execution(each.arn).input)]
        ends = [end_and_reason(each) for each in mine]
        describing = _ends_about(stage, node)
        for outcome, reason in ends:
            stopped = ["ABORTED"] if stage.is_stopped else []
            if outcome not in (*GONE, *RESTORED, *UNTOUCHED, *ANOTHERS, *stopped, "LeftInStandby"):
                yield f"{outcome} is no outcome: {reason[:200]}"
            if outcome == "InternalError":
                yield f"an internal error: {reason[:300]}"
            if outcome in ("duplicate", "superseded") and not describing:
                yield f"{outcome} was reported, but no other execution worked on the node"
            if outcome == "ClaimLost" and not (stage.is_stopped or stage.is_unclaimed):
                yield f"ClaimLost was reported, but the claim was not removed: {reason[:300]}"
            # An operator may terminate an instance before or after it was detached or stopped.
            is_ended = stage.world.state_of(node.instance_id) == "terminated"
            is_over = is_ended and node.instance_id not in node.group.states
            is_theirs = (is_ended and node.instance_id in stage.by_hand) or (is_over and node.instance_id in stage.unknown)
            if outcome in GONE and not (_has_gone(stage, node) or is_theirs):
                yield f"{outcome} was reported, but the instance is {_whereabouts(stage, node)}"
            if outcome in ("already_gone", "NodeLost") and not (
                is_over or (outcome == "already_gone" and _has_gone(stage, node))
            ):
                yield f"{outcome} was reported, but the instance is {_whereabouts(stage, node)}"
        if not describing:
            continue
        outcome, reason = ([each for each in describing if each[0] != "already_gone"] or describing)[-1]
        member, power = node.group.states.get(node.instance_id), stage.world.state_of(node.instance_id)
        not_by_hand = node.instance_id not in stage.by_hand
        is_detached = member is None and power == "running" and stage.dispose == "detach"
        says_so = is_detached and ("is in no " in reason or f"({node.instance_id}) has gone as asked" in reason)
        says_so |= member is None and power == "terminated" and f"instance {node.instance_id} is gone" in reason
        # A member that its group terminates cannot be restored.
        says_so |= member == "Terminating:Wait" and "is Terminating:Wait in its group, still runs" in reason
        # A node whose Node object was deleted during the drain cannot be restored either.
        is_lost = f"is lost, its instance is {power} and {member} in its group"
        says_so |= node.instance_id in stage.unknown and node.instance_id in reason and is_lost in reason
        if not_by_hand and outcome in (*RESTORED, *UNTOUCHED) and (member, power) != ("InService", "running") and not says_so:
            yield f"{outcome} was reported, but the instance is {_whereabouts(stage, node)}: {reason[:300]}"
        if not_by_hand and outcome == "LeftInStandby" and member != "Standby":
            yield f"{outcome} was reported, but the instance is {_whereabouts(stage, node)}"
        if not_by_hand and outcome == "NodeLost" and node.instance_id not in stage.unknown:
            yield f"NodeLost was reported, but the node was not removed: {reason[:300]}"


def _whereabouts(stage: Stage, node: Node) -> str:
    return f"{stage.world.state_of(node.instance_id)}, {node.group.states.get(node.instance_id)} in its group"


def _has_gone(stage: Stage, node: Node) -> bool:
    """Checks whether the node ended as requested."""
    member, power = node.group.states.get(node.instance_id), stage.world.state_of(node.instance_id)
    if stage.dispose == "terminate":
        return (member, power) == (None, "terminated")
    if stage.dispose == "stop":
        return (member, power) == ("Standby", "stopped") and stage.is_tagged(node.instance_id, "recycle-eks:stopped")
    return (member, power) == (None, "running") and stage.is_tagged(node.instance_id, "recycle-eks:detached")


def _others(stage: Stage) -> Iterator[str]:
    """Checks rotations and sweeps: no execution may time out, and the last sweep must succeed."""
    world = stage.world
    for each in world.engine.executions.values():
        if each.status == "TIMED_OUT":
            yield f"{each.arn} is {each.status}"
    sweeps, rotations = ([each.finishes() for each in world.executions(name)] for name in ("sweep", "rotate-nodes"))
    # A rotation, and the child executions of its map of groups.
    of_rotations = [each for arn, each in world.engine.executions.items() if "rotate-nodes" in arn]
    history = json.dumps([each.events for each in of_rotations], default=str)
    doubles = [each.arn for each in ends_of(stage) if end_and_reason(each)[0] == "duplicate" and each.arn in history]
    if doubles and rotations and all(end.outcome == "rotated" for end in rotations):
        yield f"rotated was reported, but {', '.join(doubles)} found another execution at work"
    if sweeps and sweeps[-1].status != "SUCCEEDED":
        yield f"the last sweep has failed: {sweeps[-1].cause[:300]}"
    for end in (*sweeps, *rotations):
        if "InternalError" in (end.error or "") + (end.cause or ""):
            yield f"an internal error: {end.cause[:300]}"
    for end in rotations:
        yield from _rotation(stage, end)


def _rotation(stage: Stage, end: End) -> Iterator[str]:
    """Checks the numbers that a rotation reports for each group, as `rotated` or as `RotationFailed`."""
    ending, output = end.outcome or end.error, end.output
    if ending == "RotationFailed" and (end.cause or "").startswith("{"):
        output = json.loads(end.cause)
    for group in (output or {}).get("groups", []):
        mine = [node for node in stage.nodes if node.group.name == group["group"]]
        there = [node for node in mine if not _has_gone(stage, node)]
        failed = [each["node"] for each in group.get("failed", [])]
        if "recycled" in group and group["recycled"] > len(mine) - len(there):
            yield f"{ending} says that {group['recycled']} are recycled, but {', '.join(map(str, there))} is there"
        if "left" in group and len([node for node in there if node.instance_id not in failed]) > group["left"]:
            yield f"{ending} says that {group['left']} are left, but {', '.join(map(str, there))} is there"
        if ending == "rotated" and failed:
            yield f"rotated was reported, but {', '.join(failed)} failed"


def _secrets(stage: Stage) -> Iterator[str]:
    world = stage.world
    texts = {f"the log of {function}": world.host.logs(function) for function in world.host.functions_with_logs()}
    for execution in world.engine.executions.values():
        texts[f"the history of {execution.name}"] = json.dumps(execution.events, default=str)
    for node in world.kubernetes.nodes():
        texts[f"node {node.name}"] = json.dumps(node.object)
    for event in world.kubernetes.events():
        texts[f"the Event {event['metadata']['name']}"] = json.dumps(event)
    for instance in {each for group in stage.groups for each in group.nodes_seen}:
        texts[f"tags of {instance}"] = json.dumps(stage.tags(instance))
    texts["the notifications"] = json.dumps([*world.all_notifications, *world.notifications])
    texts |= {f"written text {number}": text for number, text in enumerate(stage.written)}
    issued = issued_secrets()
    for where, text in texts.items():
        if secret := SECRETS.search(text):
            yield f"{where} has a secret: {secret[0]}"
        yield from (f"{where} has a secret that was issued" for secret in issued if secret in text)
