"""One node, end to end: the predecessor's three fields, two awaited pods, everything else that lives on a node."""


def test_the_predecessors_input_recycles_a_node_whose_pods_need_four_hours(world):
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    node = workers.nodes[0]
    short = node.job("short", labels={"app": "train"})
    long = node.job("long", labels={"app": "train"})
    node.daemon_set("logs", labels={"app": "train"})
    node.mirror_pod("kube-proxy", labels={"app": "train"})
    node.finished_job("done", labels={"app": "train"})
    web = node.deployment("web", replicas=3)
    world.budget(web, min_available=2)
    world.at("1h", short.finishes)
    world.at("4h10m", long.finishes)
    progress = {}
    world.at("50m", lambda: progress.update(node.progress))

    execution = world.recycle({"instance_id": node.instance_id, "cluster_name": "world", "label_selector": "app=train"})
    end = execution.finishes()

    assert end.outcome == "recycled", end
    assert end.history_events < 4_500
    # the replacement was usable before the taint
    replacement = workers.newest
    assert execution.entered("TaintNode")[0] >= replacement.ready_at
    # no awaited pod was evicted
    assert {call.parameters["name"].rsplit("-", 2)[0] for call in world.calls("kubernetes:POST pods/eviction")} == {"web"}
    # the progress has the awaited pods, since when and until when, and there are Events for the pods and each phase
    assert progress["names"]["awaited"] == sorted(f"default/{pod.name}" for pod in (short, long))
    assert (progress["since"], progress["until"]) == ("2027-01-01T00:01:00Z", "2027-01-03T00:01:00Z")
    events = [event["reason"] for event in world.kubernetes.events(node.name) if event["reason"].startswith("Recycle")]
    assert events == ["RecycleClaimed", "RecycleStandby", "RecycleDraining", "RecyclePods", "RecycleWaiting", "RecycleDisposing"]
    # the end was noticed within 1 % of the drain's length
    noticed = execution.entered("DetachTerminate")[0]
    drained_since = execution.entered("CheckPods")[0]
    finished = world.seconds("4h10m")
    assert finished <= noticed <= finished + max(30, (finished - drained_since) * 0.01) + 1
    # the group is as it was, but for one node
    assert workers.sizes == (2, 3, 4)
    assert sorted(workers.states.values()) == ["InService"] * 3
    assert node.instance_id not in workers.states
    assert world.instance(node.instance_id).state == "terminated"
    assert not node.exists
    # the other pods live on elsewhere
    assert len(web.running_pods()) == 3
