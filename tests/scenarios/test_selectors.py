"""Which pods are waited for: selector, namespaces, the annotation, and an operator who moves the deadline."""

import pytest

MINUTE = 60

TRAIN = {"app": "train", "tier": "train"}
WAIT, EVICT, IGNORE = ({"annotations": {"recycle-eks/drain": value}} for value in ("wait", "evict", "ignore"))
#: The input, the Jobs with the minute at which each finishes by itself, the Deployments, and those whose pods are evicted.
#: Each is on a node of its own.
SELECTORS = {
    "a-set-based-selector-waits-for-exactly-its-pods": (
        {"label_selector": "tier in (blue, green), !spot", "evict": "others_and_jobs"},
        {
            "blue": (10, {"labels": {"tier": "blue"}}),
            "green": (15, {"labels": {"tier": "green"}}),
            "red": (None, {"labels": {"tier": "red"}}),
            "plain": (None, {"labels": {"tier": "blue", "spot": "yes"}}),
        },
        {},
        {"red", "plain"},
    ),
    "namespaces-narrow-the-selector": (
        {"label_selector": "app=train", "namespaces": ["batch"], "evict": "others_and_jobs"},
        {"ours": (10, {"namespace": "batch", "labels": TRAIN}), "theirs": (None, {"namespace": "other", "labels": TRAIN})},
        {},
        {"theirs"},
    ),
    "an-empty-selector-waits-for-no-pod-by-label": (
        {"label_selector": "", "evict": "others_and_jobs"},
        {"labelled": (None, {"labels": TRAIN})},
        {},
        {"labelled"},
    ),
    "pods-that-run-to-completion-are-waited-for-by-default": (
        {"label_selector": "app=other"},
        {"job": (20, {})},
        {"web": {}},
        {"web"},
    ),
    "a-star-waits-for-every-pod": (
        {"label_selector": "*"},
        {"first": (10, {}), "second": (20, {"namespace": "other"})},
        {},
        set(),
    ),
    "with-evict-none-only-annotated-pods-are-evicted": (
        {"label_selector": "app=train", "evict": "none", "dispose": "stop"},
        {"train": (10, {"labels": TRAIN}), "asked": (None, EVICT)},
        {"left": {"replicas": 2}},
        {"asked"},
    ),
} | {
    f"the-drain-annotation-wins-over-every-selector-{number}": (
        {"label_selector": selector},
        {f"waits{number}": (10, WAIT), f"evicts{number}": (None, EVICT | {"labels": TRAIN})},
        {f"ignored{number}": IGNORE | {"labels": TRAIN}},
        {f"evicts{number}"},
    )
    for number, selector in enumerate(["", "*"])
}


def node_of(world, name):
    return world.group(name, size=2, minimum=1, maximum=3, labels={"pool": name}).nodes[0]


def test_the_selector_the_namespaces_and_the_annotation_decide_which_pods_are_waited_for(world):
    executions = {}
    for name, (fields, jobs, deployments, _) in SELECTORS.items():
        node = node_of(world, name)
        # Pods that are evicted go to the other nodes of their group only, so that no row affects another.
        here = {"node_selector": {"pool": name}}
        for job, (minute, how) in jobs.items():
            pod = node.job(job, **here, **how)
            if minute:
                world.at(minute * MINUTE, pod.finishes)
        for deployment, how in deployments.items():
            node.deployment(deployment, **here, **how)
        executions[name] = world.recycle(node, **fields)

    ends = {name: execution.finishes() for name, execution in executions.items()}

    found = set(world.asked_to_go())
    for name, (_, jobs, deployments, expected) in SELECTORS.items():
        assert ends[name].outcome == "recycled", (name, ends[name])
        assert found & {*jobs, *deployments} == expected, name
        awaited = [minute for minute, _ in jobs.values() if minute]
        assert ends[name].at >= max(awaited, default=0) * MINUTE, name
    assert ends["an-empty-selector-waits-for-no-pod-by-label"].at < 10 * MINUTE


@pytest.mark.any_replacement
def test_an_operator_moves_the_deadline_of_a_running_drain_or_ends_it_now(world):
    moved, ended = node_of(world, "moved"), node_of(world, "ended")
    job = moved.job("long", labels={"app": "train"})
    world.at("5m", lambda: moved.annotate("recycle-eks/drain-until", "2027-01-01T00:40:00Z"))
    world.at("20m", job.finishes)
    ended.job("train", labels={"app": "train"})
    world.at("10m", lambda: ended.annotate("recycle-eks/drain-until", "now"))

    executions = [
        world.recycle(moved, label_selector="app=train", drain_timeout=10 * MINUTE),
        world.recycle(ended, label_selector="app=train"),
    ]
    end, now = (execution.finishes() for execution in executions)

    assert end.outcome == "recycled"
    # Its drain would have ended before.
    assert executions[0].entered("TaintNode")[0] + 10 * MINUTE < 20 * MINUTE <= end.at
    assert (now.status, now.error) == ("FAILED", "DrainTimedOut")
    assert 10 * MINUTE <= now.at <= 13 * MINUTE
    assert "train" in now.cause and "ended the drain at" in now.cause
    # It is removed with the drain.
    assert "recycle-eks/drain-until" not in ended.annotations
