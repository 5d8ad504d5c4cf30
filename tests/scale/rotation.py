"""Rotates a fleet on the local world and measures it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scale.bound import OwnTimes, least_makespan
from scale.figures import Figures, functions_of, requests_of, sizes_of, transitions_of, uses_of
from scale.fleet import KINDS, SELECTOR, Fleet
from world.scenario.executions import Execution
from world.scenario.groups import Node
from world.stepfunctions.executions import Execution as EngineExecution
from world.world import World

#: Virtual seconds between two checks of the progress.
LOOK = 60
#: A rotation that takes longer than this has hung: virtual seconds.
PATIENCE = 14 * 86_400
Show = Callable[[str, int, int], None]
"""Called with the name of a step, its progress and its total."""


@dataclass(frozen=True)
class Plan:
    """The size of the fleet, and the terms of the rotation."""

    groups: int
    nodes_each: int
    large: int = 0
    """The size of one more group; 0: no such group."""
    at_once: int = 5
    max_parallel: int = 1
    """The module's max_parallel_per_group."""
    replacement: str = "before"
    alone: int = 4
    """The number of nodes of each kind that are recycled alone before. The instance id spreads the first wait over half a
    minute."""

    @property
    def sizes(self) -> list[int]:
        """The sizes of the groups."""
        return [self.nodes_each] * self.groups + [self.large] * (self.large > 0)


FULL = Plan(groups=20, nodes_each=10, large=300)
#: The plans of `make bench` and of `make test`.
MEDIUM = Plan(groups=3, nodes_each=20, alone=2)
SMALL = Plan(groups=2, nodes_each=6, alone=2)


def measure(world: World, plan: Plan, show: Show) -> Figures:
    """Measures each kind alone, then the fleet."""
    own = own_times(world, plan, show)
    world.reset()
    world.host.variables["recycle-eks-claim-node"] = {"MAX_PARALLEL_PER_GROUP": str(plan.max_parallel)}
    show("launching the fleet", 0, 1)
    fleet = Fleet(world, plan.sizes, rebalances=plan.replacement != "surge")
    show("launching the fleet", 1, 1)
    began = time.monotonic()
    with fleet.jobs_end():
        rotation = world.rotate(at_once=plan.at_once, recycle={"label_selector": SELECTOR, "replacement": plan.replacement})
        follow(world, rotation, sum(plan.sizes), show)
    return figures_of(world, fleet, plan, rotation, own, time.monotonic() - began)


def follow(world: World, rotation: Execution, nodes: int, show: Show) -> None:
    """Lets time pass until it has ended."""
    while rotation.status == "RUNNING":
        if world.clock.elapsed() > PATIENCE:
            raise TimeoutError(f"the rotation runs for {PATIENCE / 86_400:.0f} days")
        world.wait(LOOK)
        show("recycling", sum(each.status != "RUNNING" for each in world.executions()), nodes)


# -- each node's own times ---------------------------------------------------------------------------------------------


def own_times(world: World, plan: Plan, show: Show) -> dict[str, OwnTimes]:
    """Returns the mean times of each kind of workload, by its name. The nodes are recycled one after the other, alone in the
    world."""
    found = {}
    for number, kind in enumerate(KINDS):
        show("recycling each kind alone", number, len(KINDS))
        world.reset()
        fleet = Fleet(world, [plan.alone], mixture=[kind], rebalances=plan.replacement != "surge")
        with fleet.jobs_end():
            found[kind.name] = mean([_alone(world, node, plan.replacement) for node in fleet.nodes])
    show("recycling each kind alone", len(KINDS), len(KINDS))
    return found


def _alone(world: World, node: Node, replacement: str) -> OwnTimes:
    began = world.clock.elapsed()
    world.forget_calls()
    execution = world.recycle(node, label_selector=SELECTOR, replacement=replacement)
    end = execution.finishes()
    assert end.outcome == "recycled", (end.error, end.cause)
    patches = world.calls("kubernetes:PATCH leases", succeeded=True)
    freed = next(call.at for call in patches if _frees_its_slot(call.parameters["body"]))
    return OwnTimes(
        replaced=execution.entered("TaintNode")[0] - began,
        slot=freed - began,
        alone=end.at - began,
    )


def _frees_its_slot(patch: dict) -> bool:
    """From then on other nodes of its group may be replaced (`recycle::claim::queue`)."""
    claim = (patch.get("metadata") or {}).get("annotations", {}).get("recycle-eks/claim")
    return claim is not None and json.loads(claim)["phase"] in ("waiting", "disposing")


def mean(samples: Sequence[OwnTimes]) -> OwnTimes:
    return OwnTimes(*(sum(getattr(each, name) for each in samples) / len(samples) for name in ("replaced", "slot", "alone")))


# -- the figures -------------------------------------------------------------------------------------------------------


def admitted_at(recycle: EngineExecution) -> float:
    """Returns the time of its admission. Executions that start in the same second are admitted in the order of their instance
    ids."""
    entered = (event for event in recycle.events if "stateEnteredEventDetails" in event)
    times = (event["timestamp"] for event in entered if event["stateEnteredEventDetails"]["name"] == "StandbyNode")
    return next(times, recycle.start)


def figures_of(
    world: World, fleet: Fleet, plan: Plan, rotation: Execution, own: dict[str, OwnTimes], real_seconds: float
) -> Figures:
    engine = list(world.engine.executions.values())
    recycles = {each.input["instance_id"]: each for each in engine if ":recycle-eks-recycle-node:" in each.arn}
    ended = rotation.finishes()
    entered = (event.get("stateEnteredEventDetails", {}) for each in recycles.values() for event in each.events)
    checks = sum(state.get("name", "").startswith(("WaitFor", "WaitInQueue")) for state in entered)
    bounds = []
    for group in fleet.groups:
        begun = sorted((admitted_at(recycles[node]), node) for node in group.nodes_seen if node in recycles)
        bounds.append(least_makespan([own[fleet.kinds[node].name] for _, node in begun], plan.at_once, plan.max_parallel))
    nodes = len(fleet.kinds)
    return Figures(
        nodes=nodes,
        groups=plan.groups,
        nodes_each=plan.nodes_each,
        large=plan.large,
        at_once=plan.at_once,
        max_parallel=plan.max_parallel,
        replacement=plan.replacement,
        makespan=world.engine.execution(rotation.arn).stop - world.engine.execution(rotation.arn).start,
        bound=max(bounds),
        recycled=sum((each.output or {}).get("outcome") == "recycled" for each in recycles.values()),
        outcome=str(ended.outcome or ended.error),
        transitions=transitions_of(engine),
        invocations=len(world.host.samples),
        requests=requests_of(world),
        checks_per_node=checks / nodes,
        events_per_node=sum(len(each.events) for each in recycles.values()) / nodes,
        sizes=sizes_of(engine),
        uses=uses_of(world, engine),
        own_times=own,
        real_seconds=real_seconds,
        functions=functions_of(world),
    )
