"""Access to the cluster and permissions in it, with tokens checked by the real aws-iam-authenticator."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from unittest import mock

import boto3
import pytest
from moto import mock_aws

from world.kubernetes.cluster import Kubernetes
from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import MERGE_PATCH, Json, KubeClient

ACCOUNT = "123456789012"
REGION = "eu-west-1"
USER = "recycle-eks:{{SessionName}}"
GROUP = "recycle-eks"

Credentials = tuple[str, str, str]


@pytest.fixture(autouse=True)
def account() -> Iterator[None]:
    with mock_aws(), mock.patch.dict("os.environ", AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test"):
        iam = boto3.client("iam", region_name=REGION)
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        for name in ("taint-node", "stranger"):
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
        iam.create_role(RoleName="with-path", Path="/functions/", AssumeRolePolicyDocument=trust)
        iam.create_user(UserName="person")
        yield


@pytest.fixture
def cluster(kubernetes: Kubernetes) -> Kubernetes:
    kubernetes.set_access_entries([(role_arn("taint-node"), USER, [GROUP])])
    return kubernetes


def role_arn(name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def credentials(role: str, session: str = "session") -> Credentials:
    sts = boto3.client("sts", region_name=REGION)
    got = sts.assume_role(RoleArn=role_arn(role), RoleSessionName=session)["Credentials"]
    return got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"]


def through_proxy(cluster: Kubernetes, token: str | None) -> KubeClient:
    return KubeClient(cluster.proxy.port, cluster.control_plane.authority.file, token=token)


def who_am_i(cluster: Kubernetes, token: str) -> tuple[int, Json]:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = through_proxy(cluster, token).call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return answer.status, answer.body["status"]["userInfo"] if answer.status == 201 else answer.body


def signed_ago(seconds: float, *arguments: str) -> str:
    then = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(seconds=seconds)
    with mock.patch("botocore.auth.get_current_datetime", return_value=then):
        return eks_token(*arguments)


def test_a_token_of_a_mapped_role_is_the_user_that_its_access_entry_names(cluster: Kubernetes) -> None:
    status, user = who_am_i(cluster, eks_token("world", REGION, *credentials("taint-node", "run-1")))
    assert status == 201
    assert user["username"] == "recycle-eks:run-1"
    assert sorted(user["groups"]) == [GROUP, "system:authenticated"]
    assert user["extra"]["arn"] == [f"arn:aws:sts::{ACCOUNT}:assumed-role/taint-node/run-1"]


def test_a_token_is_good_for_fourteen_minutes_and_not_for_sixteen(cluster: Kubernetes) -> None:
    keys = credentials("taint-node")
    assert who_am_i(cluster, signed_ago(14 * 60, "world", REGION, *keys))[0] == 201
    assert who_am_i(cluster, signed_ago(16 * 60, "world", REGION, *keys))[0] == 401


def test_a_token_for_another_cluster_is_refused(cluster: Kubernetes) -> None:
    assert who_am_i(cluster, eks_token("production", REGION, *credentials("taint-node")))[0] == 401


def test_a_token_signed_with_a_wrong_secret_is_refused(cluster: Kubernetes) -> None:
    access_key, _, session_token = credentials("taint-node")
    assert who_am_i(cluster, eks_token("world", REGION, access_key, "wrong", session_token))[0] == 401


def test_a_token_without_its_session_token_is_refused(cluster: Kubernetes) -> None:
    access_key, secret, _ = credentials("taint-node")
    assert who_am_i(cluster, eks_token("world", REGION, access_key, secret))[0] == 401


def test_a_token_of_an_unknown_key_is_refused(cluster: Kubernetes) -> None:
    assert who_am_i(cluster, eks_token("world", REGION, "AKIAIOSFODNN7EXAMPLE", "secret"))[0] == 401


def test_a_role_without_an_access_entry_is_refused(cluster: Kubernetes) -> None:
    assert who_am_i(cluster, eks_token("world", REGION, *credentials("stranger")))[0] == 401


def test_garbage_is_refused_and_no_token_is_anonymous(cluster: Kubernetes) -> None:
    assert who_am_i(cluster, "garbage")[0] == 401
    assert through_proxy(cluster, None).call("GET", "/api/v1/nodes").status == 403


def test_an_access_entry_names_a_role_with_its_path(cluster: Kubernetes) -> None:
    cluster.set_access_entries([(role_arn("functions/with-path"), USER, [GROUP])])
    assert who_am_i(cluster, eks_token("world", REGION, *credentials("functions/with-path")))[0] == 201


def test_a_user_may_have_an_access_entry_too(cluster: Kubernetes) -> None:
    cluster.set_access_entries([(f"arn:aws:iam::{ACCOUNT}:user/person", "person", ["admins"])])
    key = boto3.client("iam", region_name=REGION).create_access_key(UserName="person")["AccessKey"]
    status, user = who_am_i(cluster, eks_token("world", REGION, key["AccessKeyId"], key["SecretAccessKey"]))
    assert status == 201
    assert user["username"] == "person"


def test_access_entries_count_from_the_moment_they_are_set(cluster: Kubernetes) -> None:
    keys = credentials("stranger")
    for _ in range(3):
        cluster.set_access_entries([(role_arn("stranger"), USER, [GROUP])])
        assert who_am_i(cluster, signed_ago(1, "world", REGION, *credentials("stranger")))[0] == 201
        cluster.set_access_entries([])
        assert who_am_i(cluster, signed_ago(2, "world", REGION, *credentials("stranger")))[0] == 401
    assert who_am_i(cluster, eks_token("world", REGION, *keys))[0] == 401


def test_an_sts_that_fails_is_a_bare_401(cluster: Kubernetes) -> None:
    keys = credentials("taint-node")
    cluster.sts.fault = (503, {"Error": {"Code": "ServiceUnavailable"}})
    assert who_am_i(cluster, eks_token("world", REGION, *keys))[0] == 401
    cluster.sts.fault = None
    assert who_am_i(cluster, signed_ago(60, "world", REGION, *keys))[0] == 201


def test_a_call_is_recorded_with_the_session_that_made_it(cluster: Kubernetes) -> None:
    keys = credentials("taint-node", "run-2")
    through_proxy(cluster, eks_token("world", REGION, *keys)).call("GET", "/api/v1/nodes?limit=1")
    (call,) = [each for each in cluster.calls if each.action == "kubernetes:GET nodes"]
    assert call.principal == f"arn:aws:sts::{ACCOUNT}:assumed-role/taint-node/run-2"
    assert call.access_key == keys[0]
    assert call.parameters["limit"] == "1"
    assert (call.status, call.write) == (200, False)


NODE = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


def eviction(name: str) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}


def event(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
        "reason": "Recycle",
        "type": "Normal",
        "message": "a test",
        "source": {"component": "recycle-eks"},
    }


MAY = [
    ("GET", "/api/v1/nodes", None, 200),
    ("GET", NODE, None, 200),
    ("PATCH", NODE, {"spec": {"unschedulable": True}}, 200),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", None, 200),
    ("GET", f"{PODS}/p1", None, 200),
    ("POST", f"{PODS}/p1/eviction", eviction("p1"), 201),
    ("POST", EVENTS, event("n1.1"), 201),
    ("GET", "/version", None, 200),
]
MAY_NOT = [
    ("DELETE", NODE, None),
    ("PUT", NODE, {"metadata": {"name": "n1"}}),
    ("PATCH", f"{NODE}/status", {"status": {}}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}}),
    ("GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", None),
    ("DELETE", f"{PODS}/p1", None),
    ("PATCH", f"{PODS}/p1", {"metadata": {"labels": {"a": "b"}}}),
    ("POST", PODS, {"metadata": {"name": "p2"}}),
    ("GET", f"{PODS}/p1/log", None),
    ("GET", "/api/v1/secrets", None),
    ("GET", EVENTS, None),
    ("GET", "/apis/apps/v1/daemonsets", None),
    ("GET", "/apis/policy/v1/poddisruptionbudgets", None),
]


def content_type(method: str) -> str:
    return MERGE_PATCH if method == "PATCH" else "application/json"


@pytest.mark.parametrize(("method", "path", "body", "status"), MAY)
def test_a_drain_may(cluster: Kubernetes, method: str, path: str, body: Json | None, status: int) -> None:
    cluster.bare_pod("p1", on=cluster.add_node("n1", "aws:///eu-west-1a/i-1"))
    cluster.settle()
    client = through_proxy(cluster, eks_token("world", REGION, *credentials("taint-node")))
    assert client.call(method, path, body, content_type(method)).status == status


@pytest.mark.parametrize(("method", "path", "body"), MAY_NOT)
def test_a_drain_may_not(cluster: Kubernetes, method: str, path: str, body: Json | None) -> None:
    cluster.bare_pod("p1", on=cluster.add_node("n1", "aws:///eu-west-1a/i-1"))
    cluster.settle()
    client = through_proxy(cluster, eks_token("world", REGION, *credentials("taint-node")))
    assert client.call(method, path, body, content_type(method)).status == 403


def test_every_admitted_identity_may_list_its_own_rights(cluster: Kubernetes) -> None:
    client = through_proxy(cluster, eks_token("world", REGION, *credentials("taint-node")))
    for verb, allowed in (("create", True), ("delete", False)):
        attributes = {"verb": verb, "resource": "pods", "subresource": "eviction"}
        answer = client.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
        )
        assert answer["status"]["allowed"] is allowed
    assert not any(call.write for call in cluster.calls)
