"""docs/pods.md: its statements on each kind of workload, and its commands."""

from docs.pages import follow_page
from docs.watched import Watched
from prepare import ROOT

PAGE = ROOT / "docs" / "pods.md"
EVERYTHING = [{"operator": "Exists"}]


def test_each_kind_is_classed_as_the_page_says(world, node):
    node.job("selected", labels={"app": "train"})
    node.job("unselected")
    node.finished_job("done", labels={"app": "train"})
    node.deployment("web")
    node.deployment("undisturbed", annotations={"karpenter.sh/do-not-disrupt": "true"})
    node.job("unsafe", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    node.stateful_set("database")
    node.daemon_set("logs")
    node.daemon_set("shipper", annotations={"recycle-eks/drain": "evict"})
    node.mirror_pod("proxy")
    node.bare_pod("script", restart_policy="Never")
    node.bare_pod("debug")
    node.bare_pod("gone", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"})
    node.deployment("scratch", uses_empty_dir=True)
    node.deployment("tolerant", tolerations=EVERYTHING)
    node.deployment("misspelt", annotations={"recycle-eks/drain": "evicted"})
    node.deployment("zombie", grace=3 * 86_400)
    node.job("queued", labels={"app": "train"}, starts_after=3600)

    names = world.recycle(node, label_selector="app=train", dry_run=True).finishes().output["names"]

    classes = {class_: sorted(pod.split("/")[1].split("-")[0] for pod in pods) for class_, pods in names.items()}
    assert classes["awaited"] == ["debug", "queued", "script", "selected", "undisturbed"], "the first five of six"
    assert classes["bare"] == ["debug", "script"]
    assert classes["never_ends"] == ["debug", "undisturbed"]
    assert (classes["owner_protected"], classes["leaves_last"]) == (["undisturbed", "unsafe"], ["shipper"])
    assert classes["bad_annotation"] == ["misspelt"]
    assert (classes["local_storage"], classes["grace_too_long"], classes["pending"]) == (["scratch"], ["zombie"], ["queued"])
    # The first five by name, of seven.
    assert classes["evictable"] == ["database", "gone", "misspelt", "scratch", "tolerant"]


def test_a_job_that_is_not_selected_starts_again_elsewhere_if_the_input_says_so(world, node):
    before = node.job("unselected")

    end = world.recycle(node, evict="others_and_jobs").finishes()

    assert end.outcome == "recycled" and not before.exists
    (again,) = [pod for pod in world.kubernetes.pods() if pod.name.startswith("unselected")]
    assert again.phase == "Running" and again.node_name != node.name


def test_a_job_whose_pod_fails_goes_on_elsewhere_and_the_node_does_not_wait_for_it(world, node):
    job = node.job("train", labels={"app": "train"})
    world.at("15m", job.fails)

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.outcome == "recycled" and end.at < world.seconds("25m")
    running = [pod for pod in world.kubernetes.pods() if pod.name.startswith("train") and pod.phase == "Running"]
    assert [pod.node_name != node.name for pod in running] == [True]


def test_without_a_budget_all_pods_of_a_deployment_go_at_once(world, node):
    node.deployment("web", replicas=3)
    execution = world.recycle(node)

    execution.finishes()

    moments = {call.at for call in world.calls("kubernetes:POST pods/eviction")}
    assert len(moments) == 1
    assert execution.answers("EvictPods")[0]["counts"] == {"evicted": 3}


def test_a_budget_that_never_lets_go_keeps_its_pod_and_a_pod_stuck_in_terminating_its_node(world, node):
    single = node.deployment("single")
    world.budget(single, min_available=1)
    other = node.deployment("other").pods()[0]
    # A pod that only a finalizer keeps holds no node.
    another = world.group("others", size=2, minimum=1, maximum=4).nodes[0]
    another.deployment("kept", finalizers=["example.com/never"])
    stuck = another.deployment("stuck", stuck=True).pods()[0]

    executions = [world.recycle(each, drain_timeout=1200) for each in (node, another)]
    of_budget, of_stuck = (execution.finishes() for execution in executions)

    assert (of_budget.error, other.exists) == ("DrainTimedOut", False)
    assert [pod.node_name for pod in single.running_pods()] == [node.name]
    assert of_stuck.error == "DrainTimedOut"
    assert f"finds 1 pod (default/{stuck.name}) stuck" in of_stuck.cause
    assert not another.unschedulable


def test_with_evict_none_a_bare_pod_is_awaited_until_it_is_to_go_and_others_run_until_the_instance_goes(world, node):
    job = node.job("train", labels={"app": "train"})
    web = node.deployment("web").pods()[0]
    debug = node.bare_pod("debug")
    world.at("12m", job.finishes)
    world.at("15m", lambda: debug.annotate(**{"recycle-eks/drain": "evict"}))
    execution = world.recycle(node, label_selector="app=train", evict="none")
    world.run("14m")
    assert not world.asked_to_go()
    assert web.phase == "Running" and web.node_name == node.name

    assert execution.finishes().outcome == "recycled"
    assert set(world.asked_to_go()) == {"debug"} and not debug.exists


def test_a_grace_period_is_waited_for_and_never_shortened(world, node):
    slow = node.deployment("slow", grace=3600, exits_after=1800).pods()[0]
    deaf = node.deployment("deaf", grace=900, ignores_sigterm=True).pods()[0]
    execution = world.recycle(node)
    world.run("15m")
    assert slow.is_terminating and deaf.is_terminating

    end = execution.finishes()

    assert end.outcome == "recycled" and end.at > world.seconds("30m")
    assert execution.answers("CheckPods")[-2]["names"]["terminating"] == [f"default/{slow.name}"]


def test_a_later_pod_that_tolerates_the_taint_is_evicted_when_nothing_else_holds_the_node(world, node):
    train = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    late = node.job("late", tolerations=EVERYTHING)
    # The pod requests an hour, more than the limit.
    stays = node.job("stays", tolerations=EVERYTHING, grace=3600, ignores_sigterm=True)
    world.at("20m", train.finishes)
    world.run("19m")
    seen = execution.answers("CheckPods")[-1]["names"]
    assert seen["tolerates_taint"] == [f"default/{late.name}", f"default/{stays.name}"] and not world.asked_to_go()

    end = execution.finishes()

    assert end.outcome == "recycled" and world.seconds("25m") < end.at < world.seconds("40m")
    assert set(world.asked_to_go()) >= {"late", "stays"}
    assert (
        "tolerated its taint, came after it, and ended with it (" in end.output["reason"] and stays.name in end.output["reason"]
    )
    assert [stays.name in sent["reason"] for sent in world.all_notifications if sent["event"] == "finished"] == [True]


def test_a_later_pod_that_tolerates_the_taint_is_awaited_if_it_is_selected(world, node):
    train = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    late = node.job("late", labels={"app": "train"}, tolerations=EVERYTHING)
    world.at("20m", train.finishes)
    world.at("40m", late.finishes)

    end = execution.finishes()

    assert end.outcome == "recycled" and end.at >= world.seconds("40m") and not world.asked_to_go()


def test_every_command_of_the_page_prints_what_it_says(world, cli, node, tmp_path):
    training = node.job("training", labels={"app": "training"})
    node.job("reports", labels={"app": "training"})
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    execution = world.recycle(node, label_selector="app=training")
    world.run("10m")
    variables = {"NODE": node.name, "POD": training.name, "EXECUTION": execution.arn}
    shell = Watched(cli, tmp_path / "here", {**world.environment(), **variables})

    follow_page(PAGE, shell, {"until": world.run})

    assert not training.exists
