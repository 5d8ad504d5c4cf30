"""docs/gpu.md: its commands on a group whose capacity reservation is full."""

from docs.pages import follow_page
from docs.watched import Watched
from prepare import ROOT

PAGE = ROOT / "docs" / "gpu.md"
GPUS = {"nvidia.com/gpu": "8"}


def test_the_plan_of_the_page_is_that_of_a_group_with_a_full_reservation(world, cli, tmp_path):
    group = world.group("gpu", size=0, minimum=0, maximum=1)
    for _ in range(2):
        group.next_launch(allocatable=GPUS)
    group.reserve_capacity(1)
    group.grow(1)
    world.run("5m")
    (node,) = group.nodes
    job = node.job("training")

    follow_page(PAGE, Watched(cli, tmp_path / "here", {**world.environment(), "NODE": node.name}), {})

    world.at(world.clock.elapsed() + 600, job.finishes)
    node.kubernetes.add_taint("nvidia.com/gpu", "NoSchedule", "present")
    assert world.recycle(node, replacement="after").finishes().outcome == "recycled"
    assert not node.exists and list(group.states.values()) == ["InService"]
    (new,) = group.nodes
    (old_end,) = [end.at for end in world.ends if end.instance_id == node.instance_id]
    assert new.ready_at > old_end and "recycle-eks/claim" not in new.annotations
