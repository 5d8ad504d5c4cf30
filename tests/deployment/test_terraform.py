"""The real module, applied by real Terraform to the world's account: second plan empty, destroyed without a trace."""

from collections.abc import Iterator

import pytest

from prepare import LAMBDAS
from world.deployment import variables
from world.terraform import Terraform
from world.world import World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Account and cluster, with nothing of recycle-eks in them."""
    world = World()
    world.start_empty()
    yield world
    world.stop()


@pytest.fixture(scope="module")
def applied(world: World) -> Terraform:
    return world.deployment.apply()


def test_a_second_plan_is_empty(applied):
    assert applied.plan_is_empty(**variables())


def test_every_function_is_published_and_called_by_version(world, applied):
    outputs, client = world.deployment.outputs, world.aws.client("stepfunctions")
    machines = [outputs["state_machine_alias_arn"].rpartition(":")[0], outputs["sweep_state_machine_arn"]]
    definitions = "".join(client.describe_state_machine(stateMachineArn=machine)["definition"] for machine in machines)
    functions = world.aws.client("lambda").list_functions()["Functions"]
    assert len(functions) == len(LAMBDAS)
    for function in functions:
        assert f'{function["FunctionArn"]}:1"' in definitions


def test_every_role_may_enter_the_cluster(world, applied):
    roles = {function["Role"] for function in world.aws.client("lambda").list_functions()["Functions"]}
    entries = world.eks.access_entries()
    assert {principal for principal, _, _ in entries} == roles
    assert all(groups == ["recycle-eks"] for _, _, groups in entries)


def test_a_failed_execution_is_told_to_the_topic(world, applied):
    world.finish_deployment()
    world.recycle({"instance_id": "nonsense"}).finishes()
    world.clock.run(limit=world.clock.elapsed() + 60)
    (notification,) = world.events.notifications
    assert notification.topic == world.deployment.outputs["notification_topic_arn"]
    for words in ("failed", "InvalidInput", "instance_id must be an instance id", "nonsense"):
        assert words in notification.message


def test_destroy_says_what_becomes_of_nodes_and_leaves_nothing(world, applied):
    said = applied.destroy(**variables())
    assert "(local-exec): Executions that still run stop here, and nobody puts their nodes back" in said
    assert said.index("(local-exec)") < said.index('aws_lambda_function.this["restore-node"]: Destroying')
    assert world.aws.client("lambda").list_functions()["Functions"] == []
    assert world.aws.client("stepfunctions").list_state_machines()["stateMachines"] == []
    assert world.aws.client("iam").list_roles()["Roles"] == []
    assert world.aws.client("logs").describe_log_groups()["logGroups"] == []
    assert world.aws.client("sns").list_topics()["Topics"] == []
    assert world.aws.client("events").list_rules()["Rules"] == []
    assert world.eks.access_entries() == []
