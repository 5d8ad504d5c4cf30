"""The examples of tests/README.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()
EXAMPLES = list(
    re.finditer(
        r"^```python\n(?P<source>def (?P<name>\w+)\((?P<fixtures>world|world, cli|tmp_path)\):\n.*?)^```$",
        TEXT,
        re.DOTALL | re.MULTILINE,
    )
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_example(world, cli, tmp_path, example):
    # A failure is shown with its line in the README.
    lines_before = TEXT.count("\n", 0, example.start("source"))
    names: dict[str, object] = {}
    exec(compile("\n" * lines_before + example["source"], str(README), "exec"), names)
    given = {"world": [world], "world, cli": [world, cli], "tmp_path": [tmp_path]}[example["fixtures"]]
    names[example["name"]](*given)


def test_every_module_is_on_the_map():
    world = README.parent / "world"
    modules = {str(path.relative_to(world)) for path in world.rglob("*.py") if path.name != "__init__.py"}
    assert {name for name in modules if f"`{name}`" not in TEXT} == set()


def test_every_block_of_python_is_an_example():
    assert TEXT.count("```python") == len(EXAMPLES) >= 9
