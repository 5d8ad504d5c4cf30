"""The AWS CLI that stays loaded for the shells of the tests."""

import os
import subprocess
from pathlib import Path

import pytest

from docs.aws_cli import folder_with_aws, installed_python


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["ec2", "stop-instances", "--generate-cli-skeleton"], ["autoscaling", "exit-standby"], ["configure", ""]],
    ids=" ".join,
)
def test_the_aws_cli_that_stays_loaded_answers_as_the_installed_one(tmp_path, arguments):
    environment = {**os.environ, "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_DEFAULT_REGION": "eu-west-1"}

    def ends(aws: Path) -> tuple[int, str, str]:
        done = subprocess.run([aws, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert ends(folder_with_aws() / "aws") == ends(installed_python().with_name("aws"))


def test_the_aws_cli_that_stays_loaded_works_in_the_folder_and_reads_the_input_of_its_caller(tmp_path):
    files = {"AWS_CONFIG_FILE": "./config", "AWS_SHARED_CREDENTIALS_FILE": "./credentials"}
    aws, answers = folder_with_aws() / "aws", "AKIAEXAMPLE\nsecret\neu-west-1\njson\n"

    subprocess.run([aws, "configure"], cwd=tmp_path, env={**os.environ, **files}, input=answers, text=True, check=True)

    assert "region = eu-west-1" in (tmp_path / "config").read_text()
    assert "AKIAEXAMPLE" in (tmp_path / "credentials").read_text()
