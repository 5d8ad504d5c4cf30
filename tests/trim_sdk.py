"""Cuts the crates of the AWS SDK to the calls that this project makes.

Whole, they have 2.2 million lines, nearly all for other calls, and are most of a first build.

    .cargo/sdk/<crate>-<hash>/     the files of the crate that the calls need, unchanged but for comments
    .cargo/config.toml             makes every command of Cargo in this clone use them (`paths`)

Git ignores both. The crates come from crates.io, with the checksums of Cargo.lock. A clone without these files builds them whole.
Each build of `make` does this first, so a new call is found by the next one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / ".cargo" / "config.toml"
FOLDER = ROOT / ".cargo" / "sdk"
#: Crates that aws-config also uses, for calls that are its own. They are small.
WHOLE = {"aws-sdk-sso", "aws-sdk-ssooidc", "aws-sdk-sts"}
#: The list of all errors of a service, and the functions that wait for a state. No crate here uses them.
UNUSED = {"error_meta", "waiters"}
#: Folders with the files of single calls and types.
OF_CALLS = {"client", "operation", "protocol_serde", "types", "waiters"}
#: Files that have nothing but functions.
OF_FUNCTIONS = {"lens", "serde_util"}
#: Files that list modules.
LISTS = (
    "client.rs",
    "lib.rs",
    "operation.rs",
    "protocol_serde.rs",
    "types.rs",
    "types/builders.rs",
    "types/error.rs",
    "types/error/builders.rs",
)

#: Uses of other files in the text of a file.
OPERATION = re.compile(r"crate::operation::([a-z]\w*)")
SHAPE = re.compile(r"crate::protocol_serde::(shape_\w+)")
TYPE = re.compile(r"crate::types::((?:error::)?)(?:builders::)?([A-Z]\w*)")
FUNCTION = re.compile(r"crate::(lens|serde_util)::(\w+)")
COMMENT = re.compile(r"^\s*//[/!].*\n", re.MULTILINE)
#: A line of a file that only lists modules.
MODULE = re.compile(r"^(?:pub(?:\(crate\))? )?mod (\w+);\n", re.MULTILINE)
FUNCTIONS = re.compile(r"^pub\(crate\) fn (\w+).*?^\}\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^pub use crate::types::(?:error::)?(_\w+)::(\w+);\n", re.MULTILINE)


@dataclass
class Sdk:
    """One crate: what is needed of it, found from the used calls on."""

    source: Path
    """The folder of the whole crate."""
    needed: dict[str, str] = field(default_factory=dict)
    """Text of each needed file, by its path below `src`."""
    exports: dict[str, dict[str, str]] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """A file without its comments, or nothing if this crate has no such file."""
        file = self.source / "src" / path
        return COMMENT.sub("", file.read_text()) if file.exists() else ""

    def has(self, path: str) -> bool:
        return (self.source / "src" / path).exists()

    def operations(self) -> set[str]:
        return {file.stem for file in (self.source / "src" / "operation").glob("*.rs")}

    def trim(self, used: Iterable[str]) -> None:
        """Collects the files of these operations, and all files that they use."""
        sources = self.source / "src"
        functions = {(name, found[1]): found[0] for name in OF_FUNCTIONS for found in FUNCTIONS.finditer(self.text(f"{name}.rs"))}
        pending: list[str | tuple[str, str]] = [*(f"operation/{operation}.rs" for operation in used), *self._base()]
        done: set[str | tuple[str, str]] = set()
        while pending:
            item = pending.pop()
            if item in done:
                continue
            done.add(item)
            if isinstance(item, tuple):
                text = functions[item]
                self.needed[f"{item[0]}.rs"] = self.needed.get(f"{item[0]}.rs", "") + text
            else:
                self.needed[item] = text = self.text(item)
                if re.fullmatch(r"operation/\w+\.rs", item):
                    name = Path(item).stem
                    pending += [f"operation/{name}/{file.name}" for file in (sources / "operation" / name).glob("*.rs")]
                    pending.append(f"client/{name}.rs")
            pending += FUNCTION.findall(text)
            pending += [f"operation/{name}.rs" for name in OPERATION.findall(text)]
            pending += [f"protocol_serde/{name}.rs" for name in SHAPE.findall(text)]
            pending += self._files_of_types(text)
        self._shorten()

    def _base(self) -> Iterator[str]:
        """Lists the files that every call needs: all but those of calls and types, and those that list them."""
        sources = self.source / "src"
        operations = self.operations()
        for file in sources.rglob("*.rs"):
            folder, *rest = file.relative_to(sources).parts
            if not rest and file.name not in LISTS and file.stem not in UNUSED | OF_FUNCTIONS:
                yield file.name
            elif rest and folder == "client" and file.stem not in operations or rest and folder not in OF_CALLS:
                yield str(file.relative_to(sources))

    def _files_of_types(self, text: str) -> Iterator[str]:
        for module, name in TYPE.findall(text):
            folder = module.replace("::", "/")
            exports = self._exports(f"types/{folder}".rstrip("/") + ".rs")
            file = exports.get(name) or exports.get(name.removesuffix("Builder"))
            if file is not None:
                yield f"types/{folder}{file}.rs"

    def _exports(self, index: str) -> dict[str, str]:
        """The file of each type that an index exports."""
        if index not in self.exports:
            self.exports[index] = {found[2]: found[1] for found in EXPORT.finditer(self.text(index))}
        return self.exports[index]

    def _shorten(self) -> None:
        """Takes out of the files that list modules those that are not needed."""
        kept = {path.removesuffix(".rs") for path in self.needed}
        for path in filter(self.has, LISTS):
            text = self.text(path)
            if path == "lib.rs":
                text = "#![allow(warnings)]\n" + re.sub(r"^#!\[.*\]\n", "", text, flags=re.M)
                text = re.sub(rf"^(pub )?(use|mod) ({'|'.join(UNUSED)})\b.*;\n", "", text, flags=re.M)
                for name in filter(self.has, (f"{name}.rs" for name in OF_FUNCTIONS)):
                    self.needed.setdefault(name, "")
            else:
                folder = path.removesuffix(".rs").removesuffix("builders").rstrip("/") + "/"
                text = re.sub(r"^(pub trait|impl) Waiters .*?^\}\n", "", text, flags=re.M | re.S)

                def is_kept(found: re.Match[str], folder: str = folder) -> str:
                    is_list = f"{folder}{found[1]}.rs" in LISTS
                    return found[0] if is_list or f"{folder}{found[1]}" in kept else ""

                text = EXPORT.sub(is_kept, MODULE.sub(is_kept, text))
            self.needed[path] = text

    def write(self, folder: Path) -> None:
        """Writes the crate. All files have the time of the whole crate's manifest, so that another clone's build can be used."""
        folder.mkdir(parents=True)
        shutil.copy(self.source / "LICENSE", folder)
        # The section is for Cargo's development version, and other versions warn of it.
        manifest = (self.source / "Cargo.toml").read_text().replace("[hints]\nmostly-unused = true\n", "")
        (folder / "Cargo.toml").write_text(manifest)
        for path, text in self.needed.items():
            file = folder / "src" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        at = (self.source / "Cargo.toml").stat().st_mtime
        for file in folder.rglob("*"):
            os.utime(file, (at, at))


def used_names() -> set[str]:
    """Names that may be calls of a client, in all crates of this project."""
    texts = [file.read_text() for file in (ROOT / "crates").rglob("*.rs")]
    return {name for text in texts for name in re.findall(r"(?:\.|::operation::)([a-z]\w*)", text)}


def locked_crates() -> dict[str, str]:
    """The version of each crate of the SDK."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {
        package["name"]: package["version"]
        for package in packages
        if package["name"].startswith("aws-sdk-") and package["name"] not in WHOLE
    }


def find_source(name: str, version: str) -> Path | None:
    """Returns the folder in which Cargo keeps a crate."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return next((home / "registry" / "src").glob(f"*/{name}-{version}"), None)


def fetch(crates: Mapping[str, str]) -> None:
    """Lets Cargo download the whole crates, if it has not yet."""
    if any(find_source(name, version) is None for name, version in crates.items()):
        # A configuration with other versions, or without its files, would be an error.
        CONFIGURATION.unlink(missing_ok=True)
        compiler = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
        (host,) = re.findall(r"^host: (\S+)$", compiler, re.MULTILINE)
        subprocess.run(["cargo", "fetch", "--locked", "--target", host], cwd=ROOT, check=True, stdout=sys.stderr)


def trim() -> None:
    """Writes the cut crates and Cargo's configuration, if they are not there."""
    crates, names = locked_crates(), used_names()
    fetch(crates)
    folders = []
    for name, version in crates.items():
        sdk = Sdk(find_source(name, version))
        used = sorted(names & sdk.operations())
        # A crate that changes gets another folder, because Cargo compares the times of files.
        digest = hashlib.sha256(repr((version, used, Path(__file__).read_text())).encode()).hexdigest()[:12]
        folder = FOLDER / f"{name}-{digest}"
        folders.append(folder)
        if not folder.exists():
            partial = FOLDER / f"partial-{name}"
            shutil.rmtree(partial, ignore_errors=True)
            sdk.trim(used)
            sdk.write(partial)
            partial.rename(folder)
    for other in set(FOLDER.iterdir()) - set(folders):
        shutil.rmtree(other)
    paths = "".join(f'    "{folder.relative_to(ROOT)}",\n' for folder in folders)
    text = f"# Written by tests/trim_sdk.py, with the cut crates of the AWS SDK.\npaths = [\n{paths}]\n"
    if not CONFIGURATION.exists() or CONFIGURATION.read_text() != text:
        CONFIGURATION.write_text(text)


if __name__ == "__main__":
    trim()
