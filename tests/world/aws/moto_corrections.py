"""Answers of moto that AWS's models do not have, made as the models have them. world/aws/models.py found each."""

from __future__ import annotations

import json
from typing import Any

from moto.awslambda.responses import LambdaResponse
from moto.ec2.models.amis import Ami
from moto.events.responses import EventsHandler
from moto.scheduler.responses import EventBridgeSchedulerResponse

from world.aws.moto_internals import moto_original

#: API reference of EventBridge Scheduler, ScheduleSummary.
IN_A_LIST = {"Arn", "CreationDate", "GroupName", "LastModificationDate", "Name", "State", "Target"}


def install() -> None:
    """More than once is the same as once."""
    add_permission = moto_original(LambdaResponse, "add_permission")
    list_rules = moto_original(EventsHandler, "list_rules")
    list_schedules = moto_original(EventBridgeSchedulerResponse, "list_schedules")

    create_image = moto_original(Ami, "__init__")

    def image(ami: Ami, *arguments: Any, **named: Any) -> None:
        """API reference, Image: "This value is set to windows for Windows AMIs; otherwise, it is blank"."""
        create_image(ami, *arguments, **named)
        ami.platform = ami.platform if ami.platform == "windows" else None

    def permission_added(response: LambdaResponse) -> tuple[int, dict[str, Any], str]:
        return 201, {"status": 201}, add_permission(response)

    def rules_without_their_creator(response: EventsHandler) -> tuple[str, dict[str, Any]]:
        """Only DescribeRule has the account that made a rule."""
        text, headers = list_rules(response)
        answer = json.loads(text)
        for rule in answer["Rules"]:
            rule.pop("CreatedBy", None)
        return json.dumps(answer), headers

    Ami.__init__ = image

    def short_schedules(response: EventBridgeSchedulerResponse) -> str:
        """A schedule has fewer fields in a list."""
        answer = json.loads(list_schedules(response))
        for schedule in answer["Schedules"]:
            for name in schedule.keys() - IN_A_LIST:
                del schedule[name]
        return json.dumps(answer)

    EventBridgeSchedulerResponse.list_schedules = short_schedules
    LambdaResponse.add_permission = permission_added
    EventsHandler.list_rules = rules_without_their_creator
