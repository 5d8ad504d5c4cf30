"""The cluster in which is measured: two executions wait for pods, and what they asked the functions can be asked again."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.python_peer import Peer
from prepare import say
from world.deployment import CLUSTER
from world.kubernetes.kube_client import STRATEGIC_MERGE_PATCH, Json
from world.kubernetes.manifests import pod_template
from world.scenario.executions import Execution
from world.world import World

#: The pods that the drains wait for.
LABELS = {"app": "training"}
SELECTOR = "app=training"
OTHERS = "app!=training"

#: The pods on the checked node. With two more on other nodes they are the smallest cluster.
PODS_CHECKED = 18
#: The usual maximum of pods on a node.
PODS_EVICTED = 110

#: Connections that create pods; more keep the API server no busier.
AT_ONCE = 8


class BenchFailed(Exception):
    """Something did not run: its figures would mean nothing."""


@dataclass(frozen=True)
class Step:
    """A function, a payload that it can be given any number of times, and the pods that its answer has to count."""

    function: str
    payload: Json
    counted: Callable[[Json], int]
    expected: int


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    check: Step
    evict: Step


@dataclass(frozen=True)
class Scene:
    """Both sides, ready for the measurements."""

    recycle_eks: Side
    python: Side
    python_same_reads: Step
    """A check of the Python version that makes all the reads of recycle-eks."""
    node_to_check: str
    """The name of the node whose pods are awaited."""
    node_to_empty: str
    """The name of the node whose pods are evicted."""


def set_up(world: World, peer: Peer) -> Scene:
    """Creates a new cluster with two executions that wait for pods, each for its own node. Both sides then get the last request
    of the state machine."""
    world.reset()
    workers = world.group("workers", size=3)
    checked, emptied = workers.nodes[:2]
    for number in range(PODS_CHECKED):
        checked.bare_pod(f"training-{number}", labels=LABELS, restart_policy="Never")
    emptied.job("training", labels=LABELS)
    emptied.deployment("shop", replicas=1)
    executions = [world.recycle(node, label_selector=SELECTOR) for node in (checked, emptied)]
    world.run("10m")
    for execution in executions:
        if execution.path[-1] != "WaitForPods":
            raise BenchFailed(f"an execution does not wait for pods but came to {execution.path[-3:]}")
    check, check_payload = asked(world, executions[0], "recycle-eks-check-pods")
    evict, evict_payload = asked(world, executions[1], "recycle-eks-evict-pods")
    recycle_eks = Side(
        Step(check, check_payload, lambda answer: answer["counts"]["awaited"], PODS_CHECKED),
        Step(evict, evict_payload, lambda answer: answer["counts"]["evicted"], PODS_EVICTED),
    )
    python_check = peer.create_function(world.aws, "python-check-pods", "check_pods.handler", like=check)
    python_careful = peer.create_function(world.aws, "python-check-as-carefully", "check_as_carefully.handler", like=check)
    python_evict = peer.create_function(world.aws, "python-evict-pods", "evict_pods.handler", like=evict)
    request = {"cluster_name": CLUSTER, "node_name": checked.name, "group": workers.name, "label_selector": SELECTOR}
    other_request = {"cluster_name": CLUSTER, "node_name": emptied.name, "label_selector": OTHERS}
    python = Side(
        Step(python_check, request, count_active, PODS_CHECKED),
        Step(python_evict, other_request, lambda answer: answer["evicted"], PODS_EVICTED),
    )
    same_reads = Step(python_careful, request, count_active, PODS_CHECKED)
    return Scene(recycle_eks, python, same_reads, checked.name, emptied.name)


def count_active(answer: Json) -> int:
    return answer["activePodCount"]


def asked(world: World, execution: Execution, function: str) -> tuple[str, Json]:
    """Returns the last request of the state machine to a function: its ARN with the version, and the payload."""
    for event in reversed(world.engine.history(execution.arn)):
        if event["type"] == "TaskScheduled":
            parameters = json.loads(event["taskScheduledEventDetails"]["parameters"])
            if function in parameters.get("FunctionName", ""):
                return parameters["FunctionName"], parameters["Payload"]
    raise BenchFailed(f"{function} was never asked")


def add_nodes(world: World, count: int) -> list[str]:
    """Nodes of another group that are Ready; their names."""
    before = len(world.kubernetes.nodes())
    names = [f"other-{before + number}" for number in range(count)]
    for name in names:
        world.kubernetes.add_node(name, f"aws:///eu-west-1a/i-{name}")
    return names


PODS = "/api/v1/namespaces/default/pods"
_numbers = itertools.count()


def add_pods(world: World, count: int, app: str, node_of: Callable[[int], str], container: Json | None = None) -> list[Json]:
    """Pods that run, made straight through the API. They stay as they are: controllers and kubelets stand still while the clock
    does. `node_of`: on which node the nth is. `container`: fields to add to the container."""
    client = world.kubernetes.client
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"{app}-bench", "controller": True}

    def add(number: int) -> Json:
        pod = {"apiVersion": "v1", "kind": "Pod", **pod_template(labels={"app": app}, requests={"cpu": "10m"})}
        pod["metadata"] |= {"name": f"{app}-{next(_numbers)}", "ownerReferences": [owner]}
        pod["spec"]["nodeName"] = node_of(number)
        pod["spec"]["containers"][0] |= container or {}
        created = client.create(PODS, pod)
        client.patch(f"{PODS}/{created['metadata']['name']}/status", RUNNING, STRATEGIC_MERGE_PATCH)
        return created

    began = time.monotonic()
    added = []
    with ThreadPoolExecutor(AT_ONCE) as adding:
        for pod in adding.map(add, range(count)):
            added.append(pod)
            if len(added) % 500 == 0:
                say(f"      {len(added):,} of {count:,} pods added, {time.monotonic() - began:.0f} s")
    world.kubernetes.state.catch_up()
    return added


def remove_pods(world: World, app: str) -> None:
    """Deletes pods at once, without a grace period, each by itself: for many large ones a single call takes too long."""
    listed = world.kubernetes.must("GET", f"{PODS}?labelSelector=app%3D{app}")["items"]
    paths = [f"{PODS}/{pod['metadata']['name']}" for pod in listed]
    with ThreadPoolExecutor(AT_ONCE) as removing:
        list(removing.map(lambda path: world.kubernetes.must("DELETE", path, {"gracePeriodSeconds": 0}), paths))


RUNNING: Json = {
    "status": {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")],
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}],
        "containerStatuses": [
            {
                "name": "main",
                "image": "example.invalid/none",
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2027-01-01T00:00:00Z"}},
            }
        ],
    }
}
