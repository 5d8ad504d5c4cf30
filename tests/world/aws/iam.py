"""Permissions: a simulator of IAM decides every call by the caller's policies in IAM.

    iam = Iam(aws)
    iam.refusal("arn:aws:sts::…:assumed-role/recycle-eks-claim-node/x", "ec2:StopInstances", {"InstanceIds": ["i-1"]})
    iam.refused                                     # the refusals since the last reset
    iam.decisions                                   # every decision, with the statements that allowed it

The account's root may do everything: Terraform, tests, the world itself. `iam_resources.py` has the resources and
condition keys of each call. The simulator is a Node program (tests/iam/decide.mjs), one for each world. It starts at the first
decision and ends with the world. Decisions are cached.

Trust policies of roles, and policies of topics and functions, decide the calls that EventBridge, its Scheduler and SNS make
(`events.py`).

Not supported: policies of queues, and of topics that alarms publish to, permissions boundaries, keys of KMS.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.iam.models import iam_backends
from moto.moto_api._internal import mock_random

from prepare import TESTS, install_iam
from world.aws.account import Aws
from world.aws.iam_resources import ROWS, Asked
from world.aws.identity import ACCOUNT, PARTITION, REGION, ROOT
from world.aws.moto_internals import READING
from world.aws.requests import Identified
from world.aws.server import Answer, error_answer

# Operations whose action in a policy has another name (service authorization reference of Lambda).
ACTION = {"lambda:Invoke": "lambda:InvokeFunction"}

# For an action without a row.
UNKNOWN = Asked("?")

# Actions that need no permission (STS API reference, GetCallerIdentity).
FREE = {"sts:GetCallerIdentity"}


@dataclass(frozen=True, slots=True)
class Decision:
    """`principal` is the role's or user's ARN, `statements` the Sids that allowed it, `error` why nothing could be decided."""

    principal: str
    action: str
    resource: str
    allowed: bool
    statements: tuple[str, ...] = ()
    error: str = ""


class Iam:
    """The policies of one account."""

    def __init__(self, aws: Aws) -> None:
        self._simulator = Simulator()
        self._known: dict[Any, dict[str, Any]] = {}
        self.decisions: list[Decision] = []
        # Each different call, with the keys of the condition that policies use. `make probe` asks AWS about them.
        self.asked: dict[tuple[str, str, str, str], bool] = {}
        aws.authorize = self._answer
        aws.on_reset.append(self.decisions.clear)

    def stop(self) -> None:
        """Ends the simulator's process, and writes the calls into the file of the variable RECYCLE_EKS_CALLS."""
        self._simulator.stop()
        if file := os.environ.get("RECYCLE_EKS_CALLS"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(json.dumps(self.calls(), indent=1) + "\n")

    def user(self, name: str, policy: str) -> tuple[str, str]:
        """Access key and secret of a user who has just this policy. Identifiers of other things do not depend on it."""
        with READING:
            backend = iam_backends[ACCOUNT][PARTITION]
            state = mock_random.getstate()
            if name not in backend.users:
                # Each user has keys of its own, the same in each run.
                mock_random.seed(name)
                backend.create_user(REGION, name)
                backend.create_access_key(name)
            mock_random.setstate(state)
            user = backend.get_user(name)
            user.policies = {name: policy}
            return user.access_keys[0].access_key_id, user.access_keys[0].secret_access_key

    def calls(self) -> list[dict[str, Any]]:
        """Returns the different calls of roles so far, for SimulateCustomPolicy of AWS."""
        return [
            {
                "role": role.rpartition("/")[2],
                "action": action,
                "resource": resource,
                "context": json.loads(context),
                "allowed": yes,
            }
            for (role, action, resource, context), yes in sorted(self.asked.items())
            if ":role/" in role
        ]

    @property
    def refused(self) -> list[Decision]:
        """Returns the calls that no policy has allowed since the last reset."""
        return [decision for decision in self.decisions if not decision.allowed]

    def refusal(self, principal: str, action: str, parameters: dict[str, Any]) -> str | None:
        """Returns the reason, in the words of AWS, why a role's session, a role or a user may not make a call; None if it may."""
        action = ACTION.get(action, action)
        if principal == ROOT or action in FREE:
            return None
        identity, policies = policies_of(principal)
        with READING:
            every = ROWS[action](parameters) if action in ROWS else [UNKNOWN]
        decisions = [self._decide(principal, identity, policies, action, one) for one in every]
        self.decisions += decisions
        return next((why_not(principal, decision) for decision in decisions if not decision.allowed), None)

    def trust_refusal(self, service: str, role: str, context: dict[str, str]) -> str | None:
        """Returns the reason why a service may not take a role, with these keys of the condition; None if it may."""
        with READING:
            trust = iam_backends[ACCOUNT][PARTITION].get_role_by_arn(role).assume_role_policy_document
        return self.policy_refusal(service, "sts:AssumeRole", role, trust, context)

    def policy_refusal(self, service: str, action: str, resource: str, policy: str, context: dict[str, str]) -> str | None:
        """Returns the reason why the policy of a resource does not let a service make a call; None if it does."""
        question = (service, action, resource, policy, json.dumps(context, sort_keys=True))
        if question not in self._known:
            self._known[question] = self._simulator.ask(
                principal=service, policies=[], action=action, resource=resource, context=context, resourcePolicy=policy
            )
        answer = self._known[question]
        if answer.get("allowed"):
            return None
        why = answer.get("error") or "because no resource-based policy allows it"
        return f"{service} is not authorized to perform: {action} on resource: {resource} {why}"

    def _decide(self, principal: str, identity: str, policies: tuple[str, ...], action: str, one: Asked) -> Decision:
        if one is UNKNOWN:
            return Decision(identity, action, one.resource, False, error=f"world/aws/iam_resources.py has no row for {action}")
        # Only the tags that policies use. With the other tags of an instance each call would be a new decision.
        context = {key: value for key, value in one.context.items() if any(key in text for text in policies)}
        question = (policies, action, one.resource, json.dumps(context, sort_keys=True))
        if question not in self._known:
            self._known[question] = self._simulator.ask(
                principal=principal, policies=policies, action=action, resource=one.resource, context=context
            )
        answer = self._known[question]
        self.asked[(identity, action, one.resource, question[3])] = answer.get("allowed", False)
        error, statements = answer.get("error", ""), tuple(answer.get("statements", ()))
        return Decision(identity, action, one.resource, answer.get("allowed", False), statements, error)

    def _answer(self, call: Identified) -> Answer | None:
        """The error that a service answers to a call that its caller may not make."""
        refusal = self.refusal(call.principal, call.action, call.parameters)
        return refused(call.service, call.protocol, refusal) if refusal else None


def policies_of(principal: str) -> tuple[str, tuple[str, ...]]:
    """The role or user behind a principal, and the texts of its inline and attached policies."""
    kind, *path = principal.split(":")[5].split("/")
    name = path[-2] if kind == "assumed-role" else path[-1]
    with READING:
        backend = iam_backends[ACCOUNT][PARTITION]
        identity = backend.get_user(name) if kind == "user" else backend.get_role(name)
        versions = [(policy.default_version_id, policy.versions) for policy in identity.managed_policies.values()]
        attached = [each.document for valid, known in versions for each in known if each.version_id == valid]
        return identity.arn, tuple([*identity.policies.values(), *attached])


def why_not(principal: str, decision: Decision) -> str:
    """IAM user guide, "Troubleshoot access denied error messages"."""
    why = decision.error or f"because no identity-based policy allows the {decision.action} action"
    return f"User: {principal} is not authorized to perform: {decision.action} on resource: {decision.resource} {why}"


def refused(service: str, protocol: str, message: str) -> Answer:
    """A refusal as each protocol and service writes it (their API references, "Common Errors")."""
    if protocol == "ec2":
        message = f"You are not authorized to perform this operation. {message}"
        return error_answer(protocol, "UnauthorizedOperation", message, 403)
    if service == "sns":
        return error_answer(protocol, "AuthorizationError", message, 403)
    if protocol == "query":
        return error_answer(protocol, "AccessDenied", message, 403)
    return error_answer(protocol, "AccessDeniedException", message, 403 if protocol == "rest-json" else 400)


class Simulator:
    """The Node program, started when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request (see tests/iam/decide.mjs)."""
        with self._lock:
            process = self._process = self._process or self._start()
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        assert answer, "the simulator of IAM has ended"
        return json.loads(answer)

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        # It ends with its standard input, also when this process is killed. A Ctrl-C reaches only this process.
        command = ["node", str(TESTS / "iam" / "decide.mjs"), str(install_iam())]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)

    def stop(self) -> None:
        """Ends it, also one that has died; it would begin again."""
        with self._lock:
            if self._process is not None:
                # A question that it did not read is still to be written.
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
                self._process.stdout.close()
                self._process.wait()
                self._process = None
