"""Finds actionlint, the linter of GitHub's workflows, and builds it on the first use.

python -m actionlint       prints the path of the program, after building it if it is missing
"""

from __future__ import annotations

import sys
from pathlib import Path

from go_build import Build, CannotBuild, find_built

_PINS = Path(__file__).parent / "lint" / "actionlint-build"


def find() -> Path:
    """Returns the program. Builds it if it is missing, which takes half a minute."""
    advice = "actionlint, the linter of workflows, is built with Go {needed} or newer once; install it"
    title = "building actionlint, the linter of workflows, once: about 30 seconds on 2 cores with nothing cached"
    return find_built("actionlint", _PINS, "", advice, title, _compile) / "actionlint"


def _compile(build: Build) -> None:
    output = f"-o={build.folder / 'actionlint'}"
    build.run("actionlint", "build", output, "-ldflags=-s -w", "github.com/rhysd/actionlint/cmd/actionlint", pins=_PINS)


if __name__ == "__main__":
    try:
        print(find())
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
