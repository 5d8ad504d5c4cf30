"""A question about events."""

from __future__ import annotations

from probe.group import HOOK, Group
from probe.question import Answer, Play, Setup, question
from probe.questions.hooks import until_waiting
from probe.questions.standby import RELIED_ON

#: The fields that the rule of a lifecycle hook reads (terraform/hooks.tf).
READ = {
    "LifecycleHookName": HOOK,
    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    "Origin": "AutoScalingGroup",
    "Destination": "EC2",
}
#: The kinds of events that a termination with a hook causes.
KINDS = {"EC2 Instance-terminate Lifecycle Action", "EC2 Instance Terminate Successful"}


@question(
    asks="A termination with a hook: which events arrive, and do they have the fields that the product reads?",
    row=29,
    expected="as documented",
    answers={
        "as documented": Answer("The events of the hook and of the end arrived with all these fields.", RELIED_ON),
        "other fields": Answer(
            "The event of the hook has other fields.", "The rule of the hook starts nothing: change hooks.tf."
        ),
        "missing": Answer("Not all events arrived.", "The sweep finds the members, half an hour later."),
    },
    setup=Setup(minimum=1, desired=1, maximum=2, hook=600),
    instances=2,
    minutes=7,
)
def events_of_a_termination(group: Group) -> Play:
    member = yield from until_waiting(group)
    yield from group.watch(15)
    group.complete_hook(member, "CONTINUE")
    yield from group.until_gone(member)
    yield from group.watch(60, ends_early=lambda: {event["detail-type"] for event in group.events()} >= KINDS)
    came = {event["detail-type"]: event["detail"] for event in group.events() if event["detail"]["EC2InstanceId"] == member}
    if not came.keys() >= KINDS:
        return "missing"
    detail = came["EC2 Instance-terminate Lifecycle Action"]
    return "as documented" if READ.items() <= detail.items() else "other fields"
