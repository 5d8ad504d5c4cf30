//! Judges the nodes that a rotation has begun: which have failed, whether more failed than `failure_budget` allows, and which are awaited.

use crate::base::ids::{ExecutionArn, InstanceId};
use crate::base::names::REPLACES_LABEL;
use crate::claim::queue::waits_for_turn;
use crate::cluster::group::is_leaving;
use crate::cluster::node::NodeFacts;
use crate::records::claim::StoredClaim;
use crate::rotation::admission::{Gate, Holdup, LONGEST_BEGIN, SHORTEST_RETRY, Turn};
use crate::rotation::fleet::Fleet;
use crate::rotation::terms::Terms;

/// What became of an earlier node's execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    NotBegun,
    Running,
    /// It failed, and is about to be tried again.
    BetweenTries,
    Done,
    /// It failed for the last time.
    Failed,
}

/// Reads what Step Functions says of a try, none if it knows none. None: the next try has to be asked about. Who is not in service is not
/// tried again.
#[must_use]
pub fn judge_try(status: Option<&str>, attempt: u32, retries: u32, is_in_service: bool) -> Option<Past> {
    match status {
        None if attempt > 1 && is_in_service => Some(Past::BetweenTries),
        None if attempt > 1 => Some(Past::Failed),
        None => Some(Past::NotBegun),
        Some("SUCCEEDED") => Some(Past::Done),
        Some("ABORTED") => Some(Past::Failed),
        Some("FAILED" | "TIMED_OUT") if attempt > retries => Some(Past::Failed),
        Some("FAILED" | "TIMED_OUT") => None,
        // RUNNING and PENDING_REDRIVE.
        Some(_) => Some(Past::Running),
    }
}

/// What was to be tried again, and has not been for longer than that takes, has failed: nobody tries it any more.
#[must_use]
pub fn settle_past(past: Past, turn: &Turn, terms: &Terms) -> Past {
    let patience = LONGEST_BEGIN.saturating_add(terms.wait_between_nodes_seconds.max(SHORTEST_RETRY));
    match past {
        Past::BetweenTries if turn.waited_for(Holdup::Beginning) >= patience => Past::Failed,
        Past::BetweenTries | Past::NotBegun | Past::Running | Past::Done | Past::Failed => past,
    }
}

/// The earlier nodes that may have failed, and are there. Who is claimed is under way.
#[must_use]
pub fn find_doubtful<'a>(earlier: &'a [InstanceId], fleet: &Fleet, begun: &[Begun]) -> Vec<&'a InstanceId> {
    let is_under_way = |id: &InstanceId| begun.iter().any(|one| one.instance == *id && one.is_claimed);
    let is_doubtful = |id: &&InstanceId| is_there(id, fleet) && !is_under_way(id);
    earlier.iter().filter(is_doubtful).collect()
}

/// The earlier nodes that are gone: recycled, most of them, and some lost. There are too many to ask about each.
#[must_use]
pub fn find_gone<'a>(earlier: &'a [InstanceId], fleet: &Fleet) -> Vec<&'a InstanceId> {
    earlier.iter().filter(|id| !is_there(id, fleet)).collect()
}

/// Whether a node is a member of its group, and stays one.
fn is_there(node: &InstanceId, fleet: &Fleet) -> bool {
    fleet.state_of(node).is_some_and(|state| !is_leaving(state))
}

/// Whether a node is a member in service: only such a one begins.
#[must_use]
pub fn is_in_service(node: &InstanceId, fleet: &Fleet) -> bool {
    fleet.state_of(node) == Some("InService")
}

/// Whether one of these earlier nodes, which are in service and have not begun, has been left: beside the one that asks only so many less
/// one have their turn.
#[must_use]
pub fn is_one_left(not_begun: usize, at_once: u32) -> bool {
    not_begun >= usize::try_from(at_once).unwrap_or(usize::MAX)
}

#[must_use]
pub fn check_failures(budget: u32, failed: usize) -> Option<Gate> {
    let reason = format!("{failed} of its nodes failed, and failure_budget is {budget}");
    (failed > usize::try_from(budget).unwrap_or(usize::MAX)).then(|| Gate::stop(reason))
}

/// A node of the rotation that has begun, as the cluster knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub instance: InstanceId,
    /// An execution works on it that no hook and no warning of EC2's has begun.
    pub is_claimed: bool,
    /// Its replacement, once that is reserved.
    pub replacement: Option<NodeFacts>,
}

/// Which of the nodes have begun, in their order. `claimed` are the Nodes of the group that are claimed, `replacements` those that
/// stand in for one of them, `rotation` the execution that asks.
#[must_use]
pub fn find_begun(
    nodes: &[InstanceId],
    claimed: &[NodeFacts],
    replacements: &[NodeFacts],
    rotation: &ExecutionArn,
) -> Vec<Begun> {
    nodes
        .iter()
        .map(|id| Begun {
            instance: id.clone(),
            is_claimed: claimed
                .iter()
                .any(|node| node.instance.as_ref() == Some(id) && is_worked_on(node, rotation)),
            replacement: replacements
                .iter()
                .find(|node| node.labels.get(REPLACES_LABEL).map(String::as_str) == Some(id.as_str()))
                .cloned(),
        })
        .filter(|one| one.is_claimed || one.replacement.is_some())
        .collect()
}

/// Only the claim of an execution of this installation shows that the node is under way. A rotation would wait for ever for the end of any
/// other claim, which `claim-node` refuses: what became of such a node's own execution is asked instead.
fn is_worked_on(node: &NodeFacts, rotation: &ExecutionArn) -> bool {
    node.claim().is_some_and(|claim| match claim {
        StoredClaim::Known(claim) => waits_for_turn(claim.urgency) && claim.is_of_installation(rotation),
        StoredClaim::Newer(_) | StoredClaim::Unreadable(_) => false,
    })
}

/// What to do where no earlier node is seen to have begun: one that is to begin, or runs, is waited for. Where one has been left nobody
/// knows who is to begin: then nobody is waited for. Nor is one for long that could have begun and has not, because it cannot be
/// started at all, or nobody could say whether it may.
#[must_use]
pub fn check_pasts(pasts: &[(&InstanceId, Past)], fleet: &Fleet, turn: &Turn, at_once: u32) -> Option<Gate> {
    let is_to_begin = |id: &InstanceId, past: &Past| *past == Past::NotBegun && is_in_service(id, fleet);
    let to_begin = pasts.iter().filter(|(id, past)| is_to_begin(id, past)).count();
    let is_nobody_to_begin =
        is_one_left(to_begin, at_once) || turn.waited_for(Holdup::Beginning) >= LONGEST_BEGIN;
    pasts.iter().find_map(|(id, past)| {
        let holdup = match past {
            Past::NotBegun => (is_in_service(id, fleet) && !is_nobody_to_begin).then_some(Holdup::Beginning),
            Past::BetweenTries => Some(Holdup::Beginning),
            Past::Running => Some(Holdup::Canary),
            Past::Done | Past::Failed => None,
        };
        holdup.map(|holdup| Gate::Wait(holdup, describe_awaited(id)))
    })
}

pub(crate) fn describe_awaited(first: &InstanceId) -> String {
    format!("the replacement of {first}, the group's first, is not known yet")
}
