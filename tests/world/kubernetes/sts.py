"""The way from aws-iam-authenticator to the local world's STS.

The authenticator insists on https://sts.<region>.amazonaws.com/. Its HTTPS_PROXY is this proxy, and its SSL_CERT_FILE has this
proxy's authority, so it sends `CONNECT sts.<region>.amazonaws.com:443`. The proxy answers, and ends the TLS connection itself.

It checks two things that STS checks and moto does not: the signature of the presigned request, and the request's age. The
signature includes the x-k8s-aws-id header, which the authenticator adds, and which ties a token to one cluster. Secrets and
identities are moto's, read in process.

The real clock rules here, because tokens are signed with it. For the same reason sessions do not expire: their life is counted
in moto's time, which is virtual.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import ssl
import threading
import urllib.parse
from dataclasses import dataclass
from typing import Any

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from world.kubernetes.kube_client import Json
from world.process.pki import Authority
from world.process.serving import Server

SIGNATURE_LIFE = 900
"""Seconds that AWS accepts a presigned GetCallerIdentity, whatever X-Amz-Expires says."""

CLOCK_SKEW = 300
"""Seconds that a request may come from the future."""

_STS_HOST = re.compile(r"sts(\.[a-z0-9-]+)?\.amazonaws\.com")


@dataclass(frozen=True)
class Identity:
    """The owner of an access key. `principal` is the role or user, with its path, as an access entry names it."""

    secret: str
    session_token: str | None
    account: str
    arn: str
    user_id: str
    principal: str
    session: str = ""


class Sts:
    """GetCallerIdentity, answered from moto's backends."""

    def __init__(self) -> None:
        self.fault: tuple[int, Json] | None = None
        """Status and body that every request gets instead of an answer, for an STS that fails."""
        self.answers: list[tuple[int, Json]] = []
        self._extra: dict[str, Identity] = {}

    def add(self, access_key: str, identity: Identity) -> None:
        """Makes a key known that moto did not issue."""
        self._extra[access_key] = identity

    def identity(self, access_key: str) -> Identity | None:
        """Returns the owner of the key, or None if the key was never issued."""
        return self._extra.get(access_key) or _session(access_key) or _user(access_key)

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, Json]:
        """Status and JSON body for a presigned `GET target`; `headers` have lower-case names."""
        status, body = self.fault or self._get_caller_identity(target, headers)
        self.answers.append((status, body))
        return status, body

    def _get_caller_identity(self, target: str, headers: dict[str, str]) -> tuple[int, Json]:
        url = urllib.parse.urlsplit(target)
        query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        value = dict(query)
        if value.get("Action") != "GetCallerIdentity":
            return _refusal(400, "InvalidAction", f"Could not find operation {value.get('Action')}")
        access_key, _, scope = value.get("X-Amz-Credential", "").partition("/")
        identity = self.identity(access_key)
        if identity is None or (identity.session_token or "") != value.get("X-Amz-Security-Token", ""):
            return _refusal(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
        unsigned = [(name, text) for name, text in query if name != "X-Amz-Signature"]
        signed_headers = value.get("X-Amz-SignedHeaders", "").split(";")
        date = value.get("X-Amz-Date", "")
        expected = _signature(identity.secret, url.path, unsigned, headers, signed_headers, scope, date)
        if not hmac.compare_digest(expected, value.get("X-Amz-Signature", "")):
            return _refusal(
                403,
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided.",
            )
        signed_at = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
        now = datetime.datetime.now(datetime.UTC)
        if not -CLOCK_SKEW <= (now - signed_at).total_seconds() <= SIGNATURE_LIFE:
            return _refusal(403, "SignatureDoesNotMatch", f"Signature expired: {date}")
        result = {"Arn": identity.arn, "UserId": identity.user_id, "Account": identity.account}
        response = {"GetCallerIdentityResult": result, "ResponseMetadata": {"RequestId": "local"}}
        return 200, {"GetCallerIdentityResponse": response}


def access_key_of(token: str) -> str | None:
    """The access key that signed an EKS token (`k8s-aws-v1.` + base64url of a presigned URL); None if it is no such token."""
    prefix, _, encoded = token.partition(".")
    if prefix != "k8s-aws-v1":
        return None
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    return query.get("X-Amz-Credential", "").partition("/")[0] or None


def issued_secrets() -> list[str]:
    """Secret keys and session tokens of every role session that moto handed out."""
    backends = [backend for account in list(sts_backends.values()) for backend in list(account.values())]
    roles = [role for backend in backends for role in list(backend.assumed_roles)]
    return [secret for role in roles for secret in (role.secret_access_key, role.session_token)]


def _session(access_key: str) -> Identity | None:
    """A role session that moto handed out."""
    for account_id, account in list(sts_backends.items()):
        for backend in list(account.values()):
            role = backend.get_assumed_role_from_access_key(access_key)
            if role:
                return Identity(
                    secret=role.secret_access_key,
                    session_token=role.session_token,
                    account=account_id,
                    arn=role.arn,
                    user_id=role.user_id,
                    principal=role.role_arn,
                    session=role.session_name,
                )
    return None


def _user(access_key: str) -> Identity | None:
    """An IAM user's key that moto handed out."""
    for account_id, account in list(iam_backends.items()):
        for backend in list(account.values()):
            for user in list(backend.users.values()):
                for key in user.access_keys:
                    if key.access_key_id == access_key:
                        return Identity(
                            secret=key.secret_access_key,
                            session_token=None,
                            account=account_id,
                            arn=user.arn,
                            user_id=user.id,
                            principal=user.arn,
                        )
    return None


def _refusal(status: int, code: str, message: str) -> tuple[int, Json]:
    return status, {"Error": {"Code": code, "Message": message, "Type": "Sender"}, "RequestId": "local"}


def _signature(
    secret: str,
    path: str,
    query: list[tuple[str, str]],
    headers: dict[str, str],
    signed_headers: list[str],
    scope: str,
    date: str,
) -> str:
    """Signature Version 4 of a presigned GET; `query` is everything but the signature itself."""
    canonical_query = "&".join(f"{_quote(name)}={_quote(text)}" for name, text in sorted(query))
    canonical_headers = [f"{name}:{headers.get(name, '').strip()}" for name in signed_headers]
    empty_body = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(["GET", path, canonical_query, *canonical_headers, "", ";".join(signed_headers), empty_body])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="-_.~")


class StsProxy:
    """The HTTPS proxy around `Sts`, on a free port of 127.0.0.1."""

    def __init__(self, sts: Sts, folder: pathlib.Path) -> None:
        """`folder`: for its authority and certificates."""
        authority = Authority(folder, "world-sts-authority")
        self.authority_file = authority.file
        self._server = Server(_handler(sts, authority))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Begins to answer."""
        self._server.start("sts-proxy")

    def stop(self) -> None:
        """Closes the port."""
        self._server.stop()


def _handler(sts: Sts, authority: Authority) -> type[http.server.BaseHTTPRequestHandler]:
    contexts: dict[str, ssl.SSLContext] = {}
    lock = threading.Lock()

    def context_for(host: str) -> ssl.SSLContext:
        with lock:
            if host not in contexts:
                certificate = authority.issue(host, hosts=[host])
                contexts[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                contexts[host].load_cert_chain(certificate.certificate, certificate.key)
            return contexts[host]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or every answer takes 40 ms more

        def do_CONNECT(self) -> None:
            host = self.path.rpartition(":")[0]
            if not _STS_HOST.fullmatch(host):
                self.send_error(403, f"no way to {host} from here")
                return
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                self.connection = context_for(host).wrap_socket(self.connection, server_side=True)
            except OSError:
                self.close_connection = True
                return
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", 0)
            self.close_connection = False

        def do_GET(self) -> None:
            status, body = sts.answer(self.path, {name.lower(): text for name, text in self.headers.items()})
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    return Handler
