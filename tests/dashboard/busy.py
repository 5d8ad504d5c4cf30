"""A day on which 200 nodes are recycled, in made-up numbers: what the dashboard of a large cluster shows."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.insights import Entry
from world.aws.metrics import Measurement
from world.deployment import CLUSTER

#: The nodes that end in each hour of the day: a rotation from 08:00 to 20:00, and a few nodes at night.
RECYCLED = (1, 0, 1, 0, 0, 1, 0, 2, 12, 18, 20, 19, 17, 21, 20, 16, 18, 14, 9, 6, 2, 1, 1, 1)
RESTORED = {10: 1, 14: 2, 17: 1}
REFUSED = {9: 1, 13: 2}
LEFT = {15: 1}
HOUR = 3_600


def measure(began: float) -> Iterator[Measurement]:
    """The metrics of the day."""
    for hour, nodes in enumerate(RECYCLED):
        at = began + hour * HOUR
        yield _metric(at, "DrainSeconds", 600 + 5_400 * min(nodes, 8) / 2)
        yield _metric(at, "DrainSeconds", 900)
        for outcome, count in (
            ("recycled", nodes),
            ("DrainTimedOut", RESTORED.get(hour, 0)),
            ("LeftInStandby", LEFT.get(hour, 0)),
        ):
            yield from (_metric(at, "Executions", 1, outcome=outcome) for _ in range(count))
        yield from (_metric(at, "Restores", 1) for _ in range(RESTORED.get(hour, 0)))
        yield from (_metric(at, "ManualCommands", 1) for _ in range(LEFT.get(hour, 0)))
        if 8 <= hour <= 18:
            yield _metric(at, "BlockedPods", 1 + hour * 7 % 5)
        for quarter in range(4):
            yield _metric(at + quarter * 900, "ClaimedNodes", min(nodes, 15) + quarter % 2)
            yield _metric(at + quarter * 900, "OverdueClaims", 0)


def log(began: float) -> Iterator[Entry]:
    """The lines of the functions' logs."""
    number = 0
    for hour, nodes in enumerate(RECYCLED):
        ends = [
            ("recycled", "recycled", "detach-terminate", nodes),
            ("DrainTimedOut", "restored", "restore-node", RESTORED.get(hour, 0)),
            ("PreflightRefused", "untouched", "restore-node", REFUSED.get(hour, 0)),
            ("LeftInStandby", "left_in_standby", "restore-node", LEFT.get(hour, 0)),
        ]
        for outcome, verdict, function, count in ends:
            for each in range(count):
                number += 1
                at = began + hour * HOUR + 3_000 * each / max(count, 1)
                group = f"/aws/lambda/recycle-eks-{function}"
                yield Entry(at, group, {"Executions": 1, "cluster": CLUSTER, "outcome": outcome})
                yield Entry(at, group, _decision(number, verdict))


def _decision(number: int, verdict: str) -> dict[str, str]:
    instance = f"i-0{number:016x}"
    reasons = {
        "recycled": f"node ip-10-0-{number // 250}-{number % 250}.ec2.internal ({instance}) is terminated",
        "restored": "failed to drain the node in time: it waits for 1 pod (default/train-x2k9q); the node is in service",
        "untouched": f"scale_in_protection: {instance} is protected from scale-in",
        "left_in_standby": "the node stays in Standby: group gpu has minimum 4, desired capacity 4 and maximum 4",
    }
    execution = f"arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:manual-{instance}-{number:04x}"
    return {"verdict": verdict, "instance": instance, "reason": reasons[verdict], "execution": execution}


def _metric(moment: float, name: str, value: float, **more: str) -> Measurement:
    return Measurement(moment, "recycle-eks", name, "Count", {"cluster": CLUSTER, **more}, value)
