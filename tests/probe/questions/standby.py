"""Questions about members in Standby."""

from __future__ import annotations

from probe.group import Group
from probe.question import Answer, Play, Setup, question


@question(
    asks="Does TerminateInstanceInAutoScalingGroup without decrement on a member in Standby launch one instance too many?",
    row=10,
    expected=False,
    answers={
        False: Answer("The member ended. The group launched nothing.", "None: the product relies on it."),
        True: Answer(
            "The group launched one more instance.",
            "The group then ends a member that was not drained. Protect the other members while the instance is disposed of.",
        ),
    },
    switch="terminate_from_standby_launches_extra",
    instances=4,
    minutes=9,
)
def terminate_from_standby(group: Group) -> Play:
    old, _ = yield from group.until_in_service(2)
    yield from group.until_standby(old)
    before = group.elapsed()
    group.terminate(old)
    yield from group.watch(ends_early=lambda: bool(group.launched(before)))
    return bool(group.launched(before))
