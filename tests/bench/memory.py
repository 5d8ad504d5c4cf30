"""Measures the peak memory of functions that read large objects: pods of 1 MB, and 5,000 Nodes with 200 kB of annotations.

The pods, and one Node with as many annotations as Kubernetes allows, are in the API server. The 5,000 Nodes are scripted, because
they are a gigabyte.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from contextlib import closing

from bench.figures import Goal, Measure, rounded
from bench.scene import PODS_EVICTED, BenchFailed, Scene, Step, add_pods, asked, remove_pods
from prepare import ROOT
from world.kubernetes.kube_client import MERGE_PATCH, Json
from world.kubernetes.kube_proxy import KubernetesCall
from world.world import World

#: Kubernetes allows 256 KiB of keys and values (`TotalAnnotationSizeLimitB` of apimachinery).
ALL_ANNOTATIONS = {"large": "x" * (256 * 1024 - len("large") - 1024)}
POD_BYTES = 1_000_000
NODES, NODE_BYTES = 5_000, 200_000
#: The part of a function's memory that stays free.
SPARE = 1 / 3


def measure(world: World, scene: Scene) -> list[Measure]:
    """Measures one cold process for each function. Afterwards the cluster is as before."""
    path, scripted = f"/api/v1/nodes/{scene.node_to_check}", world.kubernetes.proxy.scripted
    try:
        return _measure(world, scene, path)
    finally:
        world.kubernetes.proxy.scripted = scripted
        removed = dict.fromkeys(ALL_ANNOTATIONS)
        world.kubernetes.client.patch(path, {"metadata": {"annotations": removed}}, MERGE_PATCH)


def _measure(world: World, scene: Scene, path: str) -> list[Measure]:
    world.kubernetes.client.patch(path, {"metadata": {"annotations": ALL_ANNOTATIONS}}, MERGE_PATCH)
    taken = []
    for step, on in ((scene.recycle_eks.check, scene.node_to_check), (scene.recycle_eks.evict, scene.node_to_empty)):
        made = add_pods(world, PODS_EVICTED, "web", lambda _, on=on: on, container={"args": ["x" * POD_BYTES]})
        for pod in made:
            world.kubernetes.times.pretend_created(pod["metadata"]["uid"], world.clock.start)
        taken.append(Measure(f"peak memory, {PODS_EVICTED} pods of 1 MB: {_name(step)}", "MiB", [_peak(world, step)]))
        remove_pods(world, "web")
    sweep = world.sweep()
    sweep.finishes()
    unmarked = next(node for node in world.kubernetes.nodes() if node.name not in (scene.node_to_check, scene.node_to_empty))
    world.kubernetes.proxy.scripted = _Nodes(unmarked.object).page
    step = Step(*asked(world, sweep, "recycle-eks-select-nodes"), lambda answer: len(answer["nodes"]), 0)
    taken.append(Measure(f"peak memory, {NODES:,} Nodes with 200 kB of annotations: {_name(step)}", "MiB", [_peak(world, step)]))
    return taken


def goal_of(measures: list[Measure]) -> Goal:
    """The largest peak leaves a third of the memory that the module gives to each function."""
    (megabytes,) = re.findall(r"memory_size = (\d+)", (ROOT / "terraform" / "functions.tf").read_text())
    largest = max(each.recycle_eks[0] for each in measures)
    return Goal(
        f"a third of the functions' {megabytes} MB is free with large objects",
        f"the largest peak is {rounded(largest, 3)} MiB",
        largest <= int(megabytes) * (1 - SPARE),
    )


def _name(step: Step) -> str:
    return step.function.rpartition("function:recycle-eks-")[2].partition(":")[0]


def _peak(world: World, step: Step) -> float:
    with closing(world.host.sandbox(step.function)) as sandbox:
        error, answer = sandbox.handle("bench-memory", json.dumps(step.payload).encode())
        if error is not None:
            raise BenchFailed(f"{step.function} failed: {answer.decode()[:2000]}")
        return sandbox.vm_hwm_kb / 1024


class _Nodes:
    """Pages of Nodes, each like a Node of the cluster."""

    def __init__(self, like: Json) -> None:
        metadata = {"name": "NAME", "annotations": {"large": "x" * NODE_BYTES}}
        node = {**like, "metadata": {**like["metadata"], **metadata}, "spec": {**like["spec"], "providerID": "aws:///a/PROVIDER"}}
        self._node = json.dumps(node)

    def page(self, call: KubernetesCall) -> bytes | None:
        if call.action != "kubernetes:GET nodes" or "name" in call.parameters:
            return None
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(call.path).query))
        first, limit = int(asked.get("continue", 0)), int(asked["limit"])
        last = min(first + limit, NODES)
        nodes = [
            self._node.replace("NAME", f"large-{number}").replace("PROVIDER", f"i-{number:017x}") for number in range(first, last)
        ]
        token = str(last) if last < NODES else ""
        head = json.dumps({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1", "continue": token}})
        return f'{head[:-1]}, "items": [{", ".join(nodes)}]}}'.encode()
