"""Packages: the same bytes each time, sums that hold, one version for crates, packages and module.

Building them takes minutes: `make package` does. Here the same steps pack the functions that the local world runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import package
import run
import sbom
from prepare import LAMBDAS, ROOT, TESTS, cargo_target, host_architecture, pack, version
from world.deployment import ZIPS, environment
from world.process.terraform import Terraform, TerraformFailed, copy_of_project

DEBUG = cargo_target() / "debug"

FROM_S3 = """
provider "aws" {
  # The local world's endpoint is an address, in front of which no bucket's name can stand.
  s3_use_path_style = true
}

module "recycle_eks" {
  source       = "./terraform"
  cluster_name = "world"
  artifacts    = { s3 = { bucket = "releases", prefix = "recycle-eks/next" } }
  architecture = "%s"
}
"""


def test_the_same_binary_gives_the_same_bytes_whenever_and_wherever_it_was_built(tmp_path):
    again = tmp_path / "check-pods"
    shutil.copyfile(DEBUG / "check-pods", again)
    os.utime(again, (0, 0))
    again.chmod(0o600)
    for binary, folder in ((DEBUG / "check-pods", "one"), (again, "two")):
        pack({"check-pods": binary}, tmp_path / folder)
        package.pack_small({"check-pods": binary}, tmp_path / folder / "small", Path(sys.executable))
    quick, small = tmp_path / "one" / "check-pods.zip", tmp_path / "one" / "small" / "check-pods.zip"
    assert small.stat().st_size < quick.stat().st_size
    for archive in (quick, small):
        assert archive.read_bytes() == (tmp_path / "two" / archive.relative_to(tmp_path / "one")).read_bytes()
        with zipfile.ZipFile(archive) as opened:
            (bootstrap,) = opened.infolist()
            assert opened.read("bootstrap") == again.read_bytes()
        assert (bootstrap.external_attr >> 16 & 0o777, bootstrap.date_time[:3]) == (0o755, (1980, 1, 1))


def test_a_binary_that_needs_a_loader_is_distinguished_from_a_static_one(tmp_path):
    assert package.needs_a_loader(DEBUG / package.CLI)
    source, static = tmp_path / "source.c", tmp_path / "static"
    source.write_text("void _start(void) { for (;;); }")
    subprocess.run(["cc", "-static", "-nostdlib", "-o", str(static), str(source)], check=True)
    assert not package.needs_a_loader(static)


def test_sha256sum_accepts_the_sums_and_finds_a_changed_file(tmp_path):
    for architecture in package.TARGETS:
        pack({"check-pods": DEBUG / "check-pods"}, tmp_path / architecture)
        (tmp_path / architecture / sbom.NAME).write_text("{}")
    (tmp_path / "SHA256SUMS").write_text(package.checksums(tmp_path))
    check = ["sha256sum", "--check", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{architecture}/{file}: OK" for architecture in package.TARGETS for file in ("check-pods.zip", sbom.NAME, "version.txt")
    )
    (tmp_path / "arm64" / "version.txt").write_text("0.0.1\n")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_crates_packages_and_module_have_one_version():
    for file in run.VERSIONED:
        assert (ROOT / file).read_text() == f"{version()}\n", "run: make generate"
    # Terraform allows no call of `file` there.
    assert f'body = "{version()}\\n"' in (ROOT / "terraform" / "tests" / "functions.tftest.hcl").read_text()
    assert f"## [{version()}]" in (ROOT / "CHANGELOG.md").read_text()


def test_an_architecture_that_lambda_lacks_is_refused():
    done = subprocess.run([sys.executable, "package.py", "riscv"], cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "an architecture is one of arm64, x86_64, not riscv" in done.stderr


def test_the_module_deploys_from_s3_and_refuses_packages_of_another_version(account, tmp_path):
    s3, package_of = account.client("s3"), (ZIPS / host_architecture() / "taint-node.zip").read_bytes()
    s3.create_bucket(Bucket="releases", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    prefix = f"recycle-eks/next/{host_architecture()}"
    for name in LAMBDAS:
        # Terraform asks for each package, and deploys one.
        s3.put_object(Bucket="releases", Key=f"{prefix}/{name}.zip", Body=package_of if name == "taint-node" else b"")
    copy_of_project(tmp_path)
    (tmp_path / "main.tf").write_text(FROM_S3 % host_architecture())
    terraform = Terraform(tmp_path, environment(account.endpoint))
    terraform.init()

    def put_version(text: str) -> None:
        s3.put_object(Bucket="releases", Key=f"{prefix}/version.txt", Body=text.encode(), ContentType="text/plain")

    one_function = '-target=module.recycle_eks.aws_lambda_function.this["taint-node"]'
    put_version("0.0.1\n")
    with pytest.raises(TerraformFailed, match=r"have\s+version\s+0.0.1,\s+but\s+this\s+module"):
        terraform.apply(one_function)
    put_version(f"{version()}\n")
    terraform.apply(one_function)
    (function,) = account.client("lambda").list_functions()["Functions"]
    assert function["FunctionName"] == "recycle-eks-taint-node"
    assert function["CodeSize"] == len(package_of)
