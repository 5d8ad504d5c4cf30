"""The other reading of each open question in AWS's documentation: a node is recycled all the same or, if no replacement can
come, restored. (The end of another member that AWS chooses as a victim of the disposal is not asserted: nothing protects it
yet.)"""

import pytest

from world.aws.autoscaling.model import Unknowns

SWITCHES = [name for name in vars(Unknowns) if not name.startswith("_")]
CASES = [(switch, 4) for switch in SWITCHES] + [("enter_standby_at_max_launches", 2)]


@pytest.mark.parametrize(("switch", "maximum"), CASES)
def test_a_node_is_recycled_under_either_reading(world, switch, maximum):
    setattr(world.autoscaling.unknowns, switch, not getattr(world.autoscaling.unknowns, switch))
    workers = world.group("workers", size=2, minimum=1, maximum=maximum)
    node = workers.nodes[0]
    job = node.job("train", labels={"app": "train"})
    world.at("30m", job.finishes)

    end = world.recycle(node, label_selector="app=train").finishes()
    world.run(end.at + 1200)

    assert workers.sizes == (1, 2, maximum)
    if switch == "enter_standby_at_max_launches" and maximum == 2:
        # No replacement comes: no pod is touched, and the node is restored.
        assert end.error == "ReplacementTimedOut"
        assert not world.calls("kubernetes:POST pods/eviction") and workers.states[node.instance_id] == "InService"
    else:
        assert end.outcome == "recycled", end.cause
        assert sorted(workers.states.values()) == ["InService"] * 2
