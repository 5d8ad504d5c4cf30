"""Pods of every class, and budgets in every state, with the real Eviction API: which pods go and stay, and the reports."""

import re
from collections import Counter

import pytest

from world.process.processes import eventually

HOUR = 3600
#: what the API server says of a pod with more than one budget
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def kinds(names):
    """The names of pods by class, without namespaces and random ends."""
    return {class_: sorted({re.split(r"[/-]", pod)[1] for pod in pods}) for class_, pods in names.items()}


def events(world, node, reason):
    return [event for event in world.kubernetes.events(node.name) if event["reason"] == reason]


def debug(world, pod, state):
    """An operator runs `kubectl debug` on a pod: an ephemeral container, which the played kubelet does not start."""
    container = {"name": "debugger", "image": "example.invalid/shell", "targetContainerName": "main"}
    patch = {"spec": {"ephemeralContainers": [container]}}
    world.kubernetes.must("PATCH", f"{pod.path}/ephemeralcontainers", patch, "application/strategic-merge-patch+json")
    shown = {"name": "debugger", "image": container["image"], "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"status": {"ephemeralContainerStatuses": [shown]}}
    world.kubernetes.must("PATCH", f"{pod.path}/status", status, "application/strategic-merge-patch+json")


RUNNING = {"running": {"startedAt": "2027-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0, "startedAt": "2027-01-01T00:00:00Z", "finishedAt": "2027-01-01T00:00:00Z"}}


@pytest.mark.any_replacement
def test_every_class_is_counted_and_named_in_the_answer_the_annotation_and_an_event(world, node):
    train = node.job("train", labels={"app": "train"})
    node.deployment("endless", labels={"app": "train"})
    node.bare_pod("script", restart_policy="Never")
    held = node.deployment("held", uses_empty_dir=True)
    world.budget(held, min_available=1)
    node.deployment("slow", grace=100 * HOUR, exits_after=99 * HOUR)
    node.job("queued", labels={"app": "train"}, starts_after=10 * HOUR)
    node.deployment("misspelt", annotations={"recycle-eks/drain": "evicted"})
    shell = node.deployment("shell")
    left = node.deployment("left")
    debug(world, shell.pods()[0], RUNNING)
    debug(world, left.pods()[0], ENDED)
    world.budget(shell, min_available=1)
    execution = world.recycle(node, label_selector="app=train")
    world.run("90s")

    first, progress = execution.answers("CheckPods")[0], node.progress
    classes = kinds(first["names"])
    assert classes == {
        "awaited": ["endless", "queued", "script", "train"],
        "bare": ["script"],
        "never_ends": ["endless"],
        "pending": ["queued"],
        "evictable": ["held", "left", "misspelt", "shell", "slow"],
        "local_storage": ["held"],
        "debugged": ["shell"],
        "bad_annotation": ["misspelt"],
        "grace_too_long": ["slow"],
    }
    assert first["counts"]["evictable"] == 5 and first["counts"]["awaited"] == 4
    event, second = events(world, node, "RecyclePods")
    assert "terminating 1 (" in second["message"]
    for class_, pods in first["names"].items():
        assert f"{class_} {first['counts'][class_]} (" in event["message"]
        assert all(pod in event["message"] for pod in pods)
    # The annotation is from the newest check, when some pods are terminating.
    newest = execution.answers("CheckPods")[-1]
    assert (progress["counts"], progress["names"]) == (newest["counts"], newest["names"])
    assert kinds(progress["names"])["terminating"] == ["slow"]
    assert set(world.asked_to_go()) == {"held", "shell", "left", "misspelt", "slow"}
    assert train.phase == "Running"


@pytest.mark.any_replacement
def test_a_debug_container_keeps_no_pod_and_an_annotation_gives_it_time(world, node):
    web = node.deployment("web").pods()[0]
    kept = node.deployment("kept").pods()[0]
    debug(world, web, RUNNING)
    debug(world, kept, RUNNING)
    kept.annotate(**{"recycle-eks/drain": "wait"})
    world.at("20m", lambda: kept.annotate(**{"recycle-eks/drain": None}))
    # A pod whose containers have ended holds no node.
    other = world.group("others", size=2, minimum=1, maximum=4).nodes[0]
    ended = other.deployment("ended", finalizers=["example.com/never"]).pods()[0]

    execution, quick = world.recycle(node), world.recycle(other)
    end = quick.finishes()
    assert end.outcome == "recycled" and end.at < HOUR
    assert ended.exists and ended.phase == "Failed"
    end = execution.finishes()
    assert end.outcome == "recycled" and end.at > 1200
    assert not web.exists and not kept.exists


@pytest.mark.any_replacement
def test_a_pod_that_never_began_is_evicted_or_waited_for_like_any_other(world, node):
    web = node.deployment("web", starts_after=40 * HOUR).pods()[0]
    train = node.job("train", labels={"app": "train"}, starts_after=600)
    assert (web.phase, train.phase) == ("Pending", "Pending")
    world.at("20m", train.finishes)

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.outcome == "recycled" and end.at > 1200
    assert world.asked_to_go() == ["web"]


@pytest.mark.any_replacement
def test_a_job_that_finishes_within_an_hour_of_termination_grace_is_a_normal_drain(world, node):
    work = node.job("work", grace=HOUR, exits_after=HOUR - 60, annotations={"recycle-eks/drain": "evict"})
    node.deployment("web", replicas=2)
    execution = world.recycle(node)
    world.run("20m")
    assert work.is_terminating
    assert node.progress["summary"] == "pods: 1 terminating"

    end = execution.finishes()

    assert end.outcome == "recycled" and HOUR < end.at < 1.5 * HOUR
    seen = {class_ for answer in execution.answers("CheckPods") for class_ in answer["names"]}
    assert seen == {"evictable", "terminating"}, "it was never stuck"
    # asked once, and never again while it ends
    assert sorted(world.asked_to_go()) == ["web", "web", "work"]


@pytest.mark.any_replacement
def test_a_pod_five_minutes_late_is_stuck_and_a_pod_with_grace_left_is_not(world, node):
    stuck = node.deployment("stuck", grace=600, stuck=True).pods()[0]
    slow = node.deployment("slow", grace=1800, exits_after=1770).pods()[0]
    execution = world.recycle(node)
    world.run("15m30s")
    assert kinds(node.progress["names"]) == {"terminating": ["slow", "stuck"]}
    world.run("18m")

    assert kinds(node.progress["names"]) == {"terminating": ["slow"], "stuck": ["stuck"]}
    assert execution.answers("CheckPods")[-1]["counts"] == {"terminating": 1, "stuck": 1}
    (_, event) = events(world, node, "RecyclePods")[-2:]
    assert f"stuck 1 (default/{stuck.name})" in event["message"]

    world.at("40m", stuck.gets_unstuck)
    assert execution.finishes().outcome == "recycled"
    assert not slow.exists


@pytest.mark.any_replacement
def test_a_full_budget_is_reported_after_five_minutes_with_its_pods_and_the_api_servers_words(world, node):
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    other = node.deployment("other").pods()[0]
    execution = world.recycle(node)
    world.run("5m")
    first = node.progress["blocked"]
    assert not events(world, node, "RecycleBlocked") and "budget" not in execution.answers("CheckPods")[-1]["reason"]

    world.run("12m")
    (blocker,) = node.progress["blocked"]
    assert (blocker["what"], blocker["count"]) == ("budget default/web", 2)
    assert blocker["names"] == sorted(f"default/{pod.name}" for pod in web.running_pods())
    assert blocker["since"] == first[0]["since"] == "2027-01-01T00:01:00Z"
    (event,) = events(world, node, "RecycleBlocked")
    sentence = (
        "budget default/web has blocked 2 pods since 2027-01-01T00:01:00Z: "
        f"The disruption budget web needs 2 healthy pods and has 2 currently ({', '.join(blocker['names'])})"
    )
    assert (event["type"], event["message"]) == ("Warning", sentence)
    for state in ("CheckPods", "EvictPods"):
        assert execution.answers(state)[-1]["reason"].endswith(f"; {sentence}"), state
    assert not other.exists

    web.scale(3)
    assert execution.finishes().outcome == "recycled"
    assert len(events(world, node, "RecycleBlocked")) == 1


@pytest.mark.any_replacement
def test_a_budget_of_broken_pods_is_named_until_it_is_corrected(world, node):
    """Its pods are not Ready, so the budget (by default `IfHealthyBudget`) is never met, and no pod may go."""
    broken = node.deployment("broken", replicas=2)
    for pod in broken.pods():
        pod.becomes_unready()
    budget = world.kubernetes.budget("broken", broken, min_available=2)
    world.at("10m", lambda: budget.change(unhealthyPodEvictionPolicy="AlwaysAllow"))
    execution = world.recycle(node)
    world.run("8m")

    (blocker,) = node.progress["blocked"]
    assert blocker["what"] == "budget default/broken"
    assert blocker["says"] == "The disruption budget broken needs 2 healthy pods and has 0 currently"
    assert events(world, node, "RecycleBlocked")

    assert execution.finishes().outcome == "recycled"


@pytest.mark.any_replacement
def test_three_refusals_are_distinguished_and_none_delays_the_other_pods(world, node):
    full = node.deployment("full")
    world.budget(full, min_available=1)
    twice = node.deployment("twice")
    world.kubernetes.budget("one", twice, max_unavailable=1)
    world.kubernetes.budget("two", twice, max_unavailable=1)
    fresh = node.deployment("fresh")
    # Written a moment before `evict-pods` asks which pods there are, as `check-pods` has before: no controller has processed it.
    world.kubernetes.proxy.just_before("kubernetes:GET pods", lambda: world.budget(fresh, max_unavailable=1), nth=2)
    free = node.deployment("free", replicas=3)
    before = free.pods()
    execution = world.recycle(node)
    world.run("70s")

    (answer,) = execution.answers("EvictPods")
    assert answer["counts"] == {"blocked": 1, "budget_not_ready": 1, "several_budgets": 1, "evicted": 3}
    assert kinds(answer["names"]) == {
        "blocked": ["full"],
        "budget_not_ready": ["fresh"],
        "several_budgets": ["twice"],
        "evicted": ["free"],
    }
    said = {blocker["what"]: blocker["says"] for blocker in node.progress["blocked"]}
    assert said == {
        "budget default/full": "The disruption budget full needs 1 healthy pods and has 1 currently",
        "budget default/fresh": "The disruption budget fresh is still being processed by the server.",
        "more than one budget in default": SEVERAL,
    }
    assert not any(pod.exists for pod in before)

    # Half a minute later the budget is known, and its pod is evicted. The others are reported.
    world.run("10m")
    assert kinds(execution.answers("EvictPods")[1]["names"])["evicted"] == ["fresh"]
    blockers = {blocker["what"] for blocker in node.progress["blocked"]}
    assert blockers == {"budget default/full", "more than one budget in default"}
    assert len(events(world, node, "RecycleBlocked")) == 2


@pytest.mark.any_replacement
def test_a_node_of_50_pods_behind_ten_budgets_is_empty_in_seconds(world):
    workers = world.group("workers", size=1, minimum=1, maximum=2)
    node = workers.nodes[0]
    teams = [node.deployment(f"team{number}", replicas=5) for number in range(10)]
    for team in teams:
        world.budget(team, max_unavailable=5)
    # The time that an eviction takes an API server, in virtual time.
    world.kubernetes.proxy.latency = lambda action: 0.1 if action == "kubernetes:POST pods/eviction" else 0.0
    execution = world.recycle(node)

    end = execution.finishes()

    assert end.outcome == "recycled"
    evictions = world.calls("kubernetes:POST pods/eviction")
    # (A busy API server refuses one now and then, which is asked again at the next check.)
    refused = [call.status for call in evictions if call.status != 201]
    assert len(evictions) - len(refused) == 50 and len(refused) < 10, refused
    asked = {call.parameters["name"]: call.at for call in reversed(evictions)}
    assert len(asked) == 50 and max(asked.values()) - evictions[0].at < 1.5, "ten at once, not one after the other"
    # The budgets alternate, since the API server works on the pods of one budget one after the other. (Ten calls are under way
    # at once, so that some arrive out of this order.)
    first = Counter(call.parameters["name"].split("-")[0] for call in evictions[:20])
    assert len(first) == 10 and max(first.values()) <= 4, first
    answers = [Counter(answer["counts"]) for answer in execution.answers("EvictPods")]
    answered = sum(answers, Counter())
    assert answered.pop("evicted") == 50 and answered.total() == len(refused), (answers, refused)
    assert len(answers) == 1 or refused, answers
    assert len(execution.answers("CheckPods")) == len(answers) + 1
    assert sum(len(team.running_pods()) for team in teams) == 50


@pytest.mark.any_replacement
def test_budgets_that_allow_one_eviction_at_a_time_allow_all_and_hold(world):
    workers = world.group("workers", size=1, minimum=1, maximum=2)
    node = workers.nodes[0]
    teams = [node.deployment(f"team{number}", replicas=3) for number in range(5)]
    for team in teams:
        world.budget(team, max_unavailable=1)
    least = {team.name: 3 for team in teams}

    def count():
        for team in teams:
            ready = sum(pod.is_ready and not pod.is_terminating for pod in team.pods())
            least[team.name] = min(least[team.name], ready)

    for second in range(0, 420, 30):
        world.at(second + 5, count)
    execution = world.recycle(node)

    end = execution.finishes()

    assert end.outcome == "recycled"
    assert set(least.values()) <= {2, 3}
    assert execution.answers("EvictPods")[0]["counts"] == {"evicted": 5, "blocked": 10}
    # One pod of each team is evicted at each check, in three checks. None of them waits for another's budget.
    assert len(execution.answers("EvictPods")) == 3


def test_the_dry_run_the_check_the_eviction_and_the_disposal_class_the_pods_of_a_node_alike(world):
    here, there = "eu-west-1a", "eu-west-1b"
    workers = world.group("workers", size=2, minimum=1, maximum=4, zones=[here, there])
    node = next(each for each in workers.nodes if each.zone == here)
    workers.next_launch(zone=there)
    world.target_group("ingress", workers)

    def pods(name, volume):
        node.deployment(f"web{name}", uses_empty_dir=True)
        node.stateful_set(f"db{name}", volume_claims=[volume])
        return node.job(f"train{name}", labels={"app": "train"})

    def classes(answer):
        return answer["counts"], answer["names"]

    job = pods("", world.kubernetes.zonal_volume("data", here))
    dry = world.recycle(node, label_selector="app=train", dry_run=True)
    assert dry.finishes().outcome == "planned"
    execution = world.recycle(node, label_selector="app=train")
    world.run("15m")
    check, eviction = execution.answers("CheckPods")[0], execution.answers("EvictPods")[0]
    assert check["counts"] == {"awaited": 1, "local_storage": 1, "evictable": 1, "zone_mismatch": 1}
    assert classes(dry.answers("ClaimNode")[-1]) == classes(check)
    assert [pod for names in eviction["names"].values() for pod in names] == check["names"]["evictable"]

    world.group("other", size=1, zones=[here])
    job.finishes()
    while not execution.entered("DetachTerminate"):
        assert world.clock.elapsed() < HOUR, "the drain does not end"
        world.wait(10)
    pods("-again", world.kubernetes.local_volume("disk", node.kubernetes))
    looks = len(execution.answers("CheckPods"))
    world.wait(360)
    disposal = execution.answers("DetachTerminate")[-1]
    assert disposal["verdict"] == "check_pods" and disposal["counts"]["zone_mismatch"] == 1
    assert classes(disposal) == classes(execution.answers("CheckPods")[looks])


@pytest.mark.any_replacement
def test_a_pod_that_its_owner_protects_holds_its_node_until_the_annotation_goes_or_the_input_overrides_it(world):
    waits, overridden, ends = (world.group(name, size=2, minimum=1, maximum=4).nodes[0] for name in ("one", "two", "three"))
    protect = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    until = {"karpenter.sh/do-not-disrupt": "1h"}
    web = waits.deployment("web", annotations=protect).pods()[0]
    overridden.deployment("web-too", annotations=protect)
    api = ends.deployment("api", annotations=until).pods()[0]
    world.at("90m", lambda: web.annotate(**{"cluster-autoscaler.kubernetes.io/safe-to-evict": None}))
    executions = [world.recycle(waits), world.recycle(overridden, override=["owner_protected"]), world.recycle(ends)]
    world.run("30m")
    assert kinds(waits.progress["names"]) == {"awaited": ["web"], "never_ends": ["web"], "owner_protected": ["web"]}
    assert any("never ends by itself: 1 pod" in block for sent in world.all_notifications for block in sent["blocks"])

    long, quick, middle = (execution.finishes() for execution in executions)

    assert [end.outcome for end in (long, quick, middle)] == ["recycled"] * 3
    assert 1.5 * HOUR < long.at < 2 * HOUR and quick.at < HOUR < middle.at < 1.5 * HOUR
    assert not web.exists and not api.exists


@pytest.mark.any_replacement
def test_critical_pods_leave_after_the_others_and_a_daemon_sets_pod_last(world, node):
    train = node.job("train", labels={"app": "train"})
    web = node.deployment("web", grace=300, exits_after=240).pods()[0]
    dns = node.deployment("dns", priorityClassName="system-cluster-critical").pods()[0]
    node.daemon_set("logs", annotations={"recycle-eks/drain": "evict"})
    world.at("40m", train.finishes)
    execution = world.recycle(node, label_selector="app=train")

    end = execution.finishes()

    assert end.outcome == "recycled"
    asked = {call.parameters["name"].split("-")[0]: call.at for call in reversed(world.calls("kubernetes:POST pods/eviction"))}
    assert asked["web"] + 240 <= asked["dns"] < 20 * 60, asked
    assert 40 * 60 <= asked["logs"] < end.at and not (web.exists or dns.exists)


@pytest.mark.any_replacement
@pytest.mark.long
def test_ways_past_pods_that_cannot_move_are_off_until_the_input_asks_and_are_named_in_the_outcome(world):
    names = ("off", "bare", "stuck", "looping")
    off, bare, stuck, looping = (world.group(name, size=2, minimum=1, maximum=4).nodes[0] for name in names)

    def broken(node, name):
        deployment = node.deployment(name)
        world.budget(deployment, min_available=1)
        (pod,) = deployment.pods()
        pod.crash_loops()
        return pod

    off.bare_pod("script")
    off.deployment("hangs", stuck=True)
    broken(off, "crashes")
    bare.bare_pod("loner")
    hangs = stuck.deployment("lazy", stuck=True).pods()[0]
    crashes = broken(looping, "fails")

    executions = [
        world.recycle(off, drain_timeout="30m"),
        world.recycle(bare, evict="all"),
        world.recycle(stuck, skip_stuck_after="15m"),
        world.recycle(looping, override=["unhealthy_budget"]),
    ]
    held, *ends = (execution.finishes() for execution in executions)

    assert held.error == "DrainTimedOut" and all(word in held.cause for word in ("script", "hangs", "budget default/crashes"))
    assert [end.outcome for end in ends] == ["recycled"] * 3
    assert 900 < ends[1].at < 2_700
    assert f"1 pod did not leave in time, and ended with it (default/{hangs.name})" in ends[1].output["reason"]
    assert ends[1].output["names"]["skipped"] == [f"default/{hangs.name}"]
    (deleted,) = world.calls("kubernetes:DELETE pods")
    assert deleted.parameters["name"] == crashes.name and ends[2].at < HOUR


@pytest.mark.any_replacement
def test_refusals_by_a_policy_and_by_a_namespace_that_is_deleted_are_blockers_of_their_own(world, node):
    world.kubernetes.must("POST", "/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    kept = node.deployment("kept", namespace="leaving", finalizers=["example.com/never"])
    guarded = node.deployment("guarded")
    policy = {
        "metadata": {"name": "keep"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]},
                ],
            },
            "validations": [{"expression": "request.namespace != 'default'", "message": "not on Fridays"}],
        },
    }
    bind = {"metadata": {"name": "keep"}, "spec": {"policyName": "keep", "validationActions": ["Deny"]}}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    world.kubernetes.must("POST", f"{path}ies", policy)
    world.kubernetes.must("POST", f"{path}ybindings", bind)
    # An API server learns of a policy some time after it was written.
    (pod,) = guarded.pods()
    evict = {"metadata": {"name": pod.name}, "deleteOptions": {"dryRun": ["All"]}}
    asked = f"/api/v1/namespaces/default/pods/{pod.name}/eviction"
    assert eventually(lambda: "not on Fridays" in str(world.kubernetes.call("POST", asked, evict).body))
    execution = world.recycle(node, drain_timeout="1h")
    world.run("8m")

    said = {blocker["what"]: blocker["says"] for blocker in node.progress["blocked"]}
    assert list(said) == ["admission policy keep"] and "not on Fridays" in said["admission policy keep"]
    assert execution.answers("EvictPods")[-1]["counts"]["admission"] == 1
    assert guarded.pods() and kept.pods()
    world.kubernetes.must("DELETE", f"{path}ybindings/keep")
    world.kubernetes.must("DELETE", f"{path}ies/keep")
    assert execution.finishes().outcome == "recycled"


def test_awaited_pods_are_told_until_when_their_node_waits_and_a_restore_takes_it_back(world, node):
    key = "recycle-eks/waits-until"
    train = node.job("train", labels={"app": "train"})
    other = node.bare_pod("other", annotations={"recycle-eks/drain": "ignore"})
    # A restore that may not change pods restores its node nevertheless.
    refused = world.group("refused", size=2, minimum=1, maximum=4).nodes[0]
    kept = refused.job("kept", labels={"app": "train"})
    world.faults.refuse(
        "kubernetes:PATCH pods/status",
        code="Forbidden",
        status=403,
        function="restore-node",
        where=lambda asked: asked["name"] == kept.name,
        times=None,
    )
    execution = world.recycle(node, label_selector="app=train", drain_timeout="1h")
    without = world.recycle(refused, label_selector="app=train", drain_timeout="1h")
    world.run("10m")
    until = node.progress["until"]
    assert train.annotations[key] == until and key not in other.annotations
    (event,) = [event for event in world.kubernetes.events(train.name) if event["reason"] == "RecycleNotice"]
    assert event["involvedObject"]["kind"] == "Pod" and event["message"] == (
        f"Node {node.name} is being retired. It waits for this pod until {until}. At the end: the node is restored"
    )

    later = "2027-01-01T01:30:00Z"
    node.kubernetes.annotate(**{"recycle-eks/drain-until": later})
    world.run("20m")
    assert train.annotations[key] == later

    assert execution.finishes().error == "DrainTimedOut"
    assert key not in train.annotations and train.phase == "Running"
    assert world.leftovers(node.group) == []
    assert without.finishes().error == "DrainTimedOut" and not world.faults.not_struck()
    assert world.leftovers(refused.group) == [(refused.name, key)] and key in kept.annotations


def test_a_pod_that_has_finished_loses_its_notice_at_a_later_check_if_the_api_server_fails(world, node):
    train = node.job("train", labels={"app": "train"})
    world.at("10m", train.finishes)
    execution = world.recycle(node, label_selector="app=train", dispose="stop")
    world.run("5m")
    assert "recycle-eks/waits-until" in train.annotations
    world.faults.refuse("kubernetes:PATCH pods/status", code="InternalError", status=500, function="check-pods")
    assert execution.finishes().outcome == "recycled" and not world.faults.not_struck()
    assert train.exists and "recycle-eks/waits-until" not in train.annotations
