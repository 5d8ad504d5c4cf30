"""Questions about members in Standby."""

from __future__ import annotations

from probe.group import Group
from probe.question import Answer, Play, Setup, question

RELIED_ON = "None. The product relies on it."


@question(
    asks="EnterStandby when the desired capacity is the maximum: does the group launch a replacement?",
    row=2,
    expected=True,
    answers={
        True: Answer("The group launched a replacement.", RELIED_ON),
        False: Answer(
            "The group launched nothing.",
            "If the desired capacity is the maximum, raise the maximum by 1, or use replacement: after.",
        ),
    },
    switch="enter_standby_at_max_launches",
    setup=Setup(maximum=2),
    instances=3,
    minutes=7,
)
def enter_standby_at_maximum(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    before = group.mark()
    group.enter_standby(old)
    yield from group.watch(ends_early=lambda: bool(group.launched(before)))
    return bool(group.launched(before))


@question(
    asks="TerminateInstanceInAutoScalingGroup without decrement on a member in Standby: does the group launch one too many?",
    row=10,
    expected=False,
    answers={
        False: Answer("The member ended. The group launched nothing.", RELIED_ON),
        True: Answer(
            "The group launched one more instance.",
            "The group then ends a member that was not drained. Protect the other members while the instance is disposed of.",
        ),
    },
    switch="terminate_from_standby_launches_extra",
    instances=4,
    minutes=10,
)
def terminate_from_standby(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    yield from group.until_standby(old)
    before = group.mark()
    group.terminate(old)
    yield from group.watch(ends_early=lambda: bool(group.launched(before)))
    return bool(group.launched(before))


@question(
    asks="DetachInstances without decrement on a member in Standby: does the group end another member for it?",
    row=19,
    expected=False,
    answers={
        False: Answer("No other member ended before a launch.", RELIED_ON),
        True: Answer(
            "The group ended another member.",
            "Without protection, dispose: detach costs a member that was not drained. The product protects the others.",
        ),
    },
    switch="detach_from_standby_kills_another",
    instances=4,
    minutes=10,
)
def detach_from_standby(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    yield from group.until_standby(old)
    before = group.mark()
    group.call("detach_instances", InstanceIds=[old], ShouldDecrementDesiredCapacity=False)

    def others() -> list[str]:
        return [each for each in group.ended(before) if each != old]

    # A group with one member too many ends one as well, but only when the new one is in service.
    def has_trimmed() -> bool:
        return any(group.states.get(new) == "InService" for new in group.launched(before))

    yield from group.watch(ends_early=lambda: bool(others()) or has_trimmed())
    return bool(others()) and not has_trimmed()


@question(
    asks="DetachInstances without decrement on a member in Standby, the others protected: does the group launch one too many?",
    row=19,
    expected=False,
    answers={
        False: Answer("The group launched nothing.", RELIED_ON),
        True: Answer(
            "The group launched one more instance, although all others were protected.",
            "Keep the protection until the group has ended the extra instance.",
        ),
    },
    switch="detach_from_standby_launches_extra",
    instances=4,
    minutes=10,
)
def detach_from_standby_with_protection(group: Group) -> Play:
    old, other = yield from group.until_in_service(2)
    new = yield from group.until_standby(old)
    group.call("set_instance_protection", InstanceIds=[other, new], ProtectedFromScaleIn=True)
    before = group.mark()
    group.call("detach_instances", InstanceIds=[old], ShouldDecrementDesiredCapacity=False)
    yield from group.watch(ends_early=lambda: bool(group.launched(before)))
    return bool(group.launched(before))


@question(
    asks="ExitStandby when the group then has one member more: does the group end another member?",
    row=6,
    expected=True,
    answers={
        True: Answer(
            "The group ended another member, and lowered its desired capacity again.",
            "None. A restore protects the other members, and raises the capacity again.",
        ),
        False: Answer("All members stayed. The desired capacity is one higher.", "None. A restore lowers it where it can."),
    },
    switch="exit_standby_trims",
    instances=3,
    minutes=10,
)
def exit_standby_with_surplus(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    yield from group.until_standby(old)
    before = group.mark()
    group.call("exit_standby", InstanceIds=[old])
    yield from group.until_in(old, "InService")
    yield from group.watch(ends_early=lambda: bool(group.ended(before)))
    return bool(group.ended(before))


@question(
    asks="ExitStandby when the desired capacity is the maximum: is it refused?",
    row=7,
    expected=True,
    answers={
        True: Answer("AWS refused it.", RELIED_ON),
        False: Answer("AWS accepted it.", "The restore need not raise the maximum, nor leave such a node in Standby."),
    },
    setup=Setup(maximum=2),
    instances=3,
    minutes=5,
)
def exit_standby_at_maximum(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    group.enter_standby(old)
    yield from group.until_in(old, "Standby")
    return group.try_call("exit_standby", InstanceIds=[old]) is not None


@question(
    asks="SetInstanceProtection on a member in Standby: is it accepted?",
    row=16,
    expected=True,
    answers={
        True: Answer("AWS accepted it.", RELIED_ON),
        False: Answer("AWS refused it.", "Protect a member before it enters Standby, and not later."),
    },
    instances=3,
    minutes=5,
)
def protect_in_standby(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    group.enter_standby(old)
    yield from group.until_in(old, "Standby")
    return group.try_call("set_instance_protection", InstanceIds=[old], ProtectedFromScaleIn=True) is None


@question(
    asks="Members in Standby: do they count for the balance of zones?",
    row=4,
    expected=False,
    answers={
        False: Answer("The group launched an instance in the zone without members in service.", "AZRebalance can move members."),
        True: Answer("The group launched nothing.", "AZRebalance need not be suspended while a member is in Standby."),
    },
    switch="standby_counts_for_zone_balance",
    setup=Setup(minimum=0, desired=4, maximum=6, zones=2),
    instances=5,
    minutes=20,
)
def zone_balance(group: Group) -> Play:
    yield from group.until_in_service(4)
    zone = min(group.zones.values())
    before = group.mark()
    group.enter_standby(*(each for each in group.in_service if group.zones[each] == zone), decrement=True)
    yield from group.watch(900, ends_early=lambda: bool(group.launched(before)))
    return not group.launched(before)
