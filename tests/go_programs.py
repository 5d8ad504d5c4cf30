"""Finds the tools that are Go programs, and builds them on the first use.

python -m go_programs          prints the paths of the programs, after building what is missing
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from go_build import Build, CannotBuild, find_built

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A program, and its pinned Go module in a folder below `tests/`."""

    name: str
    does: str
    package: str
    pins: str
    seconds: int
    """How long the build takes on 2 cores with nothing cached."""

    def find(self) -> Path:
        """Returns the program. Builds it if it is missing."""
        described = f"{self.name}, which {self.does},"
        advice = f"{described} is built with Go {{needed}} or newer once; install it"
        title = f"building {described} once: about {self.seconds} seconds on 2 cores with nothing cached"
        return find_built(self.name, TESTS / self.pins, "", advice, title, self._compile) / self.name

    def _compile(self, build: Build) -> None:
        output = f"-o={build.folder / self.name}"
        build.run(self.name, "build", output, "-ldflags=-s -w", self.package, pins=TESTS / self.pins)


VALE = Program("vale", "checks prose", "github.com/errata-ai/vale/v3/cmd/vale", "prose/vale-build", 80)
ACTIONLINT = Program("actionlint", "checks workflows", "github.com/rhysd/actionlint/cmd/actionlint", "lint/actionlint-build", 30)
TERRAFORM_DOCS = Program(
    "terraform-docs",
    "writes the module's reference",
    "github.com/terraform-docs/terraform-docs",
    "lint/terraform-docs-build",
    40,
)


if __name__ == "__main__":
    try:
        print(*(program.find() for program in (VALE, ACTIONLINT, TERRAFORM_DOCS)), sep="\n")
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
