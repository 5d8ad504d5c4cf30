//! Notes of pre-flight: what an operator should know although the node can be recycled.

use crate::claim::facts::PreflightFacts;
use crate::claim::group_checks::node_group;
use crate::claim::obstacle::{Refusal, name_some};
use crate::cluster::balancers::Balancer;
use crate::cluster::cluster_tag::{cluster_tag, tag_group};
use crate::cluster::group::Group;
use crate::cluster::silence::describe_silence;
use crate::input::model::{Input, Replacement};

pub(crate) fn write_notes(facts: &PreflightFacts<'_>, overridden: &[Refusal]) -> Vec<String> {
    let PreflightFacts {
        input, group, node, ..
    } = *facts;
    let note = |refusal| format!("the input overrides {refusal}");
    let mut notes: Vec<String> = overridden.iter().map(note).collect();
    if let Some(group) = group {
        notes.extend(note_limits(input, group));
        notes.extend(note_balancers(input, group, &facts.group_state.balancers));
    }
    let is_before = input.replacement == Replacement::Before;
    if let Some(name) = node.and_then(node_group).filter(|_| is_before) {
        notes.push(format!(
            "it belongs to the EKS managed node group {name}: Standby in managed groups is untested on AWS"
        ));
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
        Replacement::Before | Replacement::After => None,
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
        Replacement::After => None,
    }
}
