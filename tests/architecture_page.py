"""The pictures in docs/architecture.md: crates, and rooms in layers with their files. `make generate` writes them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from prepare import ROOT
from rooms import LAYERS, TESTS_ALONE

PAGE = ROOT / "docs" / "architecture.md"
END = "<!-- end of generated -->"
RECYCLE = "crates/recycle/src"
#: Folders of crates, from those that stand on the others down.
FOLDERS = {"functions": "a Lambda each", "cli": "the command line", "adapters": "the calls of AWS and Kubernetes"}


def with_rooms(page: str) -> str:
    """The page with its generated parts as they are now."""
    for name, lines in (("crates", crates()), ("rooms", rooms())):
        before, begin, rest = page.partition(f"<!-- generated: {name}, by make generate -->\n")
        _, end, after = rest.partition(END)
        assert begin and end, f"{PAGE.name} has no part {name}"
        page = "".join([before, begin, *(f"{line}\n" for line in lines), end, after])
    return page


def crates() -> Iterator[str]:
    """Which crate stands on which, in Mermaid; crates of tests are left out."""
    needs = dict(_manifests())
    yield "```mermaid"
    yield "flowchart TB"
    for folder, what in FOLDERS.items():
        yield f'  subgraph {folder}["{folder}: {what}"]'
        yield from (f"    {crate}" for crate in sorted(needs) if _folder(crate) == folder)
        yield "  end"
    yield '  recycle["recycle: the decisions, without I/O"]'
    for crate in sorted(needs):
        if _folder(crate) in ("adapters", "cli"):
            yield from (f"  {crate} --> {needed}" for needed in sorted(needs[crate]))
    yield "  functions --> adapters"
    yield "```"


def _manifests() -> Iterator[tuple[str, set[str]]]:
    own = {tomllib.loads(path.read_text())["package"]["name"]: path for path in ROOT.glob("crates/**/Cargo.toml")}
    for name, path in own.items():
        if path.parts[-3] != "testing":
            yield name, set(tomllib.loads(path.read_text()).get("dependencies", {})) & set(own)


def _folder(crate: str) -> str:
    found = [path for path in ROOT.glob("crates/**/Cargo.toml") if tomllib.loads(path.read_text())["package"]["name"] == crate]
    return found[0].relative_to(ROOT / "crates").parts[0]


def rooms() -> Iterator[str]:
    """The rooms of `recycle`, the lowest layer first, each with its files and what they are about."""
    for number, layer in enumerate(LAYERS[RECYCLE], 1):
        for room in layer:
            yield f"\n#### {number} · `{room}/`: {_about(ROOT / RECYCLE / room / 'mod.rs')}\n"
            yield "| file | is about |\n|---|---|"
            for path in sorted((ROOT / RECYCLE / room).glob("*.rs")):
                if path.name != "mod.rs" and not TESTS_ALONE.search(str(path.relative_to(ROOT))):
                    yield f"| [`{path.name}`](../{path.relative_to(ROOT)}) | {_about(path)} |"


def _about(path: Path) -> str:
    """The first sentence of its description."""
    described = re.match(r"(//! .*\n)+", path.read_text())
    assert described, f"{path} begins without a description"
    text = re.sub(r"^//! ?", "", described[0], flags=re.MULTILINE).replace("\n", " ").strip()
    sentence = re.split(r"(?<=[.?!])\s", text)[0]
    return re.sub(r"\[(`[^`]+`)\]", r"\1", sentence).replace("|", "\\|")
