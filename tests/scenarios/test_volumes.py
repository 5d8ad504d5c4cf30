"""Pods whose volumes only some nodes can use: held as long as no other such node takes pods, while all others go."""

import pytest

from world.world import World

HERE, THERE = "eu-west-1a", "eu-west-1b"
#: The longest time between two checks.
LONGEST_WAIT = 900


class Setup:
    """The only node of a group over two zones, with a database whose volume is in its zone; the replacement is in the other."""

    def __init__(self, world: World, elsewhere: bool = True) -> None:
        self.world = world
        self.workers = world.group("workers", size=1, minimum=1, maximum=4, zones=[HERE, THERE])
        self.node = self.workers.nodes[0]
        assert self.node.zone == HERE
        self.workers.next_launch(zone=THERE if elsewhere else HERE)
        claim = world.kubernetes.zonal_volume("data", HERE)
        self.database = self.node.stateful_set("db", volume_claims=[claim])
        self.web = self.node.deployment("web", replicas=2)
        world.kubernetes.settle()
        self.pod = self.database.pods()[0]

    def evictions_of(self, name: str) -> list[float]:
        evictions = self.world.calls("kubernetes:POST pods/eviction")
        return [call.at for call in evictions if call.parameters["name"].startswith(name)]

    def is_held(self) -> bool:
        return self.pod.exists and not self.pod.is_terminating and self.pod.node_name == self.node.name


@pytest.mark.reading("standby_counts_for_zone_balance", "terminate_from_standby_launches_extra")
def test_a_volume_in_the_old_zone_holds_its_pod_until_a_node_comes_there(world):
    setup = Setup(world)
    # A dry run names the pods that no other node could take now.
    planned = world.recycle(setup.node, dry_run=True).finishes()
    assert planned.outcome == "planned", planned.cause
    assert planned.output["names"]["zone_mismatch"] == ["default/db-0"]
    assert not setup.evictions_of("db")

    execution = world.recycle(setup.node)
    world.run("30m")

    assert setup.workers.newest.zone == THERE
    assert {pod.node_name for pod in setup.web.running_pods()} == {setup.workers.newest.name}
    assert setup.is_held() and setup.evictions_of("db") == []
    answer = execution.answers("CheckPods")[-1]
    assert (answer["verdict"], answer["counts"]["zone_mismatch"]) == ("wait", 1)
    assert answer["names"]["zone_mismatch"] == ["default/db-0"]
    sentence = f"default/db-0 is not evicted: its volume default-data needs a node with topology.kubernetes.io/zone in ({HERE})"
    assert sentence in answer["reason"]
    progress = setup.node.progress
    assert progress["summary"] == "pods: 1 zone_mismatch"
    assert progress["names"]["zone_mismatch"] == ["default/db-0"] and progress["held"][0].startswith(sentence)

    events = {event["reason"]: event["message"] for event in world.kubernetes.events(setup.node.name)}
    assert events["RecycleWaiting"].startswith("Only waits, and holds back 1 pod (default/db-0) until another node can use")

    setup.workers.grow(2)
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    (database,) = setup.database.running_pods()
    new = next(node for node in setup.workers.nodes if node.name == database.node_name)
    assert new.zone == HERE
    assert setup.evictions_of("db")[0] <= new.ready_at + LONGEST_WAIT
    assert not setup.node.exists


def test_a_replacement_in_the_same_zone_takes_the_pod(world):
    setup = Setup(world, elsewhere=False)

    execution = world.recycle(setup.node)

    assert execution.finishes().outcome == "recycled"
    assert not any("zone_mismatch" in answer["counts"] for answer in execution.answers("CheckPods"))
    assert [pod.node_name for pod in setup.database.running_pods()] == [setup.workers.newest.name]
    assert setup.evictions_of("db")[0] == setup.evictions_of("web")[0]
    # Volumes that are detached with their pods cost no time.
    assert not any("volumes" in answer["reason"] for answer in execution.answers("DetachTerminate"))


@pytest.mark.reading("standby_counts_for_zone_balance", "exit_standby_trims")
def test_a_zone_that_never_gets_a_node_ends_the_drain_and_the_node_is_restored(world):
    setup = Setup(world)

    end = world.recycle(setup.node, drain_timeout=900).finishes()
    world.run(end.at + 1200)

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut"), end.cause
    assert "1 pod (default/db-0) because of zone_mismatch" in end.cause
    assert f"topology.kubernetes.io/zone in ({HERE})" in end.cause
    assert setup.evictions_of("db") == [] and setup.is_held() and setup.pod.phase == "Running"
    assert setup.workers.states[setup.node.instance_id] == "InService"
    assert not setup.node.unschedulable and not setup.node.has_taint("recycle-eks/draining")
    assert not [key for key in {**setup.node.annotations, **setup.node.labels} if key.startswith("recycle-eks/")]


@pytest.mark.any_replacement
def test_the_next_node_is_admitted_while_a_node_only_holds_pods(world):
    workers = world.group("workers", size=2, minimum=1, maximum=4, zones=[HERE, THERE])
    # Else the group would see to the old one's zone by itself, at the cost of the other.
    workers.suspend("AZRebalance")
    old, other = sorted(workers.nodes, key=lambda node: node.zone)
    workers.next_launch(zone=THERE)
    database = old.stateful_set("db", volume_claims=[world.kubernetes.zonal_volume("data", HERE)])
    first = world.recycle(old)
    world.run("20m")
    second = world.recycle(other)

    assert [second.finishes().outcome, first.finishes().outcome] == ["recycled", "recycled"]

    (pod,) = database.running_pods()
    assert pod.node_name in {node.name for node in workers.nodes if node.zone == HERE}


def test_a_node_in_the_zone_that_takes_no_pods_is_no_place(world):
    setup = Setup(world)
    other = world.group("other", size=1, minimum=1, maximum=2, zones=[HERE]).nodes[0]
    other.kubernetes.add_taint("dedicated", value="gpu")
    execution = world.recycle(setup.node)
    world.run("20m")
    assert setup.is_held()

    other.kubernetes.remove_taints("dedicated")

    assert execution.finishes().outcome == "recycled"
    assert [pod.node_name for pod in setup.database.running_pods()] == [other.name]


@pytest.mark.any_replacement
def test_a_pod_on_a_local_disk_is_held_until_an_operator_annotates_it_and_an_unbound_claim_holds_none(world):
    node = world.group("workers", size=1, minimum=1, maximum=3).nodes[0]
    cache = node.stateful_set("cache", volume_claims=[world.kubernetes.local_volume("disk", node.kubernetes)])
    other = world.group("others", size=1, minimum=1, maximum=3).nodes[0]
    other.stateful_set("db", volume_claims=[world.kubernetes.unbound_claim("later")])
    world.kubernetes.settle()
    (pod,) = cache.pods()
    execution, unbound = world.recycle(node), world.recycle(other)
    world.run("20m")
    assert f"kubernetes.io/hostname in ({node.name})" in execution.answers("CheckPods")[-1]["reason"]
    assert pod.exists and not pod.is_terminating

    pod.annotate(**{"recycle-eks/drain": "evict"})

    assert execution.finishes().outcome == "recycled"
    assert [pod.phase for pod in cache.pods()] == ["Pending"]
    assert unbound.finishes().outcome == "recycled"
    assert not any("zone_mismatch" in answer["counts"] for answer in unbound.answers("CheckPods"))


def test_volumes_that_cannot_be_read_now_are_waited_for(world):
    setup = Setup(world)
    for resource in ("persistentvolumeclaims", "persistentvolumes"):
        world.faults.refuse(f"kubernetes:GET {resource}", code="ServiceUnavailable", status=503, times=5)
    execution = world.recycle(setup.node)
    world.run("20m")

    # First the claims cannot be read, then the volumes.
    unread = [answer for answer in execution.answers("CheckPods") if "cannot read the cluster" in answer["reason"]]
    assert unread[0] == execution.answers("CheckPods")[0] and len(unread) >= 2
    assert setup.is_held() and setup.evictions_of("db") == [] and setup.evictions_of("web") != []
    assert world.faults.not_struck() == []
    setup.workers.grow(2)
    assert execution.finishes().outcome == "recycled"


@pytest.mark.any_replacement
def test_without_claims_no_volume_is_asked_for(world):
    node = world.group("workers", size=2, minimum=1, maximum=3).nodes[0]
    node.deployment("web", replicas=2, uses_empty_dir=True)
    node.job("train", labels={"app": "train"}, volume_claims=[world.kubernetes.zonal_volume("scratch", HERE)])
    execution = world.recycle(node, label_selector="app=train")
    world.run("20m")

    assert execution.answers("CheckPods")[-1]["counts"]["awaited"] == 1
    assert [call for call in world.calls() if call.action.startswith("kubernetes:GET persistentvolume")] == []


def test_a_volume_that_is_not_detached_is_named_when_the_instance_goes_after_five_minutes(world):
    setup = Setup(world, elsewhere=False)
    setup.node.kubernetes.volumes_hang()
    execution = world.recycle(setup.node)

    assert execution.finishes().outcome == "recycled"

    disposing = execution.entered("DetachTerminate")[0]
    terminated = world.calls("autoscaling:TerminateInstanceInAutoScalingGroup")[0].at
    assert 300 + 300 <= terminated - disposing <= 300 + 300 + 60
    reasons = [answer["reason"] for answer in execution.answers("DetachTerminate")]
    assert any("volumes are still attached (vol-default-data)" in reason for reason in reasons)
    assert any("volumes that have not been detached in 300 seconds (vol-default-data)" in reason for reason in reasons)
