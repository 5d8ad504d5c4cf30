"""Lifecycle hooks: their settings, members that wait for them, heartbeats, completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import LifecycleHook

from world.aws.autoscaling.model import TERMINATING, Group, Member, Wait, autoscaling_backend, find_group
from world.aws.ec2 import Emit
from world.aws.moto_internals import LOCK
from world.base.clock import Clock

# "48 hours or 100 times the heartbeat timeout, whichever is smaller": PutLifecycleHook API reference.
LONGEST_HOOK = 48 * 3600
MOST_HEARTBEATS = 100

#: The operations of the API that `Hooks` answers.
OPERATIONS = (
    "put_lifecycle_hook",
    "describe_lifecycle_hooks",
    "delete_lifecycle_hook",
    "complete_lifecycle_action",
    "record_lifecycle_action_heartbeat",
)


class Hooks:
    """The hooks of all groups. `move(member, state)` changes the lifecycle state of a member."""

    def __init__(self, clock: Clock, emit: Emit, move: Callable[[Member, str], None]):
        self._clock = clock
        self._emit = emit
        self._move = move
        self._deployed: dict[str, LifecycleHook] = {}

    def remember(self) -> None:
        """Call it after a deployment: its lifecycle hooks come back at each reset, for groups of the same name."""
        with LOCK:
            self._deployed = dict(autoscaling_backend().lifecycle_hooks)

    def restore(self) -> None:
        """Restores the remembered hooks in an empty account."""
        autoscaling_backend().lifecycle_hooks.update(self._deployed)

    def forget(self, group: Group) -> None:
        """Deletes the hooks of a deleted group."""
        hooks = autoscaling_backend().lifecycle_hooks
        for key, hook in list(hooks.items()):
            if hook.auto_scaling_group_name == group.name:
                del hooks[key]

    def _of(self, group: Group, transition: str) -> list[LifecycleHook]:
        return [
            hook
            for hook in autoscaling_backend().lifecycle_hooks.values()
            if hook.auto_scaling_group_name == group.name and hook.lifecycle_transition == transition
        ]

    def hold_terminations(self, group: Group) -> bool:
        """Checks whether a termination in the group waits for a hook."""
        return bool(self._of(group, TERMINATING))

    def wait_for(self, member: Member, transition: str, state: str, then: Callable[[Member, bool], None]) -> None:
        """Starts all hooks of a transition. Calls `then(member, abandoned)` when all are complete or one is abandoned."""
        member.proceed = then
        hooks = self._of(member.group, transition)
        if not hooks:
            then(member, False)
            return
        self._move(member, state)
        for hook in hooks:
            wait = Wait(hook, self._clock.now())
            member.waits[hook.name] = wait
            self._expect_heartbeat(member, wait)
            self._send_event(member, wait)

    def _expect_heartbeat(self, member: Member, wait: Wait) -> None:
        """(Re)starts the heartbeat, never beyond the hook's global time-out."""
        if wait.timer is not None:
            wait.timer.cancel()
        left = wait.ends - self._clock.now()
        seconds = min(wait.hook.heartbeat_timeout, left)

        def expire() -> None:
            with LOCK:
                if member.waits.get(wait.hook.name) is wait:
                    self.done(member, wait, wait.hook.default_result)

        wait.timer = self._clock.after(seconds, expire)

    def done(self, member: Member, wait: Wait, result: str) -> None:
        """ABANDON "stops any remaining actions, such as other lifecycle hooks", CONTINUE lets them complete (user
        guide).
        """
        wait.timer.cancel()
        del member.waits[wait.hook.name]
        if result == "ABANDON":
            member.stop_waiting()
            member.proceed(member, True)
        elif not member.waits:
            member.proceed(member, False)

    def _send_event(self, member: Member, wait: Wait) -> None:
        terminating = wait.hook.lifecycle_transition == TERMINATING
        detail = {
            "LifecycleActionToken": wait.token,
            "AutoScalingGroupName": member.group.name,
            "LifecycleHookName": wait.hook.name,
            "EC2InstanceId": member.instance_id,
            "LifecycleTransition": wait.hook.lifecycle_transition,
            "Origin": "AutoScalingGroup" if terminating else "EC2",
            "Destination": member.destination if terminating else "AutoScalingGroup",
        }
        if wait.hook.notification_metadata:
            detail["NotificationMetadata"] = wait.hook.notification_metadata
        kind = "terminate" if terminating else "launch"
        self._emit("aws.autoscaling", f"EC2 Instance-{kind} Lifecycle Action", detail, [member.group.arn])

    # The API. Each method takes the parameters as AWS names them and returns the answer as AWS names it.

    def put_lifecycle_hook(self, parameters: dict[str, Any]) -> None:
        group = find_group(parameters["AutoScalingGroupName"])
        key = f"{group.name}_{parameters['LifecycleHookName']}"
        hook = autoscaling_backend().lifecycle_hooks.get(key)
        if hook is None:
            hook = LifecycleHook(parameters["LifecycleHookName"], group.name, parameters.get("LifecycleTransition"), None, None)
            hook.role_arn = hook.notification_target_arn = hook.notification_metadata = None
            autoscaling_backend().lifecycle_hooks[key] = hook
        hook.lifecycle_transition = parameters.get("LifecycleTransition", hook.lifecycle_transition)
        hook.heartbeat_timeout = int(parameters.get("HeartbeatTimeout", hook.heartbeat_timeout))
        hook.default_result = parameters.get("DefaultResult", hook.default_result)
        hook.role_arn = parameters.get("RoleARN", hook.role_arn)
        hook.notification_target_arn = parameters.get("NotificationTargetARN", hook.notification_target_arn)
        hook.notification_metadata = parameters.get("NotificationMetadata", hook.notification_metadata)
        hook.global_timeout = min(LONGEST_HOOK, MOST_HEARTBEATS * hook.heartbeat_timeout)

    def describe_lifecycle_hooks(self, parameters: dict[str, Any]) -> dict[str, Any]:
        name = parameters["AutoScalingGroupName"]
        # Terraform also reads the deployment's hooks in scenarios without their groups.
        if all(hook.auto_scaling_group_name != name for hook in self._deployed.values()):
            name = find_group(name).name
        return {"LifecycleHooks": autoscaling_backend().describe_lifecycle_hooks(name, parameters.get("LifecycleHookNames"))}

    def delete_lifecycle_hook(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """A hook that is deleted while an instance waits for it is completed with CONTINUE if the instance terminates, and with
        ABANDON if it launches, whatever its default (API reference, DeleteLifecycleHook)."""
        group, name = find_group(parameters["AutoScalingGroupName"]), parameters["LifecycleHookName"]
        autoscaling_backend().lifecycle_hooks.pop(f"{group.name}_{name}", None)
        for member in list(group.instance_states):
            if name in member.waits:
                wait = member.waits[name]
                self.done(member, wait, "CONTINUE" if wait.hook.lifecycle_transition == TERMINATING else "ABANDON")
        return {}

    def complete_lifecycle_action(self, parameters: dict[str, Any]) -> dict[str, Any]:
        result = parameters["LifecycleActionResult"]
        if result not in ("CONTINUE", "ABANDON"):
            raise ValidationError(f"Invalid value {result} for LifecycleActionResult: it must be CONTINUE or ABANDON.")
        member, wait = self._waiting(parameters)
        self.done(member, wait, result)
        return {}

    def record_lifecycle_action_heartbeat(self, parameters: dict[str, Any]) -> dict[str, Any]:
        self._expect_heartbeat(*self._waiting(parameters))
        return {}

    def _waiting(self, parameters: dict[str, Any]) -> tuple[Member, Wait]:
        """The hook that waits, "for the specified token or instance"."""
        group = find_group(parameters["AutoScalingGroupName"])
        token, instance_id = parameters.get("LifecycleActionToken"), parameters.get("InstanceId")
        for member in group.instance_states:
            wait = member.waits.get(parameters["LifecycleHookName"])
            if wait is not None and (wait.token == token if token else member.instance_id == instance_id):
                return member, wait
        by = f"token {token}" if token else f"instance ID {instance_id}"
        raise ValidationError(f"No active Lifecycle Action found with {by}")
