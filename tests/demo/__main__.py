"""Recycles one node of three before your eyes: real functions, a real API server, and a clock that does not wait.

Any field of an execution's input may be given as FIELD=VALUE:

    make demo
    make demo ARGS="label_selector=app=web evict=none"
    make demo ARGS="--cluster budgets drain_timeout_seconds=3600"
    make demo ARGS=--keep
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo.clusters import CLUSTERS
from demo.lines import Lines
from demo.screen import Screen
from demo.watch import Watch, clock_face
from picture import steps
from world.deployment import variables
from world.terraform import Terraform
from world.world import CLUSTER, End, Execution, World


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse(sys.argv[1:])
    began = time.monotonic()
    world = World(say=stage)
    try:
        terraform = deploy(world, by_terraform=arguments.terraform or arguments.keep)
        end = recycle(world, arguments)
        if arguments.keep:
            stand(world, terraform)
        elif terraform:
            stage("terraform destroy")
            terraform.destroy(**variables())
            print("everything is gone again")
    except KeyboardInterrupt:
        end = None
    finally:
        world.stop()
    if end is None:
        print("\nstopped; nothing is left running")
        return 130
    print(f"\nThe demo took {time.monotonic() - began:.0f} s.")
    return 0 if end.outcome == "recycled" or arguments.fields else 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    stories = "\n".join(f"  {name:9}{cluster.story}" for name, cluster in CLUSTERS.items())
    parser = argparse.ArgumentParser(
        "make demo", description=__doc__, epilog=f"clusters:\n{stories}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fields", nargs="*", metavar="FIELD=VALUE", type=field, help="a field of the execution's input")
    parser.add_argument("--cluster", choices=CLUSTERS, default="tidy", help="which ready-made cluster (default: tidy)")
    parser.add_argument("--plain", action="store_true", help="lines instead of a screen, as where there is no terminal")
    parser.add_argument("--terraform", action="store_true", help="apply and destroy by Terraform even if nothing has changed")
    parser.add_argument("--keep", action="store_true", help="leave the world standing at the end, to explore it")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="save a picture of the screen (SVG)")
    given = parser.parse_intermixed_args(arguments)
    if given.picture and not given.picture.parent.is_dir():
        parser.error(f"there is no folder {given.picture.parent} for the picture")
    return given


def field(text: str) -> tuple[str, Any]:
    """A value is JSON if it can be read as that, else a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    with contextlib.suppress(json.JSONDecodeError):
        return name, json.loads(value)
    return name, value


def deploy(world: World, by_terraform: bool) -> Terraform | None:
    """By making Terraform's recorded calls again where that does; else by Terraform, which is returned."""
    stage("An AWS account and a Kubernetes cluster on this machine, and recycle-eks deployed into them")
    if not by_terraform:
        world.start()
        return None
    world.start_empty()
    stage("terraform apply of terraform/examples/complete (about a minute)")
    terraform = world.deployment.apply()
    world.finish_deployment()
    return terraform


def recycle(world: World, arguments: argparse.Namespace) -> End:
    cluster = CLUSTERS[arguments.cluster]
    workers = cluster.build(world)
    node = workers.nodes[0]
    given = {"instance_id": node.instance_id, "cluster_name": CLUSTER, "label_selector": "app=training", **dict(arguments.fields)}
    print(f"\nOn {node.name}: {cluster.story}.")

    stage("The plan: a dry run of the same input")
    dry_run = world.recycle({**given, "dry_run": True}).finishes()
    plan = dry_run.output or {}
    for line in [*plan["plan"]["steps"], *plan["plan"]["notes"]] if plan else [dry_run.cause]:
        print(f"- {line}")

    stage(f"One execution: {json.dumps(given)}")
    execution = world.recycle(given)
    watch = Watch(world, workers, node, execution, plan.get("names", {}))
    began = time.monotonic()
    with view_for(world, arguments, json.dumps(given)) as view:

        def show() -> None:
            view.show(watch.look())

        world.clock.before_jump.append(show)
        try:
            end = execution.finishes()
            show()
        finally:
            world.clock.before_jump.remove(show)
    sum_up(end, execution, workers.sizes, list(workers.states.values()), time.monotonic() - began)
    return end


def view_for(world: World, arguments: argparse.Namespace, title: str) -> Screen | Lines:
    if arguments.picture is None and (arguments.plain or not sys.stdout.isatty()):
        return Lines()
    machine = world.deployment.outputs["state_machine_alias_arn"].rpartition(":")[0]
    definition = world.aws.client("stepfunctions").describe_state_machine(stateMachineArn=machine)["definition"]
    return Screen(title, steps(json.loads(definition)), arguments.picture)


def sum_up(end: End, execution: Execution, sizes: tuple[int, int, int], states: list[str], took: float) -> None:
    stage("Summary")
    minimum, desired, maximum = sizes
    print(f"outcome          {end.outcome or end.error}: {(end.output or {}).get('reason', end.cause)}")
    print(f"virtual time     {clock_face(end.at).strip()} in {took:.1f} real seconds")
    print(f"history          {end.history_events:,} of 25,000 events, {len(execution.entered('CheckPods'))} polls")
    print(f"group            min {minimum}, desired {desired}, max {maximum}; {', '.join(states)}")


def stand(world: World, terraform: Terraform) -> None:
    """Until Ctrl-C. Time goes on only while an execution runs."""
    alias = world.deployment.outputs["state_machine_alias_arn"]
    settings = {**world.environment(), "TF_CLI_CONFIG_FILE": terraform.environment["TF_CLI_CONFIG_FILE"]}
    (terraform.folder / "terraform.tfvars.json").write_text(json.dumps(variables()))
    stage("The world stands. In another terminal:")
    for name, value in settings.items():
        print(f"export {name}={shlex.quote(value)}")
    print(f"""
kubectl get nodes,pods --all-namespaces
aws autoscaling describe-auto-scaling-instances
aws stepfunctions list-executions --state-machine-arn {alias.rpartition(":")[0]}
terraform -chdir={terraform.folder} plan

Start executions as you like, with
{world.deployment.outputs["start_execution_command"]}
Virtual time stands still otherwise. Ctrl-C ends it all.""")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            world.clock.run(limit=world.clock.elapsed())
            for execution in world.engine.executions_of(alias.rpartition(":")[0], "RUNNING"):
                end = Execution(world, execution.arn).finishes()
                name = execution.arn.rpartition(":")[2]
                print(f"{clock_face(end.at)}  {name}: {end.outcome or end.error} {end.cause}", flush=True)
            time.sleep(0.3)


def stage(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
