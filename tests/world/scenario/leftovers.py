"""The leftovers of executions on nodes, pods, members and groups."""

from __future__ import annotations

from collections.abc import Mapping

from world.aws.autoscaling.groups import AutoScaling
from world.kubernetes.cluster import Kubernetes
from world.scenario.groups import Group
from world.scenario.machines import Machines

#: The prefixes of the records that recycle-eks writes on nodes and instances.
RECORDS = ("recycle-eks/", "recycle-eks:", "cluster-autoscaler.kubernetes.io/", "node.kubernetes.io/exclude-from")
OUT_OF_SERVICE = ("node.kubernetes.io/out-of-service", "recycle-eks")
#: The claim in a node's Lease while it is recycled, and what its pods are annotated with.
CLAIM, NOTICE = "recycle-eks/claim", "recycle-eks/waits-until"
#: The records that remain on purpose: on the Node of a replacement, and on a stopped instance.
RESULTS, STOPPED = ("recycle-eks/replacement-for", "recycle-eks/replaces", "recycle-eks/evicted"), "recycle-eks:stopped"
#: The records that remain, with the cordon, on the Node of an instance that was stopped or detached.
STOPPED_NODE = (
    "recycle-eks/stopped",
    "recycle-eks/kept-before",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "node.kubernetes.io/exclude-from-external-load-balancers",
)
DETACHED = ("recycle-eks/detached", "node.kubernetes.io/exclude-from-external-load-balancers")


def leftovers(
    kubernetes: Kubernetes, autoscaling: AutoScaling, machines: Machines, groups: Mapping[str, Group], group: Group | None = None
) -> list[tuple[str, str]]:
    """Returns each node or instance with a record that recycle-eks should have removed, of one group or of all. A node has the
    records of its pods, too."""
    nodes = [node.kubernetes for node in group.nodes_seen.values()] if group else kubernetes.nodes()
    leases = kubernetes.leases()
    of_group = {node.instance_id: node.name for node in group.nodes_seen.values()} if group else dict.fromkeys(leases)
    found = [(of_group[id] or id, key) for id, annotations in leases.items() if id in of_group for key in annotations]
    found = [(where, key) for where, key in found if key != "recycle-eks/node"]
    for node in (node for node in nodes if node.exists):
        keys = [*node.annotations, *node.labels, *(taint["key"] for taint in node.taints)]
        instance = node.object["spec"].get("providerID", "").rpartition("/")[2]
        is_member = any(instance in each.states for each in groups.values() if each.exists)
        is_stopped = STOPPED_NODE[0] in keys and is_member and machines.state_of(instance) == "stopped"
        results = (*RESULTS, *DETACHED) if DETACHED[0] in keys and not is_member else RESULTS
        results = (*RESULTS, *STOPPED_NODE) if is_stopped else results
        off = [taint["key"] for taint in node.taints if (taint["key"], taint.get("value")) == OUT_OF_SERVICE]
        found += [(node.name, key) for key in off if not is_stopped]
        found += [(node.name, key) for key in keys if key.startswith(RECORDS) and key not in results]
        if CLAIM not in leases.get(instance, {}):
            found += [(node.name, NOTICE) for pod in node.pods() if NOTICE in pod.annotations]
        found += [(node.name, "cordon")] if node.is_cordoned and results == RESULTS else []
    for each in [group] if group else [each for each in groups.values() if each.exists]:
        living = [id for id in each.nodes_seen if id not in each.states and machines.state_of(id) in ("running", "stopped")]
        tags = [(instance, key) for instance in each.instances for key in machines.instance(instance).tags]
        of_living = [(instance, key) for instance in living for key in machines.instance(instance).tags]
        tags += [(instance, key) for instance, key in of_living if key != "recycle-eks:detached"]
        left = [(instance, key) for instance, key in tags if key.startswith(RECORDS)]
        found += [(id, key) for id, key in left if key != STOPPED or machines.instance(id).state != "stopped"]
        members = autoscaling.group(each.name).instance_states
        found += [(member.instance_id, "protection from scale-in") for member in members if member.protected_from_scale_in]
    return found
