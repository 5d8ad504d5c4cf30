"""The parts of Auto Scaling groups: a member, its launch, the hooks it waits for, durations, and undocumented behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    autoscaling_backends,
)
from moto.ec2.models.instances import Instance
from moto.moto_api._internal import mock_random

from world.aws.identity import ACCOUNT, REGION

Group = FakeAutoScalingGroup

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

# A member whose root volume an instance refresh replaces stays in its group (user guide, replace-root-volume).
REPLACING_ROOT = ("ReplacingRootVolume", "ReplacingRootVolume:Wait", "ReplacingRootVolume:Proceed", "RootVolumeReplaced")
# The states that count towards the desired capacity. Standby does not ("instances in Standby don't count toward the
# desired capacity": the group's desired is decremented, or another instance launched). Members that terminate or detach do
# not count either, except as `Unknowns.terminating_wait_counts` says.
COUNTED = ("Pending", "Pending:Wait", "Pending:Proceed", "InService", *REPLACING_ROOT)
ON_STANDBY = ("EnteringStandby", "Standby")


@dataclass
class Timings:
    """Durations in virtual seconds."""

    launch: float = 60
    launch_retry: float = 60
    enter_standby: float = 10
    exit_standby: float = 15
    detach: float = 10
    # The time in Terminating:Proceed before Terminating:Retained.
    retain: float = 10
    # The time in which EC2 replaces a root volume.
    root_volume: float = 60
    # "waits 300 seconds by default": the deregistration delay of a target group; only where a load balancer is
    # attached.
    deregistration: float = 300
    # The delay until the group notices that a member no longer runs.
    health_check: float = 60
    # The time for which zones may be out of balance before the group acts.
    rebalance: float = 300


@dataclass
class Unknowns:
    """Behaviour that only a real account can show. The defaults follow the documentation, or its plainest reading.

    `make readings` runs the scenarios with the mark `reading` under each value of each switch that the mark names.
    docs/untested-on-aws.md lists which call to try first.
    """

    # TerminateInstanceInAutoScalingGroup without decrement on a Standby member launches one more than desired, then
    # trims.
    terminate_from_standby_launches_extra: bool = False
    # After ExitStandby the group goes back to the capacity it had before and terminates a member of its own choice: it
    # "detects that you have more instances than you need" (user guide, as-enter-exit-standby). Not after a decrement.
    exit_standby_trims: bool = True
    # EnterStandby without decrement launches a replacement also where desired is at the maximum.
    enter_standby_at_max_launches: bool = True
    # DetachInstances on a Standby member without decrement "may cause other instances to terminate unexpectedly".
    detach_from_standby_kills_another: bool = False
    # DetachInstances on a Standby member without decrement launches one more than desired, then trims.
    detach_from_standby_launches_extra: bool = False
    # Standby members count for the balance of zones, so that nothing is moved because of them.
    standby_counts_for_zone_balance: bool = False
    # A member whose termination waits for a hook counts towards the desired capacity until the hook is over, so that its
    # replacement comes only then.
    terminating_wait_counts: bool = False
    # Capacity Rebalancing also terminates a Spot member in Standby. Its replacement is there already.
    capacity_rebalancing_ends_standby: bool = False


@dataclass
class Launch:
    """A planned launch. A group takes its planned launches first, then the default."""

    # The time from Pending to running, in virtual seconds. None means `Timings.launch`.
    seconds: float | None = None
    # The instance stays Pending.
    never_comes_up: bool = False
    # AWS's message; the launch fails, a failed activity appears, the group tries again after `Timings.launch_retry`.
    failure: str | None = None
    # Whether a Node appears once the instance runs.
    joins_cluster: bool = True
    # The zone of the launch, even if another zone is emptier: when a zone has no capacity, the group uses another one.
    zone: str | None = None
    # The type of the launch in a group with a mixed instances policy. None means the first override: when it has no capacity,
    # the group uses another one.
    instance_type: str | None = None


class Wait:
    """One lifecycle hook that waits for one member."""

    def __init__(self, hook: LifecycleHook, started: float):
        self.hook = hook
        self.token = str(mock_random.uuid4())
        self.ends = started + hook.global_timeout
        self.timer: Any = None


class Member(InstanceState):
    """An instance in a group. `instance` is EC2's, `launch` how it was launched."""

    def __init__(self, instance: Instance, group: Group, launch: Launch, protected: bool):
        super().__init__(instance, lifecycle_state="Pending", protected_from_scale_in=protected, autoscaling_group=group)
        self.launch = launch
        # moto would answer what the group's template is now.
        self._launched_from = find_template(group, launch)
        self.waits: dict[str, Wait] = {}
        self.activity: dict[str, Any] | None = None
        # Launched beyond the desired capacity: not counted before it is in service.
        self.surplus = False
        # Went to Standby without a replacement being due.
        self.unreplaced = False
        # Went to Standby with decrement, so that no replacement was launched.
        self.decremented = False
        # Came back from Standby and is not to be chosen by the trim that this causes.
        self.returned = False
        # Counts towards the desired capacity although it terminates.
        self.counts_until_proceed = False
        # The member that it replaces by Capacity Rebalancing.
        self.rebalances: Member | None = None
        # The end of its way through the termination hooks, as their events name it.
        self.destination = "EC2"
        # The next step of its way, and what to do when all hooks are done: (member, abandoned).
        self.timer: Any = None
        self.proceed: Callable[[Member, bool], None] | None = None

    @property
    def group(self) -> Group:
        return self.auto_scaling_group

    def stop_waiting(self) -> None:
        """Removes its hooks and its next step."""
        for wait in self.waits.values():
            wait.timer.cancel()
        self.waits.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def launch_template(self) -> dict[str, Any] | None:
        return self._launched_from

    @property
    def image_id(self) -> str:
        return self.instance.image_id


def autoscaling_backend() -> AutoScalingBackend:
    """moto's, which stores the groups and their settings."""
    return autoscaling_backends[ACCOUNT][REGION]


def find_group(name: str) -> Group:
    groups = autoscaling_backend().autoscaling_groups
    if name not in groups:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    return groups[name]


def is_suspended(group: Group, process: str) -> bool:
    return process in group._suspended_processes


def retains(group: Group) -> bool:
    """Checks whether it keeps an instance whose termination hook was abandoned."""
    policy = getattr(group, "instance_lifecycle_policy", None) or {}
    return (policy.get("RetentionTriggers") or {}).get("TerminateHookAbandon") == "retain"


def find_override(group: Group, launch: Launch) -> dict[str, Any]:
    """Returns the override of the group's mixed instances policy from which it launches: the first one, as the allocation
    strategy `prioritized` says, or that of the planned type. Empty if there is none."""
    policy = group.mixed_instances_policy or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
    wanted = [each for each in overrides if launch.instance_type in (None, each.get("InstanceType"))]
    assert wanted or launch.instance_type is None, f"group {group.name} has no override with {launch.instance_type}"
    return wanted[0] if wanted else {}


def find_template(group: Group, launch: Launch) -> dict[str, str] | None:
    """Returns the launch template of a launch with its version. An override can have a template of its own."""
    own = find_override(group, launch).get("LaunchTemplateSpecification")
    if own is None:
        template, version = group.ec2_launch_template, group.launch_template_version
    else:
        by_id = own.get("LaunchTemplateId")
        find = group.ec2_backend.get_launch_template if by_id else group.ec2_backend.get_launch_template_by_name
        template, version = find(by_id or own["LaunchTemplateName"]), own.get("Version", "$Default")
    if template is None:
        return None
    number = _number_of(template, str(version))
    return {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": number}


def _number_of(template: Any, wanted: str) -> str:
    """The number behind $Latest or $Default: moto would take the default version whatever the group says."""
    if wanted == "$Latest":
        return str(template.latest_version_number)
    return str(template.default_version_number) if wanted == "$Default" else wanted
