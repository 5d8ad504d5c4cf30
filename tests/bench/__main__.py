"""Compares the shipped functions with the same steps in plain Python (`peer/`), in one run on the local world.

    make bench ARGS="[--quick] [--json FILE]"

Both run alternately under the world's Lambda host with the same role, against the same API server, authenticator and EKS API.
Table and goals go to standard output and, without `--quick`, into docs/performance.md; progress goes to standard error. No test
asserts the figures, because they depend on the machine.

The calls include the local world's API server and the proxy in front of it, the same for both. Both ask EKS for endpoint and
authority of the cluster once in the life of a process; a function of recycle-eks asks again if it is refused. A function of
recycle-eks also reads the Node, checks the claim and keeps the progress. Python only counts or evicts.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import package
from bench import memory, python_peer
from bench.figures import PAGE, Goal, Measure, distance_goal, goal_lines, goals_of, table, with_figures
from bench.scene import LABELS, PODS_EVICTED, SELECTOR, BenchFailed, Scene, Step, add_nodes, add_pods, remove_pods, set_up
from prepare import LAMBDAS, ROOT, TESTS, Steps, host_architecture, install_python, say, version
from scale import rotation
from scale.report import failures_of
from scale.rotation import MEDIUM
from world import deployment
from world.aws.sandbox import Sandbox
from world.world import World

#: The AWS CLI with which the documentation's commands are tried.
AWS_CLI_PINS = TESTS / "docs" / "aws-cli-requirements.txt"
#: Real seconds by which each call takes longer in the rows that say so. On AWS a call takes 20 to 80 ms.
DISTANCE = 0.05
#: Pods and nodes.
CLUSTER_SIZES = ((20, 5), (1_000, 40), (5_000, 200))


@dataclass(frozen=True)
class Plan:
    """The numbers of repetitions. One more of each is done before, for caches and Python's compiled files."""

    cold_starts: int = 21
    warm_calls_each: int = 5
    checks: int = 61
    evictions: int = 7
    drains: int = 3


QUICK = Plan(cold_starts=3, warm_calls_each=3, checks=7, evictions=2, drains=1)


@dataclass(frozen=True)
class Called:
    """One invocation, in milliseconds."""

    wall: float
    cpu: float


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = argparse.ArgumentParser(prog="make bench", description="Measures what is shipped beside plain Python.")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write everything there, with all samples")
    arguments.add_argument("--quick", action="store_true", help="few samples, to see that it runs; writes no page")
    given = arguments.parse_args()
    plan = QUICK if given.quick else Plan()
    packages = release_packages()
    measures, goals = measure(plan, packages)
    printed = report(plan, measures, goals)
    print(printed, flush=True)
    if not given.quick:
        PAGE.write_text(with_figures(PAGE.read_text(), printed))
        say(f"wrote {PAGE.relative_to(ROOT)}")
    if given.json:
        content = {
            "machine": machine(),
            "version": version(),
            "plan": asdict(plan),
            "measures": [each.to_json() for each in measures],
            "goals": [asdict(goal) for goal in goals],
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def release_packages() -> dict[str, Path]:
    """Builds what is shipped, for this machine's processor, and lets the world deploy it. `dist/` stays as it is."""
    architecture = host_architecture()
    deployment.ZIPS = deployment.ZIPS.with_name("bench")
    package.build([architecture], deployment.ZIPS)
    return {name: deployment.ZIPS / architecture / f"{name}.zip" for name in LAMBDAS}


def measure(plan: Plan, packages: dict[str, Path]) -> tuple[list[Measure], list[Goal]]:
    steps = Steps(10)
    with steps.step("The Python functions to compare with", "20 seconds the first time"):
        peer = python_peer.install()
    sizes = {file.name: file.stat().st_size for file in packages.values()}
    size = Measure("package of a check", "MB", [sizes["check-pods.zip"] / 1e6], [len(peer.deployment_package) / 1e6])
    with steps.step("Starts of the command line and of the AWS CLI, alternately", f"{plan.cold_starts * 2} seconds"):
        commanded = shown(command_lines(plan, packages["check-pods"].with_name(package.CLI)))
    world = World(say)
    try:
        with steps.step("An AWS account and a cluster with what is shipped in it", "about a minute the first time"):
            world.start()
        with steps.step("Drains of 20 hours", "7 seconds each"):
            drained = shown(drains(world, plan))
        with steps.step(f"A rotation of {MEDIUM.groups * MEDIUM.nodes_each} nodes", "two minutes"):
            rotated = shown(rotations(world))
        scene = set_up(world, peer)
        with steps.step("Calls that take 50 ms longer, alternately", "a minute and a half"):
            far = shown(distant(world, scene, plan))
        with steps.step("Cold starts, alternately", f"{plan.cold_starts * 3} seconds"):
            started = shown(starts(world, scene, plan))
        with steps.step(f"Evictions of {PODS_EVICTED} pods, alternately", f"{plan.evictions * 8} seconds"):
            evicted = shown(evictions(world, scene, plan))
        # Later the cluster is so busy that the large objects take minutes.
        with steps.step("Peak memory with large objects", "a minute"):
            large = shown(memory.measure(world, scene))
        with steps.step("Checks with up to {:,} pods on {} nodes in the cluster".format(*CLUSTER_SIZES[-1]), "2 minutes"):
            checked = [shown(each) for each in checks(world, scene, plan)]
    finally:
        world.stop()
    by_name = {each.name: each for each in started}
    goals = goals_of(by_name[CPU_TO_READY], by_name[PEAK_MEMORY], sizes, list(zip(checked[0], checked[-1], strict=True)))
    goals += [memory.goal_of(large), distance_goal(far)]
    return [*started, *large, size, *itertools.chain(*checked), *evicted, *far, *commanded, *drained, *rotated], goals


def shown(measures: list[Measure]) -> list[Measure]:
    """Prints figures as soon as they are there, because a later step may fail."""
    say(table(measures))
    return measures


# -- measurements ------------------------------------------------------------------------------------------------------

#: The maximum number of rounds of evictions.
ROUND_TRIES = 3
CPU_TO_READY = "CPU to ready"
FAR = f"with {DISTANCE * 1e3:.0f} ms a call"
PEAK_MEMORY = "peak memory after these calls"


def drains(world: World, plan: Plan) -> list[Measure]:
    """A node with a 20-hour Job and a web server under a budget, each time in a new world."""
    wall: list[float] = []
    checks: list[float] = []
    events: list[float] = []
    for _ in range(plan.drains):
        world.reset()
        node = world.group("workers", size=3, minimum=2, maximum=4).nodes[0]
        job = node.job("training", labels=LABELS)
        world.budget(node.deployment("web", replicas=3), min_available=2)
        node.daemon_set("log-shipper")
        world.at("20h", job.finishes)
        execution = world.recycle(node, label_selector=SELECTOR)
        began = time.perf_counter()
        end = execution.finishes()
        wall.append(time.perf_counter() - began)
        if end.outcome != "recycled":
            raise BenchFailed(f"a drain ended otherwise: {end}")
        checks.append(len(execution.entered("CheckPods")))
        events.append(end.history_events)
        say(f"      {wall[-1]:.1f} s, {checks[-1]} checks, {events[-1]:,} events")
    return [
        Measure("a drain of 20 hours, in real time", "s", wall),
        Measure("a drain of 20 hours: checks", "", checks),
        Measure("a drain of 20 hours: events of the history", "", events),
    ]


def rotations(world: World) -> list[Measure]:
    """Measures a small fleet once, because the figures are the same each time."""
    figures = rotation.measure(world, MEDIUM, lambda what, done, of: None)
    if found := failures_of(figures):
        raise BenchFailed(f"a rotation: {found}")
    name = f"a rotation of {figures.nodes} nodes"
    return [
        Measure(f"{name}: times the least that it could take", "", [figures.ratio]),
        Measure(f"{name}: checks a node", "", [figures.checks_per_node]),
        Measure(f"{name}: events of the history a node", "", [figures.events_per_node]),
    ]


def command_lines(plan: Plan, binary: Path) -> list[Measure]:
    """Measures the time for the version and the help of the command line, and its size. The AWS CLI, which is Python, is the
    comparison. The command line needs no C library and no Python, so the file is its whole size."""
    aws = install_python(AWS_CLI_PINS, "aws-cli").parent / "aws"
    commands = {
        "recycle-eks": [str(binary), "--version"],
        "aws": [str(aws), "--version"],
        "help": [str(binary), "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(plan.cold_starts + 1):
        for name, command in commands.items():
            sample = time_of(command)
            if number > 0:
                taken[name].append(sample)
    return [
        Measure("command line, beside the AWS CLI: --version", "ms", taken["recycle-eks"], taken["aws"]),
        Measure("command line: --help", "ms", taken["help"]),
        Measure("command line: size", "MB", [binary.stat().st_size / 1e6]),
    ]


def time_of(command: list[str]) -> float:
    """Returns the milliseconds until the command has ended, without a terminal."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_PAGER": "", "PAGER": "cat"}
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1e3


def starts(world: World, scene: Scene, plan: Plan) -> list[Measure]:
    """Measures cold starts of the check alternately, each with its first call and a few warm ones."""
    taken: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(plan.cold_starts + 1):
        for column, side in enumerate((scene.recycle_eks, scene.python)):
            with closing(world.host.sandbox(side.check.function)) as sandbox:
                cpu_to_ready = cpu_time(sandbox)
                cold, *warm = [call(sandbox, side.check) for _ in range(1 + plan.warm_calls_each)]
            samples = {
                "process start → ready": [sandbox.init_ms],
                CPU_TO_READY: [cpu_to_ready],
                "cold call: process start → first answer": [sandbox.init_ms + cold.wall],
                "CPU of a cold call: process start → first answer": [cpu_to_ready + cold.cpu],
                "warm call": [each.wall for each in warm],
                "CPU of a warm call": [each.cpu for each in warm],
                PEAK_MEMORY: [sandbox.vm_hwm_kb / 1024],
            }
            if number > 0:
                for name, values in samples.items():
                    taken.setdefault(name, ([], []))[column].extend(values)
        say_now_and_then("cold starts", number, plan.cold_starts)
    return [Measure(name, "MiB" if name == PEAK_MEMORY else "ms", *both) for name, both in taken.items()]


def evictions(world: World, scene: Scene, plan: Plan) -> list[Measure]:
    """Measures rounds of new pods alternately, with a process that was called before."""
    taken: tuple[list[Called], list[Called]] = ([], [])
    with both_running(world, scene.recycle_eks.evict, scene.python.evict) as running:
        for number in range(plan.evictions + 1):
            for column, (sandbox, step) in enumerate(running):
                called = empty(world, scene, sandbox, step)
                if number > 0:
                    taken[column].append(called)
        say_now_and_then("rounds", number, plan.evictions)
    return wall_and_cpu(f"evicting {PODS_EVICTED} pods", *taken)


def empty(world: World, scene: Scene, sandbox: Sandbox, step: Step) -> Called:
    """One round. One in which the API server refuses a pod, as it does now and then, takes another call, and is made again."""
    for tries_left in reversed(range(ROUND_TRIES)):
        for pod in add_pods(world, PODS_EVICTED, "web", lambda _: scene.node_to_empty):
            # recycle-eks leaves pods that came after the taint alone, because they tolerate it.
            world.kubernetes.times.pretend_created(pod["metadata"]["uid"], world.clock.start)
        try:
            return call(sandbox, step)
        except BenchFailed:
            if tries_left == 0:
                raise
        finally:
            remove_pods(world, "web")
    raise AssertionError("unreachable")


def checks(world: World, scene: Scene, plan: Plan) -> Iterator[list[Measure]]:
    """Measures the same check in a growing cluster, warm, alternately."""
    for pods, nodes in CLUSTER_SIZES:
        there = len(world.kubernetes.pods())
        say(f"      {pods:,} pods on {nodes} nodes: there are {there:,}")
        others = add_nodes(world, nodes - len(world.kubernetes.nodes()))
        add_pods(world, pods - there, "other", lambda number, names=others: names[number % len(names)])
        # The world keeps every pod in memory, and serves both: its own garbage collection is not to be measured.
        gc.collect()
        gc.freeze()
        taken: tuple[list[Called], list[Called]] = ([], [])
        with both_running(world, scene.recycle_eks.check, scene.python.check) as running:
            for number in range(plan.checks + 1):
                for column, (sandbox, step) in enumerate(running):
                    called = call(sandbox, step)
                    if number > 0:
                        taken[column].append(called)
        yield wall_and_cpu(f"a check with {pods:,} pods on {nodes} nodes in the cluster", *taken)


def distant(world: World, scene: Scene, plan: Plan) -> list[Measure]:
    """Measures the wall times with calls that take longer. A check is compared twice: with the Python version, which only lists
    the pods, and with one that makes the same reads. Then come a cold call and a round of evictions."""
    beside = {
        "only lists the pods": scene.python.check,
        "makes the same reads": scene.python_same_reads,
    }
    measures = []
    with calls_take_longer(world):
        for name, theirs in beside.items():
            with both_running(world, scene.recycle_eks.check, theirs) as running:
                taken = [[call(sandbox, step).wall for sandbox, step in running] for _ in range(plan.checks + 1)]
            measures.append(Measure(f"{FAR}: a check, and Python {name}", "ms", *zip(*taken[1:], strict=True)))
        cold = [[cold_call(world, side.check) for side in (scene.recycle_eks, scene.python)] for _ in range(plan.checks // 3)]
        measures.append(Measure(f"{FAR}: a cold call", "ms", *zip(*cold, strict=True)))
        with both_running(world, scene.recycle_eks.evict, scene.python.evict) as running:
            emptied = [[empty(world, scene, sandbox, step).wall for sandbox, step in running] for _ in range(2)]
        measures.append(Measure(f"{FAR}: evicting {PODS_EVICTED} pods", "ms", *zip(*emptied[1:], strict=True)))
    return measures


@contextmanager
def calls_take_longer(world: World) -> Iterator[None]:
    """Lets each call of a function take `DISTANCE` longer, to AWS and to the API server alike."""

    def take_time(action: str) -> float:
        time.sleep(DISTANCE)
        return 0.0

    proxy = world.kubernetes.proxy
    before = world.aws.latency, proxy.latency
    world.aws.latency = proxy.latency = take_time
    try:
        yield
    finally:
        world.aws.latency, proxy.latency = before


def cold_call(world: World, step: Step) -> float:
    """The milliseconds from the start of a process to its first answer."""
    with closing(world.host.sandbox(step.function)) as sandbox:
        return sandbox.init_ms + call(sandbox, step).wall


def wall_and_cpu(name: str, recycle_eks: list[Called], python: list[Called]) -> list[Measure]:
    return [
        Measure(name, "ms", [each.wall for each in recycle_eks], [each.wall for each in python]),
        Measure(f"{name}: CPU", "ms", [each.cpu for each in recycle_eks], [each.cpu for each in python]),
    ]


# -- one call ----------------------------------------------------------------------------------------------------------


@contextmanager
def both_running(world: World, *steps: Step) -> Iterator[list[tuple[Sandbox, Step]]]:
    """A process for each."""
    with ExitStack() as stack:
        yield [(stack.enter_context(closing(world.host.sandbox(step.function))), step) for step in steps]


_numbers = itertools.count(1)


def call(sandbox: Sandbox, step: Step) -> Called:
    """Makes one invocation, and checks its answer."""
    payload = json.dumps(step.payload).encode()
    cpu = cpu_time(sandbox)
    began = time.perf_counter()
    error, answer = sandbox.handle(f"bench-{next(_numbers)}", payload)
    wall = (time.perf_counter() - began) * 1e3
    if error is not None or step.counted(json.loads(answer)) != step.expected:
        logs = sandbox.log.read_text(errors="replace")[-2000:]
        raise BenchFailed(f"{step.function} did not count {step.expected} pods: {answer.decode()}\n{logs}")
    return Called(wall, cpu_time(sandbox) - cpu)


def cpu_time(sandbox: Sandbox) -> float:
    """Milliseconds of CPU that a process and its threads have used since it was forked, once it waits for its next request.

    The kernel's CPU clock of the process (clock_getcpuclockid): user and system time as in /proc/PID/stat, which cuts them to
    hundredths of a second. The time of reaped children is added from there. Neither side has any.
    """
    time.sleep(0.02)
    clock_of_process = (~sandbox.pid << 3) | 2
    reaped = Path(f"/proc/{sandbox.pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return time.clock_gettime(clock_of_process) * 1e3 + sum(map(int, reaped)) * 1e3 / os.sysconf("SC_CLK_TCK")


# -- output ------------------------------------------------------------------------------------------------------------


def say_now_and_then(what: str, number: int, of: int) -> None:
    """A line for the first, the last, and every fifth."""
    if number in (0, of) or number % 5 == 0:
        say(f"      {what}: {number} of {of}")


def report(plan: Plan, measures: list[Measure], goals: list[Goal]) -> str:
    warm_calls = plan.cold_starts * plan.warm_calls_each
    done = [
        f"{plan.cold_starts} cold starts",
        f"{warm_calls} warm calls",
        f"{plan.checks} checks in each size of cluster",
        f"{plan.evictions} rounds of evictions",
        f"{plan.drains} drains",
    ]
    described = ", ".join(f"{key} {value}" for key, value in machine().items())
    return "\n".join(
        [
            f"\nMedians, in brackets the middle half: {', '.join(done)}.",
            f"recycle-eks {version()}, {described}.\n",
            table(measures),
            "\nGoals:\n",
            goal_lines(goals),
        ]
    )


def machine() -> dict[str, Any]:
    """Describes the machine and the versions of the figures."""
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    pins = python_peer.PACKAGE_PINS.read_text() + python_peer.RUNTIME_PINS.read_text()
    versions = dict(re.findall(r"^(kubernetes|boto3)==(\S+)", pins, re.MULTILINE))
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        **versions,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; nothing is left running")
        sys.exit(130)
