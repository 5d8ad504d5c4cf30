"""Recycles one node of three before your eyes, or twelve: real functions, the real command line, a real API server, and a
clock that does not wait.

Any field of an execution's input may be given as FIELD=VALUE:

    make demo
    make demo ARGS="label_selector=app=web evict=none"
    make demo ARGS="--cluster budgets drain_timeout=1h"
    make demo ARGS=--rotation
    make demo ARGS="--cluster managed"
    make demo ARGS=--keep
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_page import BINARY
from demo import playground, svg
from demo.clusters import CLUSTERS, FLEETS
from demo.pace import Pace
from world.cli import Cli, command_line
from world.deployment import variables
from world.process.folders import temporary_folder
from world.process.terraform import Terraform
from world.scenario.executions import Execution
from world.scenario.groups import Group
from world.world import World

#: Real seconds between two updates of the command line.
LOOK = 0.1
#: Updates of the command line until a picture is taken.
LOOKS = 30
#: The exit code of the command line for a mistake in a command.
WRONG_USAGE = 2
#: The size of a picture's terminal.
COLUMNS, ROWS = 120, 40


@dataclass(frozen=True)
class Show:
    """A demo: its commands and its picture."""

    machine: str
    groups: list[Group]
    command: list[str]
    """Arguments of the command line."""
    pictured_at: str
    """The moment of its picture, since it began."""
    arguments: str
    """The arguments of `make demo` that show it."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse(sys.argv[1:])
    began = time.monotonic()
    world = World(say=stage)
    code = None
    try:
        terraform = deploy(world, arguments)
        with command_line(world, look_again=LOOK) as cli:
            code = show(world, cli, arguments)
            if arguments.keep:
                keep(world, cli, terraform, list(world.groups.values()))
        if terraform and not arguments.keep:
            stage("terraform destroy")
            terraform.destroy(**variables())
            print("everything is gone again")
    except KeyboardInterrupt:
        code = None
    finally:
        world.stop()
    if code is None:
        print("\nstopped; nothing is left running")
        return 130
    print(f"\nThe demo took {time.monotonic() - began:.0f} s.")
    # With other fields a failure may be intended.
    return 0 if arguments.fields else code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    clusters = "\n".join(f"  {name:9}{cluster.description}" for name, cluster in {**CLUSTERS, **FLEETS}.items())
    parser = argparse.ArgumentParser(
        "make demo", description=__doc__, epilog=f"clusters:\n{clusters}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fields", nargs="*", metavar="FIELD=VALUE", type=field, help="a field of the execution's input")
    parser.add_argument(
        "--cluster", choices=[*CLUSTERS, *FLEETS], default="tidy", help="which ready-made cluster (default: tidy)"
    )
    parser.add_argument(
        "--rotation", dest="cluster", action="store_const", const="groups", help="a rotation of 12 nodes: --cluster groups"
    )
    parser.add_argument(
        "--plain", action="store_true", help="lines instead of a picture that changes, as where there is no terminal"
    )
    parser.add_argument("--terraform", action="store_true", help="apply and destroy by Terraform even if nothing has changed")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the world standing, with a clock that goes on, to try commands",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="only save a picture of the screen (SVG)")
    given = parser.parse_intermixed_args(arguments)
    if given.picture and not given.picture.parent.is_dir():
        parser.error(f"there is no folder {given.picture.parent} for the picture")
    return given


def field(text: str) -> tuple[str, Any]:
    """A value is JSON if it can be read as that, else a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    with contextlib.suppress(json.JSONDecodeError):
        return name, json.loads(value)
    return name, value


def deploy(world: World, arguments: argparse.Namespace) -> Terraform | None:
    """Repeats Terraform's recorded calls if that is enough. Returns Terraform for who applies, plans or destroys."""
    stage("An AWS account and a Kubernetes cluster on this machine, and recycle-eks deployed into them")
    if not arguments.terraform and not arguments.keep:
        world.start()
        return None
    world.start_empty()
    if arguments.terraform:
        stage("terraform apply of terraform/examples/complete (about a minute)")
        terraform = world.deployment.apply()
    else:
        terraform = world.deployment.deploy_for_terraform()
    world.finish_deployment()
    return terraform


def show(world: World, cli: Cli, arguments: argparse.Namespace) -> int:
    """The exit code of the command line."""
    pace = Pace(world, cli)
    shown = rotation(world, arguments) if arguments.cluster in FLEETS else node(world, cli, pace, arguments)
    if arguments.picture:
        take_picture(world, cli, pace, shown, arguments.picture)
        return 0
    stage(spelt(shown.command))
    began = time.monotonic()
    known = len(world.executions(shown.machine))
    with watched(cli, shown.command, arguments.plain) as process:
        pace.stands_still(lambda: len(world.executions(shown.machine)) > known or process.poll() is not None)
        pace.goes_on(lambda: process.poll() is not None)
    if started := world.executions(shown.machine)[known:]:
        sum_up(started[0], shown, process.returncode, time.monotonic() - began)
    return process.returncode


def rotation(world: World, arguments: argparse.Namespace) -> Show:
    fleet = FLEETS[arguments.cluster]
    groups = fleet.build(world)
    print(f"\nThe fleet: {fleet.description}.")
    answers = ["--yes"] if fleet.selection == "--all" else []
    command = ["rotate", fleet.selection, *answers, *flags({"label_selector": "app=training", **dict(arguments.fields)})]
    how = "--rotation" if arguments.cluster == "groups" else f"--cluster {arguments.cluster}"
    return Show("rotate-nodes", groups, command, "5m25s", how)


def node(world: World, cli: Cli, pace: Pace, arguments: argparse.Namespace) -> Show:
    cluster = CLUSTERS[arguments.cluster]
    workers = cluster.build(world)
    name = workers.nodes[0].name
    given = [name, *flags({"label_selector": "app=training", **dict(arguments.fields)})]
    print(f"\nOn {name}: {cluster.description}.")
    if not arguments.picture:
        stage(spelt(["plan", *given]))
        with watched(cli, ["plan", *given], arguments.plain) as process:
            pace.stands_still(lambda: process.poll() is not None)
        # A wrong field would be refused a second time.
        if process.returncode == WRONG_USAGE and not arguments.keep:
            raise SystemExit(WRONG_USAGE)
    return Show("recycle-node", [workers], ["recycle", *given], "100s", "")


def flags(fields: dict[str, Any]) -> list[str]:
    """The flags of the command line that say the same."""
    written = []
    for name, value in fields.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            written += [flag] * value
        elif isinstance(value, list):
            written += [f"{flag}={each}" for each in value]
        else:
            written.append(f"{flag}={value}")
    return written


def spelt(command: Sequence[str]) -> str:
    return shlex.join(["recycle-eks", *command])


@contextlib.contextmanager
def watched(cli: Cli, command: Sequence[str], plain: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the real command line in the terminal of the demo."""
    sys.stdout.flush()
    called = [str(BINARY), *command]
    # Then its output is not a terminal.
    called = ["bash", "-o", "pipefail", "-c", '"$@" | cat', "bash", *called] if plain else called
    with subprocess.Popen(called, env=cli.environment()) as process:
        try:
            yield process
        except BaseException:
            # Time stands still from here on: it would wait without end, and hide what happened.
            process.kill()
            raise


def take_picture(world: World, cli: Cli, pace: Pace, shown: Show, file: Path) -> None:
    """Takes a picture of a real terminal's screen at a moment of virtual time, while the clock stands still."""
    terminal = cli.opens(*shown.command, columns=COLUMNS, rows=ROWS)
    pace.stands_still(lambda: bool(world.executions(shown.machine)) or not terminal.is_under_way)
    for _ in range(LOOKS):
        cli.lets_pass(world.seconds(shown.pictured_at) / LOOKS)
        time.sleep(LOOK)
    screen = settled(cli, lambda: terminal.coloured)
    svg.save(screen, spelt(shown.command), f"{shown.arguments} --picture docs/{file.name}".strip(), COLUMNS, file)
    print(f"wrote {file}")


def settled(cli: Cli, look: Callable[[], str]) -> str:
    """Returns the screen when it no longer changes, although the command line has read everything anew."""
    before = ""
    while (seen := look()) != before:
        before = seen
        cli.looks_again()
    return seen


def sum_up(execution: Execution, shown: Show, code: int, took: float) -> None:
    stage("Summary")
    end = execution.finishes()
    print(f"outcome          {end.outcome or end.error}: {(end.output or {}).get('reason', end.cause)}")
    print(f"exit code        {code}")
    print(f"virtual time     {clock_face(end.at)} in {took:.1f} real seconds")
    print(f"history          {end.history_events:,} of 25,000 events")
    for group in shown.groups:
        minimum, desired, maximum = group.sizes
        print(f"group {group.name:<10} min {minimum}, desired {desired}, max {maximum}; {', '.join(group.states.values())}")


def clock_face(seconds: float) -> str:
    """Hours, minutes and seconds of virtual time."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def keep(world: World, cli: Cli, terraform: Terraform, groups: list[Group]) -> None:
    """Runs until Ctrl-C."""
    (terraform.folder / "terraform.tfvars.json").write_text(json.dumps(variables()))
    folder = temporary_folder("demo")
    try:
        shell = playground.make_shell(world, cli, folder)
        stage("The world stands, and its clock goes on")
        print(playground.instructions(world, terraform, shell, playground.fill(world, groups)), flush=True)
        playground.stand(world, cli, folder)
    finally:
        shutil.rmtree(folder)


def stage(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
