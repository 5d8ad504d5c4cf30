"""The picture of a state machine, drawn from its definition, and its steps as the demo shows them.

Choice and Pass states are dissolved: what they lead to becomes a labelled edge. The first rule of a Choice is the main way.
A Fail that something catches is an error like any other, and has no box of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = Any
Way = tuple[str, str]  # a label and the state it leads to

_KINDS = {"Task": "task", "Wait": "wait", "Succeed": "end", "Fail": "end"}


@dataclass(frozen=True)
class Step:
    """A state worth showing. `depth` is 0 on the main way, 1 for a detour: a loop, an early end, or what an error leads to."""

    name: str
    kind: str  # task, wait or end
    depth: int


def steps(definition: dict[str, Json]) -> list[Step]:
    """The main way in its order, below each of its steps the detours from it, and last what errors lead to."""
    machine = Machine(definition)
    main = machine.main_way()
    shown = dict.fromkeys(main)
    found: list[Step] = []
    for name in main:
        found.append(machine.step(name, 0))
        found += [machine.step(detour, 1) for detour in machine.detours(machine.ways_from(name), shown)]
    for name in machine.states:
        found += [machine.step(detour, 1) for detour in machine.detours(machine.ways_of_errors(name), shown)]
    return found


class Machine:
    """A definition's states by name, those of branches and iterations too, and the ways between them."""

    def __init__(self, definition: dict[str, Json]):
        self.start = definition["StartAt"]
        self.states: dict[str, dict[str, Json]] = {}
        self.outer: dict[str, str] = {}  # the Parallel or Map that a state is in; "" for none
        self._collect(definition, "")

    def _collect(self, scope: dict[str, Json], outer: str) -> None:
        for name, state in scope["States"].items():
            self.states[name], self.outer[name] = state, outer
            for inner in scopes_in(state):
                self._collect(inner, name)

    def step(self, name: str, depth: int) -> Step:
        return Step(name, _KINDS[self.states[name]["Type"]], depth)

    def entering(self, name: str) -> Iterator[Way]:
        """The boxes that one is in after entering a state, each with the label of the way to it."""
        state = self.states[name]
        if scopes := scopes_in(state):
            for scope in scopes:
                yield from self.entering(scope["StartAt"])
        elif state["Type"] == "Choice":
            rules = [(label_of(rule["Condition"]), rule["Next"]) for rule in state["Choices"]]
            rules += [("otherwise", state["Default"])] if "Default" in state else []
            for label, target in rules:
                yield from ((", ".join(filter(None, [label, further])), box) for further, box in self.entering(target))
        elif state["Type"] == "Pass":
            yield from self.ways_from(name)
        elif not self.is_caught_failure(name):
            yield "", name

    def ways_from(self, name: str) -> list[Way]:
        """Where a state leads if nothing goes wrong."""
        state = self.states[name]
        return list(self.entering(state["Next"])) if "Next" in state else []

    def ways_of_errors(self, name: str) -> list[Way]:
        """Where a state's catchers lead, but for those that lead where it goes anyway."""
        usual = {box for _, box in self.ways_from(name)}
        catchers = self.states[name].get("Catch", [])
        errors: dict[str, list[str]] = {}
        for catcher in catchers:
            for _, box in self.entering(catcher["Next"]):
                errors.setdefault(box, []).extend(catcher["ErrorEquals"])
        every = "any other error" if len(errors) > 1 else "any error"
        return [
            (every if "States.ALL" in names else " or ".join(names), box) for box, names in errors.items() if box not in usual
        ]

    def is_caught_failure(self, name: str) -> bool:
        outer = self.outer[name]
        return self.states[name]["Type"] == "Fail" and any("Catch" in self.states[around] for around in self._around(outer))

    def _around(self, name: str) -> Iterator[str]:
        while name:
            yield name
            name = self.outer[name]

    def main_way(self) -> list[str]:
        way: list[str] = []
        ahead = list(self.entering(self.start))
        while ahead and ahead[0][1] not in way:
            name = ahead[0][1]
            way.append(name)
            leaving = (self.ways_from(around) for around in self._around(self.outer[name]))
            ahead = self.ways_from(name) or next(filter(None, leaving), [])
        return way

    def detours(self, ways: list[Way], shown: dict[str, None]) -> list[str]:
        """The states not shown yet that these ways lead to, each before those that it leads to. Marks them as shown."""
        found: list[str] = []
        for _, name in reversed(ways):
            if name not in shown:
                shown[name] = None
                found = [name, *self.detours(self.ways_from(name), shown), *found]
        return found


def scopes_in(state: dict[str, Json]) -> list[dict[str, Json]]:
    """The branches of a Parallel, the iteration of a Map."""
    return [*state.get("Branches", []), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])]


def label_of(condition: Json) -> str:
    """The words that a condition compares with, or else the condition itself."""
    expression = str(condition).removeprefix("{%").removesuffix("%}").strip()
    return " or ".join(re.findall(r"'([^']+)'", expression)) or expression
