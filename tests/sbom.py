"""Lists what is in the packages of one kind of processor, as CycloneDX: a software bill of materials (SBOM).

    dist/arm64/recycle-eks.cdx.json   dist/x86_64/recycle-eks.cdx.json

Cargo is asked with the selection of packages and targets that `package.py` builds, so features and crates are those of the build.
The same sources give the same bytes: there is no time in it, and the serial number is derived from the rest.
"""

import json
import subprocess
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prepare import LAMBDAS, ROOT, version

NAME = "recycle-eks.cdx.json"
#: The command line, which is no function.
CLI = "recycle-eks"
#: Cargo's options for the packages that are built together. With the command line among them, the functions would also contain
#: the features that it needs of shared crates.
FUNCTIONS = [option for name in LAMBDAS for option in ("--package", name)]
COMMAND_LINE = ["--package", CLI]


@dataclass
class Crate:
    """A crate, as `cargo tree` describes it."""

    name: str
    version: str
    license: str
    repository: str
    needs: set[str] = field(default_factory=set)
    """References of other crates."""

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"


def render(functions_target: str, cli_target: str) -> str:
    """Returns the document for the functions and the command line, which are built for these targets."""
    crates: dict[str, Crate] = {}
    linked: set[str] = set()
    for target, selection, programs in ((functions_target, FUNCTIONS, LAMBDAS), (cli_target, COMMAND_LINE, [CLI])):
        # Crates that are only in the first of them run while the packages are built: macros, and build scripts with their crates.
        for edges in ("normal,build", "normal,no-proc-macro"):
            found = reachable(programs, crates_of(selection, target, edges))
            if edges == "normal,build":
                for reference, crate in found.items():
                    crates.setdefault(reference, crate).needs.update(crate.needs)
            else:
                linked |= found.keys()
    return with_serial_number(document(crates, linked))


def crates_of(selection: list[str], target: str, edges: str) -> dict[str, Crate]:
    """Returns what a selection of packages is built of, by reference."""
    options = ["--target", target, "--edges", edges, "--prefix", "depth", "--format", "\t{p}\t{l}\t{r}"]
    printed = subprocess.run(
        ["cargo", "tree", "--locked", *selection, *options], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    crates: dict[str, Crate] = {}
    path: list[Crate] = []
    for line in filter(None, printed.splitlines()):
        depth, package, license_, repository = line.removesuffix(" (*)").split("\t")
        name, number = package.split()[:2]
        crate = Crate(name, number.removeprefix("v"), license_.replace("/", " OR "), repository)
        crate = crates.setdefault(crate.reference, crate)
        path[int(depth) :] = [crate]
        if len(path) > 1:
            path[-2].needs.add(crate.reference)
    return crates


def reachable(programs: Iterable[str], crates: Mapping[str, Crate]) -> dict[str, Crate]:
    """Returns the programs with all that they need. The selection also has the crates that only tests use."""
    todo = [f"{program}@{version()}" for program in programs]
    found: dict[str, Crate] = {}
    while todo:
        reference = todo.pop()
        if reference not in found:
            found[reference] = crates[reference]
            todo += crates[reference].needs
    return found


def document(crates: Mapping[str, Crate], linked: set[str]) -> dict[str, Any]:
    checksums = locked_checksums()
    project = {"type": "application", "bom-ref": "project", "name": "recycle-eks", "version": version()}
    components = [component(crates[each], each in linked, checksums.get(each)) for each in sorted(crates)]
    programs = [f"{program}@{version()}" for program in sorted([*LAMBDAS, CLI])]
    graph = {"project": programs, **{each: sorted(crates[each].needs) for each in sorted(crates)}}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": project},
        "components": [*components, standard_library()],
        "dependencies": [{"ref": each, "dependsOn": needs} for each, needs in graph.items()],
    }


def component(crate: Crate, is_linked: bool, checksum: str | None) -> dict[str, Any]:
    """`checksum` is that of the file from crates.io. A crate of this repository has none, and no package URL: on crates.io its
    name can be that of another crate."""
    found: dict[str, Any] = {
        "type": "application" if crate.name in (*LAMBDAS, CLI) else "library",
        "bom-ref": crate.reference,
        "name": crate.name,
        "version": crate.version,
        "scope": "required" if is_linked else "excluded",
        "licenses": [{"expression": crate.license}],
    }
    if checksum is not None:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        found["purl"] = f"pkg:cargo/{crate.name}@{crate.version.replace('+', '%2B')}"
    if crate.repository:
        found["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return found


def locked_checksums() -> dict[str, str]:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {f"{each['name']}@{each['version']}": each["checksum"] for each in packages if "checksum" in each}


def standard_library() -> dict[str, Any]:
    """Rust's, which is linked into each program. Its version is the compiler's."""
    printed = subprocess.run(["rustc", "-vV"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    release = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)["release"]
    return {
        "type": "library",
        "bom-ref": f"std@{release}",
        "group": "rust-lang",
        "name": "std",
        "version": release,
        "scope": "required",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }


def with_serial_number(found: dict[str, Any]) -> str:
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found)).urn
    return f"{json.dumps({**found, 'serialNumber': serial}, indent=2)}\n"
