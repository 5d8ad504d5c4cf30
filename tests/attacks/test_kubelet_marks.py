"""A compromised kubelet that writes marks of recycle-eks on its own Node again and again."""

import pytest

from attacks import forgeries
from attacks.forgeries import CLAIM, DRAIN_UNTIL, PROGRESS

CORDONED_FOR, KEPT_FOR = "recycle-eks/cordoned-for", "recycle-eks/kept-for"


@pytest.fixture
def workers(world):
    return world.group("workers", size=3, minimum=1, maximum=6)


@pytest.fixture
def forge_again(world):
    """The kubelet of a node writes its marks again after each answer of a function."""

    def begin(node, function, written):
        def write(sandbox, *_):
            if sandbox.function == f"recycle-eks-{function}" and node.exists:
                node.kubelet_writes(written)

        node.kubelet_writes(written)
        world.host.on_answered.append(write)

    return begin


def lease_writes(world):
    return [call for call in world.writes() if "leases" in str(call)]


@pytest.mark.parametrize("mark", ["progress", "end of a drain", "claim", "cordoned for another", "kept for another"])
def test_a_mark_that_only_its_node_can_have_written_makes_no_claim(world, workers, mark):
    """H1. Before: the sweep claimed the node, or the one that the mark named, and its claim took the place in the queue of the
    group and kept the node out of rotations. The end of a drain stayed, and would have ended the next one."""
    node, other, _ = workers.nodes
    written = {
        "progress": {"annotations": {PROGRESS: "{}"}},
        "end of a drain": {"annotations": {DRAIN_UNTIL: "now"}},
        "claim": {"annotations": {CLAIM: forgeries.claim(forgeries.EXECUTION)}},
        "cordoned for another": {"annotations": {CORDONED_FOR: other.instance_id}},
        "kept for another": {"labels": {KEPT_FOR: other.instance_id}},
    }[mark]
    node.kubelet_writes(written)
    before = len(lease_writes(world))

    end = world.sweep().finishes()

    assert end.status == "SUCCEEDED", end
    assert lease_writes(world)[before:] == []
    assert world.leftovers() == []
    assert not world.all_notifications


def test_a_node_that_writes_a_mark_again_and_again_holds_up_no_queue(world, workers, forge_again):
    """H1. Before: each sweep held a claim on the node for as long as its marks came back."""
    node, queued, _ = workers.nodes
    forge_again(node, "restore-node", {"annotations": {PROGRESS: "{}", CORDONED_FOR: queued.instance_id}})
    sweep = world.sweep()
    world.clock.run(until=lambda: bool(sweep.entered("RestoreNode")), limit=3_600)
    world.wait("1m")

    end = world.recycle(queued).finishes()

    assert end.outcome == "recycled", end
    assert sweep.finishes().at < 900


def test_a_node_that_writes_marks_again_does_not_keep_its_restore_from_ending(world, workers, forge_again):
    """H1. Before: the restore removed them again and again, and ended by the limit of the history, with the group's place."""
    node, _, _ = workers.nodes
    node.job("long", annotations={"recycle-eks/drain": "wait"})
    forge_again(node, "restore-node", {"annotations": {PROGRESS: "{}", CORDONED_FOR: node.instance_id}})

    execution = world.recycle(node, drain_timeout=600)
    end = execution.finishes()

    assert end.error == "DrainTimedOut", end
    assert end.at - execution.entered("RestoreNode")[0] < 3_600
    assert workers.states[node.instance_id] == "InService"
    assert not node.kubernetes.taints
