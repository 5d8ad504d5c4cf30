"""When the drain's time is over: the node is restored, its pods are evicted in time, or it goes with them, as the input says."""

import pytest

from world.base.faults import kills

HOUR = 3600
DRAIN = 600


def asked_at(world):
    """When the eviction of each pod was first asked for, by the beginning of its name, in seconds since the scenario began."""
    moments = {}
    for call in world.calls("kubernetes:POST pods/eviction"):
        moments.setdefault(call.parameters["name"].split("-")[0], call.at)
    return moments


def is_restored(node):
    is_schedulable = not node.unschedulable and not node.has_taint("recycle-eks/draining")
    return is_schedulable and node.group.states[node.instance_id] == "InService"


# -- evict: in time for each grace period


@pytest.mark.any_replacement
def test_each_pod_is_evicted_in_time_for_its_own_grace_period_and_the_node_goes_before_the_deadline(world, node):
    node.job("long", labels={"app": "train"}, grace=HOUR, exits_after=HOUR)
    node.job("short", labels={"app": "train"}, grace=30, exits_after=30)
    node.bare_pod("bare", grace=600, exits_after=600, restart_policy="Never")
    node.job("marked", annotations={"recycle-eks/drain": "wait"}, grace=1200, exits_after=10)
    done = node.job("done", labels={"app": "train"}, grace=80 * 60)
    execution = world.recycle(node, label_selector="app=train", on_drain_timeout="evict", drain_timeout=2 * HOUR)
    world.run("10m")
    progress = node.progress
    assert (progress["until"], progress["then"]) == (
        "2027-01-01T02:01:00Z",
        "awaited pods are evicted, the first at 2027-01-01T00:40:00Z",
    )
    world.run("30m")
    done.finishes()

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    deadline = execution.entered("CheckPods")[0] + 2 * HOUR
    asked = asked_at(world)
    assert set(asked) == {"long", "short", "bare", "marked"}
    for name, grace in {"long": HOUR, "short": 30, "bare": 600, "marked": 1200}.items():
        assert grace + 30 <= deadline - asked[name] <= grace + 95, (name, deadline - asked[name])
    assert execution.entered("DetachTerminate")[0] <= deadline


@pytest.mark.any_replacement
def test_a_node_with_pods_left_at_the_deadline_is_restored(world, node):
    web = node.deployment("web", labels={"app": "train"})
    world.budget(web, min_available=1)
    train = node.job("train", labels={"app": "train"})
    # By default no awaited pod is evicted.
    patient = world.group("patient", size=2, minimum=1, maximum=4).nodes[0]
    kept = patient.job("kept", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train", on_drain_timeout="evict", drain_timeout=DRAIN)
    by_default = world.recycle(patient, label_selector="app=train", drain_timeout=DRAIN)

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert "it still has to evict 1 pod (default/web-" in end.cause
    assert "The disruption budget web needs 1 healthy pods and has 1 currently" in end.cause
    assert is_restored(node) and len(web.running_pods()) == 1 and not train.exists
    # asked in time, and once more at the deadline
    evictions = [call for call in world.calls("kubernetes:POST pods/eviction") if call.parameters["name"].startswith("web")]
    assert len(evictions) >= 3

    end = by_default.finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert set(asked_at(world)) == {"web", "train"} and kept.phase == "Running" and is_restored(patient)


@pytest.mark.any_replacement
def test_a_deadline_that_an_operator_moved_is_kept_with_the_grace_periods(world):
    #: The operator's annotation, and the hour of the deadline, by the name of the group and its pod.
    rows = {"now": ("now", None), "earlier": ("2027-01-01T00:45:00Z", 0.75), "later": ("2027-01-01T01:30:00Z", 1.5)}
    executions = {}
    for name, (until, _) in rows.items():
        node = world.group(name, size=2, minimum=1, maximum=4).nodes[0]
        node.job(name, labels={"app": "train"}, grace=120, exits_after=110)
        world.at("20m", lambda node=node, until=until: node.annotate("recycle-eks/drain-until", until))
        executions[name] = world.recycle(node, label_selector="app=train", on_drain_timeout="evict", drain_timeout=HOUR)

    for name, execution in executions.items():
        end = execution.finishes()
        assert end.outcome == "recycled", (rows[name], end.cause)
    asked = asked_at(world)
    assert HOUR / 3 <= asked["now"] <= HOUR / 3 + 150
    for name in ("earlier", "later"):
        deadline = rows[name][1] * HOUR
        assert 150 <= deadline - asked[name] <= 215, rows[name]
        assert executions[name].entered("DetachTerminate")[0] <= deadline, rows[name]


@pytest.mark.any_replacement
def test_the_plan_and_the_history_name_a_grace_period_that_takes_all_of_the_time(world, node):
    node.job("train", labels={"app": "train"}, grace=3 * HOUR, exits_after=600)
    fields = {"label_selector": "app=train", "on_drain_timeout": "evict", "drain_timeout": 2 * HOUR}

    plan = world.recycle(node, dry_run=True, **fields).finishes().output["plan"]

    assert "awaited pods that need longer are evicted in time for their grace periods" in "; ".join(plan["steps"])
    assert any("longer than the drain may take" in note and "(grace_too_long: 1)" in note for note in plan["notes"])
    assert any("would be evicted at once" in note and "(out_of_time: 1)" in note for note in plan["notes"])
    execution = world.recycle(node, **fields)
    assert execution.finishes().outcome == "recycled"
    first = execution.answers("CheckPods")[0]
    assert first["counts"] == {"evictable": 1, "out_of_time": 1, "grace_too_long": 1}


# -- terminate: only with override


def terminate(world, node, **fields):
    terminate = {"on_drain_timeout": "terminate", "override": ["running_pods"]}
    return world.recycle(node, label_selector="app=train", drain_timeout=DRAIN, **terminate, **fields)


def test_the_node_goes_at_the_deadline_and_the_pods_that_ran_are_named(world):
    rows = {}
    for dispose in ("terminate", "stop"):
        node = world.group(dispose, size=2, minimum=1, maximum=4).nodes[0]
        deaf = node.job(f"deaf{dispose}", labels={"app": "train"}, grace=9 * HOUR, ignores_sigterm=True)
        held = node.deployment(f"held{dispose}", replicas=2)
        world.budget(held, min_available=2)
        polite = node.job(f"polite{dispose}", labels={"app": "train"}, grace=60, exits_after=50)
        ran = sorted([f"default/{deaf.name}", *(f"default/{pod.name}" for pod in held.pods())])
        rows[dispose] = node, polite, ran, terminate(world, node, dispose=dispose)
    world.run("9m")
    assert not [name for name in asked_at(world) if name.startswith("deaf")]
    for dispose, (node, *_) in rows.items():
        assert node.progress["then"] == "the instance is disposed of, even if pods still run on it", dispose
        assert world.instance(node.instance_id).state == "running", dispose

    for dispose, (node, polite, ran, execution) in rows.items():
        end = execution.finishes()
        assert end.outcome == "recycled", (dispose, end.cause)
        assert world.instance(node.instance_id).state == {"terminate": "terminated", "stop": "stopped"}[dispose]
        assert end.output["counts"] == {"ended": 3} and end.output["names"] == {"ended": ran}, dispose
        assert end.output["reason"].endswith(f"; 3 pods still ran on it when its drain timed out ({', '.join(ran)})"), dispose
        deadline = execution.entered("CheckPods")[0] + DRAIN
        # Awaited pods were asked to leave first, and had five minutes.
        assert deadline <= asked_at(world)[f"deaf{dispose}"] <= deadline + 5, dispose
        assert deadline + 300 <= execution.entered("DetachTerminate")[0] <= deadline + 310, dispose
        assert not polite.exists, dispose
        (event,) = [event for event in world.kubernetes.events(node.name) if event["reason"] == "RecycleDisposing"]
        assert "3 pods still ran on it when its drain timed out" in event["message"], dispose


@pytest.mark.any_replacement
def test_without_override_no_pod_is_ended_and_a_node_whose_pods_end_in_time_is_disposed_of_as_usual(world, node):
    train = node.job("train", labels={"app": "train"})
    world.at("3m", train.finishes)

    end = world.recycle(node, on_drain_timeout="terminate").finishes()

    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    assert 'override ["running_pods"]' in end.cause and not world.writes()

    end = terminate(world, node).finishes()

    assert end.outcome == "recycled" and end.at < DRAIN
    assert end.output["counts"] == {} and "ran on it" not in end.output["reason"]


def test_a_cluster_that_is_away_at_the_deadline_ends_no_pod(world, node):
    train = node.job("train", labels={"app": "train"})
    execution = terminate(world, node)
    world.run("5m")
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None, function="check-pods")

    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "ServiceUnavailable")
    assert train.phase == "Running" and is_restored(node)


INPUTS = {
    "evict": {"on_drain_timeout": "evict"},
    "terminate": {"on_drain_timeout": "terminate", "override": ["running_pods"]},
}


@pytest.mark.any_replacement
@pytest.mark.reading("terminate_from_standby_launches_extra", "enter_standby_at_max_launches", "standby_counts_for_zone_balance")
def test_the_end_is_the_same_under_either_reading_of_awss_documentation(world):
    executions = {}
    for name, fields in INPUTS.items():
        node = world.group(name, size=2, minimum=1, maximum=4).nodes[0]
        node.job(f"train-{name}", labels={"app": "train"}, grace=60, exits_after=40)
        executions[name] = world.recycle(node, label_selector="app=train", drain_timeout=DRAIN, **fields)

    ends = {name: execution.finishes() for name, execution in executions.items()}
    world.wait(1200)

    for name, end in ends.items():
        assert end.outcome == "recycled", (name, end.cause)
        group = world.groups[name]
        assert group.sizes == (1, 2, 4) and sorted(group.states.values()) == ["InService"] * 2, name


# -- killed anywhere


def scene(world):
    """A node for each input, whose pods are in a namespace of the name of its group: the executions at the third minute."""
    nodes, executions = {}, {}
    for name, fields in INPUTS.items():
        node = nodes[name] = world.group(f"to-{name}", size=2, minimum=1, maximum=3).nodes[0]
        # A pod that the end of the drain deletes has five minutes. The evicted Job needs less, the deleted one more.
        grace = 240 if name == "evict" else 600
        node.job("train", namespace=f"to-{name}", labels={"app": "train"}, grace=grace, ignores_sigterm=True)
        held = node.deployment("held", namespace=f"to-{name}")
        world.budget(held, min_available=1)
        if name == "evict":
            world.at("6m", held.deleted)
        # With a longer grace the Job would end before the instance.
        times = {"drain_timeout": 480, "load_balancer_grace": 60}
        executions[name] = world.recycle(node, label_selector="app=train", **times, **fields)
    world.run("3m")
    world.forget_calls()
    return nodes, executions


def endings(nodes, executions):
    ends = {name: execution.finishes() for name, execution in executions.items()}
    ended = {name: (end.output or {}).get("names", {}).get("ended", []) for name, end in ends.items()}
    return {
        name: (
            end.outcome,
            [pod.split("-")[1] for pod in ended[name]],
            nodes[name].group.sizes,
            sorted(nodes[name].group.states.values()),
        )
        for name, end in ends.items()
    }


def test_a_function_killed_around_any_mutating_call_of_the_end_ends_the_same(world):
    nodes, executions = scene(world)
    same = endings(nodes, executions)
    assert {name: ending[:2] for name, ending in same.items()} == {
        "evict": ("recycled", []),
        "terminate": ("recycled", ["terminate/held", "terminate/train"]),
    }
    # the first of each kind: a drain that is blocked repeats itself
    points = {
        name: sorted({(function, action) for function, action, _ in world.write_points(node)}) for name, node in nodes.items()
    }
    for name, calls in points.items():
        killed = {function.removeprefix("recycle-eks-") for function, _ in calls}
        assert {"evict-pods", "check-pods", "detach-terminate"} <= killed, name

    # In a further run, each execution is struck once, before or after a call about its own node.
    at = [("before", "kubernetes:POST pods/eviction"), ("after", "autoscaling:TerminateInstanceInAutoScalingGroup")]
    for struck in kills(*points.values(), at=at):
        world.reset()
        nodes, executions = scene(world)
        for node, (moment, function, action) in zip(nodes.values(), struck, strict=True):
            world.faults.kill(moment, action, function=function, where=node.is_named_in)
        assert endings(nodes, executions) == same, struck
        assert world.faults.not_struck() == [], struck
