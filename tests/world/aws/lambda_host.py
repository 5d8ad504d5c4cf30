"""Runs the functions that Terraform uploaded: the zip's `bootstrap` as a real process behind Lambda's Runtime API.

    host = LambdaHost(aws, clock, faults)
    answer = yield host.invoke("recycle-eks-claim-node:3", b"{}")       # in a process of the clock
    answer.payload, answer.function_error                               # or a ServiceError: answer.code, answer.status

An execution environment (`sandbox.py`) is one process with its own temporary credentials of the function's role, so that
every recorded call names the process that made it. It handles one request at a time and is used again, between
scenarios too, as long as function, version, code and configuration are the same.

The process runs in real time while the virtual clock stands still. Virtual time passes for it only through
`host.duration`, the latency of AWS calls and faults. Its time-out holds in both times.

Not supported: limits of memory and processor, layers, extensions, other architectures than this machine's.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from moto.awslambda.exceptions import UnknownFunctionException
from moto.awslambda.models import LambdaFunction
from moto.awslambda.utils import get_backend
from moto.sts.models import sts_backends

from world.aws.account import Aws
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.aws.moto_internals import READING
from world.aws.sandbox import Blueprint, InitFailed, Sandbox, timed_out
from world.aws.server import Answer, error_answer
from world.base.clock import Call, Clock, Process
from world.base.faults import INVOKE, Plan
from world.process.folders import temporary_folder
from world.stepfunctions.state_errors import ServiceError

# Developer guide, "How Lambda handles errors and retries with asynchronous invocation": "Lambda attempts to run the function
# two more times, with a one-minute wait before the first retry and two minutes before the second".
ASYNC_RETRY_AFTER = (60.0, 120.0)

# The time for which a function in a VPC is Pending: AWS's blog "Announcing improved VPC networking for AWS Lambda functions"
# (2019) gives up to 90 seconds for its network interfaces.
PENDING_SECONDS = 90.0


@dataclass(frozen=True)
class Invocation:
    """The function was reached; `function_error` is None or "Unhandled", the error is in the payload then."""

    payload: bytes
    function_error: str | None
    executed_version: str
    request_id: str


@dataclass(frozen=True)
class Sample:
    """One invocation, measured in real time."""

    function: str
    cold: bool
    init_ms: float
    duration_ms: float
    vm_hwm_kb: int | None


class LambdaHost:
    """All execution environments of the account."""

    def __init__(self, aws: Aws, clock: Clock, faults: Plan):
        self.aws = aws
        self.clock = clock
        self.faults = faults
        # Virtual seconds that an invocation takes, by function name.
        self.duration: dict[str, float] = {}
        # The limit of concurrent invocations of all functions, as in a new account. None means no limit.
        self.concurrency: int | None = None
        # Functions that Lambda has set to Inactive, and those that are Pending since they were called then.
        self.inactive: set[str] = set()
        self._pending: dict[str, float] = {}
        # Variables that a scenario sets instead of those that were deployed, by function name.
        self.variables: dict[str, dict[str, str]] = {}
        # The region that a scenario's processes take for theirs, by function name; REGION otherwise.
        self.regions: dict[str, str] = {}
        self.samples: list[Sample] = []
        # Called after each answer, with the process that gave it and the number of earlier calls when it was invoked.
        self.on_answered: list[Callable[[Sandbox, bytes, Invocation, int], None]] = []
        # The invocations in progress: (name, payload).
        self.at_work: list[tuple[str, bytes]] = []
        # Asynchronous invocations that failed for good: (function, payload, last answer).
        self.dropped: list[tuple[str, Any, Invocation | ServiceError]] = []
        self._folder = temporary_folder("lambda")
        self._lock = threading.Lock()
        self._idle: dict[Blueprint, list[Sandbox]] = {}
        self._busy: set[Sandbox] = set()
        self._running: Counter[str] = Counter()
        self._started = 0
        # A process dies with the *thread* that started it (PR_SET_PDEATHSIG), so one thread that lives as long as the
        # host starts them.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
        aws.invoke = self._answer_api
        aws.on_reset.append(self.reset)

    # Invoking

    def invoke(self, function: str, payload: Any) -> Call:
        """Returns a call that a process of the clock yields. Its result is an Invocation or a ServiceError.

        `function` is a name or an ARN, each with or without version or alias; `payload` is bytes, or a value for
        JSON.
        """
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()

        def start(call: Call) -> None:
            threading.Thread(
                target=lambda: call.answer(self._guarded(function, body, call)), daemon=True, name=f"invoke {function}"
            ).start()

        return Call(start, name=f"invoke {function}")

    def invoke_async(self, function: str, payload: Any) -> Process:
        """InvocationType Event: Lambda's queue runs it, and again if it fails."""
        return self.clock.spawn(self._until_it_succeeds(function, payload), name=f"asynchronous {function}")

    def _until_it_succeeds(self, function: str, payload: Any) -> Generator[Any, Any, Invocation | ServiceError]:
        answer = yield self.invoke(function, payload)
        for pause in ASYNC_RETRY_AFTER:
            if isinstance(answer, Invocation) and answer.function_error is None:
                return answer
            yield pause
            answer = yield self.invoke(function, payload)
        if isinstance(answer, ServiceError) or answer.function_error is not None:
            self.dropped.append((function, payload, answer))
        return answer

    def call(self, function: str, payload: bytes) -> Invocation | ServiceError:
        """Blocks until the answer is there; for threads that are not the clock's driver. No virtual time passes."""
        return self._guarded(function, payload, None)

    def _answer_api(self, function: str, payload: bytes, kind: str) -> Answer:
        """Invoke as a call of AWS's API, by a command line or another function."""
        if kind == "DryRun":
            return Answer(204, [("Content-Length", "0")], b"")
        if kind == "Event":
            self.invoke_async(function, payload)
            return Answer(202, [("Content-Length", "0")], b"")
        answer = self.call(function, payload)
        if isinstance(answer, ServiceError):
            return error_answer("rest-json", answer.code, answer.message, answer.status)
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(answer.payload))),
            ("X-Amz-Executed-Version", answer.executed_version),
            ("x-amzn-RequestId", answer.request_id),
        ]
        if answer.function_error:
            headers.append(("X-Amz-Function-Error", answer.function_error))
        return Answer(200, headers, answer.payload)

    def _guarded(self, function: str, payload: bytes, call: Call | None) -> Invocation | ServiceError:
        """One invocation under the fault plan and the function's reserved concurrency, and the account's."""
        try:
            blueprint, reserved = self._blueprint(function)
        except UnknownFunctionException as unknown:
            return ServiceError("ResourceNotFoundException", unknown.message or str(unknown), 404)
        fault = self.faults.consult(INVOKE, blueprint.name)
        if fault is not None and fault.when == "before":
            return ServiceError(fault.code, fault.message, fault.status)
        if (refusal := self._refusal_of_idle(blueprint.name)) is not None:
            return refusal
        with self._lock:
            is_full = self.concurrency is not None and self._running.total() >= self.concurrency
            if is_full or (reserved is not None and self._running[blueprint.name] >= reserved):
                return ServiceError("TooManyRequestsException", "Rate Exceeded.", 429)
            self._running[blueprint.name] += 1
        try:
            answer = self._run(blueprint, payload, call)
        finally:
            with self._lock:
                self._running[blueprint.name] -= 1
        if fault is not None:
            return ServiceError(fault.code, fault.message, fault.status)
        return answer

    def _refusal_of_idle(self, name: str) -> ServiceError | None:
        """Lambda developer guide, "Lambda function states": the first call of an Inactive function fails and makes it Pending,
        until its network interfaces are there again; calls until then fail, too. Codes: API reference, Invoke."""
        now = self.clock.elapsed()
        with self._lock:
            if name in self.inactive:
                self.inactive.discard(name)
                self._pending[name] = now + PENDING_SECONDS
                message = "The function is inactive and its VPC connection is no longer available."
                return ServiceError("ResourceNotReadyException", message, 502)
            if now < self._pending.get(name, now):
                message = (
                    "The operation cannot be performed at this time. The function is currently in the following state: Pending"
                )
                return ServiceError("ResourceConflictException", message, 409)
        return None

    def _run(self, blueprint: Blueprint, payload: bytes, call: Call | None) -> Invocation:
        request_id = self._request_id(blueprint)
        started = time.perf_counter()
        try:
            sandbox, cold = self._take(blueprint)
        except InitFailed as failed:
            return Invocation(failed.payload, "Unhandled", blueprint.version, request_id)
        sandbox.call = call
        duration = self.duration.get(blueprint.name, 0.0)
        calls_before = len(self.aws.calls)
        work = (blueprint.name, payload)
        self.at_work.append(work)
        try:
            error, answer = sandbox.handle(request_id, payload)
            if call is not None and sandbox.alive and duration:
                call.borrow(min(duration, blueprint.timeout))
            if duration > blueprint.timeout:
                sandbox.close()
                error, answer = "Unhandled", timed_out(request_id, blueprint.timeout)
            answered = Invocation(answer, error, blueprint.version, request_id)
            for report in self.on_answered:
                report(sandbox, payload, answered, calls_before)
        finally:
            self.at_work.remove(work)
            sandbox.call = None
            self._give_back(sandbox)
        self.samples.append(
            Sample(blueprint.name, cold, sandbox.init_ms, (time.perf_counter() - started) * 1e3, sandbox.vm_hwm_kb)
        )
        return answered

    def _request_id(self, blueprint: Blueprint) -> str:
        """The same in every run of a scenario: the number of the invocation."""
        with self._lock:
            self._started += 1
            seed = f"{blueprint.arn} {self._started}"
        digest = hashlib.sha256(seed.encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"

    # Environments

    def _take(self, blueprint: Blueprint) -> tuple[Sandbox, bool]:
        with self._lock:
            idle = self._idle.get(blueprint, [])
            while idle:
                sandbox = idle.pop()
                if sandbox.alive:
                    self._busy.add(sandbox)
                    return sandbox, False
        sandbox = self._sandbox(blueprint)
        with self._lock:
            self._busy.add(sandbox)
        try:
            sandbox.start()
        except InitFailed:
            self._give_back(sandbox)
            raise
        return sandbox, True

    def _sandbox(self, blueprint: Blueprint) -> Sandbox:
        return Sandbox(self.aws, blueprint, self.log_path(blueprint.name), self.spawn)

    def _give_back(self, sandbox: Sandbox) -> None:
        with self._lock:
            was_busy = sandbox in self._busy
            self._busy.discard(sandbox)
            if sandbox.alive and was_busy:
                self._idle.setdefault(sandbox.blueprint, []).append(sandbox)
                return
        sandbox.close()

    def sandbox(self, function: str) -> Sandbox:
        """Starts an environment for measurements. It gets no invocation, and its owner closes it."""
        sandbox = self._sandbox(self._blueprint(function)[0])
        sandbox.start(wrapper=())
        return sandbox

    def become_cold(self) -> None:
        """Ends the warm processes, with what they remember, so that each function's next invocation starts one."""
        with self._lock:
            warm = [sandbox for sandboxes in self._idle.values() for sandbox in sandboxes]
            self._idle.clear()
        for sandbox in warm:
            sandbox.close()

    def reset(self) -> None:
        """Resets the host between scenarios: ends busy and outdated processes, keeps warm ones, forgets logs and samples."""
        self.variables.clear()
        self.regions.clear()
        with self._lock:
            doomed = list(self._busy)
            self._busy.clear()
            for blueprint, sandboxes in list(self._idle.items()):
                kept = [s for s in sandboxes if s.alive and self._is_current(s)]
                doomed += [s for s in sandboxes if s not in kept]
                self._idle[blueprint] = kept
        for sandbox in doomed:
            sandbox.close()
        self.duration.clear()
        self.samples.clear()
        self.dropped.clear()
        self.concurrency = None
        self.inactive.clear()
        self._pending.clear()
        self._started = 0
        for log in self._folder.glob("*.log"):
            os.truncate(log, 0)

    def _is_current(self, sandbox: Sandbox) -> bool:
        with READING:
            known = sts_backends[ACCOUNT][PARTITION].get_assumed_role_from_access_key(sandbox.access_key)
        try:
            return known is not None and self._blueprint(sandbox.blueprint.arn)[0] == sandbox.blueprint
        except UnknownFunctionException:
            return False

    def stop(self) -> None:
        """Ends every process and removes every file."""
        with self._lock:
            sandboxes = [*self._busy, *(s for warm in self._idle.values() for s in warm)]
            self._busy.clear()
            self._idle.clear()
        for sandbox in sandboxes:
            sandbox.close()
        self._spawner.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def logs(self, function: str) -> str:
        """Returns the output of the function's processes since the last reset."""
        log = self.log_path(function)
        return log.read_text(errors="replace") if log.exists() else ""

    def functions_with_logs(self) -> list[str]:
        """The functions that have run since this host began."""
        return sorted(log.stem for log in self._folder.glob("*.log"))

    def log_path(self, function: str) -> Path:
        return self._folder / f"{function}.log"

    # The data of a function in moto

    def _blueprint(self, function: str) -> tuple[Blueprint, int | None]:
        """Blueprint and reserved concurrency of a function's version."""
        with READING:
            found: LambdaFunction = get_backend(ACCOUNT, REGION).get_function(function)
            logging_config = getattr(found, "logging_config", None) or {}
            version = str(found.version)
            blueprint = Blueprint(
                name=found.function_name,
                version=version,
                arn=found.function_arn,
                role=found.role,
                timeout=int(found.timeout),
                memory=int(found.memory_size),
                handler=found.handler or "bootstrap",
                environment=tuple(sorted({**found.environment_vars, **self.variables.get(found.function_name, {})}.items())),
                log_format=logging_config.get("LogFormat", "Text"),
                log_group=logging_config.get("LogGroup", found.logs_group_name),
                region=self.regions.get(found.function_name, REGION),
                code=self._unpacked(found),
            )
            latest = get_backend(ACCOUNT, REGION).get_function(found.function_name)
            reserved = latest.reserved_concurrency
        return blueprint, None if reserved is None else int(reserved)

    def _unpacked(self, function: LambdaFunction) -> Path:
        """The folder with the code, unpacked once for each hash."""
        folder = self._folder / "code" / function.code_digest.replace("sha256:", "")
        if folder.exists():
            return folder
        partial = folder.with_suffix(".partial")
        with zipfile.ZipFile(BytesIO(function.code_bytes)) as archive:
            for entry in archive.infolist():
                path = Path(archive.extract(entry, partial))
                mode = entry.external_attr >> 16
                if not entry.is_dir():
                    path.chmod(mode & 0o777 if mode else 0o755)
        partial.rename(folder)
        return folder

    def spawn(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process in its own group, because a Ctrl-C in the terminal must not reach functions."""
        return self._spawner.submit(subprocess.Popen, command, process_group=0, **options).result()
