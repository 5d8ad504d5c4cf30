"""The command line in the world: the real binary in its own process. Its AWS is this world, and virtual time goes on.

    ended = cli("recycle", node.name)              to its end
    assert ended.code == 0 and "recycled" in ended.text

    watching = cli.start("status", "--watch")      step by step
    watching.sees("draining")
    watching.is_interrupted().code                 Ctrl-C

    terminal = cli.opens("status", "--watch")      in a real terminal, of tmux
    cli.lets_pass(600)
    terminal.shows("draining")

Between two updates of the command line `pace` virtual seconds pass. It reads the time from a file (RECYCLE_EKS_CLOCK), because
its own clock is the machine's.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_page import BINARY
from world.process.folders import temporary_folder
from world.process.terminal import Terminal
from world.world import World

#: Real seconds between two updates of the command line, between two checks whether it has updated, and until the world stops
#: waiting for an update.
LOOK, STEP, LOST = 0.03, 0.005, 2.0
#: A rotation's watch reads its groups and the cluster once in so many checks (`CHECKS` in crates/cli/src/aws/rotations.rs).
CHECKS = 6
#: Real seconds without output until a test fails that waits for an end or a text. Shorter than the timeout of pytest (`timeout`
#: in pytest.ini), and long enough for a busy machine.
PATIENCE = 300.0
#: Rows and columns of a terminal.
TERMINAL = (40, 130)
#: The escape sequences of a terminal.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Printed:
    """The result of an invocation."""

    code: int
    text: str
    """Standard output."""
    errors: str
    """Standard error."""

    @property
    def document(self) -> Any:
        """The last document of `--output json`."""
        return json.loads(self.text.splitlines()[-1])


class Cli:
    """Starts it."""

    def __init__(self, world: World, folder: Path, look_again: float) -> None:
        self._world, self._folder, self._look_again = world, folder, look_again
        self._clock = folder / "clock"
        self._running: list[Running | Terminal] = []
        self._looked = 0

    def environment(self) -> dict[str, str]:
        """Returns the whole environment, without the AWS configuration of this machine."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        return {**own, **self._world.operators_environment(), **self.settings()}

    def settings(self) -> dict[str, str]:
        """Returns what makes a command line follow virtual time."""
        return {"RECYCLE_EKS_CLOCK": str(self._clock), "RECYCLE_EKS_CHECK_AGAIN_SECONDS": str(self._look_again)}

    def __call__(self, *arguments: str, **options: Any) -> Printed:
        return self.start(*arguments, **options).ends()

    def start(self, *arguments: str, pace: float = 60, terminal: bool = False, **environment: str | None) -> Running:
        """`environment` is laid over the usual one; None takes a variable away."""
        merged = {name: value for name, value in {**self.environment(), **environment}.items() if value is not None}
        running = Running(self.lets_pass, [str(BINARY), *arguments], merged, pace, terminal)
        self._running.append(running)
        return running

    def in_a_shell(self, script: str, pace: float = 60, **environment: str) -> Running:
        """Runs a command in bash; `recycle-eks` is the binary. `environment` is laid over the usual one."""
        path = f"{BINARY.parent}:{environment.pop('PATH', os.environ['PATH'])}"
        command = ["bash", "-o", "pipefail", "-c", script]
        running = Running(self.lets_pass, command, {**self.environment(), **environment, "PATH": path}, pace, terminal=False)
        self._running.append(running)
        return running

    def opens(self, *arguments: str, columns: int = 104, rows: int = 40) -> Terminal:
        """Starts the command line in a real terminal. Only `lets_pass` lets time pass."""
        self.writes_time()
        folder = self._folder / f"terminal-{len(self._running)}"
        folder.mkdir()
        terminal = Terminal([str(BINARY), *arguments], self.environment(), folder, columns, rows)
        self._running.append(terminal)
        return terminal

    def lets_pass(self, seconds: float, by_others: bool = False) -> None:
        """Lets so much virtual time pass, and waits a moment for every running command line."""
        clock = self._world.clock
        clock.run(limit=clock.elapsed() + seconds)
        self.writes_time()
        self._wait_for_a_look(by_others)

    def writes_time(self) -> None:
        """Writes the virtual time into the file that the command line reads."""
        now = datetime.datetime.fromtimestamp(self._world.clock.now(), datetime.UTC)
        fresh = self._clock.with_suffix(".fresh")
        fresh.write_text(now.isoformat())
        fresh.replace(self._clock)

    def _wait_for_a_look(self, by_others: bool) -> None:
        """Waits for a call from outside the functions, or until LOST is over, because the command line may be about to end."""
        end = time.monotonic() + LOST
        while self._looks() == self._looked and time.monotonic() < end:
            if not by_others and not any(running.is_under_way for running in self._running):
                break
            time.sleep(STEP)
        self._looked = self._looks()

    def looks_again(self) -> None:
        """Waits, while time stands still, until the command line has read everything anew, and has drawn it."""
        begin, end = len(self._calls()), time.monotonic() + PATIENCE
        while any(running.is_under_way for running in self._running):
            again = Counter((call.action, str(call.parameters)) for call in self._calls()[begin:])
            if max(again.values(), default=0) > CHECKS + 1:
                return
            if time.monotonic() > end:
                raise AssertionError(f"the command line has made no round of calls in {PATIENCE:.0f} s: {again}")
            time.sleep(STEP)

    def _calls(self) -> list[Any]:
        return [call for call in list(self._world.aws.calls) if call.function is None]

    def _looks(self) -> int:
        return len(self._calls())

    def stop(self) -> None:
        """Ends those that still run."""
        for running in self._running:
            running.stop()


class Running:
    """An invocation that has begun."""

    def __init__(
        self, step: Callable[[float], None], command: list[str], environment: dict[str, str], pace: float, terminal: bool
    ) -> None:
        self._step, self._pace = step, pace
        self._out: list[str] = []
        self._err: list[str] = []
        step(0)
        if terminal:
            own, its = pty.openpty()
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", *TERMINAL, 0, 0))
            self._process = subprocess.Popen(command, env=environment, stdin=its, stdout=its, stderr=subprocess.PIPE)
            os.close(its)
            out = own
        else:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out = self._process.stdout.fileno()
        self._readers = [
            threading.Thread(target=_read, args=each, daemon=True)
            for each in [(out, self._out), (self._process.stderr.fileno(), self._err)]
        ]
        for reader in self._readers:
            reader.start()

    @property
    def is_under_way(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def text(self) -> str:
        """Standard output so far, without a terminal's escapes."""
        return ESCAPES.sub("", "".join(self._out)).replace("\r", "")

    @property
    def raw(self) -> str:
        """The same with them."""
        return "".join(self._out)

    def sees(self, text: str) -> None:
        """Lets time pass until it has shown this."""
        for _ in self._while_it_runs():
            if text in self.text:
                return
        raise AssertionError(f"it has ended without showing {text!r}:\n{self.text}\n{''.join(self._err)}")

    def ends(self, pace: float | None = None) -> Printed:
        """Lets time pass until it has ended, from here on at a pace of its own if one is given."""
        self._pace = self._pace if pace is None else pace
        for _ in self._while_it_runs():
            pass
        for reader in self._readers:
            reader.join(PATIENCE)
        return Printed(self._process.returncode, self.text, "".join(self._err))

    def is_interrupted(self) -> Printed:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        return self.ends()

    def _while_it_runs(self) -> Iterator[None]:
        before, end = -1, 0.0
        while self._process.poll() is None:
            if (came := len(self._out) + len(self._err)) != before:
                before, end = came, time.monotonic() + PATIENCE
            if time.monotonic() > end:
                raise AssertionError(f"nothing more came within {PATIENCE:g} real seconds:\n{self.text}\n{''.join(self._err)}")
            self._step(self._pace)
            yield
        yield

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _read(descriptor: int, into: list[str]) -> None:
    # A terminal whose other side was closed is an error, not an end.
    with contextlib.suppress(OSError):
        while chunk := os.read(descriptor, 65_536):
            into.append(chunk.decode(errors="replace"))


@contextlib.contextmanager
def command_line(world: World, look_again: float = LOOK) -> Iterator[Cli]:
    """Returns a command line for the fixture `cli` and the demo, with the real seconds between two of its updates."""
    folder = temporary_folder("cli")
    cli = Cli(world, folder, look_again)
    try:
        yield cli
    finally:
        cli.stop()
        shutil.rmtree(folder)
