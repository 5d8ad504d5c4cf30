"""GitHub's workflows and the shell scripts: linted, and what they run is a target of the Makefile."""

import re
import subprocess

import pytest
import yaml

import release
from go_programs import ACTIONLINT
from prepare import ROOT, install_shellcheck

FOLDER = ROOT / ".github" / "workflows"
#: Steps that install what a runner lacks, or that only GitHub can do.
NO_TARGETS = ("Install", "Publish", "Check advisories")


def test_actionlint_and_shellcheck_have_no_complaint_about_the_workflows():
    command = [str(ACTIONLINT.find()), "-no-color", f"-shellcheck={install_shellcheck()}", *map(str, FOLDER.glob("*.yml"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_actionlint_sees_a_mistake(tmp_path):
    workflow = tmp_path / "release.yml"
    workflow.write_text((FOLDER / "release.yml").read_text().replace("needs: [build, macos]", "needs: [build, windows]"))
    done = subprocess.run([str(ACTIONLINT.find()), "-shellcheck=", str(workflow)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "windows" in done.stdout


@pytest.mark.parametrize("script", ["install.sh", ".ci/run"])
def test_shellcheck_has_no_complaint_about_a_script(script):
    done = subprocess.run([install_shellcheck(), str(ROOT / script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def steps(workflow: str) -> list[dict[str, str]]:
    jobs = yaml.safe_load((FOLDER / workflow).read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"] if "run" in step]


def test_the_steps_of_a_workflow_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [
        step["run"]
        for workflow in FOLDER.glob("*.yml")
        for step in steps(workflow.name)
        if not step["name"].startswith(NO_TARGETS)
    ]
    assert ".ci/run" in commands and re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    made = [re.match(r"make ([a-z]+)", command) for command in commands if command != ".ci/run"]
    assert made and all(each and each[1] in targets for each in made)


def test_only_the_job_that_publishes_may_write():
    jobs = yaml.safe_load((FOLDER / "release.yml").read_text())["jobs"]
    writing = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert writing == {"publish": {"contents": "write", "id-token": "write", "attestations": "write"}}


def test_every_option_of_a_release_that_a_workflow_uses_exists():
    text = (FOLDER / "release.yml").read_text()
    options = set(re.findall(r"ARGS=\"?(--[a-z]+)", text))
    assert options == {"--check", "--repository", "--macos", "--sums"}
    assert all(option in (release.__doc__ or "") for option in options)
