"""Evaluates the samples: medians, the table, the goals. This module measures nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from package import LARGEST_ZIP
from prepare import ROOT

#: The page of the figures, and the part of it that a measurement writes.
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: make bench -->\n", "<!-- end of figures -->"

#: Medians of the same measure differ by so much on a shared machine. A cost that grew with the cluster would have grown a
#: hundredfold, from 20 pods to 5,000.
STILL_THE_SAME = 1.25


@dataclass(frozen=True)
class Measure:
    """One row of the table. `python` is empty if there is nothing to compare with."""

    name: str
    unit: str
    recycle_eks: Sequence[float]
    python: Sequence[float] = ()

    @property
    def ratio(self) -> float | None:
        """The median of Python divided by the median of recycle-eks."""
        return statistics.median(self.python) / statistics.median(self.recycle_eks) if self.python else None

    def to_json(self) -> dict[str, Any]:
        sides = {"recycle-eks": self.recycle_eks, "python": self.python}
        return {
            "measure": self.name,
            "unit": self.unit,
            "ratio": self.ratio,
            **{side: summary(samples) | {"samples": list(samples)} for side, samples in sides.items() if samples},
        }


@dataclass(frozen=True)
class Goal:
    """A goal, and the result."""

    text: str
    figure: str
    is_met: bool


def summary(samples: Sequence[float]) -> dict[str, float]:
    """The median, and the quartiles around it."""
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
    return {"median": median, "low": low, "high": high, "n": len(samples)}


def table(measures: Sequence[Measure]) -> str:
    """Markdown, aligned to be read as it is."""
    rows = [["measure", "recycle-eks", "plain Python", "ratio"]]
    for measure in measures:
        ratio = "" if measure.ratio is None else f"{rounded(measure.ratio, 2)}×"
        rows.append([measure.name, cell(measure.recycle_eks, measure.unit), cell(measure.python, measure.unit), ratio])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"| {' | '.join(text.ljust(width) for text, width in zip(row, widths, strict=True))} |" for row in rows]
    ruler = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([lines[0], ruler, *lines[1:]])


def cell(samples: Sequence[float], unit: str) -> str:
    """`12.3 ms (11.9–14.0)`; without brackets where all samples are the same."""
    if not samples:
        return "–"
    found = summary(samples)
    digits = digits_after_point(found["median"], 3)
    low, median, high = (f"{found[key]:,.{digits}f}" for key in ("low", "median", "high"))
    spread = "" if low == high else f" ({low}–{high})"
    return f"{median} {unit}".rstrip() + spread


def rounded(value: float, significant: int) -> str:
    """Rounds to this number of significant digits. Digits before the point are never dropped."""
    return f"{value:,.{digits_after_point(value, significant)}f}"


def digits_after_point(value: float, significant: int) -> int:
    if value == 0 or value == int(value):
        return 0
    return max(0, significant - 1 - math.floor(math.log10(abs(value))))


def goals_of(
    startup_cpu: Measure, memory: Measure, packages: dict[str, int], checks: Sequence[tuple[Measure, Measure]]
) -> list[Goal]:
    """`packages`: bytes by file. `checks`: for each measured aspect of a check, in the smallest and in the largest cluster."""
    largest = max(packages, key=lambda name: packages[name])
    growth = [statistics.median(large.recycle_eks) / statistics.median(small.recycle_eks) for small, large in checks]
    kinds = ["CPU" if large.name.endswith("CPU") else "time" for _, large in checks]
    return [
        Goal("start-up needs at least 40 times less CPU", f"{rounded(startup_cpu.ratio, 3)} times less", startup_cpu.ratio >= 40),
        Goal("at least 7 times less memory", f"{rounded(memory.ratio, 3)} times less", memory.ratio >= 7),
        Goal(
            f"no package is larger than {LARGEST_ZIP / 1e6:.1f} MB",
            f"the largest is {largest.removesuffix('.zip')} with {packages[largest] / 1e6:.2f} MB",
            packages[largest] <= LARGEST_ZIP,
        ),
        Goal(
            "a check costs the same in a cluster of any size",
            ", ".join(f"{factor:.2f} times the {kind} of the smallest" for kind, factor in zip(kinds, growth, strict=True)),
            all(factor <= STILL_THE_SAME for factor in growth),
        ),
    ]


def distance_goal(far: Sequence[Measure]) -> Goal:
    """`far`: measures with calls that take as long as on AWS."""
    check = next(measure for measure in far if "same reads" in measure.name)
    text = "a check takes half the time of the same reads in Python, if calls take as long as on AWS"
    return Goal(text, f"{rounded(check.ratio, 3)} times faster", check.ratio >= 2)


def goal_lines(goals: Sequence[Goal]) -> str:
    return "\n".join(f"- {'met' if goal.is_met else 'MISSED'}: {goal.text} ({goal.figure})" for goal in goals)


def with_figures(page: str, figures: str) -> str:
    """The page with these figures instead of the earlier ones."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for figures"
    return f"{before}{begin}{figures.strip()}\n{end}{after}"
