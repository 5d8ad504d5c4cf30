"""Temporary folders that do not outlive their session, even one that was killed.

The name of a folder contains the process id of its session. Each new session removes the folders of sessions that have ended,
because a session that gets SIGKILL cannot remove its own.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"recycle-eks-[a-z]+-(\d+)-[^-]+")


def temporary_folder(purpose: str, in_memory: bool = False) -> Path:
    """Creates a new folder; `purpose` is a word for its name. `in_memory` puts it into a file system in memory, if there is one.
    (Some systems start no program from there.)"""
    remove_abandoned()
    base = _MEMORY if in_memory and os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"recycle-eks-{purpose}-{os.getpid()}-", dir=base))


def remove_abandoned() -> None:
    """Removes the folders of sessions that have ended."""
    for folder in left_in_place():
        if not Path(f"/proc/{_owner(folder)}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def left_in_place(owner: int | None = None) -> list[Path]:
    """The folders there are, of one session or of all."""
    folders = [folder for base in {_MEMORY, Path(tempfile.gettempdir())} for folder in base.glob("recycle-eks-*")]
    return [folder for folder in folders if _owner(folder) and owner in (None, _owner(folder))]


def _owner(folder: Path) -> int | None:
    found = _NAME.fullmatch(folder.name)
    return int(found[1]) if found else None
