"""The sources of a group's instances: launches as a scenario plans them, reserved machines, the warm pool, EC2."""

from __future__ import annotations

from typing import Any

from moto.autoscaling.models import ASG_NAME_TAG

from world.aws.autoscaling.model import Group, Launch, Member, find_override, find_template
from world.aws.ec2 import Ec2
from world.aws.identity import REGION


class Supply:
    """The supply of all groups, by their names."""

    def __init__(self, ec2: Ec2):
        self._ec2 = ec2
        self._launches: dict[str, list[Launch]] = {}
        self._capacity: dict[str, int] = {}
        #: Warm pools: members that are not in `instance_states`.
        self._warm: dict[str, list[Member]] = {}

    def clear(self) -> None:
        for book in (self._launches, self._capacity, self._warm):
            book.clear()

    def plan(self, group_name: str, *launches: Launch) -> None:
        """The next launches of a group go like this, in order; later ones as usual."""
        self._launches.setdefault(group_name, []).extend(launches)

    def forget_plans(self, group_name: str) -> None:
        self._launches.pop(group_name, None)

    def reserve(self, group_name: str, instances: int) -> None:
        self._capacity[group_name] = instances

    def is_full(self, group: Group) -> bool:
        """A machine is taken until EC2 has terminated what runs on it."""
        taken = sum(m.instance._state.name != "terminated" for m in group.instance_states)
        return taken >= self._capacity.get(group.name, taken + 1)

    def next_launch(self, group: Group) -> Launch:
        planned = self._launches.get(group.name)
        return planned.pop(0) if planned else Launch()

    def keep_warm(self, member: Member) -> None:
        self._warm.setdefault(member.group.name, []).append(member)

    def take_warm(self, group: Group) -> Member | None:
        """The instance that is in the warm pool for the longest time, if there is one."""
        pool = self._warm.get(group.name, [])
        ready = next((member for member in pool if member.lifecycle_state == "Warmed:Stopped"), None)
        if ready is not None:
            pool.remove(ready)
        return ready

    def all_warm(self) -> list[Member]:
        return [member for pool in self._warm.values() for member in pool]

    def run_instance(self, group: Group, launch: Launch, subnet: Any) -> Member:
        tags = {**group.get_propagated_tags(), ASG_NAME_TAG: group.name, **group.instance_tags}
        override, template = find_override(group, launch), find_template(group, launch)
        image = override.get("ImageId", group.image_id)
        if template is not None:
            version = self._ec2.backend.get_launch_template(template["LaunchTemplateId"]).get_version(template["Version"])
            image = override.get("ImageId", version.image_id)
            # EC2 takes the id or the name.
            template = {key: template[key] for key in ("LaunchTemplateId", "Version")}
        reservation = self._ec2.backend.run_instances(
            image,
            1,
            group.user_data,
            group.security_groups,
            instance_type=override.get("InstanceType", group.instance_type),
            is_instance_type_default=False,
            tags={"instance": tags},
            launch_config=group.launch_config,
            launch_template=template,
            subnet_id=subnet.id,
            private_ip=self._ec2.free_address(subnet),
            region_name=REGION,
        )
        instance = reservation.instances[0]
        instance.autoscaling_group = group
        member = Member(instance, group, launch, group.new_instances_protected_from_scale_in)
        group.instance_states.append(member)
        self._ec2.launched(instance)
        return member
