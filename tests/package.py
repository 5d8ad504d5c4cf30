#!/usr/bin/env python3
"""Builds the packages that Lambda runs, for its two kinds of processors, and the command line for the same:

    dist/arm64/<function>.zip   dist/arm64/version.txt   dist/arm64/recycle-eks   dist/arm64/recycle-eks.cdx.json
    dist/x86_64/…               dist/SHA256SUMS

    python3 tests/package.py                    both
    python3 tests/package.py x86_64             one of them

The same sources, Rust and Python give the same bytes, in whichever folder they lie. cargo-lambda comes from PyPI, into the cache.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import sbom
import trim_sdk
from prepare import (
    LAMBDAS,
    ROOT,
    TESTS,
    Steps,
    cargo_target,
    fail,
    host_architecture,
    install_python,
    locked,
    missing_tools,
    say,
    stoppable,
    version,
)

#: Lambda's name of a processor -> Rust's for the functions, and for a command line that needs no C library
TARGETS = {
    "arm64": ("aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl"),
    "x86_64": ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"),
}
#: The type of the segment of an ELF file that names its loader (elf(5)).
PT_INTERP = 3
#: The command line, which is no function.
CLI = sbom.CLI
#: The folder of `make package`.
DIST = ROOT / "dist"
PINS = TESTS / "package-requirements.txt"
#: "Deployment package (.zip) size" that every function stays under, in bytes. It is a goal of the project.
LARGEST_ZIP = 3_500_000


def build(architectures: list[str], dist: Path) -> None:
    """Builds the packages of these architectures; nothing else is in the folder then."""
    steps = Steps(1 + 2 * len(architectures))
    with steps.step("cargo-lambda and its linker", "10 seconds the first time"):
        bin_folder = install_python(PINS, "cargo-lambda").parent
        add_targets(architectures)
    for architecture in architectures:
        with steps.step(f"Lambda functions for {architecture}", "about 10 minutes on 2 cores the first time"):
            functions, command_line = TARGETS[architecture]
            folder = compile_for(functions, sbom.FUNCTIONS, bin_folder)
            shutil.rmtree(dist / architecture, ignore_errors=True)
            pack_small({name: folder / name / "bootstrap" for name in LAMBDAS}, dist / architecture, bin_folder / "python")
        with steps.step(f"The command line for {architecture}", "about 5 minutes on 2 cores the first time"):
            folder = compile_for(command_line, sbom.COMMAND_LINE, bin_folder)
            built = Path(shutil.copy(folder / CLI / "bootstrap", dist / architecture / CLI))
            if needs_a_loader(built):
                fail(f"{built} is not static")
            (dist / architecture / sbom.NAME).write_text(sbom.render(functions, command_line))
    for other in TARGETS.keys() - set(architectures):
        shutil.rmtree(dist / other, ignore_errors=True)
    (dist / "SHA256SUMS").write_text(checksums(dist))


def pack_small(binaries: Mapping[str, Path], folder: Path, python: Path) -> None:
    """A zip for each function, and their version. `python` is the interpreter that has libdeflate."""
    folder.mkdir(parents=True)
    for name, binary in binaries.items():
        subprocess.run([python, TESTS / "shrink.py", binary, folder / f"{name}.zip"], check=True)
    (folder / "version.txt").write_text(f"{version()}\n")


def add_targets(architectures: list[str]) -> None:
    """Rust's standard library for the processors, through rustup unless it is there."""
    printed = subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, capture_output=True, text=True, check=True)
    libraries = Path(printed.stdout.strip()) / "lib" / "rustlib"
    for target in (target for architecture in architectures for target in TARGETS[architecture]):
        if not (libraries / target).is_dir():
            if shutil.which("rustup") is None:
                fail(f"Rust's standard library for {target} is needed, in {libraries}, and there is no rustup to install it")
            done = subprocess.run(["rustup", "target", "add", target], cwd=ROOT, stdout=sys.stderr, check=False)
            if done.returncode != 0:
                fail(f"failed: rustup target add {target} (see above)")


def compile_for(target: str, packages: list[str], bin_folder: Path) -> Path:
    """Returns the folder with `<binary>/bootstrap`."""
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        # Panics name source files, but must not show the folders of this clone and of Cargo's cache. Paths in this variable may
        # contain spaces. It also replaces cargo-lambda's own flags, which would require newer processors. The address of a
        # function in its process is no secret: fixed addresses save the relocation table, 2 % of a package.
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(
            [f"--remap-path-prefix={ROOT}=.", f"--remap-path-prefix={cargo_home}=cargo", "-Crelocation-model=static"]
        ),
    }
    with locked("cargo"):
        trim_sdk.trim()
    folder = cargo_target() / "lambda" / target
    command = ["cargo", "lambda", "build", "--release", "--locked", "--target", target, *packages, "--lambda-dir", str(folder)]
    if subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False).returncode != 0:
        fail("failed: cargo lambda build (see above)")
    return folder


def needs_a_loader(binary: Path) -> bool:
    """Checks whether an ELF file names a program that loads its libraries (a segment PT_INTERP). A static file does not."""
    data = binary.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", f"{binary} is no ELF file of 64 bits, little-endian"
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return any(struct.unpack_from("<I", data, table + number * size) == (PT_INTERP,) for number in range(count))


def checksums(folder: Path) -> str:
    """Returns the checksums in the format of `sha256sum --check`."""
    files = [file for file in sorted(folder.glob("*/*")) if file.suffix in (".zip", ".txt") or file.name in (CLI, sbom.NAME)]
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files)


def main() -> None:
    architectures = sys.argv[1:] or list(TARGETS)
    if unknown := [name for name in architectures if name not in TARGETS]:
        fail(f"an architecture is one of {', '.join(TARGETS)}, not {', '.join(unknown)}; this machine's is {host_architecture()}")
    if problems := missing_tools("cargo", "rustc", "cc"):
        fail("Something is missing on this machine:\n" + "\n".join(f"  - {problem}" for problem in problems))
    build(architectures, DIST)
    for zipped in sorted(DIST.glob("*/*.zip")):
        size = zipped.stat().st_size
        say(f"{size:>10,} bytes  {zipped.relative_to(ROOT)}{'  larger than intended' if size > LARGEST_ZIP else ''}")
    for built in sorted(DIST.glob(f"*/{CLI}")):
        say(f"{built.stat().st_size:>10,} bytes  {built.relative_to(ROOT)}")
    say(f"version {version()}; check with: cd dist && sha256sum --check SHA256SUMS")


if __name__ == "__main__":
    stoppable(main)
