"""Opens a page in a headless Chromium, by `tests/browser/look.mjs`.

seen = look(page, width=400)
assert seen["said"] == seen["requests"] == []
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from prepare import TESTS, install_browser

#: Real seconds until the browser counts as hung. It needs two on an idle machine, and needed 45 on a busy one.
HUNG = 300


def look(page: Path, width: int, scheme: str = "light", picture: Path | None = None) -> dict[str, Any]:
    """Returns the content of the page at a width in pixels, the messages of the browser and its requests. Saves a picture next to
    the page, or at the given path."""
    folder = install_browser()
    home = str(folder / "unpacked")
    shot = picture or page.with_suffix(f".{width}.{scheme}.png")
    command = ["node", str(TESTS / "browser" / "look.mjs"), str(folder), str(page), str(width), scheme, str(shot)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HUNG, env={**os.environ, "HOME": home})
    if done.returncode != 0:
        raise RuntimeError(f"the browser could not look at {page}:\n{done.stderr}")
    return json.loads(done.stdout)
