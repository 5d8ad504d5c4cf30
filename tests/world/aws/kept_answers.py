"""Answers to reads that are given again while nothing has changed.

A drain asks for the same group hundreds of times, and moto's answers were a third of the processor time of this process.
`LOCK.changes` (moto_internals.py) says whether a backend may have changed since.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from world.aws.moto_internals import LOCK
from world.aws.server import Answer

#: Reads of EC2, Auto Scaling and EKS whose answers depend on the backends alone, and not on the time.
KEPT = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:DescribeLifecycleHooks",
    "ec2:DescribeInstances",
    "eks:DescribeCluster",
}
#: Services whose calls change nothing that these reads show: messages, events and executions.
UNRELATED = {"events", "logs", "sns", "sqs", "stepfunctions"}


class KeptAnswers:
    """The answers since the last change. Call it with LOCK or READING held."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str, bytes], Answer] = {}
        self._changes = -1

    def answer(self, action: str, environ: dict[str, Any], body: bytes, ask: Callable[[], Answer]) -> Answer:
        """Returns the kept answer to an equal request, or else asks, and keeps the answer."""
        if action not in KEPT:
            return ask()
        if self._changes != LOCK.changes:
            self._answers.clear()
        request = (action, _region_of(environ), environ["RAW_URI"], body)
        if (kept := self._answers.get(request)) is not None:
            return kept
        answer = ask()
        self._answers[request], self._changes = answer, LOCK.changes
        return answer


def _region_of(environ: dict[str, Any]) -> str:
    """Returns the region for which a request is signed."""
    scope = re.search(r"Credential=[^/,]+/\d+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    return scope[1] if scope else ""
