"""AWS SDK integrations (`aws-sdk:<service>:<action>`) of the Step Functions world, through boto3 against an endpoint.

Step Functions writes names in PascalCase, however the API spells them, and times as ISO 8601. It names an error as the AWS SDK
for Java does, prefixed with the service. Source: AWS docs, "Learning to use AWS service SDK integrations in Step Functions".
The names of exceptions come from the Java SDK's code generator (Fault becomes Exception, and an unmodelled error is
<Service>Exception).

A call runs in its own thread, as a clock Call, because the answering server may let virtual time pass.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from world.base.clock import Call
from world.stepfunctions.service_models import check_request
from world.stepfunctions.state_errors import StateError
from world.stepfunctions.texts import REQUEST_ID, iso

Json = Any

# Step Functions' name of a service -> boto3's name, if it differs.
BOTO_NAMES = {
    "sfn": "stepfunctions",
    "eventbridge": "events",
    "elasticloadbalancingv2": "elbv2",
    "elasticloadbalancing": "elb",
    "cloudwatchlogs": "logs",
}
# Step Functions' name of a service -> prefix of its errors, if it is not just capitalised.
_ERROR_PREFIXES = {
    "autoscaling": "AutoScaling",
    "cloudwatch": "CloudWatch",
    "cloudwatchlogs": "CloudWatchLogs",
    "dynamodb": "DynamoDb",
    "elasticloadbalancing": "ElasticLoadBalancing",
    "elasticloadbalancingv2": "ElasticLoadBalancingV2",
    "eventbridge": "EventBridge",
}


class AwsServices:
    """Calls AWS APIs for the engine. `endpoint` may be set later than the object is made."""

    def __init__(self, endpoint: str, region: str, timeout: float = 120):
        self.endpoint = endpoint
        self._region = region
        self._timeout = timeout
        #: A switch: a time of a full second is written with ".000". No source shows the form of these times (row 84 of
        #: docs/aws-evidence.md). The default is the form of the times in the context object.
        self.full_seconds_have_fraction = False
        #: Access key, secret and token with which a role's calls are signed.
        self.credentials: Callable[[str], tuple[str, str, str | None]] = lambda role: ("step-functions", "secret", None)
        self._clients: dict[tuple[str, str, str], Any] = {}

    def of(self, role: str) -> OfRole:
        """The same services, called by a state machine's role."""
        return OfRole(self, role)

    def call(self, service: str, action: str, parameters: Json, role: str = "") -> Call:
        """Answers the result as Step Functions shows it, or fails with StateError."""

        def work(call: Call) -> None:
            try:
                call.answer(self._request(service, action, parameters, role))
            except BaseException as error:
                call.fail(error)

        return Call(lambda call: threading.Thread(target=work, args=(call,), daemon=True).start(), f"{service}:{action}")

    def _request(self, service: str, action: str, parameters: Json, role: str) -> Json:
        client = self._client(BOTO_NAMES.get(service, service), role)
        operation = _operation(client, action)
        if operation is None:
            raise StateError("States.Runtime", f"The resource 'aws-sdk:{service}:{action}' does not exist")
        check_request(BOTO_NAMES.get(service, service), operation, parameters)
        request = to_request(parameters, operation.input_shape) if operation.input_shape else {}
        try:
            answer = getattr(client, xform_name(operation.name))(**request)
        except ClientError as error:
            raise named(service, operation, error) from error
        except BotoCoreError as error:
            raise StateError(f"{prefix_of(service)}.SdkClientException", str(error)) from error
        answer.pop("ResponseMetadata", None)
        return to_result(answer, operation.output_shape, self.full_seconds_have_fraction)

    def _client(self, name: str, role: str) -> Any:
        key = (name, self.endpoint, role)
        if key not in self._clients:
            access_key, secret, token = self.credentials(role)
            config = Config(parameter_validation=False, retries={"total_max_attempts": 1}, read_timeout=self._timeout)
            self._clients[key] = boto3.client(
                name,
                region_name=self._region,
                endpoint_url=self.endpoint,
                aws_access_key_id=access_key,
                aws_secret_access_key=secret,
                aws_session_token=token,
                config=config,
            )
        return self._clients[key]


@dataclass(frozen=True)
class OfRole:
    """`AwsServices` with one role's credentials."""

    services: AwsServices
    role: str

    def call(self, service: str, action: str, parameters: Json) -> Call:
        """See `AwsServices.call`."""
        return self.services.call(service, action, parameters, self.role)


def _operation(client: Any, action: str) -> OperationModel | None:
    model = client.meta.service_model
    name = action[0].upper() + action[1:]
    return model.operation_model(name) if name in model.operation_names else None


def prefix_of(service: str) -> str:
    return _ERROR_PREFIXES.get(service, service.capitalize())


def named(service: str, operation: OperationModel, error: ClientError) -> StateError:
    """The error of a call as Step Functions names it."""
    code = error.response["Error"].get("Code", "")
    message = error.response["Error"].get("Message", "")
    modelled = {}
    for shape in operation.service_model.error_shapes:
        modelled[shape.name] = modelled[shape.error_code] = shape.name
    name = modelled.get(code, f"{prefix_of(service)}Exception")
    name = name.removesuffix("Fault")
    if not name.endswith("Exception"):
        name += "Exception"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    about = f"Service: {prefix_of(service)}, Status Code: {status}, Request ID: {REQUEST_ID}"
    cause = f"{message} ({about}) (SDK Attempt Count: 1)"
    return StateError(f"{prefix_of(service)}.{name}", cause)


def to_request(value: Json, shape: Shape) -> Any:
    """Arguments in PascalCase to the API's own spelling. Raises States.Runtime for a name that the API does not have."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return dict(_request_member(name, item, shape) for name, item in value.items())
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [to_request(item, shape.member) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {name: to_request(item, shape.value) for name, item in value.items()}
    return value


def _request_member(name: str, value: Json, shape: StructureShape) -> tuple[str, Any]:
    for member in (name, name[0].lower() + name[1:]):
        if member in shape.members:
            return member, to_request(value, shape.members[member])
    raise StateError("States.Runtime", f"The field '{name}' is not supported by Step Functions")


def to_result(value: Any, shape: Shape | None, has_fraction: bool = False) -> Json:
    """An API's answer as Step Functions shows it. `has_fraction` says if a full second is written with a fraction."""
    if isinstance(shape, StructureShape):
        parts = {name: to_result(item, shape.members.get(name), has_fraction) for name, item in value.items()}
        return {name[0].upper() + name[1:]: part for name, part in parts.items()}
    if isinstance(shape, ListShape):
        return [to_result(item, shape.member, has_fraction) for item in value]
    if isinstance(shape, MapShape):
        return {name: to_result(item, shape.value, has_fraction) for name, item in value.items()}
    if isinstance(value, datetime.datetime):
        text = iso(value.timestamp())
        return text.replace("Z", ".000Z") if has_fraction and "." not in text else text
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.read().decode(errors="replace") if hasattr(value, "read") else value
