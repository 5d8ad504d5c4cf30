"""The way into an EKS cluster, as Lambda functions in Python usually go it: boto3 asks where the cluster is and signs the token,
the official Kubernetes client does the rest."""

import base64
import functools
import os

import boto3
from botocore.signers import RequestSigner
from kubernetes import client, config

REGION = os.environ["AWS_REGION"]

session = boto3.session.Session(region_name=REGION)
eks = session.client("eks")
sts = session.client("sts")


@functools.cache
def describe(cluster_name):
    """Asked once in the life of a process. (The predecessor keeps a file in /tmp for as long.)"""
    return eks.describe_cluster(name=cluster_name)["cluster"]


def bearer_token(cluster_name):
    """A presigned GetCallerIdentity, which is what EKS takes for a token."""
    signer = RequestSigner(sts.meta.service_model.service_id, REGION, "sts", "v4", session.get_credentials(), session.events)
    request = {
        "method": "GET",
        "url": f"https://sts.{REGION}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster_name},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=REGION, expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def connect(cluster_name):
    """The core API with a fresh token, for one invocation."""
    cluster = describe(cluster_name)
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "aws",
        "clusters": [
            {
                "name": "eks",
                "cluster": {
                    "server": cluster["endpoint"],
                    "certificate-authority-data": cluster["certificateAuthority"]["data"],
                },
            }
        ],
        "contexts": [{"name": "aws", "context": {"cluster": "eks", "user": "lambda"}}],
        "users": [{"name": "lambda", "user": {"token": bearer_token(cluster_name)}}],
    }
    return client.CoreV1Api(config.new_client_from_config_dict(kubeconfig))
