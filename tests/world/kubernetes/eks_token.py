"""An EKS bearer token as `aws eks get-token` makes it: the reference that the functions' own tokens are held to."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import botocore.session

_HEADER = "x-k8s-aws-id"
_EXPIRES = 60
"""Seconds, as the AWS command line writes into X-Amz-Expires; STS accepts the signature for 15 minutes regardless."""


@cache
def _session() -> botocore.session.Session:
    """One session for all tokens, because a new one reads botocore's models again."""
    return botocore.session.Session()


def eks_token(cluster: str, region: str, access_key: str, secret: str, session_token: str | None = None) -> str:
    """A token for the cluster, signed now with the given credentials."""
    client = _session().create_client(
        "sts",
        region_name=region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret,
        aws_session_token=session_token,
        endpoint_url=f"https://sts.{region}.amazonaws.com",
    )

    def keep_for_signing(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        # botocore refuses a parameter that it does not know; the context carries it on to the request.
        context[_HEADER] = params.pop(_HEADER)

    def add_header(request: Any, **_: Any) -> None:
        request.headers[_HEADER] = request.context[_HEADER]

    client.meta.events.register("provide-client-params.sts.GetCallerIdentity", keep_for_signing)
    client.meta.events.register("before-sign.sts.GetCallerIdentity", add_header)
    url = client.generate_presigned_url("get_caller_identity", Params={_HEADER: cluster}, ExpiresIn=_EXPIRES, HttpMethod="GET")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
