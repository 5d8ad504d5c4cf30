"""The house of the code: its rooms in layers, and what is measured of it.

    python tests/rooms.py     prints the measures; tests/contract/test_rooms.py holds them

A room imports from lower layers only, never from another room of its own layer, and no files import each other in a circle.
A link in a comment is no import. Tests next to the code may import what they like.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from prepare import ROOT

#: The rooms of each code base from the lowest layer to the highest. `.` are the files next to the rooms.
LAYERS = {
    "crates/recycle/src": [
        ["base"],
        ["input"],
        ["records"],
        ["cluster"],
        ["claim", "replacement", "disposal"],
        ["drain", "restore"],
        ["rotation", "plan"],
        ["contract"],
        ["notify", "report", "doctor"],
        ["answer"],
    ],
    "crates/cli/src": [["base"], ["args"], ["history"], ["aws"], ["views"], ["doctor"], ["commands", "report"], ["."]],
    "tests/world": [["base"], ["process"], ["stepfunctions"], ["aws", "kubernetes"], ["scenario"], ["."]],
}
#: The rooms without upward imports and without import circles.
HELD = ["crates/recycle/src", "crates/cli/src", "tests/world"]
#: The longest that a production file may be, in lines, comments included.
LONGEST_FILE = {"crates": 450, "tests/world": 600}
#: The maximum number of fields of a struct. `Input` follows the fields of the input.
MOST_FIELDS = 15
FOLLOWS_ITS_FIELDS = {"Input"}
#: Files that hold tests alone, and what they need. `screens` draws the views of the command line for its tests.
TESTS_ALONE = re.compile(r"(^|/)(tests|laws|properties|fixtures|screens)(/.*)?\.rs$|/tests/")
#: Also the crates that only tests use, and the programs that print generated files.
NO_PRODUCTION = re.compile(rf"{TESTS_ALONE.pattern}|/(examples|testing)/")


@dataclass(frozen=True, order=True)
class Import:
    """One file's use of another; both as paths from the root of the repository."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} imports {self.target}"


@dataclass
class House:
    """One code base. `files` are its production files with their text."""

    place: str
    layers: list[list[str]]
    files: dict[str, str]
    imports: set[Import] = field(default_factory=set)

    def layer_of(self, path: str) -> tuple[int, str]:
        """Layer and room of a file. The files next to the rooms are above them all where no layer has `.`."""
        parts = Path(path).relative_to(self.place).parts
        room = parts[0] if len(parts) > 1 else "."
        for number, rooms in enumerate(self.layers):
            if room in rooms:
                return number, room
        assert room == ".", f"{path} is in no room of {self.place}: {Path(__file__).name} lists them"
        return len(self.layers), room

    def upward(self) -> list[str]:
        """Imports that a lower room makes of a higher one, or of another room of its layer."""
        found = []
        for each in sorted(self.imports):
            (layer, room), (of_layer, of_room) = self.layer_of(each.source), self.layer_of(each.target)
            if room != of_room and of_layer >= layer:
                found.append(f"{each}: {room} is not above {of_room}")
        return found

    def circles(self) -> list[list[str]]:
        """Files that import each other, each circle once."""
        return [sorted(group) for group in strongly_connected(self.files, self.imports) if len(group) > 1]

    def longest(self) -> list[tuple[int, str]]:
        return sorted(((text.count("\n"), path) for path, text in self.files.items()), reverse=True)


@cache
def houses() -> list[House]:
    return [rust_house(place) if place.startswith("crates") else python_house(place) for place in LAYERS]


# -- Rust ------------------------------------------------------------------------------------------------------------


def production(place: str) -> dict[str, str]:
    """Rust files by path, without their tests."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / place).rglob("*.rs"))}
    return {path: without_tests(text) for path, text in files.items() if not NO_PRODUCTION.search(path)}


def without_tests(text: str) -> str:
    return re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0]


def rust_house(place: str) -> House:
    house = House(place, LAYERS[place], production(place))
    modules = {module_of(path, place): path for path in house.files}
    for path, text in house.files.items():
        for used in used_by(text, module_of(path, place)):
            target = modules.get(next((used[:end] for end in range(len(used), 0, -1) if used[:end] in modules), ()))
            # A mod.rs names its own modules; that is no use of them.
            if target not in (None, path) and Path(target).name != "mod.rs":
                house.imports.add(Import(path, target))
    return house


def module_of(path: str, place: str) -> tuple[str, ...]:
    parts = Path(path).relative_to(place).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def used_by(text: str, module: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths below `crate::` that code names, whatever may be at their ends."""
    code = re.sub(r"^\s*//.*|\s//\s.*", "", text, flags=re.MULTILINE)
    for path in re.findall(r"\b(?:crate|super)::(?:[\w:]+\{[^;]*\}(?=;)|\{[^;]*\}(?=;)|[\w:]+)", code):
        for each in expanded(re.sub(r"\s+", "", path)):
            first, *rest = each.split("::")
            base = () if first == "crate" else module[:-1]
            while rest and rest[0] == "super":
                base, rest = base[:-1], rest[1:]
            yield (*base, *rest)


def expanded(path: str) -> Iterator[str]:
    """`a::{b::c, d}` as `a::b::c` and `a::d`."""
    before, brace, group = path.partition("{")
    if not brace:
        yield path
        return
    depth, start, inner = 0, 0, group.rsplit("}", 1)[0]
    for at, letter in enumerate(f"{inner},"):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if inner[start:at]:
                yield from expanded(before + inner[start:at])
            start = at + 1


def structs() -> list[tuple[int, str, str]]:
    """Fields, name and file of each struct of production code, the largest first."""
    found = []
    for path, text in production("crates").items():
        for name, body in re.findall(
            r"^\s*(?:pub(?:\(\w+\))? )?struct (\w+)[^;{(]*\{\n(.*?)^\s*\}", text, re.MULTILINE | re.DOTALL
        ):
            found.append((len(re.findall(r"^\s*(?:pub(?:\(\w+\))? )?(?:r#)?\w+: ", body, re.MULTILINE)), name, path))
    return sorted(found, reverse=True)


# -- Python ----------------------------------------------------------------------------------------------------------


def python_house(place: str) -> House:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / place).rglob("*.py"))}
    house = House(place, LAYERS[place], files)
    package = Path(place).name
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                targets = {str(Path(place).parent / f"{name.replace('.', '/')}.py") for name in names if name}
                house.imports |= {Import(path, target) for target in targets & files.keys() if target != path}
    return house


# -- both ------------------------------------------------------------------------------------------------------------


def strongly_connected(nodes: dict[str, str], imports: set[Import]) -> Iterator[set[str]]:
    """Groups of files each of which reaches each other one."""
    targets = {node: sorted(each.target for each in imports if each.source == node) for node in nodes}
    reached = {node: reachable(node, targets) for node in nodes}
    done: set[str] = set()
    for node in nodes:
        if node not in done:
            group = {node} | {other for other in reached[node] if node in reached[other]}
            done |= group
            yield group


def reachable(node: str, targets: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    todo = [node]
    while todo:
        for target in targets[todo.pop()]:
            if target not in found:
                found.add(target)
                todo.append(target)
    return found


def measures() -> Iterator[str]:
    for house in houses():
        (lines, path), upward, circles = house.longest()[0], house.upward(), house.circles()
        yield f"{house.place}: {len(upward)} imports upwards, {len(circles)} circles, largest file {lines} lines ({path})"
    sizes = {path: text.count("\n") for path, text in production("crates").items()}
    path = max(sizes, key=sizes.__getitem__)
    fields, name, where = next(each for each in structs() if each[1] not in FOLLOWS_ITS_FIELDS)
    yield f"crates: {sum(sizes.values())} lines of production Rust, largest file {sizes[path]} ({path})"
    yield f"largest struct: {name}, {fields} fields ({where})"


if __name__ == "__main__":
    print(*measures(), sep="\n")
    if "--all" in sys.argv:
        for house in houses():
            print(*house.upward(), *house.circles(), sep="\n")
            print(*[each for each in house.longest() if each[0] > 400], sep="\n")
        print(*[each for each in structs() if each[0] > MOST_FIELDS], sep="\n")
        print(
            *sorted(
                ((text.count("\n"), path) for path, text in production("crates").items() if text.count("\n") > 450), reverse=True
            ),
            sep="\n",
        )
