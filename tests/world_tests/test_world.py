"""The world as a whole: the same each time, empty each time, open to ordinary clients, and wrong where the plan says so."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from world.aws.autoscaling.model import Timings, Unknowns
from world.aws.identity import REGION
from world.deployment import CLUSTER
from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import KubeClient
from world.world import World

# -- the same each time ------------------------------------------------------------------------------------------------


def an_hour(world: World) -> list[Any]:
    """Evictions under a budget, Jobs that are waited for, a DaemonSet, and a drain of an hour."""
    node = world.group("workers", size=3, minimum=2, maximum=4).nodes[0]
    short = node.job("short", labels={"app": "train"})
    long = node.job("long", labels={"app": "train"})
    node.job("unselected")
    node.daemon_set("logs")
    world.budget(node.deployment("web", replicas=4), min_available=3)
    world.at("20m", short.finishes)
    world.at("1h10m", long.finishes)
    execution = world.recycle(node, label_selector="app=train", evict="others_and_jobs")
    assert execution.finishes().outcome == "recycled"
    assert len(execution.answers("CheckPods")) > 30
    return [execution]


def a_race(world: World) -> list[Any]:
    """Two executions for the same node in the same second."""
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    world.at("20m", node.job("train", labels={"app": "train"}).finishes)
    node.deployment("web", replicas=2)
    executions = [world.recycle(node, label_selector="app=train") for _ in range(2)]
    assert sorted(execution.finishes().outcome for execution in executions) == ["duplicate", "recycled"]
    return executions


def history(world: World, scenario: Any, seed: int | None = None) -> dict[str, Any]:
    """Returns all observations of a scenario: states, verdicts, waits, and the set of calls of each step.

    Uids, resourceVersions and the random ends of pods' names are masked. Times are virtual and remain.
    """
    world.reset(seed=seed)
    executions = scenario(world)
    calls: dict[tuple[float, str], Counter[str]] = {}
    # A function's process asks for its cluster once: the first test of a session finds it cold.
    for call in (each for each in world.calls() if each.action != "eks:DescribeCluster"):
        text = json.dumps([call.action, call.principal, call.parameters, call.status], sort_keys=True, default=str)
        calls.setdefault((call.at, call.function), Counter())[masked(text)] += 1
    return {
        "steps": [execution.steps for execution in executions],
        "answers": [masked(event_texts(world, execution)) for execution in executions],
        "calls": calls,
        "group": masked(json.dumps(world.groups["workers"].states)),
    }


def event_texts(world: World, execution: Any) -> str:
    """The whole history; lists of names in an order of their own, as it is that of the pods' random names."""
    return json.dumps([in_order(event) for event in world.engine.history(execution.arn)], sort_keys=True)


def in_order(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("{", "[")):
        return in_order(json.loads(value))
    if isinstance(value, dict):
        return {key: in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((in_order(each) for each in value), key=lambda each: masked(json.dumps(each, sort_keys=True)))
    return value


def masked(text: str) -> str:
    """Without uids, hashes of them, resourceVersions and the random ends of pods' names."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>", text)
    text = re.sub(r'(recycle-eks/evicted[\\": ]+)[0-9a-z ]+', r"\1<hashes>", text)
    text = re.sub(r'(resourceVersion[\\": ]+)\d+', r"\1<version>", text)
    return re.sub(
        r"\b((?:web-[0-9a-f]+|web-[bcdf-hj-np-tv-z0-9]{8,10}|short|long|unselected|logs|train))-[a-z0-9]{5}\b", r"\1-<x>", text
    )


def differences(first: Any, second: Any, where: str = "") -> list[str]:
    """Returns the differences between two histories, each with its surroundings: pytest would compare the megabytes for hours."""
    if type(first) is type(second) and isinstance(first, dict):
        keys = sorted({*first, *second}, key=str)
        return [each for key in keys for each in differences(first.get(key), second.get(key), f"{where}[{key!r}]")]
    if type(first) is type(second) and isinstance(first, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [each for n, pair in pairs for each in differences(*pair, f"{where}[{n}]")]
    if first == second:
        return []
    texts = [str(first), str(second)]
    begin = max(0, len(os.path.commonprefix(texts)) - 200)
    return [f"{where}: …{texts[0][begin : begin + 400]}… is not …{texts[1][begin : begin + 400]}…"]


def test_the_same_scenario_twice_has_the_same_history(deployed_world):
    first = history(deployed_world, an_hour)
    second = history(deployed_world, an_hour)

    assert differences(first, second) == []


def test_each_seed_has_its_own_history_each_time(deployed_world):
    histories = {seed: [history(deployed_world, a_race, seed) for _ in range(2)] for seed in (None, 1, 2)}

    for first, second in histories.values():
        assert differences(first, second) == []


# -- empty each time ---------------------------------------------------------------------------------------------------


def test_a_reset_leaves_nothing_of_a_scenario(deployed_world):
    world = deployed_world
    world.reset()
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    node.job("train", labels={"app": "train"})
    world.budget(node.deployment("web", replicas=2), min_available=1)
    world.recycle(node, label_selector="app=train")
    world.faults.refuse("ec2:DescribeInstances", code="Throttling", nth=1000)
    world.unknowns.exit_standby_trims = False
    world.timings.launch = 7
    world.ec2.timings.terminate = 7
    world.host.duration["recycle-eks-check-pods"] = 7
    world.aws.latency = world.kubernetes.proxy.latency = lambda action: 7
    world.events.latency = 7
    world.run("2h")

    world.reset()

    assert world.clock.elapsed() == 0
    assert world.groups == {}
    assert world.calls() == [] and world.aws.calls == []
    assert world.faults.faults == []
    assert world.engine.executions == {}
    assert (world.unknowns, world.timings) == (Unknowns(), Timings())
    assert world.ec2.timings.terminate != 7
    assert world.host.duration == {}
    assert world.aws.latency("ec2:CreateTags") == world.kubernetes.proxy.latency("kubernetes:GET pods") == 0
    assert world.events.latency != 7
    assert world.events.notifications == [] and world.events.emitted == []
    assert world.kubernetes.nodes() == [] and world.kubernetes.pods() == []
    for kind in ("jobs", "deployments", "replicasets", "daemonsets", "poddisruptionbudgets", "events"):
        group = {"jobs": "batch", "events": "", "poddisruptionbudgets": "policy"}.get(kind, "apps")
        assert world.kubernetes.client.get(f"/apis/{group}/v1/{kind}" if group else f"/api/v1/{kind}")["items"] == [], kind
    assert world.aws.client("ec2").describe_instances()["Reservations"] == []
    assert world.aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    machine = world.deployment.outputs["state_machine_alias_arn"]
    assert world.aws.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"] == []
    # No process remains that would continue by itself.
    assert world.clock.run() == 0


# -- ordinary clients --------------------------------------------------------------------------------------------------


@pytest.fixture
def standing_still(world):
    """A world in the middle of a drain."""
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("30m")
    return world, node, execution


def test_boto3_works_while_a_scenario_stands_still(standing_still, monkeypatch):
    world, node, execution = standing_still
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)

    instances = boto3.client("ec2").describe_instances(InstanceIds=[node.instance_id])
    running = boto3.client("stepfunctions").describe_execution(executionArn=execution.arn)

    tags = {tag["Key"] for tag in instances["Reservations"][0]["Instances"][0]["Tags"]}
    assert "recycle-eks:claim" in tags
    assert running["status"] == "RUNNING"
    assert world.clock.elapsed() == 1800


def test_the_aws_command_line_sees_the_same(standing_still):
    world, node, execution = standing_still
    asked = ["autoscaling", "describe-auto-scaling-instances", "--instance-ids", node.instance_id, "--output", "json"]

    if shutil.which("aws") is None:
        # The command line makes the same call, through the same SDK core, with the same variables.
        program = "import boto3, json, sys; print(json.dumps(boto3.client(sys.argv[1]).describe_auto_scaling_instances()))"
        command = [sys.executable, "-c", program, "autoscaling"]
    else:
        command = ["aws", *asked]
    done = subprocess.run(command, env={**os.environ, **world.environment()}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    states = {each["InstanceId"]: each["LifecycleState"] for each in json.loads(done.stdout)["AutoScalingInstances"]}
    assert states[node.instance_id] == "Standby"


def test_kubectl_sees_the_same(standing_still):
    world, node, _ = standing_still
    kubeconfig = world.environment()["KUBECONFIG"]
    path = f"/api/v1/nodes/{node.name}"

    if shutil.which("kubectl") is None:
        shown = ask_as_kubectl(kubeconfig, path)
    else:
        command = ["kubectl", "get", "--raw", path]
        done = subprocess.run(command, env={**os.environ, "KUBECONFIG": kubeconfig}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)

    assert "recycle-eks/draining" in [taint["key"] for taint in shown["spec"]["taints"]]
    assert "recycle-eks/claim" in shown["metadata"]["annotations"]


def ask_as_kubectl(kubeconfig: str, path: str) -> Any:
    """A request with what a kubeconfig says: server, authority, client certificate."""
    config = yaml.safe_load(Path(kubeconfig).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    with urllib.request.urlopen(cluster["server"] + path, context=context) as answer:
        return json.load(answer)


def test_a_kubeconfig_is_enough_without_kubectl(standing_still):
    world, node, _ = standing_still
    assert ask_as_kubectl(world.environment()["KUBECONFIG"], f"/api/v1/nodes/{node.name}")["metadata"]["name"] == node.name


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_fault_strikes_exactly_once(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    for action in ("autoscaling:EnterStandby", "kubernetes:PATCH nodes"):
        for moment in ("before", "after"):
            fault = world.faults.kill(moment, action)
            end = world.recycle(workers.nodes[0]).finishes()
            assert (end.outcome, fault.struck) == ("recycled", 1), (action, moment)
            assert world.faults.not_struck() == [], (action, moment)


def test_a_refusal_strikes_exactly_the_call_it_was_planned_for(world):
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    planned = {
        (action, function): world.faults.refuse(action, code="ServiceUnavailable", status=503, function=function, nth=1)
        for action, function in [("ec2:CreateTags", "claim-node"), ("kubernetes:GET pods", "check-pods")]
    }

    world.recycle(node).finishes()

    for (action, function), fault in planned.items():
        refused = [call for call in world.calls(action) if call.status == 503]
        assert fault.struck == 1 and len(refused) == 1, action
        assert refused[0].function.endswith(function)


def test_a_function_that_hangs_ends_by_its_timeout_and_is_tried_again(world):
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    fault = world.faults.hang("kubernetes:PATCH nodes", function="taint-node")

    execution = world.recycle(node)
    end = execution.finishes()

    timeout = world.aws.client("lambda").get_function_configuration(FunctionName="recycle-eks-taint-node")["Timeout"]
    assert end.outcome == "recycled"
    assert fault.struck == 1
    assert execution.errors("TaintNode") == ["Sandbox.Timedout"]
    assert execution.entered("CheckPods")[0] >= execution.entered("TaintNode")[0] + timeout


# -- time --------------------------------------------------------------------------------------------------------------


def test_functions_see_the_times_of_kubernetes_objects_as_virtual_times(world):
    node = world.group("workers", size=1, minimum=1, maximum=2).nodes[0]
    seen = []
    world.at("5h", lambda: node.job("late", labels={"app": "train"}))
    world.at("5h10m", lambda: seen.append(through_the_proxy(world, node)))
    node.job("early", labels={"app": "train"})

    world.run("6h")

    pods, registered = seen[0]
    assert pods == {"early": "2027-01-01T00:00:00Z", "late": "2027-01-01T05:00:00Z"}
    assert registered == "2027-01-01T00:00:00Z"


def through_the_proxy(world: World, node: Any) -> tuple[dict[str, str], str]:
    """Returns the creation times of the pods and the node, read with a token at the endpoint of DescribeCluster."""
    function = world.aws.client("lambda").get_function_configuration(FunctionName="recycle-eks-check-pods")
    role = world.aws.client("sts").assume_role(RoleArn=function["Role"], RoleSessionName="look")["Credentials"]
    token = eks_token(CLUSTER, REGION, role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
    plane = world.kubernetes.control_plane
    client = KubeClient(world.kubernetes.proxy.port, plane.authority.file, token=token)
    pods = client.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}")["items"]
    created = {pod["metadata"]["name"].rsplit("-", 1)[0]: pod["metadata"]["creationTimestamp"] for pod in pods}
    return created, client.get(f"/api/v1/nodes/{node.name}")["metadata"]["creationTimestamp"]


def test_a_redriven_execution_knows_that_it_is_one(world):
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("30m")
    execution.stop()
    execution.redrive()
    world.run("40m")

    events = world.engine.history(execution.arn)
    sent = [json.loads(event["taskScheduledEventDetails"]["parameters"]) for event in events if event["type"] == "TaskScheduled"]
    counts = [each["Payload"]["context"]["Execution"]["RedriveCount"] for each in sent if "Payload" in each]
    assert counts[0] == 0 and counts[-1] == 1
    assert world.engine.describe(execution.arn)["redriveCount"] == 1


def test_a_machine_that_is_terminated_takes_its_node_along_unless_there_is_no_cloud_controller(world):
    for has_cloud_controller in (True, False):
        world.reset()
        world.has_cloud_controller = has_cloud_controller
        node = world.group("workers", size=1).nodes[0]
        node.is_terminated_in_the_console()
        world.run("2m")
        assert node.exists is not has_cloud_controller
        assert has_cloud_controller or not node.kubernetes.is_ready


def test_a_machine_that_is_started_again_has_its_kubelet_back(world):
    group = world.group("workers", size=1)
    node = group.nodes[0]
    group.suspend("HealthCheck")
    for deleted in (False, True):
        node.is_stopped_in_the_console()
        world.wait(120)
        assert not node.kubernetes.is_ready
        if deleted:
            node.object_is_deleted()
        world.aws.client("ec2").start_instances(InstanceIds=[node.instance_id])
        world.wait(120)
        now = group.node_of(node.instance_id)
        assert now.exists and now.kubernetes.is_ready and not now.kubernetes.taints
        assert node.exists is not deleted


def test_pods_leave_a_machine_that_is_off_at_once_with_the_out_of_service_taint(world):
    group = world.group("workers", size=2)
    node = group.nodes[0]
    database = node.stateful_set("db")
    group.suspend("HealthCheck")
    node.is_stopped_in_the_console()
    world.run("20m")
    (stuck,) = database.pods()
    assert stuck.node_name == node.name
    node.kubernetes.add_taint("node.kubernetes.io/out-of-service", "NoExecute", "recycle-eks")
    world.run("21m")
    (moved,) = database.running_pods()
    assert moved.node_name != node.name


# -- changes of a scenario that a reset takes back -----------------------------------------------------------------------


def test_listeners_of_a_scenario_are_gone_after_a_reset(world):
    heard = []
    lists = [world.ec2.on_change, world.autoscaling.on_in_service, world.engine.on_entered, world.faults.witnesses]
    before = [list(each) for each in lists]
    for each in lists:
        each.append(lambda *_: heard.append(1))
    world.reset()
    assert [list(each) for each in lists] == before
    world.recycle(world.group("workers", size=1).nodes[0], dry_run=True).finishes()
    assert heard == []


def test_a_function_can_be_in_another_region(world):
    node = world.group("workers", size=2).nodes[0]
    world.host.regions["recycle-eks-claim-node"] = "us-east-1"
    end = world.recycle(node, dry_run=True).finishes()
    assert end.status == "FAILED", "its group is not there"

    world.host.regions.clear()
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_volumes_that_hung_are_detached_when_they_may(world):
    node = world.group("workers", size=2).nodes[0]
    claim = world.kubernetes.zonal_volume("data", node.zone)
    pod = node.bare_pod("user", volume_claims=[claim])
    node.kubernetes.volumes_hang()
    world.run("1m")
    attached = node.kubernetes.object["status"]["volumesAttached"]
    pod.deleted()
    world.run("5m")
    assert (pod.phase, node.kubernetes.object["status"]["volumesAttached"]) == ("Gone", attached)

    node.kubernetes.volumes_detach()
    world.run("6m")
    assert not node.kubernetes.object["status"].get("volumesAttached")
