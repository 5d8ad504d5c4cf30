"""The events of the groups, as EventBridge delivers them to the queue of the run."""

from __future__ import annotations

import json
from typing import Any

from probe.account import Account

#: The empty answers in a row after which the queue counts as empty.
EMPTY_ANSWERS = 3


class Inbox:
    """Reads the queue when it is asked, and keeps everything that came."""

    def __init__(self, account: Account, url: str) -> None:
        self._account, self._url = account, url
        self.events: list[dict[str, Any]] = []

    def of(self, group: str) -> list[dict[str, Any]]:
        """Returns the events of a group so far."""
        self.read()
        return [event for event in self.events if event["detail"].get("AutoScalingGroupName") == group]

    def read(self) -> None:
        """SQS can answer nothing although there are messages, so it is asked again."""
        sqs, empty = self._account.client("sqs"), 0
        while empty < EMPTY_ANSWERS:
            messages = sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", [])
            empty = 0 if messages else empty + 1
            self.events += [json.loads(message["Body"]) for message in messages]
            entries = [{"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]} for number, each in enumerate(messages)]
            if entries:
                sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Returns for each kind of event the number, the names of its fields, and the first one."""
        kinds: dict[str, dict[str, Any]] = {}
        for event in self.events:
            kind = kinds.setdefault(event["detail-type"], {"number": 0, "fields": sorted(event["detail"]), "first": event})
            kind["number"] += 1
        return kinds
