"""Pre-flight refuses by name, everything at once, and touches nothing. A later disruption is reported at the next check."""

import json
import shlex

from world.deployment import CLUSTER

TAG = f"kubernetes.io/cluster/{CLUSTER}"
ACTIVE_REFRESHES = ["Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"]


def set_weights(world, group: str) -> None:
    template = world.autoscaling.group(group).ec2_launch_template.id
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
            "Overrides": [
                {"InstanceType": "m7i.2xlarge", "WeightedCapacity": "2"},
                {"InstanceType": "m7i.4xlarge", "WeightedCapacity": "4"},
            ],
        }
    }
    world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, MixedInstancesPolicy=policy)
    world.forget_calls()


def refresh(world, group: str, status: str = "InProgress") -> None:
    done = {"InstanceRefreshId": "1", "AutoScalingGroupName": group, "Status": "Successful"}
    world.autoscaling.report_refreshes(group, {**done, "InstanceRefreshId": "2", "Status": status}, done)


def fill_warm_pool(world, node) -> None:
    world.autoscaling.move_to_warm_pool(node.instance_id)


def untag_instance(world, node) -> None:
    world.aws.client("ec2").delete_tags(Resources=[node.instance_id], Tags=[{"Key": TAG}])


def untag_group(world, node) -> None:
    tag = {"ResourceId": node.group.name, "ResourceType": "auto-scaling-group", "Key": TAG}
    world.aws.client("autoscaling").delete_tags(Tags=[tag])


def name_other_cluster(world, node) -> None:
    untag_instance(world, node)
    other = {"Key": "kubernetes.io/cluster/production", "Value": "owned"}
    world.aws.client("ec2").create_tags(Resources=[node.instance_id], Tags=[other])


def belong_to_another_tool(world, node, label, value) -> None:
    """Its instances are in no group."""
    node.kubernetes.label(**{label: value})
    world.aws.client("autoscaling").detach_instances(
        AutoScalingGroupName=node.group.name, InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    )
    world.wait("5m")


#: The reason against the node, and the change that causes it.
OBSTACLES = {
    "suspended_process": lambda world, node: node.group.suspend("Launch"),
    "instance_refresh": lambda world, node: refresh(world, node.group.name),
    "scale_in_protection": lambda world, node: node.group.protect(node),
    "removed_by_autoscaler": lambda world, node: node.kubernetes.add_taint("ToBeDeletedByClusterAutoscaler", value="1"),
    "disrupted_by_karpenter": lambda world, node: node.kubernetes.add_taint("karpenter.sh/disrupted"),
    "karpenter": lambda world, node: belong_to_another_tool(world, node, "karpenter.sh/nodepool", "spot"),
    "auto_mode": lambda world, node: belong_to_another_tool(world, node, "eks.amazonaws.com/compute-type", "auto"),
    "fargate": lambda world, node: belong_to_another_tool(world, node, "eks.amazonaws.com/compute-type", "fargate"),
    "weighted_group": lambda world, node: set_weights(world, node.group.name),
    "foreign_standby": lambda world, node: world.aws.client("autoscaling").enter_standby(
        AutoScalingGroupName=node.group.name, InstanceIds=[node.instance_id], ShouldDecrementDesiredCapacity=True
    ),
    "no_node": lambda world, node: world.kubernetes.remove_node(node.name),
    "warm_pool": fill_warm_pool,
    "another_cluster": lambda world, node: name_other_cluster(world, node),
    "missing_cluster_tag": lambda world, node: untag_instance(world, node),
}


def test_each_obstacle_is_refused_by_name_before_anything_is_written(world):
    for name, cause in OBSTACLES.items():
        node = world.group(f"with-{name}", size=2, minimum=1, maximum=4).nodes[0]
        cause(world, node)
        world.forget_calls()

        end = world.recycle(node).finishes()

        assert (end.status, end.error) == ("FAILED", "PreflightRefused"), name
        assert end.cause.startswith(f"{name}: "), (name, end.cause)
        assert world.writes() == [], name


def test_a_sick_node_that_is_to_be_kept_is_refused_before_it_could_count_as_lost(world, node):
    node.falls_silent()
    world.run("2m")
    world.forget_calls()

    for dispose in ("stop", "detach"):
        end = world.recycle(node, dispose=dispose).finishes()

        assert end.error == "PreflightRefused" and end.cause.startswith("not_ready: "), (dispose, end.cause)
        assert f"detach-instances --auto-scaling-group-name workers --instance-ids {node.instance_id}" in end.cause, dispose
        assert world.writes() == [], dispose


def test_without_the_clusters_tag_nothing_is_touched_and_the_commands_in_the_text_set_it(world, node):
    untag_instance(world, node)
    untag_group(world, node)
    world.forget_calls()

    for dry_run in (True, False):
        end = world.recycle(node, dry_run=dry_run).finishes()

        assert end.error == "PreflightRefused" and world.writes() == [], dry_run
        of_instance, of_group, last = end.cause.splitlines()
        assert last == "The node is untouched.", dry_run
        assert of_instance.startswith("missing_cluster_tag: ") and of_group.startswith("missing_cluster_tag: "), dry_run
    words = shlex.split(of_instance.split("set it: ")[1])
    assert words == ["aws", "ec2", "create-tags", "--resources", node.instance_id, "--tags", f"Key={TAG},Value=owned"]
    *command, tag = shlex.split(of_group.split("set it: ")[1])
    assert command == ["aws", "autoscaling", "create-or-update-tags", "--tags"]
    world.aws.client("ec2").create_tags(Resources=[node.instance_id], Tags=[{"Key": TAG, "Value": "owned"}])
    world.aws.client("autoscaling").create_or_update_tags(Tags=[json.loads(tag)])
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_members_that_a_restore_could_not_protect_are_refused(world, node):
    other = node.group.nodes[1]
    untag_instance(world, other)
    world.forget_calls()

    end = world.recycle(node).finishes()

    assert end.error == "PreflightRefused" and world.writes() == []
    assert end.cause.startswith(f"missing_cluster_tag: member {other.instance_id} of the same group"), end.cause
    assert world.recycle(node, replacement="after", dry_run=True).finishes().outcome == "planned"


def test_the_plan_notes_launches_without_the_clusters_tag_and_the_refusals_that_the_input_overrides(world, node):
    tag = {"ResourceId": node.group.name, "ResourceType": "auto-scaling-group", "Key": TAG, "Value": "owned"}
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**tag, "PropagateAtLaunch": False}])
    node.group.protect(node)

    end = world.recycle(node, dry_run=True, override=["scale_in_protection"]).finishes()

    assert end.outcome == "planned"
    notes = end.output["plan"]["notes"]
    assert [note for note in notes if note.startswith(f"group workers does not set the tag {TAG}")], notes
    assert [note for note in notes if note.startswith("the input overrides scale_in_protection: ")], notes


#: The Kubernetes group of the functions, and the calls that it may make.
RIGHTS = {
    "recycle-eks-read": "get nodes, list nodes, list pods, get persistentvolumeclaims, get persistentvolumes, "
    "list poddisruptionbudgets.policy, list resourceslices.resource.k8s.io",
    "recycle-eks-write": "patch nodes, patch pods/status, create events",
    "recycle-eks-evict": "create pods/eviction, delete pods",
    "recycle-eks-review": "create subjectaccessreviews.authorization.k8s.io",
}


def test_missing_permissions_of_each_group_are_refused_by_name_with_all_else(world, node):
    node.group.protect(node)
    for group, calls in RIGHTS.items():
        world.kubernetes.must("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{group}")
        try:
            end = world.recycle(node).finishes()
        finally:
            world.kubernetes.apply(world.deployment.outputs["rbac_manifest"])

        names = [line.split(":")[0] for line in end.cause.splitlines()[:-1]]
        assert names == ["missing_permission", "scale_in_protection"], (group, end.cause)
        assert f"in cluster world the group {group} may not {calls}; apply the manifest" in end.cause, end.cause
        assert world.writes() == [], group


def test_all_refusals_are_reported_at_once(world, node):
    node.group.protect(node)
    node.group.suspend("Launch", "Terminate")
    refresh(world, "workers")
    set_weights(world, "workers")
    node.kubernetes.add_taint("ToBeDeletedByClusterAutoscaler", value="1")
    world.forget_calls()

    for dry_run in (False, True):
        end = world.recycle(node, dry_run=dry_run).finishes()

        names = [line.split(":")[0] for line in end.cause.splitlines()[:-1]]
        assert (end.error, names) == (
            "PreflightRefused",
            ["removed_by_autoscaler", "instance_refresh", "weighted_group", "scale_in_protection", "suspended_process"],
        ), dry_run
        assert world.writes() == [], dry_run


def test_a_group_that_protects_every_member_and_terminates_none_in_service_is_recycled_without_a_remark(world, node, job):
    """A fleet is often launched with this protection. A suspended Terminate holds members in service, but none in Standby."""
    scaling = world.aws.client("autoscaling")
    scaling.update_auto_scaling_group(AutoScalingGroupName="workers", NewInstancesProtectedFromScaleIn=True)
    for each in node.group.nodes:
        node.group.protect(each)
    node.group.suspend("Terminate")

    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    assert "RecycleDisturbed" not in {event["reason"] for event in world.kubernetes.events(node.name)}
    job.finishes()
    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert sorted(node.group.states.values()) == ["InService"] * len(node.group.states)
    # Without Standby the member would be terminated while it is in service.
    after = world.recycle(node.group.nodes[0], replacement="after").finishes()
    assert after.error == "PreflightRefused" and "has Terminate suspended" in after.cause


def test_an_instance_refresh_counts_until_it_is_over(world, node):
    for status in ACTIVE_REFRESHES:
        refresh(world, "workers", status)
        cause = world.recycle(node).finishes().cause
        assert cause.startswith(f"instance_refresh: an instance refresh of group workers is {status}"), cause

    refresh(world, "workers", "Successful")
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_a_managed_group_that_is_being_updated_is_left_to_eks(world):
    workers = world.group("workers", size=2, minimum=1, maximum=4, node_group="blue")
    node = workers.nodes[0]
    world.eks.set_node_group_status("world", "blue", "UPDATING")

    end = world.recycle(node).finishes()
    assert end.cause.startswith("managed_group_update: the EKS managed node group blue is UPDATING"), end.cause

    # If the update begins in the drain, it is reported.
    world.eks.set_node_group_status("world", "blue", "ACTIVE")
    job = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.at("5m", lambda: world.eks.set_node_group_status("world", "blue", "UPDATING"))
    world.at("8m", job.finishes)
    assert execution.finishes().outcome == "recycled"
    reasons = [answer["reason"] for answer in execution.answers("CheckPods")]
    assert "managed_group_update" not in reasons[0] and "managed_group_update" in reasons[-2], reasons


def test_an_endpoint_that_never_answers_is_refused_with_a_hint_after_some_attempts(world, node):
    def come_back() -> None:
        world.kubernetes.proxy.is_reachable = True

    world.kubernetes.proxy.is_reachable = False

    execution = world.recycle(node)
    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert end.cause.startswith(f"unreachable_endpoint: the endpoint {world.kubernetes.endpoint} of cluster world")
    assert "list of CIDR blocks" in end.cause and "If it is private" in end.cause
    assert execution.errors("ClaimNode") == ["ServiceUnavailable"] * 8 + ["PreflightRefused"]
    assert world.writes() == []

    # An API server that comes back in time is waited for.
    world.at(world.clock.elapsed() + 10, come_back)
    assert world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_a_cluster_that_answered_once_is_only_away(world, node, job):
    """An execution that resumes finds the claim on the instance: an execution has reached the cluster before."""
    stopped = world.recycle(node, label_selector="app=train")
    world.run("4m")
    stopped.stop()
    world.kubernetes.proxy.is_reachable = False

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.error == "ServiceUnavailable", end.cause


#: The disruption of the drain, and the change that causes it.
MEANWHILE = {
    "instance_refresh": lambda world, node: refresh(world, node.group.name),
    "suspended_process": lambda world, node: node.group.suspend("Launch"),
    "scale_in_protection": lambda world, node: node.group.protect(node),
    "removed_by_autoscaler": lambda world, node: node.kubernetes.add_taint("ToBeDeletedByClusterAutoscaler", value="1"),
    "disrupted_by_karpenter": lambda world, node: node.kubernetes.add_taint("karpenter.sh/disrupted"),
}


def test_a_disruption_of_the_drain_is_reported_at_the_next_check_and_the_drain_goes_on(world):
    nodes = {name: world.group(f"with-{name}", size=2, minimum=1, maximum=4).nodes[0] for name in MEANWHILE}
    jobs = [node.job(f"train-{name.replace('_', '-')}", labels={"app": "train"}) for name, node in nodes.items()]
    executions = {name: world.recycle(node, label_selector="app=train") for name, node in nodes.items()}
    world.run("5m")
    for name, node in nodes.items():
        MEANWHILE[name](world, node)
    world.run("8m")
    for name, node in nodes.items():
        reasons = [answer["reason"] for answer in executions[name].answers("CheckPods")]
        assert name not in reasons[0] and name in reasons[-1], (name, reasons)
        assert name in node.annotations["recycle-eks/progress"], name
    for job in jobs:
        job.finishes()

    for name, node in nodes.items():
        end = executions[name].finishes()

        assert end.outcome == "recycled", (name, end.cause)
        warnings = [event for event in world.kubernetes.events(node.name) if event["reason"] == "RecycleDisturbed"]
        assert [event["message"].split(":")[0] for event in warnings] == [name], warnings


def test_a_group_that_cannot_be_read_does_not_delay_a_drain(world, node, job):
    execution = world.recycle(node, label_selector="app=train")
    world.run("5m")
    for action, until in (("DescribeAutoScalingGroups", "8m"), ("DescribeInstanceRefreshes", "11m")):
        seen = len(execution.answers("CheckPods"))
        world.faults.clear()
        world.faults.refuse(f"autoscaling:{action}", code="AccessDenied", status=403, times=None, function="check-pods")
        world.run(until)
        reasons = [answer["reason"] for answer in execution.answers("CheckPods")[seen:]]
        assert [reason for reason in reasons if "cannot read the state of its Auto Scaling group" in reason], (action, reasons)
    world.at("12m", job.finishes)

    end = execution.finishes()

    assert end.outcome == "recycled", end.cause
    assert execution.errors("CheckPods") == []
