"""ministack, an independent emulation of AWS with its own interpreter of state machines, in a separate process.

Its functions have no logic: each invocation asks this process, which has the script of the execution.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3

from contract.scripts import INPUT, Script, Walk
from prepare import LAMBDAS, install_python
from world.kubernetes.control_plane import free_ports
from world.process.folders import temporary_folder
from world.process.processes import never_outlives
from world.stepfunctions.in_memory import FunctionFailed

HERE = Path(__file__).resolve().parent
ACCOUNT, REGION = "123456789012", "eu-west-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/anyone"

#: Real seconds, for a start and for one walk. Both take about one.
START_LIMIT, WALK_LIMIT = 60, 60


class Ministack:
    """One ministack with the functions of recycle-eks, on 127.0.0.1."""

    def __init__(self) -> None:
        self.folder = temporary_folder("ministack")
        self._scripts: dict[str, Script] = {}
        self._machines: dict[str, str] = {}
        self._questions = _Questions(self._scripts)
        threading.Thread(target=self._questions.serve_forever, daemon=True).start()
        port = self._start()
        keys = {"aws_access_key_id": ACCOUNT, "aws_secret_access_key": "any", "region_name": REGION}
        session = boto3.Session(**keys)
        self._functions = session.client("lambda", endpoint_url=f"http://127.0.0.1:{port}")
        self._executions = session.client("stepfunctions", endpoint_url=f"http://127.0.0.1:{port}")
        self._create_functions()

    def _start(self) -> int:
        """Returns its port. If another process takes the free port before ministack does, ministack gets another one."""
        for attempt in (1, 2):
            (port,) = free_ports(1)
            self.process = self._launch(port)
            try:
                self._wait_until_ready(f"http://127.0.0.1:{port}/_ministack/health")
                break
            except RuntimeError:
                self.process.kill()
                self.process.wait()
                if attempt == 2:
                    raise
        return port

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        python = install_python(HERE / "requirements.txt", "second-interpreter")
        settings = {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "IOT_MTLS_ENABLED": "0",  # it would listen on a port of its own
            "LOG_LEVEL": "WARNING",
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "SFN_WAIT_SCALE": "0",  # Wait states and retries take no time
            "SFTP_ENABLED": "0",
            "TMPDIR": str(self.folder),
        }
        log = (self.folder / "log").open("wb")
        return subprocess.Popen(
            never_outlives(os.getpid(), [python, "-m", "ministack"]),
            env={"PATH": os.environ["PATH"], **settings},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def _wait_until_ready(self, url: str) -> None:
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"ministack did not start:\n{(self.folder / 'log').read_text()}") from None
                time.sleep(0.05)

    def _create_functions(self) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr("bootstrap", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ES "$LAMBDA_TASK_ROOT/function.py"\n')
            out.write(HERE / "function.py", "function.py")
        answers = "{}:{}".format(*self._questions.server_address)
        for name in LAMBDAS:
            self._functions.create_function(
                FunctionName=name,
                Runtime="provided.al2023",
                Handler="bootstrap",
                Role=ROLE,
                Code={"ZipFile": archive.getvalue()},
                Environment={"Variables": {"ANSWERS": answers}},
                Timeout=30,
                Publish=True,
            )

    def follow(self, script: Script, definition: dict[str, Any]) -> Walk:
        """Runs a definition after a script."""
        end = self.describe(script, definition)
        events = self._executions.get_execution_history(executionArn=end["executionArn"], maxResults=1000)["events"]
        path = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
        output = json.loads(end["output"]) if end["status"] == "SUCCEEDED" else None
        return Walk(path, end["status"], end.get("error"), end.get("cause"), output)

    def describe(self, script: Script, definition: dict[str, Any]) -> dict[str, Any]:
        """Runs a definition after a script; the answer of DescribeExecution."""
        name = uuid.uuid4().hex
        self._scripts[name] = script
        started = self._executions.start_execution(stateMachineArn=self._machine(definition), name=name, input=json.dumps(INPUT))
        deadline = time.monotonic() + WALK_LIMIT
        while (end := self._executions.describe_execution(executionArn=started["executionArn"]))["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise TimeoutError(f"still running; asked so far: {script.calls()}")
            time.sleep(0.05)
        return end

    def _machine(self, definition: dict[str, Any]) -> str:
        text = json.dumps(definition)
        if text not in self._machines:
            name = f"recycle-node-{len(self._machines)}"
            made = self._executions.create_state_machine(name=name, definition=text, roleArn=ROLE)
            self._machines[text] = made["stateMachineArn"]
        return self._machines[text]

    def stop(self) -> None:
        """Ends the functions, whose processes ministack does not end, and then the process itself."""
        try:
            for name in LAMBDAS:
                self._functions.delete_function(FunctionName=name)
        finally:
            self.process.kill()
            self.process.wait()
            self._questions.shutdown()
            self._questions.server_close()
            shutil.rmtree(self.folder)


class _Questions(ThreadingHTTPServer):
    """Answers the functions out of the scripts of their executions. One at a time, as scripts are no friends of threads."""

    daemon_threads = True

    def __init__(self, scripts: dict[str, Script]) -> None:
        super().__init__(("127.0.0.1", 0), _Question)
        self.scripts = scripts
        self.lock = threading.Lock()

    def answer(self, function: str, request: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            try:
                return self.scripts[request["context"]["Execution"]["Name"]].answer(function, request)
            except FunctionFailed as failed:
                return {"errorMessage": str(failed), "errorType": failed.error_type}


class _Question(BaseHTTPRequestHandler):
    server: _Questions

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.answer(self.path.removeprefix("/"), request)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
