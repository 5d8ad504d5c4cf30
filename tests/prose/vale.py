"""Finds Vale, the linter of prose, and builds it on the first use.

python -m prose.vale       prints the path of the program, after building it if it is missing
"""

from __future__ import annotations

import sys
from pathlib import Path

from go_build import Build, CannotBuild, find_built

_PINS = Path(__file__).parent / "vale-build"


def find() -> Path:
    """Returns the program. Builds it if it is missing, which takes a minute and a half."""
    advice = "Vale, the linter of prose, is built with Go {needed} or newer once; install it"
    title = "building Vale, the linter of prose, once: about 80 seconds on 2 cores with nothing cached"
    return find_built("vale", _PINS, "", advice, title, _compile) / "vale"


def _compile(build: Build) -> None:
    output = f"-o={build.folder / 'vale'}"
    build.run("vale", "build", output, "-ldflags=-s -w", "github.com/errata-ai/vale/v3/cmd/vale", pins=_PINS)


if __name__ == "__main__":
    try:
        print(find())
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
