"""Many nodes in several groups: how long it takes, and what AWS would say to so many calls (`make scale` has a thousand)."""

from __future__ import annotations

import pytest

from scale.report import failures_of, lines
from scale.rotation import SMALL, Plan, measure
from world.world import World


def test_groups_that_are_raised_for_each_node_take_little_more_than_the_least_time(world: World) -> None:
    plan = Plan(groups=1, nodes_each=6, replacement="surge", alone=1)
    figures = measure(world, plan, lambda what, done, of: None)

    print("\n".join(lines(figures)))
    assert failures_of(figures) == [] and figures.recycled == 6


@pytest.mark.long
def test_a_fleet_is_rotated_in_little_more_than_the_least_time_and_within_the_quotas(world: World) -> None:
    figures = measure(world, SMALL, lambda what, done, of: None)

    print("\n".join(lines(figures)))
    assert failures_of(figures) == []
    assert figures.nodes == figures.recycled == 12
    # The bound is no free lunch: it is what each group's nodes take by themselves.
    assert figures.bound > 6 / figures.at_once * min(times.alone for times in figures.own_times.values())
    # No cost of a node grows with the fleet: it is the cost of a node alone, and some checks while it waits in the queue.
    assert figures.requests["kubernetes:GET nodes"] < 12 * 60
