"""What a person would want to see of a recycled node at one moment, whoever shows it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from world.world import Execution, Group, Node, World

#: What an answer calls the pods -> their class. A pod that no answer names is ignored.
CLASSES = {"awaited": "wait", "terminating": "wait", "evictable": "evict", "tolerates_taint": "ignore", "bad_annotation": "wait"}


@dataclass(frozen=True)
class Moment:
    """All of it; the texts are for people."""

    elapsed: float
    state: str
    """The state of the state machine that was entered last."""
    entered: dict[str, int]
    """How often each state was entered."""
    instances: dict[str, str]
    """Lifecycle by instance id, the old one first."""
    node: str
    pods: dict[str, tuple[str, str]]
    """Class and whereabouts of every pod that was on the old node, by name; of what came up elsewhere for them, too."""
    progress: str
    """The Node's annotation: its summary, and what stands in the way."""


class Watch:
    """Looks at one execution, and remembers what has gone meanwhile."""

    def __init__(self, world: World, group: Group, node: Node, execution: Execution, plan: dict[str, list[str]]) -> None:
        self._world, self._group, self._node, self._execution = world, group, node, execution
        self._classes: dict[str, str] = {}
        self._learn(plan)
        self._instances: dict[str, str] = {node.instance_id: ""}
        self._pods: dict[str, tuple[str, str]] = {}
        self._progress = ""
        self._answers_read = 0
        # What runs elsewhere before it begins is none of this node's story.
        self._elsewhere = {pod["metadata"]["name"] for pod in self._workloads() if not self._is_here(pod)}

    def look(self) -> Moment:
        """Now."""
        path = self._execution.path
        self._look_at_instances()
        self._look_at_pods()
        return Moment(
            elapsed=self._world.clock.elapsed(),
            state=path[-1],
            entered=dict(Counter(path)),
            instances=dict(self._instances),
            node=self._look_at_node(),
            pods=dict(self._pods),
            progress=self._progress,
        )

    def _look_at_instances(self) -> None:
        states = self._group.states
        known = {instance: states.get(instance, "gone") for instance in self._instances}
        self._instances = {**known, **states}

    def _look_at_pods(self) -> None:
        answers = self._execution.answers("CheckPods")
        for answer in answers[self._answers_read :]:
            self._learn(answer["names"])
        self._answers_read = len(answers)
        now = {pod["metadata"]["name"]: pod for pod in self._workloads() if pod["metadata"]["name"] not in self._elsewhere}
        for name in self._pods.keys() - now.keys():
            self._pods[name] = (self._pods[name][0], "gone")
        for name, pod in now.items():
            self._pods[name] = (self._class_of(pod), self._whereabouts(pod))

    def _look_at_node(self) -> str:
        if not self._node.exists:
            return "deleted"
        if progress := self._node.annotations.get("recycle-eks/progress"):
            told = json.loads(progress)
            self._progress = "; ".join([told["summary"], *(blocker["says"] for blocker in told.get("blocked", []))])
        tainted = "tainted" if self._node.has_taint("recycle-eks/draining") else ""
        cordoned = "cordoned" if self._node.unschedulable else ""
        return " and ".join(filter(None, [tainted, cordoned])) or "takes pods"

    def _workloads(self) -> list[dict[str, Any]]:
        """The pods that matter here, the old node's of kube-system, too."""
        pods = self._world.kubernetes.look_at_pods()
        return [pod for pod in pods if self._is_here(pod) or pod["metadata"]["namespace"] != "kube-system"]

    def _is_here(self, pod: dict[str, Any]) -> bool:
        return pod["spec"].get("nodeName") == self._node.name

    def _class_of(self, pod: dict[str, Any]) -> str:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        return self._classes.get(name, "ignore") if self._is_here(pod) else "new"

    def _whereabouts(self, pod: dict[str, Any]) -> str:
        phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else pod["status"].get("phase", "Pending")
        where = pod["spec"].get("nodeName")
        return phase if where in (None, self._node.name) else f"{phase} on {where.partition('.')[0]}"

    def _learn(self, names: dict[str, list[str]]) -> None:
        for said, pods in names.items():
            if said in CLASSES:
                self._classes.update(dict.fromkeys(pods, CLASSES[said]))


def clock_face(seconds: float) -> str:
    """Hours, minutes and seconds of virtual time."""
    return f"{int(seconds) // 3600:3d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
