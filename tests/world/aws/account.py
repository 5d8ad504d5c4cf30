"""The AWS account of the world: moto 5.2.5 in this process, behind a server on a loopback port.

`Aws` starts the server, hands out clients, records every call, asks the fault plan about each, and throws a scenario's
state away between two scenarios while it keeps what Terraform deployed.

    aws = Aws(clock, faults)
    aws.start()
    aws.client("autoscaling").describe_auto_scaling_groups()
    aws.calls[-1].action, aws.calls[-1].principal
    aws.reset()

moto handles one request at a time: code in this process that changes its backends does so `with LOCK`, code that reads them `with
READING`. Times are those of the virtual clock. Identifiers depend only on the objects that were created before.

Done elsewhere: Auto Scaling semantics (autoscaling/), calls of Terraform that moto lacks (terraform_gaps.py),
running functions (lambda_host.py) or state machines (stepfunctions/), permissions (iam.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from moto.core.base_backend import model_data
from moto.moto_api._internal import mock_random
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from world.aws import moto_corrections
from world.aws.identity import REGION, ROOT, ROOT_ACCESS_KEY
from world.aws.kept_answers import UNRELATED, KeptAnswers
from world.aws.models import Models
from world.aws.moto_internals import LOCK, READING, backend_of, create_app, install, seed_identifiers
from world.aws.requests import (
    Identified,
    ReplayedRequest,
    environ_of,
    identified,
    invoked,
    replayable,
)
from world.aws.server import Answer, AwsServer, error_answer
from world.base.clock import Clock
from world.base.faults import INVOKE, Caller, Fault, Plan, carry_out
from world.base.shapes import VIOLATIONS

# Services whose whole content belongs to one scenario. Everything else is what Terraform deployed and stays.
SCENARIO_BACKENDS = ("ec2", "autoscaling", "elb", "elbv2")


@dataclass(frozen=True)
class Recorded:
    """One call that reached AWS. `at` is in virtual seconds since the start of the world."""

    at: float
    action: str
    principal: str
    access_key: str
    function: str | None
    parameters: dict[str, Any]
    write: bool
    status: int
    refused: bool = False
    """Raised if no policy of the principal allows the call."""


#: Shared by all accounts of this process: a good call of one is a good call of the next one.
MODELS = Models()


#: Bytes from which a replayed request is not checked against its model again.
LARGE = 1_000_000


class ReplayFailed(Exception):
    """A replayed request was answered differently from the recorded one."""


def no_latency(action: str) -> float:
    """A call takes no virtual time."""
    return 0.0


class Aws:
    """The account. One at a time in a process, because moto's backends are global."""

    _started: Aws | None = None

    def __init__(self, clock: Clock, faults: Plan | None = None):
        # Here, too: whatever is laid over moto from here on would take the started account's place.
        _assert_none_is_started()
        self.clock = clock
        self.faults = faults or Plan()
        self.calls: list[Recorded] = []
        # Virtual seconds that a call of a function's process takes, by action. Other processes run during that time.
        self.latency: Callable[[str], float] = no_latency
        # The processes that run functions, by their access key (lambda_host.py).
        self.callers: dict[str, Caller] = {}
        # Answers Lambda's Invoke, without LOCK since the function calls back (lambda_host.py).
        self.invoke: Callable[[str, bytes, str], Answer] | None = None
        # The service's error for a call that no policy of its principal allows (iam.py).
        self.authorize: Callable[[Identified], Answer | None] = lambda call: None
        # Called by `reset`, with LOCK held, after the scenario's backends are empty.
        self.on_reset: list[Callable[[], None]] = []
        self.endpoint = ""
        self.models = MODELS
        self._server: AwsServer | None = None
        self._clients: dict[str, BaseClient] = {}
        self._principals: dict[str, str] = {}
        self._recording: list[ReplayedRequest] | None = None
        self._kept = KeptAnswers()
        self._moto = DomainDispatcherApplication(create_app)
        # moto lists its folders and tries 300 patterns for each request, which took a fifth of a request's time.
        self._moto.get_backend_for_host = functools.cache(self._moto.get_backend_for_host)
        install(clock)
        moto_corrections.install()

    # The server

    def start(self) -> str:
        """Starts the server of an empty account on a free loopback port and returns its URL."""
        _assert_none_is_started()
        self.wipe()
        self._server = AwsServer(self._serve)
        Aws._started = self
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._server.start("aws")
        return self.endpoint

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
            self.wipe()
            Aws._started = None

    def client(self, service: str) -> BaseClient:
        """A boto3 client of the account's root, without retries: a refused call is seen at once."""
        if service not in self._clients:
            self._clients[service] = self.client_as(service, ROOT_ACCESS_KEY)
        return self._clients[service]

    def client_as(self, service: str, access_key: str, secret: str = "world", token: str | None = None) -> BaseClient:
        """Returns a boto3 client with the given credentials."""
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(retries={"total_max_attempts": 1}, read_timeout=300, max_pool_connections=50),
        )

    # Throwing away

    def reset(self) -> None:
        """Throws the scenario's state away and keeps what was deployed. About 70 ms.

        Gone: instances, groups, launch templates, networks (a fresh default VPC is there), load balancers, queued and
        published messages, the states of alarms, metrics, the recorded calls. Kept: roles, functions, state machines, log
        groups, topics, rules, schedules, clusters with their access entries, issued credentials. Lifecycle hooks of a
        deployment come back (autoscaling/hooks.py).
        """
        with LOCK:
            backends = [backend_of(service) for service in SCENARIO_BACKENDS]
            seed_identifiers()
            for service, backend in zip(SCENARIO_BACKENDS, backends, strict=True):
                for model in model_data[service].values():
                    model.instances_tracked.clear()
                backend.reset()
            for name, queue in list(backend_of("sqs").queues.items()):
                queue.last_purged_at = None  # or else it refuses to be purged for a minute, as AWS does
                backend_of("sqs").purge_queue(name)
            for topic in backend_of("sns").topics.values():
                topic.sent_notifications.clear()
            for alarm in backend_of("cloudwatch").alarms.values():
                alarm.state_value, alarm.history = "INSUFFICIENT_DATA", []
            backend_of("cloudwatch").metric_data.clear()
            self.calls.clear()
            self.latency = no_latency
            for action in self.on_reset:
                action()

    def wipe(self) -> None:
        """Empties the account, including the deployment."""
        with LOCK:
            moto_api_backend.reset()
            # A new account has a network, whose identifiers are drawn. Drawn here, they are the same in every process, whatever
            # it did before: a deployment that one process recorded is replayed in others.
            ec2 = backend_of("ec2")
            seed_identifiers()
            ec2.reset()
            self._principals.clear()
            self.calls.clear()
            for action in self.on_reset:
                action()

    # Recording a deployment and replaying it

    def start_recording(self) -> None:
        """Identifiers are drawn anew from here on, as in `replay`: later requests name what earlier ones made."""
        with LOCK:
            seed_identifiers()
        self._recording = []

    def stop_recording(self) -> list[ReplayedRequest]:
        """The requests that changed something since `start_recording`, in the order in which they took effect."""
        recorded, self._recording = self._recording or [], None
        return recorded

    def replay(self, requests: Iterable[ReplayedRequest]) -> None:
        """Makes recorded requests again, without HTTP. Raises ReplayFailed where the status is another one."""
        with LOCK:
            seed_identifiers()
        for request in requests:
            environ = environ_of(request)
            with LOCK:
                answer = self._ask_moto(environ)
            # To read megabytes of code once more takes a second of each start.
            if len(request.body) < LARGE:
                self.models.check(self._identify(environ, request.body), environ, request.body, answer)
            if answer.status != request.status:
                raise ReplayFailed(
                    f"{request.method} {request.path} {request.headers.get('X-Amz-Target', '')}{request.body[:120]!r}: "
                    f"{answer.status} instead of {request.status}: {answer.body[:300]!r}"
                )

    # Answering one request

    def _serve(self, environ: dict[str, Any], body: bytes) -> Answer | None:
        """Returns the answer. None closes the connection without an answer."""
        test, call = VIOLATIONS.test, self._identify(environ, body)
        fault = None if call.action == INVOKE else self.faults.consult(call.action, call.function, call.parameters)
        if call.caller is not None:
            call.caller.wait(self.latency(call.action))
        answer = carry_out(
            fault,
            call.caller,
            perform=lambda: self._perform(environ, body, call),
            refusal=lambda refused: self._refuse(call, refused),
        )
        self.models.check(call, environ, body, answer, test)
        return answer

    def _perform(self, environ: dict[str, Any], body: bytes, call: Identified) -> Answer:
        denied = self.authorize(call)
        if denied is not None:
            self._record(call, denied.status, refused=True)
            return denied
        if call.action == INVOKE and self.invoke is not None:
            function, kind = invoked(environ)
            answer = self.invoke(function, body, kind)
            self._record(call, answer.status)
            return answer
        with LOCK if call.write and call.service not in UNRELATED else READING:
            if call.caller is not None and self.callers.get(call.access_key) is not call.caller:
                raise ConnectionAbortedError("the calling process has died")
            answer = self._kept.answer(call.action, environ, body, lambda: self._ask_moto(environ))
            self._record(call, answer.status)
            if call.write and self._recording is not None:
                self._recording.append(replayable(environ, body, answer.status))
            return answer

    def _ask_moto(self, environ: dict[str, Any]) -> Answer:
        with READING:
            return answer_of(self._moto, environ)

    def _refuse(self, call: Identified, fault: Fault) -> Answer:
        self._record(call, fault.status)
        return error_answer(call.protocol, fault.code, fault.message, fault.status, fault.headers)

    def _record(self, call: Identified, status: int, refused: bool = False) -> None:
        self.calls.append(
            Recorded(
                at=self.clock.elapsed(),
                action=call.action,
                principal=call.principal,
                access_key=call.access_key,
                function=call.function,
                parameters=call.parameters,
                write=call.write,
                status=status,
                refused=refused,
            )
        )

    # The caller and the action of a request

    def _identify(self, environ: dict[str, Any], body: bytes) -> Identified:
        call = identified(environ, body)
        call.principal, call.caller = self.principal(call.access_key), self.callers.get(call.access_key)
        return call

    def session(self, role_arn: str, name: str) -> tuple[str, str, str]:
        """Temporary credentials of a role, as a service assumes it.

        They are drawn from a sequence of their own, so that the identifiers of AWS resources do not depend on how many
        processes ran, and so that no key comes back after a reset.
        """
        with READING:
            state = mock_random.getstate()
            mock_random.seed(f"credentials {len(backend_of('iam').access_keys)}")
            role = backend_of("sts").assume_role(
                region_name=REGION, role_session_name=name, role_arn=role_arn, policy="", duration=43200, external_id=""
            )
            mock_random.setstate(state)
        return role.access_key_id, role.secret_access_key, role.session_token

    def principal(self, access_key: str) -> str:
        """The ARN behind an access key: an assumed role, a user, or the account's root."""
        if access_key not in self._principals:
            with READING:
                role = backend_of("sts").get_assumed_role_from_access_key(access_key)
                user = None if role else backend_of("iam").get_user_from_access_key_id(access_key)
            if role is None and user is None:
                return ROOT
            self._principals[access_key] = role.arn if role else user.arn
        return self._principals[access_key]


def _assert_none_is_started() -> None:
    assert Aws._started is None, "another account is started in this process: moto's backends are global"


def answer_of(app: Callable[..., Iterable[bytes]], environ: dict[str, Any]) -> Answer:
    """The answer of a WSGI application, such as moto."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        started[:] = [int(status.split()[0]), headers]
        return lambda data: None

    chunks = app(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    return Answer(started[0], started[1], body)
