"""The file that remembers a run: what it has created, and what it has found. It is written after each step."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class State:
    """`created` lists kinds and names in the order of their creation. `findings` has one entry for each asked question."""

    file: Path
    run: str
    region: str
    account: str
    began: str
    created: list[list[str]] = field(default_factory=list)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> State | None:
        """Returns the state of an earlier run, if the file is there."""
        return cls(file=file, **json.loads(file.read_text())) if file.exists() else None

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fields = {name: value for name, value in asdict(self).items() if name != "file"}
        temporary = self.file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(fields, indent=1, default=str) + "\n")
        temporary.replace(self.file)

    def note_created(self, kind: str, name: str) -> None:
        """Call it before the creation, so that a run that ends in between leaves nothing unknown."""
        self.created.append([kind, name])
        self.write()

    def has_created(self, kind: str) -> bool:
        return any(created == kind for created, _ in self.created)

    def note_removed(self) -> None:
        self.created.clear()
        self.write()

    def next_attempt(self, question: str) -> int:
        """Numbers the groups of a question: the name of a group that is being deleted cannot be used again."""
        self.attempts[question] = self.attempts.get(question, 0) + 1
        self.write()
        return self.attempts[question]

    def note_finding(self, question: str, finding: dict[str, Any]) -> None:
        self.findings[question] = finding
        self.write()

    def is_answered(self, question: str) -> bool:
        return self.findings.get(question, {}).get("problem") is None and question in self.findings
