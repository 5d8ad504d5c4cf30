"""The activities of groups for DescribeScalingActivities, and the events for the end of a launch or a termination."""

from __future__ import annotations

import datetime
from typing import Any

from moto.moto_api._internal import mock_random

from world.aws.autoscaling.model import Group, Member
from world.aws.ec2 import Emit
from world.base.clock import Clock


class Activities:
    """The activities of all groups, those of each with the newest first."""

    def __init__(self, clock: Clock, emit: Emit):
        self._clock = clock
        self._emit = emit
        self._books: dict[str, list[dict[str, Any]]] = {}

    def clear(self) -> None:
        self._books.clear()

    def begin(self, group: Group, description: str, cause: str, member: Member | None) -> dict[str, Any]:
        now = self.now()
        activity = {
            "ActivityId": str(mock_random.uuid4()),
            "AutoScalingGroupName": group.name,
            "AutoScalingGroupARN": group.arn,
            "Description": description,
            "Cause": f"At {now:%Y-%m-%dT%H:%M:%SZ} {cause}.",
            "StartTime": now,
            "StatusCode": "InProgress",
            "Progress": 0,
        }
        if member is not None:
            activity["Details"] = (
                f'{{"Availability Zone":"{member.availability_zone}","Subnet ID":"{member.instance.subnet_id}"}}'
            )
        self._books.setdefault(group.name, []).insert(0, activity)
        return activity

    def finish(self, activity: dict[str, Any], status: str, message: str | None = None) -> None:
        activity.update(StatusCode=status, Progress=100, EndTime=self.now())
        if message is not None:
            activity["StatusMessage"] = message

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC).replace(tzinfo=None)

    def launch_failed(self, group: Group, message: str, subnet: Any) -> None:
        activity = self.begin(
            group,
            "Launching a new EC2 instance.  Status Reason: " + message,
            "an instance was started in response to a difference between desired and actual capacity",
            None,
        )
        self.finish(activity, "Failed", message)
        self._emit(
            "aws.autoscaling",
            "EC2 Instance Launch Unsuccessful",
            {
                "StatusCode": "Failed",
                "StatusMessage": message,
                "AutoScalingGroupName": group.name,
                "ActivityId": activity["ActivityId"],
                "RequestId": activity["ActivityId"],
                "Description": activity["Description"],
                "Cause": activity["Cause"],
                "Details": {"Availability Zone": subnet.availability_zone, "Subnet ID": subnet.id},
                "EC2InstanceId": "",
                "Origin": "EC2",
                "Destination": "AutoScalingGroup",
            },
            [group.arn],
        )

    def emit_outcome(self, detail_type: str, member: Member, activity: dict[str, Any]) -> None:
        launch = "Launch" in detail_type
        self._emit(
            "aws.autoscaling",
            detail_type,
            {
                "StatusCode": "InProgress",
                "AutoScalingGroupName": member.group.name,
                "ActivityId": activity["ActivityId"],
                "RequestId": activity["ActivityId"],
                "Description": activity["Description"],
                "Cause": activity["Cause"],
                "Details": {"Availability Zone": member.availability_zone},
                "EC2InstanceId": member.instance_id,
                "Origin": "EC2" if launch else "AutoScalingGroup",
                "Destination": "AutoScalingGroup" if launch else "EC2",
            },
            [member.group.arn],
        )

    def describe_scaling_activities(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Newest first."""
        name = parameters.get("AutoScalingGroupName")
        if name is not None:
            activities = self._books.get(name, [])
        else:
            activities = sorted((a for book in self._books.values() for a in book), key=lambda a: a["StartTime"], reverse=True)
        wanted = parameters.get("ActivityIds")
        if wanted:
            activities = [a for a in activities if a["ActivityId"] in wanted]
        first, most = int(parameters.get("NextToken") or 0), min(int(parameters.get("MaxRecords") or 100), 100)
        answer: dict[str, Any] = {"Activities": activities[first : first + most]}
        if first + most < len(activities):
            answer["NextToken"] = str(first + most)
        return answer
