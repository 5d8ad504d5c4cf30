"""Definitions, policies, and patterns as Terraform sends them to AWS, from a recorded deployment of the local world."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs


@dataclass
class Documents:
    """Texts by the name of their state machine, role, or rule."""

    definitions: dict[str, str] = field(default_factory=dict)
    trusts: dict[str, str] = field(default_factory=dict)
    policies: dict[str, list[str]] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)


def newest_record(folder: Path) -> Path | None:
    """Returns the newest recorded deployment. A run of any scenario writes one."""
    return max(folder.glob("deployment-*.json"), key=lambda file: file.stat().st_mtime, default=None)


def read_documents(record: Path) -> Documents:
    documents, managed = Documents(), {}
    for request in json.loads(record.read_text()):
        body = base64.b64decode(request["body"]).decode(errors="replace")
        target = request["headers"].get("X-Amz-Target", "").rpartition(".")[2]
        if target in ("CreateStateMachine", "PutRule"):
            _take_json(documents, target, json.loads(body))
            continue
        sent = {name: values[0] for name, values in parse_qs(body).items()}
        match sent.get("Action"):
            case "CreateRole":
                documents.trusts[sent["RoleName"]] = sent["AssumeRolePolicyDocument"]
            case "PutRolePolicy":
                documents.policies.setdefault(sent["RoleName"], []).append(sent["PolicyDocument"])
            case "CreatePolicy":
                managed[sent["PolicyName"]] = sent["PolicyDocument"]
            case "AttachRolePolicy" if (name := sent["PolicyArn"].rpartition("/")[2]) in managed:
                documents.policies.setdefault(sent["RoleName"], []).append(managed[name])
    return documents


def _take_json(documents: Documents, target: str, sent: dict[str, Any]) -> None:
    if target == "CreateStateMachine":
        documents.definitions[sent["name"]] = sent["definition"]
    elif "EventPattern" in sent:
        documents.patterns[sent["Name"]] = sent["EventPattern"]


def sample_event(pattern: dict[str, Any], account: str, region: str) -> dict[str, Any]:
    """Returns an event that has a value for each leaf of a pattern. It need not match patterns with `$or` or negations."""
    event = {
        "version": "0",
        "id": "00000000-0000-4000-8000-000000000000",
        "detail-type": "none",
        "source": "none",
        "account": account,
        "time": "2027-01-01T00:00:00Z",
        "region": region,
        "resources": [],
        "detail": {},
    }
    return {**event, **_sample(pattern)}


def _sample(pattern: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, wanted in pattern.items():
        if name == "$or":
            found.update(_sample(wanted[0]))
        elif isinstance(wanted, dict):
            found[name] = _sample(wanted)
        elif wanted and (value := _value(wanted[0])) is not None:
            found[name] = [value] if name == "resources" else value
    return found


def _value(wanted: Any) -> Any:
    """Returns a value for one alternative of a leaf, or None where the field stays away."""
    if not isinstance(wanted, dict):
        return wanted
    (kind, operand), *_ = wanted.items()
    if kind in ("prefix", "suffix", "equals-ignore-case") and isinstance(operand, str):
        return operand
    if kind == "wildcard":
        return operand.replace("*", "x")
    return "x" if (kind, operand) == ("exists", True) or kind == "anything-but" else None
