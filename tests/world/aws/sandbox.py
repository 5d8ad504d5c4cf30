"""One execution environment of Lambda: a process, the Runtime API that it asks for work, its credentials.

`lambda_host.py` decides which function gets one, and what it is asked.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from world.aws.account import Aws
from world.base.clock import Call
from world.process.processes import DIES_WITH_ITS_PARENT
from world.process.serving import Server, read_body

# AWS Lambda quotas: the init phase is limited to 10 s.
INIT_SECONDS = 10.0

# Real seconds that this machine may take for it: it is no Lambda, and several sessions may share its cores.
INIT_PATIENCE = 120.0

# Lambda sets this path. The configuration of a function cannot override it.
SEARCH_PATH = "/usr/local/bin:/usr/bin/:/bin:/opt/bin"

# The names that Lambda (a Go program) gives the signals that end a process.
SIGNALS = {
    signal.SIGKILL: "killed",
    signal.SIGABRT: "aborted",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGTERM: "terminated",
    signal.SIGILL: "illegal instruction",
}

#: Starts a process, from a thread that outlives it.
Spawn = Callable[..., subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Blueprint:
    """The basis of an execution environment. Two equal ones can use the same process."""

    name: str
    version: str
    arn: str
    role: str
    timeout: int
    memory: int
    handler: str
    environment: tuple[tuple[str, str], ...]
    log_format: str
    log_group: str
    region: str
    code: Path


class InitFailed(Exception):
    """The process never asked for its first request; the payload says why."""

    def __init__(self, payload: bytes):
        super().__init__(payload.decode(errors="replace"))
        self.payload = payload


class Sandbox:
    """One execution environment: a process, its Runtime API, its credentials. It is a `faults.Caller`."""

    def __init__(self, aws: Aws, blueprint: Blueprint, log: Path, spawn: Spawn):
        """`log` gets the output of the process."""
        self.aws = aws
        self.blueprint = blueprint
        self.log = log
        self._spawn = spawn
        self.function = blueprint.name
        self.call: Call | None = None
        self.alive = False
        self.init_ms = 0.0
        self.vm_hwm_kb: int | None = None
        self.access_key = ""
        self._requests: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._answers: queue.Queue[tuple[str | None, bytes]] = queue.Queue()
        self._request_id = ""
        self._ready = threading.Event()
        self._init_error: bytes | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._server: _RuntimeApi | None = None
        self._loans = 0
        self._loaned = 0.0
        self._closing = threading.Lock()
        self._closed = False

    # Life

    def start(self, wrapper: Sequence[str] = DIES_WITH_ITS_PARENT) -> None:
        """Starts the process and waits for its first request for work. Raises InitFailed."""
        bootstrap = self.blueprint.code / "bootstrap"
        if not os.access(bootstrap, os.X_OK):
            raise InitFailed(
                error_payload(
                    "Runtime.InvalidEntrypoint",
                    "Error: Couldn't find valid bootstrap(s): [/var/task/bootstrap /opt/bootstrap]",
                )
            )
        self._server = _RuntimeApi(self)
        self._server.start(f"runtime {self.function}")
        key, secret, token = self._credentials()
        self.access_key = key
        self.aws.callers[key] = self
        started = time.perf_counter()
        with open(self.log, "ab") as log:
            self._process = self._spawn(
                [*wrapper, str(bootstrap)],
                env=self._environment(key, secret, token),
                cwd=self.blueprint.code,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.alive = True
        threading.Thread(target=self._watch, name=f"watch {self.function}", daemon=True).start()
        ready = self._ready.wait(INIT_PATIENCE)
        self.init_ms = (time.perf_counter() - started) * 1e3
        if self._init_error is not None or not self.alive or not ready:
            payload = (
                self._init_error or self._exit_error("")
                if ready
                else error_payload("Sandbox.Timedout", f"Init timed out after {INIT_SECONDS:.2f} seconds")
            )
            self.close()
            raise InitFailed(payload)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _credentials(self) -> tuple[str, str, str]:
        """Temporary credentials of the function's role, as Lambda assumes it: the session is named after the function."""
        return self.aws.session(self.blueprint.role, self.function)

    def _environment(self, key: str, secret: str, token: str) -> dict[str, str]:
        """Exactly what Lambda sets; nothing of this machine's environment is inherited.

        AWS_EXECUTION_ENV "is not defined for functions that use the provided.al2 or provided.al2023 runtimes"
        (developer guide).
        """
        blueprint = self.blueprint
        return {
            **dict(blueprint.environment),
            "PATH": SEARCH_PATH,
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "LAMBDA_TASK_ROOT": str(blueprint.code),
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "_HANDLER": blueprint.handler,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": blueprint.name,
            "AWS_LAMBDA_FUNCTION_VERSION": blueprint.version,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(blueprint.memory),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_FORMAT": blueprint.log_format,
            "AWS_LAMBDA_LOG_GROUP_NAME": blueprint.log_group,
            "AWS_LAMBDA_LOG_STREAM_NAME": f"world/[{blueprint.version}]{key}",
            "AWS_REGION": blueprint.region,
            "AWS_DEFAULT_REGION": blueprint.region,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": token,
            "AWS_ENDPOINT_URL": self.aws.endpoint,
        }

    def _watch(self) -> None:
        self._process.wait()
        self.alive = False
        self._answers.put(("Unhandled", self._exit_error(self._request_id)))
        self._ready.set()

    def _exit_error(self, request_id: str) -> bytes:
        status = self._process.poll()
        if status is None or status == 0:
            reason = "Runtime exited without providing a reason"
        elif status < 0:
            reason = f"Runtime exited with error: signal: {SIGNALS.get(-status, -status)}"
        else:
            reason = f"Runtime exited with error: exit status {status}"
        return error_payload("Runtime.ExitError", f"RequestId: {request_id} Error: {reason}")

    def close(self) -> None:
        """Ends the process. Its pending calls to AWS get no answer."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self.aws.callers.pop(self.access_key, None)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.alive = False
        self._requests.put(None)
        if self._server is not None:
            self._server.stop()

    # Handling one request

    def handle(self, request_id: str, payload: bytes) -> tuple[str | None, bytes]:
        """Function error and payload. The time-out is in real seconds, but for those in which virtual time passed."""
        self._request_id = request_id
        self._loaned = 0.0
        deadline = time.monotonic() + self.blueprint.timeout
        self._requests.put((request_id, payload))
        while True:
            try:
                error, answer = self._answers.get(timeout=max(deadline + self._loaned - time.monotonic(), 0.01))
                break
            except queue.Empty:
                if self._loans == 0 and time.monotonic() > deadline + self._loaned:
                    self.close()
                    return "Unhandled", timed_out(request_id, self.blueprint.timeout)
        self.vm_hwm_kb = _vm_hwm_kb(self._process.pid)
        return error, answer

    def next_request(self) -> tuple[str, bytes] | None:
        self._ready.set()
        return self._requests.get()

    def answered(self, request_id: str, error: str | None, payload: bytes) -> None:
        if request_id == self._request_id:
            self._answers.put((error, payload))

    def init_failed(self, payload: bytes) -> None:
        self._init_error = payload
        self._ready.set()

    # faults.Caller

    def kill(self) -> None:
        self.close()

    def time_out(self) -> None:
        self.wait(self.blueprint.timeout)
        # Before the answer, or the next invocation may be given this process.
        self.alive = False
        self._answers.put(("Unhandled", timed_out(self._request_id, self.blueprint.timeout)))
        self.close()

    def wait(self, seconds: float) -> None:
        call = self.call
        if call is None or seconds <= 0:
            return
        started = time.monotonic()
        self._loans += 1
        try:
            call.borrow(seconds)
        finally:
            self._loaned += time.monotonic() - started
            self._loans -= 1


def timed_out(request_id: str, seconds: float) -> bytes:
    return error_payload("Sandbox.Timedout", f"RequestId: {request_id} Error: Task timed out after {seconds:.2f} seconds")


def error_payload(error_type: str, message: str) -> bytes:
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()


def _vm_hwm_kb(pid: int) -> int | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


# The Runtime API, https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html


class _RuntimeApi(Server):
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        super().__init__(_RuntimeHandler)


class _RuntimeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _RuntimeApi

    def do_GET(self) -> None:
        """/runtime/invocation/next: blocks until there is a request."""
        sandbox = self.server.sandbox
        request = sandbox.next_request()
        if request is None:
            self.close_connection = True
            return
        request_id, payload = request
        deadline = int((time.time() + sandbox.blueprint.timeout) * 1000)
        self._reply(
            200,
            payload,
            {
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": sandbox.blueprint.arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        """/runtime/invocation/{id}/response, /runtime/invocation/{id}/error, /runtime/init/error"""
        body = read_body(self)
        found = re.search(r"/runtime/invocation/([^/]+)/(response|error)$", self.path)
        if found:
            self.server.sandbox.answered(found[1], "Unhandled" if found[2] == "error" else None, body)
        elif self.path.endswith("/runtime/init/error"):
            self.server.sandbox.init_failed(body)
        self._reply(202, b'{"status":"OK"}', {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass
