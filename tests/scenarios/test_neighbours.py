"""Other tools that evict pods: what they do to a drain, and that the remedies of docs/troubleshooting.md keep its pods."""

import re

import pytest

from prepare import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
WAITS = {"recycle-eks/drain": "wait"}


def remedy(tool: str) -> list[str]:
    """The names in the last cell of a tool's row."""
    (row,) = re.findall(rf"^\| {tool}[^|]* \|[^|]*\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", row)


@pytest.mark.any_replacement
@pytest.mark.parametrize("excludes", [False, True], ids=["its default policy", "the documented policy"])
def test_descheduler_evicts_awaited_pods_of_a_controller_unless_it_excludes_three_taints(world, node, job, excludes):
    bare = node.bare_pod("bare", annotations=WAITS, restart_policy="Never")
    world.at("25m", lambda: [pod.finishes() for pod in (job, bare) if pod.exists])
    taints: list[str] = []
    phases: list[str] = []
    world.at("12m", lambda: taints.extend(taint["key"] for taint in node.kubernetes.taints))
    world.at("20m", lambda: phases.append(job.phase))
    world.descheduler(excluded_taints=remedy("Descheduler") if excludes else [])

    end = world.recycle(node, label_selector="app=train").finishes()

    assert end.outcome == "recycled", end.cause
    assert phases == ["Running" if excludes else "Gone"]
    assert end.at >= world.seconds("25m"), "it evicts no bare pod"
    if excludes:
        assert set(taints) == {"recycle-eks/draining", "node.kubernetes.io/unschedulable"}


@pytest.mark.parametrize("limited", [False, True], ids=["its documented rule", "the rule for its own hook"])
def test_the_termination_handler_ends_awaited_pods_and_completes_the_hook_unless_its_rule_names_its_own(world, limited):
    workers = world.group("retained", size=2, minimum=0, maximum=4, retains=True)
    node = workers.nodes[0]
    job = node.job("train", annotations=WAITS)
    phases: list[str] = []
    world.at("55m", lambda: phases.append(job.phase))
    world.at("1h", lambda: job.exists and job.finishes())
    assert "detail.LifecycleHookName" in remedy("aws-node-termination-handler in queue mode")
    world.termination_handler(hooks=["its-own"] if limited else None)
    workers.terminate(node)

    world.run("2h")

    (execution,) = world.executions()
    end = execution.finishes()
    assert (end.outcome, phases) == ("recycled", ["Running" if limited else "Gone"]), end.cause
    assert (end.at > world.seconds("1h")) == limited
    assert node.instance_id not in workers.states


@pytest.mark.parametrize("lost_after", [900, 3_600], ids=["recycle-eks is first", "node repair is first"])
def test_a_dead_node_is_replaced_once_whichever_of_recycle_eks_and_node_repair_is_first(world, workers, node, job, lost_after):
    repair = world.node_repair()
    world.at("10m", node.falls_silent)

    end = world.recycle(node, label_selector="app=train", node_lost_after=lost_after).finishes()

    assert end.error == "NodeLost", (end.outcome, end.error, end.cause)
    world.wait("1h")
    assert repair.replaced == ([] if lost_after < 1_800 else [node.instance_id])
    assert sorted(workers.states.values()) == ["InService"] * 2 and workers.sizes == (1, 2, 4)
    assert node.instance_id not in workers.states and world.kubernetes.leases() == {}
