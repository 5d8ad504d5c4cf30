"""The errors of the Step Functions world, and which of them a retrier or catcher matches."""

from __future__ import annotations

from dataclasses import dataclass


class StateError(Exception):
    """A state failed: `error` is what ErrorEquals matches, `cause` the text that goes with it."""

    def __init__(self, error: str, cause: str = ""):
        self.error = error
        self.cause = cause
        super().__init__(f"{error}: {cause}")

    def output(self) -> dict[str, str]:
        """Returns the value of `$states.errorOutput` in a catcher."""
        return {"Error": self.error, "Cause": self.cause}


@dataclass(eq=False)
class ServiceError(Exception):
    """An AWS service refused a call: its error code, its message, the HTTP status."""

    code: str
    message: str
    status: int = 400

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ApiError(Exception):
    """The Step Functions API refuses a request. `code` is AWS's name, e.g. ExecutionNotRedrivable."""

    def __init__(self, code: str, message: str):
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


def matches(error_equals: list[str], error: str) -> bool:
    """Checks whether a retrier or catcher with this ErrorEquals takes the error.

    Source: AWS docs, "Handling errors in Step Functions workflows". States.Runtime always fails the execution. States.ALL and
    States.TaskFailed do not match States.DataLimitExceeded. States.TaskFailed does not match States.Timeout. A missed heartbeat
    is a kind of States.Timeout.
    """
    if error == "States.Runtime":
        return False
    if error in error_equals:
        return True
    if error == "States.DataLimitExceeded":
        return False
    if "States.ALL" in error_equals:
        return True
    if error == "States.HeartbeatTimeout" and "States.Timeout" in error_equals:
        return True
    return "States.TaskFailed" in error_equals and error != "States.Timeout"
