"""The load balancers of a group: its members are registered with them and deregistered from them."""

from __future__ import annotations

from typing import Any

from moto.elbv2.models import elbv2_backends

from world.aws.autoscaling.model import Group, Member, is_suspended
from world.aws.identity import ACCOUNT, REGION


def register_targets(member: Member) -> None:
    if is_suspended(member.group, "AddToLoadBalancer"):
        return
    for target_group in _target_groups(member.group):
        target_group.register([{"Id": member.instance_id, "Port": target_group.port}])


def deregister_targets(member: Member, classic_delay: float) -> float:
    """Takes a member out of the group's load balancers, and returns how long the group waits for that. The group does not wait
    for a member without a target group, as in Standby. `classic_delay` is the delay of a Classic Load Balancer."""
    delays = [0.0]
    for target_group in _target_groups(member.group):
        if member.instance_id in target_group.targets:
            target_group.deregister([{"Id": member.instance_id}])
            delays.append(float(target_group.attributes["deregistration_delay.timeout_seconds"]))
    if member.group.load_balancer_names:
        delays.append(classic_delay)
    return max(delays)


def _target_groups(group: Group) -> list[Any]:
    """Returns the target groups of the group, attached by ARN or as a traffic source."""
    sources = [source["Identifier"] for source in group.traffic_sources or [] if source.get("Type") == "elbv2"]
    known = elbv2_backends[ACCOUNT][REGION].target_groups
    return [known[arn] for arn in dict.fromkeys([*group.target_group_arns, *sources]) if arn in known]
