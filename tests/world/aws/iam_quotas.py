"""The sizes of policies that IAM allows (IAM user guide, "IAM and AWS STS quotas"): moto counts none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.iam.exceptions import LimitExceededException
from moto.iam.models import IAMBackend

#: Characters of all inline policies of a role together, and of a managed policy. White space is not counted.
INLINE, MANAGED = 10_240, 6_144
#: Managed policies of a role, unless AWS was asked for more.
ATTACHED = 10


def install() -> Callable[[], None]:
    """Lets moto refuse calls that exceed a quota. The returned function undoes this."""
    changed = ("put_role_policy", "create_policy", "create_policy_version", "attach_role_policy")
    before = {name: getattr(IAMBackend, name) for name in changed}

    def put_role_policy(backend: IAMBackend, role_name: str, policy_name: str, policy_json: str) -> None:
        policies = {**backend.get_role(role_name).policies, policy_name: policy_json}
        if sum(map(_size, policies.values())) > INLINE:
            raise LimitExceededException(f"Maximum policy size of {INLINE} bytes exceeded for role {role_name}")
        before["put_role_policy"](backend, role_name, policy_name, policy_json)

    def create_policy(backend: IAMBackend, description: str, path: str, policy_document: str, *others: Any) -> Any:
        _check_managed(policy_document)
        return before["create_policy"](backend, description, path, policy_document, *others)

    def create_policy_version(backend: IAMBackend, policy_arn: str, policy_document: str, set_as_default: bool) -> Any:
        _check_managed(policy_document)
        return before["create_policy_version"](backend, policy_arn, policy_document, set_as_default)

    def attach_role_policy(backend: IAMBackend, policy_arn: str, role_name: str) -> None:
        if len({*backend.get_role(role_name).managed_policies, policy_arn}) > ATTACHED:
            raise LimitExceededException(f"Cannot exceed quota for PoliciesPerRole: {ATTACHED}")
        before["attach_role_policy"](backend, policy_arn, role_name)

    for refusing in (put_role_policy, create_policy, create_policy_version, attach_role_policy):
        setattr(IAMBackend, refusing.__name__, refusing)

    def uninstall() -> None:
        for name, original in before.items():
            setattr(IAMBackend, name, original)

    return uninstall


def _check_managed(policy: str) -> None:
    if _size(policy) > MANAGED:
        raise LimitExceededException(f"Cannot exceed quota for PolicySize: {MANAGED}")


def _size(policy: str) -> int:
    return len("".join(policy.split()))
