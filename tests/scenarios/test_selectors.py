"""Which pods are waited for: selector, namespaces, the annotation, and an operator who moves the deadline."""

import pytest

MINUTE = 60


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=3).nodes[0]


def evicted(world) -> set[str]:
    """The Jobs and Deployments whose pods an eviction was asked for."""
    return {call.parameters["name"].split("-")[0] for call in world.calls("kubernetes:POST pods/eviction")}


def test_a_set_based_selector_waits_for_exactly_its_pods(world, node):
    blue = node.job("blue", labels={"tier": "blue"})
    green = node.job("green", labels={"tier": "green"})
    node.job("red", labels={"tier": "red"})
    node.job("plain", labels={"tier": "blue", "spot": "yes"})
    world.at("10m", blue.finishes)
    world.at("15m", green.finishes)

    end = world.recycle(node, label_selector="tier in (blue, green), !spot", evict="others_and_jobs").finishes()

    assert end.outcome == "recycled"
    assert end.at >= 15 * MINUTE
    assert evicted(world) == {"red", "plain"}


def test_namespaces_narrow_the_selector(world, node):
    ours = node.job("ours", namespace="batch", labels={"app": "train"})
    node.job("theirs", namespace="other", labels={"app": "train"})
    world.at("10m", ours.finishes)

    end = world.recycle(node, label_selector="app=train", namespaces=["batch"], evict="others_and_jobs").finishes()

    assert end.outcome == "recycled"
    assert end.at >= 10 * MINUTE
    assert evicted(world) == {"theirs"}


def test_an_empty_selector_waits_for_no_pod_by_label(world, node):
    node.job("train", labels={"app": "train"})

    end = world.recycle(node, label_selector="", evict="others_and_jobs").finishes()

    assert end.outcome == "recycled"
    assert end.at < 10 * MINUTE
    assert evicted(world) == {"train"}


def test_pods_that_run_to_completion_are_waited_for_by_default(world, node):
    """Pods of a Job, and of a controller of an unknown kind."""
    job = node.job("train")
    node.deployment("web", replicas=1)
    world.at("20m", job.finishes)

    end = world.recycle(node, label_selector="app=other").finishes()

    assert end.outcome == "recycled" and end.at >= 20 * MINUTE
    assert evicted(world) == {"web"}


def test_a_star_waits_for_every_pod(world, node):
    first, second = node.job("first"), node.job("second", namespace="other")
    world.at("10m", first.finishes)
    world.at("20m", second.finishes)

    end = world.recycle(node, label_selector="*").finishes()

    assert end.outcome == "recycled"
    assert end.at >= 20 * MINUTE
    assert not evicted(world)


@pytest.mark.parametrize("selector", ["", "app=train", "tier in (train)", "*"])
def test_the_drain_annotation_wins_over_every_selector(world, node, selector):
    labels = {"app": "train", "tier": "train"}
    waits = node.job("waits", annotations={"recycle-eks/drain": "wait"})
    node.job("evicts", labels=labels, annotations={"recycle-eks/drain": "evict"})
    node.deployment("ignored", replicas=1, labels=labels, annotations={"recycle-eks/drain": "ignore"})
    world.at("10m", waits.finishes)

    end = world.recycle(node, label_selector=selector).finishes()

    assert end.outcome == "recycled"
    assert end.at >= 10 * MINUTE
    assert evicted(world) == {"evicts"}


def test_with_evict_none_only_annotated_pods_are_evicted(world, node):
    job = node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    node.job("asked", annotations={"recycle-eks/drain": "evict"})
    world.at("10m", job.finishes)

    end = world.recycle(node, label_selector="app=train", evict="none", dispose="stop").finishes()

    assert end.outcome == "recycled"
    assert evicted(world) == {"asked"}


def test_an_operator_moves_the_deadline_of_a_running_drain(world, node):
    job = node.job("train", labels={"app": "train"})
    world.at("10m", lambda: node.annotate("recycle-eks/drain-until", "2027-01-01T01:00:00Z"))
    world.at("40m", job.finishes)

    end = world.recycle(node, label_selector="app=train", drain_timeout=20 * MINUTE).finishes()

    assert end.outcome == "recycled"
    assert end.at >= 40 * MINUTE


def test_an_operator_ends_a_drain_now(world, node):
    node.job("train", labels={"app": "train"})
    world.at("10m", lambda: node.annotate("recycle-eks/drain-until", "now"))

    end = world.recycle(node, label_selector="app=train").finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut")
    assert 10 * MINUTE <= end.at <= 13 * MINUTE
    assert "train" in end.cause
