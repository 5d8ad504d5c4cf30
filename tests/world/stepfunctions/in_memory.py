"""State machines and functions without AWS, for tests of the Step Functions engine alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from world.base.clock import Call
from world.stepfunctions.executions import Machine
from world.stepfunctions.state_errors import ApiError, ServiceError


class InMemoryMachines:
    """Definitions by name. A machine is only ever its newest definition."""

    def __init__(self, account: str = "123456789012", region: str = "eu-west-1"):
        self._prefix = f"arn:aws:states:{region}:{account}:stateMachine:"
        self._role = f"arn:aws:iam::{account}:role/machine"
        self._machines: dict[str, Machine] = {}

    def put(self, name: str, definition: dict[str, Any]) -> str:
        """Creates or replaces a machine; the answer is its ARN."""
        arn = self._prefix + name
        self._machines[arn] = Machine(arn, json.dumps(definition), self._role)
        return arn

    def resolve(self, arn: str) -> Machine:
        if arn not in self._machines:
            raise ApiError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
        return self._machines[arn]


class FunctionFailed(Exception):
    """Raised by a Python function to fail as a Lambda does: `error_type` becomes the error's name (none: Lambda.Unknown)."""

    def __init__(self, error_type: str | None, message: str = ""):
        self.error_type = error_type
        super().__init__(message)


@dataclass
class Answer:
    """The result of an invocation: the payload, and whether the function failed."""

    payload: bytes
    function_error: str | None = None


class PythonFunctions(dict[str, Callable[[Any], Any]]):
    """Functions by name. One may answer a JSON value, or raise FunctionFailed, or a ServiceError as of the Lambda API."""

    def invoke(self, function_arn: str, payload: dict[str, Any]) -> Call:
        name = function_arn.split(":")[6]
        return Call(lambda call: self._run(call, name, json.loads(json.dumps(payload))), f"function {name}")

    def _run(self, call: Call, name: str, payload: Any) -> None:
        if name not in self:
            call.fail(ServiceError("ResourceNotFoundException", f"Function not found: {name}", 404))
            return
        try:
            call.answer(Answer(json.dumps(self[name](payload)).encode()))
        except ServiceError as error:
            call.fail(error)
        except FunctionFailed as error:
            body = {"errorMessage": str(error)}
            if error.error_type is not None:
                body["errorType"] = error.error_type
            call.answer(Answer(json.dumps(body).encode(), "Unhandled"))
