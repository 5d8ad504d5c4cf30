"""Questions about lifecycle hooks and retained members."""

from __future__ import annotations

from collections.abc import Generator

from probe.group import Group
from probe.question import Answer, Play, Setup, question
from probe.questions.standby import RELIED_ON

HOOKED = Setup(hook=600)
RETAINING = Setup(hook=600, retains=True)
#: Seconds between two looks where a state may last only a moment.
CLOSE_CHECK = 2.0


def until_waiting(group: Group) -> Generator[float, None, str]:
    """Terminates a member and waits until the hook holds it. Returns the member."""
    member, *_ = yield from group.until_in_service(group.setup.desired)
    group.terminate(member)
    yield from group.until_in(member, "Terminating:Wait")
    return member


@question(
    asks="A member in Terminating:Wait: does it count, so that its replacement comes only when the hook is over?",
    row=27,
    expected=False,
    answers={
        False: Answer("The replacement came at once.", RELIED_ON),
        True: Answer("No replacement came in four minutes.", "docs/hooks.md: the group has one member less during the drain."),
    },
    switch="terminating_wait_counts",
    setup=HOOKED,
    instances=3,
    minutes=9,
)
def replacement_of_a_waiting_member(group: Group) -> Play:
    yield from group.until_in_service(2)
    before = group.mark()
    yield from until_waiting(group)
    yield from group.watch(ends_early=lambda: bool(group.launched(before)))
    return not group.launched(before)


@question(
    asks="A second TerminateInstanceInAutoScalingGroup on a member in Terminating:Wait: what happens?",
    row=15,
    expected="unchanged",
    answers={
        "unchanged": Answer("AWS accepted it, and the member still waits.", RELIED_ON),
        "ends": Answer("AWS accepted it, and the member ends.", "A termination by an operator ends the drain. Document it."),
        "refused": Answer("AWS refused it.", "The product must read the refusal as a member that already leaves."),
    },
    setup=HOOKED,
    instances=3,
    minutes=6,
)
def terminate_a_waiting_member(group: Group) -> Play:
    member = yield from until_waiting(group)
    if group.try_terminate(member) is not None:
        return "refused"
    yield from group.watch(60, ends_early=lambda: group.states.get(member) != "Terminating:Wait")
    return "unchanged" if group.states.get(member) == "Terminating:Wait" else "ends"


@question(
    asks="TerminateInstanceInAutoScalingGroup on a member whose hook was completed: is it accepted, and does the member end?",
    row=15,
    expected="ends",
    answers={
        "ends": Answer("AWS accepted it, and the member ended.", RELIED_ON),
        "refused": Answer("AWS refused it, and the member ended.", "Read the refusal as a member that already leaves."),
        "gone": Answer("The member was gone before the call.", "None. The question needs another attempt."),
    },
    setup=HOOKED,
    instances=3,
    minutes=6,
)
def terminate_a_proceeding_member(group: Group) -> Play:
    member = yield from until_waiting(group)
    group.complete_hook(member, "CONTINUE")
    yield from group.watch(20, lambda: group.states.get(member) != "Terminating:Wait", every=CLOSE_CHECK)
    if member not in group.states:
        return "gone"
    refusal = group.try_terminate(member)
    yield from group.until_gone(member)
    return "ends" if refusal is None else "refused"


@question(
    asks="A heartbeat: does it restart the time-out of the hook, and does the hook end with its default after that?",
    row=21,
    expected=True,
    answers={
        True: Answer("The heartbeat restarted the time-out. Without another one the member went.", RELIED_ON),
        False: Answer(
            "The member went although a heartbeat came, or it stayed without one.", "The hook path cannot hold a node."
        ),
    },
    setup=Setup(hook=120),
    instances=3,
    minutes=8,
)
def heartbeat(group: Group) -> Play:
    member = yield from until_waiting(group)
    yield from group.watch(80)
    group.call("record_lifecycle_action_heartbeat", LifecycleHookName="probe", InstanceId=member)
    yield from group.watch(80)
    held = group.states.get(member) == "Terminating:Wait"
    yield from group.watch(120, ends_early=lambda: group.states.get(member) != "Terminating:Wait")
    return held and group.states.get(member) != "Terminating:Wait"


@question(
    asks="ABANDON where the group retains instances: which states does the member have?",
    row=26,
    expected="Terminating:Wait, Terminating:Proceed, Terminating:Retained",
    answers={
        "Terminating:Wait, Terminating:Proceed, Terminating:Retained": Answer("It went through Terminating:Proceed.", RELIED_ON),
        "Terminating:Wait, Terminating:Retained": Answer(
            "It went from Wait to Retained directly, or through Proceed in less than two seconds.",
            "None. Pre-flight need not drain a member in Terminating:Proceed.",
        ),
    },
    setup=RETAINING,
    instances=3,
    minutes=6,
)
def path_to_retained(group: Group) -> Play:
    member = yield from until_waiting(group)
    group.complete_hook(member, "ABANDON")
    yield from group.until_in(member, "Terminating:Retained", every=CLOSE_CHECK)
    states = group.states_of(member)
    return ", ".join(states[states.index("Terminating:Wait") :])


@question(
    asks="A member in Terminating:Retained: can it be terminated with decrement, and does it wait for the hook again?",
    row=12,
    expected="waits again",
    answers={
        "waits again": Answer("With decrement AWS refused it. Without, the instance waited for the hook again.", RELIED_ON),
        "ends at once": Answer(
            "With decrement AWS refused it. Without, the instance ended at once.",
            "One command ends a retained instance: shorten docs/hooks.md and the printed commands.",
        ),
        "with decrement": Answer(
            "AWS accepted the termination with decrement.", "Terminating a retained member can cost capacity."
        ),
        "neither": Answer("AWS refused both.", "End retained instances by EC2's TerminateInstances."),
    },
    setup=RETAINING,
    instances=3,
    minutes=9,
)
def terminate_a_retained_member(group: Group) -> Play:
    member = yield from until_retained(group)
    if group.try_terminate(member, decrement=True) is None:
        return "with decrement"
    if group.try_terminate(member) is not None:
        return "neither"
    waits_or_went = (None, "Terminating:Wait")
    yield from group.until(f"{member} waits or is gone", lambda: group.states.get(member) in waits_or_went, every=CLOSE_CHECK)
    if member not in group.states:
        return "ends at once"
    group.complete_hook(member, "CONTINUE")
    yield from group.until_gone(member)
    return "waits again"


@question(
    asks="A member in Terminating:Retained: does it count towards the desired capacity?",
    row=25,
    expected=False,
    answers={
        False: Answer("The group has its desired number of members beside it, and keeps it.", RELIED_ON),
        True: Answer("The group has one member less in service.", "A retained node is not replaced: raise the desired capacity."),
    },
    setup=RETAINING,
    instances=3,
    minutes=10,
)
def counting_of_a_retained_member(group: Group) -> Play:
    member = yield from until_retained(group)
    yield from group.watch()
    return not (len(group.in_service) == 2 and group.desired == 2 and group.states.get(member) == "Terminating:Retained")


def until_retained(group: Group) -> Generator[float, None, str]:
    member = yield from until_waiting(group)
    group.complete_hook(member, "ABANDON")
    yield from group.until_in(member, "Terminating:Retained")
    return member
