"""A compromised kubelet. NodeRestriction lets it write any annotation and most labels of its own Node, and its status."""

import json
import subprocess

import pytest

from attacks import forgeries
from attacks.forgeries import (
    CLAIM,
    DRAIN_UNTIL,
    ESCAPES,
    EVICTED,
    GROUP_LABEL,
    LEASES,
    PROGRESS,
    RECORD,
    REPLACES,
    RESTORING,
    texts,
    unsafe,
)
from world.kubernetes.kube_client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from world.kubernetes.virtual_times import END_OF_TIME

WAITS = {"recycle-eks/drain": "wait"}


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


@pytest.fixture
def running(world):
    """An execution that works on a node of another group for hours."""
    node = world.group("other", size=1, minimum=1, maximum=3).nodes[0]
    node.job("long", annotations=WAITS)
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForPods")), limit=86_400)
    assert execution.status == "RUNNING"
    return execution


def failed(rotation):
    """The nodes that a rotation has named as not recycled."""
    return [each["node"] for group in rotation.groups.values() for each in group["failed"]]


def evictions(world):
    return world.calls("kubernetes:POST pods/eviction")


# E2


def test_times_that_no_type_can_hold_stop_no_rotation(world):
    """E2. Before: the list of Nodes could not be read, so that rotations stopped, and sweeps and restores saw no Node."""
    workers = world.group("workers", size=2, minimum=1, maximum=6)
    workers.gets_a_new_template()
    for node in workers.nodes:
        path, kubelet = f"/api/v1/nodes/{node.name}", world.kubernetes.kubelet(node.name)
        forgeries.write_the_end_of_time(kubelet, path)
        pressure = {"type": "DiskPressure", "status": "False", "lastTransitionTime": END_OF_TIME}
        kubelet.patch(f"{path}/status", {"status": {"conditions": [pressure]}}, STRATEGIC_MERGE_PATCH)

    assert world.rotate().finishes().outcome == "rotated"
    assert world.leftovers() == []


# E3


def test_the_commands_in_a_report_run_nothing_that_a_node_wrote(world, tmp_path):
    """E3. Before: the earlier value of Cluster Autoscaler's annotation was printed without quotes, and `$(…)` in it ran in the
    shell of the operator who followed the report."""
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    node.job("long", annotations=WAITS)
    injected = f"x$(touch {tmp_path}/substituted)`touch {tmp_path}/quoted`';touch {tmp_path}/closed;'\ntouch {tmp_path}/line"
    node.kubelet_writes({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": injected}})

    def forge():
        record = json.loads(node.annotations.get(RECORD, "{}"))
        node.kubelet_writes({"annotations": {RECORD: json.dumps({**record, "kept": True, "kept_before": injected})}})

    world.at("8m", forge)

    world.recycle(node, drain_timeout=600).finishes()

    sent = world.all_notifications[-1]
    assert sent["event"] == "left_in_standby", sent
    commands = sent["what_to_do"][1:]
    assert any(command.startswith("aws autoscaling exit-standby") for command in commands)
    assert any("cluster-autoscaler" in command for command in commands), commands
    for name in ("aws", "kubectl"):
        stub = tmp_path / name
        # The answer lets the commands go on after ExitStandby.
        stub.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/ran\necho InService\n')
        stub.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", "\n".join(commands)], env=path, check=False, timeout=60)
    ran = (tmp_path / "ran").read_text()
    assert "aws autoscaling exit-standby" in ran and "kubectl annotate" in ran
    assert {file.name for file in tmp_path.iterdir()} == {"aws", "kubectl", "ran"}


# E4: the claim


def test_a_node_with_a_claim_that_it_wrote_itself_is_rotated(world, running):
    """E4. Before: the execution ended SUCCEEDED with `duplicate`, the rotation counted the node as left and ended `Rotated`, and
    the node kept its old image."""
    claims = {
        "of another schema": '{"schema":2}',
        "of a running execution": forgeries.claim(running.arn),
    }
    workers = world.group("workers", size=len(claims) + 1, minimum=1, maximum=8)
    workers.gets_a_new_template()
    before = set(workers.instances)
    forgers = {}
    for (forged, claim), node in zip(claims.items(), workers.nodes, strict=False):
        node.kubelet_writes({"annotations": {CLAIM: claim}, "labels": {GROUP_LABEL: forgeries.short_hash("workers")}})
        forgers[node.instance_id] = forged

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end.cause
    evaded = before & set(workers.instances)
    assert not evaded, f"a node has evaded the rotation by a claim {[forgers.get(node) for node in evaded]}"


def test_a_node_that_poses_as_admitted_does_not_block_the_queue_of_its_group(world, workers, running):
    """E4. Before: the label and a claim in the phase `draining` held the group's place until the queue timed out a day later."""
    poser, queued, _ = workers.nodes
    claim = forgeries.claim(running.arn)
    poser.kubelet_writes({"annotations": {CLAIM: claim}, "labels": {GROUP_LABEL: forgeries.short_hash("workers")}})

    execution = world.recycle(queued)
    world.wait("1h")

    assert execution.status == "SUCCEEDED", execution.path[-3:]
    assert queued.instance_id not in workers.instances


def test_a_node_does_not_end_its_drain_by_its_claim(world):
    """E4. Before: the execution ended `ClaimLost` at its next step, as often as the node deleted or replaced the claim."""
    executions = []
    for number, forged in enumerate([None, forgeries.claim(forgeries.EXECUTION, urgency="interruption")]):
        node = world.group(f"workers-{number}", size=2, minimum=1, maximum=4).nodes[0]
        written = {"annotations": {CLAIM: forged}, "labels": {GROUP_LABEL: None}}
        world.at("8m", lambda node=node, written=written: node.kubelet_writes(written))
        world.at("15m", node.job(f"train-{number}", annotations=WAITS).finishes)
        executions.append((forged, world.recycle(node)))

    for forged, execution in executions:
        end = execution.finishes()
        assert end.outcome == "recycled" and end.at > world.seconds("15m"), (forged, end.error, end.cause)


def test_a_node_that_poses_as_being_restored_delays_no_restore_of_its_group(world, workers):
    """E4. Before: the oldest `recycle-eks/restoring` of a group came first, and the restore of another node waited for a quarter
    of an hour, with its members protected."""
    poser, node, _ = workers.nodes
    node.job("long", annotations=WAITS)
    poser.kubelet_writes(
        {"annotations": {RESTORING: "2020-01-01T00:00:00Z"}, "labels": {GROUP_LABEL: forgeries.short_hash("workers")}}
    )

    execution = world.recycle(node, drain_timeout=600)
    end = execution.finishes()

    assert end.error == "DrainTimedOut"
    assert end.at - execution.entered("RestoreNode")[0] < 300


# E4: the end of the drain


def test_a_node_that_ends_its_own_drain_makes_its_rotation_incomplete(world, workers):
    """E4. An end that the node wrote itself is a request like an operator's. The rotation names the node."""
    workers.gets_a_new_template()
    node = min(workers.nodes, key=lambda node: node.instance_id)
    node.job("long", annotations=WAITS)
    world.at("5m", lambda: node.kubelet_writes({"annotations": {DRAIN_UNTIL: "now"}}))

    end = world.rotate(failure_budget=1, recycle={"drain_timeout": 3600}).finishes()

    assert (end.error, failed(end)) == ("RotationFailed", [node.instance_id])


def test_a_node_that_puts_off_the_end_of_its_drain_has_30_days_and_the_report_says_why(world, workers):
    """E4. The limit is that of every drain. The execution and its progress show the end that holds."""
    node = workers.nodes[0]
    node.job("long", annotations=WAITS)
    world.at("5m", lambda: node.kubelet_writes({"annotations": {DRAIN_UNTIL: "9000-01-01T00:00:00Z"}}))

    execution = world.recycle(node, drain_timeout=900)
    world.run("30m")
    texts = [answer["reason"] for answer in execution.answers("CheckPods")]
    texts += [event["message"] for event in world.kubernetes.events(node.name)]

    assert "2027-01-30" < json.loads(node.annotations[PROGRESS])["until"] < "2027-01-31T01"
    assert any(DRAIN_UNTIL in text and "30 days" in text for text in texts), texts


# E4 and E9: the record


def test_a_node_that_forges_its_record_ends_no_other_member(world, workers):
    """E9. Before: the restore took any empty member that the record did not list for the replacement, cordoned and terminated
    it."""
    node, *bystanders = workers.nodes
    forged = json.dumps({"schema": 1, "members_before": [node.instance_id], "desired_before": 3, "usable_before": 3})
    workers.next_launch(fails="Insufficient capacity")
    world.at("5m", lambda: node.kubelet_writes({"annotations": {RECORD: forged}}))

    end = world.recycle(node, replacement_timeout=600).finishes()

    assert end.error == "ReplacementTimedOut", end
    assert [world.instance(each.instance_id).state for each in (node, *bystanders)] == ["running"] * 3
    assert not any(each.unschedulable for each in bystanders)
    assert workers.sizes == (1, 3, 6)


def test_a_node_that_names_its_replacement_itself_waits_for_the_real_one(world, workers):
    """E4. Before: an old member that the record did not list counted as the replacement, and the pods left while the group was
    one member short."""
    node, bystander, _ = workers.nodes
    node.deployment("web", replicas=2)
    known = {"schema": 1, "members_before": [node.instance_id], "replacement": bystander.instance_id, "usable_before": 1}
    workers.next_launch(takes="12m")
    world.at("3m", lambda: node.kubelet_writes({"annotations": {RECORD: json.dumps(known)}}))

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled", end.cause
    assert evictions(world)[0].at >= workers.newest.ready_at, "the pods left before the replacement came"


# E4: the API server


def test_a_kubelet_reaches_neither_the_leases_nor_other_nodes(world, workers):
    """E4. The claim, the record and the restore's place lie in Leases, which the Node authorizer keeps from kubelets."""
    node, other, _ = workers.nodes
    kubelet = world.kubernetes.kubelet(node.name)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node.instance_id}}
    change = {"metadata": {"annotations": {CLAIM: "mine!"}}}
    attempts = [
        ("DELETE", f"/api/v1/nodes/{node.name}", None),
        ("PATCH", f"/api/v1/nodes/{other.name}", change),
        ("PATCH", f"/api/v1/nodes/{other.name}/status", change),
        ("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}),
        ("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}),
        ("GET", LEASES, None),
        ("POST", LEASES, lease),
        ("GET", f"{LEASES}/{node.instance_id}", None),
        ("PATCH", f"{LEASES}/{node.instance_id}", change),
        ("DELETE", f"{LEASES}/{node.instance_id}", None),
        ("DELETE", LEASES, None),
        ("DELETE", "/api/v1/namespaces/recycle-eks", None),
    ]
    for method, path, body in attempts:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        answer = kubelet.call(method, path, body, content_type)
        assert answer.status == 403, (method, path, answer)
    assert kubelet.patch(f"/api/v1/nodes/{node.name}", change), "its own annotations it may write"


# E6


def test_a_node_sends_no_terminal_escape_to_an_operator(world, workers, cli):
    """E6. Before: OSC 52 in the progress and in an unreadable claim reached the operator's terminal, and notifications."""
    node, other, _ = workers.nodes
    world.budget(node.deployment("web", replicas=2), min_available=2)
    blocker = {"what": f"budget {ESCAPES}", "says": ESCAPES, "since": "2027-01-01T00:00:00Z", "count": 2, "names": [ESCAPES]}
    forged = {"summary": ESCAPES, "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z", "then": ESCAPES}
    progress = json.dumps({**forged, "blocked": [blocker], "held": [ESCAPES], "disruptions": [ESCAPES]})
    for each in (node, other):
        world.at(
            "3m",
            lambda each=each: each.kubelet_writes({"annotations": {PROGRESS: progress, "recycle-eks/replacement-for": ESCAPES}}),
        )
    world.at("3m", lambda: other.kubelet_writes({"annotations": {CLAIM: f"mine {ESCAPES}", DRAIN_UNTIL: ESCAPES}}))

    execution = world.recycle(node, drain_timeout=600)
    world.run("5m")
    assert ESCAPES in other.annotations[CLAIM]
    printed = [cli("status", pace=0), cli("status", node.name, pace=0), cli("status", other.name, pace=0)]
    printed.append(cli("doctor", pace=0))
    world.run("9m")
    world.sweep().finishes()
    execution.finishes()

    for each in printed:
        assert unsafe(each.text) == [] and unsafe(each.errors) == [], each
    assert any(sent["event"] == "blocked" for sent in world.all_notifications)
    for sent in world.events.notifications:
        assert [found for text in texts(json.loads(sent.message)) if (found := unsafe(text))] == []
        assert unsafe(sent.email or "") == [] and unsafe(sent.subject or "") == []


# E7


def test_a_mark_for_an_instance_of_another_cluster_neither_fails_nor_holds_up_a_sweep(world, workers):
    """E7. Before: the sweep worked on any instance that a Node named. It failed critically, or lasted half an hour, every quarter
    of an hour."""
    theirs = world.group("theirs", size=1, minimum=0, maximum=3, cluster="production").instances[0]
    workers.nodes[0].kubelet_writes({"annotations": {"recycle-eks/cordoned-for": theirs}})
    workers.nodes[1].kubelet_writes({"labels": {"recycle-eks/kept-for": theirs}})
    began = world.clock.elapsed()

    end = world.sweep().finishes()

    assert (end.status, end.output["nodes"]) == ("SUCCEEDED", []), end
    assert end.at - began < 60
    assert not world.notifications


# H4: the replacement of another node


def in_order(group):
    """The nodes in the order in which a rotation recycles them, in a group of one zone."""
    return sorted(group.nodes, key=lambda node: node.instance_id)


def reports_version(world, node, version):
    status = {"status": {"nodeInfo": {"kubeletVersion": version}}}
    world.kubernetes.kubelet(node.name).patch(f"/api/v1/nodes/{node.name}/status", status)


def seems_too_new(world, node):
    reports_version(world, node, "v1.99.0")


def test_a_node_that_reports_a_kubelet_that_is_too_new_stops_no_rotation(world, workers):
    """H4. Before: one node that was to be recycled stopped the rotation of its group with `KubeletTooNew`, each time."""
    workers.gets_a_new_template()
    seems_too_new(world, in_order(workers)[1])

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end.cause
    assert end.groups["workers"]["recycled"] == 3


def test_a_node_that_poses_as_the_first_replacement_is_not_judged_in_its_place(world, workers):
    """H4. Before: the label `recycle-eks/replaces` was enough to be judged. The old image or a kubelet that seemed too new
    stopped the group."""
    workers.gets_a_new_template()
    first, _, poser = in_order(workers)
    poser.kubelet_writes({"labels": {REPLACES: first.instance_id}})
    world.at("1m", lambda: seems_too_new(world, poser))

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end.cause
    assert end.groups["workers"]["recycled"] == 3


def test_a_node_that_poses_as_a_second_replacement_does_not_pass_the_check_of_the_first(world):
    """H4. Before: two nodes seemed to have begun, so the first replacement counted as checked, and every node was recycled in
    vain."""
    workers = world.group("workers", size=4, minimum=1, maximum=8, kubelet="v1.34.1-eks-0000000")
    before = set(workers.instances)
    poser = in_order(workers)[-1]
    world.at("1m", lambda: poser.kubelet_writes({"labels": {REPLACES: poser.instance_id}}))

    end = world.rotate({"outdated": {"kubelet": True}}, at_once=1).finishes()

    assert end.groups["workers"]["error"] == ["ReplacementStillOutdated"], end
    assert len(before - set(workers.instances)) == 1


def test_a_node_that_was_not_selected_does_not_pass_for_the_replacement_that_others_wait_for(world, workers):
    """H4. Before: an old member outside the selection was judged in place of the replacement, so the second node did not wait."""
    old = in_order(workers)
    workers.gets_a_new_template()
    selected = [node.instance_id for node in old[:2]]
    old[2].kubelet_writes({"labels": {REPLACES: selected[0]}})

    end = world.rotate({"instance_ids": selected}, at_once=2).finishes()

    assert end.outcome == "rotated", end.cause
    _, second = [execution.entered("ClaimNode")[0] for execution in world.executions()]
    assert second > min(node.ready_at for node in workers.nodes if node not in old), "it did not wait"


def test_a_node_that_poses_as_a_replacement_holds_no_rotation_by_pods_that_it_names(world, workers):
    """H4. Before: its annotation `recycle-eks/evicted` was believed. A Pending pod of a controller that it named held the
    rotation for an hour, and then stopped the group."""
    *selected, poser = in_order(workers)
    poser.kubelet_writes({"labels": {REPLACES: selected[0].instance_id}})

    def name_a_pending_pod():
        (pending,) = [pod for pod in world.kubernetes.pods() if pod.name.startswith("nowhere-")]
        (owner,) = pending.object["metadata"]["ownerReferences"]
        poser.kubelet_writes({"annotations": {EVICTED: forgeries.short_hash(owner["uid"])}})

    world.at("1m", lambda: world.kubernetes.deployment("nowhere", node_selector={"nowhere": "true"}))
    world.at("90s", name_a_pending_pod)

    end = world.rotate({"instance_ids": [node.instance_id for node in selected]}, at_once=1).finishes()

    assert end.outcome == "rotated", end.cause
    assert end.groups["workers"]["recycled"] == 2, end


# H5: a Node that says nothing


def is_named_twice(world, node):
    """Another Node with the instance of this one: nothing says which of them is the instance's Node, so neither can be read."""
    genuine = node.kubernetes.object
    spec, status = {"providerID": genuine["spec"]["providerID"]}, {"conditions": genuine["status"]["conditions"]}
    twin = {"metadata": {"name": f"twin-of-{node.instance_id}"}, "spec": spec, "status": status}
    world.kubernetes.must("POST", "/api/v1/nodes", twin)


def cannot_be_read(node):
    """A kubelet registers its Node with any taint."""
    node.kubernetes.patch({"spec": {"taints": [{"key": "forged", "effect": "PreferNoSchedule", "timeAdded": END_OF_TIME}]}})


def test_a_node_that_cannot_be_read_is_chosen_by_each_criterion_that_aws_decides(world):
    """H5. Such a criterion needs no Node. A node is recycled, or its execution and so the rotation fail by name."""
    criteria = {
        "template": {"launch_template": True},
        "older": {"older_than": "1h"},
        "before": {"launched_before": "2027-01-01T01:00:00Z"},
        "all": {"all": True},
    }
    hidden, unreadable = {}, {}
    for name in criteria:
        group = world.group(name, size=2, minimum=1, maximum=4)
        group.gets_a_new_template()
        hidden[name], unreadable[name] = in_order(group)
        is_named_twice(world, hidden[name])
        cannot_be_read(unreadable[name])
    world.wait("2h")

    for name, criterion in criteria.items():
        end = world.rotate({"outdated": {"groups": [name], **criterion}}, on_failure="continue").finishes()
        assert (end.error, failed(end)) == ("RotationFailed", [unreadable[name].instance_id]), criterion
        assert end.groups[name]["recycled"] == 1 and hidden[name].instance_id not in hidden[name].group.instances


def test_a_node_that_says_nothing_does_not_evade_a_rotation_by_the_version_of_its_kubelet(world):
    """H5. Before: the rotation ended `rotated`, or `nothing_selected`, and only its reason named the unreadable Nodes."""
    workers = world.group("workers", size=3, minimum=1, maximum=6, kubelet="v1.34.1-eks-0000000")
    workers.kubelet = "v1.35.0-eks-0000000"
    hidden, silent, honest = in_order(workers)
    world.wait("1h")
    is_named_twice(world, hidden)
    reports_version(world, silent, "none")

    first = world.rotate({"outdated": {"kubelet": True}}).finishes()
    second = world.rotate({"outdated": {"kubelet": True}}).finishes()

    assert honest.instance_id not in workers.instances
    for end, recycled in ((first, 1), (second, 0)):
        assert end.error == "RotationFailed", end
        group = end.groups["workers"]
        assert (group["error"], group["recycled"]) == (["NodeUnreadable"], recycled)
        assert f"{hidden.instance_id} (spec.providerID: " in group["why"][0], group
        assert f"{silent.instance_id} (no version of its kubelet)" in group["why"][0], group


def test_a_node_that_says_nothing_does_not_evade_a_rotation_by_labels(world, workers):
    """H5. Before: the rotation ended `rotated`. Labels of a Node that can be read are its kubelet's own word, as before."""
    hidden, other, honest = in_order(workers)
    other.kubelet_writes({"labels": {"pool": "b"}})
    for node in (hidden, honest):
        node.kubelet_writes({"labels": {"pool": "a"}})
    world.wait("1h")
    cannot_be_read(hidden)

    end = world.rotate({"outdated": {"all": True, "node_labels": "pool=a"}}).finishes()

    group = end.groups["workers"]
    assert (end.error, group["error"], group["recycled"]) == ("RotationFailed", ["NodeUnreadable"], 1)
    assert hidden.instance_id in group["why"][0] and other.instance_id not in group["why"][0]
    assert other.instance_id in workers.instances and honest.instance_id not in workers.instances


# H6


@pytest.mark.parametrize(
    ("label", "value"),
    [("karpenter.sh/nodepool", "x"), ("eks.amazonaws.com/compute-type", "auto"), ("eks.amazonaws.com/compute-type", "fargate")],
)
def test_a_node_with_labels_of_another_tool_is_rotated(world, workers, label, value):
    """H6. Before: every execution for the node was refused, and with the default terms the rest of its group was not begun."""
    workers.gets_a_new_template()
    in_order(workers)[0].kubelet_writes({"labels": {label: value}})

    end = world.rotate().finishes()

    assert end.outcome == "rotated", end.cause
    assert end.groups["workers"]["recycled"] == 3


def drain_since_1970(world, node):
    """An execution that drains the node, which writes another start and end into its progress."""
    node.job("long", annotations=WAITS)
    execution = world.recycle(node)
    world.clock.run(until=lambda: bool(execution.entered("WaitForPods")), limit=86_400)
    times = {"since": "1970-01-01T00:00:00Z", "until": "1970-01-03T00:00:00Z"}
    node.kubelet_writes({"annotations": {PROGRESS: json.dumps({"summary": "waits", **times})}})
    return execution


def test_a_node_does_not_turn_an_extension_of_its_drain_into_its_end(world, workers, cli):
    """H6. Before: the command line and its function took the start and the end of the drain from the Node's own progress, and
    wrote a time in 1970 as the operator's wish."""
    node = workers.nodes[0]
    execution = drain_since_1970(world, node)

    asked = cli("extend", node.name, "--until", "2027-01-20T00:00:00Z", pace=0)
    assert asked.code == 0 and node.records[DRAIN_UNTIL] == "2027-01-20T00:00:00Z", asked

    node.kubelet_writes({"annotations": {DRAIN_UNTIL: "1970-01-03T00:00:00Z"}})
    assert cli("extend", node.name, "--by", "1h", pace=0).code == 0
    assert node.records[DRAIN_UNTIL] == "2027-01-20T01:00:00Z"
    world.wait("2d")
    assert execution.status == "RUNNING"


def test_a_node_whose_progress_is_in_the_past_is_not_prolonged_from_there(world, workers, cli):
    """H6. The end that the node claims is no end of a running drain."""
    node = workers.nodes[0]
    drain_since_1970(world, node)

    refused = cli("extend", node.name, "--by", "1h", pace=0)

    assert refused.code != 0 and "--until" in refused.errors, refused
    assert DRAIN_UNTIL not in node.records
