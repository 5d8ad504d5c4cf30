"""Questions about terminations, sizes, and tags."""

from __future__ import annotations

from botocore.exceptions import ClientError

from probe.group import Group
from probe.question import Answer, Play, Setup, question
from probe.questions.standby import RELIED_ON

#: An instance that EC2 does not know.
UNKNOWN_INSTANCE = "i-0000000000000dead"


@question(
    asks="TerminateInstanceInAutoScalingGroup with decrement when the desired capacity is the minimum: is it refused?",
    row=14,
    expected=True,
    answers={
        True: Answer("AWS refused it.", RELIED_ON),
        False: Answer("AWS accepted it.", "Check the minimum before each termination with decrement."),
    },
    setup=Setup(minimum=1, desired=1, maximum=2),
    instances=1,
    minutes=3,
)
def terminate_at_minimum(group: Group) -> Play:
    (member,) = yield from group.until_in_service(1)
    return group.try_terminate(member, decrement=True) is not None


@question(
    asks="SetDesiredCapacity plus 1, then TerminateInstanceInAutoScalingGroup with decrement: is exactly this member replaced?",
    row=42,
    expected=True,
    answers={
        True: Answer("The new member came, the old one ended, and all others stayed.", "It can stand in for Standby."),
        False: Answer("The group launched or ended another instance.", "It cannot stand in for Standby."),
    },
    instances=3,
    minutes=9,
)
def surge_and_terminate(group: Group) -> Play:
    old, other = yield from group.until_in_service(2)
    group.call("set_desired_capacity", DesiredCapacity=3, HonorCooldown=False)
    yield from group.until_in_service(3)
    (new,) = (each for each in group.in_service if each not in (old, other))
    before = group.mark()
    group.terminate(old, decrement=True)
    yield from group.watch()
    return (group.desired, set(group.in_service), group.launched(before)) == (2, {other, new}, [])


@question(
    asks="CreateTags on a member and an instance that EC2 does not know: is the whole call refused?",
    row=38,
    expected=True,
    answers={
        True: Answer("AWS refused it, and the member has no tag.", RELIED_ON),
        False: Answer("AWS set the tag of the member.", "A refused call can have an effect: read the tags afterwards."),
    },
    setup=Setup(minimum=1, desired=1, maximum=1),
    instances=1,
    minutes=3,
)
def tags_of_an_unknown_instance(group: Group) -> Play:
    (member,) = yield from group.until_in_service(1)
    ec2 = group.account.client("ec2")
    try:
        ec2.create_tags(Resources=[member, UNKNOWN_INSTANCE], Tags=[{"Key": "recycle-eks-probe:seen", "Value": "yes"}])
    except ClientError as error:
        group.calls.append({"at": round(group.elapsed(), 1), "call": "create_tags", "refusal": str(error)})
    yield from group.watch(20)
    filters = [{"Name": "resource-id", "Values": [member]}, {"Name": "key", "Values": ["recycle-eks-probe:seen"]}]
    return not ec2.describe_tags(Filters=filters)["Tags"]
