"""Callers of the functions: an operator with the module's policy, and a principal that may invoke every function with any
payload."""

import copy
import itertools
import json
import socket
from random import Random

import pytest
from botocore.exceptions import ClientError

from prepare import ROOT
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.aws.lambda_host import Invocation
from world.aws.requests import READS
from world.deployment import CLUSTER
from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import MERGE_PATCH, KubeClient
from world.kubernetes.virtual_times import END_OF_TIME

#: The only function that an operator may invoke.
FOR_OPERATORS = "recycle-eks-serve-operator"
#: The role of this function.
ROLE_FOR_OPERATORS = f"{FOR_OPERATORS}-{REGION}"
#: The functions that take a step of an execution.
STEPS = ("standby-node", "taint-node", "check-pods", "evict-pods", "detach-terminate")
#: Damaged payloads for each function. A debug build answers one in a few milliseconds.
TRIES = 25


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=4).nodes[0]


@pytest.fixture
def attacker():
    """A server of the attacker's on this machine, which counts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def reached(attacker):
    try:
        attacker.accept()
    except BlockingIOError:
        return False
    return True


def functions(world):
    every = [each["FunctionName"] for each in world.aws.client("lambda").list_functions()["Functions"]]
    return sorted(name for name in every if name.startswith("recycle-eks-"))


@pytest.fixture
def invoke(world):
    """A principal with `lambda:InvokeFunction` calls a function: the error's name and text, or None and the answer."""
    client = world.principal("lambda:InvokeFunction")

    def call(function, payload):
        answer = client.invoke(FunctionName=f"recycle-eks-{function}", Payload=json.dumps(payload).encode())
        document = json.loads(answer["Payload"].read())
        return (document["errorType"], document["errorMessage"]) if answer.get("FunctionError") else (None, json.dumps(document))

    return call


def draining(world, node):
    """An execution that waits for a pod of the node, with the run that it carries, and the context of its steps."""
    node.job("long", annotations={"recycle-eks/drain": "wait"})
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForPods")), limit=86_400)
    run = execution.answers("CheckPods")[-1]["run"]
    return execution, run, context_of(execution.arn)


def context_of(arn, **given):
    return {"Execution": {"Id": arn, "Input": given}, "State": {"EnteredTime": "2027-01-01T01:00:00Z"}}


MADE_UP = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:execution:recycle-eks-recycle-node:made-up"
SWEEP = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:execution:recycle-eks-sweep:made-up"


def of_node(arn, node):
    return context_of(arn, instance_id=node.instance_id, cluster_name=CLUSTER)


def leftover(arn, node, **more):
    return {"context": context_of(arn), "leftover": {"instance_id": node.instance_id, "cluster_name": CLUSTER}, **more}


def is_claimed(world, node):
    return "recycle-eks/claim" in world.kubernetes.leases().get(node.instance_id, {})


def test_an_execution_that_is_made_up_or_is_about_another_node_gets_no_claim(world, node, invoke):
    """H2. Before: the functions believed the ARN in the payload, and all later steps believed the claim. A caller could evict the
    pods of any member."""
    other = node.group.nodes[1]
    other.job("other", annotations={"recycle-eks/drain": "wait"})
    execution, _, _ = draining(world, node)
    other.annotate("recycle-eks/progress", "{}")
    world.aws.client("ec2").create_tags(Resources=[other.instance_id], Tags=[{"Key": "recycle-eks:standby", "Value": "x"}])
    for function, payload in [
        ("claim-node", {"context": of_node(MADE_UP, other)}),
        ("claim-node", {"context": of_node(execution.arn, other)}),
        ("restore-node", leftover(SWEEP, other)),
        ("restore-node", leftover(execution.arn, other)),
    ]:
        error, why = invoke(function, payload)
        assert error in ("ClaimLost", "ServiceUnavailable"), (function, why)
        assert not is_claimed(world, other), (function, payload)


def test_a_claim_is_not_taken_from_an_execution_that_is_said_to_have_ended(world, node, invoke):
    """H2. Before: `restore-node` believed the status of the owner in the payload, and restored a node that was being drained."""
    execution, _, _ = draining(world, node)
    claim = world.kubernetes.leases()[node.instance_id]["recycle-eks/claim"]
    owner = {"execution": execution.arn, "status": "ABORTED", "ended_at": "2020-01-01T00:00:00Z"}

    for _ in range(3):
        invoke("restore-node", leftover(SWEEP, node, owner=owner, restore={"owner": owner}))

    assert world.kubernetes.leases()[node.instance_id]["recycle-eks/claim"] == claim
    assert node.unschedulable and node.group.states[node.instance_id] == "Standby"


def test_a_step_that_is_left_out_keeps_the_pods(world, node, invoke):
    """H2. Before: a caller that knew a waiting execution evicted the pods of its node before the replacement had come."""
    web = node.deployment("web", replicas=2)
    node.group.next_launch(takes="30m")
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForReplacement")), limit=86_400)
    run = execution.answers("StandbyNode")[-1]["run"]

    error, why = invoke("evict-pods", {"context": context_of(execution.arn), "run": run})

    assert error == "ServiceRefused" and "phase standby" in why, (error, why)
    assert len(web.running_pods()) == 2


@pytest.mark.parametrize("named", ["its own", "another", "none"])
@pytest.mark.parametrize("lost", [True, False])
def test_a_node_whose_drain_has_not_begun_is_not_disposed_of(world, node, invoke, named, lost):
    """H2. Before: without a Node of the name in the payload, the instance counted as one without pods, and was terminated."""
    web = node.deployment("web", replicas=2)
    node.group.next_launch(takes="30m")
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForReplacement")), limit=86_400)
    world.wait("5m")
    run = execution.answers("StandbyNode")[-1]["run"]
    name = {"its own": node.name, "another": node.group.nodes[1].name, "none": "nope"}[named]
    forged = {**run, "node": name, "old": {"members": "0000"}, "disposing_since": "2027-01-01T00:00:00Z"}
    if lost:
        forged["lost"] = {"why": "its Node object is gone", "at": "2027-01-01T00:30:00Z"}

    for _ in range(3):
        invoke("detach-terminate", {"context": context_of(execution.arn), "run": forged})

    assert world.instance(node.instance_id).state == "running" and node.group.states[node.instance_id] == "Standby"
    assert len(web.running_pods()) == 2


def test_a_made_up_execution_releases_no_member_that_a_hook_holds(world, node, invoke):
    """H2. Before: a made-up input with a warm pool as the destination completed the lifecycle action, whatever ran there."""
    node.job("long", annotations={"recycle-eks/drain": "wait"})
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForPods")), limit=86_400)
    hook = {"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "WarmPool"}
    given = {"instance_id": node.instance_id, "cluster_name": CLUSTER, "hook": {**hook, "fired_at": "2027-01-01T00:00:00Z"}}

    for arn in (MADE_UP, execution.arn):
        error, why = invoke("claim-node", {"context": context_of(arn, **given)})
        assert error in ("ClaimLost", "ServiceUnavailable"), (arn, error, why)
    assert not world.calls("autoscaling:CompleteLifecycleAction")
    assert execution.arn in world.kubernetes.leases()[node.instance_id]["recycle-eks/claim"]


def test_a_sweep_takes_no_step(world, node, invoke):
    """H2. Before: the claim that a sweep holds to restore a node was good for every step."""
    _, run, _ = draining(world, node)
    for function in STEPS:
        error, why = invoke(function, {"context": context_of(SWEEP), "run": run})
        assert error != "ClaimLost" and "must be an execution of recycle-node" in why, (function, error, why)


def test_a_caller_that_names_another_node_taints_nothing_there_and_evicts_no_pod_of_it(world, node, invoke):
    """H2. With a claim on one instance, a payload named the Node of another one, and `evict-pods` evicted its pods."""
    _, run, context = draining(world, node)
    other = node.group.nodes[1]
    web = other.deployment("web", replicas=2)
    before = {pod.name for pod in web.pods()}
    for function in ("taint-node", "evict-pods"):
        invoke(function, {"context": context, "run": {**run, "node": other.name}})
    assert other.kubernetes.taints == [] and not other.unschedulable
    assert {pod.name for pod in web.running_pods()} == before


# An operator


def test_an_operator_invokes_nothing_that_evicts_deletes_or_terminates(world):
    """E1. Before: the module's own policy granted `taint-node` and `select-nodes`, whose roles had every right in the cluster."""
    known = world.operators_environment()
    client = world.aws.client_as("lambda", known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"])

    def may_invoke(function):
        try:
            return client.invoke(FunctionName=function, InvocationType="DryRun")["StatusCode"] == 204
        except ClientError as error:
            assert error.response["Error"]["Code"] == "AccessDeniedException"
            return False

    assert [function for function in functions(world) if may_invoke(function)] == [FOR_OPERATORS]


def test_the_function_for_operators_only_reads_in_aws_and_changes_no_node_and_no_pod(world, node):
    """E1. With its token a caller can read, and write the end of a drain."""
    iam = world.aws.client("iam")
    roles = {role["RoleName"]: role for role in iam.list_roles()["Roles"]}
    assert ROLE_FOR_OPERATORS in roles, "there is no function for operators"
    names = iam.list_role_policies(RoleName=ROLE_FOR_OPERATORS)["PolicyNames"]
    attached = iam.list_attached_role_policies(RoleName=ROLE_FOR_OPERATORS)["AttachedPolicies"]
    documents = [iam.get_role_policy(RoleName=ROLE_FOR_OPERATORS, PolicyName=name)["PolicyDocument"] for name in names]
    documents += [
        iam.get_policy_version(PolicyArn=each["PolicyArn"], VersionId="v1")["PolicyVersion"]["Document"] for each in attached
    ]
    statements = [each for document in documents for each in document["Statement"] if each.get("Sid") != "WriteItsOwnLog"]
    actions = {
        action for each in statements for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
    }
    assert {action for action in actions if not action.partition(":")[2].startswith(READS)} == set()

    credentials = world.aws.session(f"arn:{PARTITION}:iam::{ACCOUNT}:role/{ROLE_FOR_OPERATORS}", "operator")
    token = eks_token(CLUSTER, REGION, *credentials)
    client = KubeClient(world.kubernetes.proxy.port, world.kubernetes.control_plane.authority.file, token=token)
    pod = node.deployment("web").pods()[0]
    assert client.call("GET", f"/api/v1/nodes/{node.name}").status == 200
    attempts = [
        ("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": True}}),
        ("DELETE", f"/api/v1/nodes/{node.name}", None),
        ("POST", f"{pod.path}/eviction", {"metadata": {"name": pod.name}}),
        ("DELETE", pod.path, None),
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/recycle-eks/leases", None),
    ]
    for method, path, body in attempts:
        answer = client.call(method, path, body, MERGE_PATCH if method == "PATCH" else "application/json")
        assert answer.status == 403, (method, path, answer)


def test_the_function_that_annotates_pods_changes_no_spec_and_ends_no_pod(world, node):
    """With the permission to patch whole pods its token could run any image with the rights of any pod."""
    credentials = world.aws.session(f"arn:{PARTITION}:iam::{ACCOUNT}:role/recycle-eks-check-pods-{REGION}", "lambda")
    token = eks_token(CLUSTER, REGION, *credentials)
    client = KubeClient(world.kubernetes.proxy.port, world.kubernetes.control_plane.authority.file, token=token)
    pod = node.deployment("web").pods()[0]
    image = {"spec": {"containers": [{"name": "main", "image": "example.invalid/evil"}]}}
    note = {"metadata": {"annotations": {"recycle-eks/waits-until": "2027-01-01T00:00:00Z"}}}
    assert client.call("PATCH", f"{pod.path}/status", {**image, **note}, MERGE_PATCH).status == 200
    assert pod.object["spec"]["containers"][0]["image"] == "example.invalid/none"
    assert pod.annotations["recycle-eks/waits-until"]
    for method, path in [("PATCH", pod.path), ("DELETE", pod.path), ("PATCH", f"{pod.path}/ephemeralcontainers")]:
        body, kind = (image, MERGE_PATCH) if method == "PATCH" else (None, "application/json")
        assert client.call(method, path, body, kind).status == 403, (method, path)


def test_a_function_of_the_state_machines_answers_no_operator(world, node, invoke):
    """E1. Before: a question of an operator reached a function with every right."""
    for function, payload in [
        ("select-nodes", {"select": "status", "cluster_name": CLUSTER}),
        ("select-nodes", {"select": "doctor", "cluster_name": CLUSTER}),
        ("taint-node", {"drain_until": {"instance_id": node.instance_id, "cluster_name": CLUSTER, "until": "now"}}),
    ]:
        error, why = invoke(function, payload)
        assert error is not None, (function, payload, why)
        assert not world.writes(), (function, payload)


# A principal with lambda:InvokeFunction


def test_no_payload_chooses_where_a_token_goes(world, node, invoke, attacker):
    """E1. Before: endpoint, CA and cluster name came from the payload, and `http` was allowed. A caller received a bearer token
    that could patch and delete all Nodes and evict everywhere, for 15 minutes."""
    execution, run, context = draining(world, node)
    endpoint = f"http://127.0.0.1:{attacker.getsockname()[1]}"
    authority = world.kubernetes.certificate_authority_data
    elsewhere = {"name": CLUSTER, "endpoint": endpoint, "certificate_authority": authority}
    forged = {**run, "cluster": elsewhere, "endpoint": endpoint, "polls": 1}
    answers = {function: invoke(function, {"context": context, "run": forged, **elsewhere}) for function in STEPS}
    context = context_of(execution.arn, instance_id=node.instance_id, cluster_name=CLUSTER, endpoint=endpoint, cluster=elsewhere)
    answers["claim-node"] = invoke("claim-node", {"context": context, "run": forged, "cluster": elsewhere})
    answers["restore-node"] = invoke("restore-node", {"context": context, "cluster": elsewhere, "restore": elsewhere})
    answers["select-nodes"] = invoke(
        "select-nodes", {"context": context, "select": "leftovers", "cluster_name": CLUSTER, **elsewhere}
    )

    assert not reached(attacker), answers


def test_another_cluster_is_refused_by_name(world, node, invoke):
    """E1. Before: the cluster of the token was the one that the payload named."""
    arn, other = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:execution:recycle-eks-recycle-node:made-up", "production"
    for function, payload in {
        "claim-node": {"context": context_of(arn, instance_id=node.instance_id, cluster_name=other)},
        "select-nodes": {"context": context_of(arn), "select": "leftovers", "cluster_name": other},
        "taint-node": {"marking": {"cluster_name": other, "nodes": [node.instance_id], "rotation": arn, "mark": "hard"}},
        "restore-node": {"unmarking": {"cluster_name": other, "rotations": [arn]}},
    }.items():
        error, why = invoke(function, payload)
        assert error is not None and other in why, (function, error, why)
        assert not world.writes(), function


def test_a_run_that_says_that_its_node_is_lost_is_checked_before_anything_ends(world, node, invoke):
    """E1. `detach-terminate` with a made-up API server terminated any member with its pods. Now it asks the real one."""
    execution, run, context = draining(world, node)
    lost = {
        **run,
        "lost": {"why": "its Node object is gone", "at": "2027-01-01T00:30:00Z"},
        "disposing_since": "2027-01-01T00:00:00Z",
    }

    invoke("detach-terminate", {"context": context, "run": lost})

    assert world.instance(node.instance_id).state == "running" and node.group.states[node.instance_id] == "Standby"
    assert execution.status == "RUNNING"


def test_a_made_up_execution_changes_nothing(world, node, invoke):
    """E1. A step acts only if its execution holds the claim."""
    _, run, _ = draining(world, node)
    arn = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:execution:recycle-eks-recycle-node:made-up"
    before = len(world.writes())
    for function in STEPS:
        forged = {**run, "disposing_since": "2027-01-01T00:00:00Z"} if function == "detach-terminate" else run
        error, why = invoke(function, {"context": context_of(arn), "run": forged})
        assert error == "ClaimLost", (function, error, why)
        assert len(world.writes()) == before and world.instance(node.instance_id).state == "running", function


def with_names(document, names):
    """The document with other strings in place of some."""
    if isinstance(document, dict):
        return {key: with_names(value, names) for key, value in document.items()}
    if isinstance(document, list):
        return [with_names(value, names) for value in document]
    return names.get(document, document) if isinstance(document, str) else document


def test_no_payload_with_the_names_of_another_node_changes_that_node(world, node, invoke):
    """H2. Every function gets the instance, the Node and the execution of another one, each alone and together."""
    execution, run, _ = draining(world, node)
    other = node.group.nodes[1]
    web = other.deployment("web", replicas=2)
    pods = {pod.name for pod in web.pods()}
    context = of_node(execution.arn, node)
    disposing = {**run, "disposing_since": "2027-01-01T00:00:00Z", "old": {"members": "0000"}}
    payloads = [(function, {"context": context, "run": disposing}) for function in STEPS]
    payloads += [("claim-node", {"context": context}), ("claim-node", {"context": context, "run": run})]
    payloads += [
        ("restore-node", leftover(SWEEP, node)),
        ("restore-node", {"context": context, "failure": {"Error": "x", "Cause": ""}}),
    ]
    names = {node.instance_id: other.instance_id, node.name: other.name, execution.arn: MADE_UP}
    before = node.group.sizes

    for chosen in (subset for size in (1, 2, 3) for subset in itertools.combinations(names, size)):
        for function, payload in payloads:
            if function == "restore-node" and node.instance_id not in chosen:
                continue
            invoke(function, with_names(payload, {name: names[name] for name in chosen}))
            assert other.kubernetes.taints == [] and not other.unschedulable, (function, chosen)
            assert node.group.states[other.instance_id] == "InService" and not is_claimed(world, other), (function, chosen)
            assert {pod.name for pod in web.running_pods()} == pods and node.group.sizes == before, (function, chosen)
    assert world.instance(node.instance_id).state == "running" and execution.status == "RUNNING"


# Any payload


@pytest.fixture
def payloads(world, node):
    """A payload of each shape for each function, from a recycling, a rotation, a restore, a sweep, an alarm, Terraform and an
    operator."""
    seen = {}

    def remember(sandbox, payload, *_):
        add(sandbox.function, json.loads(payload))

    def add(function, payload):
        shape = frozenset((*payload, payload.get("select"), payload.get("ask")))
        seen.setdefault(function, {}).setdefault(shape, payload)

    world.host.on_answered.append(remember)
    node.deployment("web", replicas=2)
    assert world.recycle(node).finishes().outcome == "recycled"
    node.group.gets_a_new_template()
    assert world.rotate().finishes().outcome == "rotated"
    assert world.sweep().finishes().status == "SUCCEEDED"
    other = node.group.nodes[0]
    other.job("long", annotations={"recycle-eks/drain": "wait"})
    assert world.recycle(other, drain_timeout=600).finishes().error == "DrainTimedOut"
    world.host.on_answered.remove(remember)
    change = {"OldStateValue": "OK", "NewStateValue": "ALARM", "StateChangeTime": "2027-01-01T00:00:01.000+0000"}
    alarm = f"arn:{PARTITION}:cloudwatch:{REGION}:{ACCOUNT}:alarm:node-cpu"
    message = json.dumps({"AlarmName": "node-cpu", "AlarmArn": alarm, "AWSAccountId": ACCOUNT, **change})
    topic = f"arn:{PARTITION}:sns:{REGION}:{ACCOUNT}:operators"
    rotation = {"trigger": "template", "selection": {"outdated": {"launch_template": True}}, "dry_run": True}
    add("recycle-eks-start-rotation", {"Records": [{"Sns": {"Message": message, "TopicArn": topic}}]})
    add("recycle-eks-start-rotation", {"value": 1, "rotation": rotation, "tf": {"action": "update", "prev_input": {}}})
    add("recycle-eks-restore-node", leftover(SWEEP, other))
    for more in [{"ask": "status"}, {"ask": "doctor"}, {"ask": "records", "instances": [other.instance_id]}]:
        add(FOR_OPERATORS, {"cluster_name": CLUSTER, **more})
    add(FOR_OPERATORS, {"ask": "move_drain_end", "cluster_name": CLUSTER, "instance_id": other.instance_id, "until": "now"})
    return {function: list(seen[function].values()) for function in functions(world)}


def places(document, here=()):
    """The path of each value in a document."""
    yield here
    inside = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inside:
        yield from places(value, (*here, key))


def damaged(payload, random, endpoint):
    """The document with one to three values that are removed or replaced. Half of them also have a field that names a server."""
    document = copy.deepcopy(payload)
    odd = [None, True, -1, 2**63, 1e308, "", "x" * 20_000, "\0", [], {}, [[]], END_OF_TIME, endpoint, {"endpoint": endpoint}]
    for _ in range(random.randint(1, 3)):
        if not document:
            break
        *path, last = random.choice([place for place in places(document) if place])
        parent = document
        for key in path:
            parent = parent[key]
        if random.random() < 0.3:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(random.choice(odd))
    if isinstance(document, dict) and random.random() < 0.5:
        document[random.choice(["cluster", "endpoint", "cluster_name", "url", "region"])] = endpoint
    return document


def shapes():
    """Payloads that are no request at all."""
    return [b"null", b"7", b'"text"', b"[]", b"{}", b'{"Records":7}', b'{"context":[]}', b'{"run":{}}']


def failures():
    """The public names of errors, as the state machines know them."""
    return set(json.loads((ROOT / "tests/contract/contract.json").read_text())["failures"])


def test_any_payload_gets_an_answer_or_a_refusal_by_name_and_reaches_no_other_server(world, payloads, attacker):
    """E1. A function neither panics nor ends, whatever a caller sends, and calls only AWS and the cluster. The executions of the
    payloads have ended, and their nodes are recycled or restored, so nothing is changed."""
    endpoint = f"http://127.0.0.1:{attacker.getsockname()[1]}"
    names = failures()
    bad = []
    world.forget_calls()
    for function, shaped in payloads.items():
        random = Random(function)
        bodies = [json.dumps(damaged(payload, random, endpoint)).encode() for payload in shaped for _ in range(TRIES)]
        refusals = 0
        for body in [*shapes(), *bodies]:
            answer = world.host.call(function, body)
            assert isinstance(answer, Invocation), (function, body[:200], answer)
            if answer.function_error:
                refusals += 1
                error = json.loads(answer.payload)
                if error["errorType"] not in names or "panic" in error["errorMessage"]:
                    bad.append((function, body[:200], error))
        assert refusals >= len(shapes()), f"{function} has taken a payload that is no request"
    assert bad == []
    assert world.writes() == []
    assert not reached(attacker)
