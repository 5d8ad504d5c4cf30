"""README.md has the most important ratios of docs/performance.md, which `make bench` writes."""

import re

from prepare import ROOT

#: The measures, in the order of the columns of the front page.
MEASURES = (
    "process start → ready",
    "cold call: process start → first answer",
    "peak memory after these calls",
    "evicting 110 pods",
    "with 50 ms a call: a check, and Python makes the same reads",
    "with 50 ms a call: a check, and Python only lists the pods",
)


def test_the_front_page_has_the_ratios_of_the_last_bench():
    rows = re.findall(r"^\| (.+?) +\|.*\| ([0-9.]+×) +\|$", (ROOT / "docs" / "performance.md").read_text(), re.M)
    shown = re.search(r"^\| ratio to plain Python with the same reads \| (.+) \|$", (ROOT / "README.md").read_text(), re.M)
    assert shown and shown[1].split(" | ") == [dict(rows)[measure] for measure in MEASURES]
