"""EKS access entries: which IAM principal is which Kubernetes user, written into the authenticator's mapping file.

EKS takes the full ARN of a role. The authenticator compares with the session's ARN, which has lost the role's path, so the path
is taken off here, as EKS does behind its API.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterable

from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import Json, KubeClient
from world.kubernetes.sts import Identity, Sts

AccessEntry = tuple[str, str, list[str]]
"""ARN of a role or user; the Kubernetes user name (may contain `{{SessionName}}`); Kubernetes groups."""

_PROBE_KEY = "ASIAWORLDPROBE000000"
_PROBE_ROLE = "arn:aws:iam::000000000000:role/world-probe"
_PROBE = Identity(
    secret="probe",
    session_token=None,
    account="000000000000",
    arn="arn:aws:sts::000000000000:assumed-role/world-probe/probe",
    user_id="AROAWORLDPROBE000000:probe",
    principal=_PROBE_ROLE,
    session="probe",
)
_REGION = "eu-west-1"

_IN_FORCE_LIMIT = 60.0
"""Seconds; a rewritten file is usually in force after 0.01-0.05."""

_POLL = 0.005


class AccessEntries:
    """The authenticator's mapping."""

    def __init__(self, file: pathlib.Path, cluster: str, sts: Sts, authenticator: KubeClient) -> None:
        self._file = file
        self._cluster = cluster
        self._authenticator = authenticator
        self._generation = 0
        sts.add(_PROBE_KEY, _PROBE)

    def set(self, entries: Iterable[AccessEntry]) -> None:
        """Replaces all entries; returns when the authenticator goes by the new ones. A token whose entry was taken away is
        still accepted for as long as the API server remembers it: up to ten real seconds after it was last used."""
        self._generation += 1
        probe: AccessEntry = (_PROBE_ROLE, f"world-probe-{self._generation}", [])
        self._write([*entries, probe])
        deadline = time.monotonic() + _IN_FORCE_LIMIT
        token = eks_token(self._cluster, _REGION, _PROBE_KEY, _PROBE.secret)
        while self._user_of(token) != probe[1]:
            if time.monotonic() > deadline:
                raise RuntimeError("aws-iam-authenticator did not take over the access entries")
            time.sleep(_POLL)

    def _write(self, entries: list[AccessEntry]) -> None:
        roles: list[Json] = []
        users: list[Json] = []
        for arn, username, groups in entries:
            if ":role/" in arn:
                roles.append({"rolearn": _without_path(arn), "username": username, "groups": groups})
            else:
                users.append({"userarn": arn, "username": username, "groups": groups})
        self._file.write_text(json.dumps({"mapRoles": roles, "mapUsers": users, "mapAccounts": []}))

    def _user_of(self, token: str) -> str | None:
        """Returns the identity that the authenticator gives to the bearer of a token."""
        review = {
            "apiVersion": "authentication.k8s.io/v1beta1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = self._authenticator.call("POST", "/authenticate", review)
        if not isinstance(answer.body, dict):
            return None
        return ((answer.body.get("status") or {}).get("user") or {}).get("username")


def _without_path(role_arn: str) -> str:
    start, _, path_and_name = role_arn.partition(":role/")
    return f"{start}:role/{path_and_name.rpartition('/')[2]}"
