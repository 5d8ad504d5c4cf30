"""Removes what runs of the probe have created, found by name and tag. It needs no state, and can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from probe.account import PREFIX, TAG, Account
from probe.group import HOOK
from probe.rebalance import POLICY

#: Seconds between two checks whether something is left, and the most checks.
CHECK, MOST_CHECKS = 15.0, 60
#: The checks in a row that AWS may refuse everything that is left.
MOST_REFUSED = 4
#: Errors of calls on something that is gone or going.
GONE = (
    "ValidationError",
    "ResourceInUse",
    "ScalingActivityInProgress",
    "ResourceNotFoundException",
    "NoSuchEntity",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "AWS.SimpleQueueService.NonExistentQueue",
)
RUNNING = ["pending", "running", "stopping", "stopped"]

Tags = dict[str, str]
#: Yields what AWS removes a thing by, its name, and its tags.
Listing = Callable[[], Iterator[tuple[str, str, Tags]]]
#: Returns the calls that remove a thing. A refused one does not keep the others from being made.
Removal = Callable[[str], list[Callable[[], Any]]]


@dataclass(frozen=True)
class Thing:
    """`identifier` is what AWS removes it by."""

    kind: str
    identifier: str
    run: str

    def __str__(self) -> str:
        return f"{self.kind} {self.identifier.rpartition('/')[2]}"


class CleanUp:
    """`runs` are the runs whose things it removes, None: all runs. Only with `experiments` does it call IAM and AWS Fault
    Injection Service, which many credentials may not call."""

    def __init__(
        self,
        account: Account,
        runs: Collection[str] | None,
        experiments: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.account, self.say, self._runs = account, say, runs
        #: The answers of AWS to refused lists, by kind, and to refused removals, by thing.
        self.unlisted: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._kinds: dict[str, tuple[Listing, Removal]] = {
            "group": (self._groups, self._group_calls),
            "instance": (self._instances, self._instance_calls),
            "launch template": (self._templates, self._template_calls),
            "rule": (self._rules, self._rule_calls),
            "queue": (self._queues, self._queue_calls),
        }
        if experiments:
            self._kinds |= {
                "experiment": (self._experiments, self._experiment_calls),
                "experiment template": (self._experiment_templates, self._experiment_template_calls),
                "role": (self._roles, self._role_calls),
            }

    def everything(self) -> list[str]:
        """Removes it and waits until it is gone. Returns `left`, which is empty unless AWS refuses."""
        refused = 0
        for _ in range(MOST_CHECKS):
            things = self.look()
            if refused == MOST_REFUSED or not (things or self.unlisted):
                break
            if things:
                self.say(f"removing {len(things)} things: {', '.join(map(str, things[:3]))}{' …' if len(things) > 3 else ''}")
            self._refused.clear()
            for thing in things:
                self.remove(thing.kind, thing.identifier)
            refused = refused + 1 if all(str(thing) in self._refused for thing in things) else 0
            self.account.clock.sleep(CHECK)
        return self.left()

    def left(self) -> list[str]:
        """Returns everything that is there, and what AWS has refused."""
        things = map(str, self.look())
        return [
            *(f"{thing}: {self._refused[thing]}" if thing in self._refused else thing for thing in things),
            *(f"the list of each {kind}: {refusal}" for kind, refusal in self.unlisted.items()),
        ]

    def look(self) -> list[Thing]:
        """Returns everything that is there. Instances that shut down no longer count."""
        things: list[Thing] = []
        self.unlisted.clear()
        for kind in self._kinds:
            try:
                things += self.listed(kind)
            except (ClientError, BotoCoreError) as error:
                self.unlisted[kind] = str(error)
        return things

    def listed(self, kind: str) -> list[Thing]:
        listing, _ = self._kinds[kind]
        return [Thing(kind, identifier, tags[TAG]) for identifier, name, tags in listing() if self._is_of_the_runs(name, tags)]

    def remove(self, kind: str, identifier: str) -> None:
        """Asks AWS to remove it. If AWS refuses the last call, the first refusal is kept for `left`."""
        _, removal = self._kinds[kind]
        refusal = None
        for call in removal(identifier):
            try:
                _if_there(call)
                refusal = None
            except (ClientError, BotoCoreError) as error:
                refusal = refusal or str(error)
        if refusal is not None:
            self._refused[str(Thing(kind, identifier, ""))] = refusal

    def instances(self, states: list[str]) -> list[dict[str, Any]]:
        """Returns the descriptions of the instances in these states, also of detached ones, which keep their tags."""
        filters = [{"Name": "tag-key", "Values": [TAG]}, {"Name": "instance-state-name", "Values": states}]
        reservations = self._every("ec2", "describe_instances", "Reservations", Filters=filters)
        every = (instance for reservation in reservations for instance in reservation["Instances"])
        return [each for each in every if self._is_of_the_runs(_tags(each).get("Name", ""), _tags(each))]

    def _is_of_the_runs(self, name: str, tags: Tags) -> bool:
        return name.startswith(PREFIX) and TAG in tags and (self._runs is None or tags[TAG] in self._runs)

    def _every(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[Any]:
        for page in self.account.client(service).get_paginator(operation).paginate(**parameters):
            yield from page.get(key, [])

    def _tags_of(self, name: str, read: Callable[..., Any], **which: Any) -> Tags:
        """Returns the tags of a thing that AWS lists without them. If the runs are known, a run in its name is enough."""
        if self._runs is None:
            return _tags(_if_there(read, **which))
        return next(({TAG: run} for run in self._runs if name.startswith(f"{PREFIX}{run}-")), {})

    # What there is

    def _groups(self) -> Iterator[tuple[str, str, Tags]]:
        filters = [{"Name": "tag-key", "Values": [TAG]}]
        for group in self._every("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters):
            yield group["AutoScalingGroupName"], group["AutoScalingGroupName"], _tags(group)

    def _instances(self) -> Iterator[tuple[str, str, Tags]]:
        for instance in self.instances(RUNNING):
            yield instance["InstanceId"], _tags(instance)["Name"], _tags(instance)

    def _templates(self) -> Iterator[tuple[str, str, Tags]]:
        filters = [{"Name": "tag-key", "Values": [TAG]}]
        for template in self._every("ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters):
            yield template["LaunchTemplateName"], template["LaunchTemplateName"], _tags(template)

    def _rules(self) -> Iterator[tuple[str, str, Tags]]:
        read = self.account.client("events").list_tags_for_resource
        for rule in self._every("events", "list_rules", "Rules", NamePrefix=PREFIX):
            yield rule["Name"], rule["Name"], self._tags_of(rule["Name"], read, ResourceARN=rule["Arn"])

    def _queues(self) -> Iterator[tuple[str, str, Tags]]:
        read = self.account.client("sqs").list_queue_tags
        for url in self._every("sqs", "list_queues", "QueueUrls", QueueNamePrefix=PREFIX):
            name = url.rpartition("/")[2]
            yield url, name, self._tags_of(name, read, QueueUrl=url)

    def _experiments(self) -> Iterator[tuple[str, str, Tags]]:
        for each in self._every("fis", "list_experiments", "experiments"):
            if each["state"]["status"] in ("pending", "initiating", "running"):
                yield each["id"], PREFIX, each.get("tags", {})

    def _experiment_templates(self) -> Iterator[tuple[str, str, Tags]]:
        for each in self._every("fis", "list_experiment_templates", "experimentTemplates"):
            yield each["id"], PREFIX, each.get("tags", {})

    def _roles(self) -> Iterator[tuple[str, str, Tags]]:
        read = self.account.client("iam").list_role_tags
        for role in self._every("iam", "list_roles", "Roles"):
            name = role["RoleName"]
            if name.startswith(PREFIX):
                yield name, name, self._tags_of(name, read, RoleName=name)

    # How it is removed

    def _group_calls(self, name: str) -> list[Callable[[], Any]]:
        """A group is deleted with its instances. It refuses that while it retains instances, so it stops to retain first."""
        autoscaling = self.account.client("autoscaling")
        policy = {"RetentionTriggers": {"TerminateHookAbandon": "terminate"}}
        return [
            partial(autoscaling.update_auto_scaling_group, AutoScalingGroupName=name, InstanceLifecyclePolicy=policy),
            partial(autoscaling.delete_lifecycle_hook, AutoScalingGroupName=name, LifecycleHookName=HOOK),
            partial(autoscaling.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True),
        ]

    def _instance_calls(self, instance: str) -> list[Callable[[], Any]]:
        """One for each instance: AWS terminates none of several if it does not know one of them."""
        return [partial(self.account.client("ec2").terminate_instances, InstanceIds=[instance])]

    def _template_calls(self, name: str) -> list[Callable[[], Any]]:
        return [partial(self.account.client("ec2").delete_launch_template, LaunchTemplateName=name)]

    def _rule_calls(self, name: str) -> list[Callable[[], Any]]:
        events = self.account.client("events")
        return [partial(events.remove_targets, Rule=name, Ids=["queue"]), partial(events.delete_rule, Name=name)]

    def _queue_calls(self, url: str) -> list[Callable[[], Any]]:
        return [partial(self.account.client("sqs").delete_queue, QueueUrl=url)]

    def _experiment_calls(self, identifier: str) -> list[Callable[[], Any]]:
        return [partial(self.account.client("fis").stop_experiment, id=identifier)]

    def _experiment_template_calls(self, identifier: str) -> list[Callable[[], Any]]:
        return [partial(self.account.client("fis").delete_experiment_template, id=identifier)]

    def _role_calls(self, name: str) -> list[Callable[[], Any]]:
        iam = self.account.client("iam")
        return [partial(iam.delete_role_policy, RoleName=name, PolicyName=POLICY), partial(iam.delete_role, RoleName=name)]


def _if_there(call: Callable[..., dict[str, Any]], **parameters: Any) -> dict[str, Any]:
    """Returns the answer, or nothing if the thing is gone or going."""
    try:
        return call(**parameters)
    except ClientError as error:
        if error.response["Error"]["Code"] not in GONE:
            raise
        return {}


def _tags(described: dict[str, Any]) -> Tags:
    tags = described.get("Tags", [])
    return tags if isinstance(tags, dict) else {each["Key"]: each["Value"] for each in tags}
