"""The reference in the module's README is what terraform-docs makes of the Terraform sources."""

import re
import shutil
import subprocess
from pathlib import Path

from go_programs import TERRAFORM_DOCS
from prepare import ROOT

MODULE = ROOT / "terraform"


def check(module: Path) -> subprocess.CompletedProcess[str]:
    command = [str(TERRAFORM_DOCS.find()), "--output-check", str(module)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_reference_is_what_the_sources_say():
    done = check(MODULE)
    assert done.returncode == 0, f"{done.stderr}stale: run `make generate`"


def test_a_stale_reference_is_noticed(tmp_path):
    for file in [*MODULE.glob("*.tf"), MODULE / "README.md", MODULE / ".terraform-docs.yml"]:
        shutil.copy(file, tmp_path)
    assert check(tmp_path).returncode == 0
    variables = tmp_path / "variables.tf"
    variables.write_text(variables.read_text().replace('"arm64"', '"x86_64"'))
    assert check(tmp_path).returncode == 1


def test_every_variable_and_output_of_the_module_has_its_row():
    reference = (MODULE / "README.md").read_text().partition("<!-- BEGIN_TF_DOCS -->")[2]
    rows = [name.replace("\\_", "_") for name in re.findall(r"^\| ([\w\\]+) \|", reference, re.MULTILINE)]
    for file in ("variables", "outputs"):
        for name in re.findall(r'^(?:variable|output) "(\w+)"', (MODULE / f"{file}.tf").read_text(), re.MULTILINE):
            assert name in rows, name
