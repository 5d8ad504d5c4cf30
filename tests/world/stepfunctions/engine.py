"""AWS Step Functions, Standard workflows, on the virtual clock: executions, their history, stop, redrive, limits.

`Engine` is the service; `interpreter.py` runs the states of one execution, `tasks.py` does the service integrations.
State machines (their definitions, versions and aliases) are kept elsewhere: the engine calls `machines.resolve(arn)`.

Every public method of `Engine` may be called from any thread, also from inside the driver while a state runs: none of them
waits for virtual time, and the clock runs the work later. Times are epoch seconds of virtual time, texts are JSON texts.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

from world.base.clock import Clock, Killed
from world.base.faults import Plan
from world.stepfunctions import asl
from world.stepfunctions.executions import Execution, Functions, Machine, Machines, Scope, Services, Steps
from world.stepfunctions.interpreter import Interpreter
from world.stepfunctions.jsonata_queries import Queries
from world.stepfunctions.state_errors import ApiError, ServiceError, StateError
from world.stepfunctions.texts import refusal_of, text_of

# AWS docs, "Service quotas": events in the history of one execution. Event 25,000 is ExecutionSucceeded or the execution fails.
HISTORY_LIMIT = 25_000

# AWS docs, "Service quotas": bytes of a state's input, output, result or of an execution's input.
PAYLOAD_LIMIT = 256 * 1024

# AWS docs, "Redriving executions": the period after the end of an execution in which it can be redriven, in seconds.
REDRIVABLE_PERIOD = 14 * 86_400

# Virtual seconds after which a `.sync:2` parent notices that its child ended. AWS gives no number.
SYNC_DELAY = 1.0

_FORBIDDEN_IN_NAMES = set(' <>{}[]?*"#%\\^|~`$&,;:/')
_FINAL_EVENTS = {
    "SUCCEEDED": "ExecutionSucceeded",
    "FAILED": "ExecutionFailed",
    "ABORTED": "ExecutionAborted",
    "TIMED_OUT": "ExecutionTimedOut",
}


class Engine:
    """The Step Functions service of one account and region.

    `latency` gives functions virtual seconds per invocation, by function name. `listeners` are called with an execution
    whenever its status changed. `redrive_renews_entered_time` says whether a redriven state gets a new State.EnteredTime:
    AWS's docs are silent, so a scenario may try both. `map_lists_failed_children` says whether the result of a Distributed Map
    has an item for a child that failed. AWS's docs ("ResultWriter") say so of COMPACT, the default: "If a child workflow
    execution fails, Step Functions returns its execution result unchanged". No recording shows such an item. `faults` may
    refuse a state machine's `states:startExecution`.
    """

    def __init__(
        self,
        clock: Clock,
        machines: Machines,
        functions: Functions,
        services: Services | None = None,
        account: str = "123456789012",
        region: str = "eu-west-1",
        partition: str = "aws",
    ):
        self.clock = clock
        self.machines = machines
        self.functions = functions
        self.services = services
        self.account, self.region, self.partition = account, region, partition
        self.listeners: list[Callable[[Execution], None]] = []
        #: Called with an execution and the name of a state that it enters; must not call the service, but may use the clock.
        self.on_entered: list[Callable[[Execution, str], None]] = []
        #: Called with the ARN and the payload of an asynchronous invocation that failed for good.
        self.on_abandoned: list[Callable[[str, Any], None]] = []
        self.history_limit = HISTORY_LIMIT
        self.payload_limit = PAYLOAD_LIMIT
        self.sync_delay = SYNC_DELAY
        self.faults = Plan()
        #: The services as a state machine's role calls them.
        self.services_of: Callable[[str], Services | None] = lambda role: self.services
        #: Returns the reason why a role may not make a call, or None: (its ARN, the action, the call's parameters).
        self.refusal: Callable[[str, str, dict[str, Any]], str | None] = lambda role, action, parameters: None
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Forgets every execution. Reset the clock first: it ends what runs."""
        self.queries = Queries(self.clock)
        self.latency: dict[str, float] = {}
        self.redrive_renews_entered_time = True
        self.map_lists_failed_children = True
        self.executions: dict[str, Execution] = {}
        self.task_tokens: dict[str, Any] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._names = 0

    # The API

    def start_execution(self, machine_arn: str, input_text: str = "{}", name: str | None = None) -> Execution:
        """StartExecution. A running execution of the same name and input is answered again."""
        machine = self.machines.resolve(machine_arn)
        definition = self._parsed(machine.definition)
        value = self._checked_input(input_text)
        with self._lock:
            name = self._checked_name(name) if name else self.next_uuid()
            arn = machine.arn.replace(":stateMachine:", ":execution:", 1) + ":" + name
            known = self.executions.get(arn)
            if known is not None:
                if known.status == "RUNNING" and known.input_text == input_text:
                    return known
                raise ApiError("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
            return self._begin(arn, name, machine, definition, input_text, value)

    def start_child(self, map_run_arn: str, machine: Machine, processor: dict[str, Any], value: Any) -> Execution:
        """Starts a child execution of a Distributed Map."""
        with self._lock:
            name = self.next_uuid()
            arn = map_run_arn.replace(":mapRun:", ":execution:", 1) + ":" + name
            return self._begin(arn, name, machine, processor, text_of(value), value, map_run_arn)

    def stop_execution(self, arn: str, error: str | None = None, cause: str | None = None) -> Execution:
        """StopExecution: it ends at once, and so do its children that it waits for. Stopping an ended one changes nothing."""
        execution = self.execution(arn)
        self.finish(execution, "ABORTED", error=error, cause=cause)
        return execution

    def redrive_execution(self, arn: str) -> Execution:
        """RedriveExecution: goes on at the step that did not succeed, with the same input, variables and ARN."""
        execution = self.execution(arn)
        with self._lock:
            refusal = self.redrive_refusal(execution)
            if refusal:
                raise ApiError("ExecutionNotRedrivable", refusal)
            execution.status, execution.stop = "RUNNING", None
            execution.error = execution.cause = None
            execution.redrive_count += 1
            execution.redriven_at = self.clock.now()
            execution.ended.clear()
            self.record(execution, "ExecutionRedriven", {"redriveCount": execution.redrive_count})
            execution.root.prepare_redrive()
            self._launch(execution)
        return execution

    def execution(self, arn: str) -> Execution:
        """Raises ApiError ExecutionDoesNotExist."""
        found = self.executions.get(arn)
        if found is None:
            raise ApiError("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return found

    def executions_of(self, machine_arn: str, status: str | None = None) -> list[Execution]:
        """Returns the executions of a machine, or of one version or alias of it, in the order of ListExecutions."""
        with self._lock:
            every = list(self.executions.values())
        named = [e for e in every if machine_arn in (e.machine.arn, e.machine.version_arn, e.machine.alias_arn)]
        return _newest_first([e for e in named if e.map_run_arn is None and status in (None, e.status)])

    def children_of(self, map_run_arn: str, status: str | None = None) -> list[Execution]:
        """Returns the executions that a Distributed Map has started, in the order of ListExecutions."""
        with self._lock:
            every = list(self.executions.values())
        return _newest_first([e for e in every if e.map_run_arn == map_run_arn and status in (None, e.status)])

    def history(self, arn: str) -> list[dict[str, Any]]:
        """Returns every event of an execution, as GetExecutionHistory does; `timestamp` in epoch seconds."""
        return list(self.execution(arn).events)

    def describe(self, arn: str) -> dict[str, Any]:
        """Returns the answer of DescribeExecution, with dates in epoch seconds and without absent fields."""
        execution = self.execution(arn)
        refusal = self.redrive_refusal(execution)
        included = {"included": True}
        answer = {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine.arn,
            "name": execution.name,
            "status": execution.status,
            "startDate": execution.start,
            "stopDate": execution.stop,
            "input": execution.input_text,
            "inputDetails": included,
            "output": execution.output_text,
            "outputDetails": included if execution.output_text is not None else None,
            "mapRunArn": execution.map_run_arn,
            "error": execution.error,
            "cause": execution.cause,
            "stateMachineVersionArn": execution.machine.version_arn,
            "stateMachineAliasArn": execution.machine.alias_arn,
            "redriveCount": execution.redrive_count,
            "redriveDate": execution.redriven_at,
            "redriveStatus": "NOT_REDRIVABLE" if refusal else "REDRIVABLE",
            "redriveStatusReason": refusal,
        }
        return {name: value for name, value in answer.items() if value is not None}

    def redrive_refusal(self, execution: Execution) -> str | None:
        """Returns the reason why an execution cannot be redriven (API reference of RedriveExecution), or None."""
        if execution.status in ("RUNNING", "SUCCEEDED"):
            return f"Execution is {execution.status} and cannot be redriven"
        if len(execution.events) >= self.history_limit - 1:
            return "Execution history event limit exceeded"
        if self.clock.now() - execution.stop > REDRIVABLE_PERIOD:
            return "Execution has exceeded the redrivable period of 14 days"
        return None

    # Used by the interpreter

    def record(self, execution: Execution, kind: str, details: dict[str, Any], previous: int | None = None) -> int:
        """Appends an event and answers its id. Raises Killed if the execution ended, or ends here at the history limit."""
        with self._lock:
            if execution.status != "RUNNING":
                raise Killed()
            if len(execution.events) >= self.history_limit - 1:
                cause = f"The execution reached the maximum number of history events ({self.history_limit})."
                self.finish(execution, "FAILED", error="States.Runtime", cause=cause)
                raise Killed()
            return self._append(execution, kind, details, previous)

    def finish(
        self,
        execution: Execution,
        status: str,
        output: Any = None,
        error: str | None = None,
        cause: str | None = None,
    ) -> None:
        """Ends an execution: its status, its last event, its processes (and with them the children they wait for)."""
        with self._lock:
            if execution.status != "RUNNING":
                return
            if status == "SUCCEEDED":
                execution.output_text = text_of(output)
            execution.status, execution.stop = status, self.clock.now()
            execution.error, execution.cause = error or None, cause or None
            self._append(execution, _FINAL_EVENTS[status], _final_details(execution), None)
            if execution.timeout is not None:
                execution.timeout.cancel()
            execution.process.kill()
            execution.ended.fire(status)
        self._announce(execution)

    def check_permission(self, error: str, role: str, action: str, parameters: dict[str, Any]) -> None:
        """Raises a StateError of that name for a call that a state machine's role may not make."""
        refusal = self.refusal(role, action, parameters)
        if refusal:
            service, status = ("AWSLambda", 403) if error.startswith("Lambda.") else ("AWSStepFunctions", 400)
            raise StateError(error, refusal_of(service, status, "AccessDeniedException", refusal))

    def check_size(self, value: Any, name: str, is_of_result: bool = False) -> None:
        """Raises States.DataLimitExceeded for a value of more than 256 KiB of JSON in UTF-8. `name` is that of the state, or of
        the service whose result it is."""
        if len(text_of(value).encode()) > self.payload_limit:
            limit = "a size exceeding the maximum number of bytes service limit"
            cause = f"The state/task '{name}' returned a result with {limit}."
            raise StateError("States.DataLimitExceeded", cause, is_of_result=is_of_result)

    def function_arn(self, function: str, qualifier: str | None = None) -> str:
        """The ARN behind a function's name, partial ARN or ARN, as FunctionName of an invocation allows them."""
        if not function.startswith("arn:"):
            name = function.rpartition("function:")[2]
            function = f"arn:{self.partition}:lambda:{self.region}:{self.account}:function:{name}"
        return f"{function}:{qualifier}" if qualifier else function

    def invoke(self, function_arn: str, payload: Any) -> Steps:
        """Invokes a function and lets its latency pass; answers what its Call answers. Raises ServiceError."""
        answer = yield self.functions.invoke(function_arn, payload)
        latency = self.latency.get(function_arn.split(":")[6])
        if latency:
            yield latency
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    def invoke_async(self, function_arn: str, payload: Any) -> None:
        """Invokes a function as an event. AWS docs, "Asynchronous invocation": two more attempts, after one and two minutes."""
        self.clock.spawn(self._invoke_until_accepted(function_arn, payload), f"asynchronous {function_arn}")

    def _invoke_until_accepted(self, function_arn: str, payload: Any) -> Steps:
        for pause in (60, 120, None):
            try:
                answer = yield from self.invoke(function_arn, payload)
                if not answer.function_error:
                    return
            except ServiceError:
                pass
            if pause is not None:
                yield pause
        for hear in self.on_abandoned:
            hear(function_arn, payload)

    def report_task(self, token: str, result: Any) -> None:
        """SendTaskSuccess with a result, or SendTaskFailure with a StateError."""
        self._task_of(token)[1].fire(result)

    def report_heartbeat(self, token: str) -> None:
        """SendTaskHeartbeat."""
        self._task_of(token)[0].heartbeat_at = self.clock.now()

    def _task_of(self, token: str) -> Any:
        if token not in self.task_tokens:
            raise ApiError("TaskTimedOut", "The task token is not, or no longer, waited for")
        return self.task_tokens[token]

    def next_uuid(self) -> str:
        """A UUID that is the same in every run."""
        with self._lock:
            self._names += 1
            return str(uuid.UUID(int=self._names, version=4))

    # Inside

    def _begin(
        self,
        arn: str,
        name: str,
        machine: Machine,
        definition: dict[str, Any],
        input_text: str,
        value: Any,
        map_run_arn: str | None = None,
    ) -> Execution:
        execution = Execution(
            arn=arn,
            name=name,
            machine=machine,
            definition=definition,
            input_text=input_text,
            start=self.clock.now(),
            root=Scope(definition, value),
            ended=self.clock.signal(f"the end of {name}"),
            map_run_arn=map_run_arn,
        )
        self.executions[arn] = execution
        details = {"input": input_text, "inputDetails": {"truncated": False}, "roleArn": machine.role_arn}
        if machine.version_arn:
            details["stateMachineVersionArn"] = machine.version_arn
        if machine.alias_arn:
            details["stateMachineAliasArn"] = machine.alias_arn
        self.record(execution, "ExecutionStarted", details, previous=0)
        self._launch(execution)
        return execution

    def _launch(self, execution: Execution) -> None:
        seconds = execution.definition.get("TimeoutSeconds")
        if seconds is not None:
            execution.timeout = self.clock.after(seconds, lambda: self.finish(execution, "TIMED_OUT"))
        execution.process = self.clock.spawn(Interpreter(self, execution).run(), f"execution {execution.name}")
        self._announce(execution)

    def _announce(self, execution: Execution) -> None:
        for listener in self.listeners:
            listener(execution)

    def _append(self, execution: Execution, kind: str, details: dict[str, Any], previous: int | None) -> int:
        number = len(execution.events) + 1
        event = {
            "timestamp": self.clock.now(),
            "type": kind,
            "id": number,
            "previousEventId": number - 1 if previous is None else previous,
        }
        if details:
            event[_details_key(kind)] = details
        execution.events.append(event)
        if kind.endswith("StateEntered"):
            for hears in self.on_entered:
                hears(execution, details["name"])
        return number

    def _parsed(self, definition: str) -> dict[str, Any]:
        if definition not in self._definitions:
            try:
                self._definitions[definition] = asl.parse(definition)
            except asl.DefinitionError as error:
                raise ApiError("InvalidDefinition", f"Invalid State Machine Definition: '{error}'") from error
        return self._definitions[definition]

    def _checked_input(self, input_text: str) -> Any:
        if len(input_text.encode()) > self.payload_limit:
            message = f"Value at 'input' failed to satisfy constraint: Member must have length at most {self.payload_limit}"
            raise ApiError("ValidationException", message)
        try:
            return json.loads(input_text)
        except ValueError as error:
            raise ApiError("InvalidExecutionInput", f"Invalid State Machine Execution Input: '{error}'") from error

    def _checked_name(self, name: str) -> str:
        if len(name) > 80 or _FORBIDDEN_IN_NAMES & set(name) or any(ord(letter) < 32 for letter in name):
            raise ApiError("InvalidName", f"Invalid Name: '{name}'")
        return name


def _newest_first(executions: list[Execution]) -> list[Execution]:
    """API reference of ListExecutions: "Results are sorted by time, with the most recent execution first. Running executions are
    sorted by their startDate or redriveDate, and other executions are sorted by their stopDate"."""
    return sorted(reversed(executions), key=lambda each: each.stop or each.redriven_at or each.start, reverse=True)


def _final_details(execution: Execution) -> dict[str, Any]:
    if execution.status == "SUCCEEDED":
        return {"output": execution.output_text, "outputDetails": {"truncated": False}}
    return {name: value for name, value in (("error", execution.error), ("cause", execution.cause)) if value is not None}


def _details_key(kind: str) -> str:
    """The field that carries an event's details: stateEnteredEventDetails for WaitStateEntered, and so on."""
    for suffix in ("StateEntered", "StateExited"):
        if kind.endswith(suffix):
            return "s" + suffix[1:] + "EventDetails"
    return kind[0].lower() + kind[1:] + "EventDetails"
