"""Auto Scaling as AWS documents it, laid over moto's groups and instances, on the virtual clock.

moto stores the groups and their settings. This module has the life of a member: launches that take time or fail, terminations,
retention, scale-in, replacement of unhealthy members, zone balance. `api.py` and `members_api.py` have the calls of operators and
functions (Standby, detaching), `hooks.py` the lifecycle hooks.

The lifecycle of a member (Auto Scaling user guide, "Amazon EC2 Auto Scaling instance lifecycle"):

    Pending -> [Pending:Wait -> Pending:Proceed] -> InService
    InService -> EnteringStandby -> Standby -> Pending -> InService
    InService | Standby | Terminating:Retained -> Detaching -> (out of the group)
    ... -> Terminating -> [Terminating:Wait -> Terminating:Proceed] -> (terminated)
    ... -> Terminating -> Terminating:Wait -> Terminating:Proceed -> Terminating:Retained -> Terminating -> ...
    InService -> ReplacingRootVolume -> [ReplacingRootVolume:Wait -> …:Proceed] -> RootVolumeReplaced -> InService

A launch takes an instance of the warm pool if the group has one: Warmed:Stopped -> Pending. DescribeAutoScalingInstances
describes the instances in the pool, but they are not members of the group.

`Unknowns` has a switch for each behaviour that AWS does not document. Not supported: scaling policies, keeping a warm pool full
(`warm` puts one instance there), allocation strategies and weights of mixed instances, instance refreshes (a scenario declares
that one runs: `refreshes`), the state Quarantined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import AutoScalingBackend
from moto.ec2.models.instances import Instance

from world.aws.account import Aws
from world.aws.autoscaling.activities import Activities
from world.aws.autoscaling.hooks import Hooks
from world.aws.autoscaling.model import (
    COUNTED,
    LAUNCHING,
    ON_STANDBY,
    TERMINATING,
    Group,
    Launch,
    Member,
    Timings,
    Unknowns,
    autoscaling_backend,
    find_group,
    is_suspended,
    retains,
)
from world.aws.autoscaling.supply import Supply
from world.aws.autoscaling.targets import deregister_targets, register_targets
from world.aws.autoscaling.zones import choose_victim, count_by_zone, emptiest_subnet, is_unbalanced
from world.aws.ec2 import Ec2, Emit
from world.aws.moto_internals import LOCK
from world.base.clock import Clock

# Virtual seconds for which a refresh with the preference Wait waits for members in Standby (API reference, RefreshPreferences).
STANDBY_WAIT = 3_600.0

# Virtual seconds between two checks of an instance refresh.
REFRESH_CHECK = 60

NO_CAPACITY = (
    "We currently do not have sufficient m5.large capacity in the Availability Zone you requested ({zone}). Our system "
    "will be working on provisioning additional capacity. Launching EC2 instance failed."
)

RESERVATION_FULL = (
    "The requested reservation does not have sufficient compatible and available capacity for this request. Launching EC2 "
    "instance failed."
)


class AutoScaling:
    """The groups of the account, their behaviour, and what a scenario may say about it."""

    def __init__(self, aws: Aws, ec2: Ec2, clock: Clock, emit: Emit):
        self.ec2 = ec2
        self.clock = clock
        self.timings = Timings()
        self.unknowns = Unknowns()
        self._emit = emit
        self.activities = Activities(clock, emit)
        self.hooks = Hooks(clock, emit, self.move)
        self.supply = Supply(ec2)
        # InstanceRefreshes that DescribeInstanceRefreshes reports, by group.
        self.refreshes: dict[str, list[dict[str, Any]]] = {}
        # Listeners of actors, called with LOCK held.
        self.on_launching: list[Callable[[Member], None]] = []
        self.on_in_service: list[Callable[[Member], None]] = []
        self.on_terminated: list[Callable[[Member], None]] = []
        self.on_state_change: list[Callable[[Member, str, str], None]] = []
        self._pending_timers: dict[tuple[str, str], Any] = {}
        ec2.on_change.append(self._instance_changed)
        aws.on_reset.append(self._reset)

    # Used by scenarios

    @property
    def backend(self) -> AutoScalingBackend:
        return autoscaling_backend()

    def group(self, name: str) -> Group:
        return find_group(name)

    def member(self, instance_id: str) -> Member | None:
        for group in self.backend.autoscaling_groups.values():
            for member in group.instance_states:
                if member.instance_id == instance_id:
                    return member
        return None

    def plan_launches(self, group_name: str, *launches: Launch) -> None:
        """The next launches of a group go like this, in order; later ones as usual."""
        self.supply.plan(group_name, *launches)

    def out_of_capacity(self, group_name: str, times: int = 1000) -> None:
        """The next launches of a group fail, as they do when the zone is out of capacity."""
        self.plan_launches(group_name, *[Launch(failure=NO_CAPACITY)] * times)

    def capacity_is_back(self, group_name: str) -> None:
        """Forgets the planned launches and lets the group try at once."""
        with LOCK:
            self.supply.forget_plans(group_name)
            self.reconcile(self.group(group_name))

    def reserve_capacity(self, group_name: str, instances: int) -> None:
        """Limits the machines of a group, as a reservation does: a launch beyond the limit fails until one has terminated."""
        self.supply.reserve(group_name, instances)

    def remember_hooks(self) -> None:
        """Call it after a deployment: its lifecycle hooks come back at each reset, for groups of the same name."""
        self.hooks.remember()

    def move_to_warm_pool(self, instance_id: str) -> None:
        """A member goes back to the warm pool: its events differ from a termination's in the destination only.

        User guide, "Example lifecycle hook events": Origin AutoScalingGroup, Destination WarmPool. The member waits for
        the hooks like a terminating one, then leaves the list.
        """
        with LOCK:
            member = self.member(instance_id)
            assert member is not None and member.lifecycle_state == "InService", "only a member in service goes to the warm pool"
            member.destination = "WarmPool"
            member.group.desired_capacity -= 1
            self.hooks.wait_for(member, TERMINATING, "Warmed:Pending:Wait", self._to_warm_pool)

    def _to_warm_pool(self, member: Member, abandoned: bool) -> None:
        member.stop_waiting()
        member.destination = "EC2"
        is_kept = abandoned and retains(member.group)
        self.move(member, "Warmed:Pending:Retained" if is_kept else "Warmed:Stopped")
        self.drop(member)
        if not is_kept:
            self.ec2.change(member.instance, "stopped")
        self.supply.keep_warm(member)
        self.reconcile(member.group)

    def warm(self, group_name: str) -> str:
        """Puts a stopped instance into the group's warm pool; its id."""
        with LOCK:
            group = self.group(group_name)
            member = self.supply.run_instance(group, Launch(), emptiest_subnet(self.ec2, group, self.zones_of(group)))
            self.drop(member)
            self.ec2.change(member.instance, "stopped")
            self.move(member, "Warmed:Stopped")
            self.supply.keep_warm(member)
            return member.instance_id

    def report_refreshes(self, group_name: str, *refreshes: dict[str, Any]) -> None:
        """Sets the InstanceRefreshes that DescribeInstanceRefreshes reports, the newest first. None of them acts."""
        with LOCK:
            self.refreshes[group_name] = list(refreshes)

    def start_refresh(self, group_name: str, standby: str = "Wait") -> None:
        """An instance refresh: each member that is in service now is terminated, the next when the group is whole again. One
        that a hook holds no longer counts, so that a refresh does not wait for it. `standby`: what it does to members in Standby
        when all others are replaced (API reference, RefreshPreferences): Terminate, Ignore, or Wait for an hour and fail.
        """
        with LOCK:
            group = self.group(group_name)
            refresh = {
                "InstanceRefreshId": str(len(self.refreshes)),
                "AutoScalingGroupName": group_name,
                "Status": "InProgress",
                "Preferences": {"StandbyInstances": standby},
            }
            self.refreshes.setdefault(group_name, []).insert(0, refresh)
            old = [m for m in group.instance_states if m.lifecycle_state == "InService"]
            self._refresh(group, refresh, old, None)

    def _refresh(self, group: Group, refresh: dict[str, Any], old: list[Member], replaced_at: float | None) -> None:
        if refresh["Status"] != "InProgress":
            return
        in_service = [m for m in group.instance_states if m.lifecycle_state == "InService"]
        standing_by = [m for m in group.instance_states if m.lifecycle_state == "Standby"]
        if len(in_service) == group.desired_capacity:
            standby, now = refresh["Preferences"]["StandbyInstances"], self.clock.now()
            if old:
                self.terminate(old.pop(0), "an instance refresh", replace=True)
            elif not standing_by or standby == "Ignore":
                refresh["Status"] = "Successful"
            elif standby == "Terminate":
                self.terminate(standing_by[0], "an instance refresh", replace=True)
            elif replaced_at is not None and now >= replaced_at + STANDBY_WAIT:
                refresh["Status"] = "Failed"
            else:
                replaced_at = replaced_at or now
        self._once(group, "refresh", REFRESH_CHECK, lambda group: self._refresh(group, refresh, old, replaced_at))

    def cancel_refresh(self, group: Group) -> str | None:
        """CancelInstanceRefresh; the id of the refresh that is under way. Terminations that have begun go on."""
        under_way = [each for each in self.refreshes.get(group.name, []) if each["Status"] == "InProgress"]
        for refresh in under_way:
            refresh["Status"] = "Cancelled"
        return under_way[0]["InstanceRefreshId"] if under_way else None

    def limit_lifetime(self, group_name: str, seconds: float) -> None:
        """Max instance lifetime: each member that is in service then and now is terminated."""
        with LOCK:
            for member in self.group(group_name).instance_states:
                if member.lifecycle_state == "InService":
                    self.later(member, seconds, self._outlive)

    def _outlive(self, member: Member) -> None:
        if member.lifecycle_state == "InService":
            self.terminate(member, "an instance has reached the max instance lifetime", replace=True)

    def replace_root_volume(self, instance_id: str) -> None:
        """An instance refresh with the strategy ReplaceRootVolume: the instance stays, and EC2 replaces its root volume after the
        termination hooks. Their events differ from a termination's in the destination only (user guide, replace-root-volume).
        """
        with LOCK:
            member = self.member(instance_id)
            assert member is not None and member.lifecycle_state == "InService", (
                "only a member in service gets another root volume"
            )
            member.destination = "AutoScalingGroup"
            self.move(member, "ReplacingRootVolume")
            self.hooks.wait_for(member, TERMINATING, "ReplacingRootVolume:Wait", self._root_volume_proceeds)

    def _root_volume_proceeds(self, member: Member, abandoned: bool) -> None:
        """A root volume that cannot be replaced costs the instance (user guide, replace-root-volume)."""
        member.destination = "EC2"
        if abandoned:
            self.terminate(member, "its root volume was not replaced", replace=True)
            return
        self.move(member, "ReplacingRootVolume:Proceed")
        self.later(member, self.timings.root_volume, self._root_volume_replaced)

    def _root_volume_replaced(self, member: Member) -> None:
        self.move(member, "RootVolumeReplaced")
        self.put_into_service(member)

    def recommend_rebalance(self, instance_id: str) -> None:
        """EC2 notices that a Spot instance is at an elevated risk of interruption. With Capacity Rebalancing its group launches
        another one, and terminates the old one when the new one is in service (user guide, "Capacity Rebalancing").
        """
        with LOCK:
            self._emit("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": instance_id}, [])
            member = self.member(instance_id)
            if member is None or not member.group.capacity_rebalance:
                return
            if member.lifecycle_state == "InService":
                launched = self.launch_surplus(member.group)
                if launched is not None:
                    launched.rebalances = member
            elif member.lifecycle_state in ON_STANDBY and self.unknowns.capacity_rebalancing_ends_standby:
                self._end_rebalanced(member)

    def _end_rebalanced(self, member: Member) -> None:
        """Its replacement is in service, so it does not count while it waits for a hook."""
        member.unreplaced = False
        cause = "an instance was taken out of service in response to a rebalance recommendation"
        self.terminate(member, cause, replace=True, counts=False)

    def _reset(self) -> None:
        """The backend is empty already; brings back what was deployed."""
        self.timings, self.unknowns = Timings(), Unknowns()
        for book in (self.refreshes, self.supply, self.activities, self._pending_timers):
            book.clear()
        self.hooks.restore()

    # Capacity

    def reconcile(self, group: Group) -> None:
        """Launches what is missing, terminates what is too much."""
        if group.name not in self.backend.autoscaling_groups:
            return
        missing = self._count_missing(group)
        if missing > 0 and not is_suspended(group, "Launch"):
            for _ in range(missing):
                if self.launch(group) is None:
                    break
        self.trim(group)
        self._watch_balance(group)

    def _count_missing(self, group: Group) -> int:
        """Returns how many members it lacks; less than zero if it has too many."""
        counted = [m for m in group.instance_states if (m.lifecycle_state in COUNTED and not m.surplus) or m.counts_until_proceed]
        unreplaced = sum(m.unreplaced for m in group.instance_states)
        return group.desired_capacity - len(counted) - unreplaced

    def trim(self, group: Group) -> None:
        """Terminates what is too much, as far as the members may be chosen."""
        if is_suspended(group, "Terminate"):
            return
        for _ in range(-self._count_missing(group)):
            victim = choose_victim(group, self.zones_of(group))
            if victim is None:
                break
            self.terminate(victim, "instance was selected for termination", replace=False)

    def _watch_balance(self, group: Group) -> None:
        """AZRebalance: launches in the emptiest zone first, then terminates in the fullest (user guide, "Rebalancing
        activities").
        """
        if is_unbalanced(group, self.zones_of(group)):
            self._once(group, "rebalance", self.timings.rebalance, self._rebalance)

    def _rebalance(self, group: Group) -> None:
        blocked = is_suspended(group, "Launch") or is_suspended(group, "Terminate")
        if is_unbalanced(group, self.zones_of(group)) and not blocked:
            self.launch_surplus(group)

    def zones_of(self, group: Group) -> dict[str, int]:
        """Returns the number of members in each of its zones."""
        return count_by_zone(group, self.unknowns.standby_counts_for_zone_balance)

    # Launching

    def launch(self, group: Group) -> Member | None:
        zones = self.zones_of(group)
        if self.supply.is_full(group):
            self._launch_failed(group, RESERVATION_FULL, emptiest_subnet(self.ec2, group, zones))
            return None
        launch = self.supply.next_launch(group)
        subnet = emptiest_subnet(self.ec2, group, zones, launch.zone)
        if launch.failure is not None:
            self._launch_failed(group, launch.failure.format(zone=subnet.availability_zone), subnet)
            return None
        member = self._take_warm(group, launch) or self.supply.run_instance(group, launch, subnet)
        member.activity = self.activities.begin(
            group,
            f"Launching a new EC2 instance: {member.instance_id}",
            "an instance was started in response to a difference between desired and actual capacity",
            member,
        )
        for listener in list(self.on_launching):
            listener(member)
        if not launch.never_comes_up:
            seconds = self.timings.launch if launch.seconds is None else launch.seconds
            self.later(member, seconds, self._runs)
        return member

    def _take_warm(self, group: Group, launch: Launch) -> Member | None:
        """An instance of the warm pool that begins to run, if there is one."""
        member = self.supply.take_warm(group)
        if member is None:
            return None
        member.launch = launch
        group.instance_states.append(member)
        self.move(member, "Pending")
        self.ec2.change(member.instance, "pending")
        return member

    def launch_surplus(self, group: Group) -> Member | None:
        """One more than desired; the group trims itself when it is in service."""
        launched = None if is_suspended(group, "Launch") else self.launch(group)
        if launched is not None:
            launched.surplus = True
        return launched

    def _launch_failed(self, group: Group, message: str, subnet: Any) -> None:
        self.activities.launch_failed(group, message, subnet)
        self._once(group, "launch again", self.timings.launch_retry, self.reconcile)

    def _runs(self, member: Member) -> None:
        if member.instance._state.name == "pending":
            self.ec2.change(member.instance, "running")
        self.hooks.wait_for(member, LAUNCHING, "Pending:Wait", self._launch_proceeds)

    def _launch_proceeds(self, member: Member, abandoned: bool) -> None:
        if abandoned:
            self.terminate(member, "the launch was abandoned by a lifecycle hook", replace=True)
            return
        if member.lifecycle_state == "Pending:Wait":
            self.move(member, "Pending:Proceed")
        self.put_into_service(member)

    def put_into_service(self, member: Member) -> None:
        group = member.group
        self.move(member, "InService")
        member.surplus = False
        if member.activity is not None:
            self.activities.finish(member.activity, "Successful")
            if member.activity["Description"].startswith("Launching"):
                self.activities.emit_outcome("EC2 Instance Launch Successful", member, member.activity)
            member.activity = None
        register_targets(member)
        for listener in list(self.on_in_service):
            listener(member)
        if member.instance._state.name != "running":
            self.watch_health(member)
        if member.returned:
            group.desired_capacity -= 1
        old, member.rebalances = member.rebalances, None
        if old is not None and old.lifecycle_state == "InService":
            self._end_rebalanced(old)
        self.reconcile(group)
        member.returned = False

    # Terminating

    def terminate(self, member: Member, cause: str, replace: bool, counts: bool = True) -> dict[str, Any]:
        """Starts a termination: out of the balancers first, then the hooks, then the instance.

        `counts` is False if the desired capacity went down for it, or its replacement is there already.
        """
        group = member.group
        member.stop_waiting()
        was_counted = member.lifecycle_state in COUNTED and not member.surplus
        waits = self.unknowns.terminating_wait_counts and self.hooks.hold_terminations(group)
        member.counts_until_proceed = waits and replace and counts and was_counted
        member.destination = "EC2"
        member.activity = self.activities.begin(group, f"Terminating EC2 instance: {member.instance_id}", cause, member)
        self.move(member, "Terminating")
        delay = deregister_targets(member, self.timings.deregistration)
        if delay:
            self.later(member, delay, self._terminate_hooks)
        else:
            self._terminate_hooks(member)
        if replace:
            self.reconcile(group)
        return member.activity

    def _terminate_hooks(self, member: Member) -> None:
        self.hooks.wait_for(member, TERMINATING, "Terminating:Wait", self._termination_proceeds)

    def _termination_proceeds(self, member: Member, abandoned: bool) -> None:
        if member.lifecycle_state == "Terminating:Wait":
            self.move(member, "Terminating:Proceed")
        if abandoned and retains(member.group) and member.instance._state.name != "terminated":
            self.later(member, self.timings.retain, self._retain)
            return
        if member.counts_until_proceed:
            member.counts_until_proceed = False
            self.reconcile(member.group)
        self._shut_down(member)

    def _retain(self, member: Member) -> None:
        """When a member enters a retained state, the group "launches a replacement" (user guide, manage-retained-instances)."""
        member.counts_until_proceed = False
        self.move(member, "Terminating:Retained")
        self.reconcile(member.group)

    def _shut_down(self, member: Member) -> None:
        """EC2 terminates it; `_instance_changed` takes it out of the group when that is done."""
        if member.instance._state.name == "terminated":
            self._gone(member)
        else:
            self.ec2.backend.terminate_instances([member.instance_id])

    def _gone(self, member: Member) -> None:
        group = member.group
        member.stop_waiting()
        member.counts_until_proceed = False
        self.move(member, "Terminated")
        self.drop(member)
        if member.activity is not None:
            self.activities.finish(member.activity, "Successful")
            self.activities.emit_outcome("EC2 Instance Terminate Successful", member, member.activity)
        for listener in list(self.on_terminated):
            listener(member)
        self.reconcile(group)

    def drop(self, member: Member) -> None:
        member.group.instance_states = [m for m in member.group.instance_states if m is not member]

    # Health

    def _instance_changed(self, instance: Instance, old: str, new: str) -> None:
        """EC2 reports that an instance has changed its state, whatever the cause."""
        member = self.member(instance.id)
        if member is None:
            return
        if new == "terminated" and member.lifecycle_state in ("Terminating", "Terminating:Proceed"):
            self._gone(member)
        elif new in ("shutting-down", "stopping"):
            self.watch_health(member)

    def watch_health(self, member: Member) -> None:
        def check() -> None:
            with LOCK:
                self._check_health(member)

        self.clock.after(self.timings.health_check, check)

    def _check_health(self, member: Member) -> None:
        """Health checks do not reach Standby: a dead instance stays listed there. Elsewhere it is replaced."""
        group = member.group
        runs = member.instance._state.name in ("pending", "running")
        if member not in group.instance_states or runs or is_suspended(group, "HealthCheck"):
            return
        if member.lifecycle_state in COUNTED:
            member.health_status = "Unhealthy"
            self.replace_unhealthy(member)
        elif member.lifecycle_state in ("Terminating:Wait", "Terminating:Retained"):
            member.stop_waiting()
            self._shut_down(member)

    def replace_unhealthy(self, member: Member) -> None:
        if not is_suspended(member.group, "ReplaceUnhealthy"):
            self.terminate(
                member,
                "an instance was taken out of service in response to an EC2 health check indicating it has been "
                "terminated or stopped",
                replace=True,
            )

    # Moving on

    def move(self, member: Member, state: str) -> None:
        old, member.lifecycle_state = member.lifecycle_state, state
        for listener in list(self.on_state_change):
            listener(member, old, state)

    def later(self, member: Member, seconds: float, then: Callable[[Member], None]) -> None:
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
