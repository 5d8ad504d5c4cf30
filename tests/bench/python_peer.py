"""The Python functions of `peer/`, installed and zipped as for Lambda, and created in the local world's account."""

from __future__ import annotations

import functools
import io
import shutil
import sys
import zipfile
from pathlib import Path

from prepare import cache_folder, fingerprint, install_pins, locked, run, say
from world.aws.account import Aws

PEER = Path(__file__).with_name("peer")
PACKAGE_PINS = PEER / "requirements.txt"
RUNTIME_PINS = PEER / "lambda-runtime.txt"


class Peer:
    """Installs its parts, and returns their folder."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "runtime" / "bin" / "python"
        """Plays Lambda's Python runtime: awslambdaric and boto3, nothing else."""
        self._packages = folder / "package"

    @functools.cached_property
    def deployment_package(self) -> bytes:
        """The zip that its users upload: the functions and what they import, without what Lambda's runtime brings. Compiled files
        are left out, so it is rather too small than too large."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(PEER.glob("*.py")):
                archive.write(file, file.name)
            for file in sorted(self._packages.rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    archive.write(file, file.relative_to(self._packages))
        return buffer.getvalue()

    def create_function(self, aws: Aws, name: str, handler: str, like: str) -> str:
        """Creates a function in the world's account, with role, memory and timeout of another function. Its `bootstrap` starts
        the runtime."""
        other = aws.client("lambda").get_function_configuration(FunctionName=like)
        code = io.BytesIO(self.deployment_package)
        with zipfile.ZipFile(code, "a") as archive:
            entry = zipfile.ZipInfo("bootstrap")
            entry.external_attr = 0o755 << 16
            archive.writestr(entry, f'#!/bin/sh\nexec "{self.python}" -m awslambdaric "$_HANDLER"\n')
        created = aws.client("lambda").create_function(
            FunctionName=name,
            Runtime="provided.al2023",
            Handler=handler,
            Role=other["Role"],
            Code={"ZipFile": code.getvalue()},
            Timeout=other["Timeout"],
            MemorySize=other["MemorySize"],
        )
        return created["FunctionArn"]


def install() -> Peer:
    """Into the cache, once for each set of pins."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_folder() / f"bench-peer-{version}-{fingerprint(PACKAGE_PINS, RUNTIME_PINS)}"
    with locked("bench-peer"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("      installing boto3, awslambdaric and the Kubernetes client for it")
            # Without pip and setuptools, which would be in the way when it starts.
            run([sys.executable, "-m", "venv", "--without-pip", str(folder / "runtime")], "python3 -m venv")
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            install_pins([*pip, "--python", str(folder / "runtime" / "bin" / "python")], RUNTIME_PINS)
            install_pins(pip, PACKAGE_PINS, "--target", str(folder / "package"))
            (folder / "complete").touch()
    return Peer(folder)
