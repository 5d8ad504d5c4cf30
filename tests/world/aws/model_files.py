"""Keeps the files of AWS's models, once read. Each session of botocore reads them again, and a new account of moto has a session
for each service."""

from __future__ import annotations

from typing import Any

from botocore.loaders import JSONFileLoader

_read = JSONFileLoader.load_file
_files: dict[str, Any] = {}


def install() -> None:
    """Replaces a method of botocore; more than once is the same as once."""
    JSONFileLoader.load_file = _load_file


def _load_file(self: JSONFileLoader, path: str) -> Any:
    if path not in _files:
        _files[path] = _read(self, path)
    return _files[path]
