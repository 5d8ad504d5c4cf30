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


@pytest.mark.parametrize("respects_budgets", [False, True])
def test_a_managed_node_group_that_is_emptied_waits_for_its_pods_only_if_eks_respects_their_budget(world, respects_budgets):
    """The EKS user guide says that budgets "aren't respected" if the desired size is reduced. By a report one held a node."""
    workers = world.group("retained", size=2, minimum=0, maximum=4, retains=True)
    jobs = [node.job(f"train-{number}", labels={"app": "train"}, annotations=WAITS) for number, node in enumerate(workers.nodes)]
    world.kubernetes.budget("train", {"app": "train"}, min_available=2)
    answers = []

    def eks_evicts() -> None:
        for job in jobs:
            named = {"metadata": {"name": job.name, "namespace": job.namespace}}
            answers.append(world.kubernetes.client.call("POST", f"{job.path}/eviction", EVICTION | named).status)

    for job in jobs:
        world.at("65m" if respects_budgets else "2m", job.finishes if respects_budgets else job.deleted)
    if respects_budgets:
        # EKS evicts the pods of a node that a managed group ends for 15 minutes (EKS user guide, "Managed node group updates").
        for minute in range(1, 16):
            world.at(minute * 60, eks_evicts)
    workers.grow(0)
    world.run("3h")

    ends = [each.finishes() for each in world.executions()]
    assert [end.outcome for end in ends] == ["recycled"] * 2
    assert workers.states == {}
    if respects_budgets:
        assert set(answers) == {429} and len(answers) == 30
        assert not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    else:
        assert not [job for job in jobs if job.exists], "EKS has deleted the pods: neither the budget nor the hook keeps them"
        assert all(end.at < world.seconds("1h") for end in ends), "the hook is completed long before the jobs would be done"
