"""Runs the states of one execution: the eight state types of the Amazon States Language, in JSONata.

Every method that takes virtual time is a generator for the clock. What must survive for a redrive is in `Scope`, not in a
generator: a redrive runs the same scopes again from where they stopped. Sources: AWS docs, "Amazon States Language", the pages
of the state types, "Handling errors in Step Functions workflows", "Passing data between states with variables".
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from world.base.clock import TIMED_OUT, Signal, Timeout
from world.stepfunctions import asl
from world.stepfunctions.jsonata_queries import QueryError, has_expression
from world.stepfunctions.state_errors import StateError, matches
from world.stepfunctions.tasks import Task
from world.stepfunctions.texts import iso, text_of

if TYPE_CHECKING:
    from world.stepfunctions.engine import Engine, Execution

Json = Any
Steps = Generator[Any, Any, Any]

# AWS docs, "Map state": the most iterations at once, of an inline and of a distributed Map.
INLINE_CONCURRENCY = 40
DISTRIBUTED_CONCURRENCY = 10_000

# AWS docs, "Wait state": the greatest value of Seconds.
LONGEST_WAIT = 99_999_999

# API reference, DescribeExecution: the most characters of a cause.
LONGEST_CAUSE = 32_768


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
        self.last_event: int | None = parent.last_event if parent else None
        self.redriven = False

    def visible_variables(self) -> dict[str, Json]:
        outer = self.parent.visible_variables() if self.parent else {}
        return {**outer, **self.variables}

    def prepare_redrive(self) -> None:
        """Marks what did not succeed, down to the states that failed or were cut off, to be resumed."""
        self.finished, self.error, self.redriven = False, None, True
        for job in self.jobs:
            if not job.succeeded:
                job.prepare_redrive()


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
    """How a visit ends: where to go, with what, and what to assign on the way."""

    next: str | None
    output: Json
    assigned: dict[str, Json]


class Interpreter:
    """Runs one execution from where its scopes stand; made anew for a redrive."""

    def __init__(self, engine: Engine, execution: Execution):
        self.engine = engine
        self.execution = execution
        self.clock = engine.clock

    def run(self) -> Steps:
        """The execution's process."""
        try:
            output = yield from self.run_scope(self.execution.root)
        except StateError as error:
            self.engine.finish(self.execution, "FAILED", error=error.error, cause=error.cause)
        else:
            self.engine.finish(self.execution, "SUCCEEDED", output=output)

    def run_scope(self, scope: Scope) -> Steps:
        """From the scope's current state to its end; the answer is the last state's output."""
        while True:
            visit = self._enter(scope)
            outcome = getattr(self, "_" + visit.state["Type"].lower())(visit)
            if not isinstance(outcome, Outcome):
                outcome = yield from outcome
            self._leave(visit, outcome)
            if outcome.next is None:
                return outcome.output
            scope.state, scope.input = outcome.next, outcome.output

    # Entering and leaving

    def _enter(self, scope: Scope) -> Visit:
        """A redriven Task, Parallel or Map is rescheduled, every other state is entered again (see the engine's switch)."""
        state = scope.definition["States"][scope.state]
        resumed, scope.redriven = scope.redriven, False
        rescheduled = resumed and scope.entered_at is not None and state["Type"] in ("Task", "Parallel", "Map")
        if not rescheduled or self.engine.redrive_renews_entered_time:
            scope.entered_at = self.clock.now()
        visit = Visit(scope, scope.state, state, scope.input, scope.entered_at, rescheduled)
        if not rescheduled:
            scope.jobs = []
            details = {"name": visit.name, "input": text_of(visit.input), "inputDetails": {"truncated": False}}
            self.record(visit, state["Type"] + "StateEntered", details)
        return visit

    def _leave(self, visit: Visit, outcome: Outcome) -> None:
        details = {"name": visit.name, "output": text_of(outcome.output), "outputDetails": {"truncated": False}}
        if outcome.assigned:
            details["assignedVariables"] = {name: text_of(value) for name, value in outcome.assigned.items()}
            details["assignedVariablesDetails"] = {"truncated": False}
        self.record(visit, visit.state["Type"] + "StateExited", details)
        visit.scope.variables.update(outcome.assigned)
        visit.scope.jobs = []

    def _outcome(self, visit: Visit, rule: dict[str, Json], next_state: str | None, default: Json, **extra: Json) -> Outcome:
        """Output and Assign of a state, choice rule or catcher; both see the variables as they were before."""
        output = self.evaluate(visit, rule["Output"], **extra) if "Output" in rule else default
        assigned = self.evaluate(visit, rule.get("Assign", {}), **extra)
        self.engine.check_size(assigned, f"variables assigned by state '{visit.name}'")
        self.engine.check_size(output, f"output of state '{visit.name}'")
        return Outcome(next_state, output, assigned)

    def _after(self, visit: Visit, default: Json, **extra: Json) -> Outcome:
        return self._outcome(visit, visit.state, visit.state.get("Next"), default, **extra)

    # Simple states; only Wait takes time

    def _pass(self, visit: Visit) -> Outcome:
        return self._after(visit, visit.input)

    def _succeed(self, visit: Visit) -> Outcome:
        return self._after(visit, visit.input)

    def _fail(self, visit: Visit) -> Outcome:
        error = self.evaluate(visit, visit.state.get("Error", ""))
        cause = self.evaluate(visit, visit.state.get("Cause", ""))
        for value in (error, cause):
            if not isinstance(value, str):
                raise self.query_error(visit, f"Error and Cause must be strings, got {value!r}")
        if len(cause) > LONGEST_CAUSE:
            raise self.query_error(visit, f"Cause has {len(cause)} characters, more than {LONGEST_CAUSE}")
        raise StateError(error, cause)

    def _choice(self, visit: Visit) -> Outcome:
        for rule in visit.state["Choices"]:
            holds = self.evaluate(visit, rule["Condition"])
            if not isinstance(holds, bool):
                raise self.query_error(visit, f"Condition '{rule['Condition']}' must return a boolean, got {holds!r}")
            if holds:
                return self._outcome(visit, rule, rule["Next"], visit.input)
        if "Default" not in visit.state:
            raise StateError("States.NoChoiceMatched", f"No choice rule of state '{visit.name}' matched")
        return self._outcome(visit, visit.state, visit.state["Default"], visit.input)

    def _wait(self, visit: Visit) -> Steps:
        yield self._wait_seconds(visit)
        return self._after(visit, visit.input)

    def _wait_seconds(self, visit: Visit) -> float:
        if "Timestamp" in visit.state:
            text = self.evaluate(visit, visit.state["Timestamp"])
            return max(0.0, self._moment(visit, text) - self.clock.now())
        seconds = self.evaluate(visit, visit.state["Seconds"])
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= LONGEST_WAIT:
            raise self.query_error(visit, f"Seconds must be an integer from 0 to {LONGEST_WAIT}, got {seconds!r}")
        return seconds

    def _moment(self, visit: Visit, text: Json) -> float:
        try:
            moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        except (AttributeError, ValueError):
            moment = None
        if moment is None or moment.tzinfo is None:
            raise self.query_error(visit, f"Timestamp must be an ISO 8601 time with an offset, got {text!r}")
        return moment.timestamp()

    # States that can be retried and caught

    def _task(self, visit: Visit) -> Steps:
        return (yield from self._guarded(visit, lambda: self._bounded(visit, Task(self, visit))))

    def _parallel(self, visit: Visit) -> Steps:
        return (yield from self._guarded(visit, lambda: self._branches(visit), "ParallelStateFailed"))

    def _map(self, visit: Visit) -> Steps:
        body = self._children if asl.is_distributed(visit.state) else self._iterations
        return (yield from self._guarded(visit, lambda: body(visit), "MapStateFailed"))

    def _guarded(self, visit: Visit, body: Callable[[], Steps], failed_event: str | None = None) -> Steps:
        """Runs the body under the state's Retry and Catch. Output and Assign belong to what is retried and caught."""
        while True:
            try:
                result = yield from body()
                return self._after(visit, result, result=result)
            except StateError as error:
                delay = self._retry_delay(visit, error)
                if delay is None:
                    if failed_event:
                        self.record(visit, failed_event)
                    return self._caught(visit, error)
            yield delay
            visit.retry_count += 1
            visit.resumed = False
            visit.scope.jobs = []

    def _retry_delay(self, visit: Visit, error: StateError) -> float | None:
        """Virtual seconds to the next attempt; None if there is none. Defaults: AWS docs, "Handling errors", "Retry"."""
        for number, retrier in enumerate(visit.state.get("Retry", [])):
            if not matches(retrier["ErrorEquals"], error.error):
                continue
            made = visit.attempts.get(number, 0)
            if made >= retrier.get("MaxAttempts", 3):
                return None
            visit.attempts[number] = made + 1
            delay = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** made
            delay = min(delay, retrier.get("MaxDelaySeconds", delay))
            return self.clock.random.uniform(0, delay) if retrier.get("JitterStrategy") == "FULL" else delay
        return None

    def _caught(self, visit: Visit, error: StateError) -> Outcome:
        for catcher in visit.state.get("Catch", []):
            if matches(catcher["ErrorEquals"], error.error):
                output = error.output()
                return self._outcome(visit, catcher, catcher["Next"], output, errorOutput=output)
        raise error

    def _bounded(self, visit: Visit, task: Task) -> Steps:
        """A task's attempt, at most TimeoutSeconds long, and with a heartbeat at least every HeartbeatSeconds."""
        task.prepare()
        if task.timeout is None and task.heartbeat is None:
            return (yield from task.run())
        attempt = self.clock.spawn(_as_value(task.run()), f"{visit.name} of {self.execution.name}")
        try:
            outcome = yield from self._await_attempt(task, attempt.ended)
        finally:
            attempt.kill()
        if isinstance(outcome, StateError):
            raise outcome
        return outcome

    def _await_attempt(self, task: Task, ended: Signal) -> Steps:
        deadline = self.clock.now() + (task.timeout or float(LONGEST_WAIT))
        while True:
            left = deadline - self.clock.now()
            silence = task.heartbeat_at + task.heartbeat - self.clock.now() if task.heartbeat else left
            outcome = yield Timeout(ended, min(left, silence))
            if outcome is not TIMED_OUT:
                return outcome
            if self.clock.now() >= deadline:
                return task.timed_out("States.Timeout")
            if task.heartbeat and self.clock.now() >= task.heartbeat_at + task.heartbeat:
                return task.timed_out("States.HeartbeatTimeout")

    # Parallel and Map

    def _branches(self, visit: Visit) -> Steps:
        if not visit.resumed or not visit.scope.jobs:
            value = self.evaluate(visit, visit.state["Arguments"]) if "Arguments" in visit.state else visit.input
            self.record(visit, "ParallelStateStarted")
            visit.scope.jobs = [Scope(branch, value, visit.scope) for branch in visit.state["Branches"]]
        jobs = visit.scope.jobs
        yield from self._run_jobs(jobs, len(jobs), lambda index, scope: self.run_scope(scope), _raise_error)
        self.record(visit, "ParallelStateSucceeded")
        return [job.output for job in jobs]

    def _iterations(self, visit: Visit) -> Steps:
        if not visit.resumed or not visit.scope.jobs:
            items = self._items(visit)
            self.record(visit, "MapStateStarted", {"length": len(items)})
            processor = visit.state["ItemProcessor"]
            visit.scope.jobs = [Scope(processor, item, visit.scope) for item in items]
        limit = min(self._max_concurrency(visit) or INLINE_CONCURRENCY, INLINE_CONCURRENCY)
        jobs = visit.scope.jobs
        yield from self._run_jobs(jobs, limit, lambda index, scope: self._iteration(visit, index, scope), _raise_error)
        self.record(visit, "MapStateSucceeded")
        return [job.output for job in jobs]

    def _iteration(self, visit: Visit, index: int, scope: Scope) -> Steps:
        details = {"name": visit.name, "index": index}
        self.record(visit, "MapIterationStarted", details)
        if scope.entered_at is None:
            scope.input = self._selected(visit, {"Index": index, "Value": scope.input})
        scope.last_event = visit.scope.last_event
        try:
            output = yield from self.run_scope(scope)
        except StateError:
            self.record(visit, "MapIterationFailed", details)
            raise
        self.record(visit, "MapIterationSucceeded", details)
        return output

    def _children(self, visit: Visit) -> Steps:
        """A Distributed Map: every item is an execution of its own, with its own history and no outer variables."""
        scope = visit.scope
        redriven = visit.resumed and bool(scope.jobs)
        if not redriven:
            items = self._items(visit)
            scope.jobs = [Child(index, item) for index, item in enumerate(items)]
            label = visit.state.get("Label", visit.name)
            scope.map_run_arn = (
                self.execution.machine.arn.replace(":stateMachine:", ":mapRun:", 1) + f"/{label}:{self.engine.next_uuid()}"
            )
            self.record(visit, "MapStateStarted", {"length": len(items)})
        self.record(visit, "MapRunRedriven" if redriven else "MapRunStarted", {"mapRunArn": scope.map_run_arn})
        limit = self._max_concurrency(visit) or DISTRIBUTED_CONCURRENCY
        try:
            tolerated = self._tolerance(visit, len(scope.jobs))
            yield from self._run_jobs(scope.jobs, limit, lambda index, child: self._child(visit, child), tolerated)
        except StateError as error:
            self.record(visit, "MapRunFailed", error_details(error))
            raise
        self.record(visit, "MapRunSucceeded")
        self.record(visit, "MapStateSucceeded")
        if not self.engine.map_lists_failed_children:
            return [job.output for job in scope.jobs if job.succeeded]
        return [job.output if job.succeeded else self._failed(job.execution) for job in scope.jobs]

    @staticmethod
    def _failed(child: Execution) -> Json:
        """A failed child as ResultWriter lists it."""
        found = {"ExecutionArn": child.arn, "Input": child.input_text, "Name": child.name, "Status": child.status}
        return found | {name: value for name, value in (("Error", child.error), ("Cause", child.cause)) if value is not None}

    def _child(self, visit: Visit, child: Child) -> Steps:
        if child.execution is None:
            value = self._selected(visit, {"Index": child.index, "Value": child.value})
            processor = visit.state["ItemProcessor"]
            self.check_permission("states:StartExecution", {"stateMachineArn": self.execution.machine.arn})
            child.execution = self.engine.start_child(visit.scope.map_run_arn, self.execution.machine, processor, value)
        else:
            self.check_permission("states:RedriveExecution", {"executionArn": child.execution.arn})
            self.engine.redrive_execution(child.execution.arn)
        return (yield from self.await_execution(child.execution))

    def _tolerance(self, visit: Visit, total: int) -> Callable[[list[Job]], None]:
        """AWS docs, "Tolerated failure threshold": exceeding either value fails the run; without any, one failure does."""
        count = self.evaluate(visit, visit.state.get("ToleratedFailureCount"))
        percentage = self.evaluate(visit, visit.state.get("ToleratedFailurePercentage"))
        if count is None and percentage is None:
            count = 0

        def check(jobs: list[Job]) -> None:
            failed = sum(1 for job in jobs if job.error is not None)
            too_many = count is not None and failed > count
            if too_many or (percentage is not None and failed * 100 > percentage * total):
                cause = "The specified tolerated failure threshold was exceeded"
                raise StateError("States.ExceedToleratedFailureThreshold", cause)

        return check

    def _items(self, visit: Visit) -> list[Json]:
        items = self.evaluate(visit, visit.state["Items"]) if "Items" in visit.state else visit.input
        if not isinstance(items, list):
            raise self.query_error(visit, f"Items must be an array, got {type(items).__name__}")
        return items

    def _max_concurrency(self, visit: Visit) -> int:
        limit = self.evaluate(visit, visit.state.get("MaxConcurrency", 0))
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise self.query_error(visit, f"MaxConcurrency must be a non-negative integer, got {limit!r}")
        return limit

    def _selected(self, visit: Visit, item: dict[str, Json]) -> Json:
        if "ItemSelector" not in visit.state:
            return item["Value"]
        return self.evaluate(visit, visit.state["ItemSelector"], map_item=item)

    def _run_jobs(
        self, jobs: list[Job], limit: int, steps: Callable[[int, Job], Steps], check: Callable[[list[Job]], None]
    ) -> Steps:
        """Runs the unfinished jobs, at most `limit` at once, in order. `check` raises when a failure ends them all."""
        waiting = [(index, job) for index, job in enumerate(jobs) if not job.finished]
        running: dict[Job, Any] = {}
        progress = self.clock.signal("a branch, iteration or child execution")
        try:
            while waiting or running:
                while waiting and len(running) < limit:
                    index, job = waiting.pop(0)
                    work = _run_job(job, steps(index, job), progress)
                    running[job] = self.clock.spawn(work, f"part {index} of {self.execution.name}")
                while not any(job.finished for job in running):
                    yield progress
                    progress.clear()
                check(jobs)
                running = {job: process for job, process in running.items() if not job.finished}
        finally:
            for process in running.values():
                process.kill()

    def await_execution(self, execution: Execution) -> Steps:
        """Waits for a child; stops it when this process is killed. Raises States.TaskFailed if it does not succeed."""
        try:
            yield execution.ended
            if execution.status != "SUCCEEDED":
                raise StateError(execution.error or f"States.{_camel(execution.status)}", execution.cause or "")
            return execution.output
        finally:
            self.stop_child(execution)

    def stop_child(self, child: Execution) -> None:
        """Ends a child that still runs, if the machine's role may do that: else it runs on."""
        if child.status == "RUNNING":
            if self.engine.refusal(self.execution.machine.role_arn, "states:StopExecution", {"executionArn": child.arn}) is None:
                self.engine.stop_execution(child.arn)

    def check_permission(self, action: str, parameters: dict[str, Json]) -> None:
        """Raises a StateError if the machine's role may not make this call to Step Functions or EventBridge."""
        role = self.execution.machine.role_arn
        self.engine.check_permission("StepFunctions.AccessDeniedException", role, action, parameters)

    # Expressions, context, events

    def evaluate(self, visit: Visit, template: Json, map_item: dict[str, Json] | None = None, **extra: Json) -> Json:
        """A template's value. `extra` are fields of `$states` besides input and context: result, errorOutput."""
        if not has_expression(template):
            return template
        states = {"input": visit.input, "context": self._context(visit, map_item), **extra}
        try:
            return self.engine.queries.evaluate(template, {**visit.scope.visible_variables(), "states": states})
        except QueryError as error:
            raise self.query_error(visit, str(error)) from error

    def query_error(self, visit: Visit, cause: str) -> StateError:
        """Records that an expression failed, or gave a value that the state cannot use; the answer is the error."""
        details = {"error": "States.QueryEvaluationError", "cause": cause, "state": visit.name}
        self.record(visit, "EvaluationFailed", details)
        return StateError("States.QueryEvaluationError", cause)

    def _context(self, visit: Visit, map_item: dict[str, Json] | None) -> dict[str, Json]:
        """AWS docs, "Accessing execution data from the Context object". Redrive fields exist only after a redrive. `Map` is there
        in the ItemSelector alone: "You must define parameters from the Context object in the ItemSelector block of the main Map
        state, not within the states included in the ItemProcessor"."""
        execution, machine = self.execution, self.execution.machine
        about: dict[str, Json] = {
            "Id": execution.arn,
            "Input": execution.input,
            "Name": execution.name,
            "RoleArn": machine.role_arn,
            "StartTime": iso(execution.start),
        }
        if execution.redrive_count:
            about |= {"RedriveCount": execution.redrive_count, "RedriveTime": iso(execution.redriven_at)}
        context: dict[str, Json] = {
            "Execution": about,
            "State": {"EnteredTime": iso(visit.entered_at), "Name": visit.name, "RetryCount": visit.retry_count},
            "StateMachine": {"Id": machine.arn, "Name": machine.name},
        }
        if map_item is not None:
            context["Map"] = {"Item": map_item}
        if visit.task_token is not None:
            context["Task"] = {"Token": visit.task_token}
        return context

    def record(self, visit: Visit, kind: str, details: dict[str, Json] | None = None) -> None:
        """Adds an event to the history, after the scope's last one."""
        scope = visit.scope
        scope.last_event = self.engine.record(self.execution, kind, details or {}, scope.last_event)


def error_details(error: StateError) -> dict[str, str]:
    return {"error": error.error, "cause": error.cause}


def _camel(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))


def _raise_error(jobs: list[Job]) -> None:
    for job in jobs:
        if job.error is not None:
            raise job.error


def _run_job(job: Job, steps: Steps, progress: Signal) -> Steps:
    try:
        job.output = yield from steps
    except StateError as error:
        job.error = error
    job.finished = True
    progress.fire()


def _as_value(steps: Steps) -> Steps:
    try:
        return (yield from steps)
    except StateError as error:
        return error
