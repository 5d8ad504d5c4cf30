"""The speed of virtual time for a viewer: it stops at each event, and becomes faster while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from world.base.clock import Deadlock, LimitReached
from world.cli import Cli
from world.scenario.executions import Execution
from world.world import World

#: Real seconds for which time stands when something has happened, and after each stretch.
STANDS, RESTS = 0.35, 0.08
#: Virtual seconds of the first stretch after something has happened, of the longest, and how much longer each is than the last.
FIRST, LONGEST, GROWTH = 5.0, 1200.0, 1.25


class Pace:
    """Lets time pass for command lines that a person watches."""

    def __init__(self, world: World, cli: Cli) -> None:
        self._world, self._cli = world, cli
        self._seen: Any = None
        self._states: dict[str, tuple[int, frozenset[str]]] = {}

    def stands_still(self, is_over: Callable[[], bool]) -> None:
        """Waits until the condition holds, without passing virtual time."""
        while not is_over():
            self._world.clock.run(limit=self._world.clock.elapsed())
            self._cli.writes_time()
            time.sleep(RESTS)

    def goes_on(self, is_over: Callable[[], bool]) -> None:
        """Lets time pass until the condition holds."""
        stretch = FIRST
        while not is_over():
            if self._lets_pass(stretch):
                stretch = FIRST
                time.sleep(STANDS)
            else:
                stretch = min(stretch * GROWTH, LONGEST)
                time.sleep(RESTS)

    def _lets_pass(self, seconds: float) -> bool:
        """Lets time pass, and checks whether something has happened. If so, the clock stops there."""
        clock = self._world.clock
        end = clock.elapsed() + seconds
        try:
            clock.run(until=self._has_changed, limit=end)
            return True
        except (LimitReached, Deadlock):
            clock.run(limit=end)
            return False
        finally:
            self._cli.writes_time()

    def _has_changed(self) -> bool:
        before, self._seen = self._seen, self._read()
        return self._seen != before

    def _read(self) -> Any:
        """Reads the facts that a viewer notices: states entered for the first time, ends, members, pods and their nodes."""
        executions = [(execution.status, self._entered_by(execution)) for execution in self._world.executions()]
        members = [group.states for group in self._world.groups.values()]
        pods = {
            pod["metadata"]["uid"]: (
                pod["spec"].get("nodeName"),
                pod["status"].get("phase"),
                "deletionTimestamp" in pod["metadata"],
            )
            for pod in self._world.kubernetes.look_at_pods()
        }
        return executions, members, pods

    def _entered_by(self, execution: Execution) -> frozenset[str]:
        """Returns the states. Reads only the events since the last check, because there are thousands of checks."""
        events = self._world.engine.execution(execution.arn).events
        read, states = self._states.get(execution.arn, (0, frozenset()))
        new = {event["stateEnteredEventDetails"]["name"] for event in events[read:] if "stateEnteredEventDetails" in event}
        self._states[execution.arn] = len(events), states | new
        return states | new
