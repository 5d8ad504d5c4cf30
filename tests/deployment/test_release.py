"""A release: its checks, its files, and its module, which Terraform takes from an address and applies several times."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import boto3
import pytest

import package
import release
import sbom
from prepare import LAMBDAS, ROOT, host_architecture, version
from world.aws.account import Aws
from world.aws.identity import REGION, ROOT_ACCESS_KEY
from world.deployment import ZIPS, environment
from world.process.serving import Server
from world.process.terraform import Terraform, find_mirror

OTHER_REGION = "eu-central-1"

#: Two clusters in one region, and one of the same name, with an installation of the same name, in another region.
THREE_CLUSTERS = """
provider "aws" {
  region = "eu-west-1"
}

provider "aws" {
  alias  = "frankfurt"
  region = "eu-central-1"
}

module "ireland" {
  source   = "%(source)s"
  for_each = toset(["blue", "green"])

  name         = "recycle-${each.key}"
  cluster_name = each.key
  artifacts    = { directory = "%(packages)s" }
  architecture = "%(architecture)s"
}

module "frankfurt" {
  source    = "%(source)s"
  providers = { aws = aws.frankfurt }

  name         = "recycle-blue"
  cluster_name = "blue"
  artifacts    = { directory = "%(packages)s" }
  architecture = "%(architecture)s"
}
"""


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder and its address."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, directory=str(folder), **options)

        def log_message(self, *_: object) -> None:
            """Writes no log."""

    server = Server(Handler)
    server.start("release")
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.stop()


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_modules_archive_serves_two_clusters_and_two_regions_from_one_configuration(empty_world, server, tmp_path):
    folder, address = server
    release.write_archive(folder / release.MODULE, release.module_files())
    clients = {region: regional(empty_world.aws, region) for region in (REGION, OTHER_REGION)}
    for region, cluster in [(REGION, "blue"), (REGION, "green"), (OTHER_REGION, "blue")]:
        clients[region]("eks").create_cluster(
            name=cluster,
            roleArn="arn:aws:iam::123456789012:role/r",
            resourcesVpcConfig={},
            accessConfig={"authenticationMode": "API"},
        )
    values = {"source": f"{address}/{release.MODULE}", "packages": ZIPS, "architecture": host_architecture()}
    (tmp_path / "main.tf").write_text(THREE_CLUSTERS % values)
    terraform = Terraform(tmp_path, environment(empty_world.aws.endpoint))
    terraform.init(one_provider=False)

    terraform.apply()

    functions = {
        region: {function["FunctionName"] for function in client("lambda").list_functions()["Functions"]}
        for region, client in clients.items()
    }
    assert functions == {
        REGION: {f"recycle-{cluster}-{name}" for cluster in ("blue", "green") for name in LAMBDAS},
        OTHER_REGION: {f"recycle-blue-{name}" for name in LAMBDAS},
    }
    roles = {role["RoleName"] for role in empty_world.aws.client("iam").list_roles()["Roles"]}
    assert {f"recycle-blue-claim-node-{region}" for region in clients} < roles
    assert len(roles) == 3 * (len(LAMBDAS) + len(("recycle-node", "rotate-nodes", "sweep", "events")))


def regional(account: Aws, region: str):
    """Returns a function that makes clients of this region."""
    given = {"endpoint_url": account.endpoint, "aws_access_key_id": ROOT_ACCESS_KEY, "aws_secret_access_key": "world"}
    return lambda service: boto3.client(service, region_name=region, **given)


def test_the_modules_archive_has_the_definitions_and_no_tests(tmp_path):
    for name in ("one", "two"):
        release.write_archive(tmp_path / name, release.module_files())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as archive:
        names = set(archive.getnames())
    definitions = {f"state-machine/{file.name}" for file in (ROOT / "state-machine").iterdir()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT / "terraform", capture_output=True, text=True, check=True)
    module = {name for name in tracked.stdout.split() if not name.startswith(("tests/", "."))}
    assert names == definitions | module | {"LICENSE", "CHANGELOG.md"}


def test_each_link_of_a_page_in_the_modules_archive_leads_to_a_file_of_the_archive_or_of_the_repository():
    files = release.module_files("owner/name")
    here = f"https://github.com/owner/name/(?:blob|tree)/v{re.escape(version())}/"
    pages = {name: content.decode() for name, content in files.items() if name.endswith(".md")}
    assert f"]({here.replace('(?:blob|tree)', 'blob').replace(chr(92), '')}docs/install.md)" in pages["README.md"]
    assert "](CHANGELOG.md)" in pages["README.md"] and "](examples/minimal)" in pages["README.md"]
    folders = {str(parent) for name in files for parent in Path(name).parents}
    for name, text in pages.items():
        for target, _ in release.LINK.findall(text):
            assert os.path.normpath(Path(name).parent / target) in {*files, *folders}, (name, target)
        for target in re.findall(rf"\]\({here}([^)#]+)", text):
            assert (ROOT / target).exists(), (name, target)
    assert f"{release.ANY_REPOSITORY}/blob" in release.module_files()["README.md"].decode()


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository that can be released as 1.2.3."""
    files = {
        "Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n',
        "terraform/version.txt": "1.2.3\n",
        "CHANGELOG.md": "# Changelog\n\n## [1.2.3] - 2027-01-31\n\n### Added\n\n- A thing.\n\n## [1.2.2] - 2027-01-01\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in ("init --quiet", "add --all", "commit --quiet --message one", "tag v1.2.3"):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def test_a_repository_is_released_if_every_file_has_the_version_and_the_changelog_its_date(repository):
    assert release.find_problems("1.2.3", repository) == []
    assert release.notes("1.2.3", repository) == "### Added\n\n- A thing.\n"


def test_each_reason_against_a_release_is_named(repository):
    assert release.find_problems("v1.2.3", repository) == ["v1.2.3 is no version such as 1.2.3"]
    changelog = "CHANGELOG.md has no heading `## [1.3.0] - YYYY-MM-DD` with the date of the release"
    expected = [
        "Cargo.toml has the version 1.2.3, not 1.3.0",
        "terraform/version.txt has the version 1.2.3, not 1.3.0",
        changelog,
    ]
    assert release.find_problems("1.3.0", repository) == expected
    (repository / "CHANGELOG.md").write_text("## [1.2.3] - unreleased\n")
    (repository / "new.txt").write_text("")
    undated, changed = release.find_problems("1.2.3", repository)
    assert undated == changelog.replace("1.3.0", "1.2.3")
    assert changed == "the working tree has changes that are not committed: CHANGELOG.md, new.txt"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *who, "commit", "--quiet", "--allow-empty", "--message", "two"], cwd=repository, check=True)
    assert "the tag v1.2.3 is another commit" in release.find_problems("1.2.3", repository)[-1]


# install.sh


@pytest.fixture
def served(server, tmp_path) -> tuple[Path, str]:
    """A release of small files, as the folder of its files and the address of all releases."""
    folder, address = server
    dist = tmp_path / "dist"
    for architecture in package.TARGETS:
        (dist / architecture).mkdir(parents=True)
        for name in [*(f"{name}.zip" for name in LAMBDAS), sbom.NAME]:
            (dist / architecture / name).write_text(f"{name} for {architecture}")
        (dist / architecture / "version.txt").write_text(f"{version()}\n")
        (dist / architecture / package.CLI).write_text("#!/bin/sh\necho it runs\n")
    release.assemble(dist, folder / "latest" / "download", "owner/name")
    shutil.copytree(folder / "latest" / "download", folder / "download" / f"v{version()}")
    return folder / "latest" / "download", address


def install(folder: Path, *arguments: str, path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs install.sh of the release in a folder."""
    known = {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), **environment}
    script = ["sh", str(ROOT / "install.sh")]
    return subprocess.run([*script, *arguments], cwd=folder, env=known, capture_output=True, text=True, check=False)


def test_a_release_has_all_its_files_with_their_checksums(served):
    files, _ = served
    check = subprocess.run(["sha256sum", "--check", release.SUMS], cwd=files, capture_output=True, text=True, check=False)
    listed = {line.partition(":")[0] for line in check.stdout.splitlines()}
    assert check.returncode == 0
    assert listed | {release.SUMS} == {file.name for file in files.iterdir()}
    page = (ROOT / "docs" / "packages.md").read_text()
    assert [name for name in listed if f"`{name.replace(version(), '0.1.0')}`" not in page] == []
    assert "repository=${RECYCLE_EKS_REPOSITORY:-owner/name}\n" in (files / "install.sh").read_text()


@pytest.mark.parametrize("wanted", [[], ["--version", version()], ["--version", f"v{version()}"]])
def test_the_script_leaves_a_release_as_the_module_takes_it(served, tmp_path, wanted):
    _, address = served
    done = install(tmp_path, "--architecture", "both", *wanted, RECYCLE_EKS_RELEASES=address)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "recycle-eks"
    for architecture in package.TARGETS:
        found = {file.name for file in (folder / architecture).iterdir()}
        assert found == {*(f"{name}.zip" for name in LAMBDAS), "version.txt"}
        assert (folder / architecture / "claim-node.zip").read_text() == f"claim-node.zip for {architecture}"
    assert subprocess.run([folder / "recycle-eks"], capture_output=True, text=True, check=True).stdout == "it runs\n"
    assert "the attestation is not checked, because the release is not from GitHub" in done.stdout


def test_the_script_installs_nothing_of_a_changed_file(served, tmp_path):
    files, address = served
    (files / "recycle-eks-packages-arm64.tar.gz").write_text("another one")
    done = install(tmp_path, RECYCLE_EKS_RELEASES=address)
    assert done.returncode == 1
    assert re.search(
        r"^install.sh: \S+-packages-arm64.tar.gz has the checksum \w{64}, but the release has \w{64}; nothing is installed",
        done.stderr,
    )
    assert not (tmp_path / "recycle-eks").exists()


def test_the_script_says_what_is_wrong(served, tmp_path):
    files, address = served
    here = {"RECYCLE_EKS_RELEASES": address}
    assert "--architecture is arm64, x86_64 or both, not riscv" in install(tmp_path, "--architecture", "riscv", **here).stderr
    assert "--version needs a value" in install(tmp_path, "--version", **here).stderr
    assert "unknown argument --verbose; see --help" in install(tmp_path, "--verbose", **here).stderr
    assert f"cannot fetch {address}/download/v9.9.9/SHA256SUMS" in install(tmp_path, "--version", "9.9.9", **here).stderr
    assert "set RECYCLE_EKS_REPOSITORY to owner/name" in install(tmp_path).stderr
    (files / release.SUMS).write_text("")
    assert "does not name recycle-eks-packages-arm64.tar.gz" in install(tmp_path, **here).stderr
    assert not (tmp_path / "recycle-eks").exists()


def test_the_quick_start_of_the_readme_fetches_a_release_and_is_valid_terraform(served, tmp_path):
    """Its first half, as the page has it. To apply the module's archive is what the first test of this file does."""
    _, address = served
    (block,) = re.findall(r"^```\n(curl .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    fetches, exports = block.partition("terraform output")[0], re.search(r"^export .*", block, re.MULTILINE)[0]
    script = fetches.replace("https://github.com/OWNER/NAME/releases", address).replace("terraform apply", "terraform validate")
    mirror = find_mirror()
    environment = {"RECYCLE_EKS_RELEASES": address, **({"TF_CLI_ARGS_init": f"-plugin-dir={mirror}"} if mirror else {})}
    done = subprocess.run(
        ["sh", "-ec", f"{script}\n{exports}\nrecycle-eks"],
        cwd=tmp_path,
        env={**os.environ, "TF_CLI_ARGS": "-no-color", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Success! The configuration is valid." in done.stdout
    assert done.stdout.endswith("\nit runs\n")


def programs(folder: Path, address: str, attestation_is_valid: bool) -> str:
    """A folder with programs that stand for GitHub's: `curl`, which asks the local server instead, and `gh`."""
    folder.mkdir()
    texts = {
        "curl": f"""for each; do last=$each; done
case $last in https://github.com/owner/name/releases/*) ;; *) exit 9 ;; esac
exec {shutil.which("curl")} --silent --fail --output "$8" "{address}/${{last#https://github.com/owner/name/releases/}}"
""",
        "gh": f"""echo "$@" >> {folder}/asked
[ "$1" = auth ] || exit {0 if attestation_is_valid else 1}
""",
    }
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("is_valid", [True, False])
def test_the_script_asks_github_where_the_release_was_built(served, tmp_path, is_valid):
    _, address = served
    path = programs(tmp_path / "programs", address, is_valid)
    done = install(tmp_path, path=path, RECYCLE_EKS_REPOSITORY="owner/name")
    asked = (tmp_path / "programs" / "asked").read_text()
    assert re.search(
        r"^attestation verify \S+/SHA256SUMS --repo owner/name --signer-workflow owner/name/.github/workflows/release.yml$",
        asked,
        re.M,
    )
    assert (tmp_path / "recycle-eks").exists() == is_valid
    if is_valid:
        assert "the attestation of owner/name is valid" in done.stdout
    else:
        assert "SHA256SUMS has no valid attestation of owner/name; nothing is installed" in done.stderr
