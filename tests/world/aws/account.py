"""The AWS account of the world: moto 5.2.5 in this process, behind a server on a loopback port.

`Aws` starts the server, hands out clients, records every call, asks the fault plan about each, and throws a scenario's
state away between two scenarios while it keeps what Terraform deployed.

    aws = Aws(clock, faults)
    aws.start()
    aws.client("autoscaling").describe_auto_scaling_groups()
    aws.calls[-1].action, aws.calls[-1].principal
    aws.reset()

moto handles one request at a time: whoever touches its backends from this process does it `with LOCK`. Times are the
virtual clock's; identifiers are a function of what was created before.

What this does not do: Auto Scaling semantics (autoscaling.py), what Terraform needs and moto lacks (terraform_gaps.py),
running functions (lambda_host.py) or state machines (stepfunctions.py), deciding whether a principal may make a call (iam.py).
"""

from __future__ import annotations

import base64
import datetime
import functools
import io
import json
import logging
import re
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

import boto3
import moto
from botocore.client import BaseClient
from botocore.config import Config
from moto.core import responses as moto_responses
from moto.core import utils as moto_utils
from moto.core.base_backend import model_data
from moto.core.config import default_user_config
from moto.core.model import OperationModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.moto_api._internal import mock_random
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.utilities import aws_headers

from world.aws import moto_speed
from world.base.faults import INVOKE, Caller, Fault, Plan, carry_out
from world.process.serving import Server, read_body

ACCOUNT = "123456789012"
REGION = "eu-west-1"
PARTITION = "aws"
ROOT = f"arn:{PARTITION}:iam::{ACCOUNT}:root"

# The key of whoever is no function: tests, Terraform, the world itself.
ROOT_ACCESS_KEY = "AKIAWORLDROOT0000000"

# Every internal of moto that this package reaches was read in this version.
MOTO_VERSION = "5.2.5"

# Held while moto handles a request, and by everybody who touches its backends from this process.
LOCK = threading.RLock()

# Services whose name in an action ("states:StartExecution") is not the one that signs the request, or not boto3's.
IAM_PREFIX = {"monitoring": "cloudwatch", "eventbridge": "events"}
BOTO3_SERVICE = {
    "monitoring": "cloudwatch",
    "states": "stepfunctions",
    "eventbridge": "events",
    "elasticloadbalancing": "elbv2",
    "tagging": "resourcegroupstaggingapi",
}

READS = ("Describe", "List", "Get", "Filter", "Lookup", "Head", "BatchGet", "Search", "Simulate", "Validate", "Test")
# Every answer's request id.
REQUEST_ID = "0" * 52

READ_ACTIONS = {"sts:AssumeRole", "sts:GetCallerIdentity"}

# Services whose whole content belongs to one scenario. Everything else is what Terraform deployed and stays.
SCENARIO_BACKENDS = ("ec2", "autoscaling", "elb", "elbv2")


class Clock(Protocol):
    start: float

    def now(self) -> float: ...

    def elapsed(self) -> float: ...


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
    """No policy of the principal allows it."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class ReplayedRequest:
    """A request as it can be written to a file, and the status that it was answered with."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    status: int

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "body": base64.b64encode(self.body).decode()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ReplayedRequest:
        return cls(**{**fields, "body": base64.b64decode(fields["body"])})


class ReplayFailed(Exception):
    """A replayed request was answered differently from the recorded one."""


@dataclass
class Identified:
    """What a request asks for, and who asks."""

    service: str
    action: str
    protocol: str
    access_key: str
    principal: str
    parameters: dict[str, Any]
    caller: Caller | None

    @property
    def function(self) -> str | None:
        return self.caller.function if self.caller else None

    @property
    def write(self) -> bool:
        name = self.action.partition(":")[2]
        return self.action not in READ_ACTIONS and not name.startswith(READS)


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
        # Virtual seconds that a call of a function's process takes, by action: others may run meanwhile.
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
        self._server: _Server | None = None
        self._clients: dict[str, BaseClient] = {}
        self._principals: dict[str, str] = {}
        self._recording: list[ReplayedRequest] | None = None
        self._moto = DomainDispatcherApplication(_create_app)
        # It lists moto's folders and tries 300 patterns for each request, which took a fifth of a request's time.
        self._moto.get_backend_for_host = functools.cache(self._moto.get_backend_for_host)
        _install(clock)

    # The server

    def start(self) -> str:
        """Starts the server of an empty account on a free loopback port and returns its URL."""
        _assert_none_is_started()
        self.wipe()
        self._server = _Server(self._serve)
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
        """A boto3 client with somebody's credentials."""
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
        deployment come back (autoscaling.py).
        """
        with LOCK:
            backends = [_backend(service) for service in SCENARIO_BACKENDS]
            _seed_identifiers()
            for service, backend in zip(SCENARIO_BACKENDS, backends, strict=True):
                for model in model_data[service].values():
                    model.instances_tracked.clear()
                backend.reset()
            for name, queue in list(_backend("sqs").queues.items()):
                queue.last_purged_at = None  # or else it refuses to be purged for a minute, as AWS does
                _backend("sqs").purge_queue(name)
            for topic in _backend("sns").topics.values():
                topic.sent_notifications.clear()
            for alarm in _backend("cloudwatch").alarms.values():
                alarm.state_value, alarm.history = "INSUFFICIENT_DATA", []
            _backend("cloudwatch").metric_data.clear()
            self.calls.clear()
            self.latency = no_latency
            for action in self.on_reset:
                action()

    def wipe(self) -> None:
        """An empty account: everything is gone, what was deployed too."""
        with LOCK:
            moto_api_backend.reset()
            # A new account has a network, whose identifiers are drawn. Drawn here, they are the same in every process, whatever
            # it did before: a deployment that one process recorded is replayed in others.
            ec2 = _backend("ec2")
            _seed_identifiers()
            ec2.reset()
            self._principals.clear()
            self.calls.clear()
            for action in self.on_reset:
                action()

    # Recording a deployment and replaying it

    def start_recording(self) -> None:
        """Identifiers are drawn anew from here on, as in `replay`: later requests name what earlier ones made."""
        with LOCK:
            _seed_identifiers()
        self._recording = []

    def stop_recording(self) -> list[ReplayedRequest]:
        """The requests that changed something since `start_recording`, in the order in which they took effect."""
        recorded, self._recording = self._recording or [], None
        return recorded

    def replay(self, requests: Iterable[ReplayedRequest]) -> None:
        """Makes recorded requests again, without HTTP. Raises ReplayFailed where the status is another one."""
        with LOCK:
            _seed_identifiers()
        for request in requests:
            answer = self._ask_moto(_environ_of(request))
            if answer.status != request.status:
                raise ReplayFailed(
                    f"{request.method} {request.path} {request.headers.get('X-Amz-Target', '')}{request.body[:120]!r}: "
                    f"{answer.status} instead of {request.status}: {answer.body[:300]!r}"
                )

    # Answering one request

    def _serve(self, environ: dict[str, Any], body: bytes) -> Answer | None:
        """None: the connection is closed without an answer."""
        call = self._identify(environ, body)
        fault = None if call.action == INVOKE else self.faults.consult(call.action, call.function, call.parameters)
        if call.caller is not None:
            call.caller.wait(self.latency(call.action))
        return carry_out(
            fault,
            call.caller,
            perform=lambda: self._perform(environ, body, call),
            refusal=lambda refused: self._refuse(call, refused),
        )

    def _perform(self, environ: dict[str, Any], body: bytes, call: Identified) -> Answer:
        denied = self.authorize(call)
        if denied is not None:
            self._record(call, denied.status, refused=True)
            return denied
        if call.action == INVOKE and self.invoke is not None:
            function, kind = _invoked(environ)
            answer = self.invoke(function, body, kind)
            self._record(call, answer.status)
            return answer
        with LOCK:
            if call.caller is not None and self.callers.get(call.access_key) is not call.caller:
                raise ConnectionAbortedError("the calling process has died")
            answer = self._ask_moto(environ)
            self._record(call, answer.status)
            if call.write and self._recording is not None:
                self._recording.append(_replayable(environ, body, answer.status))
            return answer

    def _ask_moto(self, environ: dict[str, Any]) -> Answer:
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
            started[:] = [int(status.split()[0]), headers]
            return lambda data: None

        with LOCK:
            chunks = self._moto(environ, start_response)
            try:
                body = b"".join(chunks)
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()
        return Answer(started[0], started[1], body)

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

    # Who asks for what

    def _identify(self, environ: dict[str, Any], body: bytes) -> Identified:
        access_key, signer = _credential(environ)
        service = BOTO3_SERVICE.get(signer, signer)
        operation, parameters, protocol = _parse(service, environ, body)
        return Identified(
            service=service,
            action=f"{IAM_PREFIX.get(signer, signer)}:{operation}",
            protocol=protocol,
            access_key=access_key,
            principal=self.principal(access_key),
            parameters=parameters,
            caller=self.callers.get(access_key),
        )

    def session(self, role_arn: str, name: str) -> tuple[str, str, str]:
        """Temporary credentials of a role, as a service assumes it.

        They are drawn from a sequence of their own, so that the identifiers of AWS resources do not depend on how many
        processes ran, and so that no key comes back after a reset.
        """
        with LOCK:
            state = mock_random.getstate()
            mock_random.seed(f"credentials {len(_backend('iam').access_keys)}")
            role = _backend("sts").assume_role(
                region_name=REGION, role_session_name=name, role_arn=role_arn, policy="", duration=43200, external_id=""
            )
            mock_random.setstate(state)
        return role.access_key_id, role.secret_access_key, role.session_token

    def principal(self, access_key: str) -> str:
        """The ARN behind an access key: an assumed role, a user, or the account's root."""
        if access_key not in self._principals:
            with LOCK:
                role = _backend("sts").get_assumed_role_from_access_key(access_key)
                user = None if role else _backend("iam").get_user_from_access_key_id(access_key)
            if role is None and user is None:
                return ROOT
            self._principals[access_key] = role.arn if role else user.arn
        return self._principals[access_key]


def _assert_none_is_started() -> None:
    assert Aws._started is None, "another account is started in this process: moto's backends are global"


def save_requests(requests: Iterable[ReplayedRequest], path: Path) -> None:
    path.write_text(json.dumps([request.to_json() for request in requests]))


def load_requests(path: Path) -> list[ReplayedRequest]:
    return [ReplayedRequest.from_json(fields) for fields in json.loads(path.read_text())]


def error_answer(protocol: str, code: str, message: str, status: int, more: Mapping[str, str] | None = None) -> Answer:
    """An error as the service's protocol writes it, so that every SDK reads code and message from it. `more`: further headers."""
    if protocol.startswith(("json", "rest-json")):
        body = json.dumps({"__type": code, "message": message})
        headers = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)]
    elif protocol == "ec2":
        error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        body = f"<Response><Errors>{error}</Errors><RequestID>world</RequestID></Response>"
        headers = [("Content-Type", "text/xml")]
    else:
        side = "Sender" if status < 500 else "Receiver"
        body = (
            f"<ErrorResponse><Error><Type>{side}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>world</RequestId></ErrorResponse>"
        )
        headers = [("Content-Type", "text/xml")]
    content = body.encode()
    headers += (more or {}).items()
    return Answer(status, [*headers, ("x-amzn-RequestId", "world"), ("Content-Length", str(len(content)))], content)


# Reading requests


def _credential(environ: dict[str, Any]) -> tuple[str, str]:
    """Access key and signing service, from the Authorization header or a presigned URL."""
    scope = re.search(r"Credential=([^/,]+)/\d+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    if scope:
        return scope[1], scope[2].lower()
    presigned = parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential")
    if presigned:
        access_key, _, _, signer, _ = presigned[0].split("/")
        return access_key, signer.lower()
    return "", "unsigned"


def _parse(service: str, environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any], str]:
    """Operation, parameters and protocol. An unknown operation is named by method and path."""
    request = Request({**environ, "wsgi.input": io.BytesIO(body)})
    unknown = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
    try:
        model = moto_utils.get_service_model(service)
        protocol = determine_request_protocol(model, request.content_type)
    except Exception:  # botocore has no such service, or the request is of no known protocol: moto answers it as it likes
        return unknown, {}, "rest-json"
    try:
        operation, path_parameters = _operation(service, model, request)
        parser = PROTOCOL_PARSERS[protocol](operation, map_type=dict)
        parameters = parser.parse(
            {
                "method": request.method,
                "values": request.values,
                "headers": request.headers,
                "body": body,
                "url_path": request.path,
                "url_params": path_parameters,
            }
        )
    except Exception:  # an operation that botocore does not know
        return unknown, {}, protocol
    return operation.name, parameters, protocol


def _operation(service: str, model: Any, request: Request) -> tuple[OperationModel, dict[str, Any]]:
    target = request.headers.get("X-Amz-Target")
    name = target.rpartition(".")[2] if target else request.values.get("Action")
    if name:
        return model.operation_model(name), {}
    return get_service_router(service).match(request)


def _invoked(environ: dict[str, Any]) -> tuple[str, str]:
    """Function (name or ARN, with its qualifier) and invocation type of an Invoke request."""
    function = unquote(environ["PATH_INFO"]).split("/functions/", 1)[1].rsplit("/invocations", 1)[0]
    qualifier = parse_qs(environ.get("QUERY_STRING", "")).get("Qualifier")
    if qualifier:
        function = f"{function}:{qualifier[0]}"
    return function, environ.get("HTTP_X_AMZ_INVOCATION_TYPE", "RequestResponse")


ROUTING_HEADERS = ("Authorization", "Content-Type", "X-Amz-Target", "User-Agent", "Content-Encoding")


def _replayable(environ: dict[str, Any], body: bytes, status: int) -> ReplayedRequest:
    request = Request({**environ, "wsgi.input": io.BytesIO(b"")})
    headers = {name: request.headers[name] for name in ROUTING_HEADERS if name in request.headers}
    raw_path = environ["RAW_URI"]
    return ReplayedRequest(
        environ["REQUEST_METHOD"], raw_path.partition("?")[0], environ.get("QUERY_STRING", ""), headers, body, status
    )


def _environ_of(request: ReplayedRequest) -> dict[str, Any]:
    uri = f"{request.path}?{request.query}" if request.query else request.path
    return _environ(request.method, uri, request.headers.items(), request.body)


def _environ(method: str, uri: str, headers: Iterable[tuple[str, str]], body: bytes) -> dict[str, Any]:
    """A request as WSGI has it."""
    path, _, query = uri.partition("?")
    fields = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers}
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": uri,
        "REQUEST_URI": uri,
        "SCRIPT_NAME": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "HTTP_HOST": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.version": (1, 0),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **fields,
        "CONTENT_TYPE": fields.get("HTTP_CONTENT_TYPE", ""),
        "CONTENT_LENGTH": str(len(body)),
    }


class _Server(Server):
    """Answers with what `serve(environ, body)` makes of each request."""

    def __init__(self, serve: Callable[[dict[str, Any], bytes], Answer | None]):
        self.serve = serve
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write for head and body
    server: _Server

    def _any(self) -> None:
        body = read_body(self)
        headers = [(name, value) for name, value in self.headers.items() if name.lower() != "transfer-encoding"]
        try:
            answer = self.server.serve(_environ(self.command, self.path, headers, body), body)
        except ConnectionAbortedError:
            answer = None
        except Exception:  # a defect of moto or of ours: whoever called shows it
            answer = Answer(500, [("Content-Type", "text/plain")], traceback.format_exc().encode())
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("content-length", "connection"):
                self.send_header(name, value)
        if answer.status >= 200 and answer.status != 204:
            length = dict(answer.headers).get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def log_message(self, *_: Any) -> None:
        """Silent: `Aws.calls` has it all."""


# moto's internals. Everything that this file reaches inside of moto is below; a newer version fails here first.


def _backend(service: str) -> Any:
    """The backend of our account: of our region, or the global one."""
    backends = moto.backends.get_backend(service)[ACCOUNT]
    return backends[PARTITION if service in ("iam", "sts") else REGION]


def _seed_identifiers() -> None:
    mock_random.seed(0)


def _create_app(service: str) -> Any:
    """moto's application of one service, made at its first request.

    Making it creates a backend in another region, which draws identifiers: the sequence goes on as if it had not.
    """
    state = mock_random.getstate()
    try:
        return create_backend_app(service)
    finally:
        mock_random.setstate(state)


class _VirtualDatetime(datetime.datetime):
    """moto's `utcnow` and `unix_time` read the time here and only here."""

    clock: Clock

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(cls.clock.now(), tz)


def _install(clock: Clock) -> None:
    """Makes moto tell virtual time and draw its request ids from elsewhere than its resource ids."""
    assert moto.__version__ == MOTO_VERSION, f"this world was written for moto {MOTO_VERSION}, not {moto.__version__}"
    for module, name in ((moto_utils, "datetime"), (moto_utils, "utcnow"), (aws_headers, "gen_amzn_requestid_long")):
        assert hasattr(module, name), f"moto {moto.__version__} has no {module.__name__}.{name}"
    default_user_config["lambda"] = {"use_docker": False}
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _VirtualDatetime.clock = clock
    moto_utils.datetime = types.SimpleNamespace(datetime=_VirtualDatetime)
    moto_speed.install()
    _fix_request_ids()
    _seed_identifiers()


def _fix_request_ids() -> None:
    """A request id is the same for every request: a repeated read must not shift the ids of what is created later."""

    def request_id(headers: dict[str, Any] | None = None) -> str:
        if headers is not None:
            headers["x-amzn-requestid"] = REQUEST_ID
        return REQUEST_ID

    aws_headers.gen_amzn_requestid_long = request_id
    assert hasattr(moto_responses, "gen_amzn_requestid_long")
    moto_responses.gen_amzn_requestid_long = request_id


def moto_original(owner: type, name: str) -> Any:
    """moto's own attribute, also if this process has replaced it before."""
    kept = owner.__dict__.get("_moto_originals")
    if kept is None:
        kept = {}
        owner._moto_originals = kept
    if name not in kept:
        assert hasattr(owner, name), f"moto has no {owner.__name__}.{name}"
        kept[name] = getattr(owner, name)
    return kept[name]
