"""docs/aws-evidence.md: no cell is empty, every test that it names is there, and its sums are right."""

import re
from collections import Counter

from prepare import ROOT

PAGE = ROOT / "docs" / "aws-evidence.md"
VERDICTS = {"documented", "recorded", "practice", "open", "contradicted"}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_row_has_its_number_its_evidence_and_a_verdict():
    assert [int(row[0]) for row in rows()] == list(range(1, len(rows()) + 1))
    assert [row for row in rows() if len(row) != 6 or not all(row)] == []
    assert {row[4].strip("*") for row in rows()} <= VERDICTS


def test_every_file_and_test_that_a_row_names_is_there():
    missing = []
    for number, _, used, _, _, tests in rows():
        named = re.findall(r"`((?:crates|docs|state-machine|terraform|tests)/[\w./-]+)(?:::(\w+))?`", f"{used} {tests}")
        for path, name in named:
            file = ROOT / path
            if not file.exists() or (name and not re.search(rf"\b(?:def|fn) {name}\b|run \"{name}\"", file.read_text())):
                missing.append((number, path, name))
    assert missing == []


def test_the_sums_are_those_of_the_rows():
    counted = Counter(row[4].strip("*") for row in rows())
    said = dict(re.findall(r"^\| (\w+) \| [^|]+ \| (\d+) \|$", PAGE.read_text(), re.MULTILINE))
    assert {verdict: int(number) for verdict, number in said.items()} == {
        **dict.fromkeys(VERDICTS, 0),
        **counted,
        "all": counted.total(),
    }


def test_each_open_and_each_contradicted_row_is_in_the_list_at_the_top():
    weak = {row[0] for row in rows() if row[4].strip("*") in ("open", "contradicted")}
    assert set(re.findall(r"^\| \[(\d+)\]\(#", PAGE.read_text(), re.MULTILINE)) == weak
