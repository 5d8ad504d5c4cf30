"""A picture of widgets, as plain SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dashboard.widgets import Line, Widget

#: Pixels of one column and one row of the dashboard's grid.
COLUMN, ROW = 50, 40
#: Around a graph within its widget: left, top, right, bottom.
LEFT, TOP, RIGHT, BOTTOM = 56, 34, 14, 46
#: CloudWatch's first colours.
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


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
    yield f'<text x="10" y="20" font-size="13" font-weight="bold">{escape(widget.title)}</text>'
    inner = width - LEFT - RIGHT, height - TOP - BOTTOM
    highest = _highest(widget)
    for share in (0, 0.5, 1):
        y = TOP + inner[1] * (1 - share)
        yield f'<path d="M{LEFT} {y:.0f}h{inner[0]}" stroke="#eaeded"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#687078">{_figure(highest * share)}</text>'
    for day in range(int((end - start) // 86_400) + 1):
        x = LEFT + inner[0] * day * 86_400 / (end - start)
        anchor = "end" if x == LEFT + inner[0] else "middle"
        yield f'<text x="{x:.0f}" y="{TOP + inner[1] + 14}" text-anchor="{anchor}" fill="#687078">day {day}</text>'
    for number, line in enumerate(widget.lines):
        colour = COLOURS[number % len(COLOURS)]
        yield from _line(line, widget.period, colour, start, end, inner, highest)
    yield _legend(widget.lines, height - 10)
    yield "</g>"


def _highest(widget: Widget) -> float:
    return max((value for line in widget.lines for _, value in line.points), default=0) or 1


def _line(
    line: Line, period: int, colour: str, start: float, end: float, inner: tuple[int, int], highest: float
) -> Iterator[str]:
    """Points that follow each other are joined, one by itself is a dot: most metrics have few."""
    places = [
        (
            LEFT + inner[0] * (moment - start) / (end - start),
            TOP + inner[1] * (1 - value / highest),
            moment,
        )
        for moment, value in line.points
    ]
    joined: set[float] = set()
    for (x, y, moment), (next_x, next_y, next_moment) in zip(places, places[1:], strict=False):
        if next_moment - moment <= period:
            joined |= {moment, next_moment}
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
