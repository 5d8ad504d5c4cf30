"""docs/observability.md: its tables of metrics, alarms and log fields are those of the code."""

import re

from docs.pages import sections
from prepare import ROOT

PAGE = ROOT / "docs" / "observability.md"
METRICS = ROOT / "crates" / "recycle" / "src" / "notify" / "metrics.rs"
DECISION = ROOT / "crates" / "adapters" / "lambda" / "src" / "decision.rs"
TERRAFORM = ROOT / "terraform"


def table(section: str, number: int = 0) -> list[list[str]]:
    """The rows of a section's table below its head, each cell without backquotes."""
    tables = re.findall(r"(?:^\|.*\n)+", sections(PAGE)[section], re.MULTILINE)
    rows = tables[number].splitlines()[2:]
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split(" | ")] for row in rows]


def code_of(file) -> str:
    return file.read_text().partition("#[cfg(test)]")[0]


def test_the_metrics_are_those_that_the_functions_write():
    written = dict(re.findall(r'=> \("(\w+)", "(\w+)",', code_of(METRICS)))
    assert {name: unit for name, unit, *_ in table("metrics")} == written
    dimensions = {name: dimensions for name, _, dimensions, _ in table("metrics")}
    assert dimensions.pop("Executions") == "cluster; cluster, outcome"
    assert set(dimensions.values()) == {"cluster"}


def test_the_alarms_are_those_of_the_module():
    text = (TERRAFORM / "observability.tf").read_text()
    alarms = re.findall(r'^    ([a-z-]+) = \{\n.*?metric_name = "(\w+)".*?statistic +=? ?"(\w+)"', text, re.MULTILINE | re.DOTALL)
    listed = [(name.removeprefix("<name>-"), metric.split(" ")[0], statistic) for name, metric, statistic, _ in table("alarms")]
    assert listed == alarms


def test_the_fields_of_a_log_line_are_those_that_the_functions_write():
    code = code_of(DECISION)
    (names,) = re.findall(r"let names = \[(.*)\]", code)
    written = {*re.findall(r'\("(\w+)",', code), *re.findall(r'"(\w+)"', names), "timestamp"}
    assert {field for field, _ in table("logs", 1)} == written


def test_the_log_groups_are_those_of_the_module():
    text = "".join(file.read_text() for file in TERRAFORM.glob("*.tf"))
    names = re.findall(r'name +=? "(/aws/[^"]+)"', text)
    listed = [group for group, _ in table("logs")]
    assert sorted(group.rpartition("/")[0] for group in listed) == sorted(name.rpartition("/")[0] for name in names)
