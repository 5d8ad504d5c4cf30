"""Auto Scaling's API over moto's: the operations on groups, and how all operations are laid over moto's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from botocore import xform_name
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import AutoScalingBackend
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from world.aws.autoscaling import hooks, members_api
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.members_api import MembersApi
from world.aws.autoscaling.model import Group, autoscaling_backend, find_group, retains
from world.aws.moto_internals import moto_original

# CreateAutoScalingGroup's fields that moto drops; stored and described as given.
PASSED_THROUGH = (
    "InstanceLifecyclePolicy",
    "MaxInstanceLifetime",
    "DefaultInstanceWarmup",
    "TrafficSources",
    "InstanceMaintenancePolicy",
    "Context",
    "AvailabilityZoneDistribution",
    "CapacityReservationSpecification",
    "DesiredCapacityType",
)

#: The operations that are answered here alone.
OPERATIONS = (
    "delete_auto_scaling_group",
    "set_desired_capacity",
    "describe_auto_scaling_instances",
    "describe_instance_refreshes",
    "cancel_instance_refresh",
)

# Operations that moto answers, with something of the world around it.
ANSWERED_BY_BOTH = ("create_auto_scaling_group", "update_auto_scaling_group", "resume_processes")


class GroupsApi:
    """The operations. Parameters and answers have the names of AWS."""

    def __init__(self, groups: AutoScaling):
        self._groups = groups

    def create_auto_scaling_group(self, parameters: dict[str, Any], moto_create: Callable[[], Any]) -> None:
        name = parameters["AutoScalingGroupName"]
        if name in autoscaling_backend().autoscaling_groups:
            raise AutoscalingClientError(
                "AlreadyExists",
                f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
            )
        smallest, largest = int(parameters["MinSize"]), int(parameters["MaxSize"])
        check_sizes(smallest, largest, int(parameters.get("DesiredCapacity", smallest)))
        moto_create()
        group = find_group(name)
        group.created_time = self._groups.activities.now()
        group.traffic_sources = []
        self._pass_through(group, parameters)
        self._groups.reconcile(group)

    def update_auto_scaling_group(self, parameters: dict[str, Any], moto_update: Callable[[], Any]) -> None:
        group = find_group(parameters["AutoScalingGroupName"])
        smallest = int(parameters.get("MinSize", group.min_size))
        largest = int(parameters.get("MaxSize", group.max_size))
        desired = parameters.get("DesiredCapacity")
        # "If a new value for MinSize/MaxSize is specified without DesiredCapacity, the current capacity is set to fit
        # it."
        desired = min(max(group.desired_capacity, smallest), largest) if desired is None else int(desired)
        check_sizes(smallest, largest, desired)
        policy = group.mixed_instances_policy
        moto_update()
        group.mixed_instances_policy = parameters.get("MixedInstancesPolicy") or (
            None if "LaunchTemplate" in parameters else policy
        )
        group.desired_capacity = desired
        if parameters.get("TerminationPolicies"):
            group.termination_policies = parameters["TerminationPolicies"]
        self._pass_through(group, parameters)
        self._groups.reconcile(group)

    def _pass_through(self, group: Group, parameters: dict[str, Any]) -> None:
        for field_name in PASSED_THROUGH:
            if field_name in parameters:
                setattr(group, xform_name(field_name), parameters[field_name])

    def delete_auto_scaling_group(self, parameters: dict[str, Any]) -> None:
        group = find_group(parameters["AutoScalingGroupName"])
        force = parameters.get("ForceDelete", False)
        if group.instance_states and not force:
            raise AutoscalingClientError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending "
                "Spot instance request(s) still in the group.",
            )
        # An account of 2026 refused it for an empty group, too (row 35 of docs/aws-evidence.md).
        if force and retains(group):
            raise ValidationError(
                "You can't force delete this Auto Scaling group because the TerminateHookAbandon retention trigger "
                "is set to retain."
            )
        for member in group.instance_states:
            member.stop_waiting()
        members = [m.instance_id for m in group.instance_states if m.instance._state.name not in ("shutting-down", "terminated")]
        del autoscaling_backend().autoscaling_groups[group.name]
        self._groups.hooks.forget(group)
        if members:
            self._groups.ec2.backend.terminate_instances(members)

    def set_desired_capacity(self, parameters: dict[str, Any]) -> None:
        group, wanted = find_group(parameters["AutoScalingGroupName"]), int(parameters["DesiredCapacity"])
        if wanted > group.max_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the AutoScalingGroup."
            )
        if wanted < group.min_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the AutoScalingGroup."
            )
        group.desired_capacity = wanted
        self._groups.reconcile(group)

    def resume_processes(self, parameters: dict[str, Any], moto_resume: Callable[[], Any]) -> None:
        group = find_group(parameters["AutoScalingGroupName"])
        moto_resume()
        for member in list(group.instance_states):
            if member.health_status == "Unhealthy" and member.lifecycle_state == "InService":
                self._groups.replace_unhealthy(member)
            elif member.instance._state.name not in ("pending", "running"):
                self._groups.watch_health(member)
        self._groups.reconcile(group)

    def describe_auto_scaling_instances(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Describes members, and also instances in warm pools."""
        wanted = parameters.get("InstanceIds")
        members = [m for group in autoscaling_backend().autoscaling_groups.values() for m in group.instance_states]
        members += self._groups.supply.all_warm()
        return {"AutoScalingInstances": [m for m in members if not wanted or m.instance_id in wanted]}

    def cancel_instance_refresh(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group = find_group(parameters["AutoScalingGroupName"])
        cancelled = self._groups.cancel_refresh(group)
        if cancelled is None:
            raise AutoscalingClientError(
                "ActiveInstanceRefreshNotFound",
                f"No in progress or pending Instance Refresh found for Auto Scaling group {group.name}",
            )
        return {"InstanceRefreshId": cancelled}

    def describe_instance_refreshes(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group = find_group(parameters["AutoScalingGroupName"])
        return {"InstanceRefreshes": self._groups.refreshes.get(group.name, [])}


def check_sizes(smallest: int, largest: int, desired: int) -> None:
    if smallest > largest:
        raise ValidationError(f"Max bound, {largest}, must be greater than or equal to min bound, {smallest}")
    if not smallest <= desired <= largest:
        raise ValidationError(
            f"Desired capacity:{desired} must be between the specified min size:{smallest} and max size:{largest}"
        )


def install(autoscaling: AutoScaling) -> None:
    """Lays the groups over moto's responses; a second world replaces the first."""
    api = GroupsApi(autoscaling)
    for part, names in (
        (api, OPERATIONS),
        (MembersApi(autoscaling), members_api.OPERATIONS),
        (autoscaling.hooks, hooks.OPERATIONS),
        (autoscaling.activities, ("describe_scaling_activities",)),
    ):
        for name in names:
            setattr(AutoScalingResponse, name, _here(getattr(part, name)))
    for name in ANSWERED_BY_BOTH:
        setattr(AutoScalingResponse, name, _both(getattr(api, name), moto_original(AutoScalingResponse, name)))
    for owner, name in (
        (AutoScalingBackend, "update_attached_elbs"),
        (AutoScalingBackend, "update_attached_target_groups"),
    ):
        assert hasattr(owner, name), f"moto has no {owner.__name__}.{name}"
        setattr(owner, name, lambda backend, group_name: None)
    assert hasattr(Group, "set_desired_capacity")
    Group.set_desired_capacity = _note_desired_capacity


def _note_desired_capacity(group: Group, wanted: int | None) -> None:
    """moto launches and terminates here, at once; `reconcile` does it instead."""
    group.desired_capacity = group.min_size if wanted is None else wanted


def _here(answer: Callable[[dict[str, Any]], Any]) -> Callable[[AutoScalingResponse], ActionResult]:
    @functools.wraps(answer)
    def operation(response: AutoScalingResponse) -> ActionResult:
        return ActionResult(answer(dict(response.params)) or {})

    return operation


def _both(answer: Callable[..., Any], original: Callable[[AutoScalingResponse], ActionResult]) -> Callable[..., ActionResult]:
    @functools.wraps(answer)
    def operation(response: AutoScalingResponse) -> ActionResult:
        answer(dict(response.params), lambda: original(response))
        return ActionResult({})

    return operation
