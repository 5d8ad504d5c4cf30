"""Auto Scaling as AWS documents it, laid over moto's groups and instances, on the virtual clock.

moto stores the groups and their settings. Everything that happens to a member happens here: launches that take time or
fail, Standby, detaching, lifecycle hooks with heartbeats, retention, scale-in, replacement of unhealthy members, zone
balance.

A member's way (Auto Scaling user guide, "Amazon EC2 Auto Scaling instance lifecycle"):

    Pending -> [Pending:Wait -> Pending:Proceed] -> InService
    InService -> EnteringStandby -> Standby -> Pending -> InService
    InService | Standby -> Detaching -> (out of the group)
    ... -> Terminating -> [Terminating:Wait -> Terminating:Proceed | Terminating:Retained] -> (terminated)

A launch takes an instance of the warm pool if the group has one: Warmed:Stopped -> Pending. What is in the pool is described by
DescribeAutoScalingInstances, and is not among the group's members.

What AWS's documentation leaves open is a switch in `Unknowns`. What this does not do: scaling policies, keeping a warm pool full
(`warm` puts one instance there), mixed instances, instance refreshes (a scenario says that one runs: `refreshes`).
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore import xform_name
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import (
    ASG_NAME_TAG,
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.ec2.models.instances import Instance
from moto.elbv2.models import elbv2_backends
from moto.moto_api._internal import mock_random

from world.aws.account import Aws
from world.aws.ec2 import Ec2, Emit
from world.aws.identity import ACCOUNT, REGION
from world.aws.moto_internals import LOCK, moto_original
from world.base.clock import Clock

Group = FakeAutoScalingGroup

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

# What counts towards the desired capacity. Standby does not ("instances in Standby don't count toward the desired
# capacity": the group's desired is decremented, or another instance launched); whatever terminates or detaches does
# not.
COUNTED = ("Pending", "Pending:Wait", "Pending:Proceed", "InService")
ON_STANDBY = ("EnteringStandby", "Standby")
# "The instance i-… is not in InService or EnteringStandby or Standby.": seen on AWS in Terminating (guardian/riff-raff#510) and
# in Pending:Wait (infrahouse/infrahouse-toolkit#223).
PROTECTABLE = ("InService", "EnteringStandby", "Standby")
LEAVING = ("Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminating:Retained", "Detaching")

# "48 hours or 100 times the heartbeat timeout, whichever is smaller": PutLifecycleHook API reference.
LONGEST_HOOK = 48 * 3600
MOST_HEARTBEATS = 100
# Virtual seconds between two looks of an instance refresh.
REFRESH_CHECK = 60
DEFAULT_HEARTBEAT = 3600

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

NO_CAPACITY = (
    "We currently do not have sufficient m5.large capacity in the Availability Zone you requested ({zone}). Our system "
    "will be working on provisioning additional capacity. Launching EC2 instance failed."
)

RESERVATION_FULL = (
    "The requested reservation does not have sufficient compatible and available capacity for this request. Launching EC2 "
    "instance failed."
)


@dataclass
class Timings:
    """How long things take, in virtual seconds."""

    launch: float = 60
    launch_retry: float = 60
    enter_standby: float = 10
    exit_standby: float = 15
    detach: float = 10
    # "waits 300 seconds by default": the deregistration delay of a target group; only where a load balancer is
    # attached.
    deregistration: float = 300
    # How late the group notices that a member does not run any more.
    health_check: float = 60
    # How long zones may be out of balance before the group acts.
    rebalance: float = 300


@dataclass
class Unknowns:
    """What only a real account can tell; the defaults are the documentation, or the plainest reading of its silence.

    Scenarios turn each of them round, one at a time (scenarios/test_unknowns.py); the README lists which call to try first.
    """

    # TerminateInstanceInAutoScalingGroup without decrement on a Standby member launches one more than desired, then
    # trims.
    terminate_from_standby_launches_extra: bool = False
    # After ExitStandby the group goes back to the capacity it had before and terminates a member of its own choice.
    exit_standby_trims: bool = False
    # EnterStandby without decrement launches a replacement also where desired is at the maximum.
    enter_standby_at_max_launches: bool = True
    # DetachInstances on a Standby member without decrement "may cause other instances to terminate unexpectedly".
    detach_from_standby_kills_another: bool = False
    # DetachInstances on a Standby member without decrement launches one more than desired, then trims.
    detach_from_standby_launches_extra: bool = False
    # Standby members count for the balance of zones, so that nothing is moved because of them.
    standby_counts_for_zone_balance: bool = False


@dataclass
class Launch:
    """How one launch goes. A group takes its planned launches first, then the default."""

    # From Pending to running, in virtual seconds; None: `Timings.launch`.
    seconds: float | None = None
    # It stays Pending.
    never_comes_up: bool = False
    # AWS's message; the launch fails, a failed activity appears, the group tries again after `Timings.launch_retry`.
    failure: str | None = None
    # For the Kubernetes half: whether a Node appears once the instance runs.
    joins_cluster: bool = True
    # Where, although another zone of the group is emptier: the group goes to another zone when one has no capacity.
    zone: str | None = None


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
        template = group.ec2_launch_template
        # moto would answer what the group's template is now.
        self._launched_from = template and {
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "Version": _template_version(group),
        }
        self.waits: dict[str, Wait] = {}
        self.activity: dict[str, Any] | None = None
        # Launched beyond the desired capacity: not counted before it is in service.
        self.surplus = False
        # Went to Standby without a replacement being due.
        self.unreplaced = False
        # Came back from Standby and is not to be chosen by the trim that this causes.
        self.returned = False
        self.for_warm_pool = False
        # The next step of its way, and what to do when all hooks are done: (member, abandoned).
        self.timer: Any = None
        self.proceed: Callable[[Member, bool], None] | None = None

    @property
    def group(self) -> Group:
        return self.auto_scaling_group

    @property
    def launch_template(self) -> dict[str, Any] | None:
        return self._launched_from

    @property
    def image_id(self) -> str:
        return self.instance.image_id


class AutoScaling:
    """The groups of the account, their behaviour, and what a scenario may say about it."""

    def __init__(self, aws: Aws, ec2: Ec2, clock: Clock, emit: Emit):
        self.aws = aws
        self.ec2 = ec2
        self.clock = clock
        self.emit = emit
        self.timings = Timings()
        self.unknowns = Unknowns()
        # InstanceRefreshes that DescribeInstanceRefreshes reports, by group.
        self.refreshes: dict[str, list[dict[str, Any]]] = {}
        # For actors; called with LOCK held.
        self.on_launching: list[Callable[[Member], None]] = []
        self.on_in_service: list[Callable[[Member], None]] = []
        self.on_terminated: list[Callable[[Member], None]] = []
        self.on_state_change: list[Callable[[Member, str, str], None]] = []
        self._launches: dict[str, list[Launch]] = {}
        self._capacity: dict[str, int] = {}
        self._activities: dict[str, list[dict[str, Any]]] = {}
        self._pending_timers: dict[tuple[str, str], Any] = {}
        # Warm pools by group: members that are not in `instance_states`.
        self._warm: dict[str, list[Member]] = {}
        self._deployed_hooks: dict[str, LifecycleHook] = {}
        ec2.on_change.append(self._instance_changed)
        aws.on_reset.append(self._reset)
        _install(self)

    # What a scenario says and asks

    @property
    def backend(self) -> AutoScalingBackend:
        return autoscaling_backends[ACCOUNT][REGION]

    def group(self, name: str) -> Group:
        if name not in self.backend.autoscaling_groups:
            raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
        return self.backend.autoscaling_groups[name]

    def member(self, instance_id: str) -> Member | None:
        for group in self.backend.autoscaling_groups.values():
            for member in group.instance_states:
                if member.instance_id == instance_id:
                    return member
        return None

    def plan_launches(self, group_name: str, *launches: Launch) -> None:
        """The next launches of a group go like this, in order; later ones as usual."""
        self._launches.setdefault(group_name, []).extend(launches)

    def out_of_capacity(self, group_name: str, times: int = 1000) -> None:
        """The next launches of a group fail, as they do when the zone is out of capacity."""
        self.plan_launches(group_name, *[Launch(failure=NO_CAPACITY)] * times)

    def capacity_is_back(self, group_name: str) -> None:
        """Forgets the planned launches and lets the group try at once."""
        with LOCK:
            self._launches.pop(group_name, None)
            self.reconcile(self.group(group_name))

    def reserve_capacity(self, group_name: str, instances: int) -> None:
        """So many machines are there for a group, as in a reservation: a launch beyond them fails until one has terminated."""
        self._capacity[group_name] = instances

    def remember_hooks(self) -> None:
        """Call it after a deployment: its lifecycle hooks come back at each reset, for groups of the same name."""
        with LOCK:
            self._deployed_hooks = dict(self.backend.lifecycle_hooks)

    def move_to_warm_pool(self, instance_id: str) -> None:
        """A member goes back to the warm pool: its events differ from a termination's in the destination only.

        User guide, "Example lifecycle hook events": Origin AutoScalingGroup, Destination WarmPool. The member waits for
        the hooks like a terminating one, then leaves the list.
        """
        with LOCK:
            member = self.member(instance_id)
            assert member is not None and member.lifecycle_state == "InService", "only a member in service goes to the warm pool"
            member.for_warm_pool = True
            member.group.desired_capacity -= 1
            self._await_hooks(member, TERMINATING, "Warmed:Pending:Wait", self._to_warm_pool)

    def start_refresh(self, group_name: str) -> None:
        """An instance refresh: each member that is in service now is terminated, the next when the group is whole again. One
        that a hook holds does not count any more, so that a refresh does not wait for it.
        """
        with LOCK:
            group = self.group(group_name)
            refresh = {"InstanceRefreshId": str(len(self.refreshes)), "AutoScalingGroupName": group_name, "Status": "InProgress"}
            self.refreshes.setdefault(group_name, []).insert(0, refresh)
            old = [m for m in group.instance_states if m.lifecycle_state == "InService"]
            self._refresh(group, refresh, old)

    def _refresh(self, group: Group, refresh: dict[str, Any], old: list[Member]) -> None:
        in_service = [m for m in group.instance_states if m.lifecycle_state == "InService"]
        if len(in_service) == group.desired_capacity:
            if not old:
                refresh["Status"] = "Successful"
                return
            self._terminate(old.pop(0), "an instance refresh", replace=True)
        self._once(group, "refresh", REFRESH_CHECK, lambda group: self._refresh(group, refresh, old))

    def limit_lifetime(self, group_name: str, seconds: float) -> None:
        """Max instance lifetime: each member that is in service then and now is terminated."""
        with LOCK:
            for member in self.group(group_name).instance_states:
                if member.lifecycle_state == "InService":
                    self._later(member, seconds, self._outlive)

    def _outlive(self, member: Member) -> None:
        if member.lifecycle_state == "InService":
            self._terminate(member, "an instance has reached the max instance lifetime", replace=True)

    def warm(self, group_name: str) -> str:
        """Puts a stopped instance into the group's warm pool; its id."""
        with LOCK:
            group = self.group(group_name)
            member = self._run_instance(group, Launch(), self._emptiest_subnet(group))
            self._drop(member)
            self.ec2.change(member.instance, "stopped")
            self._move(member, "Warmed:Stopped")
            self._warm.setdefault(group_name, []).append(member)
            return member.instance_id

    def _take_warm(self, group: Group, launch: Launch) -> Member | None:
        """An instance of the warm pool that begins to run, if there is one."""
        pool = self._warm.get(group.name)
        if not pool:
            return None
        member = pool.pop(0)
        member.launch = launch
        group.instance_states.append(member)
        self._move(member, "Pending")
        self.ec2.change(member.instance, "pending")
        return member

    def _reset(self) -> None:
        """The backend is empty already; brings back what was deployed."""
        self.timings, self.unknowns = Timings(), Unknowns()
        for book in (self.refreshes, self._launches, self._capacity, self._activities, self._pending_timers, self._warm):
            book.clear()
        self.backend.lifecycle_hooks.update(self._deployed_hooks)

    # Capacity

    def reconcile(self, group: Group) -> None:
        """Launches what is missing, terminates what is too much."""
        if group.name not in self.backend.autoscaling_groups:
            return
        counted = [m for m in group.instance_states if m.lifecycle_state in COUNTED and not m.surplus]
        unreplaced = sum(m.unreplaced for m in group.instance_states)
        missing = group.desired_capacity - len(counted) - unreplaced
        if missing > 0 and not self._suspended(group, "Launch"):
            for _ in range(missing):
                if self._launch(group) is None:
                    break
        elif missing < 0 and not self._suspended(group, "Terminate"):
            for _ in range(-missing):
                victim = self._victim(group)
                if victim is None:
                    break
                self._terminate(victim, "instance was selected for termination", replace=False)
        self._watch_balance(group)

    def _suspended(self, group: Group, process: str) -> bool:
        return process in group._suspended_processes

    def _victim(self, group: Group) -> Member | None:
        """Scale-in: never a protected one; of the fullest zone first, then the oldest (user guide, "Default termination
        policy").
        """
        candidates = [
            m for m in group.instance_states if m.lifecycle_state in COUNTED and not m.protected_from_scale_in and not m.returned
        ]
        if not candidates:
            return None
        zones = self._zone_counts(group)
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

    def _zone_counts(self, group: Group) -> dict[str, int]:
        states = COUNTED + (ON_STANDBY if self.unknowns.standby_counts_for_zone_balance else ())
        counts = {zone: 0 for zone in group.availability_zones}
        for member in group.instance_states:
            if member.lifecycle_state in states:
                counts[member.availability_zone] = counts.get(member.availability_zone, 0) + 1
        return counts

    def _watch_balance(self, group: Group) -> None:
        """AZRebalance: launches in the emptiest zone first, then terminates in the fullest (user guide, "Rebalancing
        activities").
        """
        if self._unbalanced(group):
            self._once(group, "rebalance", self.timings.rebalance, self._rebalance)

    def _unbalanced(self, group: Group) -> bool:
        counts = self._zone_counts(group).values()
        settled = all(m.lifecycle_state not in ("Pending", "Pending:Wait", "Pending:Proceed") for m in group.instance_states)
        return settled and max(counts) - min(counts) >= 2 and not self._suspended(group, "AZRebalance")

    def _rebalance(self, group: Group) -> None:
        blocked = self._suspended(group, "Launch") or self._suspended(group, "Terminate")
        if self._unbalanced(group) and not blocked:
            launched = self._launch(group)
            if launched is not None:
                launched.surplus = True

    # Launching

    def _launch(self, group: Group) -> Member | None:
        if self._is_full(group):
            self._launch_failed(group, RESERVATION_FULL, self._emptiest_subnet(group))
            return None
        planned = self._launches.get(group.name)
        launch = planned.pop(0) if planned else Launch()
        subnet = self._emptiest_subnet(group, launch.zone)
        if launch.failure is not None:
            self._launch_failed(group, launch.failure.format(zone=subnet.availability_zone), subnet)
            return None
        member = self._take_warm(group, launch) or self._run_instance(group, launch, subnet)
        member.activity = self._begin(
            group,
            f"Launching a new EC2 instance: {member.instance_id}",
            "an instance was started in response to a difference between desired and actual capacity",
            member,
        )
        for listener in list(self.on_launching):
            listener(member)
        if not launch.never_comes_up:
            seconds = self.timings.launch if launch.seconds is None else launch.seconds
            self._later(member, seconds, self._runs)
        return member

    def _is_full(self, group: Group) -> bool:
        """A machine is taken until EC2 has terminated what runs on it."""
        taken = sum(m.instance._state.name != "terminated" for m in group.instance_states)
        return taken >= self._capacity.get(group.name, taken + 1)

    def _emptiest_subnet(self, group: Group, zone: str | None = None) -> Any:
        """Of the group's zones, or in this one."""
        counts = self._zone_counts(group)
        if group.vpc_zone_identifier:
            subnets = [self.ec2.backend.get_subnet(name) for name in group.vpc_zone_identifier.split(",")]
        else:
            defaults = self.ec2.backend.get_default_subnets()
            subnets = [defaults[zone] for zone in group.availability_zones]
        allowed = [subnet for subnet in subnets if zone in (None, subnet.availability_zone)]
        return min(allowed, key=lambda subnet: counts.get(subnet.availability_zone, 0))

    def _run_instance(self, group: Group, launch: Launch, subnet: Any) -> Member:
        tags = {**group.get_propagated_tags(), ASG_NAME_TAG: group.name, **group.instance_tags}
        template = (
            {"LaunchTemplateId": group.ec2_launch_template.id, "Version": _template_version(group)}
            if group.ec2_launch_template
            else None
        )
        reservation = self.ec2.backend.run_instances(
            group.image_id,
            1,
            group.user_data,
            group.security_groups,
            instance_type=group.instance_type,
            is_instance_type_default=False,
            tags={"instance": tags},
            launch_config=group.launch_config,
            launch_template=template,
            subnet_id=subnet.id,
            private_ip=self.ec2.free_address(subnet),
            region_name=REGION,
        )
        instance = reservation.instances[0]
        instance.autoscaling_group = group
        member = Member(instance, group, launch, group.new_instances_protected_from_scale_in)
        group.instance_states.append(member)
        self.ec2.launched(instance)
        return member

    def _launch_failed(self, group: Group, message: str, subnet: Any) -> None:
        activity = self._begin(
            group,
            "Launching a new EC2 instance.  Status Reason: " + message,
            "an instance was started in response to a difference between desired and actual capacity",
            None,
        )
        self._finish(activity, "Failed", message)
        self.emit(
            "aws.autoscaling",
            "EC2 Instance Launch Unsuccessful",
            {
                "StatusCode": "Failed",
                "StatusMessage": message,
                "AutoScalingGroupName": group.name,
                "ActivityId": activity["ActivityId"],
                "RequestId": activity["ActivityId"],
                "Description": activity["Description"],
                "Cause": activity["Cause"],
                "Details": {"Availability Zone": subnet.availability_zone, "Subnet ID": subnet.id},
                "EC2InstanceId": "",
                "Origin": "EC2",
                "Destination": "AutoScalingGroup",
            },
            [group.arn],
        )
        self._once(group, "launch again", self.timings.launch_retry, self.reconcile)

    def _runs(self, member: Member) -> None:
        if member.instance._state.name == "pending":
            self.ec2.change(member.instance, "running")
        self._await_hooks(member, LAUNCHING, "Pending:Wait", self._launch_proceeds)

    def _launch_proceeds(self, member: Member, abandoned: bool) -> None:
        if abandoned:
            self._terminate(member, "the launch was abandoned by a lifecycle hook", replace=True)
            return
        if member.lifecycle_state == "Pending:Wait":
            self._move(member, "Pending:Proceed")
        self._in_service(member)

    def _in_service(self, member: Member) -> None:
        group = member.group
        self._move(member, "InService")
        member.surplus = False
        if member.activity is not None:
            self._finish(member.activity, "Successful")
            if member.activity["Description"].startswith("Launching"):
                self._emit_outcome("EC2 Instance Launch Successful", member, member.activity)
            member.activity = None
        self._register_targets(member)
        for listener in list(self.on_in_service):
            listener(member)
        if member.instance._state.name != "running":
            self._watch_health(member)
        if member.returned:
            group.desired_capacity -= 1
        self.reconcile(group)
        member.returned = False

    # Terminating

    def _terminate(self, member: Member, cause: str, replace: bool, run_hooks: bool = True) -> dict[str, Any]:
        """Starts a termination: out of the balancers first, then the hooks, then the instance."""
        group = member.group
        self._stop_waiting(member)
        member.activity = self._begin(group, f"Terminating EC2 instance: {member.instance_id}", cause, member)
        self._move(member, "Terminating")
        delay = self._deregister_targets(member)
        if not run_hooks:
            self._shut_down(member)
        elif delay:
            self._later(member, delay, self._terminate_hooks)
        else:
            self._terminate_hooks(member)
        if replace:
            self.reconcile(group)
        return member.activity

    def _terminate_hooks(self, member: Member) -> None:
        self._await_hooks(member, TERMINATING, "Terminating:Wait", self._termination_proceeds)

    def _termination_proceeds(self, member: Member, abandoned: bool) -> None:
        if abandoned and self._retains(member.group) and member.instance._state.name != "terminated":
            self._move(member, "Terminating:Retained")
            self.reconcile(member.group)
            return
        if member.lifecycle_state == "Terminating:Wait":
            self._move(member, "Terminating:Proceed")
        self._shut_down(member)

    def _retains(self, group: Group) -> bool:
        policy = getattr(group, "instance_lifecycle_policy", None) or {}
        return (policy.get("RetentionTriggers") or {}).get("TerminateHookAbandon") == "retain"

    def _shut_down(self, member: Member) -> None:
        """EC2 terminates it; `_instance_changed` takes it out of the group when that is done."""
        if member.instance._state.name == "terminated":
            self._gone(member)
        else:
            self.ec2.backend.terminate_instances([member.instance_id])

    def _gone(self, member: Member) -> None:
        group = member.group
        self._stop_waiting(member)
        self._move(member, "Terminated")
        self._drop(member)
        if member.activity is not None:
            self._finish(member.activity, "Successful")
            self._emit_outcome("EC2 Instance Terminate Successful", member, member.activity)
        for listener in list(self.on_terminated):
            listener(member)
        self.reconcile(group)

    def _drop(self, member: Member) -> None:
        member.group.instance_states = [m for m in member.group.instance_states if m is not member]

    # Lifecycle hooks

    def _hooks(self, group: Group, transition: str) -> list[LifecycleHook]:
        return [
            hook
            for hook in self.backend.lifecycle_hooks.values()
            if hook.auto_scaling_group_name == group.name and hook.lifecycle_transition == transition
        ]

    def _await_hooks(self, member: Member, transition: str, state: str, then: Callable[[Member, bool], None]) -> None:
        """All hooks of a transition at once; `then(member, abandoned)` when all are done or one is abandoned."""
        member.proceed = then
        hooks = self._hooks(member.group, transition)
        if not hooks:
            then(member, False)
            return
        self._move(member, state)
        for hook in hooks:
            wait = Wait(hook, self.aws.clock.now())
            member.waits[hook.name] = wait
            self._expect_heartbeat(member, wait)
            self._emit_hook(member, wait)

    def _expect_heartbeat(self, member: Member, wait: Wait) -> None:
        """(Re)starts the heartbeat, never beyond the hook's global time-out."""
        if wait.timer is not None:
            wait.timer.cancel()
        left = wait.ends - self.aws.clock.now()
        seconds = min(wait.hook.heartbeat_timeout, left)

        def expire() -> None:
            with LOCK:
                if member.waits.get(wait.hook.name) is wait:
                    self._hook_done(member, wait, wait.hook.default_result)

        wait.timer = self.clock.after(seconds, expire)

    def _hook_done(self, member: Member, wait: Wait, result: str) -> None:
        """ABANDON "stops any remaining actions, such as other lifecycle hooks", CONTINUE lets them complete (user
        guide).
        """
        wait.timer.cancel()
        del member.waits[wait.hook.name]
        if result == "ABANDON":
            self._stop_waiting(member)
            member.proceed(member, True)
        elif not member.waits:
            member.proceed(member, False)

    def _stop_waiting(self, member: Member) -> None:
        for wait in member.waits.values():
            wait.timer.cancel()
        member.waits.clear()
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _emit_hook(self, member: Member, wait: Wait) -> None:
        terminating = wait.hook.lifecycle_transition == TERMINATING
        detail = {
            "LifecycleActionToken": wait.token,
            "AutoScalingGroupName": member.group.name,
            "LifecycleHookName": wait.hook.name,
            "EC2InstanceId": member.instance_id,
            "LifecycleTransition": wait.hook.lifecycle_transition,
            "Origin": "AutoScalingGroup" if terminating else "EC2",
            "Destination": "WarmPool" if member.for_warm_pool else "EC2" if terminating else "AutoScalingGroup",
        }
        if wait.hook.notification_metadata:
            detail["NotificationMetadata"] = wait.hook.notification_metadata
        kind = "terminate" if terminating else "launch"
        self.emit("aws.autoscaling", f"EC2 Instance-{kind} Lifecycle Action", detail, [member.group.arn])

    def _to_warm_pool(self, member: Member, abandoned: bool) -> None:
        self._stop_waiting(member)
        self._move(member, "Warmed:Stopped")
        self._drop(member)
        self.ec2.change(member.instance, "stopped")
        member.for_warm_pool = False
        self._warm.setdefault(member.group.name, []).append(member)
        self.reconcile(member.group)

    # Health

    def _instance_changed(self, instance: Instance, old: str, new: str) -> None:
        """EC2 says that an instance changed its state, whoever caused it."""
        member = self.member(instance.id)
        if member is None:
            return
        if new == "terminated" and member.lifecycle_state in ("Terminating", "Terminating:Proceed"):
            self._gone(member)
        elif new in ("shutting-down", "stopping"):
            self._watch_health(member)

    def _watch_health(self, member: Member) -> None:
        def check() -> None:
            with LOCK:
                self._check_health(member)

        self.clock.after(self.timings.health_check, check)

    def _check_health(self, member: Member) -> None:
        """Health checks do not reach Standby: a dead instance stays listed there. Elsewhere it is replaced."""
        group = member.group
        runs = member.instance._state.name in ("pending", "running")
        if member not in group.instance_states or runs or self._suspended(group, "HealthCheck"):
            return
        if member.lifecycle_state in COUNTED:
            member.health_status = "Unhealthy"
            self._replace_unhealthy(member)
        elif member.lifecycle_state in ("Terminating:Wait", "Terminating:Retained"):
            self._stop_waiting(member)
            self._shut_down(member)

    def _replace_unhealthy(self, member: Member) -> None:
        if not self._suspended(member.group, "ReplaceUnhealthy"):
            self._terminate(
                member,
                "an instance was taken out of service in response to an EC2 health check indicating it has been "
                "terminated or stopped",
                replace=True,
            )

    # Load balancers

    def _register_targets(self, member: Member) -> None:
        if self._suspended(member.group, "AddToLoadBalancer"):
            return
        for target_group in self._target_groups(member.group):
            target_group.register([{"Id": member.instance_id, "Port": target_group.port}])

    def _deregister_targets(self, member: Member) -> float:
        """Takes a member out of the group's balancers; returns how long the group waits for that. One that is not in a target
        group (any more), as in Standby, is not waited for."""
        delays = [0.0]
        for target_group in self._target_groups(member.group):
            if member.instance_id in target_group.targets:
                target_group.deregister([{"Id": member.instance_id}])
                delays.append(float(target_group.attributes["deregistration_delay.timeout_seconds"]))
        if member.group.load_balancer_names:
            delays.append(self.timings.deregistration)
        return max(delays)

    def _target_groups(self, group: Group) -> list[Any]:
        """Those that are attached to the group, by ARN or as a source of traffic."""
        sources = [source["Identifier"] for source in group.traffic_sources or [] if source.get("Type") == "elbv2"]
        known = elbv2_backends[ACCOUNT][REGION].target_groups
        return [known[arn] for arn in dict.fromkeys([*group.target_group_arns, *sources]) if arn in known]

    # Moving on

    def _move(self, member: Member, state: str) -> None:
        old, member.lifecycle_state = member.lifecycle_state, state
        for listener in list(self.on_state_change):
            listener(member, old, state)

    def _later(self, member: Member, seconds: float, then: Callable[[Member], None]) -> None:
        """The member's next step; a new one replaces the one before."""
        if member.timer is not None:
            member.timer.cancel()

        def step() -> None:
            with LOCK:
                member.timer = None
                if member in member.group.instance_states:
                    then(member)

        member.timer = self.clock.after(seconds, step)

    def _once(self, group: Group, what: str, seconds: float, then: Callable[[Group], None]) -> None:
        """A step of the group, at most one of a kind pending."""
        key = (group.name, what)
        if key in self._pending_timers:
            return

        def step() -> None:
            with LOCK:
                self._pending_timers.pop(key, None)
                if self.backend.autoscaling_groups.get(group.name) is group:
                    then(group)

        self._pending_timers[key] = self.clock.after(seconds, step)

    # Activities

    def _begin(self, group: Group, description: str, cause: str, member: Member | None) -> dict[str, Any]:
        now = self._now()
        activity = {
            "ActivityId": str(mock_random.uuid4()),
            "AutoScalingGroupName": group.name,
            "AutoScalingGroupARN": group.arn,
            "Description": description,
            "Cause": f"At {now:%Y-%m-%dT%H:%M:%SZ} {cause}.",
            "StartTime": now,
            "StatusCode": "InProgress",
            "Progress": 0,
        }
        if member is not None:
            activity["Details"] = (
                f'{{"Availability Zone":"{member.availability_zone}","Subnet ID":"{member.instance.subnet_id}"}}'
            )
        self._activities.setdefault(group.name, []).insert(0, activity)
        return activity

    def _finish(self, activity: dict[str, Any], status: str, message: str | None = None) -> None:
        activity.update(StatusCode=status, Progress=100, EndTime=self._now())
        if message is not None:
            activity["StatusMessage"] = message

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.aws.clock.now(), datetime.UTC).replace(tzinfo=None)

    def _emit_outcome(self, detail_type: str, member: Member, activity: dict[str, Any]) -> None:
        launch = "Launch" in detail_type
        self.emit(
            "aws.autoscaling",
            detail_type,
            {
                "StatusCode": "InProgress",
                "AutoScalingGroupName": member.group.name,
                "ActivityId": activity["ActivityId"],
                "RequestId": activity["ActivityId"],
                "Description": activity["Description"],
                "Cause": activity["Cause"],
                "Details": {"Availability Zone": member.availability_zone},
                "EC2InstanceId": member.instance_id,
                "Origin": "EC2" if launch else "AutoScalingGroup",
                "Destination": "AutoScalingGroup" if launch else "EC2",
            },
            [member.group.arn],
        )

    # The API. Each method takes the parameters as AWS names them and returns the answer as AWS names it.

    def create_auto_scaling_group(self, parameters: dict[str, Any], moto_create: Callable[[], Any]) -> None:
        name = parameters["AutoScalingGroupName"]
        if name in self.backend.autoscaling_groups:
            raise AutoscalingClientError(
                "AlreadyExists",
                f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
            )
        smallest, largest = int(parameters["MinSize"]), int(parameters["MaxSize"])
        check_sizes(smallest, largest, int(parameters.get("DesiredCapacity", smallest)))
        moto_create()
        group = self.group(name)
        group.created_time = self._now()
        group.traffic_sources = []
        self._pass_through(group, parameters)
        self.reconcile(group)

    def update_auto_scaling_group(self, parameters: dict[str, Any], moto_update: Callable[[], Any]) -> None:
        group = self.group(parameters["AutoScalingGroupName"])
        smallest = int(parameters.get("MinSize", group.min_size))
        largest = int(parameters.get("MaxSize", group.max_size))
        desired = parameters.get("DesiredCapacity")
        # "If a new value for MinSize/MaxSize is specified without DesiredCapacity, the current capacity is set to fit
        # it."
        desired = min(max(group.desired_capacity, smallest), largest) if desired is None else int(desired)
        check_sizes(smallest, largest, desired)
        policy = group.mixed_instances_policy
        moto_update()
        group.mixed_instances_policy = parameters.get("MixedInstancesPolicy") or policy
        group.desired_capacity = desired
        if parameters.get("TerminationPolicies"):
            group.termination_policies = parameters["TerminationPolicies"]
        self._pass_through(group, parameters)
        self.reconcile(group)

    def _pass_through(self, group: Group, parameters: dict[str, Any]) -> None:
        for field_name in PASSED_THROUGH:
            if field_name in parameters:
                setattr(group, xform_name(field_name), parameters[field_name])

    def delete_auto_scaling_group(self, parameters: dict[str, Any]) -> None:
        group = self.group(parameters["AutoScalingGroupName"])
        force = parameters.get("ForceDelete", False)
        if group.instance_states and not force:
            raise AutoscalingClientError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending "
                "Spot instance request(s) still in the group.",
            )
        if group.instance_states and self._retains(group):
            raise ValidationError(
                "You can't force delete this Auto Scaling group because the TerminateHookAbandon retention trigger "
                "is set to retain."
            )
        for member in group.instance_states:
            self._stop_waiting(member)
        members = [m.instance_id for m in group.instance_states if m.instance._state.name not in ("shutting-down", "terminated")]
        del self.backend.autoscaling_groups[group.name]
        for key, hook in list(self.backend.lifecycle_hooks.items()):
            if hook.auto_scaling_group_name == group.name:
                del self.backend.lifecycle_hooks[key]
        if members:
            self.ec2.backend.terminate_instances(members)

    def set_desired_capacity(self, parameters: dict[str, Any]) -> None:
        group, wanted = self.group(parameters["AutoScalingGroupName"]), int(parameters["DesiredCapacity"])
        if wanted > group.max_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the AutoScalingGroup."
            )
        if wanted < group.min_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the AutoScalingGroup."
            )
        group.desired_capacity = wanted
        self.reconcile(group)

    def enter_standby(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, ("InService",))
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement:
            self._check_minimum(group, len(members), "place into standby")
        at_maximum = group.desired_capacity >= group.max_size
        activities = []
        for member in members:
            activity = self._begin(
                group,
                f"Moving EC2 instance to Standby: {member.instance_id}",
                f"instance {member.instance_id} was moved to standby in response to a user request{_shrinking(group, decrement)}",
                member,
            )
            activities.append(dict(activity))
            member.activity = activity
            group.desired_capacity -= decrement
            member.unreplaced = not decrement and at_maximum and not self.unknowns.enter_standby_at_max_launches
            self._move(member, "EnteringStandby")
            delay = max(self._deregister_targets(member), self.timings.enter_standby)
            self._later(member, delay, self._on_standby)
        self.reconcile(group)
        return {"Activities": activities}

    def _on_standby(self, member: Member) -> None:
        self._finish(member.activity, "Successful")
        member.activity = None
        self._move(member, "Standby")

    def exit_standby(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, ("Standby",))
        if self._suspended(group, "Launch"):
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
            member.unreplaced, member.returned = False, self.unknowns.exit_standby_trims
            activity = self._begin(
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
            self._move(member, "Pending")
            self._later(member, self.timings.exit_standby, self._in_service)
        return {"Activities": activities}

    def attach_instances(self, parameters: dict[str, Any]) -> None:
        """The desired capacity grows by each of them; they go into service as after Standby."""
        group = self.group(parameters["AutoScalingGroupName"])
        instances = [self.ec2.instance(instance_id) for instance_id in parameters["InstanceIds"]]
        if group.desired_capacity + len(instances) > group.max_size:
            raise ValidationError(
                f"{_sizes(group)} To attach {len(instances)} {_instances(len(instances))}, please update the AutoScalingGroup "
                "sizes appropriately."
            )
        for instance in instances:
            if self.member(instance.id) is not None or instance._state.name != "running":
                raise ValidationError(f"Invalid Instance ID(s): ['{instance.id}'] specified.")
        for instance in instances:
            member = Member(instance, group, Launch(), protected=False)
            group.instance_states.append(member)
            group.desired_capacity += 1
            self.ec2.backend.create_tags([instance.id], {ASG_NAME_TAG: group.name})
            self._later(member, self.timings.exit_standby, self._in_service)

    def detach_instances(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group, members = self._members(parameters, ("InService", "Standby"))
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement:
            self._check_minimum(group, len(members), "detach")
        activities = []
        for member in members:
            from_standby = member.lifecycle_state == "Standby"
            activity = self._begin(
                group,
                f"Detaching EC2 instance: {member.instance_id}",
                f"instance {member.instance_id} was detached in response to a user request{_shrinking(group, decrement)}",
                member,
            )
            activities.append(dict(activity))
            member.activity = activity
            member.unreplaced = False
            group.desired_capacity -= decrement
            self._move(member, "Detaching")
            delay = max(self._deregister_targets(member), self.timings.detach)
            self._later(member, delay, self._detached)
            if from_standby and not decrement and self.unknowns.detach_from_standby_kills_another:
                self._kill_another(group)
            if from_standby and not decrement and self.unknowns.detach_from_standby_launches_extra:
                self._launch_surplus(group)
        self.reconcile(group)
        return {"Activities": activities}

    def _kill_another(self, group: Group) -> None:
        victim = self._victim(group)
        if victim is not None:
            self._terminate(victim, "instance was selected for termination", replace=False)

    def _detached(self, member: Member) -> None:
        self._finish(member.activity, "Successful")
        self._move(member, "Detached")
        self._drop(member)
        self.ec2.backend.delete_tags([member.instance_id], {ASG_NAME_TAG: member.group.name})
        self.reconcile(member.group)

    def terminate_instance_in_auto_scaling_group(self, parameters: dict[str, Any]) -> dict[str, Any]:
        member = self.member(parameters["InstanceId"])
        if member is None:
            raise ValidationError(
                f"Instance Id not found - No managed instance found for instance ID: {parameters['InstanceId']}"
            )
        group, state = member.group, member.lifecycle_state
        if state in ("Terminating", "Terminating:Wait", "Terminating:Proceed"):
            return {"Activity": dict(member.activity)}
        decrement = bool(parameters["ShouldDecrementDesiredCapacity"])
        if decrement and group.desired_capacity - 1 < group.min_size:
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement "
                "will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or "
                "lower group's min size."
            )
        shrinking = _shrinking(group, decrement)
        cause = f"instance {member.instance_id} was taken out of service in response to a user request{shrinking}"
        group.desired_capacity -= decrement
        extra = state in ON_STANDBY and not decrement and self.unknowns.terminate_from_standby_launches_extra
        member.unreplaced = False
        activity = self._terminate(member, cause, replace=True, run_hooks=state != "Terminating:Retained")
        if extra:
            self._launch_surplus(group)
        return {"Activity": dict(activity)}

    def _launch_surplus(self, group: Group) -> None:
        """One more than desired; the group trims itself when it is in service."""
        launched = None if self._suspended(group, "Launch") else self._launch(group)
        if launched is not None:
            launched.surplus = True

    def set_instance_protection(self, parameters: dict[str, Any]) -> dict[str, Any]:
        _, members = self._members(parameters, PROTECTABLE)
        for member in members:
            member.protected_from_scale_in = bool(parameters["ProtectedFromScaleIn"])
        return {}

    def set_instance_health(self, parameters: dict[str, Any]) -> None:
        member = self.member(parameters["InstanceId"])
        if member is None:
            raise ValidationError(
                f"Instance Id not found - No managed instance found for instance ID: {parameters['InstanceId']}"
            )
        member.health_status = parameters["HealthStatus"]
        if member.health_status == "Unhealthy" and member.lifecycle_state == "InService":
            self._replace_unhealthy(member)

    def resume_processes(self, parameters: dict[str, Any], moto_resume: Callable[[], Any]) -> None:
        group = self.group(parameters["AutoScalingGroupName"])
        moto_resume()
        for member in list(group.instance_states):
            if member.health_status == "Unhealthy" and member.lifecycle_state == "InService":
                self._replace_unhealthy(member)
            elif member.instance._state.name not in ("pending", "running"):
                self._watch_health(member)
        self.reconcile(group)

    def describe_scaling_activities(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Newest first."""
        name = parameters.get("AutoScalingGroupName")
        if name is not None:
            activities = self._activities.get(name, [])
        else:
            activities = sorted(
                (a for book in self._activities.values() for a in book), key=lambda a: a["StartTime"], reverse=True
            )
        wanted = parameters.get("ActivityIds")
        if wanted:
            activities = [a for a in activities if a["ActivityId"] in wanted]
        first, most = int(parameters.get("NextToken") or 0), min(int(parameters.get("MaxRecords") or 100), 100)
        answer: dict[str, Any] = {"Activities": activities[first : first + most]}
        if first + most < len(activities):
            answer["NextToken"] = str(first + most)
        return answer

    def describe_auto_scaling_instances(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Those in warm pools, too."""
        wanted = parameters.get("InstanceIds")
        members = [m for group in self.backend.autoscaling_groups.values() for m in group.instance_states]
        warm = [m for pool in self._warm.values() for m in pool]
        return {"AutoScalingInstances": [m for m in [*members, *warm] if not wanted or m.instance_id in wanted]}

    def describe_instance_refreshes(self, parameters: dict[str, Any]) -> dict[str, Any]:
        group = self.group(parameters["AutoScalingGroupName"])
        return {"InstanceRefreshes": self.refreshes.get(group.name, [])}

    def put_lifecycle_hook(self, parameters: dict[str, Any]) -> None:
        group = self.group(parameters["AutoScalingGroupName"])
        key = f"{group.name}_{parameters['LifecycleHookName']}"
        hook = self.backend.lifecycle_hooks.get(key)
        if hook is None:
            hook = LifecycleHook(parameters["LifecycleHookName"], group.name, parameters.get("LifecycleTransition"), None, None)
            hook.role_arn = hook.notification_target_arn = hook.notification_metadata = None
            self.backend.lifecycle_hooks[key] = hook
        hook.lifecycle_transition = parameters.get("LifecycleTransition", hook.lifecycle_transition)
        hook.heartbeat_timeout = int(parameters.get("HeartbeatTimeout", hook.heartbeat_timeout))
        hook.default_result = parameters.get("DefaultResult", hook.default_result)
        hook.role_arn = parameters.get("RoleARN", hook.role_arn)
        hook.notification_target_arn = parameters.get("NotificationTargetARN", hook.notification_target_arn)
        hook.notification_metadata = parameters.get("NotificationMetadata", hook.notification_metadata)
        hook.global_timeout = min(LONGEST_HOOK, MOST_HEARTBEATS * hook.heartbeat_timeout)

    def describe_lifecycle_hooks(self, parameters: dict[str, Any]) -> dict[str, Any]:
        name = parameters["AutoScalingGroupName"]
        # Terraform looks after the deployment's hooks in scenarios without their groups, too.
        if all(hook.auto_scaling_group_name != name for hook in self._deployed_hooks.values()):
            name = self.group(name).name
        return {"LifecycleHooks": self.backend.describe_lifecycle_hooks(name, parameters.get("LifecycleHookNames"))}

    def delete_lifecycle_hook(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """A hook that is deleted while an instance waits for it is completed with CONTINUE if the instance terminates, and with
        ABANDON if it launches, whatever its default (API reference, DeleteLifecycleHook)."""
        group, name = self.group(parameters["AutoScalingGroupName"]), parameters["LifecycleHookName"]
        self.backend.lifecycle_hooks.pop(f"{group.name}_{name}", None)
        for member in list(group.instance_states):
            if name in member.waits:
                wait = member.waits[name]
                self._hook_done(member, wait, "CONTINUE" if wait.hook.lifecycle_transition == TERMINATING else "ABANDON")
        return {}

    def complete_lifecycle_action(self, parameters: dict[str, Any]) -> dict[str, Any]:
        result = parameters["LifecycleActionResult"]
        if result not in ("CONTINUE", "ABANDON"):
            raise ValidationError(f"Invalid value {result} for LifecycleActionResult: it must be CONTINUE or ABANDON.")
        member, wait = self._waiting(parameters)
        self._hook_done(member, wait, result)
        return {}

    def record_lifecycle_action_heartbeat(self, parameters: dict[str, Any]) -> dict[str, Any]:
        self._expect_heartbeat(*self._waiting(parameters))
        return {}

    def _waiting(self, parameters: dict[str, Any]) -> tuple[Member, Wait]:
        """The hook that waits, "for the specified token or instance"."""
        group = self.group(parameters["AutoScalingGroupName"])
        token, instance_id = parameters.get("LifecycleActionToken"), parameters.get("InstanceId")
        for member in group.instance_states:
            wait = member.waits.get(parameters["LifecycleHookName"])
            if wait is not None and (wait.token == token if token else member.instance_id == instance_id):
                return member, wait
        by = f"token {token}" if token else f"instance ID {instance_id}"
        raise ValidationError(f"No active Lifecycle Action found with {by}")

    def _members(self, parameters: dict[str, Any], states: tuple[str, ...]) -> tuple[Group, list[Member]]:
        """The named members, all of which must be in one of the states."""
        group = self.group(parameters["AutoScalingGroupName"])
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


def check_sizes(smallest: int, largest: int, desired: int) -> None:
    if smallest > largest:
        raise ValidationError(f"Max bound, {largest}, must be greater than or equal to min bound, {smallest}")
    if not smallest <= desired <= largest:
        raise ValidationError(
            f"Desired capacity:{desired} must be between the specified min size:{smallest} and max size:{largest}"
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


def _template_version(group: Group) -> str:
    """The number behind $Latest or $Default: moto would take the default version whatever the group says."""
    wanted = str(group.launch_template_version)
    template = group.ec2_launch_template
    if wanted == "$Latest":
        return str(template.latest_version_number)
    return str(template.default_version_number) if wanted == "$Default" else wanted


# moto's internals

# Operations that are answered here alone.
ANSWERED_HERE = (
    "delete_auto_scaling_group",
    "set_desired_capacity",
    "enter_standby",
    "exit_standby",
    "attach_instances",
    "detach_instances",
    "terminate_instance_in_auto_scaling_group",
    "set_instance_protection",
    "set_instance_health",
    "describe_scaling_activities",
    "describe_auto_scaling_instances",
    "describe_instance_refreshes",
    "put_lifecycle_hook",
    "describe_lifecycle_hooks",
    "delete_lifecycle_hook",
    "complete_lifecycle_action",
    "record_lifecycle_action_heartbeat",
)

# Operations that moto answers, with something of ours around it.
ANSWERED_BY_BOTH = ("create_auto_scaling_group", "update_auto_scaling_group", "resume_processes")


def _install(autoscaling: AutoScaling) -> None:
    """Lays `autoscaling` over moto's responses; a second world replaces the first."""
    for name in ANSWERED_HERE:
        setattr(AutoScalingResponse, name, _here(getattr(autoscaling, name)))
    for name in ANSWERED_BY_BOTH:
        setattr(AutoScalingResponse, name, _both(getattr(autoscaling, name), moto_original(AutoScalingResponse, name)))
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
