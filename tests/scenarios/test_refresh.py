"""An instance refresh that begins while a node of its group is in Standby."""

import json

import pytest

HOUR = 3600


def critical(world):
    """The critical messages so far, with their moments."""
    sent = [(each.moment, json.loads(each.message)) for each in world.events.notifications]
    return [(moment, message) for moment, message in sent if message.get("severity") == "critical"]


def test_a_refresh_that_ends_members_in_standby_is_reported_at_once_with_the_command_that_cancels_it(world, workers, node, job):
    world.host.variables["recycle-eks-check-pods"] = {"CANCEL_INSTANCE_REFRESH": "false"}
    world.at("20m", lambda: workers.refreshes_its_instances("Terminate"))
    world.at("1h", job.finishes)
    execution = world.recycle(node)

    world.clock.run(until=lambda: bool(critical(world)), limit=2 * HOUR)

    ((moment, message),) = critical(world)
    assert 1_200 <= moment <= 1_560 and message["event"] == "blocked"
    assert "terminate this member in Standby" in message["reason"]
    command = message["what_to_do"][1]
    assert command == "aws autoscaling cancel-instance-refresh --auto-scaling-group-name workers"
    # The operator does that.
    world.aws.client("autoscaling").cancel_instance_refresh(AutoScalingGroupName="workers")
    end = execution.finishes()
    assert end.outcome == "recycled" and end.at >= HOUR and len(critical(world)) == 1


def test_a_refresh_that_ends_members_in_standby_is_cancelled_if_the_module_allows_it(world, workers, node, job):
    world.at("20m", lambda: workers.refreshes_its_instances("Terminate"))
    world.at("1h", job.finishes)

    end = world.recycle(node).finishes()

    assert end.outcome == "recycled" and end.at >= HOUR and critical(world) == []
    [message] = [sent for each in world.events.notifications if (sent := json.loads(each.message)).get("severity") == "warning"]
    assert "terminate this member in Standby" in message["reason"] and message["reason"].endswith("recycle-eks has cancelled it")
    assert [each["Status"] for each in world.autoscaling.refreshes["workers"]] == ["Cancelled"]


def test_a_refresh_that_cannot_be_cancelled_is_reported_with_the_error(world, workers, node, job):
    world.at("20m", lambda: workers.refreshes_its_instances("Terminate"))
    refuse = {"code": "AccessDenied", "message": "not authorized", "status": 403, "times": None}
    world.faults.refuse("autoscaling:CancelInstanceRefresh", **refuse)
    world.recycle(node)

    world.clock.run(until=lambda: bool(critical(world)), limit=2 * HOUR)

    # At the next checks it is not reported again. In the end the refresh takes the member, and the loss is reported.
    world.wait("1h")
    (message, lost) = [message for _, message in critical(world)]
    assert (message["event"], lost["outcome"]) == ("blocked", "NodeLost")
    assert "and cancelling it failed" in message["reason"] and "not authorized" in message["reason"]
    assert message["what_to_do"][1] == "aws autoscaling cancel-instance-refresh --auto-scaling-group-name workers"


@pytest.mark.parametrize(("preference", "until"), [("Ignore", "1h"), ("Wait", "100m")])
def test_a_refresh_that_spares_members_in_standby_is_a_remark_and_the_drain_goes_on(world, workers, node, job, preference, until):
    world.at("20m", lambda: workers.refreshes_its_instances(preference))
    world.at(until, job.finishes)

    execution = world.recycle(node)
    end = execution.finishes()

    assert end.outcome == "recycled" and critical(world) == []
    effect = {"Ignore": "leaves members in Standby alone", "Wait": "waits an hour for members in Standby, then fails"}[preference]
    assert any(effect in answer["reason"] for answer in execution.answers("CheckPods"))
