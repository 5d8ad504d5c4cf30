"""docs/many-clusters.md: its configuration is valid."""

import re
import subprocess

from docs.pages import blocks
from prepare import ROOT
from world.process.folders import temporary_folder
from world.process.terraform import Terraform, copy_of_project

PAGE = ROOT / "docs" / "many-clusters.md"
SOURCE = re.compile(r'source += "[^"]+"')


def test_the_configuration_of_the_page_is_valid():
    block, clusters = (block.text for block in blocks(PAGE) if block.language == "hcl")
    project = copy_of_project(temporary_folder("terraform"))
    folder = project / "examples" / "many-clusters"
    folder.mkdir()
    (folder / "main.tf").write_text(SOURCE.sub('source = "../../"', block))
    terraform = Terraform(folder)
    terraform.init()
    terraform.run("validate", "-no-color")
    (folder / "clusters.auto.tfvars").write_text(clusters)
    # `validate` reads no values, and a plan would need an account.
    console = ["terraform", "console", "-no-color"]
    read = subprocess.run(console, cwd=folder, env=terraform.environment, input="var.clusters", capture_output=True, text=True)
    assert read.returncode == 0 and '"gpu" = "blue-gpu"' in read.stdout, read.stdout + read.stderr
