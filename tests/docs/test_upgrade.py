"""docs/upgrade.md: an upgrade and a rollback while two drains run. Each execution ends on the code with which it began."""

import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from world.deployment import HOOKED, ZIPS, variables
from world.scenario.executions import Execution
from world.world import World

CHANGED = "check-pods"


@pytest.fixture
def world() -> Iterator[World]:
    """Account and cluster, with nothing of recycle-eks in them."""
    world = World()
    world.start_empty()
    yield world
    world.stop()


def newer_packages(folder: Path) -> Path:
    """The same packages, except that one function has other bytes."""
    shutil.copytree(ZIPS, folder, ignore=shutil.ignore_patterns("deployment-*"))
    for package in folder.glob(f"*/{CHANGED}.zip"):
        with zipfile.ZipFile(package, "a") as archive:
            archive.writestr("README", "a newer release")
    return folder


def versions(world: World, execution: Execution) -> set[str]:
    """The versions of the changed function that an execution has invoked."""
    details = (event.get("taskScheduledEventDetails") for event in world.engine.history(execution.arn))
    parameters = "\n".join(each["parameters"] for each in details if each)
    return set(re.findall(rf"function:recycle-eks-{CHANGED}:(\d+)", parameters))


@pytest.mark.long
def test_drains_end_on_their_code_through_an_upgrade_and_a_rollback(world, tmp_path):
    terraform = world.deployment.apply()
    world.finish_deployment()
    for hooked in HOOKED:
        world.group(hooked, size=0, minimum=0)
    groups = [world.group(name, size=2, minimum=1, maximum=4) for name in ("older", "newer", "again")]
    nodes = [group.nodes[0] for group in groups]
    for node in nodes:
        job = node.job(f"training-{node.instance_id}")
        world.at("20h", job.finishes)
    upgraded = {**variables(), "artifacts_directory": str(newer_packages(tmp_path / "dist"))}

    executions = [world.recycle(nodes[0])]
    world.run("1h")
    terraform.apply(**upgraded)
    executions.append(world.recycle(nodes[1]))
    world.run("1h")
    terraform.apply(**variables())
    assert terraform.plan_is_empty(**variables())
    executions.append(world.recycle(nodes[2]))

    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 3
    assert [versions(world, execution) for execution in executions] == [{"1"}, {"2"}, {"3"}]
