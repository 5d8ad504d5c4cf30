"""Auto Scaling's rules, one table or scenario for each."""

from __future__ import annotations

import itertools
import json

import pytest
from botocore.exceptions import ClientError

from world.aws.account import Aws
from world.aws.autoscaling.api import install
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import LAUNCHING, TERMINATING, Launch
from world.aws.ec2 import Ec2
from world.base.clock import Clock

HOUR = 3600


class Account:
    """An account with one group, and what happened in it."""

    def __init__(self):
        self.clock = Clock()
        self.aws = Aws(self.clock)
        self.events = []
        self.ec2 = Ec2(self.aws, self.clock, self.emit)
        self.autoscaling = AutoScaling(self.aws, self.ec2, self.clock, self.emit)
        install(self.autoscaling)
        self.aws.start()

    def reset(self):
        self.clock.reset()
        self.aws.reset()
        self.events.clear()

    def emit(self, source, detail_type, detail, resources):
        self.events.append((self.clock.elapsed(), detail_type, detail))

    def client(self, service):
        return self.aws.client(service)

    def group(self, minimum=1, desired=2, maximum=3, zones="a", **settings):
        """A group whose members are in service. Its hour zero is the end of this."""
        ec2, autoscaling = self.client("ec2"), self.client("autoscaling")
        ec2.create_launch_template(
            LaunchTemplateName="workers", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "m5.large"}
        )
        subnets = {s["AvailabilityZone"][-1]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName="workers",
            MinSize=minimum,
            DesiredCapacity=desired,
            MaxSize=maximum,
            VPCZoneIdentifier=",".join(subnets[zone] for zone in zones),
            LaunchTemplate={"LaunchTemplateName": "workers", "Version": "$Latest"},
            **settings,
        )
        self.settle()
        return self

    def hook(self, name="drain", transition=TERMINATING, heartbeat=900, result="ABANDON", **settings):
        self.client("autoscaling").put_lifecycle_hook(
            AutoScalingGroupName="workers",
            LifecycleHookName=name,
            LifecycleTransition=transition,
            HeartbeatTimeout=heartbeat,
            DefaultResult=result,
            **settings,
        )
        return self

    def settle(self):
        """Lets everything happen that is under way, but what waits for a hook."""
        self.later(1000)

    def later(self, seconds):
        self.clock.run(limit=self.clock.elapsed() + seconds)

    def retain(self):
        self.client("autoscaling").update_auto_scaling_group(
            AutoScalingGroupName="workers",
            InstanceLifecyclePolicy={"RetentionTriggers": {"TerminateHookAbandon": "retain"}},
        )
        return self

    # The state of the account

    @property
    def described(self):
        return self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["workers"])["AutoScalingGroups"][0]

    @property
    def desired(self):
        return self.described["DesiredCapacity"]

    @property
    def states(self):
        """Instance id to lifecycle state, in the order in which they were launched."""
        return {i["InstanceId"]: i["LifecycleState"] for i in self.described["Instances"]}

    @property
    def state_list(self):
        return sorted(self.states.values())

    @property
    def ids(self):
        return list(self.states)

    def ec2_state(self, instance_id):
        return self.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["State"][
            "Name"
        ]

    def activities(self):
        return self.client("autoscaling").describe_scaling_activities(AutoScalingGroupName="workers")["Activities"]

    # Actions

    def enter_standby(self, *instances, decrement=False):
        return self.client("autoscaling").enter_standby(
            AutoScalingGroupName="workers", InstanceIds=list(instances), ShouldDecrementDesiredCapacity=decrement
        )

    def exit_standby(self, *instances):
        return self.client("autoscaling").exit_standby(AutoScalingGroupName="workers", InstanceIds=list(instances))

    def detach(self, *instances, decrement=False):
        return self.client("autoscaling").detach_instances(
            AutoScalingGroupName="workers", InstanceIds=list(instances), ShouldDecrementDesiredCapacity=decrement
        )

    def terminate(self, instance, decrement=False):
        return self.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=decrement
        )

    def protect(self, *instances, protected=True):
        self.client("autoscaling").set_instance_protection(
            AutoScalingGroupName="workers", InstanceIds=list(instances), ProtectedFromScaleIn=protected
        )

    def suspend(self, *processes):
        self.client("autoscaling").suspend_processes(AutoScalingGroupName="workers", ScalingProcesses=list(processes))

    def resume(self, *processes):
        self.client("autoscaling").resume_processes(AutoScalingGroupName="workers", ScalingProcesses=list(processes))

    def scale(self, desired):
        self.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=desired)

    def complete(self, instance=None, result="CONTINUE", hook="drain", **which):
        which = {"InstanceId": instance} if instance else which
        self.client("autoscaling").complete_lifecycle_action(
            AutoScalingGroupName="workers", LifecycleHookName=hook, LifecycleActionResult=result, **which
        )

    def heartbeat(self, instance, hook="drain"):
        self.client("autoscaling").record_lifecycle_action_heartbeat(
            AutoScalingGroupName="workers", LifecycleHookName=hook, InstanceId=instance
        )

    def standby(self):
        """The oldest member in Standby, its replacement in service; returns (old, other, replacement)."""
        old, other = self.ids[:2]
        self.enter_standby(old)
        self.settle()
        return old, other, self.ids[2]


@pytest.fixture(scope="module")
def one_account():
    account = Account()
    yield account
    account.aws.stop()


@pytest.fixture
def account(one_account):
    one_account.reset()
    yield one_account
    for listeners in ("on_launching", "on_in_service", "on_terminated", "on_state_change"):
        getattr(one_account.autoscaling, listeners).clear()


def refusal(action, *arguments, **named):
    with pytest.raises(ClientError) as refused:
        action(*arguments, **named)
    return f"{refused.value.response['Error']['Code']}: {refused.value.response['Error']['Message']}"


# Launching


def test_members_are_pending_before_they_are_in_service(account):
    account.group(desired=0, minimum=0)
    account.scale(2)
    assert account.state_list == ["Pending", "Pending"]
    assert account.ec2_state(account.ids[0]) == "pending"
    account.later(60)
    assert account.state_list == ["InService", "InService"]
    assert account.ec2_state(account.ids[0]) == "running"


@pytest.mark.parametrize("zones, desired, expected", [("a", 3, "aaa"), ("ab", 2, "ab"), ("abc", 3, "abc"), ("abc", 5, "aabbc")])
def test_launches_are_spread_over_the_groups_zones(account, zones, desired, expected):
    account.group(desired=desired, maximum=9, zones=zones)
    assert "".join(sorted(i["AvailabilityZone"][-1] for i in account.described["Instances"])) == expected


def test_a_planned_launch_takes_as_long_as_planned_and_later_ones_as_usual(account):
    account.group(desired=0, minimum=0)
    account.autoscaling.plan_launches("workers", Launch(seconds=500))
    account.scale(2)
    account.later(60)
    assert list(account.states.values()) == ["Pending", "InService"]
    account.later(440)
    assert account.state_list == ["InService", "InService"]


def test_an_instance_may_never_come_up(account):
    account.group(desired=0, minimum=0)
    account.autoscaling.plan_launches("workers", Launch(never_comes_up=True))
    account.scale(1)
    account.later(30 * 24 * HOUR)
    assert account.state_list == ["Pending"]


def test_a_group_without_capacity_reports_failed_launches_and_tries_again(account):
    account.group(desired=1)
    account.autoscaling.out_of_capacity("workers")
    account.scale(2)
    account.later(150)
    failed = [a for a in account.activities() if a["StatusCode"] == "Failed"]
    assert len(failed) == 3
    assert (
        "do not have sufficient m5.large capacity in the Availability Zone you requested (eu-west-1a)"
        in failed[0]["StatusMessage"]
    )
    assert sum(kind == "EC2 Instance Launch Unsuccessful" for _, kind, _ in account.events) == 3
    assert account.state_list == ["InService"]
    account.autoscaling.capacity_is_back("workers")
    account.later(60)
    assert account.state_list == ["InService", "InService"]


def test_a_new_member_has_the_groups_tags_and_a_name_that_never_comes_back(account):
    account.group(
        desired=1,
        Tags=[
            {"Key": "team", "Value": "data", "PropagateAtLaunch": True},
            {"Key": "private", "Value": "x", "PropagateAtLaunch": False},
        ],
    )
    names = []
    for _ in range(3):
        (old,) = account.ids
        instance = account.client("ec2").describe_instances(InstanceIds=[old])["Reservations"][0]["Instances"][0]
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        assert tags["team"] == "data" and tags["aws:autoscaling:groupName"] == "workers" and "private" not in tags
        names.append(instance["PrivateDnsName"])
        account.terminate(old)
        account.settle()
    assert len(set(names)) == 3
    assert all(name.startswith("ip-172-31-") and name.endswith(".eu-west-1.compute.internal") for name in names)


def test_new_members_inherit_the_groups_protection(account):
    account.group(desired=1, NewInstancesProtectedFromScaleIn=True)
    account.enter_standby(account.ids[0])
    account.settle()
    assert [i["ProtectedFromScaleIn"] for i in account.described["Instances"]] == [True, True]


# Sizes


@pytest.mark.parametrize(
    "act, text",
    [
        (
            lambda a: a.scale(4),
            "ValidationError: New SetDesiredCapacity value 4 is above max value 3 for the AutoScalingGroup.",
        ),
        (
            lambda a: a.scale(0),
            "ValidationError: New SetDesiredCapacity value 0 is below min value 1 for the AutoScalingGroup.",
        ),
        (
            lambda a: a.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", MinSize=4),
            "ValidationError: Max bound, 3, must be greater than or equal to min bound, 4",
        ),
        (
            lambda a: a.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", DesiredCapacity=9),
            "ValidationError: Desired capacity:9 must be between the specified min size:1 and max size:3",
        ),
        (
            lambda a: a.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName="workers"),
            "ResourceInUse: You cannot delete an AutoScalingGroup while there are instances or pending Spot instance "
            "request(s) still in the group.",
        ),
        (
            lambda a: a.client("autoscaling").set_desired_capacity(AutoScalingGroupName="nobody", DesiredCapacity=1),
            "ValidationError: AutoScalingGroup name not found - AutoScalingGroup 'nobody' not found",
        ),
    ],
)
def test_sizes_are_checked(account, act, text):
    account.group()
    assert refusal(act, account) == text


@pytest.mark.parametrize("change, desired", [({"MinSize": 3}, 3), ({"MaxSize": 1}, 1), ({"MaxSize": 9}, 2)])
def test_an_update_of_the_bounds_moves_the_desired_capacity_into_them(account, change, desired):
    account.group()
    account.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", **change)
    account.settle()
    assert (account.desired, account.state_list) == (desired, ["InService"] * desired)


# Scale-in


def test_scale_in_takes_the_oldest(account):
    account.group(desired=1)
    account.scale(2)
    account.settle()
    old, young = account.ids
    account.scale(1)
    account.settle()
    assert account.ids == [young]
    assert account.ec2_state(old) == "terminated"


def test_scale_in_takes_from_the_fullest_zone_first(account):
    account.group(desired=3, zones="ab")
    zones = [i["AvailabilityZone"][-1] for i in account.described["Instances"]]
    account.scale(2)
    account.settle()
    assert sorted(zones) == ["a", "a", "b"]
    assert sorted(i["AvailabilityZone"][-1] for i in account.described["Instances"]) == ["a", "b"]


def test_a_member_on_its_way_into_service_cannot_be_protected_and_takes_the_others_with_it(account):
    account.group(desired=2, maximum=3)
    old, _, _ = account.standby()
    account.exit_standby(old)
    assert account.states[old] == "Pending"
    with pytest.raises(ClientError, match=f"The instance {old} is not in InService or EnteringStandby or Standby"):
        account.protect(*reversed(account.ids))
    assert not any(member["ProtectedFromScaleIn"] for member in account.described["Instances"])


def test_scale_in_never_takes_a_protected_member(account):
    account.group(desired=2)
    first, second = account.ids
    account.protect(first)
    account.scale(1)
    account.settle()
    assert account.ids == [first]
    account.protect(first)
    account.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="workers", MinSize=0, DesiredCapacity=0)
    account.settle()
    assert account.ids == [first]


@pytest.mark.parametrize(
    "process, act, stays",
    [
        ("Launch", lambda a: a.scale(3), ["InService", "InService"]),
        ("Terminate", lambda a: a.scale(1), ["InService", "InService"]),
    ],
)
def test_a_suspended_process_does_not_happen_until_it_is_resumed(account, process, act, stays):
    account.group()
    account.suspend(process)
    act(account)
    account.settle()
    assert account.state_list == stays
    account.resume(process)
    account.settle()
    assert len(account.states) == account.desired


# Standby


def test_standby_without_decrement_launches_a_replacement_at_once(account):
    account.group()
    old = account.ids[0]
    (activity,) = account.enter_standby(old)["Activities"]
    assert activity["Description"] == f"Moving EC2 instance to Standby: {old}"
    assert account.states[old] == "EnteringStandby"
    assert (account.desired, account.state_list) == (2, ["EnteringStandby", "InService", "Pending"])
    account.settle()
    assert account.state_list == ["InService", "InService", "Standby"]


def test_standby_with_decrement_launches_nothing(account):
    account.group()
    account.enter_standby(account.ids[0], decrement=True)
    account.settle()
    assert (account.desired, account.state_list) == (1, ["InService", "Standby"])


@pytest.mark.parametrize("launches", [True, False])
def test_a_switch_decides_if_standby_at_the_maximum_launches_a_replacement(account, launches):
    account.group(minimum=2, desired=2, maximum=2)
    account.autoscaling.unknowns.enter_standby_at_max_launches = launches
    old = account.ids[0]
    account.enter_standby(old)
    account.settle()
    assert account.state_list == ["InService"] * (2 if launches else 1) + ["Standby"]
    account.terminate(old)
    account.settle()
    assert account.state_list == ["InService", "InService"]


def test_an_exit_from_standby_raises_the_desired_capacity(account):
    account.group()
    account.autoscaling.unknowns.exit_standby_trims = False
    old, other, replacement = account.standby()
    account.exit_standby(old)
    assert (account.desired, account.states[old]) == (3, "Pending")
    account.settle()
    assert (account.desired, account.states) == (3, dict.fromkeys([old, other, replacement], "InService"))


def test_the_group_may_trim_after_an_exit_from_standby_if_the_switch_is_set(account):
    """It is set by default: the user guide says it."""
    account.group()
    old, other, replacement = account.standby()
    account.exit_standby(old)
    account.settle()
    assert (account.desired, set(account.ids)) == (2, {old, replacement})
    assert account.ec2_state(other) == "terminated"


@pytest.mark.parametrize("trims", [True, False])
def test_a_member_without_a_replacement_is_no_surplus_after_its_exit_from_standby(account, trims):
    account.group()
    account.autoscaling.unknowns.exit_standby_trims = trims
    old, other = account.ids
    account.enter_standby(old, decrement=True)
    account.settle()
    account.exit_standby(old)
    account.settle()
    assert (account.desired, set(account.ids), account.state_list) == (2, {old, other}, ["InService"] * 2)


def test_the_exit_of_one_member_may_end_the_pending_replacement_of_another(account):
    account.group(maximum=5)
    first, second = account.ids
    account.enter_standby(first)
    account.settle()
    account.protect(account.ids[-1])
    account.autoscaling.plan_launches("workers", Launch(seconds=10_000))
    account.enter_standby(second)
    pending = account.ids[-1]
    account.exit_standby(first)
    account.settle()
    assert pending not in account.states and account.desired == 2


def test_a_protected_member_is_not_trimmed(account):
    account.group()
    old, other, replacement = account.standby()
    account.protect(other)
    account.exit_standby(old)
    account.settle()
    assert set(account.ids) == {old, other}


def test_a_group_in_which_all_are_protected_is_trimmed_when_the_first_is_not(account):
    account.group()
    old, other, replacement = account.standby()
    account.protect(old, other, replacement)
    account.exit_standby(old)
    account.settle()
    assert (account.desired, len(account.ids)) == (2, 3)
    account.protect(replacement, protected=False)
    account.settle()
    assert set(account.ids) == {old, other}


STANDBY_REFUSALS = [
    (lambda a, old, new: a.enter_standby(old), "The instance {old} is not in InService."),
    (lambda a, old, new: a.exit_standby(new), "The instance {new} is not in Standby."),
    (
        lambda a, old, new: a.enter_standby("i-00000000"),
        "The instance i-00000000 is not part of Auto Scaling group workers.",
    ),
    (
        lambda a, old, new: a.exit_standby(old),
        "AutoScalingGroup workers has min-size=2, max-size=2, and desired-size=2. To place 1 instance "
        "into service, please update the AutoScalingGroup sizes appropriately.",
    ),
    (
        lambda a, old, new: a.enter_standby(new, decrement=True),
        "AutoScalingGroup workers has min-size=2, max-size=2, and desired-size=2. To place into standby 1 instance, "
        "please update the AutoScalingGroup sizes appropriately.",
    ),
    (
        lambda a, old, new: a.detach(new, decrement=True),
        "AutoScalingGroup workers has min-size=2, max-size=2, and desired-size=2. To detach 1 instance, please update "
        "the AutoScalingGroup sizes appropriately.",
    ),
    (
        lambda a, old, new: a.terminate(new, decrement=True),
        "Currently, desiredSize equals minSize (2). Terminating instance without replacement will violate group's min "
        "size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.",
    ),
    (
        lambda a, old, new: a.terminate("i-00000000"),
        "Instance Id not found - No managed instance found for instance ID: i-00000000",
    ),
]


@pytest.mark.parametrize("number", range(len(STANDBY_REFUSALS)))
def test_an_impossible_change_at_a_fixed_size_is_refused_with_the_error_of_aws(account, number):
    account.group(minimum=2, desired=2, maximum=2)
    old, _, replacement = account.standby()
    act, text = STANDBY_REFUSALS[number]
    before = account.states
    assert refusal(act, account, old, replacement) == "ValidationError: " + text.format(old=old, new=replacement)
    assert account.states == before


def test_exit_standby_is_refused_while_launch_is_suspended(account):
    account.group()
    old, _, _ = account.standby()
    account.suspend("Launch")
    assert refusal(account.exit_standby, old).startswith(
        "ValidationError: The Launch process of AutoScalingGroup workers is suspended"
    )
    account.resume("Launch")
    account.exit_standby(old)


def test_a_member_that_dies_in_standby_stays_listed_and_one_in_service_is_replaced(account):
    account.group()
    old, other, _ = account.standby()
    account.client("ec2").terminate_instances(InstanceIds=[old, other])
    account.settle()
    assert account.states[old] == "Standby"
    assert other not in account.states
    assert account.state_list == ["InService", "InService", "Standby"]


@pytest.mark.parametrize("extra", [False, True])
def test_a_switch_decides_if_termination_from_standby_launches_one_more(account, extra):
    account.group()
    account.autoscaling.unknowns.terminate_from_standby_launches_extra = extra
    old, other, replacement = account.standby()
    account.terminate(old)
    assert account.state_list == ["InService", "InService"] + (["Pending"] if extra else []) + ["Terminating"]
    account.settle()
    assert account.state_list == ["InService", "InService"]
    assert (set(account.ids) == {other, replacement}) is not extra


def test_termination_from_standby_with_decrement_costs_an_undrained_member(account):
    """Cluster Autoscaler removes a node that is in Standby."""
    account.group()
    old, other, replacement = account.standby()
    account.terminate(old, decrement=True)
    account.settle()
    assert (account.desired, account.ids) == (1, [replacement])


# Detaching


def test_a_detached_member_runs_on_without_the_groups_tag_and_is_replaced(account):
    account.group()
    first = account.ids[0]
    account.detach(first)
    assert account.states[first] == "Detaching"
    account.settle()
    assert first not in account.states and account.state_list == ["InService", "InService"]
    assert account.ec2_state(first) == "running"
    tags = account.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [first]}])["Tags"]
    assert "aws:autoscaling:groupName" not in [tag["Key"] for tag in tags]


@pytest.mark.parametrize("kills", [False, True])
def test_a_switch_decides_if_detaching_from_standby_kills_another(account, kills):
    account.group()
    account.autoscaling.unknowns.detach_from_standby_kills_another = kills
    old, other, replacement = account.standby()
    account.detach(old)
    account.settle()
    assert (other in account.ids) is not kills
    assert account.state_list == ["InService", "InService"]
    assert account.ec2_state(old) == "running"


def test_detaching_from_standby_leaves_protected_members_alone_whatever_the_switch_says(account):
    account.group()
    account.autoscaling.unknowns.detach_from_standby_kills_another = True
    old, other, replacement = account.standby()
    account.protect(other, replacement)
    account.detach(old)
    account.settle()
    assert set(account.ids) == {other, replacement}


@pytest.mark.parametrize("extra", [False, True])
def test_a_switch_decides_if_detaching_from_standby_launches_one_too_many(account, extra):
    account.group()
    account.autoscaling.unknowns.detach_from_standby_launches_extra = extra
    old, other, replacement = account.standby()
    account.protect(other, replacement)
    account.detach(old)
    assert len(account.ids) == 3 + extra
    account.settle()
    assert set(account.ids) == {other, replacement}


def test_an_attached_instance_goes_into_service_and_counts(account):
    account.group()
    first = account.ids[0]
    account.detach(first)
    account.settle()
    attach = account.client("autoscaling").attach_instances

    attach(AutoScalingGroupName="workers", InstanceIds=[first])
    account.settle()

    assert account.states[first] == "InService" and account.state_list == ["InService"] * 3
    other = account.ids[1]
    account.detach(other)
    account.settle()
    assert "please update the AutoScalingGroup sizes" in refusal(attach, AutoScalingGroupName="workers", InstanceIds=[other])


def test_a_launch_beyond_the_reserved_machines_fails_until_one_is_free(account):
    account.group()
    account.autoscaling.reserve_capacity("workers", 2)
    first = account.ids[0]
    account.client("autoscaling").terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=False)
    assert sorted(account.states.values()) == ["InService", "Terminating"]
    failed = account.client("autoscaling").describe_scaling_activities(AutoScalingGroupName="workers")["Activities"]
    assert any(each["StatusCode"] == "Failed" and "reservation" in each["StatusMessage"] for each in failed)
    account.settle()
    assert first not in account.ids and account.state_list == ["InService", "InService"]


# Lifecycle hooks


def test_a_terminating_member_waits_for_its_hook_while_it_is_replaced(account):
    account.group().hook(NotificationMetadata="ours")
    first = account.ids[0]
    account.terminate(first)
    assert account.states[first] == "Terminating:Wait"
    account.later(100)
    assert account.state_list == ["InService", "InService", "Terminating:Wait"]
    ((at, kind, detail),) = [event for event in account.events if "Lifecycle Action" in event[1]]
    assert kind == "EC2 Instance-terminate Lifecycle Action"
    assert detail.pop("LifecycleActionToken")
    assert detail == {
        "AutoScalingGroupName": "workers",
        "LifecycleHookName": "drain",
        "EC2InstanceId": first,
        "LifecycleTransition": TERMINATING,
        "NotificationMetadata": "ours",
        "Origin": "AutoScalingGroup",
        "Destination": "EC2",
    }
    account.complete(first)
    assert account.states[first] == "Terminating:Proceed"
    assert account.ec2_state(first) == "shutting-down"
    account.later(30)
    assert first not in account.states
    assert account.ec2_state(first) == "terminated"


def test_a_hook_is_completed_by_token_too(account):
    account.group().hook()
    first = account.ids[0]
    account.terminate(first)
    (token,) = [detail["LifecycleActionToken"] for _, kind, detail in account.events if "Lifecycle Action" in kind]
    assert (
        refusal(account.complete, LifecycleActionToken="0" * 36)
        == f"ValidationError: No active Lifecycle Action found with token {'0' * 36}"
    )
    account.complete(LifecycleActionToken=token)
    assert account.states[first] == "Terminating:Proceed"


@pytest.mark.parametrize("call", ["complete", "heartbeat"])
def test_a_hook_that_does_not_wait_cannot_be_answered(account, call):
    account.group().hook()
    first = account.ids[0]
    assert refusal(getattr(account, call), first) == f"ValidationError: No active Lifecycle Action found with instance ID {first}"


@pytest.mark.parametrize("result", ["ABANDON", "CONTINUE"])
def test_a_hook_ends_with_its_default_when_no_heartbeat_comes(account, result):
    account.group().hook(heartbeat=900, result=result)
    first = account.ids[0]
    account.terminate(first)
    account.later(899)
    assert account.states[first] == "Terminating:Wait"
    account.later(1)
    assert account.states[first] == "Terminating:Proceed"


@pytest.mark.parametrize("heartbeat, hours", [(900, 25), (1728, 48), (3600, 48), (60, 100 / 60)])
def test_heartbeats_prolong_a_hook_up_to_100_times_the_heartbeat_and_48_hours(account, heartbeat, hours):
    account.group().hook(heartbeat=heartbeat)
    first = account.ids[0]
    account.terminate(first)
    began = account.clock.elapsed()
    member = account.autoscaling.member(first)
    while member.lifecycle_state == "Terminating:Wait":
        account.later(heartbeat * 0.9)
        if member.lifecycle_state == "Terminating:Wait":
            account.heartbeat(first)
    ended = next(
        at for at, kind, detail in account.events if detail.get("state") == "shutting-down" and detail["instance-id"] == first
    )
    assert ended - began == pytest.approx(hours * HOUR)


def test_continue_lets_other_hooks_go_on_and_abandon_ends_them(account):
    account.group().hook("drain").hook("backup")
    first, second = account.ids
    account.terminate(first)
    account.complete(first, hook="drain")
    assert account.states[first] == "Terminating:Wait"
    account.complete(first, hook="backup")
    assert account.states[first] == "Terminating:Proceed"
    account.terminate(second)
    account.complete(second, result="ABANDON", hook="drain")
    assert account.states[second] == "Terminating:Proceed"


@pytest.mark.parametrize("retains", [False, True])
def test_a_deleted_hook_lets_its_members_go_also_where_the_group_retains(account, retains):
    account.group().hook()
    if retains:
        account.retain()
    first = account.ids[0]
    account.terminate(first)
    account.client("autoscaling").delete_lifecycle_hook(AutoScalingGroupName="workers", LifecycleHookName="drain")
    assert account.states[first] == "Terminating:Proceed"


@pytest.mark.parametrize("abandon", ["explicit", "no heartbeat", "global time-out"])
def test_an_abandoned_hook_retains_the_instance_where_the_group_says_so(account, abandon):
    account.group().hook(heartbeat=900).retain()
    first = account.ids[0]
    account.terminate(first)
    if abandon == "explicit":
        account.complete(first, result="ABANDON")
    elif abandon == "no heartbeat":
        account.later(900)
    else:
        member = account.autoscaling.member(first)
        while member.lifecycle_state == "Terminating:Wait":
            account.later(800)
            if member.lifecycle_state == "Terminating:Wait":
                account.heartbeat(first)
    account.later(100)
    assert account.state_list == ["InService", "InService", "Terminating:Retained"]
    account.later(30 * 24 * HOUR)
    assert account.ec2_state(first) == "running"
    with pytest.raises(ClientError, match="retained"):
        account.terminate(first, decrement=True)
    assert first in account.states and account.desired == 2
    assert account.described["InstanceLifecyclePolicy"] == {"RetentionTriggers": {"TerminateHookAbandon": "retain"}}


def retained(account):
    """The first member, which its group keeps."""
    account.group().hook().retain()
    first = account.ids[0]
    account.terminate(first)
    account.complete(first, result="ABANDON")
    account.settle()
    assert account.states[first] == "Terminating:Retained"
    return first


def test_a_retained_member_was_in_proceed_before(account):
    changes = []
    account.autoscaling.on_state_change.append(lambda member, old, new: changes.append(new))
    first = retained(account)
    ways = [state for state in changes if state.startswith("Terminating")]
    assert ways == ["Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminating:Retained"]
    assert account.ec2_state(first) == "running"


def test_a_retained_member_waits_for_the_hook_once_more_when_it_is_terminated(account):
    first = retained(account)
    account.terminate(first)
    assert account.states[first] == "Terminating:Wait"
    assert len([detail for _, kind, detail in account.events if kind == "EC2 Instance-terminate Lifecycle Action"]) == 2
    account.later(950)
    assert account.states[first] == "Terminating:Retained"
    account.terminate(first)
    account.complete(first)
    account.later(60)
    assert first not in account.states
    assert (account.desired, account.state_list) == (2, ["InService", "InService"])


def test_a_retained_member_can_be_detached(account):
    first = retained(account)
    account.detach(first)
    account.settle()
    assert first not in account.states and account.ec2_state(first) == "running"
    assert (account.desired, account.state_list) == (2, ["InService", "InService"])


@pytest.mark.parametrize("counts", [False, True])
def test_a_switch_decides_if_a_member_that_waits_for_its_hook_counts(account, counts):
    account.group().hook()
    account.autoscaling.unknowns.terminating_wait_counts = counts
    first, second = account.ids
    account.terminate(first)
    account.later(100)
    assert account.state_list == ["InService"] * (1 if counts else 2) + ["Terminating:Wait"]
    account.complete(first)
    account.settle()
    assert account.state_list == ["InService", "InService"]
    account.terminate(second, decrement=True)
    account.later(100)
    assert (account.desired, account.state_list) == (1, ["InService", "Terminating:Wait"])


def test_a_retained_member_never_counts(account):
    account.autoscaling.unknowns.terminating_wait_counts = True
    first = retained(account)
    assert account.state_list == ["InService", "InService", "Terminating:Retained"]
    account.terminate(first)
    account.later(100)
    assert account.state_list == ["InService", "InService", "Terminating:Wait"]


def test_a_group_whose_policy_is_retain_is_not_deleted_by_force_even_if_it_is_empty(account):
    account.group(desired=0, minimum=0).retain()
    client = account.client("autoscaling")
    with pytest.raises(ClientError, match="retention trigger is set to retain"):
        client.delete_auto_scaling_group(AutoScalingGroupName="workers", ForceDelete=True)
    policy = {"RetentionTriggers": {"TerminateHookAbandon": "terminate"}}
    client.update_auto_scaling_group(AutoScalingGroupName="workers", InstanceLifecyclePolicy=policy)
    client.delete_auto_scaling_group(AutoScalingGroupName="workers", ForceDelete=True)
    assert client.describe_auto_scaling_groups(AutoScalingGroupNames=["workers"])["AutoScalingGroups"] == []


def test_a_root_volume_is_replaced_after_the_termination_hook_with_another_destination(account):
    changes = []
    account.group().hook()
    account.autoscaling.on_state_change.append(lambda member, old, new: changes.append(new))
    first = account.ids[0]
    account.autoscaling.replace_root_volume(first)
    account.later(100)
    assert account.states[first] == "ReplacingRootVolume:Wait" and len(account.ids) == 2
    (detail,) = [detail for _, kind, detail in account.events if kind == "EC2 Instance-terminate Lifecycle Action"]
    assert (detail["Origin"], detail["Destination"]) == ("AutoScalingGroup", "AutoScalingGroup")
    account.complete(first)
    account.settle()
    assert account.state_list == ["InService", "InService"] and account.ec2_state(first) == "running"
    ways = ["ReplacingRootVolume", "ReplacingRootVolume:Wait", "ReplacingRootVolume:Proceed", "RootVolumeReplaced", "InService"]
    assert changes == ways


def test_a_root_volume_whose_hook_is_abandoned_costs_the_instance(account):
    account.group().hook()
    first = account.ids[0]
    account.autoscaling.replace_root_volume(first)
    account.complete(first, result="ABANDON")
    assert account.states[first] == "Terminating:Wait"
    account.complete(first)
    account.settle()
    assert first not in account.ids and account.state_list == ["InService", "InService"]


def test_continue_terminates_also_where_abandon_would_retain(account):
    account.group().hook().retain()
    first = account.ids[0]
    account.terminate(first)
    account.complete(first, result="CONTINUE")
    account.later(60)
    assert first not in account.states


def test_the_members_leave_the_balancer_before_the_hook_is_raised(account):
    vpc = account.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    arn = account.client("elbv2").create_target_group(Name="ingress", Protocol="HTTP", Port=80, VpcId=vpc)["TargetGroups"][0][
        "TargetGroupArn"
    ]

    def targets():
        health = account.client("elbv2").describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        return {target["Target"]["Id"] for target in health}

    account.group(TargetGroupARNs=[arn]).hook()
    first, second = account.ids
    assert targets() == {first, second}
    account.terminate(first)
    assert (account.states[first], first in targets()) == ("Terminating", False)
    account.later(300)
    assert account.states[first] == "Terminating:Wait"
    account.complete(first)
    account.enter_standby(second)
    assert second not in targets()
    account.settle()
    account.exit_standby(second)
    account.settle()
    assert second in targets()


@pytest.mark.parametrize("result, ends", [("CONTINUE", "InService"), ("ABANDON", None)])
def test_a_launching_hook_holds_a_new_member_in_pending_wait(account, result, ends):
    account.group(desired=1).hook("join", transition=LAUNCHING)
    account.scale(2)
    account.later(100)
    new = account.ids[1]
    assert account.states[new] == "Pending:Wait"
    account.complete(new, result=result, hook="join")
    account.later(50)
    assert account.states.get(new) == ends


def test_a_move_to_the_warm_pool_fires_the_hook_with_another_destination(account):
    account.group().hook()
    first = account.ids[0]
    account.autoscaling.move_to_warm_pool(first)
    assert account.events[-1][2]["Destination"] == "WarmPool"
    assert account.states[first] == "Warmed:Pending:Wait"
    account.complete(first)
    assert first not in account.states


def test_a_launch_takes_an_instance_of_the_warm_pool(account):
    account.group()
    warm = account.autoscaling.warm("workers")
    answer = account.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[warm])["AutoScalingInstances"]
    assert [(found["AutoScalingGroupName"], found["LifecycleState"]) for found in answer] == [("workers", "Warmed:Stopped")]
    assert warm not in account.states and account.ec2.instance(warm)._state.name == "stopped"
    before = set(account.ids)
    account.scale(3)
    assert account.states[warm] == "Pending"
    account.settle()
    assert set(account.ids) - before == {warm} and account.states[warm] == "InService"
    assert account.ec2.instance(warm)._state.name == "running"


def test_hooks_of_the_deployment_come_back_at_a_reset(account):
    account.group().hook()
    account.autoscaling.remember_hooks()
    account.hook("of the scenario")
    account.reset()
    account.group()
    hooks = account.client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName="workers")["LifecycleHooks"]
    account.client("autoscaling").delete_lifecycle_hook(AutoScalingGroupName="workers", LifecycleHookName="drain")
    account.autoscaling.remember_hooks()
    assert [(hook["LifecycleHookName"], hook["GlobalTimeout"]) for hook in hooks] == [("drain", 90_000)]


# Health, zones


@pytest.mark.parametrize("end", ["terminate_instances", "stop_instances"])
def test_an_instance_that_is_terminated_by_hand_is_replaced_unless_the_process_is_suspended(account, end):
    account.group()
    first, second = account.ids
    account.suspend("ReplaceUnhealthy")
    getattr(account.client("ec2"), end)(InstanceIds=[first])
    account.later(61)
    health = {i["InstanceId"]: i["HealthStatus"] for i in account.described["Instances"]}
    assert health == {first: "Unhealthy", second: "Healthy"}
    account.resume("ReplaceUnhealthy")
    account.settle()
    assert first not in account.states and account.state_list == ["InService", "InService"]


def test_an_instance_reported_unhealthy_is_replaced(account):
    account.group()
    first = account.ids[0]
    account.client("autoscaling").set_instance_health(InstanceId=first, HealthStatus="Unhealthy")
    account.settle()
    assert first not in account.states and account.state_list == ["InService", "InService"]


@pytest.mark.parametrize("suspended", [False, True])
def test_zones_out_of_balance_are_rebalanced_by_launching_first(account, suspended):
    account.group(desired=4, maximum=6, zones="ab", minimum=0)
    in_b = [i["InstanceId"] for i in account.described["Instances"] if i["AvailabilityZone"].endswith("b")]
    if suspended:
        account.suspend("AZRebalance")
    account.detach(*in_b, decrement=True)
    account.later(310)
    assert ("Pending" in account.state_list) is not suspended
    account.settle()
    zones = sorted(i["AvailabilityZone"][-1] for i in account.described["Instances"])
    assert (account.desired, zones) == (2, ["a", "a"] if suspended else ["a", "b"])


@pytest.mark.parametrize("counts", [False, True])
def test_a_switch_decides_if_standby_counts_for_the_balance(account, counts):
    account.group(desired=4, maximum=6, zones="ab", minimum=0)
    account.autoscaling.unknowns.standby_counts_for_zone_balance = counts
    in_a = [i["InstanceId"] for i in account.described["Instances"] if i["AvailabilityZone"].endswith("a")]
    account.enter_standby(*in_a, decrement=True)
    account.settle()
    account.settle()
    in_service = sorted(i["AvailabilityZone"][-1] for i in account.described["Instances"] if i["LifecycleState"] == "InService")
    assert in_service == (["b", "b"] if counts else ["a", "b"])


# Events


def test_activities_are_listed_newest_first_in_pages(account):
    account.group()
    account.standby()
    client = account.client("autoscaling")
    first = client.describe_scaling_activities(AutoScalingGroupName="workers", MaxRecords=2)
    second = client.describe_scaling_activities(AutoScalingGroupName="workers", MaxRecords=2, NextToken=first["NextToken"])
    descriptions = [a["Description"].split(":")[0] for a in first["Activities"] + second["Activities"]]
    assert descriptions == [
        "Launching a new EC2 instance",
        "Moving EC2 instance to Standby",
        "Launching a new EC2 instance",
        "Launching a new EC2 instance",
    ]
    assert {a["StatusCode"] for a in first["Activities"]} == {"Successful"}
    assert "NextToken" not in second


def test_an_instance_refresh_is_what_the_scenario_says(account):
    account.group()
    client = account.client("autoscaling")
    assert client.describe_instance_refreshes(AutoScalingGroupName="workers")["InstanceRefreshes"] == []
    refresh = {"InstanceRefreshId": "r-1", "AutoScalingGroupName": "workers", "Status": "InProgress"}
    account.autoscaling.report_refreshes("workers", refresh)
    assert client.describe_instance_refreshes(AutoScalingGroupName="workers")["InstanceRefreshes"][0]["Status"] == "InProgress"


@pytest.mark.parametrize("what", ["refresh", "lifetime"])
def test_a_refresh_and_a_lifetime_end_every_member_through_its_hooks(account, what):
    account.group().hook(heartbeat=900)
    old = account.ids
    if what == "refresh":
        account.autoscaling.start_refresh("workers")
    else:
        account.autoscaling.limit_lifetime("workers", 100)
    account.later(850)
    assert {account.states[member] for member in old} == {"Terminating:Wait"}
    assert account.state_list.count("InService") == len(old)
    for member in old:
        account.complete(member)
    account.later(300)
    assert set(account.state_list) == {"InService"} and not set(old) & set(account.ids)
    refreshes = account.client("autoscaling").describe_instance_refreshes(AutoScalingGroupName="workers")["InstanceRefreshes"]
    assert [refresh["Status"] for refresh in refreshes] == (["Successful"] if what == "refresh" else [])


def test_actors_are_notified_of_every_change_of_a_member(account):
    seen = []
    account.autoscaling.on_launching.append(lambda member: seen.append("launching"))
    account.autoscaling.on_in_service.append(lambda member: seen.append("in service"))
    account.autoscaling.on_terminated.append(lambda member: seen.append("terminated"))
    changes = []
    account.autoscaling.on_state_change.append(lambda member, old, new: changes.append(f"{old} -> {new}"))
    account.group(desired=1, minimum=0)
    account.hook()
    (only,) = account.ids
    account.terminate(only, decrement=True)
    account.complete(only)
    account.settle()
    assert seen == ["launching", "in service", "terminated"]
    assert changes == [
        "Pending -> InService",
        "InService -> Terminating",
        "Terminating -> Terminating:Wait",
        "Terminating:Wait -> Terminating:Proceed",
        "Terminating:Proceed -> Terminated",
    ]


# Capacity Rebalancing and mixed instances


def test_capacity_rebalancing_launches_before_it_terminates(account):
    account.group(CapacityRebalance=True)
    first, second = account.ids
    account.autoscaling.recommend_rebalance(first)
    assert account.state_list == ["InService", "InService", "Pending"]
    account.settle()
    assert first not in account.ids and second in account.ids
    assert (account.desired, account.state_list) == (2, ["InService", "InService"])
    account.autoscaling.recommend_rebalance("i-0123456789abcdef0")
    kinds = [kind for _, kind, _ in account.events]
    assert kinds.count("EC2 Instance Rebalance Recommendation") == 2


@pytest.mark.parametrize("counts", [False, True])
def test_a_rebalanced_member_that_waits_for_its_hook_costs_no_other_member(account, counts):
    account.group(CapacityRebalance=True).hook()
    account.autoscaling.unknowns.terminating_wait_counts = counts
    first, second = account.ids
    account.autoscaling.recommend_rebalance(first)
    account.later(300)
    assert account.states[first] == "Terminating:Wait" and second in account.ids
    assert account.state_list == ["InService", "InService", "Terminating:Wait"]


def test_without_capacity_rebalancing_a_recommendation_changes_nothing(account):
    account.group()
    account.autoscaling.recommend_rebalance(account.ids[0])
    account.settle()
    assert account.state_list == ["InService", "InService"] and len(account.ids) == 2


@pytest.mark.parametrize("ends", [False, True])
def test_a_switch_decides_if_capacity_rebalancing_ends_a_member_in_standby(account, ends):
    account.group(CapacityRebalance=True)
    account.autoscaling.unknowns.capacity_rebalancing_ends_standby = ends
    old, other, replacement = account.standby()
    account.autoscaling.recommend_rebalance(old)
    account.settle()
    assert set(account.ids) == ({other, replacement} if ends else {old, other, replacement})
    assert account.desired == 2


def test_members_of_a_mixed_group_have_the_types_of_its_overrides(account):
    ec2, autoscaling = account.client("ec2"), account.client("autoscaling")
    for name, image in (("workers", "ami-12345678"), ("arm", "ami-87654321")):
        data = {"ImageId": image, "InstanceType": "m5.large"}
        ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateName": "workers", "Version": "$Latest"},
            "Overrides": [
                {"InstanceType": "m7i.large"},
                {"InstanceType": "m7g.large", "LaunchTemplateSpecification": {"LaunchTemplateName": "arm", "Version": "$Latest"}},
            ],
        }
    }
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="workers",
        MinSize=0,
        DesiredCapacity=1,
        MaxSize=3,
        AvailabilityZones=[ec2.describe_subnets()["Subnets"][0]["AvailabilityZone"]],
        MixedInstancesPolicy=policy,
    )
    account.autoscaling.plan_launches("workers", Launch(instance_type="m7g.large"))
    account.scale(2)
    account.settle()
    assert "LaunchTemplate" not in account.described
    overrides = account.described["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert [each["InstanceType"] for each in overrides] == ["m7i.large", "m7g.large"]
    members = {each["InstanceType"]: each["LaunchTemplate"]["LaunchTemplateName"] for each in account.described["Instances"]}
    assert members == {"m7i.large": "workers", "m7g.large": "arm"}
    reservations = ec2.describe_instances(InstanceIds=account.ids)["Reservations"]
    images = {each["InstanceType"]: each["ImageId"] for reservation in reservations for each in reservation["Instances"]}
    assert images == {"m7i.large": "ami-12345678", "m7g.large": "ami-87654321"}


# EC2


def test_instances_take_time_to_stop_and_start(account):
    account.group()
    first = account.standby()[0]
    states = []
    for act, seconds in (("stop_instances", 40), ("start_instances", 30), ("terminate_instances", 30)):
        getattr(account.client("ec2"), act)(InstanceIds=[first])
        states.append(account.ec2_state(first))
        account.later(seconds)
        states.append(account.ec2_state(first))
    assert states == ["stopping", "stopped", "pending", "running", "shutting-down", "terminated"]
    account.later(HOUR)
    assert refusal(account.ec2_state, first).startswith("InvalidInstanceID.NotFound")


def test_instances_are_answered_in_the_order_of_their_launch_while_they_are_there(account):
    account.group(desired=3)
    client, ids = account.client("ec2"), account.ids

    def described(*wanted):
        reservations = client.describe_instances(InstanceIds=list(wanted))["Reservations"]
        return [[instance["InstanceId"] for instance in reservation["Instances"]] for reservation in reservations]

    assert described(*reversed(ids)) == [[each] for each in ids]
    both = client.run_instances(ImageId="ami-12345678", MinCount=2, MaxCount=2)["Instances"]
    one, other = (instance["InstanceId"] for instance in both)
    assert described(other, ids[1]) == [[ids[1]], [other]]
    client.terminate_instances(InstanceIds=[one])
    account.later(2 * HOUR)
    assert described(other) == [[other]]
    gone = refusal(client.describe_instances, InstanceIds=[other, one])
    assert gone.startswith("InvalidInstanceID.NotFound") and one in gone and other not in gone


@pytest.mark.parametrize(
    "call, parameters, code",
    [
        ("describe_instances", {"InstanceIds": ["i-0123456789abcdef0"]}, "InvalidInstanceID.NotFound"),
        ("describe_instances", {"InstanceIds": ["node-1"]}, "InvalidInstanceID.Malformed"),
        ("stop_instances", {"InstanceIds": ["i-xyz"]}, "InvalidInstanceID.Malformed"),
        (
            "create_tags",
            {"Resources": ["i-0123456789abcdef0"], "Tags": [{"Key": "k", "Value": "v"}]},
            "InvalidInstanceID.NotFound",
        ),
        ("create_tags", {"Resources": ["{id}"], "Tags": [{"Key": "k" * 129, "Value": "v"}]}, "InvalidParameterValue"),
        ("create_tags", {"Resources": ["{id}"], "Tags": [{"Key": "k", "Value": "v" * 257}]}, "InvalidParameterValue"),
        ("create_tags", {"Resources": ["{id}"], "Tags": [{"Key": "aws:k", "Value": "v"}]}, "InvalidParameterValue"),
        (
            "delete_tags",
            {"Resources": ["{id}"], "Tags": [{"Key": "aws:autoscaling:groupName"}]},
            "InvalidParameterValue",
        ),
    ],
)
def test_ec2_refuses_what_aws_refuses(account, call, parameters, code):
    account.group()
    parameters = json.loads(json.dumps(parameters).replace("{id}", account.ids[0]))
    assert refusal(getattr(account.client("ec2"), call), **parameters).split(":")[0] == code


def test_tags_at_the_limit_are_taken_and_deleted(account):
    account.group()
    client, first = account.client("ec2"), account.ids[0]
    client.create_tags(Resources=[first], Tags=[{"Key": "k" * 128, "Value": "v" * 256}])
    wanted = [{"Name": "resource-id", "Values": [first]}, {"Name": "key", "Values": ["k" * 128]}]
    assert client.describe_tags(Filters=wanted)["Tags"][0]["Value"] == "v" * 256
    client.delete_tags(Resources=[first], Tags=[{"Key": "k" * 128}])
    assert client.describe_tags(Filters=wanted)["Tags"] == []


def test_the_same_calls_give_the_same_identifiers_after_a_reset(account):
    seen = []
    for _ in range(2):
        account.reset()
        account.group()
        seen.append((account.standby(), account.activities()))
    assert seen[0] == seen[1]


def test_every_combination_of_what_standby_may_do_leaves_a_whole_group(account):
    """Standby, back, Standby, terminate: whatever AWS does, the group ends with its desired number in service."""
    names = ("terminate_from_standby_launches_extra", "exit_standby_trims", "enter_standby_at_max_launches")
    for values in itertools.product([False, True], repeat=len(names)):
        account.reset()
        account.group(zones="ab", maximum=4)
        for name, value in zip(names, values, strict=True):
            setattr(account.autoscaling.unknowns, name, value)
        old = account.ids[0]
        account.enter_standby(old)
        account.settle()
        account.exit_standby(old)
        account.settle()
        account.enter_standby(account.ids[0])
        account.settle()
        account.terminate(account.ids[0])
        account.settle()
        assert account.state_list == ["InService"] * account.desired, dict(zip(names, values, strict=True))
