"""Rotates a fleet of 500 outdated nodes on the local world, by the real state machines and functions: 20 groups of 10, and one
of 300.

    make scale ARGS="[--groups N] [--nodes N] [--large N] [--at-once N] [--max-parallel N] [--replacement surge] [--json FILE]
                     [--markdown FILE]"

Shows the progress, then tables: the time and the least possible time, the use of AWS's quotas, the sizes, the cost. Ends with 1
if there is a failure.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from scale.figures import dump
from scale.report import failures_of, lines, markdown
from scale.rotation import FULL, Plan, measure
from world.world import World


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = read_arguments()
    plan = Plan(given.groups, given.nodes, given.large, given.at_once, given.max_parallel, given.replacement)
    console = Console(stderr=True)
    world = World(lambda text: console.print(f"  {text}"))
    columns = [TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    try:
        world.start()
        with Progress(*columns, console=console) as progress:
            tasks: dict[str, int] = {}
            tenths: dict[str, int] = {}

            def show(what: str, done: int, of: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=of)
                progress.update(tasks[what], completed=done)
                if not console.is_terminal and done * 10 // of > tenths.setdefault(what, -1):
                    tenths[what] = done * 10 // of
                    console.print(f"  {what}: {done} of {of}")

            figures = measure(world, plan, show)
    finally:
        world.stop()
    print("\n".join(lines(figures)))
    if given.json:
        given.json.write_text(dump(figures))
    if given.markdown:
        given.markdown.write_text(markdown(figures, given.markdown))
    for failure in failures_of(figures):
        print(f"FAILED: {failure}")
    return 1 if failures_of(figures) else 0


def read_arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(prog="make scale", description="Rotates a large fleet on the local world.")
    arguments.add_argument("--groups", type=int, default=FULL.groups)
    arguments.add_argument("--nodes", type=int, default=FULL.nodes_each, help="in each group")
    arguments.add_argument("--large", type=int, default=FULL.large, help="nodes in one more group; 0: no such group")
    arguments.add_argument("--at-once", type=int, default=FULL.at_once, help="of a group")
    arguments.add_argument("--max-parallel", type=int, default=FULL.max_parallel, help="the module's max_parallel_per_group")
    arguments.add_argument("--replacement", choices=("before", "surge"), default=FULL.replacement)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    arguments.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    return arguments.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        sys.exit(130)
