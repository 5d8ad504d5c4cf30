//! Finds why a Node is not usable.

use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
use crate::cluster::group::Member;
use crate::cluster::node::{NodeFacts, Taint};

/// For which instance a Node is reserved as the replacement.
pub(crate) fn reserved_for(node: &NodeFacts) -> Option<&str> {
    node.annotations
        .get(REPLACEMENT_FOR_ANNOTATION)
        .map(String::as_str)
}

/// Why pods of the old node could not run on this member, in words; none if they could.
pub(crate) fn find_defect(member: &Member, node: Option<&NodeFacts>, old_node: &NodeFacts) -> Option<String> {
    let id = &member.instance;
    if member.lifecycle_state != "InService" {
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
    old_node
        .extended_resources
        .iter()
        .find(|resource| !node.extended_resources.contains(resource))
        .map(|resource| format!("node {name} does not offer {resource} yet"))
}

/// Whether pods of the old node could be kept away by this taint: it keeps pods away at all, and the old node has none like it.
/// Taints of Kubernetes itself (not ready, cordoned, not initialised) and our own speak of a node's state, not of its kind:
/// they count even if the old node, which may be sick or drained already, has them too.
pub(crate) fn is_in_the_way(taint: &Taint, old_node: &NodeFacts) -> bool {
    const STATES: [&str; 3] = [
        "node.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
        "recycle-eks/",
    ];
    let keeps_pods_away = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let is_state = STATES.iter().any(|prefix| taint.key.starts_with(prefix));
    let old_has_it = old_node
        .taints
        .iter()
        .any(|other| other.key == taint.key && other.effect == taint.effect);
    keeps_pods_away && (is_state || !old_has_it)
}

/// A member in such a state will not be in service again by itself.
pub(crate) fn is_leaving(lifecycle_state: &str) -> bool {
    ["Terminat", "Detach", "EnteringStandby", "Standby"]
        .iter()
        .any(|prefix| lifecycle_state.starts_with(prefix))
}

/// The first three, and how many more there are.
pub(crate) fn list_at_most_three(missing: &[String]) -> String {
    const MOST: usize = 3;
    let more = if missing.len() > MOST {
        format!("; and {} more", missing.len() - MOST)
    } else {
        String::new()
    };
    format!(
        "{}{more}",
        missing.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ")
    )
}
