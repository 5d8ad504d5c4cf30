"""The Availability Zones of a group: the zone of the next launch, the next member to terminate, and the balance."""

from __future__ import annotations

from typing import Any

from world.aws.autoscaling.model import COUNTED, ON_STANDBY, Group, Member, is_suspended
from world.aws.ec2 import Ec2


def count_by_zone(group: Group, with_standby: bool) -> dict[str, int]:
    """Returns the number of members in each zone of the group."""
    states = COUNTED + (ON_STANDBY if with_standby else ())
    counts = {zone: 0 for zone in group.availability_zones}
    for member in group.instance_states:
        if member.lifecycle_state in states:
            counts[member.availability_zone] = counts.get(member.availability_zone, 0) + 1
    return counts


def emptiest_subnet(ec2: Ec2, group: Group, zones: dict[str, int], zone: str | None = None) -> Any:
    """Returns the subnet in the emptiest zone of the group, or in the given zone."""
    if group.vpc_zone_identifier:
        subnets = [ec2.backend.get_subnet(name) for name in group.vpc_zone_identifier.split(",")]
    else:
        defaults = ec2.backend.get_default_subnets()
        subnets = [defaults[zone] for zone in group.availability_zones]
    allowed = [subnet for subnet in subnets if zone in (None, subnet.availability_zone)]
    return min(allowed, key=lambda subnet: zones.get(subnet.availability_zone, 0))


def is_unbalanced(group: Group, zones: dict[str, int]) -> bool:
    """Checks whether a group without a launch has two more members in one zone than in another."""
    counts = zones.values()
    settled = all(m.lifecycle_state not in ("Pending", "Pending:Wait", "Pending:Proceed") for m in group.instance_states)
    return settled and max(counts) - min(counts) >= 2 and not is_suspended(group, "AZRebalance")


def choose_victim(group: Group, zones: dict[str, int]) -> Member | None:
    """Scale-in: never a protected one; of the fullest zone first, then the oldest (user guide, "Default termination
    policy").
    """
    candidates = [
        m for m in group.instance_states if m.lifecycle_state in COUNTED and not m.protected_from_scale_in and not m.returned
    ]
    if not candidates:
        return None
    newest_first = "NewestInstance" in group.termination_policies
    order = -1 if newest_first else 1
    positions = {id(m): position for position, m in enumerate(group.instance_states)}
    return min(
        candidates,
        key=lambda m: (
            -zones[m.availability_zone],
            order * m.instance.launch_time.timestamp(),
            order * positions[id(m)],
        ),
    )
