#!/usr/bin/env python3
"""Recycles one node of three before your eyes: real Terraform, real functions, a real API server, and a clock that does not wait.

Prints a line for everything that happens, with virtual time, and leaves nothing running.
"""

import json
import signal
import sys
import time
from typing import Any

from world.deployment import variables
from world.world import CLUSTER, Execution, Group, Node, World

#: The Job on the node ends so late, in virtual time.
JOB_ENDS = "20h"


class Narrator:
    """Tells what changed since it was last asked: group, node, pods, execution."""

    def __init__(self, world: World, group: Group, node: Node, execution: Execution) -> None:
        self._world, self._group, self._node, self._execution = world, group, node, execution
        self._told: dict[str, str] = {}

    def tell_changes(self) -> None:
        """Called before the clock jumps: everything has settled then."""
        for subject, state in self._everything().items():
            if self._told.get(subject) != state:
                self._told[subject] = state
                print(f"{clock_face(self._world.clock.elapsed())}  {subject:<28} {state}", flush=True)

    def _everything(self) -> dict[str, str]:
        now = {}
        for instance, state in self._group.states.items():
            now[self._name(instance)] = state
        for subject in set(self._told) - set(now):
            if "instance i-" in subject:
                now[subject] = "gone from the group"
        now |= self._old_node()
        for pod in self._world.kubernetes.pods():
            if pod.namespace != "kube-system":
                where = "the old node" if pod.node_name == self._node.name else pod.node_name or "no node yet"
                now[f"pod {pod.name}"] = f"{pod.phase} on {where}"
        for subject in set(self._told) - set(now):
            if subject.startswith("pod "):
                now[subject] = "gone"
        now["execution"] = self._execution.path[-1]
        return now

    def _name(self, instance: str) -> str:
        short = instance[:10] + "…"
        return f"old instance {short}" if instance == self._node.instance_id else f"instance {short}"

    def _old_node(self) -> dict[str, str]:
        if not self._node.exists:
            return {"old node": "deleted"}
        tainted = "tainted" if self._node.has_taint("recycle-eks/draining") else ""
        cordoned = "cordoned" if self._node.unschedulable else ""
        told = {"old node": " and ".join(filter(None, [tainted, cordoned])) or "takes pods"}
        if progress := self._node.annotations.get("recycle-eks/progress"):
            told["recycle-eks/progress"] = json.loads(progress)["summary"]
        return told


def clock_face(seconds: float) -> str:
    """Hours, minutes and seconds of virtual time."""
    return f"{int(seconds) // 3600:3d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def stage(text: str) -> None:
    print(f"\n== {text}", flush=True)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    world = World()
    try:
        stage("An AWS account and a Kubernetes cluster, on this machine (3 seconds)")
        world.start_empty()
        stage("terraform apply of terraform/examples/complete (about a minute)")
        terraform = world.deployment.apply()
        world.finish_deployment()
        print(f"state machine: {world.deployment.outputs['state_machine_alias_arn']}")
        ended = recycle(world)
        stage("terraform destroy")
        terraform.destroy(**variables())
        print("everything is gone again")
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running")
        return 130
    finally:
        world.stop()
    print(f"\nThe demo took {time.monotonic() - began:.0f} s.")
    return 0 if ended.outcome == "recycled" else 1


def recycle(world: World) -> Any:
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    node = workers.nodes[0]
    job = node.job("training", labels={"app": "training"})
    web = node.deployment("web", replicas=3)
    world.budget(web, min_available=2)
    node.daemon_set("log-shipper")
    world.at(JOB_ENDS, job.finishes)
    given = {"instance_id": node.instance_id, "cluster_name": CLUSTER, "label_selector": "app=training"}

    stage(f"One execution: {json.dumps(given)}")
    print(f"{node.name} runs a Job that needs {JOB_ENDS} and a web server whose budget lets one pod go at a time.\n")
    execution = world.recycle(given)
    narrator = Narrator(world, workers, node, execution)
    world.clock.before_jump.append(narrator.tell_changes)
    began = time.monotonic()
    end = execution.finishes()
    narrator.tell_changes()
    world.clock.before_jump.remove(narrator.tell_changes)

    stage("Summary")
    polls = len(execution.entered("CheckPods"))
    minimum, desired, maximum = workers.sizes
    print(f"outcome          {end.outcome or end.error}: {(end.output or {}).get('reason', end.cause)}")
    print(f"virtual time     {clock_face(end.at).strip()} in {time.monotonic() - began:.1f} real seconds")
    print(f"history          {end.history_events:,} of 25,000 events, {polls} polls")
    print(f"noticed          the Job's end {end_noticed(execution) - world.seconds(JOB_ENDS):.0f} s late, of {JOB_ENDS}")
    print(f"group            min {minimum}, desired {desired}, max {maximum} as before; {', '.join(workers.states.values())}")
    print(f"web servers      {len([p for p in web.pods() if p.phase == 'Running'])} of 3 running, none of them on the old node")
    return end


def end_noticed(execution: Execution) -> float:
    """When the drain was found to be over."""
    return (execution.entered("DetachTerminate") or [float("nan")])[0]


if __name__ == "__main__":
    sys.exit(main())
