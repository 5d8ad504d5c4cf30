"""The picture of a terminal's screen, as it stands in the documentation."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

# Rich's own layout of a picture without the web fonts that it would load.
LAYOUT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<desc>generated: make demo ARGS="__ARGUMENTS__"</desc>
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


def save(screen: str, title: str, arguments: str, columns: int, file: Path) -> None:
    """Draws a screen with its escapes. The title is the command, and the arguments are those of `make demo` for this picture."""
    with open("/dev/null", "w") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(screen.rstrip("\n")))
        layout = LAYOUT.replace("__ARGUMENTS__", arguments)
        file.write_text(console.export_svg(title=title, code_format=layout, unique_id=file.stem))
