"""The cluster of the local world: a real control plane, frozen between settlings, with kubelets on the virtual clock."""

from __future__ import annotations

import os
import pathlib
from unittest import mock

import pytest

from world.base.clock import Clock
from world.kubernetes import control_plane, running_cluster, settled
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.control_plane import ComponentDied
from world.kubernetes.handles import Node, Pod
from world.kubernetes.kube_client import MERGE_PATCH, Answer, Refused
from world.kubernetes.settled import NotSettled

HOUR = 3600.0


def evict(kubernetes: Kubernetes, pod: Pod, **options: object) -> Answer:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace}}
    if options:
        body["deleteOptions"] = options
    return kubernetes.call("POST", f"{pod.path}/eviction", body)


@pytest.fixture
def clock(kubernetes: Kubernetes) -> Clock:
    return kubernetes.clock


@pytest.fixture
def old(kubernetes: Kubernetes) -> Node:
    return kubernetes.add_node("old", "aws:///eu-west-1a/i-0aaaaaaaaaaaaaaa0")


@pytest.fixture
def new(kubernetes: Kubernetes) -> Node:
    return kubernetes.add_node("new", "aws:///eu-west-1b/i-0bbbbbbbbbbbbbbb0", zone="eu-west-1b")


# -- nodes ---------------------------------------------------------------------------------------------------------


def test_a_new_node_is_ready_and_loses_the_taint_it_registered_with(kubernetes: Kubernetes, old: Node) -> None:
    kubernetes.settle()
    assert old.is_ready
    assert old.taints == []
    assert old.object["spec"]["providerID"] == "aws:///eu-west-1a/i-0aaaaaaaaaaaaaaa0"
    assert old.labels["topology.kubernetes.io/zone"] == "eu-west-1a"


def test_startup_taints_go_at_their_virtual_time(kubernetes: Kubernetes, clock: Clock) -> None:
    taint = {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}
    node = kubernetes.add_node("new", "aws:///a/i-1", startup_taints=[taint], startup_taints_go_after=40)
    clock.run(limit=39)
    assert [each["key"] for each in node.taints] == ["ebs.csi.aws.com/agent-not-ready"]
    clock.run(limit=41)
    assert node.taints == []


def test_a_node_that_stops_reporting_is_tainted_and_its_pods_are_unready(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    web = kubernetes.deployment("web", on=old)
    kubernetes.settle()
    old.stops_reporting()
    kubernetes.settle()
    effects = {each["effect"] for each in old.taints if each["key"] == "node.kubernetes.io/unreachable"}
    assert effects == {"NoSchedule", "NoExecute"}
    assert not web.pods()[0].is_ready
    old.becomes_ready()
    kubernetes.settle()
    assert old.taints == []
    assert web.pods()[0].is_ready


def test_pods_of_an_unreachable_node_are_deleted_after_five_virtual_minutes_and_hang_there(
    kubernetes: Kubernetes, clock: Clock, old: Node, new: Node
) -> None:
    web = kubernetes.deployment("web", on=old)
    agent = kubernetes.daemon_set("agent")
    old.stops_reporting()
    clock.run(limit=299)
    assert [pod.is_terminating for pod in web.pods()] == [False]
    clock.run(limit=2 * HOUR)
    assert [(pod.node_name, pod.is_terminating) for pod in sorted(web.pods(), key=lambda pod: pod.is_terminating)] == [
        ("new", False),
        ("old", True),
    ]
    assert not any(pod.is_terminating for pod in agent.pods())


def test_pods_of_a_removed_node_stay_listed_for_a_virtual_minute(
    kubernetes: Kubernetes, clock: Clock, old: Node, new: Node
) -> None:
    bare = kubernetes.bare_pod("bare", on=old)
    web = kubernetes.deployment("web", on=old)
    kubernetes.settle()
    first = web.pods()[0]
    kubernetes.remove_node("old")
    kubernetes.remove_node("old")
    clock.run(limit=59)
    assert bare.exists and first.exists
    clock.run(limit=61)
    assert not bare.exists and not first.exists
    assert [pod.node_name for pod in web.pods()] == ["new"]


def test_a_cordoned_node_is_tainted_by_the_real_controller(kubernetes: Kubernetes, old: Node) -> None:
    old.cordon()
    kubernetes.settle()
    assert [each["key"] for each in old.taints] == ["node.kubernetes.io/unschedulable"]
    old.uncordon()
    kubernetes.settle()
    assert old.taints == []


# -- workloads -----------------------------------------------------------------------------------------------------


def test_first_replicas_are_placed_where_the_scenario_says(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    web = kubernetes.deployment("web", replicas=4, on=old)
    database = kubernetes.stateful_set("db", replicas=3, on=[new, old])
    job = kubernetes.job("nightly", on=new)
    kubernetes.settle()
    assert [pod.node_name for pod in web.pods()] == ["old"] * 4
    assert [(pod.name, pod.node_name) for pod in database.pods()] == [("db-0", "new"), ("db-1", "old"), ("db-2", "new")]
    assert [pod.node_name for pod in job.pods()] == ["new"]
    assert all(pod.phase == "Running" and pod.is_ready for pod in kubernetes.pods())


def test_a_pod_that_is_on_its_node_already_needs_no_second_placing(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    pod = kubernetes.job("train", on=old).pods()[0]
    kubernetes._bind(pod, old)
    with pytest.raises(Refused, match="already assigned to node"):
        kubernetes._bind(pod, new)


def test_an_evicted_replica_comes_back_on_another_node(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    web = kubernetes.deployment("web", replicas=3, on=old)
    kubernetes.settle()
    old.cordon()
    for pod in web.pods():
        assert evict(kubernetes, pod).status == 201
    kubernetes.settle()
    assert [pod.node_name for pod in web.pods()] == ["new"] * 3
    assert all(pod.is_ready for pod in web.pods())


@pytest.mark.filterwarnings("ignore:kube-scheduler ended")
def test_a_scheduler_that_ends_is_started_again_and_one_that_does_not_stay_is_named(kubernetes: Kubernetes, old: Node) -> None:
    web = kubernetes.deployment("web", on=old)
    kubernetes.settle()
    plane = kubernetes.control_plane
    try:
        for _ in range(control_plane._MOST_RESTARTS):
            plane._processes["kube-scheduler"].kill()
            assert evict(kubernetes, web.pods()[0]).status == 201
            kubernetes.settle()
            assert [pod.node_name for pod in web.pods()] == ["old"]
        plane._processes["kube-scheduler"].kill()
        assert evict(kubernetes, web.pods()[0]).status == 201
        with pytest.raises(ComponentDied, match="kube-scheduler ended with exit code -9"):
            kubernetes.settle()
    finally:
        plane.restarts = 0
        plane.check_alive()


def test_nothing_moves_between_two_settlings(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    web = kubernetes.deployment("web", replicas=2, on=old)
    budget = kubernetes.budget("web", web, max_unavailable=1)
    kubernetes.settle()
    first, second = web.pods()
    assert evict(kubernetes, first).status == 201
    refused = evict(kubernetes, second)
    assert refused.status == 429
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert first.is_terminating
    assert len(web.pods()) == 2
    assert budget.disruptions_allowed == 0
    kubernetes.settle()
    assert not first.exists
    assert budget.disruptions_allowed == 1
    assert evict(kubernetes, second).status == 201


def test_an_evicted_pod_goes_when_its_budget_knows_and_the_next_of_its_name_is_not_taken_for_it(
    kubernetes: Kubernetes, old: Node, new: Node
) -> None:
    database = kubernetes.stateful_set("db", replicas=2, on=old)
    budget = kubernetes.budget("db", database, max_unavailable=1)
    kubernetes.settle()
    evicted = database.pods()[0]
    assert evict(kubernetes, evicted).status == 201

    # The controllers are frozen, the kubelets are not.
    kubernetes._let_kubelets_act()
    assert evicted.exists and evicted.is_terminating

    kubernetes.settle()
    (successor,) = (pod for pod in database.pods() if pod.name == evicted.name)
    assert successor.uid != evicted.uid and successor.is_ready
    assert budget.disruptions_allowed == 1


def test_the_same_evictions_get_the_same_answers_each_time(kubernetes: Kubernetes, clock: Clock) -> None:
    for _ in range(3):
        old = kubernetes.add_node("old", "aws:///a/i-1")
        kubernetes.add_node("new", "aws:///a/i-2")
        web = kubernetes.deployment("web", replicas=6, on=old)
        kubernetes.budget("web", web, max_unavailable=2)
        kubernetes.settle()
        old.cordon()
        answers = []
        for _ in range(3):
            answers.append([evict(kubernetes, pod).status for pod in old.pods()])
            kubernetes.settle()
        assert answers == [[201, 201, 429, 429, 429, 429], [201, 201, 429, 429], [201, 201]]
        clock.reset()
        kubernetes.reset()


def test_a_budget_whose_pods_cannot_come_back_stays_exhausted(kubernetes: Kubernetes, old: Node) -> None:
    web = kubernetes.deployment("web", replicas=2, on=old)
    budget = kubernetes.budget("web", web, min_available=1)
    kubernetes.settle()
    assert budget.disruptions_allowed == 1
    old.cordon()
    evict(kubernetes, web.pods()[0])
    kubernetes.settle()
    assert sorted(pod.phase for pod in web.pods()) == ["Pending", "Running"]
    assert budget.disruptions_allowed == 0
    kubernetes.add_node("late", "aws:///a/i-3")
    kubernetes.settle()
    assert sorted(pod.phase for pod in web.pods()) == ["Running", "Running"]
    assert budget.disruptions_allowed == 1


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"min_available": 1}, 3),
        ({"min_available": "50%"}, 2),
        ({"min_available": "100%"}, 0),
        ({"max_unavailable": 0}, 0),
        ({"max_unavailable": "25%"}, 1),
        ({"max_unavailable": "30%"}, 2),
    ],
)
def test_every_kind_of_budget_settles(kubernetes: Kubernetes, old: Node, limits: dict[str, int | str], allowed: int) -> None:
    web = kubernetes.deployment("web", replicas=4, on=old)
    budget = kubernetes.budget("web", web, **limits)
    kubernetes.settle()
    assert budget.disruptions_allowed == allowed


def test_a_pod_that_fits_nowhere_is_pending_until_there_is_room(kubernetes: Kubernetes, old: Node) -> None:
    big = kubernetes.deployment("big", replicas=3, requests={"cpu": "3500m"})
    kubernetes.settle()
    assert sorted(pod.phase for pod in big.pods()) == ["Pending", "Running", "Running"]
    kubernetes.add_node("late", "aws:///a/i-3", allocatable={"cpu": "4"})
    kubernetes.settle()
    assert [pod.phase for pod in big.pods()] == ["Running"] * 3


def test_a_pod_with_rules_that_the_world_does_not_know_settles_too(kubernetes: Kubernetes, old: Node) -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    web = kubernetes.deployment("web", replicas=2, labels={"app": "web"}, affinity=apart)
    kubernetes.settle()
    assert sorted(pod.phase for pod in web.pods()) == ["Pending", "Running"]
    kubernetes.add_node("late", "aws:///a/i-3")
    kubernetes.settle()
    assert [pod.phase for pod in web.pods()] == ["Running"] * 2


def test_a_zonal_volume_holds_its_pod_in_its_zone(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    volume = kubernetes.zonal_volume("data", "eu-west-1a")
    database = kubernetes.stateful_set("db", on=old, volume_claims=[volume])
    kubernetes.settle()
    old.cordon()
    evict(kubernetes, database.pods()[0])
    kubernetes.settle()
    assert [pod.phase for pod in database.pods()] == ["Pending"]
    kubernetes.add_node("same-zone", "aws:///eu-west-1a/i-3", zone="eu-west-1a")
    kubernetes.settle()
    assert [pod.node_name for pod in database.pods()] == ["same-zone"]


def test_a_nodes_status_has_the_volumes_of_its_pods_as_long_as_they_are_there(kubernetes: Kubernetes, old: Node) -> None:
    claims = [kubernetes.zonal_volume("data", "eu-west-1a"), kubernetes.unbound_claim("later")]
    pod = kubernetes.bare_pod("db", on=old, volume_claims=claims)
    kubernetes.settle()
    assert volumes_of(old) == ["kubernetes.io/csi/ebs.csi.aws.com^vol-default-data"]
    pod.deleted()
    kubernetes.settle()
    assert volumes_of(old) == []


def test_a_volume_that_hangs_stays_in_the_status(kubernetes: Kubernetes, old: Node) -> None:
    pod = kubernetes.bare_pod("db", on=old, volume_claims=[kubernetes.local_volume("disk", old)])
    kubernetes.settle()
    old.volumes_hang()
    pod.deleted()
    kubernetes.settle()
    assert not pod.exists
    assert volumes_of(old) == ["kubernetes.io/csi/ebs.csi.aws.com^vol-default-disk"]


def volumes_of(node: Node) -> list[str]:
    status = node.object["status"]
    assert [each["name"] for each in status.get("volumesAttached", [])] == status.get("volumesInUse", [])
    return status.get("volumesInUse", [])


def test_a_daemon_set_is_on_every_node_it_tolerates_and_comes_back_on_a_cordoned_one(
    kubernetes: Kubernetes, old: Node, new: Node
) -> None:
    new.add_taint("dedicated", value="gpu")
    agent = kubernetes.daemon_set("agent")
    kubernetes.settle()
    assert [pod.node_name for pod in agent.pods()] == ["old"]
    old.cordon()
    (first,) = agent.pods()
    evict(kubernetes, first)
    kubernetes.settle()
    assert not first.exists
    assert [pod.node_name for pod in agent.pods()] == ["old"]
    new.remove_taints("dedicated")
    kubernetes.settle()
    assert sorted(pod.node_name or "" for pod in agent.pods()) == ["new", "old"]


def test_a_static_pod_is_made_again_until_its_node_goes(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    proxy = kubernetes.static_pod("kube-proxy", on=old)
    kubernetes.settle()
    evict(kubernetes, proxy)
    kubernetes.settle()
    assert not proxy.exists
    again = kubernetes.pod("kube-proxy-old", "kube-system")
    assert again.phase == "Running"
    kubernetes.remove_node("old")
    clock.run(limit=120)
    assert kubernetes.pods() == []


def test_a_job_is_complete_when_its_pod_finishes(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    job = kubernetes.job("nightly", on=old)
    kubernetes.settle()
    (pod,) = job.pods()
    clock.at(19 * HOUR, pod.finishes)
    clock.run(limit=19 * HOUR - 1)
    assert pod.phase == "Running" and not job.is_complete
    clock.run(limit=19 * HOUR + 1)
    assert pod.phase == "Succeeded" and job.is_complete
    assert pod.object["metadata"].get("finalizers") is None


def test_a_failed_job_pod_is_replaced_at_once(kubernetes: Kubernetes, old: Node) -> None:
    job = kubernetes.job("nightly", on=old)
    kubernetes.settle()
    (first,) = job.pods()
    first.fails()
    kubernetes.settle()
    assert sorted(pod.phase for pod in job.pods()) == ["Failed", "Running"]


def test_a_job_without_another_try_fails_with_its_pod(kubernetes: Kubernetes, old: Node) -> None:
    job = kubernetes.job("nightly", on=old, backoff_limit=0)
    kubernetes.settle()
    job.pods()[0].fails()
    kubernetes.settle()
    assert [pod.phase for pod in job.pods()] == ["Failed"]
    assert not job.is_complete


def test_an_evicted_job_pod_is_replaced_at_once(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    job = kubernetes.job("nightly", on=old)
    kubernetes.settle()
    (first,) = job.pods()
    old.cordon()
    evict(kubernetes, first)
    kubernetes.settle()
    running = [pod for pod in job.pods() if pod.phase == "Running"]
    assert [pod.node_name for pod in running] == ["new"]


def test_an_always_restarted_pod_cannot_finish(kubernetes: Kubernetes, old: Node) -> None:
    pod = kubernetes.bare_pod("bare", on=old)
    kubernetes.settle()
    with pytest.raises(ValueError, match="restart policy"):
        pod.finishes()


def test_a_deleted_workload_takes_its_pods_with_it(kubernetes: Kubernetes, old: Node) -> None:
    web = kubernetes.deployment("web", replicas=3, on=old)
    kubernetes.settle()
    web.deleted()
    kubernetes.settle()
    assert kubernetes.pods() == []


def test_a_scaled_workload_settles_at_its_new_size(kubernetes: Kubernetes, old: Node) -> None:
    web = kubernetes.deployment("web", replicas=3, on=old)
    kubernetes.settle()
    web.scale(1)
    kubernetes.settle()
    assert len(web.pods()) == 1
    web.scale(5)
    kubernetes.settle()
    assert len(web.pods()) == 5


def test_workloads_may_live_in_any_namespace(kubernetes: Kubernetes, old: Node) -> None:
    web = kubernetes.deployment("web", on=old, namespace="shop")
    kubernetes.settle()
    assert [pod.namespace for pod in web.pods()] == ["shop"]
    assert kubernetes.pods(namespace="default") == []


# -- how pods go ---------------------------------------------------------------------------------------------------


def lifetime(kubernetes: Kubernetes, clock: Clock, pod: Pod, limit: float) -> float:
    """Virtual seconds until the pod is gone."""

    def is_gone() -> bool:
        kubernetes.settle()
        return not pod.exists

    clock.run(until=is_gone, limit=limit)
    return clock.elapsed()


def test_by_default_a_deleted_pod_is_gone_at_the_same_moment(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    pod = kubernetes.bare_pod("bare", on=old)
    kubernetes.settle()
    pod.deleted()
    assert pod.is_terminating
    kubernetes.settle()
    assert not pod.exists
    assert clock.elapsed() == 0


@pytest.mark.parametrize(
    ("manners", "seconds"),
    [
        ({"exits_after": 20.0, "grace": 30}, 20),
        ({"exits_after": 90.0, "grace": 30}, 30),
        ({"ignores_sigterm": True, "grace": 72000}, 72000),
        ({"ignores_sigterm": True}, 30),
    ],
)
def test_a_pod_takes_its_virtual_time_to_go(
    kubernetes: Kubernetes, clock: Clock, old: Node, manners: dict[str, object], seconds: float
) -> None:
    pod = kubernetes.bare_pod("bare", on=old, **manners)
    kubernetes.settle()
    evict(kubernetes, pod)
    assert lifetime(kubernetes, clock, pod, limit=100_000) == seconds


def test_a_second_deletion_may_shorten_the_grace_period(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    pod = kubernetes.bare_pod("bare", on=old, ignores_sigterm=True, grace=3600)
    kubernetes.settle()
    pod.deleted()
    clock.run(limit=100)
    pod.deleted(grace=200)
    assert lifetime(kubernetes, clock, pod, limit=4000) == 200


def test_a_stuck_pod_stays_until_it_is_let_go(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    pod = kubernetes.bare_pod("bare", on=old, stuck=True)
    kubernetes.settle()
    evict(kubernetes, pod)
    clock.at(5 * HOUR, pod.gets_unstuck)
    assert lifetime(kubernetes, clock, pod, limit=10 * HOUR) == 5 * HOUR


def test_a_finalizer_keeps_an_ended_pod(kubernetes: Kubernetes, clock: Clock, old: Node) -> None:
    pod = kubernetes.bare_pod("bare", on=old, finalizers=["example.com/backup"], exits_after=10)
    kubernetes.settle()
    pod.deleted()
    clock.run(limit=HOUR)
    assert pod.is_terminating and pod.phase == "Failed"
    pod.loses_finalizers()
    kubernetes.settle()
    assert not pod.exists


def test_replacement_pods_inherit_their_manners(kubernetes: Kubernetes, clock: Clock, old: Node, new: Node) -> None:
    web = kubernetes.deployment("web", on=old, exits_after=15, starts_after=45)
    clock.run(limit=100)
    (first,) = web.pods()
    assert first.is_ready
    evict(kubernetes, first)
    clock.run(limit=114)
    assert first.exists
    second = next(pod for pod in web.pods() if pod.uid != first.uid)
    assert second.phase == "Pending" and second.node_name
    clock.run(limit=146)
    assert not first.exists and second.is_ready


# -- settling and resetting ----------------------------------------------------------------------------------------


def test_settling_costs_nothing_when_nothing_was_done(kubernetes: Kubernetes, old: Node) -> None:
    kubernetes.deployment("web", replicas=5, on=old)
    kubernetes.settle()
    with mock.patch.object(kubernetes.control_plane, "thaw") as thaw:
        kubernetes.settle()
    assert not thaw.called


def test_an_object_that_does_not_settle_is_named(
    kubernetes: Kubernetes, old: Node, new: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = kubernetes.deployment("web", on=old)
    kubernetes.settle()
    monkeypatch.setattr(running_cluster, "SETTLE_LIMIT", 0.3)
    monkeypatch.setattr(running_cluster, "FROZEN_BETWEEN_SETTLES", ())
    web.scale(2)
    with pytest.raises(NotSettled, match="deployment default/web was not looked at yet"):
        kubernetes.settle()
    monkeypatch.undo()
    kubernetes.settle()
    assert len(web.pods()) == 2


def test_a_reset_cluster_is_empty_and_takes_the_same_names_again(kubernetes: Kubernetes, clock: Clock) -> None:
    for _ in range(3):
        nodes = [kubernetes.add_node(f"n{index}", f"aws:///a/i-{index}") for index in range(3)]
        web = kubernetes.deployment("web", replicas=3, on=nodes)
        kubernetes.budget("web", web, min_available=2)
        kubernetes.stateful_set("db", replicas=2, on=nodes, ignores_sigterm=True)
        kubernetes.daemon_set("agent")
        kubernetes.job("nightly", on=nodes[0])
        kubernetes.static_pod("proxy", on=nodes[0])
        kubernetes.bare_pod("held", on=nodes[0], finalizers=["example.com/x"]).deleted()
        kubernetes.settle()
        nodes[0].stops_reporting()
        clock.run(limit=HOUR)
        clock.reset()
        kubernetes.reset()
        assert kubernetes.pods() == []
        assert kubernetes.nodes() == []
        assert kubernetes.client.get("/api/v1/pods")["items"] == []
        assert kubernetes.client.get("/apis/apps/v1/replicasets")["items"] == []
        assert kubernetes.calls == []


def unread_bytes(pid: int) -> int:
    """Returns the number of received bytes that a process has not read."""
    links = [os.readlink(each) for each in pathlib.Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[9] in sockets)


def test_after_a_reset_the_controllers_have_read_everything(kubernetes: Kubernetes) -> None:
    """A controller that still knows an erased pod of a DaemonSet makes none on a new node of the same name. The API server sends
    a bookmark to each watch about once in a minute, which can arrive after the reset. So one reset of five has to be without."""
    found = []
    for _ in range(5):
        kubernetes.add_node("old", "aws:///eu-west-1a/i-0")
        kubernetes.daemon_set("logs")
        kubernetes.settle()
        kubernetes.clock.reset()
        kubernetes.reset()
        processes = [kubernetes.control_plane._processes[name] for name in control_plane.FROZEN_BETWEEN_SETTLES]
        found.append([unread_bytes(process.pid) for process in processes])
    assert [0, 0] in found, found


def test_ten_nodes_and_a_hundred_pods_are_reset(kubernetes: Kubernetes, clock: Clock) -> None:
    nodes = [kubernetes.add_node(f"n{index}", f"aws:///a/i-{index}") for index in range(10)]
    for number in range(10):
        kubernetes.deployment(f"web{number}", replicas=10, on=nodes[number])
    kubernetes.settle()
    assert len(kubernetes.pods()) == 100
    clock.reset()
    kubernetes.reset()
    assert kubernetes.pods() == []


def test_permissions_survive_a_reset(kubernetes: Kubernetes) -> None:
    kubernetes.reset()
    role = kubernetes.client.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/recycle-eks")
    assert role["rules"]


# -- remaining work ------------------------------------------------------------------------------------------------


def test_only_changed_objects_are_read_again(kubernetes: Kubernetes, old: Node, new: Node) -> None:
    """Looking at the changes finds what looking at everything finds, before and after the cluster settles."""
    settledness = settled.Settledness(kubernetes.state)
    web = kubernetes.deployment("web", replicas=2, on=old)
    database = kubernetes.stateful_set("db", on=old)
    job = kubernetes.job("train", on=old)
    unsettled = 0
    for happens in (
        lambda: kubernetes.daemon_set("logs"),
        lambda: kubernetes.budget("web", web, min_available=1),
        lambda: kubernetes.budget("db", database, max_unavailable="50%"),
        lambda: kubernetes.bare_pod("debug", old, namespace="elsewhere"),
        lambda: web.scale(3),
        lambda: evict(kubernetes, web.pods()[0]),
        lambda: database.pods()[0].deleted(),
        lambda: job.pods()[0].fails(),
        old.cordon,
        new.becomes_unready,
        old.becomes_unready,
        new.becomes_ready,
        lambda: job.pods()[-1].deleted(),
        web.deleted,
        lambda: kubernetes.remove_node(old.name),
    ):
        happens()
        kubernetes.state.catch_up()
        left = settledness.unfinished_business()
        assert sorted(left) == sorted(settledness.everything())
        unsettled += bool(left)
        kubernetes.settle()
        assert settledness.unfinished_business() == settledness.everything() == []
    assert unsettled > 10
    kubernetes.state.forget(settledness._changes)


# Actors with few rights


def test_a_kubelet_changes_its_own_node_alone(kubernetes: Kubernetes, old: Node, new: Node):
    kubelet = kubernetes.kubelet(old.name)
    kubelet.patch(f"/api/v1/nodes/{old.name}", {"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}})
    assert (old.annotations["a"], old.labels["c"]) == ("b", "d")
    restricted = {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}
    for path, change in ((new.name, {"metadata": {"annotations": {"a": "b"}}}), (old.name, restricted)):
        answer = kubelet.call("PATCH", f"/api/v1/nodes/{path}", change, MERGE_PATCH)
        assert answer.status == 403, answer
    assert kubelet.call("DELETE", f"/api/v1/nodes/{old.name}").status == 403


def test_a_tenant_works_with_the_pods_of_its_namespace_alone(kubernetes: Kubernetes, old: Node):
    tenant = kubernetes.tenant("blue")
    pod = kubernetes.bare_pod("own", old, namespace="blue")
    tenant.patch(pod.path, {"metadata": {"annotations": {"a": "b"}}})
    other = kubernetes.bare_pod("other", old)
    assert tenant.call("GET", other.path).status == tenant.call("GET", f"/api/v1/nodes/{old.name}").status == 403
    assert tenant.call("DELETE", pod.path).status == 403
