"""docs/managed-node-groups.md: its commands on a group of a managed node group in two zones."""

from docs.pages import blocks, follow_page
from docs.watched import Watched
from prepare import ROOT
from world.aws.identity import REGION

PAGE = ROOT / "docs" / "managed-node-groups.md"


def test_the_commands_of_the_page_allow_a_node_to_be_recycled(world, cli, tmp_path):
    zones = (f"{REGION}a", f"{REGION}b")
    group = world.group("eks-batch", size=2, minimum=1, maximum=2, zones=zones, node_group="batch")
    node = group.nodes[0]
    node.job("training", labels={"app": "training"})
    (room,) = [block.text.strip() for block in blocks(PAGE) if block.text.startswith("aws eks update-nodegroup-config")]

    def set_maximum(maximum: int) -> None:
        world.aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.name, MaxSize=maximum)

    def refused() -> str:
        return world.recycle(node, dry_run=True).finishes().cause

    def make_room() -> None:
        assert refused().startswith("no_room: ") and room in refused()
        set_maximum(3)

    shell = Watched(cli, tmp_path / "here", {**world.environment(), "NODE": node.name, "GROUP": group.name})
    set_maximum(3)
    assert refused().startswith("zone_rebalance: ")
    set_maximum(2)
    follow_page(PAGE, shell, {"room": lambda _: make_room()})
    assert world.recycle(node, label_selector="app=none", evict="all").finishes().outcome == "recycled"
