"""A fleet whose nodes are all outdated, and its pods.

Each node has one workload. The kinds alternate, so that every group has the same mixture. A Job is awaited, and ends a fixed
time after its node was tainted. The pod of a Deployment is evicted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from world.kubernetes.handles import Pod
from world.scenario.groups import Node
from world.world import World

DRAINING = "recycle-eks/draining"
#: The selector of the awaited pods.
SELECTOR = "app=train"


@dataclass(frozen=True)
class Kind:
    """The pods of a node: a Job that ends this many minutes after the taint, or without minutes a Deployment's pod."""

    name: str
    job_minutes: float | None


DEPLOYMENT, SHORT_JOB, LONG_JOB = Kind("Deployment", None), Kind("Job of 20 minutes", 20), Kind("Job of 40 minutes", 40)
KINDS = (DEPLOYMENT, SHORT_JOB, LONG_JOB)
#: The workloads of a group's nodes, alternating. Not every node has a Job, because checks of awaited pods take most real time.
MIXTURE = (SHORT_JOB, DEPLOYMENT, DEPLOYMENT, LONG_JOB, DEPLOYMENT, DEPLOYMENT)


class Fleet:
    """Groups of nodes with their workloads, as they are before a rotation."""

    def __init__(self, world: World, sizes: Sequence[int], mixture: Sequence[Kind] = MIXTURE, rebalances: bool = True) -> None:
        """Launches everything, then gives every launch template another version: every node is outdated. Without `rebalances`
        AZRebalance is suspended, as `replacement: surge` needs it in several zones."""
        self.world = world
        self.kinds: dict[str, Kind] = {}
        """The kinds of workload by instance id."""
        self._jobs: dict[str, tuple[Pod, float]] = {}
        zones = [f"eu-west-1{letter}" for letter in "abc"]
        self.groups = [
            world.group(f"fleet-{number:02}", size=size, minimum=0, maximum=size + 10, zones=zones)
            for number, size in enumerate(sizes)
        ]
        for group in self.groups:
            for position, node in enumerate(group.nodes):
                self._run(node, mixture[position % len(mixture)])
            group.gets_a_new_template()
            if not rebalances:
                group.suspend("AZRebalance")
        world.kubernetes.settle()
        world.forget_calls()

    @property
    def nodes(self) -> list[Node]:
        """The original nodes."""
        return [node for group in self.groups for node in group.nodes_seen.values() if node.instance_id in self.kinds]

    def _run(self, node: Node, kind: Kind) -> None:
        self.kinds[node.instance_id] = kind
        name = f"on-{node.instance_id}"
        if kind.job_minutes is None:
            node.deployment(name)
        else:
            self._jobs[node.name] = (node.job(name, labels={"app": "train"}), kind.job_minutes * 60)

    @contextlib.contextmanager
    def jobs_end(self) -> Iterator[None]:
        """Ends each Job at its time after the taint of its node, for the duration of the block."""
        changes = self.world.kubernetes.state.changes()

        def look() -> None:
            for change in changes.take():
                if change.kind == "nodes" and change.key in self._jobs and change.after and _is_tainted(change.after):
                    pod, seconds = self._jobs.pop(change.key)
                    self.world.clock.after(seconds, pod.finishes)

        self.world.clock.before_jump.append(look)
        try:
            yield
        finally:
            self.world.clock.before_jump.remove(look)
            self.world.kubernetes.state.forget(changes)


def _is_tainted(node: dict) -> bool:
    return any(taint["key"] == DRAINING for taint in node["spec"].get("taints") or ())
