"""How long a rotation must take at least, whoever steers it.

Known are, from executions that ran alone in the same world, each node's own times: `turn`, how long it holds one of its group's
turns (from its start until it is replaced and has nothing left to evict), and `alone`, its start to its end. Given are the
order of the nodes, `at_once` (no more executions of the group than that), `max_parallel_per_group` (no more turns), and the
canary: nobody else begins before the first node has its replacement.

Begin each node, in order, as early as these allow. No schedule with this order ends earlier: taken in order, whoever begins a
node later than it could never frees a place or a turn sooner (the sorted list of the moments at which places get free is, node
by node, at least as late), so neither the next node nor the end comes sooner. Groups do not know of each other: the fleet's
bound is that of its slowest group.

What is above it is the rotation's own doing: looks that come later than what they wait for, turns that are noticed late, the
steps between two nodes. Each node's own looks are in its own times.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class OwnTimes:
    """Of a node that is recycled alone, in seconds."""

    replaced: float
    """Until its replacement is accepted."""
    turn: float
    """Until it hands its turn on."""
    alone: float
    """Until its execution has ended."""


def least_makespan(nodes: Sequence[OwnTimes], at_once: int, max_parallel: int) -> float:
    """Seconds from the first node's start to the last one's end, in this order; 0 for no nodes."""
    places, turns = [0.0] * at_once, [0.0] * max_parallel
    canary = nodes[0].replaced if nodes else 0.0
    last = 0.0
    for position, node in enumerate(nodes):
        free = max(heapq.heappop(places), canary if position else 0.0)
        begins = max(free, heapq.heappop(turns))
        ends = begins + node.alone
        heapq.heappush(turns, begins + node.turn)
        heapq.heappush(places, ends)
        last = max(last, ends)
    return last
