"""Finds the linters that are Go programs, and builds them on the first use.

python -m linters          prints the paths of the programs, after building what is missing
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from go_build import Build, CannotBuild, find_built

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Linter:
    """A program, and its pinned Go module in a folder below `tests/`."""

    name: str
    lints: str
    package: str
    pins: str
    seconds: int
    """How long the build takes on 2 cores with nothing cached."""

    def find(self) -> Path:
        """Returns the program. Builds it if it is missing."""
        described = f"{self.name}, the linter of {self.lints},"
        advice = f"{described} is built with Go {{needed}} or newer once; install it"
        title = f"building {described} once: about {self.seconds} seconds on 2 cores with nothing cached"
        return find_built(self.name, TESTS / self.pins, "", advice, title, self._compile) / self.name

    def _compile(self, build: Build) -> None:
        output = f"-o={build.folder / self.name}"
        build.run(self.name, "build", output, "-ldflags=-s -w", self.package, pins=TESTS / self.pins)


VALE = Linter("vale", "prose", "github.com/errata-ai/vale/v3/cmd/vale", "prose/vale-build", 80)
ACTIONLINT = Linter("actionlint", "workflows", "github.com/rhysd/actionlint/cmd/actionlint", "lint/actionlint-build", 30)


if __name__ == "__main__":
    try:
        print(*(linter.find() for linter in (VALE, ACTIONLINT)), sep="\n")
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
