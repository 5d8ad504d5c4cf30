"""The findings as a table, in the terminal and in Markdown, and as JSON for docs/aws-evidence.md."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from probe.state import State

HEAD = ("row", "question", "expectation", "answer of AWS", "consequence", "setting")
#: The share of the width of each column.
SHARES = (0, 26, 18, 20, 22, 14)


def rows(findings: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [_row(each) for each in sorted(findings, key=lambda each: (each["row"], each["question"]))]


def _row(finding: dict[str, Any]) -> tuple[str, ...]:
    if finding["problem"]:
        answer = (f"not answered: {finding['problem']}", "–", "–")
    else:
        found = finding["found"] if finding["agrees"] else f"**OTHERWISE** {finding['found']}"
        answer = (found, finding["consequence"], finding["setting"])
    return (str(finding["row"]), finding["question"], finding["expectation"], *answer)


def text_table(findings: Iterable[dict[str, Any]], width: int) -> str:
    """Returns the table with wrapped cells. `width` is in characters."""
    widths = [4, *(max(12, (width - 4 - 3 * len(HEAD)) * share // 100) for share in SHARES[1:])]
    line = "-+-".join("-" * each for each in widths)
    parts = [line]
    for row in (HEAD, *rows(findings)):
        cells = [textwrap.wrap(cell, each) or [""] for cell, each in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            words = (cell[number] if number < len(cell) else "" for cell in cells)
            parts.append(" | ".join(word.ljust(each) for word, each in zip(words, widths, strict=True)).rstrip())
        parts.append(line)
    return "\n".join(parts)


def markdown_table(findings: Iterable[dict[str, Any]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *rows(findings)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


def write(state: State, events: dict[str, Any], folder: Path) -> list[Path]:
    """Writes `findings.json` and `findings.md`. Returns their paths."""
    about = {"region": state.region, "run": state.run, "began": state.began}
    document = {**about, "findings": state.findings, "events": events}
    files = {
        folder / "findings.json": json.dumps(document, indent=1, default=str) + "\n",
        folder / "findings.md": markdown_table(state.findings.values()),
    }
    for file, text in files.items():
        file.write_text(text)
    return list(files)
