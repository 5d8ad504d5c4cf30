"""Builds programs from their Go modules, into the cache that all clones on a machine share.

The versions are pinned by folders with a `go.mod` and a `go.sum`, whose hash names the folder of the result.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from prepare import cache_folder, locked

#: Seconds between two progress lines while something is compiled.
PROGRESS_EVERY = 15.0


class CannotBuild(RuntimeError):
    """The programs are missing and cannot be built. The text says what to do."""


class Build:
    """Compiles into one folder. Writes progress to standard error, with the seconds since the start."""

    def __init__(self, go: str, folder: Path, title: str) -> None:
        self.folder = folder
        self._go, self._started = go, time.monotonic()
        self.say(title)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:4.0f} s] {text}", file=sys.stderr, flush=True)

    def run(self, what: str, *arguments: str, pins: Path, **environment: str) -> None:
        """Runs `go` in a folder with pins."""
        self.say(f"compiling {what}")
        finished = threading.Event()

        def report() -> None:
            while not finished.wait(PROGRESS_EVERY):
                self.say(f"still compiling {what}")

        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        command = [self._go, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=pins,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        finally:
            finished.set()
            reporter.join()
        if done.returncode != 0:
            raise CannotBuild(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def find_built(name: str, pins: Path, also: str, advice: str, title: str, compile_all: Callable[[Build], None]) -> Path:
    """Returns the folder with the programs, and builds them if it is missing.

    `also` is pinned besides the files in `pins`. `advice` follows the error if Go is missing or too old.
    A lock makes two clones that start together build once. The folder gets its name when it is complete.
    """
    folder = cache_folder() / f"{name}-{hash_pins(pins, also)}"
    if folder.exists():
        return folder
    with locked(folder.name):
        if not folder.exists():
            go = find_go(pins, advice)
            unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
            try:
                build = Build(go, unfinished, title)
                compile_all(build)
                unfinished.chmod(0o755)
                unfinished.rename(folder)
                build.say("done")
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def hash_pins(pins: Path, also: str = "") -> str:
    digest = hashlib.sha256(also.encode())
    for file in sorted(pins.rglob("*")):
        if file.is_file():
            digest.update(file.relative_to(pins).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def find_go(pins: Path, advice: str) -> str:
    """Returns the path of a Go that is new enough for every `go.mod` in `pins`. `advice` may use `{needed}`, its version."""
    needed = max((pinned(file, r"^go (\S+)$") for file in pins.rglob("go.mod")), key=_numbers)
    advice = advice.format(needed=needed)
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(f"there is no `go` on the PATH: {advice}")
    # GOTOOLCHAIN=local: what is installed counts, not what Go would download.
    printed = subprocess.run(
        [go, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=True
    )
    installed = printed.stdout.strip().removeprefix("go")
    if _numbers(installed) < _numbers(needed):
        raise CannotBuild(f"`go` is version {installed}: {advice}")
    return go


def pinned(file: Path, pattern: str) -> str:
    """Returns the first group of the first line of a `go.mod` that matches."""
    found = re.search(pattern, file.read_text(), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"{file} has no line that matches {pattern}")
    return found.group(1)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
