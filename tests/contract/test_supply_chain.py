"""Python and npm packages have pinned hashes, crates have accepted licences, and the packages of recycle-eks have an SBOM."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

import pins
import prepare
import run
import sbom
from package import TARGETS
from prepare import LAMBDAS, ROOT, TESTS, version

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: A line of a file of pins. Only the name, the version and its hashes: no address, no option, no marker.
PIN = re.compile(r"([\w.-]+)==[\w.]+((?: --hash=sha256:[0-9a-f]{64})+)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(file: Path) -> list[str]:
    """Without comments; with the lines that a backslash continues."""
    text = re.sub(r" \\\n\s+", " ", file.read_text())
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def spelled(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package.partition("[")[0]).lower()


@pytest.mark.parametrize("source", pins.SOURCES, ids=name)
def test_every_python_package_is_pinned_with_hashes(source):
    found = [PIN.fullmatch(line) for line in lines(source.with_suffix(".txt"))]
    assert all(found), "run: make pins"
    wanted = {spelled(line.partition("==")[0]) for line in lines(source) if not line.startswith("-c ")}
    assert wanted <= {spelled(pin[1]) for pin in found if pin}, "run: make pins"


def test_every_file_of_pins_is_written_from_a_source():
    written = {source.with_suffix(".txt") for source in pins.SOURCES}
    installed = {file for file in TESTS.rglob("*.txt") if re.search(r"^[\w.\[\]-]+==", file.read_text(), re.MULTILINE)}
    assert installed == written


def test_pip_installs_by_hash_alone():
    """Only `install_pins` calls pip to install."""
    sources = {name(file): file.read_text() for file in TESTS.rglob("*.py") if file != Path(__file__)}
    places = [place for place, text in sources.items() if re.search(r'pip.*, "(install|download|wheel)"', text)]
    assert places == ["tests/prepare.py"]


def test_a_package_with_another_hash_or_none_is_not_installed(tmp_path, monkeypatch, capsys):
    file = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("demo.py", "")
        wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo-1.0.dist-info/RECORD", "")
    # Pip takes it from the folder instead of a registry.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    requirements, installed = tmp_path / "requirements.txt", tmp_path / "installed"

    def install(pin: str) -> None:
        requirements.write_text(pin)
        prepare.install_pins([sys.executable, "-m", "pip"], requirements, "--target", str(installed))

    for pin, complaint in [
        ("demo==1.0", "Hashes are required"),
        (f"demo==1.0 --hash=sha256:{'0' * 64}", "DO NOT MATCH THE HASHES"),
    ]:
        with pytest.raises(SystemExit):
            install(pin)
        assert complaint in capsys.readouterr().err
        assert not installed.exists()
    install(f"demo==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}")
    assert (installed / "demo.py").exists()


@pytest.mark.parametrize("lock", sorted(TESTS.glob("*/package-lock.json")), ids=name)
def test_every_package_of_npm_has_a_hash_and_runs_nothing_when_installed(lock):
    packages = {path: package for path, package in json.loads(lock.read_text())["packages"].items() if path}
    assert packages
    assert [path for path, package in packages.items() if not package.get("integrity", "").startswith("sha512-")] == []
    assert [path for path, package in packages.items() if package.get("hasInstallScript")] == []


def test_npm_installs_the_lockfile_alone():
    """And `provider_schema.py` unpacks two files of each folder of a package whose hash it compares."""
    sources = {name(file): file.read_text() for file in TESTS.rglob("*.py") if file != Path(__file__)}
    commands = [command for text in sources.values() for command in re.findall(r'\["npm", "[a-z].*?\]', text)]
    assert sorted(commands) == [
        '["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]',
        '["npm", "pack", "--ignore-scripts", "--silent", f"{PACKAGE}@{VERSION}"]',
    ]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_workflows_pin_actions_by_commit_and_read_only(workflow):
    text = workflow.read_text()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    for action in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action)


def test_a_workflow_checks_advisories_each_day():
    (workflow,) = (yaml.safe_load(file.read_text()) for file in WORKFLOWS if file.name == "supply-chain.yml")
    commands = [step.get("run") for step in workflow["jobs"]["cargo-deny"]["steps"]]
    assert "cargo deny --locked check" in commands
    # YAML reads the key `on` as true.
    assert workflow[True]["schedule"]
    assert "Cargo.lock" in workflow[True]["pull_request"]["paths"]


DENY = (ROOT / "deny.toml").read_text()


def test_every_rule_and_exception_for_crates_has_a_reason():
    rules = tomllib.loads(DENY)
    exceptions = [*rules["bans"]["skip"], *rules["bans"]["deny"], *rules["advisories"]["ignore"]]
    assert [each for each in exceptions if not each.get("reason")] == []
    licences = re.search(r"^allow = \[\n(.*?)^\]", DENY, re.MULTILINE | re.DOTALL)
    assert licences and all(re.fullmatch(r' +"[\w.-]+", # \w.+', line) for line in licences[1].splitlines())
    licences = re.search(r"^exceptions = \[\n(.*?)^\]", DENY, re.MULTILINE | re.DOTALL)
    assert licences and re.fullmatch(r"( +# .+\n +\{ .+ \},\n)+", licences[1])


def test_cargo_deny_refuses_what_the_rules_do_not_allow_and_exceptions_that_are_not_needed(tmp_path):
    config = DENY
    for rule, instead in [
        ('    "ISC",', "    #"),
        ("allow = [\n", 'allow = [\n    "GPL-3.0",\n'),
        ("exceptions = [\n", 'exceptions = [\n    { crate = "serde", allow = ["Zlib"] },\n'),
        ("skip = [\n", 'skip = [\n    { crate = "serde", reason = "" },\n    { crate = "left-pad", reason = "" },\n'),
        ('    { crate = "base64@0.22"', "    # "),
        ("deny = [\n", 'deny = [\n    { crate = "tokio", reason = "" },\n'),
        ("allow-git = []", "allow-git = []\nallow-registry = []"),
    ]:
        assert rule in config
        config = config.replace(rule, instead, 1)
    file = tmp_path / "deny.toml"
    file.write_text(config)
    command = [run.DENY, "--manifest-path", str(ROOT / "Cargo.toml"), "--config", str(file), *run.CHECK_CRATES[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    errors = set(re.findall(r"^error\[(.+?)\]", done.stderr, re.MULTILINE))
    assert errors == {
        "rejected",
        "license-not-encountered",
        "license-exception-not-encountered",
        "unnecessary-skip",
        "unmatched-skip",
        "duplicate",
        "banned",
        "source-not-allowed",
    }


@pytest.fixture(scope="module", params=TARGETS)
def targets(request) -> tuple[str, str]:
    return TARGETS[request.param]


@pytest.fixture(scope="module")
def written(targets) -> str:
    return sbom.render(*targets)


@pytest.fixture
def bom(written) -> dict[str, Any]:
    return json.loads(written)


def test_the_sbom_is_valid_and_the_same_each_time(written, targets):
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None
    assert sbom.render(*targets) == written
    assert str(ROOT) not in written
    assert not re.search(r"\d{4}-\d\d-\d\dT", written), "a time"


def test_the_sbom_has_the_crates_that_cargo_links_into_the_programs(bom, targets):
    """Cargo's own graph of normal dependencies, from the ten programs on."""
    functions, command_line = targets
    expected = linked(functions, LAMBDAS) | linked(command_line, [sbom.CLI])
    found = {component["bom-ref"] for component in bom["components"] if component["scope"] == "required"}
    assert {each for each in found if not each.startswith("std@")} == expected


def linked(target: str, programs: list[str]) -> set[str]:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = {packages[each]["name"]: each for each in metadata["workspace_members"]}
    todo = [members[program] for program in programs]
    found: set[str] = set()
    while todo:
        package = todo.pop()
        is_macro = any("proc-macro" in each["kind"] for each in packages[package]["targets"])
        if package not in found and not is_macro:
            found.add(package)
            todo += [
                needed["pkg"] for needed in nodes[package]["deps"] if any(kind["kind"] is None for kind in needed["dep_kinds"])
            ]
    return {f"{packages[each]['name']}@{packages[each]['version']}" for each in found}


def test_each_component_of_the_sbom_says_where_it_is_from_and_under_which_licence(bom):
    licensing = get_spdx_licensing()
    own = {f"{each}@{version()}" for each in own_crates()}
    for component in bom["components"]:
        (licence,) = component["licenses"]
        assert licensing.validate(licence["expression"]).errors == [], component
        is_from_here = component["bom-ref"] in own or component["name"] == "std"
        assert ("purl" in component, "hashes" in component) == (not is_from_here, not is_from_here), component
    references = {component["bom-ref"] for component in bom["components"]} | {"project"}
    assert len(references) == len(bom["components"]) + 1
    assert {each for entry in bom["dependencies"] for each in (entry["ref"], *entry["dependsOn"])} <= references


def own_crates() -> set[str]:
    """The crates of this repository."""
    return {tomllib.loads(manifest.read_text())["package"]["name"] for manifest in ROOT.glob("crates/**/Cargo.toml")}
