//! Notes of pre-flight: what an operator should know although the node can be recycled.

use crate::base::names::{AUTOSCALER_TAG, LIFECYCLE_HOOK, TERMINATION_HANDLER_TAG};
use crate::claim::facts::PreflightFacts;
use crate::claim::obstacle::{Refusal, name_some};
use crate::cluster::balancers::Balancer;
use crate::cluster::cluster_tag::{cluster_tag, tag_group};
use crate::cluster::group::Group;
use crate::cluster::node_group::explain_surge;
use crate::cluster::silence::describe_silence;
use crate::input::model::{Input, Replacement};

pub(crate) fn write_notes(facts: &PreflightFacts<'_>, overridden: &[Refusal]) -> Vec<String> {
    let PreflightFacts {
        input, group, node, ..
    } = *facts;
    let note = |refusal| format!("the input overrides {refusal}");
    let mut notes: Vec<String> = overridden.iter().map(note).collect();
    if let Some(group) = group {
        notes.extend(note_surge(facts, group));
        notes.extend(note_limits(input, group));
        notes.extend(note_balancers(input, group, &facts.group_state.balancers));
        notes.extend(note_neighbours(facts, group));
    }
    let silence = node.and_then(|node| describe_silence(node, input.node_lost_after));
    notes.extend(silence.map(|silence| {
        format!("{silence} at the earliest, and its group then terminates it with the pods on it")
    }));
    notes.extend(group.and_then(|group| note_propagation(facts, group)));
    if facts.resuming {
        notes.push(
            "an earlier execution worked on this node; this execution continues where it stopped".to_owned(),
        );
    }
    notes
}

/// Notes other tools and processes of the group that may act on its nodes during the drain.
fn note_neighbours(facts: &PreflightFacts<'_>, group: &Group) -> Vec<String> {
    let PreflightFacts {
        input, group_tags, ..
    } = *facts;
    let name = &group.name;
    let is_before = input.replacement == Replacement::Before;
    let is_spot = facts.instance.is_some_and(|instance| instance.is_spot);
    let notes = [
        group_tags.contains_key(TERMINATION_HANDLER_TAG).then(|| {
            format!(
                "group {name} has the tag {TERMINATION_HANDLER_TAG}; in queue mode that tool evicts the pods of members that the group \
                 terminates"
            )
        }),
        (is_before && group_tags.contains_key(AUTOSCALER_TAG)).then(|| {
            format!(
                "Cluster Autoscaler manages group {name}; while nodes are in Standby, the group has up to max_surge_per_group nodes more than it \
                 would choose"
            )
        }),
        (is_before && group.balances_zones()).then(|| {
            format!(
                "group {name} has {} zones; while the node is in Standby, AZRebalance may terminate another node with its pods unless the \
                 group has the hook {LIFECYCLE_HOOK}",
                group.zones
            )
        }),
        (is_spot && group.rebalances_capacity).then(|| {
            format!(
                "group {name} has Capacity Rebalancing; when EC2 sees the instance at risk, the group may terminate it with its pods unless \
                 the group has the hook {LIFECYCLE_HOOK}"
            )
        }),
    ];
    notes.into_iter().flatten().collect()
}

/// Notes a group that does not set the cluster's tag on new instances.
/// A replacement without the tag can neither be protected nor be recycled later.
fn note_propagation(facts: &PreflightFacts<'_>, group: &Group) -> Option<String> {
    let cluster = &facts.input.cluster_name;
    let tag = cluster_tag(cluster.as_str());
    let is_passed_on = facts.group_propagates.contains(&tag);
    (!facts.resuming && !is_passed_on).then(|| {
        format!(
            "group {} does not set the tag {tag} on the instances that it launches; unless its launch template does, set it: {}",
            group.name,
            tag_group(&group.name, cluster)
        )
    })
}

/// Notes why replacement `surge` fits the group, for which it is the default.
fn note_surge(facts: &PreflightFacts<'_>, group: &Group) -> Option<String> {
    let node_group = facts.group_state.node_group.as_ref();
    let why = explain_surge(
        node_group.map(|node_group| node_group.name.as_str()),
        group.rebalances_capacity,
    );
    let why = why.filter(|_| facts.input.replacement == Replacement::Surge)?;
    Some(format!("replacement \"surge\" fits group {}: {why}", group.name))
}

/// Notes what the group's limits mean for a restore from Standby.
fn note_limits(input: &Input, group: &Group) -> Option<String> {
    let (name, max) = (&group.name, group.max);
    match input.replacement {
        Replacement::Before if group.min == max => Some(format!(
            "group {name} has min = desired = max = {max}; if the replacement fails, the node cannot be restored from Standby"
        )),
        Replacement::Before if group.desired >= max => Some(format!(
            "group {name} is at its maximum of {max}; if the replacement fails, the restore from Standby first has to remove \
             the replacement"
        )),
        Replacement::Before | Replacement::After | Replacement::Surge => None,
    }
}

/// Notes what the group's load balancers lose when the instance leaves them.
fn note_balancers(input: &Input, group: &Group, balancers: &[Balancer]) -> Option<String> {
    if balancers.is_empty() {
        return None;
    }
    let names: Vec<&str> = balancers.iter().map(|balancer| balancer.name.as_str()).collect();
    let names = name_some(&names);
    match input.replacement {
        Replacement::Before => Some(format!(
            "EnterStandby takes it out of {names} at once, so pods that serve through these load balancers get no new connections while \
             the execution waits for them"
        )),
        Replacement::After if balancers.iter().any(|balancer| balancer.others == 0) => Some(format!(
            "it is the last healthy target of {names}; once it is gone, there is none until the new member of group {} is healthy",
            group.name
        )),
        Replacement::After | Replacement::Surge => None,
    }
}
