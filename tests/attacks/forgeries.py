"""The values that attackers write, and how a text is searched for them."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from world.kubernetes.kube_client import KubeClient
from world.kubernetes.virtual_times import END_OF_TIME

CLAIM, RECORD, RESTORING = "recycle-eks/claim", "recycle-eks/record", "recycle-eks/restoring"
GROUP_LABEL, DRAIN_UNTIL, PROGRESS = "recycle-eks/group", "recycle-eks/drain-until", "recycle-eks/progress"
REPLACES, EVICTED = "recycle-eks/replaces", "recycle-eks/evicted"

EXECUTION = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:made-up"

LEASES = "/apis/coordination.k8s.io/v1/namespaces/recycle-eks/leases"

#: OSC 52 writes the clipboard of a terminal, CSI 2J erases its screen, and U+202E turns the direction of writing.
ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"

#: deeper than the functions' JSON parser goes by default (128), and not deeper than that of the local world's proxy (254)
LEVELS = 200


def short_hash(text: str) -> str:
    """FNV-1a, which every client can compute. Claims are found by that of their group, evicted pods by their controller's."""
    number = 0xCBF29CE484222325
    for byte in text.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return f"{number >> 32:08x}"


def claim(execution: str, group: str = "workers", **fields: Any) -> str:
    """The claim of an execution that drains a node."""
    written = {"schema": 1, "fence": f"{execution}#0", "group": group, "phase": "draining", "urgency": "planned"}
    return json.dumps({**written, "claimed_at": "2027-01-01T00:00:00Z", **fields})


def claim_tags(execution: str, group: str = "workers") -> list[dict[str, str]]:
    """The same claim in the tags of an instance."""
    value = f"1 planned draining 2027-01-01T00:00:00Z {execution}#0"
    return [{"Key": "recycle-eks:claim", "Value": value}, {"Key": "recycle-eks:group", "Value": group}]


def write_the_end_of_time(client: KubeClient, path: str) -> None:
    """The client claims that another one wrote a label of the object at the end of time, and nests the fields that it owns
    deeply."""
    client.patch(path, {"metadata": {"labels": {"forged": "yes"}}})
    entries = client.get(path)["metadata"]["managedFields"]
    for entry in entries:
        entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {}).pop("f:forged", None)
    nested: dict[str, Any] = {}
    for _ in range(LEVELS):
        nested = {"f:forged": nested}
    entry = {"operation": "Update", "apiVersion": "v1", "time": END_OF_TIME, "fieldsType": "FieldsV1"}
    late = {**entry, "manager": "forger", "fieldsV1": {"f:metadata": {"f:labels": {"f:forged": {}}}}}
    deep = {**entry, "manager": "digger", "fieldsV1": {"f:spec": nested}}
    written = client.patch(path, {"metadata": {"managedFields": [*entries, late, deep]}})["metadata"]["managedFields"]
    assert any(len(json.dumps(entry)) > LEVELS * 10 for entry in written)
    assert END_OF_TIME in [entry["time"] for entry in written]


def unsafe(text):
    """The characters that control a terminal or turn the direction of writing."""
    return [f"U+{ord(each):04X}" for each in text if unicodedata.category(each) in ("Cc", "Cf") and each != "\n"]


def texts(document):
    """Every string in a document, names too."""
    if isinstance(document, dict):
        return [text for name, value in document.items() for text in (name, *texts(value))]
    if isinstance(document, list):
        return [text for value in document for text in texts(value)]
    return [document] if isinstance(document, str) else []
