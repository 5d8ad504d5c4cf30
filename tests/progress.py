"""A pytest plugin for `run.py`: names a failed test at once, shows the running tests in silence, reports the time of each test
and folder, and ends a hang.

With several workers it runs in the process that distributes the tests, which gets the start and the end of each test. Each worker
measures the processor time of its tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

#: Real seconds between two signs of life.
EVERY = 30.0
#: Real seconds in which no test has begun or ended: longer than any test may take (`timeout` in pytest.ini), and its fixtures.
PATIENCE = 1200.0
#: Real seconds for pytest's own farewell.
FAREWELL = 30.0
#: The environment variable with the name of the result file for `run.py`.
REPORT = "RECYCLE_EKS_REPORT"
#: The output of this process, which pytest does not capture: plugins are imported before capturing starts.
OUTPUT = os.fdopen(os.dup(1), "w", buffering=1)


#: The name of a test's processor time in its report.
PROCESSOR = "processor seconds"
#: The processor time of this process and its descendants at the end of the last test.
_spent = 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    global _spent
    report = yield
    if call.when == "teardown":
        before, _spent = _spent, _processor_time(os.getpid())
        report.user_properties.append((PROCESSOR, _spent - before))
    return report


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(), "progress-of-all")


class Progress:
    """The tests of one run."""

    def __init__(self) -> None:
        self._at_work: dict[str, float] = {}
        self._seconds: dict[str, float] = defaultdict(float)
        self._processor: dict[str, float] = defaultdict(float)
        self._outcomes: dict[str, str] = {}
        self._total = 0
        self._last_event = time.monotonic()
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._watch, name="progress", daemon=True).start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._at_work[nodeid] = self._last_event = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._at_work.pop(nodeid, None)
        self._last_event = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        self._processor[report.nodeid] += dict(report.user_properties).get(PROCESSOR, 0.0) if report.when == "teardown" else 0.0
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            OUTPUT.write(f"\nfailed: {report.nodeid}: {_cause(report)}\n")
        elif report.when == "call":
            self._outcomes.setdefault(report.nodeid, report.outcome)

    def pytest_sessionfinish(self) -> None:
        self._ended.set()
        if path := os.environ.get(REPORT):
            Path(path).write_text(json.dumps({"folders": self._folders(), "tests": self._tests()}))

    def _folders(self) -> dict[str, dict[str, float]]:
        folders: dict[str, dict[str, float]] = {}
        for test, outcome in sorted(self._outcomes.items()):
            folder = folders.setdefault(re.split("[/:]", test)[0], {"passed": 0, "failed": 0, "seconds": 0})
            folder[outcome] = folder.get(outcome, 0) + 1
            folder["seconds"] += self._seconds[test]
        return folders

    def _tests(self) -> list[tuple[float, float, str]]:
        """The seconds of each test, of them processor time on all cores, and its name; the slowest test first."""
        return sorted(((seconds, self._processor[test], test) for test, seconds in self._seconds.items()), reverse=True)

    # While nothing is printed

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            OUTPUT.write(f"\n{len(self._outcomes)} of {self._total} tests done; at work: {', '.join(self._lines())}\n")
            if time.monotonic() - self._last_event > PATIENCE:
                OUTPUT.write(f"no test has begun or ended for {PATIENCE:.0f} seconds: this run hangs and is ended\n")
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(FAREWELL)
                os._exit(3)

    def _lines(self) -> Iterator[str]:
        now = time.monotonic()
        yield from (f"{test} ({now - begun:.0f} s)" for test, begun in list(self._at_work.items()))


def _processor_time(ancestor: int) -> float:
    """The processor seconds of a process and its descendants, also of those that ended. Zero if the kernel has no such tables."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name in parentheses, which may contain spaces: the state, the parent, and further on four times.
            _, parent, *fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            children[int(parent)].append(process)
            ticks[process] = sum(map(int, fields[9:13]))
    family = [ancestor]
    for process in family:
        family += children[process]
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def _cause(report: pytest.TestReport) -> str:
    """Returns the first line of the error, cut."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return text.partition("\n")[0][:300]
