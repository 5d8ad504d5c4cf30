//! Is the replacement there, and is it usable?
//!
//! Auto Scaling does not say which launch belongs to which EnterStandby: a replacement is a newcomer that carries our reservation.

use jiff::Timestamp;

use crate::ids::InstanceId;
use crate::names::REPLACEMENT_FOR_ANNOTATION;
use crate::node::{Group, NodeFacts, Taint};
use crate::poll::next_wait;

/// A member that came after EnterStandby, with its Node if it has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its instance.
    pub instance: InstanceId,
    /// `LifecycleState`.
    pub lifecycle_state: String,
    /// Its Node.
    pub node: Option<NodeFacts>,
}

/// What `standby-node` does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplacementVerdict {
    /// This one is usable and not yet ours: reserve it.
    Reserve(InstanceId),
    /// The reserved one is usable.
    Ready(InstanceId),
    /// Not yet; why, in words, and how many seconds to wait.
    Wait {
        /// What is missing.
        reason: String,
        /// Seconds.
        wait_seconds: u32,
    },
    /// The time is over; what was missing.
    TimedOut(String),
}

/// The members that are not among those before EnterStandby, oldest entry of the group's list first.
#[must_use]
pub fn newcomers<'a>(group: &'a Group, members_before: &[InstanceId]) -> Vec<&'a crate::node::Member> {
    group
        .members
        .iter()
        .filter(|member| !members_before.contains(&member.instance))
        .collect()
}

/// Decides on the replacement of `old`. `since` is when this execution began to wait, `timeout` is in seconds.
///
/// One that is reserved for `old` is waited for as long as it is on its way; only if it is leaving or gone another is taken.
#[must_use]
pub fn judge_replacement(
    old: &InstanceId,
    old_node: &NodeFacts,
    candidates: &[Candidate],
    since: Timestamp,
    now: Timestamp,
    timeout: u32,
) -> ReplacementVerdict {
    let staying = || {
        candidates
            .iter()
            .filter(|candidate| candidate.instance != *old && !is_leaving(&candidate.lifecycle_state))
    };
    let reserved: Vec<&Candidate> = staying()
        .filter(|candidate| reserved_for(candidate) == Some(old.as_str()))
        .collect();
    let considered = if reserved.is_empty() {
        staying().collect()
    } else {
        reserved
    };

    let mut missing = Vec::new();
    for candidate in considered {
        match find_what_is_missing(candidate, old, old_node) {
            None if reserved_for(candidate).is_some() => {
                return ReplacementVerdict::Ready(candidate.instance.clone());
            }
            None => return ReplacementVerdict::Reserve(candidate.instance.clone()),
            Some(text) => missing.push(text),
        }
    }
    let reason = describe_missing(&missing);
    let waited = now.duration_since(since).as_secs();
    let left = i64::from(timeout) - waited;
    if left <= 0 {
        return ReplacementVerdict::TimedOut(format!(
            "no usable replacement after {waited} seconds: {reason}"
        ));
    }
    ReplacementVerdict::Wait {
        reason,
        wait_seconds: next_wait(waited, left, 0, None),
    }
}

/// What a candidate still lacks, in words; none if it is usable and free, or reserved for `old`.
fn find_what_is_missing(candidate: &Candidate, old: &InstanceId, old_node: &NodeFacts) -> Option<String> {
    let id = &candidate.instance;
    if candidate.lifecycle_state != "InService" {
        return Some(format!("{id} is {}", candidate.lifecycle_state));
    }
    let Some(node) = &candidate.node else {
        return Some(format!("{id} has not registered as a Node"));
    };
    let name = &node.name;
    if let Some(other) = reserved_for(candidate).filter(|other| *other != old.as_str()) {
        return Some(format!("node {name} is the replacement of {other}"));
    }
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
fn is_in_the_way(taint: &Taint, old_node: &NodeFacts) -> bool {
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

fn reserved_for(candidate: &Candidate) -> Option<&str> {
    candidate
        .node
        .as_ref()?
        .annotations
        .get(REPLACEMENT_FOR_ANNOTATION)
        .map(String::as_str)
}

/// A member in such a state will not be in service again by itself.
fn is_leaving(lifecycle_state: &str) -> bool {
    ["Terminat", "Detach", "EnteringStandby", "Standby"]
        .iter()
        .any(|prefix| lifecycle_state.starts_with(prefix))
}

/// At most three candidates in words: the text travels in every answer.
fn describe_missing(missing: &[String]) -> String {
    const MOST: usize = 3;
    if missing.is_empty() {
        return "the group has no new member yet".to_owned();
    }
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
