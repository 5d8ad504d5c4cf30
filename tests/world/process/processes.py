"""Processes: starting them so that they end with their parent, and looking at them from outside, by the kernel's tables."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

#: Real seconds after which a command counts as hung. Shorter than the timeout of pytest (`timeout` in pytest.ini), which would
#: lose the output of the command. Seconds in which an aborted Python process writes the stacks of its threads.
HUNG, FAREWELL = 400.0, 10.0

DIES_WITH_ITS_PARENT = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]
"""Before a command: the kernel kills it when the thread that started it ends. SIGKILL, as the API server takes a minute to end
once etcd is gone.

Not by `preexec_fn`, which runs Python between fork and exec: a lock that another thread holds at that moment, such as the dynamic
linker's, is never released in the child, and the start hangs. Without it, Python uses vfork, which also costs less."""


def never_outlives(parent: int, command: Sequence[str]) -> list[str]:
    """Returns the command, wrapped so that the kernel kills it with its parent. It does not begin if its parent is gone,
    because a parent may be killed before `setpriv` has asked the kernel."""
    return [*DIES_WITH_ITS_PARENT, "sh", "-c", f'[ "$PPID" = {parent} ] && exec "$@"', "sh", *command]


def run_to_its_end(
    command: Sequence[str],
    cwd: pathlib.Path,
    patience: float = HUNG,
    environment: Mapping[str, str] = os.environ,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Runs a command and captures its output. If it hangs, the error has its output and the stacks of Python's threads."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**environment, "PYTHONFAULTHANDLER": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        process_group=0,
    ) as process:
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(FAREWELL)
            _end_group(process)
            out, err = process.communicate()
            raise AssertionError(f"{shlex.join(command)} hangs: within {patience:g} s it printed\n{out}\n{err or ''}") from None
        except BaseException:
            _end_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end_group(process: subprocess.Popen[str]) -> None:
    """The children, too: they hold its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def eventually(holds: Callable[[], bool]) -> bool:
    """Checks whether a condition becomes true within a real minute. Usually it takes milliseconds."""
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def is_running(pid: int) -> bool:
    """Checks whether a process exists and is not a zombie."""
    return _status(pid)[0] not in ("", "Z")


def thread_states(pid: int) -> list[str]:
    """The kernel's letter for the state of each thread of a process: T is stopped."""
    stats = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


def descendants(pid: int) -> set[int]:
    """The children of a process, theirs, and so on."""
    parent_of = {int(path.name): int(_status(int(path.name))[1] or 0) for path in pathlib.Path("/proc").glob("[0-9]*")}
    found: set[int] = set()
    grown = {pid}
    while grown:
        grown = {child for child, parent in parent_of.items() if parent in grown}
        found |= grown
    return found


def _status(pid: int) -> tuple[str, str]:
    """State and parent; empty texts if there is no such process."""
    try:
        state, parent, *_ = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return state, parent


def listening_addresses(pids: Iterable[int]) -> list[str]:
    """The addresses on which processes listen, by the kernel's tables."""
    inodes = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except FileNotFoundError:
                # Closed since the folder was read.
                continue
            if target.startswith("socket:["):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                in_hex = fields[1].partition(":")[0]
                reversed_bytes = bytes.fromhex(in_hex)[::-1]
                addresses.append(".".join(str(byte) for byte in reversed_bytes) if len(in_hex) == 8 else in_hex)
    return addresses
