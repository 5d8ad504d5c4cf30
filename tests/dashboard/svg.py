"""A picture of widgets, as plain SVG."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Iterator
from html import escape

from dashboard.widgets import Line, Widget

#: Pixels of one column and one row of the dashboard's grid.
COLUMN, ROW = 50, 40
#: Around a graph within its widget: left, top, right, bottom.
LEFT, TOP, RIGHT, BOTTOM = 56, 34, 14, 46
#: CloudWatch's first colours.
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
#: The characters of a table's column, and the pixels of a character.
CHARACTERS = {"@timestamp": 14, "verdict": 16, "instance": 21, "reason": 92, "execution": 42}
CHARACTER = 6.1
#: Pixels of a row of a table, and of a line of text.
TABLE_ROW, TEXT_ROW = 17, 18


def draw(widgets: list[Widget], start: float, end: float) -> str:
    """All widgets, each from `start` to `end` (seconds since 1970)."""
    width = max(each.x + each.width for each in widgets) * COLUMN
    height = max(each.y + each.height for each in widgets) * ROW
    parts = [part for each in widgets for part in _widget(each, start, end)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#f2f3f3"/>', *parts, "</svg>", ""])


def _widget(widget: Widget, start: float, end: float) -> Iterator[str]:
    left, top = widget.x * COLUMN + 4, widget.y * ROW + 4
    width, height = widget.width * COLUMN - 8, widget.height * ROW - 8
    yield f'<g transform="translate({left} {top})">'
    yield f'<rect width="{width}" height="{height}" fill="#fff" stroke="#d5dbdb"/>'
    if widget.kind == "text":
        yield from _text(widget.title, width)
    else:
        yield f'<text x="10" y="20" font-size="13" font-weight="bold">{escape(widget.title)}</text>'
        drawn = {"singleValue": _numbers, "table": _table}.get(widget.kind)
        yield from drawn(widget, width, height) if drawn else _graph(widget, width, height, start, end)
    yield "</g>"


def _text(markdown: str, width: int) -> Iterator[str]:
    plain = markdown.replace("**", "").replace("`", "")
    for number, line in enumerate(textwrap.wrap(plain, int(width / CHARACTER))):
        yield f'<text x="10" y="{24 + number * TEXT_ROW}" font-size="12" fill="#16191f">{escape(line)}</text>'


def _numbers(widget: Widget, width: int, height: int) -> Iterator[str]:
    room = width / len(widget.numbers)
    for number, (label, value) in enumerate(widget.numbers):
        x = room * number + 12
        shown = "--" if value is None else _figure(value)
        yield f'<text x="{x:.0f}" y="{height - 50}" font-size="34" fill="#16191f">{shown}</text>'
        yield f'<text x="{x:.0f}" y="{height - 22}" fill="{COLOURS[number % len(COLOURS)]}">{escape(label)}</text>'


def _table(widget: Widget, _: int, height: int) -> Iterator[str]:
    """A row that does not fit is left out, as it is in a table that scrolls."""
    shown = [list(widget.columns), *[[_cell(value) for value in row] for row in widget.rows]]
    for number, row in enumerate(shown[: (height - 30) // TABLE_ROW]):
        x, y = 10.0, 42 + number * TABLE_ROW
        style = ' font-weight="bold"' if number == 0 else ""
        for column, value in zip(widget.columns, row, strict=True):
            room = CHARACTERS[column]
            text = value if len(value) <= room else f"{value[: room - 1]}…"
            yield f'<text x="{x:.0f}" y="{y}"{style}>{escape(text)}</text>'
            x += room * CHARACTER


def _cell(value: object) -> str:
    if isinstance(value, float):
        return datetime.datetime.fromtimestamp(value, datetime.UTC).strftime("%m-%d %H:%M")
    # The name of an execution is the last part of its ARN.
    return str(value).rpartition(":")[2] if str(value).startswith("arn:") else str(value).replace("\n", " ")


def _graph(widget: Widget, width: int, height: int, start: float, end: float) -> Iterator[str]:
    inner = width - LEFT - RIGHT, height - TOP - BOTTOM
    highest = _highest(widget)
    for share in (0, 0.5, 1):
        y = TOP + inner[1] * (1 - share)
        yield f'<path d="M{LEFT} {y:.0f}h{inner[0]}" stroke="#eaeded"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#687078">{_figure(highest * share)}</text>'
    for hour in range(0, int((end - start) // 3_600) + 1, 6):
        x = LEFT + inner[0] * hour * 3_600 / (end - start)
        anchor = "end" if x == LEFT + inner[0] else "middle"
        yield f'<text x="{x:.0f}" y="{TOP + inner[1] + 14}" text-anchor="{anchor}" fill="#687078">{hour % 24:02}:00</text>'
    if widget.kind == "bar":
        yield from _bars(widget, start, end, inner, highest)
    else:
        for number, line in enumerate(widget.lines):
            colour = COLOURS[number % len(COLOURS)]
            yield from _line(line, widget, colour, start, end, inner, highest)
    yield _legend(widget.lines, height - 10)


def _highest(widget: Widget) -> float:
    if widget.kind != "bar":
        return max((value for line in widget.lines for _, value in line.points), default=0) or 1
    sums: dict[float, float] = {}
    for line in widget.lines:
        for moment, value in line.points:
            sums[moment] = sums.get(moment, 0) + value
    return max(sums.values(), default=0) or 1


def _bars(widget: Widget, start: float, end: float, inner: tuple[int, int], highest: float) -> Iterator[str]:
    """One bar for each hour, in which the lines lie on top of each other."""
    room = inner[0] * widget.period / (end - start)
    below: dict[float, float] = {}
    for number, line in enumerate(widget.lines):
        for moment, value in line.points:
            x = LEFT + inner[0] * (moment - start) / (end - start)
            bottom = below.get(moment, 0)
            below[moment] = bottom + value
            y = TOP + inner[1] * (1 - (bottom + value) / highest)
            high = inner[1] * value / highest
            colour = COLOURS[number % len(COLOURS)]
            yield f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{room - 2:.1f}" height="{high:.1f}" fill="{colour}"/>'


def _line(
    line: Line, widget: Widget, colour: str, start: float, end: float, inner: tuple[int, int], highest: float
) -> Iterator[str]:
    """Points that follow each other are joined, one by itself is a dot. A stacked graph fills the area below."""
    places = [
        (
            LEFT + inner[0] * (moment - start) / (end - start),
            TOP + inner[1] * (1 - value / highest),
            moment,
        )
        for moment, value in line.points
    ]
    joined: set[float] = set()
    floor = TOP + inner[1]
    for (x, y, moment), (next_x, next_y, next_moment) in zip(places, places[1:], strict=False):
        if next_moment - moment <= widget.period:
            joined |= {moment, next_moment}
            if widget.stacked:
                area = f"M{x:.1f} {floor}V{y:.1f}L{next_x:.1f} {next_y:.1f}V{floor}Z"
                yield f'<path d="{area}" fill="{colour}" fill-opacity="0.6"/>'
            yield f'<path d="M{x:.1f} {y:.1f}L{next_x:.1f} {next_y:.1f}" stroke="{colour}" stroke-width="2"/>'
    for x, y, moment in places:
        if moment not in joined:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'


def _legend(lines: list[Line], y: int) -> str:
    parts = []
    x = 10
    for number, line in enumerate(lines):
        parts.append(f'<rect x="{x}" y="{y - 9}" width="9" height="9" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 13}" y="{y}" fill="#16191f">{escape(line.label)}</text>')
        x += 22 + 6 * len(line.label)
    return "".join(parts)


def _figure(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 10_000 else f"{value:.3g}"
