"""Reads from the Kubernetes API of an EKS cluster, with the credentials of the AWS configuration."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from probe.account import Account
from probe.resources import Impossible

#: The header that the token names its cluster by.
HEADER = "x-k8s-aws-id"
#: Seconds that a read may take.
TIMEOUT = 30


class Kubernetes:
    def __init__(self, account: Account, cluster: str) -> None:
        about = account.client("eks").describe_cluster(name=cluster)["cluster"]
        self._cluster, self._endpoint = cluster, about["endpoint"]
        authority = base64.b64decode(about["certificateAuthority"]["data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._sts = account.session.client("sts")
        self._sts.meta.events.register("provide-client-params.sts.GetCallerIdentity", _keep_cluster)
        self._sts.meta.events.register("before-sign.sts.GetCallerIdentity", _add_header)

    def get(self, path: str) -> dict[str, Any] | None:
        """Returns the object or the list at a path, or None if it is not there. Raises Impossible if the API does not answer."""
        request = urllib.request.Request(f"{self._endpoint}{path}", headers={"Authorization": f"Bearer {self._token()}"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context) as answer:
                return json.load(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 404:
                return None
            raise Impossible(f"the API of the cluster {self._cluster} does not answer: {error}") from error

    def _token(self) -> str:
        """Returns a token as `aws eks get-token` makes it: a signed request to STS that names the cluster."""
        named = {HEADER: self._cluster}
        url = self._sts.generate_presigned_url("get_caller_identity", Params=named, ExpiresIn=60, HttpMethod="GET")
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _keep_cluster(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    # botocore refuses a parameter that it does not know, so the context carries it.
    context[HEADER] = params.pop(HEADER)


def _add_header(request: Any, **_: Any) -> None:
    request.headers[HEADER] = request.context[HEADER]
