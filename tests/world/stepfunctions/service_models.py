"""The requests of a state machine to a service, and the answers to them, beside botocore's model of the service.

Arguments and results have the API's fields in PascalCase. Violations go to `world.base.shapes.VIOLATIONS`. Integrations of AWS
SDKs go over the wire, where the world's AWS checks requests and answers itself (world/aws/models.py).

Sources: AWS docs, "Integrating services with Step Functions", and the pages of the optimized integrations of Lambda, EventBridge
and Step Functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import botocore.session
from botocore.model import OperationModel

from world.base.beyond_models import VALUES
from world.base.shapes import VIOLATIONS, Errors, Pascal

PASCAL = Pascal(VALUES)

#: Optimized integrations that the engine answers itself: boto3's service, operation, and the fields that are JSON values instead
#: of texts or bytes.
OPTIMIZED = {
    "events:putEvents": ("events", "PutEvents", {"Detail"}),
    "lambda:invoke": ("lambda", "Invoke", {"Payload"}),
    "states:startExecution": ("stepfunctions", "StartExecution", {"Input"}),
}
#: Errors of Lambda's integration that no answer of Lambda has. AWS docs, "Handling errors in Step Functions workflows" and
#: "Invoke an AWS Lambda function with Step Functions".
OF_LAMBDA = {"AWSLambdaException", "ClientExecutionTimeoutException", "SdkClientException", "Unknown"}
#: The answer of `.sync:2`: the execution that has ended.
DESCRIBED = ("stepfunctions", "DescribeExecution", {"Input", "Output", "StartDate", "StopDate", "RedriveDate"})


@cache
def operation_of(service: str, operation: str) -> OperationModel:
    return botocore.session.get_session().get_service_model(service).operation_model(operation)


@cache
def _errors_of(service: str, operation: str) -> Errors:
    return Errors(service, operation_of(service, operation))


def check_arguments(integration: str, arguments: Any) -> None:
    """`integration`: as in a state's Resource, with or without `.sync:2` or `.waitForTaskToken`."""
    service, operation, free = _optimized(integration)
    if service:
        shape = operation_of(service, operation).input_shape
        _add(service, operation, "the request of a state machine", PASCAL.problems(without(free, arguments), shape, ""))


def check_request(service: str, operation: OperationModel, arguments: Any) -> None:
    """The arguments of an AWS SDK integration, before they are written as the API writes them."""
    if operation.input_shape is not None:
        found = PASCAL.problems(arguments, operation.input_shape, "")
        _add(service, operation.name, "the request of a state machine", found)


def check_result(integration: str, result: Any) -> None:
    service, operation, free = DESCRIBED if integration.endswith(".sync:2") else _optimized(integration)
    if service:
        shape = operation_of(service, operation).output_shape
        free = free | {"StartDate"}
        _add(service, operation, "the answer to a state machine", PASCAL.problems(without(free, result), shape, ""))


def check_error(integration: str, code: str, status: int) -> None:
    service, operation, _ = _optimized(integration)
    if service and code not in OF_LAMBDA:
        found = _errors_of(service, operation).problems(code, status)
        _add(service, operation, "the answer to a state machine", found)


def _optimized(integration: str) -> tuple[str, str, set[str]]:
    return OPTIMIZED.get(integration.split(".")[0], ("", "", set()))


def without(free: set[str], value: Any) -> Any:
    """The value without the fields that are not written as the API writes them; empty texts take their place."""
    if isinstance(value, list):
        return [without(free, each) for each in value]
    return {name: "" if name in free else without(free, of) for name, of in value.items()} if isinstance(value, dict) else value


def _add(service: str, operation: str, part: str, problems: Iterable[str]) -> None:
    VIOLATIONS.add(f"{service} {operation}: {part} {problem}." for problem in problems)
