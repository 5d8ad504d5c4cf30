"""Notifications, by one topic in one schema: a node starts, is blocked, is restored, is left in Standby, or is recycled."""

import json

import pytest

DAY = 86_400


def events(world) -> list[str]:
    return [sent["event"] for sent in world.all_notifications]


@pytest.fixture
def node(world):
    return world.group("workers", size=2, minimum=1, maximum=3).nodes[0]


@pytest.mark.any_replacement
def test_an_email_is_text_and_a_filter_finds_severity_event_group_and_cluster(world, node):
    execution = world.recycle(node)
    end = execution.finishes()

    # A recycled node has two notifications.
    started, finished = world.all_notifications
    assert (started["event"], finished["event"]) == ("started", "finished")
    assert finished["outcome"] == "recycled" and started["outcome"] is None
    assert finished["reason"] == end.output["reason"]
    for sent in (started, finished):
        assert (sent["severity"], sent["cluster"], sent["group"]) == ("info", "world", "workers")
        assert (sent["node"], sent["instance_id"], sent["execution"]) == (node.name, node.instance_id, execution.arn)
        assert sent["since"] == "2027-01-01T00:00:00Z"

    first = world.events.notifications[0]
    lines = first.email.splitlines()
    assert lines[0] == first.subject == f"recycle-eks: {node.instance_id} is being recycled, cluster world"
    assert lines[-4:] == [
        "Watch it:",
        f"recycle-eks status {node.name}",
        "Without the command line:",
        f"kubectl describe node {node.name}",
    ]
    values = {name: attribute["Value"] for name, attribute in first.attributes.items()}
    assert values == {"severity": "info", "event": "started", "group": "workers", "cluster": "world"}

    # The message is JSON in one line.
    for sent in world.events.notifications:
        assert "\n" not in sent.message and json.loads(sent.message)["schema"] == 1


@pytest.mark.any_replacement
def test_a_blocked_drain_is_reported_once_after_five_minutes(world, node):
    """The daily reminders are in the table of `crates/recycle/src/notify/notification.rs`."""
    web = node.deployment("web", replicas=1)
    world.budget(web, min_available=1)
    execution = world.recycle(node, drain_timeout=3 * DAY)
    world.run("20m")
    execution.stop()

    assert events(world) == ["started", "blocked"]
    blocked = world.all_notifications[1]
    assert blocked["severity"] == "warning"
    assert blocked["blocks"] and blocked["blocks"][0].startswith("budget default/web has blocked 1 pod since")
    (began,) = execution.entered("TaintNode")[:1]
    assert 300 <= world.events.notifications[1].moment - began < 420


def test_a_node_that_is_not_recycled_is_reported_with_its_error_and_what_to_do(world, node):
    # A node that is refused.
    node.group.protect(node)
    world.recycle(node).finishes()
    world.recycle({"instance_id": "nonsense"}).finishes()
    refused, invalid = world.all_notifications
    assert (refused["event"], refused["outcome"], refused["group"]) == ("failed", "PreflightRefused", "unknown")
    assert (invalid["outcome"], invalid["cluster"], invalid["instance_id"]) == ("InvalidInput", None, None)

    nodes = {
        name: world.group(name, size=2, minimum=minimum, maximum=maximum).nodes[0]
        for name, minimum, maximum in (("restored", 1, 3), ("full", 2, 2), ("aborted", 1, 3))
    }
    for name, each in nodes.items():
        each.job(f"train-{name}", labels={"app": "train"})
    executions = [world.recycle(nodes[name], label_selector="app=train", drain_timeout=600) for name in ("restored", "full")]
    restored, full = (each.finishes() for each in executions)
    execution = world.recycle(nodes["aborted"], label_selector="app=train")
    world.wait(600)
    execution.stop()
    world.wait(60)

    def last_of(name):
        return [sent for sent in world.all_notifications if sent["instance_id"] == nodes[name].instance_id][-1]

    # A restored node, with the first error.
    sent = last_of("restored")
    assert (sent["event"], sent["severity"], sent["outcome"]) == ("restored", "warning", "DrainTimedOut")
    assert "train" in sent["reason"] and sent["reason"] == restored.cause

    # A node that is left in Standby, with the commands.
    sent = last_of("full")
    assert (sent["event"], sent["severity"], sent["outcome"]) == ("left_in_standby", "critical", full.error)
    assert sent["what_to_do"][0].endswith(":") and "exit-standby" in " ".join(sent["what_to_do"])
    assert full.cause.endswith("\n".join(sent["what_to_do"]))

    # An aborted execution, by a rule.
    sent = world.all_notifications[-1]
    assert (sent["event"], sent["outcome"], sent["severity"]) == ("failed", "ABORTED", "warning")
    assert execution.arn in sent["what_to_do"][1]
    assert set(sent) == set(world.all_notifications[0])


@pytest.mark.any_replacement
def test_a_topic_that_refuses_neither_fails_nor_holds_up_a_node(world, node):
    # The notification of its start is not authorized. For that of its end, SNS has an error of its own.
    world.faults.refuse("sns:Publish", code="AuthorizationError", status=403)
    world.faults.refuse("sns:Publish", code="InternalError", status=500, nth=2, times=None)

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled" and not world.all_notifications
    assert end.at < 3_600
    assert world.faults.not_struck() == []


@pytest.mark.any_replacement
def test_metrics_are_in_the_functions_logs_by_cluster_and_outcome(world, node):
    world.recycle(node).finishes()
    world.recycle({"instance_id": "nonsense"}).finishes()
    world.sweep().finishes()

    counted = {(each.name, each.dimensions.get("outcome")): each.value for each in world.metrics}
    assert counted["Executions", "recycled"] == counted["Executions", "InvalidInput"] == 1
    assert counted["DrainSeconds", None] >= 0
    assert counted["ClaimedNodes", None] == 0 == counted["OverdueClaims", None]
    assert "node" not in {dimension for each in world.metrics for dimension in each.dimensions}

    # CloudWatch has them.
    world.metrics_into_cloudwatch()
    (row,) = world.aws.client("cloudwatch").get_metric_statistics(
        Namespace="recycle-eks",
        MetricName="Executions",
        Dimensions=[{"Name": "cluster", "Value": "world"}, {"Name": "outcome", "Value": "recycled"}],
        StartTime="2027-01-01T00:00:00Z",
        EndTime="2027-01-02T00:00:00Z",
        Period=86_400,
        Statistics=["Sum"],
    )["Datapoints"]
    assert row["Sum"] == 1
