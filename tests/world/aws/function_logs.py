"""The lines that functions have written, in their log groups, as FilterLogEvents reads them.

    FunctionLogs(host)
    aws.client("logs").filter_log_events(logGroupName="/aws/lambda/recycle-eks-claim-node")

The time of a line is that at which its invocation ended. The lines come into moto's log groups when they are first asked for,
because few scenarios ask.
"""

from __future__ import annotations

from typing import Any

from moto.logs.models import LogsBackend

from world.aws.lambda_host import LambdaHost
from world.aws.moto_internals import backend_of, moto_original
from world.aws.sandbox import Sandbox

#: The only log stream of each group.
STREAM = "world"


class FunctionLogs:
    """Writes the output of one host's functions."""

    def __init__(self, host: LambdaHost) -> None:
        self._host = host
        # The end of each invocation: the log group, the function, the virtual time in milliseconds, and the size of its output.
        self._ends: list[tuple[str, str, int, int]] = []
        # The bytes of each function's output that its log group has.
        self._written: dict[str, int] = {}
        host.on_answered.append(self._remember)
        host.aws.on_reset.append(self._forget)
        filter_log_events = moto_original(LogsBackend, "filter_log_events")

        def after_writing(backend: LogsBackend, *arguments: Any, **named: Any) -> Any:
            self._write()
            return filter_log_events(backend, *arguments, **named)

        LogsBackend.filter_log_events = after_writing

    def _remember(self, sandbox: Sandbox, *_: Any) -> None:
        function = sandbox.blueprint
        size = sandbox.log.stat().st_size
        self._ends.append((function.log_group, function.name, int(self._host.clock.now() * 1000), size))

    def _write(self) -> None:
        groups = backend_of("logs").groups
        ends, self._ends = self._ends, []
        for name, function, at, size in ends:
            group, begin = groups.get(name), self._written.get(function, 0)
            if group is None or size <= begin:
                continue
            self._written[function] = size
            with open(self._host.log_path(function), "rb") as log:
                log.seek(begin)
                lines = log.read(size - begin).decode(errors="replace").splitlines()
            if STREAM not in group.streams:
                group.create_log_stream(STREAM)
            group.put_log_events(STREAM, [{"timestamp": at, "message": line} for line in lines])

    def _forget(self) -> None:
        self._ends.clear()
        self._written.clear()
        for group in backend_of("logs").groups.values():
            group.streams.clear()
