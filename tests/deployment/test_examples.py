"""Every example is applied by real Terraform to the world's account, planned empty, and destroyed."""

from collections.abc import Callable, Iterator

import pytest

from world.deployment import environment, variables
from world.folders import temporary_folder
from world.terraform import MODULE, Terraform, copy_of_project
from world.world import World

#: example -> what it needs beyond the cluster and the packages
MORE: dict[str, Callable[[World], dict[str, object]]] = {
    "minimal": lambda _: {},
    "private-cluster": lambda world: {
        "subnet_ids": [subnet["SubnetId"] for subnet in world.aws.client("ec2").describe_subnets()["Subnets"]][:2]
    },
}
#: `complete` is what the whole local world is deployed from, and test_terraform.py is about.
ELSEWHERE = {"complete"}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World()
    world.start_empty()
    yield world
    world.stop()


def test_every_example_is_tested():
    assert {folder.name for folder in (MODULE / "examples").iterdir()} == set(MORE) | ELSEWHERE


@pytest.mark.parametrize("example", MORE)
def test_an_example_is_applied_planned_empty_and_destroyed(world, example):
    folder = copy_of_project(temporary_folder("terraform")) / "examples" / example
    terraform, given = Terraform(folder, environment(world.aws.endpoint)), {**variables(), **MORE[example](world)}
    terraform.init()
    terraform.apply(**given)
    assert terraform.plan_is_empty(**given)
    terraform.destroy(**given)
    assert world.aws.client("lambda").list_functions()["Functions"] == []
    assert world.aws.client("sns").list_topics()["Topics"] == []
    assert world.aws.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert world.aws.client("sqs").list_queues().get("QueueUrls", []) == []
