"""The widgets of a dashboard's body as lines of values, as CloudWatch would show these measurements.

Metrics are those of the body: `[namespace, name, dimension, value, …, {options}]`, or a search `SEARCH('{"namespace",dimensions}
terms', 'statistic', period)` (CloudWatch user guide, "Using search expressions in graphs"). Nothing else is supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from world.aws.metrics import Measurement

_STATISTICS = {"Sum": sum, "Maximum": max, "Minimum": min, "Average": lambda values: sum(values) / len(values)}
_SEARCH = re.compile(r"SEARCH\('\{\"([^\"]+)\",([^}]*)\} MetricName=\"(\w+)\" (\w+)=\"([^\"]*)\"', '(\w+)', (\d+)\)")


@dataclass(frozen=True)
class Line:
    """A statistic of a metric; points are (start of a period in seconds since 1970, value)."""

    label: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Widget:
    """A graph, with its position on the dashboard's grid of 24 columns."""

    title: str
    x: int
    y: int
    width: int
    height: int
    stacked: bool
    period: int
    lines: list[Line] = field(default_factory=list)


def read_widgets(body: dict[str, Any], measured: Iterable[Measurement]) -> list[Widget]:
    """All graphs of a dashboard's body."""
    measured = list(measured)
    return [_widget(each, measured) for each in body["widgets"]]


def _widget(widget: dict[str, Any], measured: list[Measurement]) -> Widget:
    about = widget["properties"]
    lines = [line for metric in about["metrics"] for line in _lines(metric, about, measured)]
    place = {name: widget[name] for name in ("x", "y", "width", "height")}
    return Widget(about["title"], **place, stacked=about["stacked"], period=about["period"], lines=lines)


def _lines(metric: list[Any], about: dict[str, Any], measured: list[Measurement]) -> Iterator[Line]:
    if isinstance(metric[0], dict):
        yield from _search(metric[0]["expression"], measured)
        return
    options = metric[-1] if isinstance(metric[-1], dict) else {}
    namespace, name, *pairs = [part for part in metric if not isinstance(part, dict)]
    dimensions = dict(zip(pairs[::2], pairs[1::2], strict=True))
    of_it = [each for each in measured if (each.namespace, each.name, each.dimensions) == (namespace, name, dimensions)]
    yield Line(options.get("label", name), _points(of_it, options.get("stat", about.get("stat")), about["period"]))


def _search(expression: str, measured: list[Measurement]) -> Iterator[Line]:
    """One line for each metric with exactly these dimensions; its label is the value of the last one."""
    found = _SEARCH.fullmatch(expression)
    if found is None:
        raise ValueError(f"this search is not known: {expression}")
    namespace, schema, name, dimension, value, statistic, period = found.groups()
    dimensions = schema.split(",")
    groups: dict[str, list[Measurement]] = {}
    for each in measured:
        if (each.namespace, each.name) == (namespace, name) and list(each.dimensions) == dimensions:
            if each.dimensions[dimension] == value:
                groups.setdefault(each.dimensions[dimensions[-1]], []).append(each)
    for label in sorted(groups):
        yield Line(label, _points(groups[label], statistic, int(period)))


def _points(measured: list[Measurement], statistic: str, period: int) -> list[tuple[float, float]]:
    periods: dict[float, list[float]] = {}
    for each in measured:
        periods.setdefault(each.moment // period * period, []).append(each.value)
    return [(start, float(_STATISTICS[statistic](values))) for start, values in sorted(periods.items())]
