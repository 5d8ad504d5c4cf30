"""The fault plan: the faults of a scenario, and the calls that they strike.

A scenario writes its faults into one `Plan` before or while it runs:

    faults.refuse("autoscaling:EnterStandby", code="Throttling", times=1)
    faults.kill("before", "ec2:CreateTags", function="claim-node", nth=1)
    faults.lose_answer("autoscaling:EnterStandby")
    faults.hang("kubernetes:PATCH nodes", function="taint-node")
    faults.invoke("check-pods", nth=3, code="TooManyRequestsException", status=429)

Every component that carries calls (the AWS server, the Kubernetes proxy, the Lambda host) asks the plan with `consult`, and
`carry_out` applies the fault. An action is a plain string: `service:Action` for AWS, `kubernetes:VERB resource`
for Kubernetes.

It knows no process and no protocol. A `Caller` stands for the process that makes a call.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeVar

from world.base.clock import seconds

Kind = Literal["refuse", "kill", "lose_answer", "hang", "delay"]
When = Literal["before", "after"]

INVOKE = "lambda:Invoke"

#: A fault for this `function` strikes the calls that no function makes: those of state machines and operators.
NO_FUNCTION = ""

#: Called before each call, with its action, its function and its parameters.
Witness = Callable[[str, str | None, dict[str, Any]], None]


class Caller(Protocol):
    """The process that makes a call."""

    function: str

    def kill(self) -> None:
        """Ends the process at once, as a crash would."""

    def time_out(self) -> None:
        """Lets virtual time pass to the function's time-out, then ends the process as AWS does."""

    def wait(self, seconds: float) -> None:
        """Lets virtual seconds pass while the call is on the wire."""


@dataclass
class Fault:
    """One entry of the plan: it strikes from the `nth` matching call on, `times` calls in total (None: always). Calls before
    `since` and from `until` on, in virtual seconds since the start of the world, do not match."""

    action: str
    kind: Kind
    when: When = "before"
    function: str | None = None
    nth: int = 1
    times: int | None = 1
    where: Callable[[dict[str, Any]], bool] | None = None
    since: float = 0.0
    until: float = math.inf
    code: str = "InternalFailure"
    message: str = "injected by the fault plan"
    status: int = 400
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    seen: int = 0
    struck: int = 0

    def matches(self, action: str, function: str | None, parameters: dict[str, Any], elapsed: float) -> bool:
        if not fnmatchcase(action, self.action) or not self.since <= elapsed < self.until:
            return False
        if self.function == NO_FUNCTION and function is not None:
            return False
        if self.function and not is_function(function, self.function):
            return False
        if self.kind in ("kill", "hang") and action != INVOKE and function is None:
            return False
        return self.where is None or self.where(parameters)

    def is_due(self) -> bool:
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


def is_function(name: str | None, wanted: str) -> bool:
    """`wanted` is a function's name, with or without the prefix that the Terraform module gives it ("recycle-eks-")."""
    return name is not None and (name == wanted or name.endswith(f"-{wanted}"))


class Plan:
    """The faults of a scenario. Safe to ask from any thread; every fault counts the calls that match it."""

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0) -> None:
        """`elapsed`: virtual seconds since the start of the world."""
        self._lock = threading.Lock()
        self._elapsed = elapsed
        self.faults: list[Fault] = []
        #: They get each call, with or without a fault. `clear` keeps them.
        self.witnesses: list[Witness] = []

    def clear(self) -> None:
        with self._lock:
            self.faults.clear()

    # Writing the plan

    def refuse(
        self,
        action: str,
        code: str,
        message: str = "injected by the fault plan",
        status: int = 400,
        after: bool = False,
        headers: Mapping[str, str] | None = None,
        **which: Any,
    ) -> Fault:
        """The call is answered with an error. `after`: it took effect nevertheless. `headers` are added to the answer's, such as
        `Retry-After`; Lambda's Invoke by a state machine has none."""
        what = {"code": code, "message": message, "status": status, "headers": headers or {}}
        return self._add(action, "refuse", "after" if after else "before", which, **what)

    def kill(self, when: When, action: str, **which: Any) -> Fault:
        """The calling process dies before the call takes effect, or after it."""
        return self._add(action, "kill", when, which)

    def lose_answer(self, action: str, **which: Any) -> Fault:
        """The call takes effect, the connection closes without an answer. An SDK that retries makes the call twice."""
        return self._add(action, "lose_answer", "after", which)

    def hang(self, action: str, **which: Any) -> Fault:
        """The call takes effect and never answers: the function ends by its own time-out."""
        return self._add(action, "hang", "after", which)

    def delay(self, action: str, seconds: float, **which: Any) -> Fault:
        """The call takes effect, its answer arrives this many virtual seconds later."""
        return self._add(action, "delay", "after", which, seconds=seconds)

    def invoke(
        self,
        function: str,
        code: str = "ServiceException",
        status: int = 500,
        message: str = "injected by the fault plan",
        after: bool = False,
        **which: Any,
    ) -> Fault:
        """Lambda's Invoke itself fails. `after`: the function ran, its answer is lost."""
        return self._add(
            INVOKE,
            "refuse",
            "after" if after else "before",
            {**which, "function": function},
            code=code,
            message=message,
            status=status,
        )

    def _add(self, action: str, kind: Kind, when: When, which: dict[str, Any], **what: Any) -> Fault:
        unknown = set(which) - {"function", "nth", "times", "where", "since", "until"}
        assert not unknown, f"a fault is chosen by function, nth, times, where, since and until, not by {sorted(unknown)}"
        if "until" in which:
            # The fault ends with its time.
            which = {"times": None, **which}
        which |= {name: seconds(which[name]) for name in ("since", "until") if name in which}
        fault = Fault(action, kind, when, **which, **what)
        with self._lock:
            self.faults.append(fault)
        return fault

    # Asking it

    def consult(self, action: str, function: str | None = None, parameters: dict[str, Any] | None = None) -> Fault | None:
        """The fault for this call, or None. Must be asked exactly once for each call: it counts them."""
        for hears in list(self.witnesses):
            hears(action, function, parameters or {})
        with self._lock:
            due, elapsed = None, self._elapsed()
            for fault in self.faults:
                if not fault.matches(action, function, parameters or {}, elapsed):
                    continue
                fault.seen += 1
                if due is None and fault.is_due():
                    due = fault
            if due is not None:
                due.struck += 1
            return due

    def not_struck(self) -> list[Fault]:
        """The faults that no call met: a scenario that injects faults asserts that this is empty."""
        with self._lock:
            return [fault for fault in self.faults if fault.struck == 0]


Answer = TypeVar("Answer")


def carry_out(
    fault: Fault | None, caller: Caller | None, perform: Callable[[], Answer], refusal: Callable[[Fault], Answer]
) -> Answer | None:
    """Makes one call under the plan. None means: close the connection without an answer."""
    if fault is None:
        return perform()
    if fault.kind == "refuse":
        if fault.when == "after":
            perform()
        return refusal(fault)
    if fault.kind == "kill":
        if fault.when == "after":
            perform()
        assert caller is not None, "only a call of a function's process can be killed"
        caller.kill()
        return None
    answer = perform()
    if fault.kind == "delay":
        if caller is not None:
            caller.wait(fault.seconds)
        return answer
    if fault.kind == "hang":
        assert caller is not None, "only a function's process can run into its time-out"
        caller.time_out()
    return None


Point = TypeVar("Point")


def sample(points: Sequence[Point], count: int, first: int = 0) -> list[Point]:
    """`count` of the places where a fault can strike, evenly spread over all of them, beginning with number `first`. All of them
    under `WHOLE=1 make scenario`; `make campaign` has places of its own."""
    if os.environ.get("WHOLE"):
        return list(points)
    many = min(count, len(points))
    return [points[(first + number * len(points) // many) % len(points)] for number in range(many)]


def kills(*lists: Sequence[tuple[Any, ...]], at: Sequence[tuple[str, str]]) -> list[tuple[tuple[Any, ...], ...]]:
    """Returns for each run a kill for each list of calls: "before" or "after", then the call. `at` has for each list the moment
    and the action of its kill, in the one run that there usually is. Under `WHOLE=1 make scenario` each list is struck before and
    after each of its calls."""
    if os.environ.get("WHOLE"):
        struck = [[(moment, *call) for moment in ("before", "after") for call in calls] for calls in lists]
        return [tuple(each[run % len(each)] for each in struck) for run in range(max(map(len, struck)))]
    every = [call for calls in lists for call in calls]
    found = [next(call for call in [*calls, *every] if action in call) for calls, (_, action) in zip(lists, at, strict=True)]
    return [tuple((moment, *call) for (moment, _), call in zip(at, found, strict=True))]
