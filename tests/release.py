#!/usr/bin/env python3
"""Prepares a release, and checks everything that can be checked before it is published.

    python3 tests/release.py 0.1.0              checks, builds the packages, and fills dist/release
    python3 tests/release.py 0.1.0 --check      only checks
    python3 tests/release.py 0.1.0 --macos      on macOS: adds the command line for this Mac to dist/release
    python3 tests/release.py 0.1.0 --sums       writes the checksums of the files that are in dist/release

`--repository owner/name` writes the address of the GitHub repository into install.sh. All archives have the same bytes for the
same sources: no time, no user and no path of this machine is in them.
"""

import argparse
import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import package
import sbom
from prepare import LAMBDAS, ROOT, cargo_target, fail, host_architecture, say, stoppable, version

RELEASE = package.DIST / "release"
#: The section of the changelog, as the text of the release.
NOTES = package.DIST / "release-notes.md"
MODULE = "recycle-eks-module.tar.gz"
SUMS = "SHA256SUMS"
#: The repository in links if none is given, as in the README.
ANY_REPOSITORY = "OWNER/NAME"
#: A link of Markdown to another file, and the place in that file.
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
#: The line of install.sh that `--repository` fills in.
REPOSITORY_LINE = "repository=${RECYCLE_EKS_REPOSITORY:-}\n"
#: Files of the module's folder that are part of it; its tests are not.
MODULE_FILES = ("*.tf", "version.txt", "dashboard.json", "README.md", "rbac/*.yaml", "examples/*/*")


def find_problems(wanted: str, root: Path = ROOT) -> list[str]:
    """Returns one sentence for each reason why this version cannot be released from this folder."""
    # GitHub would show a version such as 1.2.3-rc.1 as the latest one.
    if not re.fullmatch(r"\d+\.\d+\.\d+", wanted):
        return [f"{wanted} is no version such as 1.2.3"]
    problems = [
        f"{file} has the version {found}, not {wanted}" for file, found in versions(root).items() if found not in (wanted, None)
    ]
    problems += [f"{file} has no version" for file, found in versions(root).items() if found is None]
    if not re.search(rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        problems.append(f"CHANGELOG.md has no heading `## [{wanted}] - YYYY-MM-DD` with the date of the release")
    if changed := git(root, "status", "--porcelain"):
        problems.append(f"the working tree has changes that are not committed: {', '.join(changed.split()[1::2])}")
    tagged = git(root, "rev-parse", "--quiet", "--verify", f"v{wanted}^{{commit}}")
    if tagged and tagged != git(root, "rev-parse", "HEAD"):
        problems.append(f"the tag v{wanted} is another commit, {tagged[:12]}")
    return problems


def versions(root: Path) -> dict[str, str | None]:
    """Returns the version that each file has."""
    patterns = {"Cargo.toml": r'^version = "(.+)"$', "terraform/version.txt": r"^(.+)$"}
    found = {file: re.search(pattern, (root / file).read_text(), re.MULTILINE) for file, pattern in patterns.items()}
    return {file: match[1] if match else None for file, match in found.items()}


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()


def notes(wanted: str, root: Path = ROOT) -> str:
    """Returns the section of the changelog about this version."""
    found = re.search(
        rf"^## \[{re.escape(wanted)}\][^\n]*\n+(.*?)(?=^## \[|\Z)", (root / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return found[1].rstrip() + "\n" if found else ""


def module_files(repository: str | None = None) -> dict[str, bytes]:
    """Returns the files of the module's archive by name. The definitions of the state machines lie inside the module there.
    Links to files that are not in the archive lead to the repository."""
    folder = ROOT / "terraform"
    found = {
        str(file.relative_to(folder)): file
        for pattern in MODULE_FILES
        for file in folder.glob(pattern)
        if file.is_file() and not any(part.startswith(".terraform") for part in file.parts)
    }
    found |= {f"state-machine/{file.name}": file for file in (ROOT / "state-machine").iterdir()}
    found |= {name: ROOT / name for name in ("CHANGELOG.md", "LICENSE")}
    names = {file.resolve(): name for name, file in found.items()}
    return {
        name: with_links(file, names, repository or ANY_REPOSITORY).encode() if file.suffix == ".md" else file.read_bytes()
        for name, file in found.items()
    }


def with_links(page: Path, names: Mapping[Path, str], repository: str) -> str:
    """Returns the text of a page of the archive. `names` has the name of each file in the archive. A link to another file of the
    archive stays relative, and any other leads to the file of this version in the repository."""
    place = Path(names[page.resolve()]).parent

    def replace(link: re.Match[str]) -> str:
        target, anchor = (page.parent / link[1]).resolve(), link[2] or ""
        archived = names.get(target)
        if any(target in file.parents for file in names) and target.is_relative_to(ROOT / "terraform"):
            archived = str(target.relative_to(ROOT / "terraform"))
        if archived is not None:
            return f"]({os.path.relpath(archived, place)}{anchor})"
        kind = "tree" if target.is_dir() else "blob"
        return f"](https://github.com/{repository}/{kind}/v{version()}/{target.relative_to(ROOT)}{anchor})"

    return LINK.sub(replace, page.read_text())


def write_archive(archive: Path, files: Mapping[str, bytes], executable: Iterable[str] = ()) -> None:
    """Writes a `.tar.gz` that has the same bytes for the same files."""
    with (
        archive.open("wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed) as tar,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in executable else 0o644
            tar.addfile(entry, io.BytesIO(content))


def assemble(dist: Path, release: Path, repository: str | None) -> None:
    """Fills the folder `release` from the packages of both kinds of processors in `dist`."""
    shutil.rmtree(release, ignore_errors=True)
    release.mkdir(parents=True)
    for architecture in package.TARGETS:
        built = dist / architecture
        packages = [*(f"{name}.zip" for name in LAMBDAS), "version.txt"]
        write_archive(
            release / f"recycle-eks-packages-{architecture}.tar.gz",
            {f"{architecture}/{name}": (built / name).read_bytes() for name in packages},
        )
        shutil.copy(built / sbom.NAME, release / f"recycle-eks-{architecture}.cdx.json")
        shutil.copy(built / package.CLI, release / f"recycle-eks-linux-{architecture}")
    write_archive(release / MODULE, module_files(repository))
    # As `helm package` does it: below a folder with the chart's name.
    chart = ROOT / "charts" / "recycle-eks"
    files = {f"recycle-eks/{file.relative_to(chart)}": file.read_bytes() for file in chart.rglob("*") if file.is_file()}
    write_archive(release / f"recycle-eks-{version()}.tgz", files)
    shutil.copy(ROOT / "terraform" / "rbac" / "recycle-eks.yaml", release / "recycle-eks-rbac.yaml")
    (release / "install.sh").write_text(install_script(repository))
    (release / "install.sh").chmod(0o755)
    write_sums(release)


def install_script(repository: str | None) -> str:
    """Returns install.sh, with the address of the repository if it is known."""
    text = (ROOT / "install.sh").read_text()
    assert REPOSITORY_LINE in text
    return text.replace(REPOSITORY_LINE, f"repository=${{RECYCLE_EKS_REPOSITORY:-{repository or ''}}}\n")


def write_sums(release: Path) -> None:
    """Writes the checksums of all files of the release, in the format of `sha256sum --check`."""
    files = [file for file in sorted(release.iterdir()) if file.name != SUMS]
    (release / SUMS).write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))


def build_for_this_mac(release: Path) -> None:
    """Builds the command line for the Mac on which this runs. It was never tried: the tests run on Linux."""
    if platform.system() != "Darwin":
        fail("--macos builds the command line for macOS, on macOS")
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", package.CLI], cwd=ROOT, check=True)
    release.mkdir(parents=True, exist_ok=True)
    shutil.copy(cargo_target() / "release" / package.CLI, release / f"recycle-eks-macos-{host_architecture()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the version to release, such as 0.1.0")
    parser.add_argument("--repository", help="owner/name on GitHub, from which install.sh takes releases")
    only = parser.add_mutually_exclusive_group()
    for option in ("--check", "--macos", "--sums"):
        only.add_argument(option, action="store_true")
    asked = parser.parse_args()
    if problems := find_problems(asked.version):
        fail("This version cannot be released:\n" + "\n".join(f"  - {problem}" for problem in problems))
    if asked.check:
        say(f"version {version()} can be released")
    elif asked.macos:
        build_for_this_mac(RELEASE)
    elif asked.sums:
        write_sums(RELEASE)
    else:
        package.build(list(package.TARGETS), package.DIST)
        assemble(package.DIST, RELEASE, asked.repository)
        NOTES.write_text(notes(asked.version))
    if not asked.check:
        for file in sorted(RELEASE.iterdir()):
            say(f"{file.stat().st_size:>10,} bytes  {file.relative_to(ROOT)}")


if __name__ == "__main__":
    stoppable(main)
