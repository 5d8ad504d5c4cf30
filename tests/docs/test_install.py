"""docs/install.md, from the first command to the last: real Terraform, AWS CLI and kubectl, an account and a cluster of its own.

Three things are not as the page says. The packages are this machine's debug builds, whatever processor they are said to be for.
The cluster called `production` there is called `world` here. After `terraform init` all commands of Terraform use one running
provider.
"""

import re
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cli_page import BINARY
from docs.pages import blocks, follow_page
from docs.watched import Watched
from prepare import ROOT, host_architecture
from world.cli import Cli, command_line
from world.deployment import CLUSTER, ZIPS
from world.process.terraform import copy_of_project, find_mirror, start_provider

PAGE = ROOT / "docs" / "install.md"


@pytest.fixture
def page(tmp_path) -> Path:
    """The page, for this cluster."""
    copy = tmp_path / PAGE.name
    copy.write_text(PAGE.read_text().replace("production", CLUSTER))
    return copy


def configuration(page: Path) -> str:
    """The one file of Terraform that the page writes."""
    (block,) = [block for block in blocks(page) if block.text.startswith("# main.tf\n")]
    return block.text


def lay_out(folder: Path) -> Path:
    """The clone after `make package`; returns the packages of the page's processor."""
    copy_of_project(folder)
    shutil.copytree(ZIPS / host_architecture(), folder / "dist" / "arm64")
    (folder / "dist" / "arm64" / BINARY.name).symlink_to(BINARY)
    return folder / "dist" / "arm64"


def terraform_settings(folder: Path) -> dict[str, str]:
    """The configuration of Terraform: no check for newer versions, and the provider from a local mirror if there is one."""
    mirror = find_mirror()
    installation = f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n' if mirror else ""
    file = folder / "terraform.rc"
    file.write_text(f"disable_checkpoint = true\n{installation}")
    return {"TF_CLI_CONFIG_FILE": str(file), "GOGC": "400"}


class ShellWithProvider(Watched):
    """A shell whose provider runs from `terraform init` to `close`. Starting it in each phase of a command is slow."""

    def __init__(self, cli: Cli, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(cli, folder, environment)
        self._folder = folder
        self._running = ExitStack()

    def run(self, script: str) -> str:
        printed = super().run(script)
        if "terraform init" in script:
            provider = start_provider(self._folder, self.environment())
            self._running.callback(provider.end)
            self.set("TF_REATTACH_PROVIDERS", provider.address)
        return printed

    def close(self) -> None:
        """Ends the provider."""
        self._running.close()


def test_every_command_of_the_page_prints_what_it_says(empty_world, page, tmp_path):
    packages = lay_out(tmp_path / "recycle-eks")
    workers = empty_world.group("workers", size=3, minimum=1, maximum=6)
    node = min(workers.nodes, key=lambda node: node.name)
    job = node.job("training", labels={"app": "training"})
    web = node.deployment("web", replicas=3)
    empty_world.budget(web, min_available=2)
    node.daemon_set("log-shipper")
    empty_world.at("2h", job.finishes)
    environment = {**empty_world.environment(), **terraform_settings(tmp_path)}

    def package_another(function: str) -> None:
        with zipfile.ZipFile(packages / f"{function}.zip", "a") as package:
            package.comment = b"another one"

    actions = {
        "until": empty_world.run,
        "notification": lambda _: empty_world.events.notifications[-1].message,
        "repackage": package_another,
    }
    with command_line(empty_world) as cli, closing(ShellWithProvider(cli, tmp_path / "recycling", environment)) as shell:
        (tmp_path / "recycling" / "main.tf").write_text(configuration(page))
        follow_page(page, shell, actions)

    assert len(web.running_pods()) == 3
    assert empty_world.aws.client("lambda").list_functions()["Functions"] == []
    assert empty_world.aws.client("iam").list_roles()["Roles"] == []
    assert empty_world.eks.access_entries() == []


def test_the_fragments_name_variables_of_the_module():
    fragments = [block.text for block in blocks(PAGE) if block.language == "hcl" and not block.text.startswith("# main.tf")]
    named = {name for text in fragments for name in re.findall(r"^  (\w+) += ", text, re.MULTILINE)}
    declared = set(re.findall(r'^variable "(\w+)"', (ROOT / "terraform" / "variables.tf").read_text(), re.MULTILINE))
    assert len(fragments) >= 4
    assert named - {"source", "for_each", "providers"} <= declared
