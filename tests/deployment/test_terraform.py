"""The real module in the world's account, changed and destroyed by real Terraform. test_first_apply.py has the beginning."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from prepare import LAMBDAS, ROOT, STEPS
from terraform_rights import unlisted
from world.aws.identity import REGION
from world.deployment import ALARM_TOPIC, HOOKED, ZIPS, variables
from world.process.terraform import AS_KNOWN, Terraform, TerraformFailed
from world.scenario.executions import Execution
from world.scenario.groups import TEMPLATE
from world.world import World


@pytest.fixture(scope="module")
def applied(empty_world: World) -> Terraform:
    return empty_world.deployment.deploy_for_terraform()


def test_the_plan_of_a_small_change_is_read_in_a_minute(applied):
    """The definitions of the state machines have a thousand lines, and change with the version of any function."""
    plan = applied.plan(AS_KNOWN, **{**variables(), "cancel_instance_refresh": False})
    assert re.search(r'"CANCEL_INSTANCE_REFRESH" += "true" -> "false"', plan), plan
    assert re.search(r"definition += \(sensitive value\)", plan), plan
    assert len(plan.splitlines()) <= 120, plan


def test_every_function_is_published_and_called_by_version(empty_world, applied):
    outputs, client = empty_world.deployment.outputs, empty_world.aws.client("stepfunctions")
    machines = [outputs["state_machine_alias_arn"].rpartition(":")[0], outputs["sweep_state_machine_arn"]]
    definitions = "".join(client.describe_state_machine(stateMachineArn=machine)["definition"] for machine in machines)
    functions = {each["FunctionName"]: each for each in empty_world.aws.client("lambda").list_functions()["Functions"]}
    assert functions.keys() == {f"recycle-eks-{name}" for name in LAMBDAS}
    for step in STEPS:
        assert f'{functions[f"recycle-eks-{step}"]["FunctionArn"]}:1"' in definitions


def test_the_role_of_every_step_may_enter_the_cluster_and_no_other(empty_world, applied):
    functions = empty_world.aws.client("lambda").list_functions()["Functions"]
    roles = {function["Role"] for function in functions if function["FunctionName"] != "recycle-eks-start-rotation"}
    entries = empty_world.eks.access_entries()
    assert {principal for principal, _, _ in entries} == roles
    groups_of = {principal.rpartition("/")[2]: groups for principal, _, groups in entries}
    may_evict = [name for name, groups in groups_of.items() if "recycle-eks-evict" in groups]
    assert may_evict == [f"recycle-eks-evict-pods-{REGION}"]


def test_a_failed_execution_is_published_to_the_topic(empty_world, applied):
    empty_world.finish_deployment()
    empty_world.recycle({"instance_id": "nonsense"}).finishes()
    empty_world.clock.run(limit=empty_world.clock.elapsed() + 60)
    (notification,) = empty_world.events.notifications
    assert notification.topic == empty_world.deployment.outputs["notification_topic_arn"]
    for words in ("failed", "InvalidInput", "instance_id must be an instance id", "nonsense"):
        assert words in notification.message


def with_value(value: object, **selection: object) -> dict[str, object]:
    """The variables, with a value whose change rotates the group of that name."""
    selected = {"groups": ["workers"], "launch_template": True, **selection}
    return {**variables(), "rotate_on_change": {"workers": {"value": value, "selection": {"outdated": selected}}}}


@pytest.fixture
def hooked_groups(empty_world, applied):
    """The groups whose lifecycle hooks the module manages: without them AWS changes and deletes no hook."""
    empty_world.finish_deployment()
    for hooked in HOOKED:
        empty_world.group(hooked, size=0, minimum=0)


@pytest.fixture
def workers(empty_world, hooked_groups):
    """The group whose value changes. Each test has its own, as another process may run the test before."""
    return empty_world.group("workers", size=1, minimum=1, maximum=4)


def test_an_apply_of_a_changed_value_starts_a_rotation_and_returns(empty_world, applied, workers):
    old = set(workers.states)
    template = {"LaunchTemplateName": "workers", "LaunchTemplateData": {**TEMPLATE, "EbsOptimized": True}}
    empty_world.aws.client("ec2").create_launch_template_version(**template)

    applied.apply(**with_value("2"))

    (rotation,) = empty_world.executions("rotate-nodes")
    assert rotation.status == "RUNNING"
    # The value is the same, and the selection another.
    applied.apply(**with_value("2", ami=True))
    assert len(empty_world.executions("rotate-nodes")) == 1
    assert rotation.finishes().outcome == "rotated"
    assert [execution.finishes().outcome for execution in empty_world.executions()] == ["recycled"]
    assert not old & set(workers.states)


def test_a_rotation_that_makes_no_sense_is_refused_by_the_apply(empty_world, applied, workers):
    criteria = "launch_template, ami, kubelet, older_than, launched_before or all"
    with pytest.raises(TerraformFailed, match=f"outdated needs at least one of {criteria}"):
        applied.apply(**with_value("3", launch_template=False))
    # The provider takes a refused change for made.
    assert applied.plan_is_empty(**with_value("3", launch_template=False))
    applied.apply(**with_value("4"))
    assert empty_world.executions("rotate-nodes")[-1].finishes().outcome == "nothing_selected"


def test_the_page_names_the_apis_that_each_function_calls(empty_world, applied):
    """A function's permissions are what its code calls; logs, and the queue of what failed, are Lambda's own, from outside of
    any VPC."""
    iam, called = empty_world.aws.client("iam"), {}
    for function in LAMBDAS:
        policy = iam.get_role_policy(RoleName=f"recycle-eks-{function}-{REGION}", PolicyName=function)["PolicyDocument"]
        actions = [action for statement in policy["Statement"] for action in as_list(statement["Action"])]
        called[function] = {action.partition(":")[0] for action in actions} - {"logs", "sqs"}
    rows = re.findall(r"^\| `([a-z-]+)` \| (`[a-z`, 0-9]+) \|$", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert {function: set(re.findall(r"`([a-z0-9]+)`", apis)) for function, apis in rows} == called


def test_the_access_entry_of_a_role_that_was_created_again_is_created_again(empty_world, applied, hooked_groups):
    """EKS keeps the role's unique id in it."""
    iam, role = empty_world.aws.client("iam"), f"recycle-eks-taint-node-{REGION}"
    arn = iam.get_role(RoleName=role)["Role"]["Arn"]
    iam.delete_role_policy(RoleName=role, PolicyName="taint-node")
    iam.delete_role(RoleName=role)
    assert arn not in {principal for principal, _, _ in empty_world.eks.access_entries()}
    # Another tool creates a role of the same name. For Terraform it is the same role.
    iam.create_role(RoleName=role, AssumeRolePolicyDocument="{}")
    assert arn not in {principal for principal, _, _ in empty_world.eks.access_entries()}

    applied.apply(**variables())

    assert arn in {principal for principal, _, _ in empty_world.eks.access_entries()}


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


def test_drains_end_on_their_code_through_an_upgrade_and_a_rollback(empty_world, applied, hooked_groups, tmp_path):
    world = empty_world
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    nodes = workers.nodes[:3]
    for node in nodes:
        job = node.job(f"training-{node.instance_id}", labels={"app": "train"})
        world.at("2h", job.finishes)

    executions = [world.recycle(nodes[0], label_selector="app=train")]
    world.run("20m")
    applied.apply(**{**variables(), "artifacts_directory": str(packages_with_another("check-pods", tmp_path / "dist"))})
    executions.append(world.recycle(nodes[1], label_selector="app=train"))
    world.run("40m")
    applied.apply(**variables())
    executions.append(world.recycle(nodes[2], label_selector="app=train"))

    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 3
    assert [versions(world, execution, "check-pods") for execution in executions] == [{"1"}, {"2"}, {"3"}]
    assert versions(world, executions[1], "evict-pods") <= {"1"}, "what did not change was not published again"


def as_list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_destroy_describes_the_nodes_and_leaves_nothing(empty_world, applied, hooked_groups):
    rotations = len(empty_world.executions("rotate-nodes"))
    calls_before = len(empty_world.aws.calls)
    said = applied.destroy(**variables())
    assert unlisted(call.action for call in empty_world.aws.calls[calls_before:]) == set()
    assert len(empty_world.executions("rotate-nodes")) == rotations
    assert "(local-exec): Executions that still run stop here, and their nodes are not restored" in said
    assert said.index("(local-exec)") < said.index('aws_lambda_function.this["restore-node"]: Destroying')
    assert empty_world.aws.client("lambda").list_functions()["Functions"] == []
    assert empty_world.aws.client("stepfunctions").list_state_machines()["stateMachines"] == []
    assert empty_world.aws.client("iam").list_roles()["Roles"] == []
    assert empty_world.aws.client("logs").describe_log_groups()["logGroups"] == []
    assert [topic["TopicArn"] for topic in empty_world.aws.client("sns").list_topics()["Topics"]] == [ALARM_TOPIC]
    assert empty_world.aws.client("sns").list_subscriptions()["Subscriptions"] == []
    assert empty_world.aws.client("scheduler").list_schedules()["Schedules"] == []
    assert empty_world.aws.client("events").list_rules()["Rules"] == []
    assert empty_world.eks.access_entries() == []
