"""The least time of a rotation, whatever controls it.

Executions that ran alone in the same world give each node's own times. `alone` is the time from its start to its end. `slot` is
the time for which it holds one of its group's parallel slots, from its start until it is replaced and has nothing left to
evict.

The order of the nodes is given. Three limits hold: `at_once` executions in the group, `max_parallel_per_group` slots, and the
canary, because no other node starts before the first node has its replacement.

Start each node, in order, as early as these limits allow. No schedule with this order ends earlier. A node that starts later
than it could never frees a place or a slot sooner, so neither the next node nor the end comes sooner. (The sorted list of the
times at which places become free is, node by node, at least as late.) Groups are independent, so the fleet's bound is that of
its slowest group.

The rotation itself causes any time above the bound. Its checks come later than the events they wait for, it notices free slots
late, and there are steps between two nodes. Each node's own checks are part of its own times.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class OwnTimes:
    """The times of a node that is recycled alone, in seconds."""

    replaced: float
    """The time until its replacement is accepted."""
    slot: float
    """The time until it frees its slot."""
    alone: float
    """The time until its execution has ended."""


def least_makespan(nodes: Sequence[OwnTimes], at_once: int, max_parallel: int) -> float:
    """Seconds from the first node's start to the last one's end, in this order; 0 for no nodes."""
    places, slots = [0.0] * at_once, [0.0] * max_parallel
    canary = nodes[0].replaced if nodes else 0.0
    last = 0.0
    for position, node in enumerate(nodes):
        free = max(heapq.heappop(places), canary if position else 0.0)
        begins = max(free, heapq.heappop(slots))
        ends = begins + node.alone
        heapq.heappush(slots, begins + node.slot)
        heapq.heappush(places, ends)
        last = max(last, ends)
    return last
