"""The recipe of docs/hooks.md: instance refresh and max instance lifetime wait for each node, longer than a heartbeat lasts."""

import pytest

WAITS = {"recycle-eks/drain": "wait"}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


@pytest.mark.reading("terminating_wait_counts")
def test_each_node_waits_for_its_own_job(world):
    causes = {
        "retained": lambda group: group.refreshes_its_instances(),
        "held": lambda group: group.lets_members_live("10m"),
    }
    groups = {name: world.group(name, size=2, minimum=2, maximum=4, retains=True) for name in causes}
    old = {name: group.nodes for name, group in groups.items()}
    jobs = [node.job(f"train-{node.instance_id}", annotations=WAITS) for nodes in old.values() for node in nodes]
    for number, job in enumerate(jobs):
        world.at(("75m", "80m")[number % 2], job.finishes)

    for name, group in groups.items():
        causes[name](group)
    world.run("72m")
    if not world.unknowns.terminating_wait_counts:
        for name, group in groups.items():
            assert all(group.states[node.instance_id] == "Terminating:Wait" for node in old[name]), name
            assert sorted(group.states.values()).count("InService") == 2, f"{name}: replaced at once"
    world.run("3h")

    assert [each.finishes().outcome for each in world.executions()] == ["recycled"] * 4
    assert not [job for job in jobs if job.exists and job.phase != "Succeeded"]
    for name, group in groups.items():
        assert sorted(group.states.values()) == ["InService"] * 2, name
        assert not {node.instance_id for node in old[name]} & set(group.states), name


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
        world.at("25m" if respects_budgets else "2m", job.finishes if respects_budgets else job.deleted)
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
        assert all(end.at < world.seconds("25m") for end in ends), "the hook is completed before the jobs would be done"
