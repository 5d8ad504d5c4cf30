"""Requests to AWS: their action, their caller, and a file format for repeating them."""

from __future__ import annotations

import functools
import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from moto.core import utils as moto_utils
from moto.core.model import OperationModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router

from world.base.faults import Caller

# Services whose name in an action ("states:StartExecution") is not the one that signs the request, or not boto3's.
IAM_PREFIX = {"monitoring": "cloudwatch", "eventbridge": "events"}
BOTO3_SERVICE = {
    "monitoring": "cloudwatch",
    "states": "stepfunctions",
    "eventbridge": "events",
    "elasticloadbalancing": "elbv2",
    "tagging": "resourcegroupstaggingapi",
    "servicequotas": "service-quotas",
}

READS = ("Describe", "List", "Get", "Filter", "Lookup", "Head", "BatchGet", "Search", "Simulate", "Validate", "Test")
READ_ACTIONS = {"sts:AssumeRole", "sts:GetCallerIdentity"}

#: The size of a body in bytes up to which a parsed request is kept.
LONGEST_KEPT = 16_384

#: The code in the body of a request that creates a function.
CODE = re.compile(rb'"ZipFile": ?"([^"]+)"')

#: The headers of a recorded request that a repeated request needs.
ROUTING_HEADERS = ("Authorization", "Content-Type", "X-Amz-Target", "User-Agent", "Content-Encoding")


@dataclass
class Identified:
    """The action of a request, and its caller."""

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


@dataclass(frozen=True)
class ReplayedRequest:
    """A request as it can be written to a file, and the status that it was answered with."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    status: int


def credential(environ: dict[str, Any]) -> tuple[str, str]:
    """Access key and signing service, from the Authorization header or a presigned URL."""
    scope = re.search(r"Credential=([^/,]+)/\d+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    if scope:
        return scope[1], scope[2].lower()
    presigned = parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential")
    if presigned:
        access_key, _, _, signer, _ = presigned[0].split("/")
        return access_key, signer.lower()
    return "", "unsigned"


def identified(environ: dict[str, Any], body: bytes) -> Identified:
    """A request with its action and its access key; whom that belongs to, only an account knows."""
    access_key, signer = credential(environ)
    service = BOTO3_SERVICE.get(signer, signer)
    if service == "elbv2" and b"Version=2012-06-01" in body:
        service = "elb"  # the older API of load balancers has the same signer
    operation, parameters, protocol = parse(service, environ, body)
    action = f"{IAM_PREFIX.get(signer, signer)}:{operation}"
    return Identified(service, action, protocol, access_key, "", parameters, None)


_MODELS: dict[str, Any] = {}
_LOADING = threading.Lock()


def service_model(service: str) -> Any:
    """Moto's model of a service with all its operations: while moto first loads an operation, another thread gets botocore's
    object for it, which moto's router cannot read (`operation_model` of both classes writes to the same cache)."""
    if service not in _MODELS:
        with _LOADING:
            model = moto_utils.get_service_model(service)
            for name in model.operation_names:
                model.operation_model(name)
            _MODELS[service] = model
    return _MODELS[service]


def parse(service: str, environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any], str]:
    """Operation, parameters and protocol. An unknown operation is named by method and path."""
    if environ["RAW_URI"] != "/" or len(body) > LONGEST_KEPT:
        return _parse(service, environ, body)
    return _parse_again(service, environ["REQUEST_METHOD"], environ["CONTENT_TYPE"], environ.get("HTTP_X_AMZ_TARGET", ""), body)


@functools.lru_cache(maxsize=2048)
def _parse_again(service: str, method: str, content_type: str, target: str, body: bytes) -> tuple[str, dict[str, Any], str]:
    """The requests of most services go to the path `/`, and the headers have no parameters. They come again and again."""
    headers = [("Content-Type", content_type), *([("X-Amz-Target", target)] if target else [])]
    return _parse(service, wsgi_environ(method, "/", headers, body), body)


def _parse(service: str, environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any], str]:
    request = Request({**environ, "wsgi.input": io.BytesIO(body)})
    unknown = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
    try:
        model = service_model(service)
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


def invoked(environ: dict[str, Any]) -> tuple[str, str]:
    """Function (name or ARN, with its qualifier) and invocation type of an Invoke request."""
    function = unquote(environ["PATH_INFO"]).split("/functions/", 1)[1].rsplit("/invocations", 1)[0]
    qualifier = parse_qs(environ.get("QUERY_STRING", "")).get("Qualifier")
    if qualifier:
        function = f"{function}:{qualifier[0]}"
    return function, environ.get("HTTP_X_AMZ_INVOCATION_TYPE", "RequestResponse")


def replayable(environ: dict[str, Any], body: bytes, status: int) -> ReplayedRequest:
    request = Request({**environ, "wsgi.input": io.BytesIO(b"")})
    headers = {name: request.headers[name] for name in ROUTING_HEADERS if name in request.headers}
    raw_path = environ["RAW_URI"]
    return ReplayedRequest(
        environ["REQUEST_METHOD"], raw_path.partition("?")[0], environ.get("QUERY_STRING", ""), headers, body, status
    )


def environ_of(request: ReplayedRequest) -> dict[str, Any]:
    uri = f"{request.path}?{request.query}" if request.query else request.path
    return wsgi_environ(request.method, uri, request.headers.items(), request.body)


def wsgi_environ(method: str, uri: str, headers: Iterable[tuple[str, str]], body: bytes) -> dict[str, Any]:
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


def save_requests(requests: Iterable[ReplayedRequest], path: Path, packages: Mapping[bytes, str]) -> None:
    """Writes each request as a line of JSON with the size of its body, then the body. A function's code, one of `packages` in
    base64, is not written, only its name and its place."""
    with path.open("wb") as file:
        for request in requests:
            body, code = request.body, CODE.search(request.body)
            fields = {**request.__dict__}
            if code:
                fields["code"] = [packages[code[1]], code.start(1)]
                body = body[: code.start(1)] + body[code.end(1) :]
            file.write(json.dumps({**fields, "body": len(body)}).encode() + b"\n" + body)


def load_requests(path: Path, package: Callable[[str], bytes]) -> Iterator[ReplayedRequest]:
    """Reads what `save_requests` wrote. `package` returns the code of today for a name, in base64."""
    with path.open("rb") as file:
        while line := file.readline():
            fields = json.loads(line)
            body = file.read(fields["body"])
            if "code" in fields:
                name, place = fields.pop("code")
                body = body[:place] + package(name) + body[place:]
            yield ReplayedRequest(**{**fields, "body": body})
