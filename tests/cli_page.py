"""The reference of all commands in docs/cli.md, as the command line itself prints it. `make generate` writes it."""

from __future__ import annotations

import subprocess

from prepare import ROOT, cargo_target

PAGE = ROOT / "docs" / "cli.md"
BINARY = cargo_target() / "debug" / "recycle-eks"
BEGIN, END = "<!-- reference: make generate -->\n", "<!-- end of reference -->"


def with_reference(page: str) -> str:
    """The page with the reference of the commands as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    printed = subprocess.run([str(BINARY), "reference"], check=True, capture_output=True, text=True).stdout
    return f"{before}{BEGIN}{printed}{END}{after}"
