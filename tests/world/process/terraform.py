"""Terraform for the local world: finds the provider, works in a copy, points everything at the world's endpoint.

    python -m world.terraform test      runs the module's own tests

The provider comes from the registry, or from a plugin mirror on this machine if there is one (TF_PLUGIN_MIRROR, or a folder that
holds registry.terraform.io/hashicorp/aws).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from world.process.folders import temporary_folder
from world.process.processes import never_outlives

ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "terraform"
PROVIDER = Path("registry.terraform.io/hashicorp/aws")
#: The usual folders of a plugin mirror: Terraform's own implied mirror folders (CLI configuration, "Implied Local Mirror
#: Directories"), then those that machine images use.
MIRROR_PLACES = [
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
]


#: The option of a command that follows another one, if nothing has changed since: it reads no resource again.
AS_KNOWN = "-refresh=false"
#: The resources between two lines about a slow apply.
STEP = 10
#: Real seconds for the start of a provider. Usually it takes two.
LONGEST_START = 120.0


class TerraformFailed(RuntimeError):
    """A Terraform command failed; the text is its output."""


def find_mirror() -> Path | None:
    """A folder that holds the AWS provider, or none: then Terraform asks the registry."""
    places = [os.environ.get("TF_PLUGIN_MIRROR"), *MIRROR_PLACES]
    for place in filter(None, places):
        if (folder := Path(place).expanduser()) and (folder / PROVIDER).is_dir():
            return folder
    for pattern in ("/opt/*", "/srv/*", "/usr/lib/*", "/var/lib/*"):
        for folder in sorted(Path("/").glob(pattern[1:])):
            if (folder / PROVIDER).is_dir():
                return folder
    return None


class Terraform:
    """Terraform in one folder, with a CLI configuration of its own.

    After `init` all commands use one running provider, as Terraform's own documentation has it for debugging
    ("Debugger-Based Debugging"). Else more than half of a command's processor time is the start of a provider in each of its
    phases. A configuration with several `provider "aws"` blocks cannot have that, because the provider keeps one
    configuration in a process.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        config = folder / "terraform.rc"
        config.write_text("disable_checkpoint = true\n")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TF_", "AWS_"))},
            "TF_CLI_CONFIG_FILE": str(config),
            "TF_IN_AUTOMATION": "1",
            # A quarter of its processor time went into collecting the garbage of the provider's schemas.
            "GOGC": "400",
            **(environment or {}),
        }

    def run(self, *arguments: str, accept: Iterable[int] = (0,)) -> subprocess.CompletedProcess:
        command = ["terraform", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode not in tuple(accept):
            raise TerraformFailed(f"terraform {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
        return done

    def init(self, one_provider: bool = True) -> None:
        """`one_provider` is false for a configuration with several `provider "aws"` blocks."""
        mirror = find_mirror()
        self.run("init", "-input=false", "-no-color", *([f"-plugin-dir={mirror}"] if mirror else []))
        if one_provider and "TF_REATTACH_PROVIDERS" not in self.environment:
            provider = start_provider(self.folder, self.environment)
            self.environment["TF_REATTACH_PROVIDERS"] = provider.address
            weakref.finalize(self, provider.end)

    def apply(self, *options: str, **variables: object) -> None:
        self.run("apply", "-input=false", "-no-color", "-auto-approve", *options, *as_arguments(variables))

    def apply_in_steps(self, say: Callable[[str], None], **variables: object) -> None:
        """Applies, and says how far it is: a slow machine needs minutes."""
        command = ["terraform", "apply", "-input=false", "-no-color", "-auto-approve", *as_arguments(variables)]
        printed, created = [], 0
        with subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                printed.append(line)
                created += "Creation complete" in line
                if line.startswith("Plan: "):
                    say(line.strip())
                elif "Creation complete" in line and created % STEP == 0:
                    say(f"{created} resources created")
        if process.returncode != 0:
            raise TerraformFailed(f"terraform apply failed:\n{''.join(printed)}")

    def plan(self, *options: str, **variables: object) -> str:
        """Returns what a plan prints."""
        return self.run("plan", "-input=false", "-no-color", *options, *as_arguments(variables)).stdout

    def plan_is_empty(self, *options: str, **variables: object) -> bool:
        """Checks whether a plan would change nothing. Exit code 2 means that it would change something."""
        given = ("-input=false", "-no-color", "-detailed-exitcode", *options, *as_arguments(variables))
        return self.run("plan", *given, accept=(0, 2)).returncode == 0

    def destroy(self, *options: str, **variables: object) -> str:
        """Destroys everything and returns the output of Terraform."""
        return self.run("destroy", "-input=false", "-no-color", "-auto-approve", *options, *as_arguments(variables)).stdout

    @property
    def state(self) -> Path:
        return self.folder / "terraform.tfstate"


class RunningProvider:
    """The AWS provider as a process that several commands of Terraform use. It reads its own environment, not theirs."""

    def __init__(self, program: Path, folder: Path, environment: Mapping[str, str]) -> None:
        # It logs everything that it does.
        self._process = subprocess.Popen(
            never_outlives(os.getpid(), [str(program), "-debug"]),
            # It reads files whose paths are relative to Terraform's folder.
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # A provider that neither ends nor prints its address is ended, which ends its output.
        limit = threading.Timer(LONGEST_START, self._process.kill)
        limit.start()
        lines = iter(self._process.stdout or ())
        self.address = next((line.split("'")[1] for line in lines if "TF_REATTACH_PROVIDERS='" in line), "")
        limit.cancel()
        if not self.address:
            self.end()
            raise TerraformFailed(
                f"{program.name} gave no address within {LONGEST_START:.0f} s; its exit code is {self._process.returncode}"
            )

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def start_provider(folder: Path, environment: Mapping[str, str]) -> RunningProvider:
    """Starts the provider that `terraform init` has put into the folder."""
    # In a plugin mirror it is behind a link.
    found = (Path(place) / name for place, _, names in os.walk(folder / ".terraform", followlinks=True) for name in names)
    program = next(file for file in found if re.fullmatch(r"terraform-provider-aws(_v.+)?", file.name))
    return RunningProvider(program.absolute(), folder, environment)


def as_arguments(variables: Mapping[str, object]) -> list[str]:
    return [f"-var={name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in variables.items()]


def copy_of_project(into: Path) -> Path:
    """The module and the state machine in another folder, so that a run leaves nothing in the clone; returns the module."""
    ignore = shutil.ignore_patterns(".terraform", "*.tfstate*", ".terraform.lock.hcl")
    shutil.copytree(MODULE, into / "terraform", ignore=ignore)
    shutil.copytree(ROOT / "state-machine", into / "state-machine")
    return into / "terraform"


def test() -> int:
    """`terraform test` on the module, both halves of its files at the same time. (The examples are applied: tests/deployment.)"""
    folder = temporary_folder("terraform")
    try:
        # Each half has its own copy, because `terraform test` keeps its state next to the module.
        halves = [copy_of_project(folder / f"half-{number}") for number in range(2)]
        with ThreadPoolExecutor(2) as pool:
            # A half that a signal ends has a negative exit code.
            return int(any(list(pool.map(_test_half, halves, range(2)))))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _test_half(module: Path, half: int) -> int:
    files = sorted((module / "tests").glob("*.tftest.hcl"), key=lambda file: file.read_text().count("\nrun "))
    filters = [f"-filter=tests/{file.name}" for file in files[half::2]]
    terraform = Terraform(module)
    terraform.init()
    done = subprocess.run(
        ["terraform", "test", "-no-color", *filters],
        cwd=module,
        env=terraform.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout, flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit({"test": test}[sys.argv[1]]())
