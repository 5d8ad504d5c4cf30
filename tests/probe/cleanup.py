"""Removes what runs of the probe have created, found by its prefix and its tag. It needs no state, and can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from probe.account import PREFIX, TAG, Account
from probe.group import HOOK
from probe.rebalance import remove_experiments, roles

#: Seconds between two checks whether something is left, and the most checks.
CHECK, MOST_CHECKS = 15.0, 60
#: Errors of calls on something that is gone or going.
GONE = (
    "ValidationError",
    "ResourceInUse",
    "ScalingActivityInProgress",
    "ResourceNotFoundException",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "AWS.SimpleQueueService.NonExistentQueue",
)
RUNNING = ["pending", "running", "stopping", "stopped"]


class CleanUp:
    """`run` limits it to one run. Without it, everything of all runs is removed."""

    def __init__(self, account: Account, run: str | None, say: Callable[[str], None] = lambda text: None) -> None:
        self.account, self.say = account, say
        self.prefix = f"{PREFIX}{run}-" if run else PREFIX
        self._run = run
        self._tag = {"Name": f"tag:{TAG}", "Values": [run]} if run else {"Name": "tag-key", "Values": [TAG]}

    def everything(self) -> list[str]:
        """Removes it and waits until it is gone. Returns what is still there, which is nothing unless AWS refuses."""
        for _ in range(MOST_CHECKS):
            left = self.left()
            if not left:
                return []
            self.say(f"removing {len(left)} things: {', '.join(left[:3])}{' …' if len(left) > 3 else ''}")
            self.remove_all()
            self.account.clock.sleep(CHECK)
        return self.left()

    def left(self) -> list[str]:
        """Returns everything that is there. Instances that shut down no longer count."""
        return [
            *(f"group {name}" for name in self.groups()),
            *(f"instance {instance}" for instance in self.instances()),
            *(f"launch template {name}" for name in self._templates()),
            *(f"rule {name}" for name in self._rules()),
            *(f"role {name}" for name in roles(self.account, self._run)),
            *(f"queue {url.rpartition('/')[2]}" for url in self._queues()),
        ]

    def remove_all(self) -> None:
        for name in self.groups():
            self.remove_group(name)
        self.terminate(self.instances())
        for name in self._templates():
            _if_there(self.account.client("ec2").delete_launch_template, LaunchTemplateName=name)
        for name in self._rules():
            _if_there(self.account.client("events").remove_targets, Rule=name, Ids=["queue"])
            _if_there(self.account.client("events").delete_rule, Name=name)
        if roles(self.account, self._run):
            remove_experiments(self.account, self._run)
        for url in self._queues():
            _if_there(self.account.client("sqs").delete_queue, QueueUrl=url)

    def remove_group(self, name: str) -> None:
        """Deletes a group with its instances. A group that retains instances would refuse that, so it stops to retain first."""
        autoscaling = self.account.client("autoscaling")
        policy = {"RetentionTriggers": {"TerminateHookAbandon": "terminate"}}
        _if_there(autoscaling.update_auto_scaling_group, AutoScalingGroupName=name, InstanceLifecyclePolicy=policy)
        _if_there(autoscaling.delete_lifecycle_hook, AutoScalingGroupName=name, LifecycleHookName=HOOK)
        _if_there(autoscaling.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True)

    def terminate(self, instances: list[str]) -> None:
        if instances:
            _if_there(self.account.client("ec2").terminate_instances, InstanceIds=instances)

    def groups(self) -> list[str]:
        pages = (
            self.account.client("autoscaling")
            .get_paginator("describe_auto_scaling_groups")
            .paginate(Filters=[{"Name": "tag-key", "Values": [TAG]}])
        )
        names = [group["AutoScalingGroupName"] for page in pages for group in page["AutoScalingGroups"]]
        return [name for name in names if name.startswith(self.prefix)]

    def instances(self, states: list[str] = RUNNING) -> list[str]:
        """Returns the instances in these states, also detached ones, which keep their tag."""
        filters = [self._tag, {"Name": "instance-state-name", "Values": states}]
        pages = self.account.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        reservations = (reservation for page in pages for reservation in page["Reservations"])
        return [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]

    def _templates(self) -> list[str]:
        pages = self.account.client("ec2").get_paginator("describe_launch_templates").paginate(Filters=[self._tag])
        names = (template["LaunchTemplateName"] for page in pages for template in page["LaunchTemplates"])
        return [name for name in names if name.startswith(self.prefix)]

    def _rules(self) -> Iterator[str]:
        answer = self.account.client("events").list_rules(NamePrefix=self.prefix)
        return (rule["Name"] for rule in answer["Rules"])

    def _queues(self) -> list[str]:
        return self.account.client("sqs").list_queues(QueueNamePrefix=self.prefix).get("QueueUrls", [])


def _if_there(call: Callable[..., Any], **parameters: Any) -> None:
    try:
        call(**parameters)
    except ClientError as error:
        if error.response["Error"]["Code"] not in GONE:
            raise
