"""The module is applied again during a drain: running executions keep the code that they started with."""

import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from world.deployment import ZIPS, variables
from world.scenario.executions import Execution
from world.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.start_empty()
    yield world
    world.stop()


def packages_with_another(function: str, folder: Path) -> Path:
    """The same packages but for one, which has other bytes."""
    shutil.copytree(ZIPS, folder, ignore=shutil.ignore_patterns("deployment-*"))
    for package in folder.glob(f"*/{function}.zip"):
        with zipfile.ZipFile(package, "a") as archive:
            archive.writestr("README", "a newer release")
    return folder


def versions(world: World, execution: Execution, function: str) -> set[str]:
    """The versions of a function that an execution has invoked."""
    details = (event.get("taskScheduledEventDetails") for event in world.engine.history(execution.arn))
    parameters = "\n".join(each["parameters"] for each in details if each)
    return set(re.findall(rf"function:recycle-eks-{function}:(\d+)", parameters))


def test_at_hour_10_of_a_drain_an_apply_changes_only_what_starts_later(world, tmp_path):
    terraform = world.deployment.apply()
    world.finish_deployment()
    workers = world.group("workers", size=3, minimum=2, maximum=5)
    node, other = workers.nodes[:2]
    job = node.job("train", labels={"app": "train"})
    world.at("20h", job.finishes)
    running = world.recycle(node, label_selector="app=train")
    world.run("10h")

    terraform.apply(**{**variables(), "artifacts_directory": str(packages_with_another("check-pods", tmp_path / "dist"))})
    later = world.recycle(other)

    assert later.finishes().outcome == "recycled"
    assert running.finishes().outcome == "recycled"
    assert versions(world, running, "check-pods") == {"1"}
    assert versions(world, later, "check-pods") == {"2"}
    assert versions(world, later, "evict-pods") <= {"1"}, "what did not change was not published again"
