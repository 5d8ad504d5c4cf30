"""The recipe of docs/hooks.md: instance refresh and max instance lifetime wait 20 hours for each node."""

import pytest

WAITS = {"recycle-eks/drain": "wait"}


@pytest.mark.parametrize("what", ["refreshes_its_instances", "lets_members_live"])
def test_each_node_waits_for_its_own_job(world, what):
    workers = world.group("retained", size=2, minimum=2, maximum=4, retains=True)
    old = workers.nodes
    jobs = [node.job(f"train-{number}", annotations=WAITS) for number, node in enumerate(old)]
    for hours, job in zip((19, 20), jobs, strict=True):
        world.at(f"{hours}h", job.finishes)

    getattr(workers, what)(*(["10m"] if what == "lets_members_live" else []))
    world.run("18h")
    assert all(workers.states[node.instance_id] == "Terminating:Wait" for node in old)
    assert sorted(workers.states.values()).count("InService") == 2, "replaced at once"
    world.run("21h")

    assert [each.finishes().outcome for each in world.executions()] == ["recycled"] * 2
    assert not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    assert sorted(workers.states.values()) == ["InService"] * 2
    assert not {node.instance_id for node in old} & set(workers.states)
