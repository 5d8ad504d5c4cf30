"""The widgets of a dashboard's body with their values, as CloudWatch would show these measurements and lines of logs.

Metrics are those of the body: `[namespace, name, dimension, value, …, {options}]`, or a quotient of one of them,
`[{"expression": "id / number"}]`. `dashboard/insights.py` runs the queries. Nothing else is supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dashboard import insights
from world.aws.metrics import Measurement

_STATISTICS = {"Sum": sum, "Maximum": max, "Minimum": min, "Average": lambda values: sum(values) / len(values)}
_QUOTIENT = re.compile(r"(\w+) / (\d+)")


@dataclass(frozen=True)
class Line:
    """A statistic of a metric; points are (start of a period in seconds since 1970, value)."""

    label: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Widget:
    """A widget, with its position on the dashboard's grid of 24 columns."""

    kind: str
    """`text`, `singleValue`, `timeSeries`, `bar` or `table`."""
    title: str
    x: int
    y: int
    width: int
    height: int
    stacked: bool = False
    period: int = insights.HOUR
    lines: list[Line] = field(default_factory=list)
    numbers: list[tuple[str, float | None]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)


def read_widgets(body: dict[str, Any], measured: Iterable[Measurement], logged: Iterable[insights.Entry] = ()) -> list[Widget]:
    """All widgets of a dashboard's body."""
    measured, logged = list(measured), list(logged)
    return [_widget(each, measured, logged) for each in body["widgets"]]


def _widget(widget: dict[str, Any], measured: list[Measurement], logged: list[insights.Entry]) -> Widget:
    about = widget["properties"]
    place = {name: widget[name] for name in ("x", "y", "width", "height")}
    if widget["type"] == "text":
        return Widget("text", about["markdown"], **place)
    if widget["type"] == "log":
        result = insights.run(about["query"], logged)
        lines = [Line(label, sorted(hours.items())) for label, hours in sorted(result.sums.items())]
        return Widget(about["view"], about["title"], **place, lines=lines, columns=result.columns, rows=result.rows)
    if about["view"] == "singleValue":
        numbers = [_number(metric, about, measured) for metric in about["metrics"]]
        return Widget("singleValue", about["title"], **place, numbers=numbers)
    lines = list(_lines(about, measured))
    return Widget("timeSeries", about["title"], **place, stacked=about["stacked"], period=about["period"], lines=lines)


def _split(metric: list[Any], measured: list[Measurement]) -> tuple[str, dict[str, Any], list[Measurement]]:
    """The name, the options and the measurements of a metric."""
    options = metric[-1] if isinstance(metric[-1], dict) else {}
    namespace, name, *pairs = [part for part in metric if not isinstance(part, dict)]
    dimensions = dict(zip(pairs[::2], pairs[1::2], strict=True))
    found = [each for each in measured if (each.namespace, each.name, each.dimensions) == (namespace, name, dimensions)]
    return name, options, found


def _number(metric: list[Any], about: dict[str, Any], measured: list[Measurement]) -> tuple[str, float | None]:
    """The statistic of the whole time if the widget says so, else that of the last period. None without a value."""
    name, options, found = _split(metric, measured)
    points = _points(found, options.get("stat", about["stat"]), about["period"])
    if about.get("setPeriodToTimeRange") and found:
        points = [(0.0, float(_STATISTICS[about["stat"]]([each.value for each in found])))]
    return options.get("label", name), points[-1][1] if points else None


def _lines(about: dict[str, Any], measured: list[Measurement]) -> Iterator[Line]:
    metrics = [metric for metric in about["metrics"] if not (isinstance(metric[0], dict))]
    known: dict[str, list[tuple[float, float]]] = {}
    for metric in metrics:
        name, options, found = _split(metric, measured)
        points = _points(found, options.get("stat", about.get("stat")), about["period"])
        known[options.get("id", name)] = points
        if options.get("visible", True):
            yield Line(options.get("label", name), points)
    for metric in about["metrics"]:
        if isinstance(metric[0], dict):
            expression = metric[0]["expression"]
            found_quotient = _QUOTIENT.fullmatch(expression)
            if found_quotient is None:
                raise ValueError(f"this expression is not known: {expression}")
            points = known[found_quotient[1]]
            yield Line(metric[0]["label"], [(moment, value / int(found_quotient[2])) for moment, value in points])


def _points(measured: list[Measurement], statistic: str, period: int) -> list[tuple[float, float]]:
    periods: dict[float, list[float]] = {}
    for each in measured:
        periods.setdefault(each.moment // period * period, []).append(each.value)
    return [(start, float(_STATISTICS[statistic](values))) for start, values in sorted(periods.items())]
