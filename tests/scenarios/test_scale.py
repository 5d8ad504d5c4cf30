"""Many nodes in several groups: how long it takes, and what AWS would say to so many calls (`make scale` has a thousand)."""

from __future__ import annotations

import pytest

from scale.report import failures_of, lines
from scale.rotation import SMALL, measure
from world.world import World


@pytest.mark.long
def test_a_fleet_is_rotated_in_little_more_than_the_least_time_and_within_the_quotas(world: World) -> None:
    figures = measure(world, SMALL, lambda what, done, of: None)

    print("\n".join(lines(figures)))
    assert failures_of(figures) == []
    assert figures.nodes == figures.recycled == 30
    # The bound is no free lunch: it is what each group's nodes take by themselves.
    assert figures.bound > 10 / figures.at_once * min(times.alone for times in figures.own_times.values())
    # Nothing that a node costs grows with the fleet: it is what a node costs alone, and some looks while it waits for its turn.
    assert figures.requests["kubernetes:GET nodes"] < 30 * 60
