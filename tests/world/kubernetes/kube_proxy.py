"""The TLS proxy in front of the API server. DescribeCluster names it as the cluster's endpoint.

It does three things that a real cluster does not: it applies the faults of the plan, it records every call, and it translates the
times of objects into virtual time. Everything else passes unchanged: bearer tokens, status codes, bodies.
(Client certificates cannot pass; the world's own actors go to the API server directly.)

Faults are named `kubernetes:VERB resource`, with the HTTP verb: `kubernetes:PATCH nodes`, `kubernetes:GET pods`,
`kubernetes:POST pods/eviction`, `kubernetes:POST events`; other paths stand for themselves: `kubernetes:GET /readyz`.
"""

from __future__ import annotations

import http.server
import json
import queue
import socket
import ssl
import struct
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from world.base.faults import Caller, Fault, Plan, carry_out
from world.kubernetes.kube_client import CLOSED_WHILE_IDLE, Connection, Json
from world.kubernetes.sts import Identity, access_key_of
from world.kubernetes.virtual_times import VirtualTimes
from world.process.pki import Certificate
from world.process.serving import Server

_OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"}
_PATIENCE = 180.0
"""Seconds for the API server's answer; it gives up on its own requests after 60."""


_QUESTIONS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "subjectaccessreviews")
"""Resources that are asked by POST and change nothing."""


@dataclass
class KubernetesCall:
    """One call that came through the proxy, in the order of arrival. Its fields are those of a recorded AWS call
    (`aws.Recorded`), and a few more."""

    at: float
    """Virtual seconds since the start of the world."""
    action: str
    """The action in the words of the fault plan: `kubernetes:PATCH nodes`."""
    principal: str
    """The ARN of the session that signed the token; `anonymous` if the token is unknown."""
    access_key: str
    """The key that signed the token; empty without a token."""
    function: str | None
    """The function whose process called, if it was one."""
    parameters: dict[str, Any]
    """The values for a fault's `where`: `name`, `namespace`, the query's fields, and the `body`."""
    write: bool
    verb: str
    path: str
    """The path with the query."""
    status: int | None = None
    """The answer's; None if the caller got no answer."""
    fault: str | None = None
    """The kind of the injected fault, if any."""


def _no_latency(action: str) -> float:
    return 0.0


def _not_scripted(call: KubernetesCall) -> bytes | None:
    return None


class KubeProxy:
    """Serves on a free port of 127.0.0.1 from `start` to `stop`."""

    def __init__(
        self,
        api_port: int,
        authority_file: str,
        certificate: Certificate,
        times: VirtualTimes,
        elapsed: Callable[[], float],
        identify: Callable[[str], Identity | None],
        on_write: Callable[[], None],
    ) -> None:
        """`certificate` is the API server's own. `identify` returns the owner of an access key. `on_write` is called after every
        write that reached the API server."""
        self.plan = Plan()
        self.calls: list[KubernetesCall] = []
        self.caller_of: Callable[[str], Caller | None] = lambda access_key: None
        """The process that signs with an access key, for faults that end it. The host of the functions sets it."""
        self.latency: Callable[[str], float] = _no_latency
        """Virtual seconds that a call of a function's process takes, by action. Other processes run during that time."""
        self.scripted: Callable[[KubernetesCall], bytes | None] = _not_scripted
        """The body of an answer in place of the API server's, for objects that the API server has no room for."""
        self.is_reachable = True
        """False: connections are reset before TLS begins."""
        self._times = times
        self._elapsed = elapsed
        self._identify = identify
        self._on_write = on_write
        self._intruders: list[_Intruder] = []
        self._upstream = _Upstream(api_port, authority_file)
        self._server = _Server(self, certificate)
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Begins to answer."""
        self._server.start("kube-proxy")

    def stop(self) -> None:
        """Closes the port and the connections behind it."""
        self._server.stop()
        self._upstream.close()

    def forget(self) -> None:
        """Resets the proxy for a new scenario: nothing recorded, no other writer, no latency, reachable. The owner of the fault
        plan clears it."""
        self.calls.clear()
        self._intruders.clear()
        self.latency = _no_latency
        self.scripted = _not_scripted
        self.is_reachable = True

    def just_before(self, action: str, do: Callable[[], Any], nth: int = 1) -> None:
        """Lets another writer act between the caller's decision and its nth call of this kind from now. An optimistic update
        must survive it."""
        self._intruders.append(_Intruder(action, do, nth))

    # -- one call ------------------------------------------------------------------------------------------------

    def handle(self, request: _Request) -> _Response | None:
        """Returns the answer for the caller. None closes the connection without an answer."""
        access_key = access_key_of(request.headers.get("Authorization", "").removeprefix("Bearer "))
        caller = self.caller_of(access_key) if access_key else None
        call = self._record(request, access_key, caller)
        for intruder in self._intruders:
            intruder.sees(call.action)
        fault = self.plan.consult(call.action, call.function, call.parameters)
        call.fault = fault.kind if fault else None
        if caller is not None:
            caller.wait(self.latency(call.action))
        response = carry_out(fault, caller, lambda: self._forward(request, call), _refusal)
        if response is not None:
            call.status = response.status
        return response

    def _record(self, request: _Request, access_key: str | None, caller: Caller | None) -> KubernetesCall:
        url = urllib.parse.urlsplit(request.path)
        resource, parameters = _read_path(url.path)
        parameters.update(urllib.parse.parse_qsl(url.query))
        parameters["body"] = _json_or_none(request.body)
        identity = self._identify(access_key) if access_key else None
        call = KubernetesCall(
            at=self._elapsed(),
            action=f"kubernetes:{request.verb} {resource}",
            principal=identity.arn if identity else "anonymous",
            access_key=access_key or "",
            function=caller.function if caller else None,
            parameters=parameters,
            write=request.verb != "GET" and resource not in _QUESTIONS,
            verb=request.verb,
            path=request.path,
        )
        self.calls.append(call)
        return call

    def _forward(self, request: _Request, call: KubernetesCall) -> _Response:
        made_up = self.scripted(call)
        if made_up is not None:
            return _Response(200, {"Content-Type": "application/json"}, made_up)
        response = self._upstream.exchange(request)
        if call.write:
            self._on_write()
        document = _json_or_none(response.body)
        if isinstance(document, dict) and response.status < 300:
            self._times.translate(document)
            response.body = orjson.dumps(document)
        return response


@dataclass
class _Request:
    verb: str
    path: str
    headers: Any
    body: bytes | None


@dataclass
class _Response:
    status: int
    headers: dict[str, str]
    body: bytes


class _Intruder:
    def __init__(self, action: str, do: Callable[[], Any], nth: int) -> None:
        self._action = action
        self._do = do
        self._still_to_come = nth
        self._lock = threading.Lock()

    def sees(self, action: str) -> None:
        if action != self._action:
            return
        with self._lock:
            self._still_to_come -= 1
            is_due = self._still_to_come == 0
        if is_due:
            self._do()


def _read_path(path: str) -> tuple[str, dict[str, Any]]:
    """Resource (`pods/eviction`) with namespace and name of `/api/v1/namespaces/x/pods/y/eviction` and the like."""
    parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
    if parts[:1] == ["api"] and len(parts) > 2:
        rest = parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        rest = parts[3:]
    else:
        return path, {}
    found: dict[str, Any] = {}
    if rest[0] == "namespaces" and len(rest) > 2:
        found["namespace"] = rest[1]
        rest = rest[2:]
    if len(rest) > 1:
        found["name"] = rest[1]
    return "/".join([rest[0], *rest[2:]]), found


def _json_or_none(content: bytes | None) -> Any:
    try:
        return orjson.loads(content) if content else None
    except ValueError:
        return None


def _refusal(fault: Fault) -> _Response:
    """An error as the API server words it: `code` is the reason."""
    status: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": fault.message,
        "reason": fault.code,
        "code": fault.status,
    }
    return _Response(fault.status, {"Content-Type": "application/json", **fault.headers}, json.dumps(status).encode())


class _Upstream:
    """Connections to the API server, kept alive and shared: the token identifies the caller, not the connection."""

    def __init__(self, port: int, authority_file: str) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=authority_file)
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()

    def exchange(self, request: _Request) -> _Response:
        """One request and its answer. A connection that the server closed while it was idle is replaced."""
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _OF_ONE_CONNECTION and name.lower() != "accept-encoding"
        }
        while True:
            try:
                connection, is_fresh = self._idle.get_nowait(), False
            except queue.Empty:
                connection, is_fresh = self._connect(), True
            try:
                connection.request(request.verb, request.path, request.body, headers)
                answer = connection.getresponse()
                body = answer.read()
            except CLOSED_WHILE_IDLE:
                connection.close()
                if is_fresh:
                    raise
                continue
            self._idle.put(connection)
            passed_on = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_ONE_CONNECTION}
            return _Response(answer.status, passed_on, body)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _connect(self) -> Connection:
        return Connection("127.0.0.1", self._port, context=self._tls, timeout=_PATIENCE)


class _Server(Server):
    def __init__(self, proxy: KubeProxy, certificate: Certificate) -> None:
        self.proxy = proxy
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate.certificate, certificate.key)
        super().__init__(_Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Runs in the connection's own thread."""
        if not self.proxy.is_reachable:
            # A linger time of zero makes the close a reset.
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.close()
            return
        try:
            with self._tls.wrap_socket(request, server_side=True) as encrypted:
                super().finish_request(encrypted, client_address)
        except OSError:
            # The client went away, or never spoke TLS: its own affair.
            return


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer takes 40 ms more
    wbufsize = -1  # one write for head and body
    server: _Server

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        proxy = self.server.proxy
        response = proxy.handle(_Request(self.command, self.path, self.headers, body)) if proxy.is_reachable else None
        if response is None:
            self.close_connection = True
            return
        self.send_response_only(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def log_message(self, *_: Any) -> None:
        """Silent: `KubeProxy.calls` has it all."""
