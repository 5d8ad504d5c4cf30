"""The picture of a state machine, drawn from its definition, and its steps in their order.

Choice and Pass states are dissolved: their targets become labelled edges. The first rule of a Choice is the main path. Tasks that
publish a notification are also dissolved: nothing depends on them, and a Choice continues as if they were absent.
A Fail state whose error is caught is an error like any other, and has no box of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prepare import ROOT

Json = Any
Way = tuple[str, str]  # a label and the state it leads to

#: The longest first sentence of a Comment that stands in a box, in characters: three lines. The table has the whole Comment.
BOX_TEXT = 90

#: The page with the pictures.
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- picture: make generate -->", "<!-- end of picture -->"

_KINDS = {"Task": "task", "Wait": "wait", "Succeed": "end", "Fail": "end"}


@dataclass(frozen=True)
class Step:
    """A state worth showing. `depth` is 0 on the main path, 1 for a detour: a loop, an early end, or what an error leads to."""

    name: str
    kind: str  # task, wait or end
    depth: int


def steps(definition: dict[str, Json]) -> list[Step]:
    """Returns the main path in its order, with the detours below each of its steps, and the states after errors at the end."""
    machine = Machine(definition)
    main = machine.main_path()
    shown = dict.fromkeys(main)
    found: list[Step] = []
    for name in main:
        found.append(machine.step(name, 0))
        found += [machine.step(detour, 1) for detour in machine.detours(machine.ways_from(name), shown)]
    for name in machine.around_others():
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
            rules = [(label, target) for label, target in rules if not self.only_publishes(target, name)]
            for label, target in rules:
                yield from ((", ".join(filter(None, [label, further])), box) for further, box in self.entering(target))
        elif state["Type"] == "Pass" or publishes(state):
            yield from self.ways_from(name)
        elif not self.is_caught_failure(name):
            yield "", name

    def ways_from(self, name: str) -> list[Way]:
        """Returns the next boxes of a state without an error."""
        state = self.states[name]
        return list(self.entering(state["Next"])) if "Next" in state else []

    def ways_of_errors(self, name: str) -> list[Way]:
        """Returns the boxes after a state's catchers, except its normal next boxes."""
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

    def only_publishes(self, name: str, choice: str) -> bool:
        """Checks whether a state publishes a notification and goes back to the Choice that led there."""
        return publishes(self.states[name]) and self.states[name].get("Next") == choice

    def is_caught_failure(self, name: str) -> bool:
        outer = self.outer[name]
        return self.states[name]["Type"] == "Fail" and any("Catch" in self.states[around] for around in self.around(outer))

    def around(self, name: str) -> Iterator[str]:
        """A Parallel or Map and those that it is in itself."""
        while name:
            yield name
            name = self.outer[name]

    def around_others(self) -> list[str]:
        """The Parallel and Map states."""
        return [name for name, state in self.states.items() if scopes_in(state)]

    def longest_path(self, name: str, behind: tuple[str, ...]) -> tuple[str, ...]:
        """The longest way from a box on that goes through none twice."""
        way = (*behind, name)
        ahead = [box for _, box in self.ways_from(name) if box not in way]
        return max((self.longest_path(box, way) for box in ahead), key=len, default=way)

    def main_path(self) -> list[str]:
        way: list[str] = []
        ahead = list(self.entering(self.start))
        while ahead and ahead[0][1] not in way:
            name = ahead[0][1]
            way.append(name)
            leaving = (self.ways_from(around) for around in self.around(self.outer[name]))
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


def publishes(state: dict[str, Json]) -> bool:
    """Checks whether a state sends a notification or an event."""
    return str(state.get("Resource", "")).endswith(("sns:publish", "events:putEvents"))


def scopes_in(state: dict[str, Json]) -> list[dict[str, Json]]:
    """The branches of a Parallel, the iteration of a Map."""
    return [*state.get("Branches", []), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])]


def label_of(condition: Json) -> str:
    """The words that a condition compares with, or else the condition itself."""
    expression = str(condition).removeprefix("{%").removesuffix("%}").strip()
    return " or ".join(re.findall(r"'([^']+)'", expression)) or expression


def with_pictures(page: str) -> str:
    """The page's text with the pictures of the definitions as they are now."""
    pictures = "\n\n".join(render_picture(file) for file in sorted((ROOT / "state-machine").glob("*.asl.json")))
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for the pictures"
    return f"{before}{BEGIN}\n{pictures}\n{END}{after}"


def render_picture(file: Path) -> str:
    """A heading, the machine's Comment, its picture, and a table of its tasks."""
    definition, path = json.loads(file.read_text()), file.relative_to(ROOT)
    return "\n".join(
        [
            f"### `{file.name.partition('.')[0]}`",
            "",
            f"[`{path}`](../{path}): {definition['Comment']}",
            "",
            "```mermaid",
            *draw(definition),
            "```",
            "",
            "| box | what it does | crate |",
            "|---|---|---|",
            *list_tasks(definition),
        ]
    )


def list_tasks(definition: dict[str, Json]) -> Iterator[str]:
    """A row for each task."""
    machine = Machine(definition)
    for step in steps(definition):
        if step.kind == "task":
            state = machine.states[step.name]
            yield f"| `{step.name}` | {state.get('Comment', '')} | {_code_of(state)} |"


def draw(definition: dict[str, Json]) -> Iterator[str]:
    """Mermaid's lines: the boxes, each Parallel and Map around its own, the ways between them, and links to the crates."""
    machine, boxes = Machine(definition), [step.name for step in steps(definition)]
    stand_in = _ends_together(machine, boxes)
    yield "flowchart TD"
    yield '  start(["an execution"])'
    yield from _boxes_in(machine, "", stand_in, "  ")
    yield from _arrows("start", machine.entering(machine.start), stand_in)
    for name in boxes:
        yield from _arrows(name, machine.ways_from(name), stand_in)
        yield from _arrows(name, machine.ways_of_errors(name), stand_in, dotted=True)
    for name in machine.around_others():
        # The arrow is long enough to end below all inner boxes, however Mermaid arranges them.
        length = max(len(machine.longest_path(box, ())) for box in boxes if name in machine.around(machine.outer[box]))
        yield from _arrows(name, machine.ways_from(name), stand_in, length=length)
        yield from _arrows(name, machine.ways_of_errors(name), stand_in, length=length, dotted=True)


def _ends_together(machine: Machine, boxes: list[str]) -> dict[str, str]:
    """Returns for each box the box that represents it: ends of one kind after the same step share a box."""
    leading: dict[str, set[str]] = {box: set() for box in boxes}
    for name in machine.states:
        for _, box in machine.ways_from(name):
            leading[box].add(name)
        for _, box in machine.ways_of_errors(name):
            leading[box].add(f"an error of {name}")
    first: dict[Any, str] = {}
    stand_in = {}
    for box in boxes:
        kind = machine.states[box]["Type"]
        alike = (kind, machine.outer[box], *sorted(leading[box])) if kind in ("Succeed", "Fail") else box
        stand_in[box] = first.setdefault(alike, box)
    return stand_in


def _boxes_in(machine: Machine, outer: str, stand_in: dict[str, str], margin: str) -> Iterator[str]:
    for name in stand_in:
        if machine.outer[name] == outer and stand_in[name] == name:
            yield margin + name + _box([box for box in stand_in if stand_in[box] == name], machine.states[name])
    for name in machine.around_others():
        if machine.outer[name] == outer:
            yield f"{margin}subgraph {name}"
            yield from _boxes_in(machine, name, stand_in, margin + "  ")
            yield f"{margin}end"


def _box(names: list[str], state: dict[str, Json]) -> str:
    """Draws a box: a Lambda is bold, another task is not, a Wait is slanted, an end is round."""
    name = " · ".join(names)
    match state["Type"]:
        case "Wait":
            return f"[/{name}/]"
        case "Succeed":
            return f'(["{name}: SUCCEEDED"])'
        case "Fail":
            return f'(["{name}: FAILED"])'
    title = f"<b>{name}</b>" if crate_of(state) else name
    says = re.split(r"(?<=[.?!]) ", state.get("Comment", ""))[0].removesuffix(".")
    return f'["{title}<br/>{_quoted(says)}"]' if 0 < len(says) <= BOX_TEXT else f'["{title}"]'


def _arrows(source: str, ways: Iterable[Way], stand_in: dict[str, str], length: int = 1, dotted: bool = False) -> Iterator[str]:
    """One for each box that these ways lead to."""
    labels: dict[str, list[str]] = {}
    for label, box in ways:
        labels.setdefault(stand_in[box], []).append(label)
    arrow = f"-{'.' * length}->" if dotted else f"-{'-' * length}>"
    for box, texts in labels.items():
        label = _quoted(", ".join(filter(None, texts)))
        yield f'  {source} {arrow}|"{label}"| {box}' if label else f"  {source} {arrow} {box}"


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")


def _code_of(state: dict[str, Json]) -> str:
    if crate := crate_of(state):
        return f"[`{crate}`](../crates/functions/{crate}/src/lib.rs)"
    return f"none: `{state['Resource'].split(':::')[1]}`"


def crate_of(state: dict[str, Json]) -> str | None:
    """The crate that a Lambda task runs: its placeholder in the definition, `${claim_node}`, has the crate's name."""
    found = re.fullmatch(r"\$\{(\w+)\}", str(state.get("Arguments", {}).get("FunctionName", "")))
    return found[1].replace("_", "-") if found else None
