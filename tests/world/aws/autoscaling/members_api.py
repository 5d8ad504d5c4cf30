"""The operations of Auto Scaling's API on members: Standby, attaching, detaching, terminating, protection, health."""

from __future__ import annotations

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import ASG_NAME_TAG

from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import ON_STANDBY, Group, Launch, Member, find_group, is_suspended
from world.aws.autoscaling.targets import deregister_targets
from world.aws.autoscaling.zones import choose_victim

# "The instance i-… is not in InService or EnteringStandby or Standby.": seen on AWS in Terminating (guardian/riff-raff#510) and
# in Pending:Wait (infrahouse/infrahouse-toolkit#223).
PROTECTABLE = ("InService", "EnteringStandby", "Standby")

# "in the InService or Standby state, or in a retained state" (user guide, detach or attach instances).
DETACHABLE = ("InService", "Standby", "Terminating:Retained")

#: The operations that `MembersApi` answers.
OPERATIONS = (
    "enter_standby",
    "exit_standby",
    "attach_instances",
    "detach_instances",
    "terminate_instance_in_auto_scaling_group",
    "set_instance_protection",
    "set_instance_health",
)


class MembersApi:
    """The operations. Parameters and answers have the names of AWS."""

    def __init__(self, groups: AutoScaling):
        self._groups = groups

    def enter_standby(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, ("InService",))
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement:
            self._check_minimum(group, len(members), "place into standby")
        at_maximum = group.desired_capacity >= group.max_size
        activities = []
        for member in members:
            activity = self._groups.activities.begin(
                group,
                f"Moving EC2 instance to Standby: {member.instance_id}",
                f"instance {member.instance_id} was moved to standby in response to a user request{_shrinking(group, decrement)}",
                member,
            )
            activities.append(dict(activity))
            member.activity = activity
            member.decremented = decrement
            group.desired_capacity -= decrement
            member.unreplaced = not decrement and at_maximum and not self._groups.unknowns.enter_standby_at_max_launches
            self._groups.move(member, "EnteringStandby")
            delay = max(deregister_targets(member, self._groups.timings.deregistration), self._groups.timings.enter_standby)
            self._groups.later(member, delay, self._on_standby)
        self._groups.reconcile(group)
        return {"Activities": activities}

    def _on_standby(self, member: Member) -> None:
        self._groups.activities.finish(member.activity, "Successful")
        member.activity = None
        self._groups.move(member, "Standby")

    def exit_standby(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, ("Standby",))
        if is_suspended(group, "Launch"):
            # User guide, "Suspend and resume": "While Launch is suspended, you can't return an instance in Standby to
            # service."
            raise ValidationError(
                f"The Launch process of AutoScalingGroup {group.name} is suspended. Instances cannot be moved out of Standby."
            )
        if group.desired_capacity + len(members) > group.max_size:
            raise ValidationError(
                f"{_sizes(group)} To place {len(members)} {_instances(len(members))} into service, please update the "
                "AutoScalingGroup sizes appropriately."
            )
        activities = []
        for member in members:
            before = group.desired_capacity
            group.desired_capacity += 1
            member.unreplaced = False
            member.returned = self._groups.unknowns.exit_standby_trims and not member.decremented
            activity = self._groups.activities.begin(
                group,
                f"Moving EC2 instance out of Standby: {member.instance_id}",
                f"instance {member.instance_id} "
                "was moved out of standby in response to a user request, increasing the capacity from "
                f"{before} to {before + 1}",
                member,
            )
            activity["StatusCode"] = "PreInService"
            activities.append(dict(activity))
            member.activity = activity
            self._groups.move(member, "Pending")
            self._groups.later(member, self._groups.timings.exit_standby, self._groups.put_into_service)
        return {"Activities": activities}

    def attach_instances(self, parameters: dict[str, Any]) -> None:
        """The desired capacity grows by each of them; they go into service as after Standby."""
        group = find_group(parameters["AutoScalingGroupName"])
        instances = [self._groups.ec2.instance(instance_id) for instance_id in parameters["InstanceIds"]]
        if group.desired_capacity + len(instances) > group.max_size:
            raise ValidationError(
                f"{_sizes(group)} To attach {len(instances)} {_instances(len(instances))}, please update the AutoScalingGroup "
                "sizes appropriately."
            )
        for instance in instances:
            if self._groups.member(instance.id) is not None or instance._state.name != "running":
                raise ValidationError(f"Invalid Instance ID(s): ['{instance.id}'] specified.")
        for instance in instances:
            member = Member(instance, group, Launch(), protected=False)
            group.instance_states.append(member)
            group.desired_capacity += 1
            self._groups.ec2.backend.create_tags([instance.id], {ASG_NAME_TAG: group.name})
            self._groups.later(member, self._groups.timings.exit_standby, self._groups.put_into_service)

    def detach_instances(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, DETACHABLE)
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement:
            self._check_minimum(group, len(members), "detach")
        activities = []
        for member in members:
            from_standby = member.lifecycle_state == "Standby"
            activity = self._groups.activities.begin(
                group,
                f"Detaching EC2 instance: {member.instance_id}",
                f"instance {member.instance_id} was detached in response to a user request{_shrinking(group, decrement)}",
                member,
            )
            activities.append(dict(activity))
            member.activity = activity
            member.unreplaced = False
            group.desired_capacity -= decrement
            self._groups.move(member, "Detaching")
            delay = max(deregister_targets(member, self._groups.timings.deregistration), self._groups.timings.detach)
            self._groups.later(member, delay, self._detached)
            if from_standby and not decrement and self._groups.unknowns.detach_from_standby_kills_another:
                self._kill_another(group)
            if from_standby and not decrement and self._groups.unknowns.detach_from_standby_launches_extra:
                self._groups.launch_surplus(group)
        self._groups.reconcile(group)
        return {"Activities": activities}

    def _kill_another(self, group: Group) -> None:
        victim = choose_victim(group, self._groups.zones_of(group))
        if victim is not None:
            self._groups.terminate(victim, "instance was selected for termination", replace=False)

    def _detached(self, member: Member) -> None:
        self._groups.activities.finish(member.activity, "Successful")
        self._groups.move(member, "Detached")
        self._groups.drop(member)
        self._groups.ec2.backend.delete_tags([member.instance_id], {ASG_NAME_TAG: member.group.name})
        self._groups.reconcile(member.group)

    def terminate_instance_in_auto_scaling_group(self, parameters: dict[str, Any]) -> dict[str, Any]:
        member = self._member(parameters["InstanceId"])
        group, state = member.group, member.lifecycle_state
        if state in ("Terminating", "Terminating:Wait", "Terminating:Proceed"):
            return {"Activity": dict(member.activity)}
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement and state == "Terminating:Retained":
            # A public project recorded the refusal on AWS, not its text (docs/aws-evidence.md).
            raise ValidationError(f"The instance {member.instance_id} is retained, so its group cannot shrink by it.")
        if decrement and group.desired_capacity - 1 < group.min_size:
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement "
                "will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or "
                "lower group's min size."
            )
        shrinking = _shrinking(group, decrement)
        cause = f"instance {member.instance_id} was taken out of service in response to a user request{shrinking}"
        group.desired_capacity -= decrement
        extra = state in ON_STANDBY and not decrement and self._groups.unknowns.terminate_from_standby_launches_extra
        member.unreplaced = False
        # A retained member waits for the hooks once more (row 12 of docs/aws-evidence.md).
        activity = self._groups.terminate(member, cause, replace=True, counts=not decrement)
        if extra:
            self._groups.launch_surplus(group)
        return {"Activity": dict(activity)}

    def set_instance_protection(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, PROTECTABLE)
        for member in members:
            member.protected_from_scale_in = bool(parameters["ProtectedFromScaleIn"])
        # A group that was too large, and had no member to choose, may have one now.
        self._groups.trim(group)
        return {}

    def set_instance_health(self, parameters: dict[str, Any]) -> None:
        member = self._member(parameters["InstanceId"])
        member.health_status = parameters["HealthStatus"]
        if member.health_status == "Unhealthy" and member.lifecycle_state == "InService":
            self._groups.replace_unhealthy(member)

    def _member(self, instance_id: str) -> Member:
        member = self._groups.member(instance_id)
        if member is None:
            raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
        return member

    def _members(self, parameters: dict[str, Any], states: tuple[str, ...]) -> tuple[Group, list[Member]]:
        """The named members, all of which must be in one of the states."""
        group = find_group(parameters["AutoScalingGroupName"])
        known = {member.instance_id: member for member in group.instance_states}
        members = []
        for instance_id in parameters.get("InstanceIds", []):
            if instance_id not in known:
                raise ValidationError(f"The instance {instance_id} is not part of Auto Scaling group {group.name}.")
            if known[instance_id].lifecycle_state not in states:
                raise ValidationError(f"The instance {instance_id} is not in {' or '.join(states)}.")
            members.append(known[instance_id])
        return group, members

    def _check_minimum(self, group: Group, fewer: int, verb: str) -> None:
        if group.desired_capacity - fewer < group.min_size:
            raise ValidationError(
                f"{_sizes(group)} To {verb} {fewer} {_instances(fewer)}, please update the AutoScalingGroup sizes appropriately."
            )


def _sizes(group: Group) -> str:
    return (
        f"AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, and "
        f"desired-size={group.desired_capacity}."
    )


def _instances(count: int) -> str:
    return "instance" if count == 1 else "instances"


def _shrinking(group: Group, decrement: bool) -> str:
    return f", shrinking the capacity from {group.desired_capacity} to {group.desired_capacity - 1}" if decrement else ""
