"""Writes botocore_vectors.json: EKS tokens as botocore's signer (`aws eks get-token`) makes them.

The Rust test beside it demands the same bytes of our signer. `--check` writes nothing and fails if the file is stale.
"""

import argparse
import base64
import datetime
import itertools
import json
import pathlib
import sys
from unittest import mock

import botocore.session

VECTORS = pathlib.Path(__file__).with_suffix(".json")
COMMAND = f"python {pathlib.Path(*pathlib.Path(__file__).parts[-4:])}"
CLUSTER_HEADER = "x-k8s-aws-id"

REGIONS = ["eu-west-1", "us-east-1", "cn-north-1", "us-gov-west-1"]
CLUSTERS = ["a", "Team-1_blue"]
MOMENTS = ["2027-01-01T00:00:00Z", "2028-02-29T23:59:59Z"]
# AWS's own examples; the session token has every character that a query has to encode.
CREDENTIALS = [
    {
        "access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "session_token": None,
    },
    {
        "access_key_id": "ASIAIOSFODNN7EXAMPLE",
        "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "session_token": "IQoJb3JpZ2luX2VjEXAMPLE//+/=-._~ and&more==",
    },
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail if the file is stale"
    )
    check = parser.parse_args().check
    text = json.dumps(make_vectors(), indent=2) + "\n"
    if not check:
        VECTORS.write_text(text)
    elif not VECTORS.exists() or VECTORS.read_text() != text:
        print(f"{VECTORS.name} is stale; run: {COMMAND}", file=sys.stderr)
        return 1
    return 0


def make_vectors() -> list[dict]:
    return [
        {
            "region": region,
            "cluster": cluster,
            "at": at,
            **credentials,
            "token": sign(region, cluster, at, credentials),
        }
        for region, cluster, at, credentials in itertools.product(
            REGIONS, CLUSTERS, MOMENTS, CREDENTIALS
        )
    ]


def sign(region: str, cluster: str, at: str, credentials: dict) -> str:
    """As awscli/customizations/eks/get_token.py does it, at another moment."""
    # No profile of the machine that runs this.
    session = botocore.session.Session(
        session_vars={"profile": (None, None, None, None)}
    )
    sts = session.create_client(
        "sts",
        region_name=region,
        aws_access_key_id=credentials["access_key_id"],
        aws_secret_access_key=credentials["secret_access_key"],
        aws_session_token=credentials["session_token"],
    )
    sts.meta.events.register(
        "provide-client-params.sts.GetCallerIdentity", keep_cluster
    )
    sts.meta.events.register("before-sign.sts.GetCallerIdentity", sign_cluster)
    moment = datetime.datetime.fromisoformat(at)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        url = sts.generate_presigned_url(
            "get_caller_identity",
            Params={CLUSTER_HEADER: cluster},
            ExpiresIn=60,
            HttpMethod="GET",
        )
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def keep_cluster(params: dict, context: dict, **_kwargs: object) -> None:
    """botocore's model does not know the parameter: it travels in the context."""
    context[CLUSTER_HEADER] = params.pop(CLUSTER_HEADER)


def sign_cluster(request, **_kwargs: object) -> None:
    request.headers[CLUSTER_HEADER] = request.context[CLUSTER_HEADER]


if __name__ == "__main__":
    sys.exit(main())
