"""The world's clock: virtual time, and the scheduler of all processes that take virtual time.

One real thread, the *driver* (a test that called `Clock.run`), runs everything. A process is a generator; it runs until it
yields what it waits for. When no process can run, the clock jumps to the next timer. So a run is a function of what the
processes do and of the seed, and twenty hours take as long as their steps.

A process may yield

    a number            sleep that many virtual seconds
    a Signal            park until the signal fires; the result of the `yield` is the fired value
    Timeout(signal, s)  the same, but at most s virtual seconds; the result is then TIMED_OUT
    a Call              park until an outside thread (of a function's process, of an HTTP server) answers. Until then the clock
                        stands still and nothing else runs, unless the call borrows time (`Call.borrow`)

Sub-routines are generators too, called with `yield from`.

Other threads may call `now`, `at`, `after`, `spawn`, `Process.kill`, `Signal.fire`, `Call.answer`, `Call.fail` and
`Call.borrow`: all of them only leave work for the driver.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
import random
import re
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

START = "2027-01-01T00:00:00Z"

# Real seconds the driver waits for an outstanding Call before it gives the run up. Longer than any function's real work.
PATIENCE = 300.0

# At one instant the world's own timers run before sleepers: "at 10 s the pod ends" holds for a process that wakes up at 10 s.
_WORLD, _SLEEPER = 0, 1


_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def seconds(time: str | float) -> float:
    """Virtual seconds of "20h10m", "90s", "2d" or a number."""
    if not isinstance(time, str):
        return float(time)
    if not re.fullmatch(r"(\d+(\.\d+)?[dhms])+", time):
        raise ValueError(f"a time looks like 20h10m, 90s or 2d, not like {time!r}")
    return sum(float(number) * _UNITS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([dhms])", time))


class Killed(BaseException):
    """Thrown into a process by `Process.kill`. A BaseException, so that no `except Exception` swallows it."""


class LimitReached(Exception):
    """`run(until=..., limit=...)` came to its limit before the condition held."""


class Deadlock(Exception):
    """`run(until=...)`: nothing can run, no timer is set, and the condition does not hold."""


class ProcessFailed(Exception):
    """A process ended with an unhandled exception: a bug of the world or of a test, never a scenario's outcome."""


class CallStuck(Exception):
    """A Call was not answered within the driver's patience (real seconds)."""


class _TimedOut:
    def __repr__(self) -> str:
        return "TIMED_OUT"


TIMED_OUT = _TimedOut()

Steps = Generator[Any, Any, Any]


class Timer:
    """An action at a moment. `cancel` may be called at any time, also after it ran."""

    def __init__(self, moment: float, action: Callable[[], Any]):
        self.moment = moment
        self.action: Callable[[], Any] | None = action

    def cancel(self) -> None:
        self.action = None


class Signal:
    """Something that happens once. A process that yields it later continues at once; `clear` arms it again."""

    def __init__(self, clock: Clock, name: str = "signal"):
        self._clock = clock
        self._waiting: list[Process] = []
        self.name = name
        self.fired = False
        self.value: Any = None

    def fire(self, value: Any = None) -> None:
        with self._clock._changed:
            self.fired, self.value = True, value
            waiting, self._waiting = self._waiting, []
            for process in waiting:
                self._clock._resume(process, value)

    def clear(self) -> None:
        self.fired, self.value = False, None


class Timeout:
    """Yield it to wait for a signal, but at most `seconds` of virtual time."""

    def __init__(self, signal: Signal, seconds: float):
        self.signal = signal
        self.seconds = seconds


class Call:
    """A request to a thread outside the driver.

    The driver calls `start(call)` when a process yields the call; the foreign thread reports with `answer` or `fail`.
    `start` may answer at once.
    """

    def __init__(self, start: Callable[[Call], Any], name: str = "call"):
        self.start = start
        self.name = name
        self._clock: Clock | None = None
        self._process: Process | None = None
        self._loan: threading.Event | None = None

    def answer(self, value: Any = None) -> None:
        """Ends the call; `value` is the result of the process's `yield`. Only the first answer counts."""
        self._end(value, None)

    def fail(self, error: BaseException) -> None:
        """Ends the call; `error` is raised at the process's `yield`."""
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        clock = self._clock
        assert clock is not None, "a call is answered only after it was started"
        with clock._changed:
            if self not in clock._calls:
                return
            del clock._calls[self]
            clock._resume(self._process, value, error)
            clock._changed.notify_all()

    def borrow(self, seconds: float) -> None:
        """Called by a foreign thread that works for this call: lets `seconds` of virtual time pass.

        During this time the driver runs other processes, because the world continues while a request is on the wire. The threads
        of one call share one loan: a second borrower returns when the first does, so neither acts while the driver runs others.
        """
        clock = self._clock
        if clock is None or seconds <= 0:
            return
        with clock._changed:
            if self not in clock._calls:
                return
            if self._loan is None:
                self._loan = threading.Event()
                clock._push(clock._now + seconds, _SLEEPER, self._repay)
                clock._changed.notify_all()
            loan = self._loan
        loan.wait()

    def _repay(self) -> None:
        with self._clock._changed:
            loan, self._loan = self._loan, None
        loan.set()


class Process:
    """A generator under the clock. `ended` fires with `result` when it ends, also when it was killed (result None)."""

    def __init__(self, clock: Clock, generator: Steps, name: str):
        self._clock = clock
        self._generator = generator
        self._wakeup: Timer | None = None
        self._awaited: Signal | None = None
        self._ready = False
        self._killed = False
        self._value: Any = None
        self._error: BaseException | None = None
        self.name = name
        self.done = False
        self.result: Any = None
        self.ended = Signal(clock, f"the end of {name}")

    def kill(self) -> None:
        """Throws Killed into it as the driver's next step, before any other process runs."""
        with self._clock._changed:
            if self.done or self._killed:
                return
            self._killed = True
            self._clock._forget_wait(self)
            self._clock._condemned.append(self)
            self._clock._changed.notify_all()

    def __repr__(self) -> str:
        return f"<process {self.name}>"


class Clock:
    """Virtual time and its scheduler; see the module's description."""

    def __init__(self, start: str = START, seed: int | None = None):
        self._changed = threading.Condition(threading.RLock())
        self.before_jump: list[Callable[[], None]] = []
        self.on_jump: list[Callable[[float], None]] = []
        self.patience = PATIENCE
        self._processes: dict[Process, None] = {}
        self._calls: dict[Call, None] = {}
        self.reset(start, seed)

    def reset(self, start: str = START, seed: int | None = None) -> None:
        """A new world: ends every process (their `finally` blocks run), forgets every timer; keeps the hooks.

        Without a seed processes run in the order in which they became ready. With one, the next of those that are ready is
        picked at random but reproducibly: schedule exploration. `random` is seeded in both cases.
        """
        self._end_everything()
        self.start = datetime.datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()
        self.random = random.Random(seed or 0)
        self._picker = random.Random(seed) if seed is not None else None
        self._now = self.start
        self._timers: list[tuple[float, int, int, Timer]] = []
        self._sequence = itertools.count()
        self._ready: deque[Process] = deque()
        self._condemned: deque[Process] = deque()
        self._running = False

    def _end_everything(self) -> None:
        with self._changed:
            for call in list(self._calls):
                if call._loan is not None:
                    call._loan.set()
            self._calls.clear()
            processes = list(self._processes)
        for process in processes:
            process.kill()
        while self._processes:
            self._step(self._condemned.popleft())

    # Reading the time

    def now(self) -> float:
        """Virtual time in seconds since 1970."""
        return self._now

    def elapsed(self) -> float:
        """Virtual seconds since the start of the world."""
        return self._now - self.start

    # Timers, processes, signals

    def at(self, seconds: float, action: Callable[[], Any]) -> Timer:
        """Calls `action()` in the driver `seconds` after the start of the world (at once if that is past)."""
        return self._push(max(self.start + seconds, self._now), _WORLD, action)

    def after(self, seconds: float, action: Callable[[], Any]) -> Timer:
        """Calls `action()` in the driver `seconds` from now."""
        return self._push(self._now + max(seconds, 0), _WORLD, action)

    def spawn(self, generator: Steps, name: str) -> Process:
        """Starts a process; its first step is taken by the driver."""
        process = Process(self, generator, name)
        with self._changed:
            self._processes[process] = None
            self._resume(process, None)
        return process

    def signal(self, name: str = "signal") -> Signal:
        return Signal(self, name)

    def _push(self, moment: float, kind: int, action: Callable[[], Any]) -> Timer:
        timer = Timer(moment, action)
        with self._changed:
            heapq.heappush(self._timers, (moment, kind, next(self._sequence), timer))
            self._changed.notify_all()
        return timer

    def _resume(self, process: Process, value: Any, error: BaseException | None = None) -> None:
        """Makes a process runnable, and forgets its other waits. Called with the lock held."""
        if process.done or process._killed or process._ready:
            return
        self._forget_wait(process)
        process._value, process._error, process._ready = value, error, True
        self._ready.append(process)
        self._changed.notify_all()

    def _forget_wait(self, process: Process) -> None:
        if process._wakeup is not None:
            process._wakeup.cancel()
            process._wakeup = None
        if process._awaited is not None and process in process._awaited._waiting:
            process._awaited._waiting.remove(process)
        process._awaited = None

    # Driving

    def run(self, until: Callable[[], bool] | None = None, limit: float | None = None) -> float:
        """Drives the world and returns `elapsed()`.

        With `until`: to the first moment at which nothing can run and the condition holds. Raises LimitReached if it does
        not hold by `limit` (seconds since the start of the world), Deadlock if nothing is left that could make it hold.
        Without: until nothing is left to do, or to `limit`; then the clock stands at `limit`.
        """
        if self._running:
            raise RuntimeError("the clock is running already: actions and processes must not call run()")
        self._running = True
        try:
            return self._run(until, float("inf") if limit is None else self.start + limit)
        finally:
            self._running = False

    def _run(self, until: Callable[[], bool] | None, end: float) -> float:
        while True:
            self._await_calls()
            process = self._next_process()
            if process is not None:
                self._step(process)
                continue
            if until is not None and until():
                return self.elapsed()
            timer = self._next_timer()
            if timer is not None and timer.moment <= self._now:
                self._fire_next()
                continue
            if self._disturbed_before_jump(timer):
                continue
            if until is not None and until():
                return self.elapsed()
            if timer is None or timer.moment > end:
                return self._stop_at(end, timer, until)
            self._jump(timer.moment)

    def _stop_at(self, end: float, timer: Timer | None, until: Callable[[], bool] | None) -> float:
        if until is None:
            if end != float("inf"):
                self._jump(max(end, self._now))
            return self.elapsed()
        if timer is not None:
            raise LimitReached(f"the condition did not come true within {end - self.start:g} virtual seconds")
        waiting = ", ".join(f"{p.name} (for {p._awaited.name})" for p in self._processes if p._awaited) or "no process"
        raise Deadlock(f"the condition cannot come true: no timer is left; waiting: {waiting}")

    def _await_calls(self) -> None:
        """Blocks, really, while a call is outstanding that did not borrow time."""
        with self._changed:
            quiet = self._changed.wait_for(lambda: all(call._loan is not None for call in self._calls), self.patience)
            if not quiet:
                stuck = ", ".join(call.name for call in self._calls if call._loan is None)
                raise CallStuck(f"no answer within {self.patience:g} real seconds: {stuck}")

    def _next_process(self) -> Process | None:
        with self._changed:
            if self._condemned:
                return self._condemned.popleft()
            while self._ready:
                index = self._picker.randrange(len(self._ready)) if self._picker else 0
                process = self._ready[index]
                del self._ready[index]
                process._ready = False
                if not process._killed:
                    return process
            return None

    def _next_timer(self) -> Timer | None:
        with self._changed:
            while self._timers and self._timers[0][3].action is None:
                heapq.heappop(self._timers)
            return self._timers[0][3] if self._timers else None

    def _fire_next(self) -> None:
        with self._changed:
            timer = heapq.heappop(self._timers)[3]
            action, timer.action = timer.action, None
        if action is not None:
            action()

    def _disturbed_before_jump(self, timer: Timer | None) -> bool:
        """Lets the rest of the world settle; True if that left something to do before the jump."""
        for settle in self.before_jump:
            settle()
        with self._changed:
            busy = self._ready or self._condemned or any(call._loan is None for call in self._calls)
        return bool(busy) or self._next_timer() is not timer

    def _jump(self, moment: float) -> None:
        self._now = moment
        for notice in self.on_jump:
            notice(moment)

    # Stepping one process

    def _step(self, process: Process) -> None:
        if process.done:
            return
        try:
            wanted = self._advance(process)
        except StopIteration as end:
            self._end(process, end.value)
        except Killed:
            self._end(process, None)
        except Exception as error:
            self._end(process, None)
            raise ProcessFailed(f"process {process.name!r} failed at {self.elapsed():g} s: {error!r}") from error
        else:
            self._park(process, wanted)

    def _advance(self, process: Process) -> Any:
        if process._killed:
            process._generator.throw(Killed())
            raise RuntimeError("a killed process must not yield again")
        value, error = process._value, process._error
        process._value = process._error = None
        return process._generator.throw(error) if error is not None else process._generator.send(value)

    def _end(self, process: Process, result: Any) -> None:
        process.done, process.result = True, result
        self._processes.pop(process, None)
        process.ended.fire(result)

    def _park(self, process: Process, wanted: Any) -> None:
        with self._changed:
            if process._killed:
                return
            if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
                self._wake_after(process, wanted, None)
            elif isinstance(wanted, Signal):
                self._await_signal(process, wanted)
            elif isinstance(wanted, Timeout):
                self._await_signal(process, wanted.signal)
                if not process._ready:
                    self._wake_after(process, wanted.seconds, TIMED_OUT)
            elif isinstance(wanted, Call):
                wanted._clock, wanted._process = self, process
                self._calls[wanted] = None
            else:
                raise TypeError(f"process {process.name!r} yielded {wanted!r}")
        if isinstance(wanted, Call):
            wanted.start(wanted)

    def _await_signal(self, process: Process, signal: Signal) -> None:
        if signal.fired:
            self._resume(process, signal.value)
        else:
            process._awaited = signal
            signal._waiting.append(process)

    def _wake_after(self, process: Process, seconds: float, value: Any) -> None:
        def wake() -> None:
            with self._changed:
                self._resume(process, value)

        process._wakeup = self._push(self._now + max(seconds, 0), _SLEEPER, wake)
