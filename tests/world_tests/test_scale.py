"""The computations of `make scale`: the level of a bucket, and the least time of a rotation."""

from __future__ import annotations

import random

import pytest

from scale.bound import OwnTimes, least_makespan
from scale.quotas import QUOTAS, Quota, drawing_action, use_of
from scale.report import duration

BUCKET = Quota("calls", ("service:Call*",), size=3, refill=2, source="a page")


@pytest.mark.parametrize(
    "moments, level, most",
    [
        ([], 0, 0),
        ([5], 1, 1),
        ([5, 5, 5], 3, 3),
        ([5, 5, 5, 5], 4, 4),
        ([5, 5, 5, 6, 6], 3, 3),
        ([5, 5, 5, 5.5, 5.5], 4, 5),
        ([6, 5, 5, 5], 3, 3),
        ([0, 100, 200], 1, 1),
    ],
)
def test_a_bucket_fills_by_calls_and_leaks_by_time(moments: list[float], level: float, most: int) -> None:
    use = use_of(BUCKET, moments)
    assert (use.calls, use.level, use.most_in_a_second) == (len(moments), level, most)
    assert use.is_held == (level <= 3)


def test_every_call_of_auto_scaling_draws_from_one_bucket_and_those_of_ec2_each_from_its_own() -> None:
    def buckets(action: str) -> list[str]:
        return [quota.name for quota in QUOTAS if quota.draws(action)]

    assert buckets("autoscaling:EnterStandby") == buckets("autoscaling:DescribeAutoScalingGroups") == ["Auto Scaling, all calls"]
    assert buckets("ec2:CreateTags") == ["EC2 CreateTags"]
    assert buckets("kubernetes:GET nodes") == []


@pytest.mark.parametrize(
    "parameters, bucket",
    [
        ({"InstanceIds": ["i-1"]}, (50, 10)),
        ({}, (50, 10)),
        ({"Filters": [{"Name": "instance-id", "Values": ["i-1"]}]}, (100, 20)),
        ({"Filters": [], "NextToken": "two"}, (100, 20)),
    ],
)
def test_a_call_by_ids_draws_from_the_smaller_bucket_and_one_with_a_filter_from_the_larger(parameters, bucket) -> None:
    drawing = drawing_action("ec2:DescribeInstances", parameters)
    assert [(quota.size, quota.refill) for quota in QUOTAS if quota.draws(drawing)] == [bucket]


NODE = OwnTimes(replaced=1, slot=2, alone=10)


@pytest.mark.parametrize(
    "nodes, at_once, max_parallel, least",
    [
        ([], 3, 1, 0),
        ([NODE], 3, 1, 10),
        # The nodes start at 0, 2 (a free slot) and 10 (a free place).
        ([NODE] * 3, 2, 1, 20),
        # The nodes start at 0, 1 (the canary) and 10.
        ([NODE] * 3, 2, 2, 20),
        ([NODE] * 2, 2, 2, 11),
        # Only the slots limit the start.
        ([NODE] * 4, 4, 1, 16),
        ([OwnTimes(1, 10, 10)] * 4, 4, 1, 40),
    ],
)
def test_a_rotation_takes_at_least(nodes: list[OwnTimes], at_once: int, max_parallel: int, least: float) -> None:
    assert least_makespan(nodes, at_once, max_parallel) == least


def test_no_schedule_in_this_order_ends_before_the_bound() -> None:
    chance = random.Random(1)
    beaten = 0
    for _ in range(2000):
        nodes = []
        for _ in range(chance.randint(1, 7)):
            replaced = chance.randint(1, 3)
            slot = replaced + chance.randint(0, 4)
            nodes.append(OwnTimes(replaced, slot, slot + chance.randint(0, 9)))
        at_once, max_parallel = chance.randint(1, 4), chance.randint(1, 3)
        least = least_makespan(nodes, at_once, max_parallel)
        end = some_schedule(nodes, at_once, max_parallel, chance)
        assert end >= least
        beaten += end > least
    assert beaten > 500


def some_schedule(nodes: list[OwnTimes], at_once: int, max_parallel: int, chance: random.Random) -> float:
    """Returns the end of the last node if each starts in order, somewhat later than it could, second by second."""
    begun: list[tuple[float, OwnTimes]] = []
    now = 0.0
    while len(begun) < len(nodes):
        underway = sum(begin + node.alone > now for begin, node in begun)
        busy = sum(begin + node.slot > now for begin, node in begun)
        canary_is_over = not begun or now >= begun[0][0] + nodes[0].replaced
        if underway < at_once and busy < max_parallel and canary_is_over and chance.random() < 0.8:
            begun.append((now, nodes[len(begun)]))
        else:
            now += 1
    return max(begin + node.alone for begin, node in begun)


def test_durations_are_hours_minutes_and_seconds() -> None:
    assert [duration(seconds) for seconds in (0, 59.6, 3599, 360_000)] == ["0:00:00", "0:01:00", "0:59:59", "100:00:00"]
