"""docs/kept-instances.md: its commands restore or terminate stopped and detached instances."""

import re

from docs.pages import Shell, follow_page
from prepare import ROOT

PAGE = ROOT / "docs" / "kept-instances.md"


class KeptInstances:
    """The actions between the commands."""

    def __init__(self, world, folder) -> None:
        self.world = world
        self.shell = Shell(folder, world.environment())
        self.group = world.group("workers", size=2, minimum=1, maximum=4)
        self.keep("stop")

    def keep(self, dispose: str) -> None:
        """Another node is recycled, and kept."""
        self.node = self.group.nodes[0]
        end = self.world.recycle(self.node, dispose=dispose).finishes()
        assert end.outcome == "recycled", end.cause
        self.name_it()

    def name_it(self) -> None:
        self.shell.run(f"INSTANCE={self.node.instance_id}; GROUP={self.group.name}; NODE={self.node.name}")

    def found(self, how: str) -> None:
        assert f"recycle-eks:{how}" in self.world.instance(self.node.instance_id).tags

    def wait(self, time: str) -> None:
        self.world.wait(time)

    def check(self, what: str) -> None:
        """`is back`, `is attached`, `is ended`."""
        self.wait("10m")
        instance, states = self.world.instance(self.node.instance_id), self.group.states
        if what == "ended":
            assert instance.state == "terminated" and self.node.instance_id not in states
            assert self.group.node_of(self.node.instance_id).exists is False
            return
        assert states[self.node.instance_id] == "InService" and instance.state == "running"
        node = self.group.node_of(self.node.instance_id)
        assert node.exists and not node.unschedulable and not node.kubernetes.taints
        assert not [key for key in instance.tags if key.startswith("recycle-eks:")]
        assert not [key for key in {**node.annotations, **node.labels} if re.match("recycle-eks|node.kubernetes.io/exclude", key)]
        # And it can be recycled like any other.
        assert self.world.recycle(node, dry_run=True).finishes().outcome == "planned"


def test_the_commands_of_the_page_do_what_it_says(world, tmp_path):
    kept = KeptInstances(world, tmp_path / "here")
    actions = {
        "found": kept.found,
        "wait": kept.wait,
        "is": kept.check,
        "stop": lambda _: kept.keep("stop"),
        "detach": lambda _: kept.keep("detach"),
    }
    follow_page(PAGE, kept.shell, actions)
