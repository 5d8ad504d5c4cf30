"""Groups of every shape, and replacements that are slow, missing or not usable."""


def test_a_group_of_any_size_is_as_large_afterwards(world):
    # Minimum, desired and maximum.
    sizes = {"fixed": (3, 3, 3), "one-node": (1, 1, 1)}
    groups = {
        name: world.group(name, size=size, minimum=minimum, maximum=maximum, labels={"pool": name})
        for name, (minimum, size, maximum) in sizes.items()
    }
    nodes = {name: group.nodes[0] for name, group in groups.items()}
    webs = {name: node.deployment(f"web-{name}", replicas=2, node_selector={"pool": name}) for name, node in nodes.items()}

    executions = {name: world.recycle(node) for name, node in nodes.items()}

    for name, group in groups.items():
        assert executions[name].finishes().outcome == "recycled", name
        assert group.sizes == sizes[name], name
        assert sorted(group.states.values()) == ["InService"] * sizes[name][1], name
        assert nodes[name].instance_id not in group.states, name
        assert len(webs[name].running_pods()) == 2, name


def test_a_group_of_three_zones_is_recycled(world):
    zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    workers = world.group("workers", size=3, minimum=1, maximum=6, zones=zones)

    ends = [world.recycle(node).finishes() for node in list(workers.nodes)[:2]]

    assert [end.outcome for end in ends] == ["recycled"] * 2
    assert sorted(workers.states.values()) == ["InService"] * 3


def test_the_nodes_of_a_mixed_group_are_recycled_and_rotated_by_the_template_of_its_policy(world):
    workers = world.group("workers", size=2, maximum=4, instance_types=["m7i.2xlarge", "m7i.4xlarge"])
    workers.next_launch(instance_type="m7i.4xlarge")
    assert world.recycle(workers.nodes[0]).finishes().outcome == "recycled"
    types = [workers.machine(instance).instance_type for instance in workers.instances]
    assert sorted(types) == ["m7i.2xlarge", "m7i.4xlarge"]
    assert world.rotate().finishes().outcome == "nothing_selected"

    workers.gets_a_new_template()
    end = world.rotate().finishes()

    assert end.outcome == "rotated" and [each["recycled"] for each in end.output["groups"]] == [2], end.output
    assert sorted(workers.states.values()) == ["InService"] * 2


def test_without_a_usable_replacement_no_pod_is_touched(world):
    failures = {
        "fails": {"fails": "Insufficient capacity"},
        "absent": {"never_registers": True},
        "unready": {"never_ready": True},
    }
    groups = [world.group(name, size=2, minimum=1, maximum=3) for name in failures]
    nodes = [group.nodes[0] for group in groups]
    jobs = [node.job(f"train-{node.group.name}", labels={"app": "train"}) for node in nodes]
    for group in groups:
        group.next_launch(**failures[group.name])

    executions = [world.recycle(node, label_selector="app=train") for node in nodes]
    ends = [execution.finishes() for execution in executions]

    for group, node, job, execution, end in zip(groups, nodes, jobs, executions, ends, strict=True):
        assert (end.status, end.error) == ("FAILED", "ReplacementTimedOut"), group
        assert 840 <= execution.entered("RestoreNode")[0] <= 840 + 60, group
        assert job.phase == "Running", group
        assert not node.unschedulable and not node.has_taint("recycle-eks/draining"), group
        assert group.sizes == (1, 2, 3) and group.states[node.instance_id] == "InService", group
    assert not world.calls("kubernetes:POST pods/eviction")
