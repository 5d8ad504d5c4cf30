"""The ready-made clusters: a group of three nodes with pods on the oldest, and two fleets for a rotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from world.scenario.groups import Group
from world.world import World


@dataclass(frozen=True)
class Cluster:
    """A cluster with a node to recycle. In all of them `label_selector=app=training` waits for a Job."""

    description: str
    build: Callable[[World], Group]


@dataclass(frozen=True)
class Fleet:
    """A cluster of twelve nodes for a rotation. `label_selector=app=training` waits for Jobs."""

    description: str
    build: Callable[[World], list[Group]]
    selection: str
    """The flag of `recycle-eks rotate` that selects its nodes."""


def tidy(world: World) -> Group:
    """A typical node."""
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    node = workers.nodes[0]
    world.at("20h", node.job("training", labels={"app": "training"}).finishes)
    world.budget(node.deployment("web", labels={"app": "web"}, replicas=3), min_available=2)
    node.daemon_set("log-shipper")
    return workers


def budgets(world: World) -> Group:
    """One budget allows no eviction until its Deployment is scaled up. A StatefulSet is evicted pod by pod."""
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    node = workers.nodes[0]
    world.at("1h", node.job("training", labels={"app": "training"}).finishes)
    world.budget(node.stateful_set("db", labels={"app": "db"}, replicas=2), max_unavailable=1)
    lonely = node.deployment("lonely", labels={"app": "lonely"}, replicas=1)
    world.budget(lonely, min_available=1)
    world.at("30m", lambda: lonely.scale(2))
    node.daemon_set("log-shipper")
    return workers


def full(world: World) -> Group:
    """The group has no room for one more node. Standby makes the room."""
    workers = world.group("workers", size=3, minimum=3, maximum=3)
    node = workers.nodes[0]
    world.at("6h", node.job("training", labels={"app": "training"}).finishes)
    node.deployment("web", labels={"app": "web"}, replicas=2)
    world.at("7h", node.bare_pod("debug", labels={"app": "debug"}).deleted)
    return workers


def groups(world: World) -> list[Group]:
    """Three groups of four nodes, all of them launched from an older template than their group has now."""
    groups = [world.group(name, size=4, minimum=3, maximum=6) for name in ("api", "batch", "web")]
    for number, group in enumerate(groups):
        oldest, second, *_ = group.nodes
        world.at(f"{15 + 5 * number}m", oldest.job(f"{group.name}-training", labels={"app": "training"}).finishes)
        world.at(f"{30 + 5 * number}m", second.job(f"{group.name}-report", labels={"app": "training"}).finishes)
        world.budget(oldest.deployment(group.name, labels={"app": group.name}, replicas=3), min_available=2)
        group.gets_a_new_template()
    return groups


def managed(world: World, size: int = 12) -> list[Group]:
    """One EKS managed node group. EKS itself replaces nodes with an older launch template, so a rotation selects others."""
    blue = world.group("eks-blue", size=size, minimum=size, maximum=size + 3, node_group="blue")
    for number, node in enumerate(blue.nodes[:3]):
        world.at(f"{20 + 10 * number}m", node.job(f"training-{number}", labels={"app": "training"}).finishes)
    world.budget(blue.nodes[3].deployment("web", labels={"app": "web"}, replicas=3), min_available=2)
    return [blue]


CLUSTERS = {
    "tidy": Cluster("a Job that needs 20 hours, and a web server whose budget lets one pod go at a time", tidy),
    "budgets": Cluster(
        "a Job that needs an hour, a database whose pods go one by one, and a lonely pod whose budget never lets it go: "
        "after 30 minutes an operator adds a second pod",
        budgets,
    ),
    "full": Cluster(
        "a Job that needs 6 hours, a web server, and a pod without a controller, which an operator deletes after 7 hours; "
        "the group is at its maximum size",
        full,
    ),
}

FLEETS = {
    "groups": Fleet(
        "three groups of four nodes got a new launch template; on two nodes of each runs a Job of up to 40 minutes",
        groups,
        "--launch-template",
    ),
    "managed": Fleet(
        "a managed node group of twelve nodes; on three of them runs a Job of up to 40 minutes, and the maximum leaves room "
        "for three more nodes",
        managed,
        "--all",
    ),
}
