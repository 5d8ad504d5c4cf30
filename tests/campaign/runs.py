"""The runs of the campaign. Each is a scene with one or two faults, and its name is enough to repeat it.

before/check-pods kubernetes:GET pods #1/cut         a fault at the first such call
hook/CheckPods/second execution                      an operator acts when a state is entered
after/3m throttled at 2m · spot/lost event 1 · before/seed 7 · before/pair 8
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from campaign.judge import violations
from campaign.people import OF_ROTATIONS, PEOPLE, SECOND
from campaign.scenes import SCENES, Scene, Stage, end_and_reason, ends_of
from world.base.beyond_models import refusal_of
from world.base.faults import INVOKE, NO_FUNCTION
from world.world import World

#: Pairs of faults and seeds of the clock, for each scene.
PAIRS, SEEDS = 16, 16
#: The interval between starts of throttling, and its duration, in virtual minutes.
THROTTLED_EVERY, THROTTLED_FOR = 1, 3
#: The actions that are throttled.
THROTTLED = ("autoscaling:*", "ec2:*", "eks:*", "elasticloadbalancing:*", "sns:*", "states:*", INVOKE, "kubernetes:*")
#: The only fault that does not pass by itself. With every other fault of a call the execution must reach its goal.
LASTING = "refused"
#: A warm process does not make this call again, so processes are cold before a fault in it.
ONCE_IN_A_PROCESS = "eks:DescribeCluster"
#: The number of fault kinds at a call that an earlier scene has already had with all kinds.
AGAIN = 1
#: Added to the result of a run in which the operator's action had no effect.
IDLE = "too late to do anything"


@dataclass(frozen=True, order=True)
class Boundary:
    """The nth call of a kind that a function makes, or a state machine itself."""

    function: str
    action: str
    nth: int
    write: bool = field(compare=False)

    def __str__(self) -> str:
        return f"{self.function or 'machine'} {self.action} #{self.nth}"

    @property
    def which(self) -> dict[str, Any]:
        return {"function": self.function or NO_FUNCTION, "nth": self.nth}

    @property
    def kinds(self) -> list[str]:
        """Returns the kinds of faults that are possible here."""
        if self.action == INVOKE:
            return ["throttled", "5xx", "answer lost"]
        kinds = ["throttled", "5xx", "refused", "cut"]
        if self.function:
            # For a read it makes no difference whether the process is killed before or after it.
            kinds += ["timed out", "killed after", *(["killed before"] if self.write else [])]
        if self.action.startswith("kubernetes:"):
            kinds += ["401", *(["409"] if self.write else [])]
        return kinds

    def strike(self, world: World, kind: str) -> None:
        plan = world.faults
        if self.action == ONCE_IN_A_PROCESS:
            world.host.become_cold()
        if self.action == INVOKE:
            refusals = {
                "throttled": {"code": "TooManyRequestsException", "status": 429},
                "5xx": {"code": "ServiceException", "status": 500},
                "answer lost": {"code": "ServiceException", "status": 500, "after": True},
            }
            plan.invoke(self.function, nth=self.nth, **refusals[kind])
            return
        refusals = {
            **{each: refusal_of(self.action, each) for each in ("throttled", "5xx", "refused")},
            "401": {"code": "Unauthorized", "status": 401},
            "409": {"code": "Conflict", "status": 409},
        }
        if kind in refusals:
            plan.refuse(self.action, **refusals[kind], times=2 if kind == "throttled" else 1, **self.which)
        elif kind == "cut":
            plan.lose_answer(self.action, **self.which)
        elif kind == "timed out":
            plan.hang(self.action, **self.which)
        else:
            plan.kill(kind.removeprefix("killed "), self.action, **self.which)


@dataclass(frozen=True)
class Run:
    """One run of a scene. `disturb` gets the stage after the scene is built and before anything runs."""

    scene: Scene
    what: str
    disturb: Callable[[Stage], None]
    seed: int | None = None
    spared: int = 0
    """The number of its faults that need not strike, because another one may prevent them."""
    is_passing: bool = True
    """Whether the execution must reach its goal, because every fault passes by itself."""

    @property
    def name(self) -> str:
        return f"{self.scene.name}/{self.what}"

    def make(self, world: World) -> tuple[str, list[str]]:
        """Returns the outcomes and the violations."""
        world.reset(seed=self.seed)
        with Stage(world).watched() as stage:
            self.scene.play(stage)
            self.disturb(stage)
            stage.becomes_idle()
            found = violations(stage)
            found += [f"no action was taken in {state}" for state in stage.to_do]
            missed = world.faults.not_struck()
            if len(missed) > self.spared:
                found += [f"the fault has not struck: {fault.action}" for fault in missed]
            found += [f"event {fault.nth} has not come" for fault in world.events.faults if fault.seen < fault.nth]
            ends = _ends(stage)
            if self.is_passing and ends[-1:] != [self.scene.goal]:
                found.append(f"it has ended as {ends}, not as {self.scene.goal}")
            return ", ".join([*ends, *([IDLE] if stage.is_idle else [])]), found


@dataclass(frozen=True)
class Known:
    """The course of a scene without faults."""

    scene: Scene
    boundaries: list[Boundary]
    states: list[str]
    deliveries: int
    called: list[float]
    """The times of the calls, in virtual seconds since the scene began."""


def _ends(stage: Stage) -> list[str]:
    """Returns the outcomes of the executions that recycle, then those of rotations."""
    return [end_and_reason(each)[0] for each in [*ends_of(stage), *ends_of(stage, "rotate-nodes")]]


def undisturbed(scene: Scene) -> Run:
    return Run(scene, "undisturbed", lambda stage: None)


def _seeds(scene: Scene) -> Iterator[Run]:
    for seed in range(1, SEEDS + 1):
        yield Run(scene, f"seed {seed}", lambda stage: None, seed=seed)


def faultless() -> Iterator[Run]:
    """Returns the runs without faults."""
    for scene in SCENES:
        yield undisturbed(scene)
        yield from _seeds(scene)


def explore(world: World, scene: Scene) -> Known:
    """Plays a scene once without faults. It must reach its goal, otherwise the campaign proves nothing."""
    world.reset()
    world.host.become_cold()
    with Stage(world).watched() as stage:
        scene.play(stage)
        began, prepared, delivered = world.clock.elapsed(), len(world.host.samples), len(world.events.deliveries)
        stage.ends()
        calls, states = list(world.aws.calls), list(stage.entered)
        deliveries = len(world.events.deliveries) - delivered
        invocations = Counter(_bare(sample.function) for sample in world.host.samples[prepared:])
        called = [call.at - began for call in calls]
        stage.becomes_idle()
        found = violations(stage)
        ends = _ends(stage)
        assert not found and ends[-1:] == [scene.goal], (scene.name, ends, found)
    places = [*_invocations(invocations), *boundaries(calls)]
    return Known(scene, places, states, deliveries, called)


def boundaries(calls: list[Any]) -> Iterator[Boundary]:
    """Returns every call that writes, and the first and the last read of each kind and function."""
    counted: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], Boundary] = {}
    for call in calls:
        if call.function is None and not call.access_key.startswith("step-functions"):
            continue
        key = (_bare(call.function), call.action)
        counted[key] += 1
        boundary = Boundary(*key, counted[key], call.write)
        if call.write or counted[key] == 1:
            yield boundary
            last.pop(key, None)
        else:
            last[key] = boundary
    yield from last.values()


def _invocations(counted: Counter[str]) -> Iterator[Boundary]:
    for function, count in sorted(counted.items()):
        for nth in sorted({1, count}):
            yield Boundary(function, INVOKE, nth, write=True)


def _bare(function: str | None) -> str:
    return "" if function is None else function.removeprefix("recycle-eks-")


def all_runs(known: list[Known]) -> Iterator[Run]:
    """The whole campaign, scene by scene."""
    had: Counter[tuple[str, str]] = Counter()
    for each in known:
        yield undisturbed(each.scene)
        yield from _faults(each, had)
        yield from _pairs(each)
        yield from _meetings(each)
        for number in range(each.deliveries):
            yield Run(
                each.scene,
                f"lost event {number + 1}",
                lambda stage, n=number: stage.world.events.lose("*", n + 1),
                is_passing=False,
            )
        for minute in _minutes(each):
            yield Run(
                each.scene,
                f"{THROTTLED_FOR}m throttled at {minute}m",
                lambda stage, at=minute: throttle(stage, at),
                spared=len(THROTTLED) - 1,
            )
        yield from _seeds(each.scene)


def _minutes(known: Known) -> list[int]:
    """Returns the minutes in which throttling affects at least one call."""
    ends = int(max(known.called) / 60) + 1
    return [minute for minute in range(0, ends, THROTTLED_EVERY) if any(_is_throttled(at, minute) for at in known.called)]


def _is_throttled(at: float, minute: int) -> bool:
    begins = minute * 60 + 30
    return begins < at < begins + THROTTLED_FOR * 60


def _faults(known: Known, had: Counter[tuple[str, str]]) -> Iterator[Run]:
    """Returns every kind of fault at each place. For a call that an earlier scene has had, the kinds alternate between places."""
    before = dict(had)
    for boundary in known.boundaries:
        call = (boundary.function, boundary.action)
        kinds = boundary.kinds
        if call in before:
            kinds = [kinds[(had[call] + number) % len(kinds)] for number in range(min(AGAIN, len(kinds)))]
        had[call] += len(kinds)
        for kind in kinds:
            yield Run(
                known.scene,
                f"{boundary}/{kind}",
                lambda stage, b=boundary, k=kind: b.strike(stage.world, k),
                is_passing=kind != LASTING,
            )


def _pairs(known: Known) -> Iterator[Run]:
    """Returns runs with two faults. The first may prevent the second."""
    for number in range(1, PAIRS + 1):
        chance = random.Random(f"{known.scene.name} {number}")
        both = [(boundary, chance.choice(boundary.kinds)) for boundary in chance.sample(known.boundaries, 2)]

        def disturb(stage: Stage, both: list[tuple[Boundary, str]] = both) -> None:
            for boundary, kind in both:
                boundary.strike(stage.world, kind)

        what = " + ".join(f"{boundary}/{kind}" for boundary, kind in both)
        is_passing = LASTING not in [kind for _, kind in both]
        yield Run(known.scene, f"pair {number}: {what}", disturb, spared=1, is_passing=is_passing)


def _meetings(known: Known) -> Iterator[Run]:
    """Returns a run with a second execution and a run with an operator for each state. The operators' actions alternate."""
    others = sorted(set(PEOPLE) - {SECOND} - (set() if "EachGroup" in known.states else set(OF_ROTATIONS)))
    for number, state in enumerate(known.states, zlib.crc32(known.scene.name.encode())):
        for who in (SECOND, others[number % len(others)]):

            def disturb(stage: Stage, state: str = state, who: str = who) -> None:
                stage.to_do[state] = lambda: PEOPLE[who](stage)

            yield Run(known.scene, f"{state}/{who}", disturb, spared=1, is_passing=False)


def throttle(stage: Stage, minute: int) -> None:
    """Makes AWS and the API server throttle every call for a while."""
    begins = stage.world.clock.elapsed() + minute * 60 + 30
    for action in THROTTLED:
        how = {"message": "Rate exceeded", "since": begins, "until": begins + THROTTLED_FOR * 60}
        of_lambda = {"code": "TooManyRequestsException", "status": 429}
        stage.world.faults.refuse(action, **how, **(of_lambda if action == INVOKE else refusal_of(action, "throttled")))


def explored(world: World, show: Callable[[str], None] = lambda name: None) -> list[Known]:
    """Explores all scenes."""
    found = []
    for scene in SCENES:
        show(scene.name)
        found.append(explore(world, scene))
    return found
