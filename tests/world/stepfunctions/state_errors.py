"""The errors of the Step Functions world, and which of them a retrier or catcher matches."""

from __future__ import annotations

from dataclasses import dataclass


class StateError(Exception):
    """A state failed: `error` is what ErrorEquals matches, `cause` the text that goes with it. Each may be missing.

    `is_of_result`: the result of a task is too large. `alias`: another name that ErrorEquals may have for the error.
    """

    def __init__(self, error: str | None, cause: str | None = None, *, is_of_result: bool = False, alias: str | None = None):
        self.error = error
        self.cause = cause
        self.is_of_result = is_of_result
        self.alias = alias
        super().__init__(f"{error}: {cause}")

    def output(self) -> dict[str, str | None]:
        """Returns the value of `$states.errorOutput` in a catcher."""
        return {"Error": self.error, "Cause": self.cause}

    def details(self) -> dict[str, str]:
        """Returns the fields of an event. AWS leaves out what is missing."""
        return {name: value for name, value in (("error", self.error), ("cause", self.cause)) if value}


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


def matches(error_equals: list[str], failure: StateError) -> bool:
    """Checks whether a retrier or catcher with this ErrorEquals takes the error.

    Sources: AWS docs, "Handling errors in Step Functions workflows", and LocalStack's recordings of AWS. States.Runtime always
    fails the execution, also if a catcher names it (`test_catch_states_runtime`). States.ALL takes a task's result that is too
    large (`test_states_errors`). The documentation excludes States.DataLimitExceeded, which the world does in all other cases.
    """
    if failure.error == "States.Runtime":
        return False
    if failure.error in error_equals or failure.alias in error_equals:
        return True
    if failure.error == "States.DataLimitExceeded":
        return failure.is_of_result and "States.ALL" in error_equals
    return "States.ALL" in error_equals or ("States.TaskFailed" in error_equals and failure.error != "States.Timeout")
