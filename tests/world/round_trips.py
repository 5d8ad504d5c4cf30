"""The round trips of a function: how many calls an invocation makes, and how many of them have to wait for one another.

On AWS a call takes 20 to 80 ms, and a function computes for 5 ms. So an invocation takes as long as its longest chain of calls,
in which each begins after the one before has been answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from world.aws.lambda_host import INVOKE
from world.world import World

#: A call is answered when its function has begun no other one for so many real seconds. Calls that are made together begin
#: within a few milliseconds, on a busy machine within more.
QUIET = 0.06


@dataclass(frozen=True)
class RoundTrip:
    action: str
    began: float
    ended: float


@dataclass
class Invoked:
    """One invocation with its calls. Only one invocation of a function may run at a time."""

    function: str
    calls: list[RoundTrip] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """The number of calls in the longest chain."""
        chain: list[RoundTrip] = []
        for call in sorted(self.calls, key=lambda call: call.ended):
            if not chain or call.began >= chain[-1].ended:
                chain.append(call)
        return len(chain)

    @property
    def rounds(self) -> list[list[str]]:
        """The actions, those that were made together in one list."""
        rounds: list[list[RoundTrip]] = []
        for call in sorted(self.calls, key=lambda call: call.began):
            if rounds and call.began < min(other.ended for other in rounds[-1]):
                rounds[-1].append(call)
            else:
                rounds.append([call])
        return [sorted(call.action for call in made) for made in rounds]


@contextmanager
def round_trips(world: World) -> Iterator[list[Invoked]]:
    """Lets each call wait for those that are made together with it. Yields the invocations, which are complete at the end."""
    invocations: list[Invoked] = []
    current: dict[str | None, Invoked] = {}
    last_began: dict[str | None, float] = {}
    call_of_thread = threading.local()

    def begin(action: str, function: str | None, parameters: dict[str, Any]) -> None:
        last_began[function] = call_of_thread.began = time.monotonic()
        call_of_thread.function = function
        if action == INVOKE and function is not None:
            current[function] = Invoked(function.removeprefix("recycle-eks-"))
            invocations.append(current[function])

    def take_time(action: str) -> float:
        function = call_of_thread.function
        while (rest := last_began[function] + QUIET - time.monotonic()) > 0:
            time.sleep(rest)
        call = RoundTrip(action, call_of_thread.began, time.monotonic())
        if (invoked := current.get(function)) is not None:
            invoked.calls.append(call)
        return 0.0

    proxy = world.kubernetes.proxy
    before = world.aws.latency, proxy.latency
    world.faults.witnesses.append(begin)
    world.aws.latency = proxy.latency = take_time
    try:
        yield invocations
    finally:
        world.faults.witnesses.remove(begin)
        world.aws.latency, proxy.latency = before
