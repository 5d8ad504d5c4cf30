"""Runs the states of one execution: the eight state types of the Amazon States Language, in JSONata.

Every method that takes virtual time is a generator for the clock. The state that a redrive needs is in `Scope`, not in a
generator: a redrive runs the same scopes again from where they stopped. Sources: AWS docs, "Amazon States Language", the pages
of the state types, "Handling errors in Step Functions workflows", "Passing data between states with variables".
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from world.base.clock import TIMED_OUT, Signal, Timeout
from world.stepfunctions import asl
from world.stepfunctions.executions import Child, Execution, Job, Json, Outcome, Scope, Service, Steps, Visit
from world.stepfunctions.running import RunningExecution
from world.stepfunctions.state_errors import StateError, matches
from world.stepfunctions.tasks import Task
from world.stepfunctions.texts import text_of

# AWS docs, "Map state": the most iterations at once, of an inline and of a distributed Map.
INLINE_CONCURRENCY = 40
DISTRIBUTED_CONCURRENCY = 10_000

# AWS docs, "Wait state": the maximum of Seconds.
LONGEST_WAIT = 99_999_999

# API reference, DescribeExecution: the most characters of a cause.
LONGEST_CAUSE = 32_768


class Interpreter:
    """Runs one execution from where its scopes stand; made anew for a redrive."""

    def __init__(self, engine: Service, execution: Execution):
        self.engine = engine
        self.execution = execution
        self.running = RunningExecution(engine, execution)
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
        """Runs from the scope's current state to its end, and returns the last state's output."""
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
            self.running.record(visit, state["Type"] + "StateEntered", details)
            scope.entered_event = scope.last_event
        return visit

    def _leave(self, visit: Visit, outcome: Outcome) -> None:
        details = {"name": visit.name, "output": text_of(outcome.output), "outputDetails": {"truncated": False}}
        if outcome.assigned:
            details["assignedVariables"] = {name: text_of(value) for name, value in outcome.assigned.items()}
            details["assignedVariablesDetails"] = {"truncated": False}
        self.running.record(visit, visit.state["Type"] + "StateExited", details)
        visit.scope.variables.update(outcome.assigned)
        visit.scope.jobs = []

    def _outcome(self, visit: Visit, rule: dict[str, Json], next_state: str | None, default: Json, **extra: Json) -> Outcome:
        """Output and Assign of a state, choice rule or catcher; both see the variables as they were before."""
        output = self.running.evaluate(visit, "Output", rule["Output"], **extra) if "Output" in rule else default
        assigned = self.running.evaluate(visit, "Assign", rule.get("Assign", {}), **extra)
        self.engine.check_size(assigned, visit.name)
        self.engine.check_size(output, visit.name)
        return Outcome(next_state, output, assigned)

    def _after(self, visit: Visit, default: Json, **extra: Json) -> Outcome:
        return self._outcome(visit, visit.state, visit.state.get("Next"), default, **extra)

    # Simple states; only Wait takes time

    def _pass(self, visit: Visit) -> Outcome:
        return self._after(visit, visit.input)

    def _succeed(self, visit: Visit) -> Outcome:
        return self._after(visit, visit.input)

    def _fail(self, visit: Visit) -> Outcome:
        said = {name: self.running.evaluate(visit, name, visit.state[name]) for name in ("Error", "Cause") if name in visit.state}
        for name, value in said.items():
            if not isinstance(value, str):
                raise self.running.type_error(visit, name, "string", value)
        length = len(said.get("Cause", ""))
        if length > LONGEST_CAUSE:
            raise self.running.query_error(visit, "Cause", f"Cause has {length} characters, more than {LONGEST_CAUSE}")
        raise StateError(said.get("Error"), said.get("Cause"))

    def _choice(self, visit: Visit) -> Outcome:
        for rule in visit.state["Choices"]:
            holds = self.running.evaluate(visit, "Condition", rule["Condition"])
            if not isinstance(holds, bool):
                raise self.running.type_error(visit, "Condition", "boolean", holds)
            if holds:
                return self._outcome(visit, rule, rule["Next"], visit.input)
        if "Default" not in visit.state:
            raise self.running.failure(visit, "States.NoChoiceMatched", "No choice rule matched, and there is no Default.")
        return self._outcome(visit, visit.state, visit.state["Default"], visit.input)

    def _wait(self, visit: Visit) -> Steps:
        yield self._wait_seconds(visit)
        return self._after(visit, visit.input)

    def _wait_seconds(self, visit: Visit) -> float:
        if "Timestamp" in visit.state:
            text = self.running.evaluate(visit, "Timestamp", visit.state["Timestamp"])
            return max(0.0, self._moment(visit, text) - self.clock.now())
        seconds = self.running.evaluate(visit, "Seconds", visit.state["Seconds"])
        if not _is_integer(seconds) or not 0 <= seconds <= LONGEST_WAIT:
            what = f"Seconds must be an integer from 0 to {LONGEST_WAIT}, got {seconds!r}"
            raise self.running.query_error(visit, "Seconds", what)
        return seconds

    def _moment(self, visit: Visit, text: Json) -> float:
        try:
            moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        except (AttributeError, ValueError):
            moment = None
        if moment is None or moment.tzinfo is None:
            what = f"The Timestamp field cannot be parsed as an ISO-8601 extended offset date-time format string: {text}"
            raise self.running.query_error(visit, "Timestamp", what)
        return moment.timestamp()

    # States that can be retried and caught

    def _task(self, visit: Visit) -> Steps:
        return (yield from self._guarded(visit, lambda: self._bounded(visit, Task(self.running, visit))))

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
                    if failed_event and error.error != "States.Runtime":
                        self.running.record(visit, failed_event)
                    return self._caught(visit, error)
            yield delay
            visit.retry_count += 1
            visit.resumed = False
            visit.scope.jobs = []

    def _retry_delay(self, visit: Visit, error: StateError) -> float | None:
        """Virtual seconds to the next attempt; None if there is none. Defaults: AWS docs, "Handling errors", "Retry"."""
        for number, retrier in enumerate(visit.state.get("Retry", [])):
            if not matches(retrier["ErrorEquals"], error):
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
            if matches(catcher["ErrorEquals"], error):
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
                return task.timed_out()
            if task.heartbeat and self.clock.now() >= task.heartbeat_at + task.heartbeat:
                return task.timed_out(alias="States.HeartbeatTimeout")

    # Parallel and Map

    def _branches(self, visit: Visit) -> Steps:
        if not visit.resumed or not visit.scope.jobs:
            given = visit.state.get("Arguments")
            value = visit.input if given is None else self.running.evaluate(visit, "Arguments", given)
            self.running.record(visit, "ParallelStateStarted")
            visit.scope.jobs = [Scope(branch, value, visit.scope) for branch in visit.state["Branches"]]
        jobs = visit.scope.jobs
        try:
            yield from self._run_jobs(jobs, len(jobs), lambda index, scope: self.run_scope(scope), _raise_error)
        except StateError as error:
            self._record_aborted(visit, error)
            raise
        self.running.record(visit, "ParallelStateSucceeded")
        return [job.output for job in jobs]

    def _iterations(self, visit: Visit) -> Steps:
        if not visit.resumed or not visit.scope.jobs:
            items = self._items(visit)
            self.running.record(visit, "MapStateStarted", {"length": len(items)})
            processor = visit.state["ItemProcessor"]
            visit.scope.jobs = [Scope(processor, item, visit.scope) for item in items]
        limit = min(self._max_concurrency(visit) or INLINE_CONCURRENCY, INLINE_CONCURRENCY)
        jobs = visit.scope.jobs
        try:
            yield from self._run_jobs(jobs, limit, lambda index, scope: self._iteration(visit, index, scope), _raise_error)
        except StateError as error:
            self._record_aborted(visit, error)
            raise
        self.running.record(visit, "MapStateSucceeded")
        return [job.output for job in jobs]

    def _iteration(self, visit: Visit, index: int, scope: Scope) -> Steps:
        details = {"name": visit.name, "index": index}
        started = self.engine.record(self.execution, "MapIterationStarted", details, visit.scope.last_event)
        if scope.entered_at is None:
            scope.input = self._selected(visit, {"Index": index, "Value": scope.input})
        scope.last_event = started
        output = yield from self.run_scope(scope)
        self.engine.record(self.execution, "MapIterationSucceeded", details, scope.last_event)
        visit.scope.last_event = scope.last_event
        return output

    def _record_aborted(self, visit: Visit, error: StateError) -> None:
        """Records which branches or iterations a failure has ended, each with its state unless that cannot take time.

        All of these events lead back to the failure (LocalStack's recordings `test_service_lambda_map_timeout` and
        `test_parallel_catch_error`). Only a Task was recorded as aborted. The API has such events for Wait, Parallel and Map.
        """
        if error.error == "States.Runtime":
            return
        scopes: list[Scope] = visit.scope.jobs
        failed = next(scope for scope in scopes if scope.error is error)
        if failed.is_begun:
            visit.scope.last_event = failed.last_event
        cause = visit.scope.last_event
        unfinished = [(index, scope) for index, scope in enumerate(scopes) if scope.is_begun and not scope.succeeded]
        for index, scope in sorted(unfinished, key=lambda each: each[1] is not failed):
            if visit.state["Type"] == "Map":
                kind = "MapIterationFailed" if scope is failed else "MapIterationAborted"
                self.engine.record(self.execution, kind, {"name": visit.name, "index": index}, cause)
            kind = scope.definition["States"][scope.state]["Type"]
            if kind == "Task" or (kind in ("Wait", "Parallel", "Map") and scope is not failed):
                self.engine.record(self.execution, f"{kind}StateAborted", {}, cause)

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
            self.running.record(visit, "MapStateStarted", {"length": len(items)})
        tolerated = self._tolerance(visit, len(scope.jobs))
        self.running.record(visit, "MapRunRedriven" if redriven else "MapRunStarted", {"mapRunArn": scope.map_run_arn})
        limit = self._max_concurrency(visit) or DISTRIBUTED_CONCURRENCY
        try:
            yield from self._run_jobs(scope.jobs, limit, lambda index, child: self._child(visit, child), tolerated)
        except StateError as error:
            self.running.record(visit, "MapRunFailed", error.details())
            raise
        self.running.record(visit, "MapRunSucceeded")
        self.running.record(visit, "MapStateSucceeded")
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
            self.running.check_permission("states:StartExecution", {"stateMachineArn": self.execution.machine.arn})
            child.execution = self.engine.start_child(visit.scope.map_run_arn, self.execution.machine, processor, value)
        else:
            self.running.check_permission("states:RedriveExecution", {"executionArn": child.execution.arn})
            self.engine.redrive_execution(child.execution.arn)
        return (yield from self.running.await_execution(child.execution))

    def _tolerance(self, visit: Visit, total: int) -> Callable[[list[Job]], None]:
        """AWS docs, "Tolerated failure threshold": exceeding either value fails the run; without any, one failure does."""
        count, percentage = self._threshold(visit, "ToleratedFailureCount"), self._threshold(visit, "ToleratedFailurePercentage")
        if count is None and percentage is None:
            count = 0

        def check(jobs: list[Job]) -> None:
            failed = sum(1 for job in jobs if job.error is not None)
            too_many = count is not None and failed > count
            if too_many or (percentage is not None and failed * 100 > percentage * total):
                cause = "The specified tolerated failure threshold was exceeded"
                raise StateError("States.ExceedToleratedFailureThreshold", cause)

        return check

    def _threshold(self, visit: Visit, field: str) -> float | None:
        """A wrong value ends the execution (recorded in JSONPath by LocalStack's `test_map_state_tolerated_failure_…_path`)."""
        if field not in visit.state:
            return None
        value = self.running.evaluate(visit, field, visit.state[field])
        is_count = field == "ToleratedFailureCount"
        what = None
        if not _is_integer(value) and (is_count or not isinstance(value, float)):
            kind = "integer" if is_count else "float"
            what = f'The {field} field refers to value "{value}" which is not a valid {kind}: {visit.state[field]}'
        elif is_count and value < 0:
            what = f"{field} cannot be negative."
        elif not is_count and not 0 <= value <= 100:
            what = f"{field} must be between 0 and 100."
        if what:
            raise self.running.failure(visit, "States.Runtime", what)
        return value

    def _items(self, visit: Visit) -> list[Json]:
        if "Items" in visit.state:
            items = self.running.evaluate(visit, "Items", visit.state["Items"])
            if not isinstance(items, list):
                raise self.running.type_error(visit, "Items", "array", items)
        elif not isinstance(items := visit.input, list):
            raise self.running.query_error(visit, None, f"Map state input must be an array but was: {text_of(items)}")
        return items

    def _max_concurrency(self, visit: Visit) -> int:
        limit = self.running.evaluate(visit, "MaxConcurrency", visit.state.get("MaxConcurrency", 0))
        if not _is_integer(limit) or limit < 0:
            what = f"MaxConcurrency must be a non-negative integer, got {limit!r}"
            raise self.running.query_error(visit, "MaxConcurrency", what)
        return limit

    def _selected(self, visit: Visit, item: dict[str, Json]) -> Json:
        if "ItemSelector" not in visit.state:
            return item["Value"]
        return self.running.evaluate(visit, "ItemSelector", visit.state["ItemSelector"], map_item=item)

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


def _is_integer(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
