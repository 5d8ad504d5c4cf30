"""The nodes of a group wait in a queue: the order, the progress for operators, executions that do not wait, and failures."""

import json
from collections.abc import Iterator
from random import Random

import pytest

from world.base.faults import sample

#: The phases in which a node is being replaced, or has pods moved from it; and these with those in which it only waits.
BUSY = {"standby", "draining"}
UNDERWAY = BUSY | {"waiting"}
#: The claim of another execution of this installation, which was admitted.
HELD = {
    "schema": 1,
    "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:another#0",
    "group": "workers",
    "phase": "draining",
    "urgency": "planned",
    "claimed_at": "2027-01-01T00:00:00Z",
}


def group(world, size=2, name="workers"):
    return world.group(name, size=size, minimum=1, maximum=12)


def job_on(node):
    """A Job that is waited for until the scenario lets it end."""
    return node.job(f"train-{node.instance_id}", labels={"app": "train"})


def held_groups(world, *names, claim=None):
    """Groups in each of which one node is admitted until `let_go`, by another execution's claim. Returns for each name that node,
    the other one, and an execution for the other one."""
    nodes = {name: group(world, name=name).nodes for name in names}
    for holder, _ in nodes.values():
        recycle(world, holder)
    world.clock.run(until=lambda: all("recycle-eks/claim" in holder.records for holder, _ in nodes.values()))
    for name, (holder, _) in nodes.items():
        holder.record("recycle-eks/claim", claim or json.dumps(HELD | {"group": name}))
    world.wait(60)
    return {name: (holder, queued, recycle(world, queued)) for name, (holder, queued) in nodes.items()}


def let_go(holder) -> None:
    holder.record("recycle-eks/claim", None)


def is_held(holder) -> bool:
    return claim_of(holder) == HELD | {"group": holder.group.name}


def recycle(world, node, **fields):
    return world.recycle(node, label_selector="app=train", **fields)


def claim_of(node) -> dict:
    return json.loads(node.records.get("recycle-eks/claim", "{}"))


def marks(world, node) -> list[str]:
    """The names of recycle-eks on the node and its instance."""
    on_node = [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    return on_node + [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]


def settings(world, parallel: int, surge: int) -> None:
    """The module's variables, as if they had been applied like this."""
    limits = {"MAX_PARALLEL_PER_GROUP": str(parallel), "MAX_SURGE_PER_GROUP": str(surge)}
    world.host.variables["recycle-eks-claim-node"] = limits


def written_phases(world) -> Iterator[tuple[str, str]]:
    """Each claim that was written to a Lease, in the order of writing: the instance and the phase, none when the claim goes."""
    for call in (each for each in world.calls(succeeded=True) if each.action.endswith(" leases")):
        body = call.parameters.get("body") or {}
        annotations = body.get("metadata", {}).get("annotations") or {}
        if call.action == "kubernetes:DELETE leases":
            yield call.parameters["name"], ""
        elif "recycle-eks/claim" in annotations:
            claim = annotations["recycle-eks/claim"]
            yield call.parameters.get("name") or body["metadata"]["name"], json.loads(claim)["phase"] if claim else ""


def most_at_once(world, phases: set[str], of=None) -> int:
    """How many nodes, of one group or of all, were in these phases at the same time, at most."""
    now, most = {}, 0
    for node, phase in written_phases(world):
        if of is None or node in of.nodes_seen:
            now[node] = phase
            most = max(most, sum(each in phases for each in now.values()))
    return most


# One after the other


def test_the_second_node_of_a_group_starts_when_the_first_only_waits_for_pods(world):
    workers = group(world)
    first, second = workers.nodes
    other = group(world, name="gpu").nodes[0]
    job = job_on(first)
    web = first.deployment("web", replicas=2)
    world.at("25m", job.finishes)

    one = recycle(world, first)
    world.run("5s")
    two, of_other = recycle(world, second), recycle(world, other)
    world.run("20s")
    assert second.progress
    # An admitted node has no progress of the queue.
    world.clock.run(until=lambda: claim_of(second).get("phase") == "standby")
    assert "recycle-eks/progress" not in second.annotations
    ends = [two.finishes(), one.finishes(), of_other.finishes()]

    assert [end.outcome for end in ends] == ["recycled"] * 3
    assert ends[0].at < world.seconds("20m") < world.seconds("25m") < ends[1].at
    # After the first node's other pods were gone, and at the next check.
    moved = one.entered("EvictPods")[0]
    assert moved < two.entered("StandbyNode")[0] < moved + 120
    assert {answer["verdict"] for answer in two.answers("ClaimNode")} == {"wait", "standby"}
    assert len(web.running_pods()) == 2
    assert sorted(workers.states.values()) == ["InService"] * 2
    # Two groups do not wait for each other.
    assert all("WaitInQueue" not in execution.path for execution in (one, of_other))


def test_nodes_are_admitted_in_the_order_of_their_starts_and_record_the_node_ahead(world):
    workers = group(world, size=3)
    first, second, third = workers.nodes
    world.budget(first.deployment("web", replicas=2), min_available=2)
    executions = []
    for minute, node in enumerate(workers.nodes, start=1):
        executions.append(recycle(world, node))
        world.run(f"{minute}m")

    progress = third.progress
    who = f"node {first.name} ({first.instance_id}) is being recycled"
    assert progress["summary"] == f"it waits in the queue of group workers: {who}; 1 node is ahead"
    assert (progress["since"], progress["until"]) == ("2027-01-01T00:02:00Z", "2027-01-02T00:02:00Z")
    assert second.progress["summary"] == f"it waits in the queue of group workers: {who}"
    events = [event for event in world.kubernetes.events(third.name) if event["reason"].startswith("Recycle")]
    assert [event["reason"] for event in events] == ["RecycleClaimed"]
    assert progress["summary"] in events[0]["message"]

    # A queued node is not written at every check.
    looks, calls = len(executions[2].answers("ClaimNode")), len(world.aws.calls)
    world.run("9m")
    assert len(executions[2].answers("ClaimNode")) > looks + 4
    since = world.aws.calls[calls:]
    assert [call for call in since if call.function and call.write and call.parameters.get("name") == third.name] == []
    assert "kubernetes:POST subjectaccessreviews" not in {call.action for call in since}

    # A node whose pods cannot be moved holds its place until it is restored.
    assert [execution.path[-1] for execution in executions[1:]] == ["WaitInQueue"] * 2
    assert [claim_of(node)["phase"] for node in workers.nodes[:3]] == ["draining", "claimed", "claimed"]
    first.annotate("recycle-eks/drain-until", "now")
    ends = [execution.finishes() for execution in executions]

    assert [(end.outcome, end.error) for end in ends] == [(None, "DrainTimedOut"), ("recycled", None), ("recycled", None)]
    assert marks(world, first) == []
    began = [execution.entered("StandbyNode")[0] for execution in executions]
    assert began == sorted(began)
    assert most_at_once(world, BUSY) == 1
    assert sorted(workers.states.values()) == ["InService"] * 3


def test_no_more_nodes_are_underway_than_the_surge_allows(world):
    settings(world, parallel=1, surge=2)
    workers = group(world, size=4)
    jobs = [job_on(node) for node in workers.nodes]
    executions = [recycle(world, node) for node in workers.nodes]

    world.run("15m")
    assert sorted(claim_of(node)["phase"] for node in workers.nodes[:4]) == ["claimed", "claimed", "waiting", "waiting"]
    queued = next(node for node in workers.nodes[:4] if claim_of(node)["phase"] == "claimed")
    assert "2 nodes of the group are underway, and max_surge_per_group is 2" in queued.progress["summary"]
    for job in jobs:
        job.finishes()

    assert [execution.finishes().outcome for execution in executions] == ["recycled"] * 4
    assert most_at_once(world, UNDERWAY) == 2


# Races


@pytest.mark.parametrize(("parallel", "seed"), sample([(1 + seed % 2, seed) for seed in range(6)], 2))
def test_however_executions_race_no_more_than_may_are_busy_and_all_get_through(world, parallel, seed):
    world.reset(seed=seed)
    settings(world, parallel=parallel, surge=3)
    chance = Random(seed)
    world.aws.latency = world.kubernetes.proxy.latency = lambda action: chance.random()
    workers = group(world, size=4)
    executions = [recycle(world, node) for node in workers.nodes]

    ends = [execution.finishes() for execution in executions]

    assert [end.outcome for end in ends] == ["recycled"] * 4
    assert most_at_once(world, BUSY) == parallel
    assert most_at_once(world, UNDERWAY) <= 3
    assert sorted(workers.states.values()) == ["InService"] * 4


def lists_a_group(parameters) -> bool:
    return "recycle-eks/group" in parameters.get("labelSelector", "")


def test_a_node_that_was_admitted_by_an_outdated_list_steps_back(world):
    """The first takes three seconds to claim. The second has listed before, and gets the answer when the first is underway."""
    workers = group(world)
    first, second = workers.nodes
    world.faults.delay("ec2:DescribeInstances", seconds=3, function="claim-node")
    world.faults.delay("kubernetes:GET leases", seconds=5, function="claim-node", where=lists_a_group)
    executions = [recycle(world, first)]
    world.run("1s")
    executions.append(recycle(world, second))

    ends = [execution.finishes() for execution in executions]

    assert [end.outcome for end in ends] == ["recycled"] * 2
    phases = [phase for instance, phase in written_phases(world) if instance == second.instance_id]
    assert phases[:3] == ["claimed", "admitted", "claimed"]
    assert executions[0].entered("WaitInQueue") == []
    assert most_at_once(world, BUSY) == 1
    assert world.faults.not_struck() == []


def test_a_function_killed_around_each_write_of_the_phase_goes_on_and_no_other_node_is_admitted(world):
    kinds = [("POST leases", 1), *((kind, nth) for kind in ("PATCH leases", "PATCH nodes") for nth in (1, 2))]
    writes = sample([(moment, *kind) for kind in kinds for moment in ("before", "after")], 4)
    groups = [group(world, name=f"group-{number}") for number in range(len(writes))]
    for (moment, kind, nth), each in zip(writes, groups, strict=True):
        # The body of a new Lease has its name, the other calls have the name as a parameter.
        names = [name for node in each.nodes for name in (node.instance_id, node.name)]
        of_group = lambda given, names=names: any(name in json.dumps(given, default=str) for name in names)  # noqa: E731
        world.faults.kill(moment, f"kubernetes:{kind}", function="claim-node", nth=nth, where=of_group)
    executions = [[recycle(world, node) for node in each.nodes] for each in groups]

    ends = [[execution.finishes() for execution in of_group] for of_group in executions]

    for write, of_group, each in zip(writes, ends, groups, strict=True):
        assert [end.outcome for end in of_group] == ["recycled"] * 2, write
        assert most_at_once(world, BUSY, each) == 1, write
    assert world.faults.not_struck() == []


# Nodes that are not admitted (after a day in the queue: tests/docs/test_troubleshooting.py)


def test_a_queued_node_leaves_the_queue_when_it_is_refused_terminated_or_unclaimed_and_its_place_can_be_resumed(world):
    held = held_groups(world, "refused", "terminated", "unclaimed", "stopped")
    holder, queued, refused = held["refused"]
    world.at("10m", lambda: queued.group.protect(queued))
    terminated_holder, terminated, of_terminated = held["terminated"]
    world.at("10m", lambda: terminated.group.terminate(terminated))
    _, unclaimed, of_unclaimed = held["unclaimed"]
    world.at("10m", lambda: unclaimed.record("recycle-eks/claim", None))
    stopped_holder, stopped, of_stopped = held["stopped"]
    world.run("10m")
    of_stopped.stop()
    resumed = recycle(world, stopped)
    world.at("20m", lambda: let_go(stopped_holder))

    # A refusal while it waits gives the place back.
    end = refused.finishes()
    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert "scale_in_protection" in end.cause
    assert marks(world, queued) == [] and is_held(holder)

    # A queued instance that its group terminates is not worked on.
    end = of_terminated.finishes(within="1h")
    assert (end.outcome, end.error) == ("already_gone", None)
    assert not of_terminated.entered("StandbyNode") and is_held(terminated_holder)

    # An operator who removes the claim takes the node out of the queue.
    end = of_unclaimed.finishes()
    assert (end.status, end.error) == ("FAILED", "ClaimLost")
    assert "recycle-eks/claim" not in unclaimed.records

    # The next execution resumes a place whose owner was stopped.
    assert resumed.finishes().outcome == "recycled"


def test_an_outage_does_not_cost_the_place(world):
    holder, _, execution = held_groups(world, "workers")["workers"]
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, since="10m", until="50m")
    world.at("1h", lambda: let_go(holder))

    assert execution.finishes().outcome == "recycled"
    assert "RestoreNode" not in execution.path


def test_a_claim_that_this_installation_cannot_have_written_holds_no_place(world):
    claims = {"newer-schema": '{"schema": 99, "who": "knows"}', "not-a-claim": "mine!"}
    held = {name: held_groups(world, name, claim=claim)[name] for name, claim in claims.items()}

    for name, (holder, _, execution) in held.items():
        assert execution.finishes().outcome == "recycled" and execution.entered("WaitInQueue") == [], name
        assert holder.records["recycle-eks/claim"] == claims[name], name


# The urgent


def test_spot_does_not_wait_and_others_wait_for_it(world):
    workers = group(world, size=3)
    first, urgent, planned = workers.nodes
    world.budget(first.deployment("web", replicas=2), min_available=2)
    recycle(world, first)
    world.run("3m")
    world.budget(urgent.deployment("api", replicas=2), min_available=2)

    urgent.becomes_spot()
    spot = recycle(world, urgent, urgency="spot")
    world.run("6m")
    waiting = recycle(world, planned)
    world.run("8m")

    assert "WaitInQueue" not in spot.path and claim_of(urgent)["phase"] == "draining"
    assert waiting.path[-1] == "WaitInQueue"
    assert all(node.name in planned.progress["summary"] for node in (first, urgent))


def test_a_more_urgent_execution_takes_a_node_over_before_its_disposal_and_the_older_one_ends_superseded(world):
    # The moment at which the more urgent execution comes, for the node of each group.
    moments = {"standby": "20s", "pods": "10m", "queue": "10m"}
    nodes = {name: group(world, name=name).nodes[0] for name in ("standby", "pods", "disposal", "same")}
    (_, nodes["queue"], queued) = held_groups(world, "queue")["queue"]
    nodes["same"].becomes_spot()
    for name in ("standby", "pods", "same"):
        world.at("20m", job_on(nodes[name]).finishes)
    older = {name: recycle(world, nodes[name]) for name in ("standby", "pods", "disposal")} | {"queue": queued}
    older["same"] = recycle(world, nodes["same"], urgency="spot")
    began = world.clock.elapsed()

    def is_wanted_by_spot(name):
        nodes[name].becomes_spot()
        return recycle(world, nodes[name], urgency="spot")

    world.run(began + 20)
    newer = {"standby": is_wanted_by_spot("standby")}
    # An instance in its disposal is not taken over.
    world.clock.run(until=lambda: claim_of(nodes["disposal"]).get("phase") == "disposing")
    late = is_wanted_by_spot("disposal")
    assert late.finishes().outcome == "duplicate"
    assert older["disposal"].finishes().outcome == "recycled"
    # An execution of the same urgency does not take over, nor does one that is less urgent.
    less = [recycle(world, nodes["same"], urgency=urgency) for urgency in ("planned", "spot")]
    assert [execution.finishes().outcome for execution in less] == ["duplicate"] * 2
    world.run(began + 600)
    newer |= {name: is_wanted_by_spot(name) for name in ("pods", "queue")}

    ends = {name: (older[name].finishes(), newer[name].finishes()) for name in moments}
    for name, both in ends.items():
        assert [end.outcome for end in both] == ["superseded", "recycled"], (name, both)
        assert both[0].status == "SUCCEEDED" and "RestoreNode" not in older[name].path, name
        assert newer[name].arn.rsplit(":", 1)[-1] in both[0].output["reason"], name
    for name in ("standby", "pods"):
        assert ends[name][0].at < began + world.seconds(moments[name]) + 60, name
        entered = world.calls("autoscaling:EnterStandby", succeeded=True)
        assert len([call for call in entered if nodes[name].instance_id in json.dumps(call.parameters)]) == 1, name
        assert sorted(nodes[name].group.states.values()) == ["InService"] * 2, name
    assert older["same"].finishes().outcome == "recycled"


# Redriven


def test_a_redriven_execution_that_stood_in_the_queue_or_never_claimed_is_refused_and_writes_nothing(world):
    _, queued, waited = held_groups(world, "workers")["workers"]
    world.run("5m")
    waited.stop()
    assert waited.path[-1] == "WaitInQueue"
    world.faults.invoke("claim-node", code="TooManyRequestsException", status=429, times=None)
    unclaimed = recycle(world, group(world, name="unclaimed").nodes[0])
    world.run("305s")
    unclaimed.stop()
    world.faults.clear()
    before = marks(world, queued)
    world.forget_calls()

    for execution in (waited, unclaimed):
        execution.redrive()
        end = execution.finishes()
        assert (end.status, end.error) == ("FAILED", "PreflightRefused")
        assert execution is unclaimed or "start another execution" in end.cause
        assert world.writes() == []
    assert marks(world, queued) == before
