"""Answers of AWS that botocore's models lack: errors that any operation of a service may have, and a few values.

`common_errors` gives an error's statuses, too (none: any). The sources of the tables:

- `COMMON`: "Common Errors" of the API references (the page is the same for each service), and the codes that botocore's
  `_retry.json` repeats for each service.
- `QUERY`: what services of the query protocol write instead, as botocore's and the Rust SDK's retries know them
  (`AccessDenied`, `Throttling`), and the user guide of IAM, "Troubleshoot access denied error messages".
- `EC2`: Amazon EC2 API reference, "Error codes for the Amazon EC2 API". EC2's model has no errors at all. The status of
  RequestLimitExceeded is that of botocore's `_retry.json`.
- `VALUES`: see each.
"""

from __future__ import annotations

from typing import Any, Literal

COMMON: dict[str, set[int]] = {
    "AccessDeniedException": {400, 403},
    "ExpiredTokenException": {400, 403},
    "IncompleteSignature": {400},
    "InternalFailure": {500},
    "InvalidAction": {400},
    "InvalidClientTokenId": {403},
    "NotAuthorized": {400},
    "OptInRequired": {403},
    "RequestExpired": {400},
    "ServiceUnavailable": {503},
    "ThrottlingException": {400, 429},
    "UnrecognizedClientException": {400, 403},
    "ValidationException": {400},
    "ValidationError": {400},
}

QUERY: dict[str, set[int]] = {
    "AccessDenied": {403},
    "ExpiredToken": {400, 403},
    "InternalError": {500},
    "MissingAction": {400},
    "MissingParameter": {400},
    "InvalidParameterCombination": {400},
    "InvalidParameterValue": {400},
    "SignatureDoesNotMatch": {403},
    "Throttling": {400},
}

EC2: dict[str, set[int]] = {
    "AuthFailure": {401, 403},
    "DryRunOperation": {412},
    "IdempotentParameterMismatch": {400},
    "IncorrectInstanceState": {400},
    "InstanceLimitExceeded": {400},
    "InsufficientInstanceCapacity": {500},
    "InternalError": {500},
    "InternalFailure": {500},
    "InvalidAction": {400},
    "InvalidGroup.Duplicate": {400},
    "InvalidGroup.InUse": {400},
    "InvalidGroup.NotFound": {400},
    "InvalidID": {400},
    "InvalidInstanceID.Malformed": {400},
    "InvalidInstanceID.NotFound": {400},
    "InvalidLaunchTemplateId.Malformed": {400},
    "InvalidLaunchTemplateId.NotFound": {400},
    "InvalidLaunchTemplateName.AlreadyExistsException": {400},
    "InvalidLaunchTemplateName.NotFoundException": {400},
    "InvalidParameter": {400},
    "InvalidParameterCombination": {400},
    "InvalidParameterValue": {400},
    "InvalidPermission.Duplicate": {400},
    "InvalidPermission.NotFound": {400},
    "InvalidSubnetID.NotFound": {400},
    "InvalidVolume.NotFound": {400},
    "InvalidVpcID.NotFound": {400},
    "MissingParameter": {400},
    "OperationNotPermitted": {400},
    "RequestExpired": {400},
    "RequestLimitExceeded": {503},
    "ServiceUnavailable": {503},
    "TagLimitExceeded": {400},
    "Unavailable": {503},
    "UnauthorizedOperation": {403},
    "UnknownParameter": {400},
    "UnsupportedOperation": {400},
}

QUERY_SERVICES = ("autoscaling", "cloudwatch", "elb", "elbv2", "iam", "sns", "sqs", "sts")


def common_errors(service: str) -> dict[str, set[int]]:
    """The errors of every operation of a service, with the statuses that each may have."""
    if service == "ec2":
        return EC2
    return {**COMMON, **QUERY} if service in QUERY_SERVICES else COMMON


#: By the name of the enumeration's shape.
VALUES: dict[str, set[str]] = {
    # The model has "Windows". EC2 answers "windows" and keeps the model as it is: botocore issue 3128, aws-cli issue 9043.
    "PlatformValues": {"windows"},
}


#: Required fields that an answer may lack, by the name of its shape. A function need not have a configuration of code signing. No
#: page says what AWS answers then; Terraform's provider asks it of each function, and reads an absent ARN as none.
OPTIONAL: dict[str, set[str]] = {"GetFunctionCodeSigningConfigResponse": {"CodeSigningConfigArn"}}

#: Code and status with which a service is throttled, fails and refuses a call, by the service as an action names it.
_REFUSALS: dict[str, tuple[tuple[str, int], tuple[str, int], tuple[str, int]]] = {
    "ec2": (("RequestLimitExceeded", 503), ("InternalError", 500), ("UnauthorizedOperation", 403)),
    "eks": (("ThrottlingException", 429), ("InternalFailure", 500), ("AccessDeniedException", 403)),
    "kubernetes": (("TooManyRequests", 429), ("InternalError", 500), ("Forbidden", 403)),
    # SNS's model has Throttled for operations on phone numbers only. The others, such as Publish, have the error of all services.
    "sns": (("Throttling", 400), ("InternalError", 500), ("AuthorizationError", 403)),
    "states": (("ThrottlingException", 400), ("InternalFailure", 500), ("AccessDeniedException", 400)),
}
_OF_QUERY = (("Throttling", 400), ("InternalFailure", 500), ("AccessDenied", 403))


def refusal_of(action: str, kind: Literal["throttled", "5xx", "refused"]) -> dict[str, Any]:
    """The code and the status with which the service of an action, such as `ec2:CreateTags`, says what a fault needs."""
    throttled, failed, refused = _REFUSALS.get(action.partition(":")[0], _OF_QUERY)
    code, status = {"throttled": throttled, "5xx": failed, "refused": refused}[kind]
    return {"code": code, "status": status}
