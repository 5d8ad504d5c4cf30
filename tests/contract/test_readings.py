"""Each open question about Auto Scaling has scenarios that are marked with it: `make readings` plays both of its values."""

import ast

from prepare import ROOT
from world.aws.autoscaling.model import Unknowns


def marked() -> dict[str, set[str]]:
    """Returns the switches that scenarios are marked with, each with the names of these scenarios."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests" / "scenarios").glob("test_*.py")):
        for test in ast.parse(file.read_text()).body:
            for mark in getattr(test, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.reading":
                    for switch in mark.args:
                        found.setdefault(ast.literal_eval(switch), set()).add(test.name)
    return found


def test_every_switch_has_scenarios_of_its_own():
    assert set(marked()) == set(vars(Unknowns()))
    assert {switch: tests for switch, tests in marked().items() if len(tests) < 2} == {}


def test_the_makefile_lists_the_readings():
    assert "# make readings" in (ROOT / "Makefile").read_text()
