"""Everything that the probe creates: a launch template for each kind of group, the groups, a queue, and a rule for events."""

from __future__ import annotations

import json

from probe.account import PREFIX, TAG, Account
from probe.group import HOOK, Group
from probe.inbox import Inbox
from probe.question import Question, Setup
from probe.state import State

#: The newest Amazon Linux for the smallest instances, as AWS publishes it.
IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-minimal-kernel-default-{architecture}"


class Impossible(Exception):
    """The account has not what the probe needs. The text says what to do."""


class Resources:
    """Creates them with the prefix and the tag of the run, and notes each of them before."""

    def __init__(self, account: Account, state: State, instance_type: str, subnets: list[str] | None = None) -> None:
        self.account, self.state, self.instance_type = account, state, instance_type
        #: One subnet in each zone that has this type of instance.
        self.subnets = self._choose_subnets(subnets)
        self._templates: dict[bool, str] = {}
        self.inbox: Inbox | None = None

    def name(self, what: str) -> str:
        return f"{PREFIX}{self.state.run}-{what}"

    def tags(self) -> list[dict[str, str]]:
        return [{"Key": TAG, "Value": self.state.run}, {"Key": "Name", "Value": self.name("instance")}]

    def _choose_subnets(self, wanted: list[str] | None) -> list[str]:
        ec2 = self.account.client("ec2")
        where = {"SubnetIds": wanted} if wanted else {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [self.instance_type]}]
        )["InstanceTypeOfferings"]
        zones = {each["Location"] for each in offered}
        found = {each["AvailabilityZone"]: each["SubnetId"] for each in ec2.describe_subnets(**where)["Subnets"]}
        usable = [subnet for zone, subnet in sorted(found.items()) if zone in zones]
        if not usable:
            raise Impossible(
                f"no default subnet of {self.account.region} has the instance type {self.instance_type}: "
                "name subnets by --subnets, or another type by --instance-type"
            )
        return usable

    def _image(self) -> str:
        types = self.account.client("ec2").describe_instance_types(InstanceTypes=[self.instance_type])["InstanceTypes"]
        architecture = types[0]["ProcessorInfo"]["SupportedArchitectures"][-1]
        parameter = self.account.client("ssm").get_parameter(Name=IMAGE.format(architecture=architecture))
        return parameter["Parameter"]["Value"]

    def template(self, spot: bool) -> str:
        """Returns the name of the launch template. It is created for the first group that needs it."""
        if spot not in self._templates:
            name = self.name("spot" if spot else "template")
            specification = [{"ResourceType": kind, "Tags": self.tags()} for kind in ("instance", "volume")]
            data = {
                "ImageId": self._image(),
                "InstanceType": self.instance_type,
                # A public address would cost more than the instance.
                "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": False, "DeleteOnTermination": True}],
                "MetadataOptions": {"HttpTokens": "required"},
                "TagSpecifications": specification,
            }
            if spot:
                data["InstanceMarketOptions"] = {"MarketType": "spot"}
            self.state.note_created("launch template", name)
            self.account.client("ec2").create_launch_template(
                LaunchTemplateName=name,
                LaunchTemplateData=data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": self.tags()}],
            )
            self._templates[spot] = name
        return self._templates[spot]

    def group(self, question: Question) -> Group:
        """Creates the group of a question. Its instances are launched after that."""
        setup = question.setup
        template = self.template(setup.spot)
        name = self.name(f"{question.name}-{self.state.next_attempt(question.name)}")
        self.state.note_created("group", name)
        autoscaling = self.account.client("autoscaling")
        group = Group(self.account, name, setup, self.inbox)
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=setup.minimum,
            DesiredCapacity=setup.desired,
            MaxSize=setup.maximum,
            VPCZoneIdentifier=",".join(self.subnets[: setup.zones]),
            LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
            Tags=[{**tag, "PropagateAtLaunch": True} for tag in self.tags()],
            **_lifecycle(setup),
        )
        if setup.hook is not None:
            autoscaling.put_lifecycle_hook(
                AutoScalingGroupName=name,
                LifecycleHookName=HOOK,
                LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
                HeartbeatTimeout=setup.hook,
                DefaultResult="ABANDON",
            )
        return group

    def collect_events(self) -> Inbox:
        """Creates a queue, and a rule that sends the events of all groups of the run there."""
        sqs, events = self.account.client("sqs"), self.account.client("events")
        # AWS does not let a queue come back within a minute after its deletion.
        name = self.name(f"events-{self.state.next_attempt('events')}")
        self.state.note_created("queue", name)
        url = sqs.create_queue(QueueName=name, tags={TAG: self.state.run})["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.state.note_created("rule", name)
        rule = events.put_rule(
            Name=name, EventPattern=json.dumps(event_pattern(self.name(""))), Tags=[{"Key": TAG, "Value": self.state.run}]
        )["RuleArn"]
        statement = {
            "Sid": "LetTheRuleSendEvents",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
        self.inbox = Inbox(self.account, url)
        return self.inbox


def event_pattern(prefix: str) -> dict[str, object]:
    """Returns the pattern for the events of groups whose names begin so."""
    return {"source": ["aws.autoscaling"], "detail": {"AutoScalingGroupName": [{"prefix": prefix}]}}


def _lifecycle(setup: Setup) -> dict[str, object]:
    """Returns the retention and Capacity Rebalancing as CreateAutoScalingGroup takes them."""
    more: dict[str, object] = {}
    if setup.retains:
        more["InstanceLifecyclePolicy"] = {"RetentionTriggers": {"TerminateHookAbandon": "retain"}}
    if setup.spot:
        more["CapacityRebalance"] = True
    return more
