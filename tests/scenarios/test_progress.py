"""The progress for operators: a line of JSON in the log for each decision, the annotation in `kubectl describe node`, Events."""

import json
import os
import subprocess

import pytest

from prepare import LAMBDAS
from world.kubernetes import kube_binaries


def decisions(world, function):
    """The lines of a function's log that record a decision."""
    lines = [json.loads(line) for line in world.host.logs(f"recycle-eks-{function}").splitlines() if line.startswith("{")]
    return [line for line in lines if "verdict" in line or "error" in line]


@pytest.mark.any_replacement
def test_every_function_writes_a_line_for_each_decision(world, node):
    train = node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    world.at("30m", train.finishes)
    execution = world.recycle(node, label_selector="app=train")
    assert execution.finishes().outcome == "recycled"
    other = node.group.nodes[0]
    other.job("endless", labels={"app": "train"})
    failed = world.recycle(other, label_selector="app=train", drain_timeout=300)
    assert failed.finishes().error == "DrainTimedOut"
    sweep = world.sweep()
    sweep.finishes()

    for function in LAMBDAS:
        logged = decisions(world, function)
        state = "".join(part.capitalize() for part in function.split("-"))
        answers = [answer for each in (execution, failed, sweep) for answer in each.answers(state)]
        assert [line["verdict"] for line in logged if "verdict" in line] == [answer["verdict"] for answer in answers], function
        assert [line["counts"] for line in logged if "verdict" in line] == [answer["counts"] for answer in answers], function
        for line in logged:
            assert line["execution"] in (execution.arn, failed.arn, sweep.arn) and line["state"] == state
    checks = [line for line in decisions(world, "check-pods") if line["execution"] == execution.arn]
    assert {(line["instance"], line["node"], line["phase"]) for line in checks} == {(node.instance_id, node.name, "draining")}
    assert checks[0]["counts"] == {"awaited": 1, "evictable": 2} and "wait_seconds" in checks[0]
    (late,) = [line for line in decisions(world, "check-pods") if "error" in line]
    assert (late["level"], late["error"], late["execution"], late["node"]) == ("ERROR", "DrainTimedOut", failed.arn, other.name)
    assert "timed out at" in late["reason"]
    assert {line["phase"] for line in decisions(world, "detach-terminate")} == {"disposing"}


@pytest.mark.any_replacement
def test_describe_node_shows_awaited_pods_and_blockers_with_their_times(world, node):
    node.job("train", labels={"app": "train"})
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    world.recycle(node, label_selector="app=train")
    world.run("30m")

    command = [str(kube_binaries.find() / "kubectl"), "describe", "node", node.name]
    shown = subprocess.run(command, env={**os.environ, **world.environment()}, check=True, capture_output=True, text=True).stdout

    assert '{"summary":"pods: 1 awaited, 2 evictable, 2 blocked",' in shown
    assert '"since":"2027-01-01T00:01:00Z","until":"2027-01-03T00:01:00Z"' in shown
    for reason in ("RecycleClaimed", "RecycleStandby", "RecycleDraining", "RecyclePods", "RecycleBlocked"):
        assert reason in shown, shown
    assert "budget default/web has blocked 2 pods" in shown
