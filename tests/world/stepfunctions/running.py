"""One execution while it runs, as each of its states needs it: expressions, the Context object, events, permissions, children."""

from __future__ import annotations

from world.stepfunctions.executions import Execution, Json, Service, Steps, Visit
from world.stepfunctions.jsonata_queries import QueryError, expression_in, has_expression
from world.stepfunctions.state_errors import StateError
from world.stepfunctions.texts import iso, text_of


class RunningExecution:
    """The services for a visit to a state, in addition to the state's own rules."""

    def __init__(self, engine: Service, execution: Execution):
        self.engine = engine
        self.execution = execution

    # Expressions, context, events

    def evaluate(self, visit: Visit, field: str, template: Json, map_item: dict[str, Json] | None = None, **extra: Json) -> Json:
        """The value of a field's template. `extra` are fields of `$states` besides input and context: result, errorOutput."""
        if not has_expression(template):
            return template
        states = {"input": visit.input, "context": self._context(visit, map_item), **extra}
        try:
            return self.engine.queries.evaluate(template, {**visit.scope.visible_variables(), "states": states}, field)
        except QueryError as error:
            raise self.query_error(visit, error.location, str(error)) from error

    def query_error(self, visit: Visit, location: str | None, what: str) -> StateError:
        """Records that an expression failed, or gave a value that the state cannot use; the answer is the error."""
        failure = self.failure(visit, "States.QueryEvaluationError", what)
        details = {**failure.details(), "state": visit.name, **({"location": location} if location else {})}
        self.record(visit, "EvaluationFailed", details)
        return failure

    def type_error(self, visit: Visit, field: str, expected: str, value: Json) -> StateError:
        """The error of a field whose value has another type than the state needs. AWS's words were recorded for `Items`."""
        found = f"returned an unexpected result type. Expected '{expected}', but was '{_type_of(value)}'"
        expression = expression_in(visit.state.get(field)) or field
        what = f"The JSONata expression '{expression}' specified for the field '{field}' {found} for value: {text_of(value)}"
        return self.query_error(visit, field, what)

    @staticmethod
    def failure(visit: Visit, error: str, what: str) -> StateError:
        """An error of the interpreter itself: its cause names the state and the event that entered it."""
        where = f"'{visit.name}' (entered at the event id #{visit.scope.entered_event})"
        return StateError(error, f"An error occurred while executing the state {where}. {what}")

    def _context(self, visit: Visit, map_item: dict[str, Json] | None) -> dict[str, Json]:
        """AWS docs, "Accessing execution data from the Context object". RedriveCount is always there, and RetryCount only in
        states that can be retried, as LocalStack's recordings of AWS have it (`test_context_object`, `outputdecl`). `Map` is
        there in the ItemSelector alone: "You must define parameters from the Context object in the ItemSelector block of the
        main Map state, not within the states included in the ItemProcessor"."""
        execution, machine = self.execution, self.execution.machine
        about: dict[str, Json] = {
            "Id": execution.arn,
            "Input": execution.input,
            "Name": execution.name,
            "RedriveCount": execution.redrive_count,
            "RoleArn": machine.role_arn,
            "StartTime": iso(execution.start),
        }
        if execution.redrive_count:
            about["RedriveTime"] = iso(execution.redriven_at)
        state: dict[str, Json] = {"EnteredTime": iso(visit.entered_at), "Name": visit.name}
        if visit.state["Type"] in ("Task", "Parallel", "Map"):
            state["RetryCount"] = visit.retry_count
        context: dict[str, Json] = {
            "Execution": about,
            "State": state,
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

    # Children, permissions

    def await_execution(self, execution: Execution) -> Steps:
        """Waits for a child; stops it when this process is killed. Raises States.TaskFailed if it does not succeed."""
        try:
            yield execution.ended
            if execution.status != "SUCCEEDED":
                raise StateError(execution.error or f"States.{_camel(execution.status)}", execution.cause)
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


def _type_of(value: Json) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _camel(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))
