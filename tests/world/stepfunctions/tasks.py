"""The service integrations of a Task state: Lambda, nested executions, EventBridge, and any AWS API through `aws-sdk:`.

One `Task` is one attempt. Its `run` answers the task's result or raises the StateError that Retry and Catch see.
Sources: AWS docs, "Integrating services with Step Functions", "Handling errors in Step Functions workflows".
"""

from __future__ import annotations

import json

import orjson

from world.stepfunctions import asl
from world.stepfunctions.executions import Execution, Json, Steps, Visit
from world.stepfunctions.running import RunningExecution
from world.stepfunctions.service_models import check_arguments, check_error, check_result
from world.stepfunctions.state_errors import ApiError, ServiceError, StateError
from world.stepfunctions.texts import iso, refusal_of, text_of


class Task:
    """One attempt at a Task state."""

    def __init__(self, running: RunningExecution, visit: Visit):
        self.running = running
        self.engine = running.engine
        self.clock = running.engine.clock
        self.visit = visit
        self.integration = asl.integration_of(visit.state["Resource"])
        service, _, rest = self.integration.partition(":")
        self.resource = {"resourceType": service, "resource": rest}
        if service == "aws-sdk":
            name, _, action = rest.partition(":")
            self.resource = {"resourceType": f"aws-sdk:{name}", "resource": action}
        self.role = running.execution.machine.role_arn
        self.timeout: float | None = None
        self.heartbeat: float | None = None
        self.heartbeat_at = self.clock.now()

    def prepare(self) -> None:
        """Evaluates Arguments and the time-outs."""
        visit = self.visit
        if self.integration.endswith(".waitForTaskToken"):
            visit.task_token = self.engine.next_uuid()
        self.arguments = visit.input
        if "Arguments" in visit.state:
            self.arguments = self.running.evaluate(visit, "Arguments", visit.state["Arguments"])
        self.timeout = self._seconds("TimeoutSeconds")
        self.heartbeat = self._seconds("HeartbeatSeconds")
        self.engine.check_size(self.arguments, visit.name)

    def _seconds(self, field: str) -> float | None:
        if field not in self.visit.state:
            return None
        seconds = self.running.evaluate(self.visit, field, self.visit.state[field])
        if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds <= 0:
            raise self.running.query_error(self.visit, field, f"{field} must be a positive integer, got {seconds!r}")
        return seconds

    def run(self) -> Steps:
        """Does the task; writes its events (Scheduled, Started, maybe Submitted, then Succeeded or Failed)."""
        limits = {"timeoutInSeconds": self.timeout, "heartbeatInSeconds": self.heartbeat}
        scheduled = {"region": self.engine.region, "parameters": text_of(self.arguments)}
        scheduled |= {name: value for name, value in limits.items() if value is not None}
        self._record("TaskScheduled", scheduled)
        self._record("TaskStarted")
        check_arguments(self.integration, self.arguments)
        try:
            result = yield from self._dispatch()
            if not self.integration.endswith(".waitForTaskToken"):
                check_result(self.integration, result)
            self.engine.check_size(result, self.resource["resourceType"], is_of_result=True)
        except StateError as error:
            self._record("TaskFailed", error.details())
            raise
        self._record("TaskSucceeded", {"output": text_of(result), "outputDetails": {"truncated": False}})
        return result

    def timed_out(self, alias: str | None = None) -> StateError:
        """Records that the attempt took too long; the answer is the error to fail with. Its cause is an empty text, which only a
        catcher sees (recorded by LocalStack's `test_invoke_timeout`)."""
        error = StateError("States.Timeout", "", alias=alias)
        self._record("TaskTimedOut", error.details())
        return error

    def _record(self, kind: str, details: dict[str, Json] | None = None) -> None:
        self.running.record(self.visit, kind, {**self.resource, **(details or {})})

    def _dispatch(self) -> Steps:
        if self.integration == "states:startExecution":
            return self._start_execution()
        if self.integration == "states:startExecution.sync:2":
            return (yield from self._start_execution_and_wait())
        if self.integration == "lambda:invoke":
            return (yield from self._invoke())
        if self.integration == "lambda:invoke.waitForTaskToken":
            return (yield from self._invoke_and_wait_for_token())
        if self.integration == "events:putEvents":
            return (yield from self._put_events())
        _, service, action = self.integration.split(":")
        return (yield from self._call_service(service, action, self.arguments))

    def _argument(self, name: str) -> Json:
        if not isinstance(self.arguments, dict) or name not in self.arguments:
            raise self.running.failure(self.visit, "States.Runtime", f"The field '{name}' is required but was missing")
        return self.arguments[name]

    # AWS Lambda

    def _invoke(self) -> Steps:
        arn = self.engine.function_arn(self._argument("FunctionName"), self.arguments.get("Qualifier"))
        payload = self.arguments.get("Payload", {})
        self.engine.check_permission("Lambda.AWSLambdaException", self.role, "lambda:InvokeFunction", {"FunctionName": arn})
        if self.arguments.get("InvocationType") == "Event":
            self.engine.invoke_async(arn, payload)
            return {"StatusCode": 202}
        answer = yield from self._answer_of_function(arn, payload)
        body = _json_or_text(answer.payload)
        if answer.function_error:
            raise _function_error(answer.payload, body)
        return {"ExecutedVersion": _version_in(arn), "Payload": body, "StatusCode": 200}

    def _answer_of_function(self, arn: str, payload: Json) -> Steps:
        try:
            return (yield from self.engine.invoke(arn, payload))
        except ServiceError as error:
            check_error(self.integration, error.code, error.status)
            cause = refusal_of("AWSLambda", error.status, error.code, error.message)
            raise StateError(f"Lambda.{error.code}", cause) from error

    def _invoke_and_wait_for_token(self) -> Steps:
        """AWS docs, "Wait for a Callback with Task Token": the function's own answer does not matter, its failure does."""
        reported = self.clock.signal(f"the task token of {self.visit.name}")
        token = self.visit.task_token
        self.engine.task_tokens[token] = (self, reported)
        try:
            yield from self._invoke()
            self._record("TaskSubmitted")
            result = yield reported
        finally:
            self.engine.task_tokens.pop(token, None)
        if isinstance(result, StateError):
            raise result
        return result

    # Nested executions

    def _start_execution(self) -> Json:
        child = self._started_child()
        return {"ExecutionArn": child.arn, "StartDate": iso(child.start)}

    def _start_execution_and_wait(self) -> Steps:
        """Step Functions gets the end of the execution through its own rule (AWS docs, "IAM policies for Step Functions")."""
        for action, field in (("events:PutRule", "Name"), ("events:PutTargets", "Rule"), ("events:DescribeRule", "Name")):
            self.running.check_permission(action, {field: "StepFunctionsGetEventsForStepFunctionsExecutionRule"})
        child = self._started_child()
        try:
            self._record("TaskSubmitted", {"output": text_of({"ExecutionArn": child.arn})})
            yield child.ended
            yield self.engine.sync_delay
        finally:
            self.running.stop_child(child)
        self.running.check_permission("states:DescribeExecution", {"executionArn": child.arn})
        result = self._described(child)
        if child.status != "SUCCEEDED":
            raise StateError("States.TaskFailed", text_of(result))
        return result

    def _started_child(self) -> Execution:
        value = self.arguments.get("Input", {}) if isinstance(self.arguments, dict) else {}
        machine_arn = self._argument("StateMachineArn")
        fault = self.engine.faults.consult(self.integration, parameters=self.arguments)
        if fault is not None:
            raise StateError(f"StepFunctions.{fault.code}", refusal_of("AWSStepFunctions", 400, fault.code, fault.message))
        self.running.check_permission("states:StartExecution", {"stateMachineArn": machine_arn})
        try:
            return self.engine.start_execution(machine_arn, text_of(value), self.arguments.get("Name"))
        except ApiError as error:
            cause = refusal_of("AWSStepFunctions", 400, error.code, error.message)
            raise StateError(f"StepFunctions.{error.code}Exception", cause) from error

    def _described(self, child: Execution) -> Json:
        """DescribeExecution as `.sync:2` gives it: names in PascalCase, Input and Output parsed, dates in milliseconds."""
        result = {}
        for name, value in self.engine.describe(child.arn).items():
            if name in ("input", "output"):
                value = json.loads(value)
            elif name.endswith("Date"):
                value = round(value * 1000)
            elif name.endswith("Details"):
                value = {"Included": value["included"]}
            result[name[0].upper() + name[1:]] = value
        return result

    # Any AWS API

    # Amazon EventBridge

    def _put_events(self) -> Steps:
        """AWS docs, "Add EventBridge events with Step Functions": the details are JSON values, and the ARNs of the execution and
        the state machine are added to the resources of each event."""
        execution = self.running.execution
        entries = [
            {
                **entry,
                "Detail": text_of(entry["Detail"]),
                "Resources": [*entry.get("Resources", []), execution.arn, execution.machine.arn],
            }
            for entry in self._argument("Entries")
        ]
        answer = yield from self._call_service("eventbridge", "putEvents", {"Entries": entries})
        if answer["FailedEntryCount"]:
            raise StateError("EventBridge.FailedEntry", text_of(answer))
        return answer

    def _call_service(self, service: str, action: str, arguments: Json) -> Steps:
        services = self.engine.services_of(self.role)
        if services is None:
            raise StateError("States.Runtime", f"this engine has no AWS services to call {service}:{action}")
        return (yield services.call(service, action, arguments))


def _json_or_text(payload: bytes) -> Json:
    try:
        return orjson.loads(payload) if payload else None
    except ValueError:
        return payload.decode(errors="replace")


def _function_error(payload: bytes, body: Json) -> StateError:
    """AWS docs, "Handling errors": errorType is the error's name; without one the error is Lambda.Unknown."""
    text = payload.decode(errors="replace")
    if isinstance(body, dict) and body.get("errorType"):
        return StateError(body["errorType"], text)
    reason = "The cause could not be determined because Lambda did not return an error type."
    return StateError("Lambda.Unknown", f"{reason} Returned payload: {text}")


def _version_in(function_arn: str) -> str:
    parts = function_arn.split(":")
    return parts[7] if len(parts) > 7 else "$LATEST"
