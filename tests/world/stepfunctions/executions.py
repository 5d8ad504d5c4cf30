"""The parts of the Step Functions service: a machine, its executions, the states that they visit."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from world.base.clock import Call, Clock, Process, Signal, Timer
from world.base.faults import Plan
from world.stepfunctions.jsonata_queries import Queries
from world.stepfunctions.state_errors import StateError

Json = Any
Steps = Generator[Any, Any, Any]


@dataclass(frozen=True)
class Machine:
    """A state machine as an execution was started on it. `arn` is unqualified; the other ARNs say how it was named."""

    arn: str
    definition: str
    role_arn: str
    version_arn: str | None = None
    alias_arn: str | None = None

    @property
    def name(self) -> str:
        return self.arn.split(":")[6]


class Machines(Protocol):
    def resolve(self, arn: str) -> Machine:
        """The machine behind an ARN, even if it is that of a version or an alias. Raises ApiError StateMachineDoesNotExist."""


class Functions(Protocol):
    def invoke(self, function_arn: str, payload: dict[str, Any]) -> Call:
        """A Call whose answer has `.payload` (bytes) and `.function_error` (str or None), or that fails with ServiceError."""


class Services(Protocol):
    def call(self, service: str, action: str, parameters: Any) -> Call:
        """A Call to an AWS API, named as in `aws-sdk:<service>:<action>`. Answers the result, or fails with StateError."""


class Job:
    """One of several things that a Parallel or Map state runs at once. `finished` with `output`, or with `error`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: StateError | None = None
        self.output: Json = None

    @property
    def succeeded(self) -> bool:
        return self.finished and self.error is None


class Scope(Job):
    """A sequence of states with variables of its own: the machine, a branch of a Parallel, an iteration of a Map.

    `state` is the state that runs, or that ran last; `jobs` are the branches or iterations of that state, if it has any.
    """

    def __init__(self, definition: dict[str, Json], value: Json, parent: Scope | None = None):
        super().__init__()
        self.definition = definition
        self.parent = parent
        self.state: str = definition["StartAt"]
        self.input = value
        self.variables: dict[str, Json] = {}
        self.jobs: list[Job] = []
        self.map_run_arn: str | None = None
        self.entered_at: float | None = None
        self.entered_event: int | None = None
        self.last_event: int | None = parent.last_event if parent else None
        self.redriven = False

    @property
    def is_begun(self) -> bool:
        return self.entered_at is not None and not self.redriven

    def visible_variables(self) -> dict[str, Json]:
        outer = self.parent.visible_variables() if self.parent else {}
        return {**outer, **self.variables}

    def prepare_redrive(self) -> None:
        """Marks what did not succeed, down to the states that failed or were cut off, to be resumed."""
        self.finished, self.error, self.redriven = False, None, True
        for job in self.jobs:
            if not job.succeeded:
                job.prepare_redrive()


@dataclass(eq=False)
class Execution:
    """One execution: the fields of DescribeExecution, its history, and the state for a stop or a redrive."""

    arn: str
    name: str
    machine: Machine
    definition: dict[str, Any]
    input_text: str
    start: float
    root: Scope
    ended: Signal
    map_run_arn: str | None = None
    status: str = "RUNNING"
    stop: float | None = None
    output_text: str | None = None
    error: str | None = None
    cause: str | None = None
    redrive_count: int = 0
    redriven_at: float | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    process: Process | None = None
    timeout: Timer | None = None

    @property
    def output(self) -> Any:
        """The output as JSON value; None unless it succeeded."""
        return None if self.output_text is None else json.loads(self.output_text)

    @functools.cached_property
    def input(self) -> Any:
        return json.loads(self.input_text)


class Child(Job):
    """An item of a Distributed Map: a child execution."""

    def __init__(self, index: int, value: Json):
        super().__init__()
        self.index = index
        self.value = value
        self.execution: Execution | None = None

    def prepare_redrive(self) -> None:
        self.finished, self.error = False, None


@dataclass(eq=False)
class Visit:
    """One stay in a state."""

    scope: Scope
    name: str
    state: dict[str, Json]
    input: Json
    entered_at: float
    resumed: bool
    retry_count: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    task_token: str | None = None


@dataclass
class Outcome:
    """The end of a visit: the next state, its input, and the assignments."""

    next: str | None
    output: Json
    assigned: dict[str, Json]


class Service(Protocol):
    """The engine as the states of an execution see it; `Engine` says what each of these does."""

    clock: Clock
    services_of: Callable[[str], Services | None]
    refusal: Callable[[str, str, dict[str, Any]], str | None]
    faults: Plan
    queries: Queries
    region: str
    sync_delay: float
    redrive_renews_entered_time: bool
    map_lists_failed_children: bool
    task_tokens: dict[str, Any]

    def start_execution(self, machine_arn: str, input_text: str = "{}", name: str | None = None) -> Execution: ...
    def start_child(self, map_run_arn: str, machine: Machine, processor: dict[str, Any], value: Any) -> Execution: ...
    def stop_execution(self, arn: str, error: str | None = None, cause: str | None = None) -> Execution: ...
    def redrive_execution(self, arn: str) -> Execution: ...
    def describe(self, arn: str) -> dict[str, Any]: ...
    def record(self, execution: Execution, kind: str, details: dict[str, Any], previous: int | None = None) -> int: ...
    def finish(
        self, execution: Execution, status: str, output: Any = None, error: str | None = None, cause: str | None = None
    ) -> None: ...
    def check_permission(self, error: str, role: str, action: str, parameters: dict[str, Any]) -> None: ...
    def check_size(self, value: Any, name: str, is_of_result: bool = False) -> None: ...
    def function_arn(self, function: str, qualifier: str | None = None) -> str: ...
    def invoke(self, function_arn: str, payload: Any) -> Steps: ...
    def invoke_async(self, function_arn: str, payload: Any) -> None: ...
    def next_uuid(self) -> str: ...
