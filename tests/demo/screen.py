"""One screen that updates: the state machine's boxes with the current one lit, time, instances, pods, progress.

What it shows, it is told (`watch.py`); the boxes are read from the state machine's definition (`picture.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.watch import Moment, clock_face
from picture import Step

#: Real seconds that the eye gets for each change.
PAUSE = 0.35
#: Real seconds between two updates of what changes all the time.
REDRAW = 0.05
#: The picture in the README is of the last moment before this one, in virtual seconds: the drain is under way then.
PICTURED_BEFORE = 110.0
#: Columns of the picture in the README.
PICTURED_WIDTH = 104

CLASS_STYLES = {"wait": "yellow", "evict": "cyan", "ignore": "dim", "new": "green"}
LIFECYCLE_STYLES = {"InService": "green", "Standby": "yellow", "gone": "dim"}

# Rich's own layout of a picture without the web fonts that it would load.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<desc>generated: make demo ARGS="--picture docs/demo.svg"</desc>
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Screen:
    """For a terminal."""

    def __init__(self, title: str, boxes: Sequence[Step], picture: Path | None = None) -> None:
        self._title, self._boxes, self._picture = title, boxes, picture
        self._live = Live(auto_refresh=False, vertical_overflow="crop")
        self._shown: Moment | None = None
        self._drawn = 0.0

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._picture and self._shown:
            self._save(self._shown)

    def show(self, moment: Moment) -> None:
        last, self._shown = self._shown, moment
        if self._picture and last and last.elapsed < PICTURED_BEFORE <= moment.elapsed:
            self._save(last)
            self._picture = None
        news = last is None or (last.instances, last.node, last.pods) != (moment.instances, moment.node, moment.pods)
        if news or time.monotonic() > self._drawn + REDRAW:
            self._live.update(self._draw(moment), refresh=True)
            self._drawn = time.monotonic()
        if news and self._live.console.is_terminal:
            time.sleep(PAUSE)

    def _save(self, moment: Moment) -> None:
        with open("/dev/null", "w") as nowhere:
            console = Console(record=True, width=PICTURED_WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
            console.print(self._draw(moment))
            self._picture.write_text(console.export_svg(title="make demo", code_format=SVG, unique_id="demo"))

    def _draw(self, moment: Moment) -> RenderableType:
        page = Table.grid(expand=True, padding=(0, 1))
        page.add_column(width=31)
        page.add_column(ratio=1)
        progress = framed("recycle-eks/progress", Text(moment.progress or " "))
        page.add_row(draw_machine(self._boxes, moment), Group(draw_instances(moment), draw_pods(moment), progress))
        head = Text.assemble(("virtual time ", "dim"), (clock_face(moment.elapsed).strip(), "bold"), "   ", (self._title, "dim"))
        head.no_wrap, head.overflow = True, "ellipsis"
        return Group(head, page)


def draw_machine(boxes: Sequence[Step], moment: Moment) -> RenderableType:
    """A box for each state, the one that was entered last lit, with how often each was entered."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(justify="right", style="dim")
    for box in boxes:
        times = moment.entered.get(box.name, 0)
        lit = box.name == moment.state
        style = "bold black on green" if lit else "default on grey23" if times else "dim"
        rows.add_row(Text.assemble("  " * box.depth, (f" {box.name} ", style)), str(times) if times else "")
    return framed("recycle-node", rows)


def draw_instances(moment: Moment) -> RenderableType:
    """The members of the group, with what is on the old one's Node."""
    rows = Table.grid(padding=(0, 2))
    for number, (instance, state) in enumerate(moment.instances.items()):
        about = f"old node: {moment.node}" if number == 0 else ""
        rows.add_row(instance[:10] + "…", Text(state, LIFECYCLE_STYLES.get(state, "magenta")), Text(about, "dim"))
    return framed("instances", rows)


def draw_pods(moment: Moment) -> RenderableType:
    """Every pod of the old node, and what came up elsewhere instead."""
    rows = Table.grid(padding=(0, 2))
    for name, (kind, where) in moment.pods.items():
        faded = "dim" if where == "gone" else ""
        rows.add_row(Text(name, faded, no_wrap=True), Text(kind, CLASS_STYLES[kind]), Text(where, faded, no_wrap=True))
    return framed("pods of the old node, by class; new ones elsewhere", rows)


def framed(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", box=ROUNDED, border_style="dim")
