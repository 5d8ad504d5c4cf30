//! Finds the defect that makes a Node unusable for pods of the old node.

use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
use crate::cluster::group::Member;
use crate::cluster::node::{NodeFacts, Taint};

/// Returns the instance for which a Node is reserved as the replacement.
pub fn reserved_for(node: &NodeFacts) -> Option<&str> {
    let old = node.annotations.get(REPLACEMENT_FOR_ANNOTATION)?;
    Some(old)
}

/// Describes why pods of the old node could not run on this member. None if they could.
pub(crate) fn find_defect(member: &Member, node: Option<&NodeFacts>, old_node: &NodeFacts) -> Option<String> {
    let id = &member.instance;
    if !member.is_in_service() {
        return Some(format!("{id} is {}", member.lifecycle_state));
    }
    let Some(node) = node else {
        return Some(format!("{id} has not registered as a Node"));
    };
    let name = &node.name;
    if !node.ready {
        return Some(format!("node {name} is not Ready"));
    }
    if let Some(taint) = node.taints.iter().find(|taint| is_in_the_way(taint, old_node)) {
        return Some(format!(
            "node {name} still has the taint {}:{}",
            taint.key, taint.effect
        ));
    }
    if node.unschedulable {
        return Some(format!("node {name} is cordoned"));
    }
    let mut wanted = old_node.extended_resources.iter();
    let missing = wanted.find(|resource| !node.extended_resources.contains(resource))?;
    Some(format!("node {name} does not offer {missing} yet"))
}

pub(crate) fn keeps_pods_away(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// Checks whether this taint could keep pods of the old node away: it keeps pods away at all, and the old node has none like it.
/// Taints of Kubernetes itself (not ready, cordoned, not initialised) and of recycle-eks describe a node's state, not its kind.
/// They count even if the old node, which may be sick or already drained, has them too.
pub(crate) fn is_in_the_way(taint: &Taint, old_node: &NodeFacts) -> bool {
    const STATES: [&str; 3] = [
        "node.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
        "recycle-eks/",
    ];
    let is_state = STATES.iter().any(|prefix| taint.key.starts_with(prefix));
    let is_like_it = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
    let old_has_it = old_node.taints.iter().any(is_like_it);
    keeps_pods_away(taint) && (is_state || !old_has_it)
}

/// Lists the first three and counts the rest, because the text is part of every answer.
pub(crate) fn list_at_most_three(missing: &[String]) -> String {
    const MOST: usize = 3;
    let listed = missing[..missing.len().min(MOST)].join("; ");
    match missing.len().saturating_sub(MOST) {
        0 => listed,
        more => format!("{listed}; and {more} more"),
    }
}
