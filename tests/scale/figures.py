"""The figures of a rotation of a fleet: its time, its calls, its sizes, its cost. This module runs nothing."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scale.bound import OwnTimes
from scale.quotas import QUOTAS, SMALL_REGIONS, Use, drawing_action, use_of
from world.stepfunctions.engine import HISTORY_LIMIT, PAYLOAD_LIMIT
from world.stepfunctions.executions import Execution as EngineExecution
from world.world import World

#: Dollars, as in docs/cost.md: a state transition, a request, a GB-second on arm64; and what is assumed of an invocation.
TRANSITION, REQUEST, GB_SECOND = 0.000025, 0.0000002, 0.0000133334
SECONDS, GIGABYTES = 0.2, 0.125


@dataclass(frozen=True)
class Sizes:
    """The largest of each, and what it may be."""

    history_events: int
    payload_bytes: int
    map_items: int
    executions_at_once: int

    @property
    def limits(self) -> dict[str, tuple[int, int]]:
        """Returns by name the value that was reached, and the limit of Step Functions."""
        return {
            "events in one history": (self.history_events, HISTORY_LIMIT),
            "bytes of one input, output or result": (self.payload_bytes, PAYLOAD_LIMIT),
            "items of one inline Map": (self.map_items, 1000),
            "executions at once": (self.executions_at_once, 1_000_000),
        }


@dataclass(frozen=True)
class Figures:
    """All figures of one rotation."""

    nodes: int
    groups: int
    nodes_each: int
    large: int
    """The size of one more group; 0: no such group."""
    at_once: int
    max_parallel: int
    replacement: str
    makespan: float
    bound: float
    recycled: int
    outcome: str
    transitions: int
    invocations: int
    requests: Mapping[str, int]
    checks_per_node: float
    events_per_node: float
    sizes: Sizes
    uses: list[Use]
    own_times: Mapping[str, OwnTimes]
    real_seconds: float
    functions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The ratio of the makespan to the least possible time."""
        return self.makespan / self.bound

    @property
    def dollars_per_node(self) -> float:
        """The cost of recycle-eks itself, without the instances."""
        lambdas = self.invocations * (REQUEST + SECONDS * GIGABYTES * GB_SECOND)
        return (self.transitions * TRANSITION + lambdas) / self.nodes

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["ratio"] = self.ratio
        fields["dollars_per_node"] = self.dollars_per_node
        return fields


def sizes_of(executions: Iterable[EngineExecution]) -> Sizes:
    executions = list(executions)
    texts = (value for execution in executions for event in execution.events for value in _texts(event))
    maps = (event.get("mapStateStartedEventDetails") for execution in executions for event in execution.events)
    return Sizes(
        history_events=max(len(execution.events) for execution in executions),
        payload_bytes=max((len(text.encode()) for text in texts), default=0),
        map_items=max((details["length"] for details in maps if details), default=0),
        executions_at_once=_most_at_once(executions),
    )


def _texts(event: dict[str, Any]) -> Iterable[str]:
    for name, details in event.items():
        if name.endswith("EventDetails"):
            yield from (details[key] for key in ("input", "output", "parameters", "cause") if isinstance(details.get(key), str))


def _most_at_once(executions: list[EngineExecution]) -> int:
    starts = [(each.start, 1) for each in executions]
    changes = sorted(starts + [(each.stop or float("inf"), -1) for each in executions])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def uses_of(world: World, executions: Iterable[EngineExecution]) -> list[Use]:
    """Returns the use of each quota: calls of functions and state machines, and those of Step Functions itself."""
    moments: dict[str, list[float]] = defaultdict(list)
    for call in world.aws.calls:
        # A call, a state machine or a rule starts an execution. All of them are counted below.
        if call.action != "states:StartExecution":
            moments[drawing_action(call.action, call.parameters)].append(call.at)
    start = world.clock.start
    for execution in executions:
        if execution.map_run_arn is None:
            moments["states:StartExecution"].append(execution.start - start)
        for event in execution.events:
            if "stateEnteredEventDetails" in event:
                moments["states:StateTransition"].append(event["timestamp"] - start)
            scheduled = event.get("taskScheduledEventDetails")
            if scheduled and scheduled["resourceType"] == "lambda":
                moments["lambda:Invoke"].append(event["timestamp"] - start)
    return [
        use_of(quota, [moment for action, at in moments.items() if quota.draws(action) for moment in at])
        for quota in (*QUOTAS, *SMALL_REGIONS)
    ]


def requests_of(world: World) -> dict[str, int]:
    """The functions' calls by action, the most frequent first."""
    return dict(Counter(call.action for call in world.calls()).most_common())


def transitions_of(executions: Iterable[EngineExecution]) -> int:
    """States entered, which is what is charged (and retries, of which there are none without faults)."""
    return sum("stateEnteredEventDetails" in event for execution in executions for event in execution.events)


def functions_of(world: World) -> dict[str, dict[str, float]]:
    """Returns by function: invocations, milliseconds on this machine (median, longest), and the most memory that one had
    (MiB)."""
    of = defaultdict(list)
    for sample in world.host.samples:
        of[sample.function].append(sample)
    return {
        name: {
            "invocations": len(samples),
            "median_ms": statistics.median(sample.duration_ms for sample in samples),
            "longest_ms": max(sample.duration_ms for sample in samples),
            "memory_mib": max(sample.vm_hwm_kb or 0 for sample in samples) / 1024,
        }
        for name, samples in sorted(of.items())
    }


def dump(figures: Figures) -> str:
    return json.dumps(figures.to_json(), indent=1) + "\n"
