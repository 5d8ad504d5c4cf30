"""The recipe of docs/hooks.md: instance refresh and max instance lifetime wait for each node, longer than a heartbeat lasts."""

import pytest

WAITS = {"recycle-eks/drain": "wait"}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


@pytest.mark.reading("terminating_wait_counts")
@pytest.mark.parametrize("what", ["refreshes_its_instances", "lets_members_live"])
def test_each_node_waits_for_its_own_job(world, what):
    workers = world.group("retained", size=2, minimum=2, maximum=4, retains=True)
    old = workers.nodes
    jobs = [node.job(f"train-{number}", annotations=WAITS) for number, node in enumerate(old)]
    for minutes, job in zip((75, 80), jobs, strict=True):
        world.at(f"{minutes}m", job.finishes)

    getattr(workers, what)(*(["10m"] if what == "lets_members_live" else []))
    world.run("72m")
    if not world.unknowns.terminating_wait_counts:
        assert all(workers.states[node.instance_id] == "Terminating:Wait" for node in old)
        assert sorted(workers.states.values()).count("InService") == 2, "replaced at once"
    world.run("3h")

    assert [each.finishes().outcome for each in world.executions()] == ["recycled"] * 2
    assert not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    assert sorted(workers.states.values()) == ["InService"] * 2
    assert not {node.instance_id for node in old} & set(workers.states)


def test_a_managed_node_group_that_is_emptied_waits_for_its_pods_if_eks_respects_their_budget(world):
    workers = world.group("retained", size=2, minimum=0, maximum=4, retains=True)
    jobs = [node.job(f"train-{number}", labels={"app": "train"}, annotations=WAITS) for number, node in enumerate(workers.nodes)]
    world.kubernetes.budget("train", {"app": "train"}, min_available=2)
    for job in jobs:
        world.at("65m", job.finishes)
    answers = []

    def eks_evicts() -> None:
        for job in jobs:
            named = {"metadata": {"name": job.name, "namespace": job.namespace}}
            answers.append(world.kubernetes.client.call("POST", f"{job.path}/eviction", EVICTION | named).status)

    # Whenever a managed group ends a node EKS evicts its pods, for 15 minutes (EKS user guide, "Managed node group updates").
    # The guide says, too, that budgets "aren't respected" if the desired size is reduced: docs/hooks.md warns of it.
    for minute in range(1, 16):
        world.at(minute * 60, eks_evicts)
    workers.grow(0)
    world.run("3h")

    assert set(answers) == {429} and len(answers) == 30
    assert [each.finishes().outcome for each in world.executions()] == ["recycled"] * 2
    assert not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    assert workers.states == {}
