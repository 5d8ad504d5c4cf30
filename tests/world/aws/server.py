"""Answers of AWS, and the server that gives them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from world.aws.requests import wsgi_environ
from world.process.serving import Server, read_body


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


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


class AwsServer(Server):
    """Answers with what `serve(environ, body)` makes of each request."""

    def __init__(self, serve: Callable[[dict[str, Any], bytes], Answer | None]):
        self.serve = serve
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write for head and body
    server: AwsServer

    def _any(self) -> None:
        body = read_body(self)
        headers = [(name, value) for name, value in self.headers.items() if name.lower() != "transfer-encoding"]
        try:
            answer = self.server.serve(wsgi_environ(self.command, self.path, headers, body), body)
        except ConnectionAbortedError:
            answer = None
        except Exception:  # a defect of moto or of the world, which the caller shows
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
