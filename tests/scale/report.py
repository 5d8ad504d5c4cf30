"""Figures of a rotation as tables, and the failures in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scale.figures import GIGABYTES, SECONDS, Figures

#: A rotation may take this many times the least that it could.
LONGEST_RATIO = 1.05

Row = Sequence[str]


def failures_of(figures: Figures) -> list[str]:
    """Returns the failures; empty if there are none."""
    found = []
    if figures.outcome != "rotated" or figures.recycled != figures.nodes:
        found.append(f"{figures.recycled} of {figures.nodes} nodes were recycled; the rotation ended {figures.outcome}")
    if figures.ratio > LONGEST_RATIO:
        found.append(f"it took {figures.ratio:.3f} times the bound, more than {LONGEST_RATIO}")
    for use in figures.uses:
        if use.quota.is_published and not use.is_held:
            found.append(f"{use.quota.name}: {use.level:.0f} of {use.quota.size:g} ({use.quota.source})")
    for name, (reached, limit) in figures.sizes.limits.items():
        if reached > limit:
            found.append(f"{name}: {reached:,} of {limit:,}")
    return found


def sections(figures: Figures) -> list[tuple[str, list[Row]]]:
    """(heading, rows); the first row has the columns' names."""
    summary = [
        ("nodes", f"{figures.recycled:,} of {figures.nodes:,} recycled, in {_groups(figures)}"),
        ("at once in a group", f"{figures.at_once}, {figures.max_parallel} of them replaced or emptied at a time"),
        ("replacement", figures.replacement),
        ("makespan", duration(figures.makespan)),
        ("the least possible", duration(figures.bound)),
        ("ratio", f"{figures.ratio:.3f}"),
        ("checks a node", f"{figures.checks_per_node:.1f}"),
        ("history events a node", f"{figures.events_per_node:.0f}"),
        ("real time", duration(figures.real_seconds)),
    ]
    own = [
        (name, *(duration(seconds) for seconds in (times.replaced, times.slot, times.alone)))
        for name, times in figures.own_times.items()
    ]
    uses = [
        (
            use.quota.name,
            f"{use.calls:,}",
            f"{use.most_in_a_second:,}",
            f"{use.level:,.0f}",
            f"{use.quota.size:,g}, {use.quota.refill:g}/s" + ("" if use.quota.is_published else " (not published)"),
        )
        for use in figures.uses
    ]
    sizes = [(name, f"{reached:,}", f"{limit:,}") for name, (reached, limit) in figures.sizes.limits.items()]
    nodes = figures.nodes
    cost = [
        ("state transitions", f"{figures.transitions / nodes:.1f}"),
        ("invocations of functions", f"{figures.invocations / nodes:.1f}"),
        (f"GB-seconds, at {SECONDS} s and {GIGABYTES * 1024:.0f} MB", f"{figures.invocations * SECONDS * GIGABYTES / nodes:.2f}"),
        ("calls of AWS's APIs by functions", f"{_requests(figures, kubernetes=False) / nodes:.1f}"),
        ("calls of the Kubernetes API", f"{_requests(figures, kubernetes=True) / nodes:.1f}"),
        ("dollars", f"{figures.dollars_per_node:.4f}"),
    ]
    functions = [
        (name, f"{of['invocations']:,.0f}", f"{of['median_ms']:.0f}", f"{of['longest_ms']:.0f}", f"{of['memory_mib']:.0f}")
        for name, of in figures.functions.items()
    ]
    return [
        ("The rotation", [("", ""), *summary]),
        ("Each kind of node alone", [("", "replaced after", "slot free after", "recycled after"), *own]),
        (
            "Quotas, as leaky buckets on virtual time",
            [("", "calls", "most in a second", "highest level", "bucket, refill"), *uses],
        ),
        ("Sizes", [("", "largest", "limit"), *sizes]),
        ("A node costs", [("", ""), *cost]),
        ("Functions, debug build on this machine", [("", "invocations", "median ms", "longest ms", "MiB"), *functions]),
    ]


def _requests(figures: Figures, kubernetes: bool) -> int:
    return sum(count for action, count in figures.requests.items() if action.startswith("kubernetes:") == kubernetes)


def lines(figures: Figures) -> list[str]:
    """Returns the tables for a terminal."""
    text = []
    for heading, rows in sections(figures):
        text += ["", heading, *_aligned(rows)]
    return text


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    shown = []
    for row in rows:
        first, *others = row
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        shown.append("  " + "  ".join(cells).rstrip())
    return [line for line in shown if line.strip()]


def markdown(figures: Figures, page: Path) -> str:
    """Returns the tables as this page."""
    arguments = f"--groups {figures.groups} --nodes {figures.nodes_each} --large {figures.large}"
    arguments += "" if figures.replacement == "before" else f" --replacement {figures.replacement}"
    text = [_HEAD.format(nodes=figures.nodes, groups=_groups(figures), arguments=arguments, page=page)]
    for heading, rows in sections(figures):
        columns, *body = rows
        text += [f"## {heading}", "", _row(columns), f"|---|{'---:|' * (len(columns) - 1)}", *map(_row, body), ""]
    return "\n".join(text)


def _groups(figures: Figures) -> str:
    groups = f"{figures.groups} groups of {figures.nodes_each}"
    return f"{groups} and one of {figures.large}" if figures.large else groups


_HEAD = """# A fleet of {nodes:,} nodes

The figures of one rotation of {nodes:,} nodes on the local world, in {groups}. State machines, functions
and the Kubernetes control plane are real, AWS is emulated, and time is virtual. Written by

```
make scale ARGS="{arguments} --markdown {page}"
```

The nodes of a group run, alternating, a Job of 20 minutes, two pods of Deployments, a Job of 40 minutes, two pods of Deployments.
The executions wait for the Jobs. The least possible time is computed from the times of each kind of node alone
(`tests/scale/bound.py`). Calls take no virtual time, so all calls of one moment are one burst. `tests/scale/quotas.py` names the
source of each quota.
"""


def _row(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"


def duration(seconds: float) -> str:
    """`1:02:03`, hours without bound."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
