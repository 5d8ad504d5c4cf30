"""Finds the tests that changes since a commit can affect, for use while working: `make test ARGS="--since main"`.

A test file is affected if it, or a module that it imports, however indirectly, has changed or names a changed file. The deployed
world depends on everything that is deployed.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prepare import LAMBDAS, ROOT, TESTS

#: Folders of pytest files.
FOLDERS = ["attacks", "contract", "deployment", "docs", "scenarios", "second_interpreter", "world_tests"]
#: Read by every crate, every test, or before them.
EVERYTHING = re.compile(
    r"Cargo\.(toml|lock)|\.cargo/config.*|clippy\.toml|rustfmt\.toml|tests/(requirements\.txt|pytest\.ini|prepare\.py)"
    r"|tests/(iam|world/kubernetes/kube-build)/.*"
)
#: Only the crate's own tests read these.
RUST_TESTS = re.compile(r"crates/[^/]+/([^/]+/)?(tests/.*|src/(.*/)?(tests|laws|properties|fixtures)(/.*)?(\.rs)?)")
#: Modules with what they use besides Python: crates, and folders.
BESIDES = {
    "tests/world/deployment.py": {*LAMBDAS, "terraform", "state-machine"},
    "tests/world/process/terraform.py": {"terraform", "state-machine"},
    "tests/cli_page.py": {"recycle-eks"},
    "tests/world/cli.py": {"recycle-eks"},
    "tests/contract/scripts.py": {"state-machine"},
    "tests/picture.py": {"state-machine"},
    "tests/provider_schema.py": {"terraform"},
    "tests/contract/test_definitions.py": {"state-machine", "terraform"},
    "tests/sbom.py": {"crates"},
    "tests/front_page.py": {"terraform", "terraform/tests/permissions.tftest.hcl"},
    "tests/contract/test_contract.py": {"recycle", "state-machine", "terraform"},
    "tests/contract/test_dependencies.py": {"crates"},
    "tests/contract/test_trim_sdk.py": {"crates"},
    "tests/contract/test_prose.py": {"prose"},
    "tests/docs/test_pages.py": {"crates", "terraform", "pages"},
}
#: The module of each fixture, by the name of the parameter.
FIXTURES = {
    **dict.fromkeys(("world", "deployed_world", "empty_world", "workers", "node", "job"), "tests/world/world.py"),
    "cli": "tests/world/cli.py",
}
#: The module that defines these fixtures. A test uses only the fixtures that it requests, not all imports of this module.
PLUGIN = "tests/world/fixtures.py"


@dataclass(frozen=True)
class Affected:
    """The tests to run."""

    changed: list[str]
    rust: bool
    terraform: bool
    python: list[str]
    """pytest files, below `tests/`."""

    def __str__(self) -> str:
        steps = [name for name, is_affected in (("Rust", self.rust), ("Terraform", self.terraform)) if is_affected]
        files = f"{len(self.python)} of {len(python_tests())} files of Python tests"
        return f"{len(self.changed)} changed files affect {', '.join([*steps, files])}"


def since(reference: str) -> Affected:
    """Returns the affected tests for all differences from a commit, committed or not."""
    return affected_by([*_git("diff", "--name-only", reference, "--"), *_git("ls-files", "--others", "--exclude-standard")])


def affected_by(changed: list[str]) -> Affected:
    """`changed`: paths from the root of the repository."""
    tests = python_tests()
    if any(EVERYTHING.fullmatch(path) for path in changed):
        return Affected(changed, rust=True, terraform=True, python=tests)
    touched = {name for path in changed for name in _touched_by(path)}
    python = [test for test in tests if touched & _uses(f"tests/{test}")]
    return Affected(
        changed,
        rust=any(path.startswith("crates/") or path == "deny.toml" or path in _read_by_rust() for path in changed),
        terraform=any(path.startswith(("terraform/", "state-machine/")) for path in changed),
        python=python,
    )


def python_tests() -> list[str]:
    """All pytest files, below `tests/`."""
    return sorted(str(file.relative_to(TESTS)) for folder in FOLDERS for file in (TESTS / folder).glob("test_*.py"))


def _touched_by(path: str) -> Iterator[str]:
    """The file, its name, and what the tests know it as part of."""
    yield path
    yield Path(path).name
    top, _, rest = path.partition("/")
    if top == "crates" and not RUST_TESTS.fullmatch(path):
        yield from ("crates", *_dependents(_package_of(path)))
    elif top == "terraform" and not rest.startswith("tests/"):
        yield top
    elif top == "state-machine":
        yield top
    elif path.startswith("tests/prose/"):
        yield "prose"
    elif path.endswith(".md") or path == "Makefile":
        yield "pages"


@cache
def _read_by_rust() -> set[str]:
    """Files outside of the crates that their tests are compiled with."""
    return {
        os.path.normpath(file.relative_to(ROOT).parent / included)
        for file in ROOT.glob("crates/**/*.rs")
        for included in re.findall(r'include_str!\("([^"]+)"', file.read_text())
    }


@cache
def _uses(path: str) -> frozenset[str]:
    """Everything that a Python file depends on: files, their names where it mentions them, crates and folders."""
    found: set[str] = set()
    todo = [path]
    while todo:
        file = todo.pop()
        if file not in found:
            found |= {file, *BESIDES.get(file, ())}
            todo += _needs(file)
            found |= _mentions(file)
    return frozenset(found)


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


@cache
def _needs(file: str) -> list[str]:
    """The files that a Python file imports, its fixtures among them."""
    if file == PLUGIN:
        return []
    tree = _tree(file)
    modules: list[str] = []
    parameters: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(Path(file).relative_to("tests").parent.parts) if node.level else ""
            module = ".".join(filter(None, [package, node.module]))
            modules += [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.List):
            words = [getattr(each, "value", None) for each in node.elts]
            modules += [word for option, word in itertools.pairwise(words) if option == "-m" and isinstance(word, str)]
        elif isinstance(node, ast.FunctionDef):
            parameters |= {argument.arg for argument in node.args.args}
    files = [f"tests/{module.replace('.', '/')}{ending}" for module in sorted(set(modules)) for ending in (".py", "/__main__.py")]
    files.append(str(Path(file).with_name("conftest.py")))
    if Path(file).name.startswith(("test_", "conftest")):
        files += [PLUGIN, *(where for name, where in FIXTURES.items() if name in parameters)]
    return [each for each in files if (ROOT / each).is_file()]


@cache
def _mentions(file: str) -> set[str]:
    """Returns names of files in its texts, such as `guide.md` or `contract.json`. Names in its docstrings do not count."""
    nodes = list(ast.walk(_tree(file)))
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in described]
    return {name for text in texts if isinstance(text, str) for name in re.findall(r"[\w-]+\.[a-z]{2,5}\b", text)}


@cache
def _package_of(path: str) -> str:
    """The name of the package that a file below `crates/` belongs to; empty if that is gone."""
    manifests = [folder / "Cargo.toml" for folder in (ROOT / path).parents]
    manifest = next(each for each in manifests if each.is_file())
    return tomllib.loads(manifest.read_text()).get("package", {}).get("name", "")


@cache
def _dependents(crate: str) -> set[str]:
    """The crate, and all of the workspace that are built from it."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["packages"]
    found: set[str] = set()
    grown = {crate}
    while grown:
        found |= grown
        grown = {
            package["name"]
            for package in packages
            for needed in package["dependencies"]
            if needed["kind"] != "dev" and needed["name"] in grown
        } - found
    return found


def _git(*arguments: str) -> Iterable[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"git {' '.join(arguments)}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    return done.stdout.splitlines()
