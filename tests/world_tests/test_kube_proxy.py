"""The proxy in front of the API server: faults, records, and virtual time."""

from __future__ import annotations

import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from moto import mock_aws

from world.base.clock import Clock
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.eks_token import eks_token
from world.kubernetes.handles import Node
from world.kubernetes.kube_client import MERGE_PATCH, Json, KubeClient
from world.kubernetes.kube_proxy import KubeProxy
from world.kubernetes.virtual_times import VirtualTimes
from world.process.pki import Authority, Certificate

REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/taint-node"
STARTED = "2027-01-01T00:00:00Z"


class Function:
    """Stands for a function's process."""

    function = "recycle-eks-taint-node"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.killed = 0
        self.timed_out = 0
        self.waited = 0.0

    def kill(self) -> None:
        self.killed += 1

    def time_out(self) -> None:
        self.timed_out += 1

    def wait(self, seconds: float) -> None:
        self.waited += seconds


@pytest.fixture
def clock(kubernetes: Kubernetes) -> Clock:
    return kubernetes.clock


@pytest.fixture
def function(clock: Clock) -> Function:
    return Function(clock)


@pytest.fixture
def client(kubernetes: Kubernetes, function: Function) -> Iterator[KubeClient]:
    """Through the proxy, as a function's process would call."""
    with mock_aws(), mock.patch.dict("os.environ", AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test"):
        kubernetes.set_access_entries([(ROLE, "recycle-eks:{{SessionName}}", ["recycle-eks"])])
        got = boto3.client("sts", region_name=REGION).assume_role(RoleArn=ROLE, RoleSessionName="run")["Credentials"]
        keys = got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"]
        kubernetes.proxy.caller_of = {keys[0]: function}.get
        token = eks_token("world", REGION, *keys)
        yield KubeClient(kubernetes.proxy.port, kubernetes.control_plane.authority.file, token=token)


@pytest.fixture
def node(kubernetes: Kubernetes) -> Node:
    return kubernetes.add_node("n1", "aws:///eu-west-1a/i-1")


def virtual(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"2027-01-{1 + hours // 24:02d}T{hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}Z"


def pods_of(client: KubeClient, node: str = "n1") -> list[Json]:
    return client.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]


def ready(thing: Json) -> Json:
    return next(each for each in thing["status"]["conditions"] if each["type"] == "Ready")


# -- virtual time --------------------------------------------------------------------------------------------------


def test_objects_are_as_old_as_the_scenario_says(kubernetes: Kubernetes, clock: Clock, client: KubeClient, node: Node) -> None:
    clock.at(3600, lambda: kubernetes.deployment("web", on=node))
    clock.run(limit=20 * 3600)
    (pod,) = pods_of(client)
    shown = client.get("/api/v1/nodes/n1")
    assert shown["metadata"]["creationTimestamp"] == STARTED
    assert {entry["time"] for entry in shown["metadata"]["managedFields"]} == {STARTED}
    assert ready(shown)["lastTransitionTime"] == STARTED
    assert ready(shown)["lastHeartbeatTime"] == virtual(20 * 3600)
    assert pod["metadata"]["creationTimestamp"] == virtual(3600)
    assert pod["status"]["startTime"] == virtual(3600)
    assert pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] == virtual(3600)
    assert ready(pod)["lastTransitionTime"] == virtual(3600)


def test_a_node_may_have_existed_before_the_scenario_began(kubernetes: Kubernetes, client: KubeClient) -> None:
    kubernetes.add_node("ancient", "aws:///a/i-2", age=24 * 3600)
    assert client.get("/api/v1/nodes/ancient")["metadata"]["creationTimestamp"] == "2026-12-31T00:00:00Z"


def test_a_deletion_is_dated_by_its_request_and_grace_period(
    kubernetes: Kubernetes, clock: Clock, client: KubeClient, node: Node
) -> None:
    pod = kubernetes.bare_pod("slow", on=node, grace=72000, ignores_sigterm=True)
    clock.at(100, pod.deleted)
    clock.run(limit=5000)
    assert pods_of(client)[0]["metadata"]["deletionTimestamp"] == virtual(72100)
    pod.deleted(grace=8000)
    assert pods_of(client)[0]["metadata"]["deletionTimestamp"] == virtual(8100)


def test_a_condition_is_dated_by_its_last_change(kubernetes: Kubernetes, clock: Clock, client: KubeClient, node: Node) -> None:
    kubernetes.add_node("n2", "aws:///a/i-2")
    for moment, change in ((100, node.stops_reporting), (200, node.becomes_ready), (300, node.stops_reporting)):
        clock.at(moment, change)
    seen = []
    for moment in (50, 150, 250, 350):
        clock.run(limit=moment)
        shown = client.get("/api/v1/nodes/n1")
        seen.append((ready(shown)["status"], ready(shown)["lastTransitionTime"]))
    assert seen == [("True", STARTED), ("Unknown", virtual(100)), ("True", virtual(200)), ("Unknown", virtual(300))]
    taint = next(each for each in shown["spec"]["taints"] if each["effect"] == "NoExecute")
    assert taint["timeAdded"] == virtual(300)
    assert ready(shown)["lastHeartbeatTime"] == virtual(300)


def test_the_end_of_a_container_is_dated(kubernetes: Kubernetes, clock: Clock, client: KubeClient, node: Node) -> None:
    job = kubernetes.job("nightly", on=node)
    clock.run(limit=10)
    clock.at(19 * 3600, job.pods()[0].finishes)
    clock.run(limit=20 * 3600)
    (pod,) = pods_of(client)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["startedAt"], ended["finishedAt"]) == (STARTED, virtual(19 * 3600))


def test_the_text_of_a_client_is_left_alone(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    note = {"metadata": {"annotations": {"recycle-eks/since": "2020-02-02T00:00:00Z"}}}
    shown = client.patch("/api/v1/nodes/n1", note)
    assert shown["metadata"]["annotations"]["recycle-eks/since"] == "2020-02-02T00:00:00Z"
    assert shown["metadata"]["creationTimestamp"] == STARTED
    written = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "n1.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
        "firstTimestamp": "2027-01-01T05:00:00Z",
        "lastTimestamp": "2027-01-01T06:00:00Z",
        "count": 1,
    }
    client.create("/api/v1/namespaces/default/events", written)
    (event,) = [event for event in kubernetes.events("n1") if event["metadata"]["name"] == "n1.1"]
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2027-01-01T05:00:00Z", "2027-01-01T06:00:00Z")


def test_resource_versions_and_conflicts_pass_unchanged(client: KubeClient, node: Node) -> None:
    version = client.get("/api/v1/nodes/n1")["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}}
    assert client.call("PATCH", "/api/v1/nodes/n1", change, MERGE_PATCH).status == 200
    stale = client.call("PATCH", "/api/v1/nodes/n1", change, MERGE_PATCH)
    assert (stale.status, stale.reason) == (409, "Conflict")


# -- records -------------------------------------------------------------------------------------------------------


def test_every_call_is_written_down(kubernetes: Kubernetes, clock: Clock, client: KubeClient, node: Node) -> None:
    kubernetes.bare_pod("p1", on=node)
    clock.run(limit=42)
    client.get("/api/v1/nodes")
    client.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    pods_of(client)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1", "namespace": "default"}}
    client.create("/api/v1/namespaces/default/pods/p1/eviction", eviction)
    client.call("GET", "/readyz")
    client.call("DELETE", "/api/v1/nodes/n1")
    assert [(call.action, call.write, call.status) for call in kubernetes.calls] == [
        ("kubernetes:GET nodes", False, 200),
        ("kubernetes:PATCH nodes", True, 200),
        ("kubernetes:GET pods", False, 200),
        ("kubernetes:POST pods/eviction", True, 201),
        ("kubernetes:GET /readyz", False, 200),
        ("kubernetes:DELETE nodes", True, 403),
    ]
    assert {call.at for call in kubernetes.calls} == {42}
    assert {call.function for call in kubernetes.calls} == {"recycle-eks-taint-node"}
    evicted = kubernetes.calls[3]
    assert (evicted.parameters["namespace"], evicted.parameters["name"]) == ("default", "p1")
    assert evicted.parameters["body"] == eviction


def test_a_write_through_the_proxy_is_settled(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.settle()
    client.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    kubernetes.settle()
    assert [taint["key"] for taint in node.taints] == ["node.kubernetes.io/unschedulable"]


def test_the_pods_of_a_node_are_listed(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.deployment("web", replicas=30, on=node)
    kubernetes.settle()
    assert len(pods_of(client)) == 30


# -- faults --------------------------------------------------------------------------------------------------------


def cordon(client: KubeClient) -> int:
    return client.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, MERGE_PATCH).status


def test_a_call_is_refused_as_the_plan_says(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.proxy.plan.refuse("kubernetes:PATCH nodes", code="InternalError", status=500, nth=2)
    assert [cordon(client) for _ in range(3)] == [200, 500, 200]
    assert [call.fault for call in kubernetes.calls] == [None, "refuse", None]


def test_a_refusal_may_come_after_the_effect(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.proxy.plan.refuse("kubernetes:PATCH nodes", code="ServiceUnavailable", status=503, after=True)
    assert cordon(client) == 503
    assert node.is_cordoned


def test_an_answer_is_lost_after_the_effect(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.proxy.plan.lose_answer("kubernetes:PATCH nodes")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        cordon(client)
    assert node.is_cordoned
    assert kubernetes.calls[0].status is None


@pytest.mark.parametrize(("when", "effect"), [("before", False), ("after", True)])
def test_the_calling_process_is_killed_at_a_call(
    kubernetes: Kubernetes, client: KubeClient, node: Node, function: Function, when: str, effect: bool
) -> None:
    kubernetes.proxy.plan.kill(when, "kubernetes:PATCH nodes", function="taint-node")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        cordon(client)
    assert function.killed == 1
    assert node.is_cordoned is effect


def test_a_call_hangs_until_the_function_times_out(
    kubernetes: Kubernetes, client: KubeClient, node: Node, function: Function
) -> None:
    kubernetes.proxy.plan.hang("kubernetes:GET pods")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        pods_of(client)
    assert function.timed_out == 1


def test_calls_take_the_virtual_time_that_the_scenario_says(
    kubernetes: Kubernetes, client: KubeClient, node: Node, function: Function
) -> None:
    kubernetes.proxy.plan.delay("kubernetes:GET pods", seconds=7)
    kubernetes.proxy.latency = lambda action: 0.5
    pods_of(client)
    assert function.waited == 7.5
    kubernetes.proxy.latency = lambda action: 0.0


def test_a_fault_may_depend_on_the_request(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    kubernetes.proxy.plan.refuse(
        "kubernetes:PATCH nodes",
        code="InternalError",
        status=500,
        where=lambda asked: "unschedulable" in asked["body"].get("spec", {}),
    )
    assert client.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH).status == 200
    assert cordon(client) == 500


def test_another_writer_may_act_just_before_a_call(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    version = client.get("/api/v1/nodes/n1")["metadata"]["resourceVersion"]
    kubernetes.proxy.just_before("kubernetes:PATCH nodes", lambda: node.add_taint("somebody/else"))
    change = {"metadata": {"resourceVersion": version}, "spec": {"taints": []}}
    assert client.call("PATCH", "/api/v1/nodes/n1", change, MERGE_PATCH).status == 409
    assert "somebody/else" in [taint["key"] for taint in node.taints]


def test_an_unreachable_api_server_resets_connections(kubernetes: Kubernetes, client: KubeClient, node: Node) -> None:
    client.get("/api/v1/nodes")
    kubernetes.proxy.is_reachable = False
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.get("/api/v1/nodes")
    kubernetes.proxy.is_reachable = True
    assert client.call("GET", "/api/v1/nodes").status == 200


class OneAnswer(http.server.BaseHTTPRequestHandler):
    """Answers once and closes without having said so."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(201)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")
        self.close_connection = True


class ClosesWhenIdle(http.server.ThreadingHTTPServer):
    """Closes an idle connection as the API server does after 90 seconds, but sooner."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(("127.0.0.1", 0), OneAnswer)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate.certificate, certificate.key)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.has_closed = threading.Semaphore(0)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.has_closed.release()


def test_a_connection_that_the_api_server_has_closed_while_it_was_idle_is_replaced(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server", hosts=["127.0.0.1"])
    times = VirtualTimes(lambda: 0.0)
    with ClosesWhenIdle(certificate) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_port
        proxy = KubeProxy(port, authority.file, certificate, times, lambda: 0.0, lambda key: None, on_write=lambda: None)
        proxy.start()
        client = KubeClient(proxy.port, authority.file)

        for n in range(10):
            client.create("/api/v1/nodes", {"n": n})
            assert server.has_closed.acquire(timeout=10)

        proxy.stop()
        server.shutdown()
    assert [call.status for call in proxy.calls] == [201] * 10, "each answered at the first try"
