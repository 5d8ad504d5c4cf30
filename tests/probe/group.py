"""One Auto Scaling group of the probe: its calls, and what was seen of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from probe.account import Account
from probe.inbox import Inbox
from probe.question import Setup

#: Seconds between two checks of a group.
CHECK = 15.0
#: Seconds in which a group does what it is going to do: a launch or a termination after a call.
WATCH = 240.0
#: Seconds until a member is in service, in Standby, or gone.
PATIENCE = 480.0
#: The hook of the groups that have one.
HOOK = "probe"
#: Beginnings of the states of a member that leaves.
LEAVING = ("Terminating", "Detaching", "Terminated", "gone")

Steps = Generator[float, None, Any]


class NotAnswered(Exception):
    """The play could not be played to its end."""


@dataclass(frozen=True)
class Seen:
    """A change between two descriptions of the group. `at` is in seconds since the group was created."""

    at: float
    instance: str
    state: str


class Group:
    """`see` takes the answer of DescribeAutoScalingGroups. Calls are made at once, and waits are yielded."""

    def __init__(self, account: Account, name: str, setup: Setup, inbox: Inbox | None = None) -> None:
        self.account, self.name, self.setup, self._inbox = account, name, setup, inbox
        self.began = account.clock.now()
        self.desired = setup.desired
        #: Instance id -> lifecycle state, in the order in which they were first seen.
        self.states: dict[str, str] = {}
        self.zones: dict[str, str] = {}
        self.history: list[Seen] = []
        #: The calls of the play and the answers of AWS, for the report.
        self.calls: list[dict[str, Any]] = []

    # What was seen

    def elapsed(self) -> float:
        return self.account.clock.now() - self.began

    def see(self, described: dict[str, Any]) -> None:
        self.desired = described["DesiredCapacity"]
        now = {each["InstanceId"]: each["LifecycleState"] for each in described["Instances"]}
        self.zones.update({each["InstanceId"]: each["AvailabilityZone"] for each in described["Instances"]})
        gone = [instance for instance in self.states if instance not in now]
        for instance, state in [*now.items(), *((instance, "gone") for instance in gone)]:
            if self.states.get(instance) != state:
                self.history.append(Seen(self.elapsed(), instance, state))
        order = [*(each for each in self.states if each in now), *(each for each in now if each not in self.states)]
        self.states = {instance: now[instance] for instance in order}

    @property
    def in_service(self) -> list[str]:
        return [instance for instance, state in self.states.items() if state == "InService"]

    def mark(self) -> int:
        """Marks this moment of the history, for `launched` and `ended`. A time is not enough: two checks can have the same."""
        return len(self.history)

    def launched(self, mark: int) -> list[str]:
        """Returns the instances that were seen for the first time after the mark."""
        before = {seen.instance for seen in self.history[:mark]}
        return sorted({seen.instance for seen in self.history[mark:]} - before)

    def ended(self, mark: int) -> list[str]:
        """Returns the instances that began to leave the group after the mark."""
        before = {seen.instance for seen in self.history[:mark] if seen.state.startswith(LEAVING)}
        return sorted({seen.instance for seen in self.history[mark:] if seen.state.startswith(LEAVING)} - before)

    def states_of(self, instance: str) -> list[str]:
        return [seen.state for seen in self.history if seen.instance == instance]

    def activities(self) -> list[dict[str, Any]]:
        """Returns the activities, the oldest first."""
        answer = self.account.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=self.name, MaxRecords=100)
        return list(reversed(answer["Activities"]))

    def events(self) -> list[dict[str, Any]]:
        """Returns the events that EventBridge has delivered of this group."""
        return self._inbox.of(self.name) if self._inbox else []

    # Calls

    def call(self, operation: str, **parameters: Any) -> None:
        """Makes a call that AWS has to accept."""
        refusal = self.try_call(operation, **parameters)
        if refusal is not None:
            raise NotAnswered(f"{operation} was refused: {refusal}")

    def try_call(self, operation: str, **parameters: Any) -> str | None:
        """Returns AWS's refusal, or None if the call was accepted."""
        if operation != "terminate_instance_in_auto_scaling_group":
            parameters = {"AutoScalingGroupName": self.name, **parameters}
        made = {"at": round(self.elapsed(), 1), "call": operation, "parameters": parameters, "refusal": None}
        self.calls.append(made)
        try:
            getattr(self.account.client("autoscaling"), operation)(**parameters)
        except ClientError as error:
            made["refusal"] = f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
        return made["refusal"]

    def enter_standby(self, *instances: str, decrement: bool = False) -> None:
        self.call("enter_standby", InstanceIds=list(instances), ShouldDecrementDesiredCapacity=decrement)

    def try_terminate(self, instance: str, decrement: bool = False) -> str | None:
        return self.try_call(
            "terminate_instance_in_auto_scaling_group", InstanceId=instance, ShouldDecrementDesiredCapacity=decrement
        )

    def terminate(self, instance: str, decrement: bool = False) -> None:
        refusal = self.try_terminate(instance, decrement)
        if refusal is not None:
            raise NotAnswered(f"the termination was refused: {refusal}")

    def complete_hook(self, instance: str, result: str) -> None:
        self.call("complete_lifecycle_action", LifecycleHookName=HOOK, InstanceId=instance, LifecycleActionResult=result)

    # Waits

    def until(self, what: str, holds: Callable[[], bool], limit: float = PATIENCE, every: float = CHECK) -> Steps:
        """Waits until it holds. Fails after `limit` seconds."""
        end = self.elapsed() + limit
        while not holds():
            if self.elapsed() >= end:
                failed = [each.get("StatusMessage", "") for each in self.activities() if each["StatusCode"] == "Failed"]
                raise NotAnswered(f"not within {limit:.0f} s: {what}. {' '.join(failed[-1:])}".strip())
            yield every

    def watch(self, seconds: float = WATCH, ends_early: Callable[[], bool] = lambda: False, every: float = CHECK) -> Steps:
        """Looks for so long, or until there is nothing more to see."""
        end = self.elapsed() + seconds
        while self.elapsed() < end and not ends_early():
            yield every

    def until_in_service(self, count: int) -> Steps:
        """Returns the members in service."""
        yield from self.until(f"{count} members in service", lambda: len(self.in_service) == count)
        return self.in_service

    def until_in(self, instance: str, *states: str, every: float = CHECK) -> Steps:
        yield from self.until(f"{instance} in {' or '.join(states)}", lambda: self.states.get(instance) in states, every=every)

    def until_gone(self, instance: str) -> Steps:
        yield from self.until(f"{instance} gone", lambda: instance not in self.states)

    def until_standby(self, instance: str) -> Steps:
        """Moves a member to Standby and waits for its replacement. Returns the replacement."""
        before = set(self.states)
        count = len(self.in_service)
        self.enter_standby(instance)
        yield from self.until_in(instance, "Standby")
        yield from self.until_in_service(count)
        return next(each for each in self.in_service if each not in before)
