"""Reads from the Kubernetes API of an EKS cluster, with the credentials of the AWS configuration."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from probe.account import Account

#: The header that the token names its cluster by.
HEADER = "x-k8s-aws-id"
#: Seconds that a read may take.
TIMEOUT = 30


class Kubernetes:
    def __init__(self, account: Account, cluster: str) -> None:
        about = account.client("eks").describe_cluster(name=cluster)["cluster"]
        self._account, self._cluster, self._endpoint = account, cluster, about["endpoint"]
        authority = base64.b64decode(about["certificateAuthority"]["data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)

    def get(self, path: str) -> dict[str, Any] | None:
        """Returns the object or the list at a path, or None if it is not there."""
        request = urllib.request.Request(f"{self._endpoint}{path}", headers={"Authorization": f"Bearer {self._token()}"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _token(self) -> str:
        """Returns a token as `aws eks get-token` makes it: a signed request to STS that names the cluster."""
        sts = self._account.session.client("sts")
        sts.meta.events.register("provide-client-params.sts.GetCallerIdentity", _keep_cluster)
        sts.meta.events.register("before-sign.sts.GetCallerIdentity", _add_header)
        url = sts.generate_presigned_url("get_caller_identity", Params={HEADER: self._cluster}, ExpiresIn=60, HttpMethod="GET")
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _keep_cluster(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    # botocore refuses a parameter that it does not know, so the context carries it.
    context[HEADER] = params.pop(HEADER)


def _add_header(request: Any, **_: Any) -> None:
    request.headers[HEADER] = request.context[HEADER]
