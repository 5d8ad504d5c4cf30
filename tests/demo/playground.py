"""The world that `make demo ARGS=--keep` leaves standing: its clock goes on, and a shell of its own has its settings.

The shell is a command. `exit` leaves it, and the terminal's own settings are as before, because nothing has to be exported there.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import time
from pathlib import Path

from cli_page import BINARY
from world.cli import Cli
from world.kubernetes import kube_binaries
from world.process.terraform import Terraform
from world.scenario.groups import Group
from world.world import World

#: Virtual seconds that pass in a real second, and real seconds of one stretch.
SPEED, STRETCH = 60, 0.2
#: Real seconds between two updates of the command line.
LOOK = 2
#: Virtual seconds between two updates of the command line's clock while time is skipped.
STEP = 600
#: The time that the Jobs of a new start need.
JOB = "12h"


def make_shell(world: World, cli: Cli, folder: Path) -> Path:
    """Writes the command `shell`: a shell with the world's settings, or one command in it."""
    settings = {
        **world.environment(),
        **cli.settings(),
        "RECYCLE_EKS_CHECK_AGAIN_SECONDS": str(LOOK),
        # The world has no file of profiles.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "localhost,127.0.0.1",
        "PATH": f"{make_skip(cli, folder)}:{BINARY.parent}:{kube_binaries.find()}:{os.environ['PATH']}",
        "PS1": "demo$ ",
    }
    lines = ["#!/bin/bash", "# The settings are those of this shell alone.", "unset ${!AWS_*}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
    lines += ['[ $# -gt 0 ] && exec "$@"', "exec bash --noprofile --norc -i", ""]
    shell = folder / "shell"
    shell.write_text("\n".join(lines))
    shell.chmod(0o700)
    return shell


def make_skip(cli: Cli, folder: Path) -> Path:
    """Writes the command `skip`, by which a user asks `stand` to let time pass at once. Returns its folder."""
    asked, clock = (shlex.quote(str(path)) for path in (folder / "skip", cli.settings()["RECYCLE_EKS_CLOCK"]))
    skip = folder / "bin" / "skip"
    skip.parent.mkdir()
    skip.write_text(f"""\
#!/bin/bash
if [[ $# -ne 1 || ! $1 =~ ^([0-9]+[dhms])+$ ]]; then
  echo "skip: TIME must be a time such as 6h or 1d12h, but is '$*'" >&2
  exit 2
fi
echo "$1" > {asked}.new && mv {asked}.new {asked} || exit 1
while [ -e {asked} ] || [ -e {asked}.taken ]; do sleep 0.1; done
echo "it is $(cut -c1-16 {clock})Z"
""")
    skip.chmod(0o700)
    return skip.parent


def fill(world: World, groups: list[Group]) -> list[str]:
    """Starts a Job on two nodes of each group, so that there is something to wait for. Returns the names of these nodes."""
    names = []
    for group in groups:
        for number, node in enumerate(group.nodes[:2]):
            job = node.job(f"{group.name}-again-{number}", labels={"app": "training"})
            world.at(world.clock.elapsed() + world.seconds(JOB), job.finishes)
            names.append(node.name)
    return names


def instructions(world: World, terraform: Terraform, shell: Path, nodes: list[str]) -> str:
    first, second = nodes[:2]
    config = terraform.environment["TF_CLI_CONFIG_FILE"]
    return f"""\
In another terminal, this shell has the command line and the settings. `exit` leaves it, and changes nothing in yours:

{shell}

Each second is a minute there, and `skip 6h` lets six hours pass at once. On two nodes of each group runs a Job of {JOB}.
To begin:

recycle-eks recycle {first} --label-selector app=training --no-wait
recycle-eks recycle {second} --label-selector app=training --no-wait
recycle-eks status --watch
recycle-eks extend {first} --by 1d
recycle-eks finish {first}
recycle-eks abort {second}
recycle-eks rotate --all --label-selector app=training --no-wait
recycle-eks pause --all
recycle-eks report --last --file report.html
kubectl get nodes,pods --all-namespaces
aws stepfunctions list-executions --state-machine-arn {world.deployment.outputs["rotate_state_machine_arn"]}
TF_CLI_CONFIG_FILE={shlex.quote(config)} terraform -chdir={terraform.folder} plan

Ctrl-C here ends it all."""


def stand(world: World, cli: Cli, folder: Path) -> None:
    """Lets time pass until Ctrl-C, and prints the end of each execution."""
    skip, taken = folder / "skip", folder / "skip.taken"
    world.let_sweep()
    ended = {each.arn for machine in ("recycle-node", "rotate-nodes") for each in world.executions(machine)}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            # A time that is asked for from here on is that of the next round.
            with contextlib.suppress(FileNotFoundError):
                skip.rename(taken)
            end = world.clock.elapsed() + (world.seconds(taken.read_text().strip()) if taken.exists() else SPEED * STRETCH)
            while world.clock.elapsed() < end:
                world.clock.run(limit=min(world.clock.elapsed() + STEP, end))
                cli.writes_time()
            taken.unlink(missing_ok=True)
            for machine in ("recycle-node", "rotate-nodes"):
                for each in world.executions(machine):
                    if each.status != "RUNNING" and each.arn not in ended:
                        ended.add(each.arn)
                        done = each.finishes()
                        at = world.clock.now() - world.clock.elapsed() + done.at
                        name = each.arn.rpartition(":")[2]
                        outcome = done.outcome or done.error or each.status
                        print(
                            f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%Y-%m-%d %H:%MZ}  {machine} {name}: {outcome}",
                            flush=True,
                        )
            time.sleep(STRETCH)
