"""Every example is applied by real Terraform to the world's account, planned empty, and destroyed."""

import shutil
from collections.abc import Callable

from prepare import host_architecture
from terraform_rights import unlisted
from world.aws.identity import REGION
from world.deployment import CLUSTER, ZIPS, environment
from world.process.folders import temporary_folder
from world.process.terraform import AS_KNOWN, MODULE, Terraform, copy_of_project
from world.world import World


def make_group(world: World, name: str) -> None:
    ec2, autoscaling = world.aws.client("ec2"), world.aws.client("autoscaling")
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-12c6146b"})
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=0,
        AvailabilityZones=[f"{REGION}a"],
        LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"]},
    )


def subnets(world: World) -> list[str]:
    return [subnet["SubnetId"] for subnet in world.aws.client("ec2").describe_subnets()["Subnets"]][:2]


def make_node_group(world: World) -> dict[str, object]:
    """Creates a node group as EKS does, with an Auto Scaling group whose name only EKS returns."""
    made = world.aws.client("eks").create_nodegroup(
        clusterName=CLUSTER, nodegroupName="batch", subnets=subnets(world), nodeRole="arn:aws:iam::123456789012:role/nodes"
    )
    make_group(world, made["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])
    return {"node_group_name": "batch"}


#: example -> what has to be there, and is given, beyond the cluster and the packages
MORE: dict[str, Callable[[World], dict[str, object]]] = {
    "private-cluster": lambda world: {"subnet_ids": subnets(world)},
    "with-triggers": lambda _: {"auto_scaling_group_name": "workers"},
    "managed-node-group": make_node_group,
    "minimal": lambda _: {},
}
#: `complete` is what the whole local world is deployed from, and test_terraform.py is about.
ELSEWHERE = {"complete"}


def given() -> dict[str, object]:
    return {"cluster_name": CLUSTER, "artifacts_directory": str(ZIPS), "architecture": host_architecture()}


def test_every_example_is_tested():
    assert {folder.name for folder in (MODULE / "examples").iterdir()} == set(MORE) | ELSEWHERE


def test_an_example_is_applied_planned_empty_and_destroyed(empty_world):
    """All of them in one state: the first is applied to an empty account. Each other one creates what only it has, and destroys
    what only the one before had. So everything that an example creates is also destroyed."""
    project = copy_of_project(temporary_folder("terraform"))
    folder = project / "examples" / "one-after-the-other"
    folder.mkdir()
    terraform = Terraform(folder, environment(empty_world.aws.endpoint))
    by_terraform = []
    for example, more in MORE.items():
        for file in folder.glob("*.tf"):
            file.unlink()
        shutil.copytree(project / "examples" / example, folder, dirs_exist_ok=True)
        variables = {**given(), **more(empty_world)}
        calls_before = len(empty_world.aws.calls)
        terraform.init()
        terraform.apply(AS_KNOWN, **variables)
        assert terraform.plan_is_empty(**variables), example
        by_terraform += empty_world.aws.calls[calls_before:]
    calls_before = len(empty_world.aws.calls)
    terraform.destroy(AS_KNOWN, **variables)
    by_terraform += empty_world.aws.calls[calls_before:]
    assert unlisted(call.action for call in by_terraform) == set()
    assert empty_world.aws.client("lambda").list_functions()["Functions"] == []
    assert empty_world.aws.client("stepfunctions").list_state_machines()["stateMachines"] == []
    assert empty_world.aws.client("iam").list_roles()["Roles"] == []
    assert empty_world.aws.client("logs").describe_log_groups()["logGroups"] == []
    assert empty_world.aws.client("sns").list_topics()["Topics"] == []
    assert empty_world.aws.client("events").list_rules()["Rules"] == []
    assert empty_world.aws.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert empty_world.aws.client("sqs").list_queues().get("QueueUrls", []) == []
    assert empty_world.eks.access_entries() == []
