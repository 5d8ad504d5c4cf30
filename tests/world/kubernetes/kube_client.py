"""A few lines of HTTP against the Kubernetes API: status code and body, nothing hidden, nothing retried.

One client may be used from several threads; each thread keeps its own connection alive. For the actors of the world and for
tests; the functions under test bring their own client.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from typing import Any, NamedTuple

import orjson

from world.process.pki import Certificate

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_PATIENCE = 180.0
"""Seconds for one answer; the API server gives up on its own requests after 60, and a busy machine adds to that."""

CLOSED_WHILE_IDLE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)
"""The errors of a kept connection that the server has closed, as the API server does after 90 idle seconds. The error
depends on when the reset arrives: `SSLEOFError` between the two writes of head and body."""


class Answer(NamedTuple):
    """The answer of the API server: `body` is parsed JSON, or text if it is not JSON."""

    status: int
    body: Any

    @property
    def reason(self) -> str:
        """The `reason` of a Status object, as `Conflict` or `NotFound`; empty for success."""
        return self.body.get("reason", "") if isinstance(self.body, dict) else ""


class Refused(RuntimeError):
    """The API server did not do what a test or an actor took for granted."""

    def __init__(self, method: str, path: str, answer: Answer) -> None:
        super().__init__(f"{method} {path}: {answer.status} {answer.body}")
        self.answer = answer


class KubeClient:
    """Calls one server on 127.0.0.1, with a client certificate, with a bearer token, or anonymously."""

    def __init__(self, port: int, authority_file: str, user: Certificate | None = None, token: str | None = None) -> None:
        self._port = port
        self._token = token
        self._tls = ssl.create_default_context(cafile=authority_file)
        if user:
            self._tls.load_cert_chain(user.certificate, user.key)
        self._connections = threading.local()

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        """One request. A connection that the server closed while it was idle is replaced, once."""
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = json.dumps(body).encode()
        fresh = getattr(self._connections, "current", None) is None
        try:
            return self._exchange(method, path, content, headers)
        except CLOSED_WHILE_IDLE:
            if fresh:
                raise
            return self._exchange(method, path, content, headers)

    def must(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        """Works as `call`, but raises Refused if the answer is not a success."""
        answer = self.call(method, path, body, content_type)
        if answer.status >= 300:
            raise Refused(method, path, answer)
        return answer.body

    def get(self, path: str) -> Json:
        """The object or list at `path`, which must exist."""
        return self.must("GET", path)

    def create(self, path: str, manifest: Json) -> Json:
        """Creates an object in the collection at `path`."""
        return self.must("POST", path, manifest)

    def patch(self, path: str, change: Any, content_type: str = MERGE_PATCH) -> Json:
        """Changes an object, by default with a merge patch."""
        return self.must("PATCH", path, change, content_type)

    def delete(self, path: str, options: Json | None = None) -> bool:
        """Deletes an object; False if there was none (or none with the uid in `options`)."""
        answer = self.call("DELETE", path, options)
        if answer.status in (404, 409):
            return False
        if answer.status >= 300:
            raise Refused("DELETE", path, answer)
        return True

    def _exchange(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        connection = getattr(self._connections, "current", None)
        if connection is None:
            connection = Connection("127.0.0.1", self._port, context=self._tls, timeout=_PATIENCE)
            self._connections.current = connection
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException):
            self._connections.current = None
            connection.close()
            raise
        try:
            return Answer(response.status, orjson.loads(raw))
        except ValueError:
            return Answer(response.status, raw.decode(errors="replace"))


class Connection(http.client.HTTPSConnection):
    """Without Nagle's algorithm, which adds 40 ms where head and body of a request are two writes."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
