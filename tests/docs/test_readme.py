"""README.md: the commands of the command line after the installation, as they stand but for the node's name."""

import json
import re

from docs.watched import Watched
from prepare import ROOT


def test_the_commands_after_the_installation_recycle_a_node_and_then_the_outdated_nodes_of_the_group(world, cli, tmp_path):
    page = (ROOT / "README.md").read_text()
    shown = re.findall(r"^(recycle-eks \w+ .+?) +# ", page, re.MULTILINE)
    plan, recycle, rotate = (command.replace("ip-10-0-1-23.eu-west-1.compute.internal", "$NODE") for command in shown)
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    node, *others = workers.nodes
    job = node.job("train", labels={"app": "training"})
    (given,) = re.findall(r"^ *input_defaults = \{(.+?)\}", page, re.MULTILINE)
    defaults = dict(re.findall(r'(\w+) = "([^"]+)"', given))
    assert defaults.keys() == {"label_selector", "drain_timeout"}
    world.host.variables["recycle-eks-claim-node"] = {"INPUT_DEFAULTS": json.dumps(defaults)}
    shell = Watched(cli, tmp_path / "here", {**world.environment(), "NODE": node.name})

    assert "default/train" in shell.run(plan)
    assert node.exists and job.exists
    world.at("1h", job.finishes)
    shell.goes_at(300)
    assert "recycled" in shell.run(recycle)
    assert not node.exists and world.clock.elapsed() > 3_600
    workers.gets_a_new_template()
    shell.run(rotate)
    (rotation,) = world.executions("rotate-nodes")
    assert rotation.finishes().outcome == "rotated"
    assert not any(other.exists for other in others) and sorted(workers.states.values()) == ["InService"] * 3
