//! Judges the nodes that a rotation has begun, and stops a group after more failures than `failure_budget`. Others are awaited.

use crate::base::ids::{ExecutionArn, InstanceId};
use crate::base::names::REPLACES_LABEL;
use crate::claim::queue::waits_in_queue;
use crate::cluster::group::is_leaving;
use crate::cluster::node::NodeFacts;
use crate::records::claim::StoredClaim;
use crate::records::lease::Lease;
use crate::rotation::admission::{Admission, LONGEST_BEGIN, SHORTEST_RETRY, WaitReason, WaitingNode};
use crate::rotation::fleet::Fleet;
use crate::rotation::outdated::is_worked_on;
use crate::rotation::terms::Terms;

/// The state of an earlier node's executions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    NotBegun,
    Running,
    /// The last attempt failed, and the next is about to begin.
    BetweenAttempts,
    Done,
    /// The node failed, and there is no further attempt.
    Failed,
}

/// Judges attempt number `attempt` by its execution's status, which is None if Step Functions does not know the execution. An unknown
/// execution of a later attempt means that the attempt before it failed. Returns None if this attempt failed and the caller has to fetch
/// the status of the next one. A node that is not in service gets no further attempt.
pub fn judge_attempt(
    status: Option<&str>,
    attempt: u32,
    retries: u32,
    is_in_service: bool,
) -> Option<AttemptOutcome> {
    match status {
        None if attempt > 1 && is_in_service => Some(AttemptOutcome::BetweenAttempts),
        None if attempt > 1 => Some(AttemptOutcome::Failed),
        None => Some(AttemptOutcome::NotBegun),
        Some("SUCCEEDED") => Some(AttemptOutcome::Done),
        Some("ABORTED") => Some(AttemptOutcome::Failed),
        Some("FAILED" | "TIMED_OUT") if attempt > retries => Some(AttemptOutcome::Failed),
        Some("FAILED" | "TIMED_OUT") => None,
        // RUNNING and PENDING_REDRIVE.
        Some(_) => Some(AttemptOutcome::Running),
    }
}

/// Judges a node as failed if it has been between attempts for longer than a retry takes: no further attempt is coming.
/// That time is how long `waiting_node` has waited for earlier nodes to start.
pub fn settle_outcome(outcome: AttemptOutcome, waiting_node: &WaitingNode, terms: &Terms) -> AttemptOutcome {
    let patience = LONGEST_BEGIN.saturating_add(terms.wait_between_nodes.max(SHORTEST_RETRY));
    match outcome {
        AttemptOutcome::BetweenAttempts if waiting_node.waited_for(WaitReason::Beginning) >= patience => {
            AttemptOutcome::Failed
        }
        AttemptOutcome::BetweenAttempts
        | AttemptOutcome::NotBegun
        | AttemptOutcome::Running
        | AttemptOutcome::Done
        | AttemptOutcome::Failed => outcome,
    }
}

/// Returns the earlier nodes that are still members and may have failed. A claimed node is under way, and is not among them.
pub fn find_doubtful<'a>(earlier: &'a [InstanceId], fleet: &Fleet, begun: &[Begun]) -> Vec<&'a InstanceId> {
    let is_under_way = |id: &InstanceId| begun.iter().any(|one| one.instance == *id && one.is_claimed);
    let is_doubtful = |id: &&InstanceId| is_there(id, fleet) && !is_under_way(id);
    earlier.iter().filter(is_doubtful).collect()
}

/// Returns the earlier nodes that are gone. Most were recycled, and some were lost. They are too many for one call each.
pub fn find_gone<'a>(earlier: &'a [InstanceId], fleet: &Fleet) -> Vec<&'a InstanceId> {
    earlier.iter().filter(|id| !is_there(id, fleet)).collect()
}

/// Checks whether a node is a member of its group and is not leaving it.
fn is_there(node: &InstanceId, fleet: &Fleet) -> bool {
    fleet.state_of(node).is_some_and(|state| !is_leaving(state))
}

/// Checks whether a node is a member in service. Only such a node is started.
pub fn is_in_service(node: &InstanceId, fleet: &Fleet) -> bool {
    fleet.state_of(node) == Some("InService")
}

/// Checks whether at least one earlier node has been left. `not_begun` counts the earlier nodes that are in service and have no execution.
/// At most `at_once` - 1 of them can be asking to start, because the asking node itself takes one place.
pub fn is_one_left(not_begun: usize, at_once: u32) -> bool {
    not_begun >= usize::try_from(at_once).unwrap_or(usize::MAX)
}

pub fn check_failures(budget: u32, failed: usize) -> Option<Admission> {
    let reason = format!("{failed} of its nodes failed, and failure_budget is {budget}");
    (failed > usize::try_from(budget).unwrap_or(usize::MAX)).then(|| Admission::stop(reason))
}

/// A node of the rotation that has begun, according to the cluster's Nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub instance: InstanceId,
    /// Whether a planned execution of this installation holds the claim. A claim for the hook or for a warning of EC2 does not count.
    pub is_claimed: bool,
    /// The Node of its replacement, once it is reserved.
    pub replacement: Option<NodeFacts>,
}

/// Keeps the Nodes that are replacements, of those whose label [`REPLACES_LABEL`] says so. A kubelet can write that label on its Node.
/// A replacement is a member of the group that came after the rotation began, as `is_new` says. The node that it names has left service,
/// or an execution of this installation works on it.
pub fn keep_replacements(
    mut labelled: Vec<NodeFacts>,
    fleet: &Fleet,
    leases: &[Lease],
    rotation: &ExecutionArn,
    is_new: impl Fn(&InstanceId) -> bool,
) -> Vec<NodeFacts> {
    let is_replaced = |old: InstanceId| {
        let mut leases = leases.iter();
        !is_in_service(&old, fleet)
            || leases.any(|lease| lease.instance == old && is_worked_on(lease, rotation))
    };
    labelled.retain(|node| {
        let is_new_member = node
            .instance
            .as_ref()
            .is_some_and(|id| fleet.state_of(id).is_some() && is_new(id));
        let old = node.labels.get(REPLACES_LABEL).and_then(|old| old.parse().ok());
        is_new_member && old.is_some_and(is_replaced)
    });
    labelled
}

/// Returns the nodes that have begun, in their order. `leases` are those with the group's label.
/// `replacements` are those of [`keep_replacements`], and `rotation` is the execution of the rotation.
pub fn find_begun(
    nodes: &[InstanceId],
    leases: &[Lease],
    replacements: &[NodeFacts],
    rotation: &ExecutionArn,
) -> Vec<Begun> {
    nodes
        .iter()
        .map(|id| Begun {
            instance: id.clone(),
            is_claimed: leases
                .iter()
                .any(|lease| lease.instance == *id && is_under_way(lease, rotation)),
            replacement: replacements
                .iter()
                .find(|node| node.labels.get(REPLACES_LABEL).map(String::as_str) == Some(id.as_str()))
                .cloned(),
        })
        .filter(|one| one.is_claimed || one.replacement.is_some())
        .collect()
}

/// Checks whether a planned execution of this installation holds the node's claim. Only such a claim shows that the node is under way.
/// `claim-node` refuses a node with any other claim, and a rotation could wait indefinitely for the end of such a claim.
/// For such a node, the status of its own execution decides.
fn is_under_way(lease: &Lease, rotation: &ExecutionArn) -> bool {
    let claim = lease.claim().and_then(StoredClaim::known);
    claim.is_some_and(|claim| waits_in_queue(claim.urgency) && claim.is_of_installation(rotation))
}

/// Decides where no earlier node is known to have begun. The node waits for an earlier node that is about to be started, or is being
/// recycled.
/// If an earlier node has been left, it is unknown which node starts next, and the node does not wait for another one to start.
/// It also stops waiting after `LONGEST_BEGIN` for a node that could have been started and was not.
/// Such a node cannot be started at all, or the check whether it may start got no answer.
pub fn check_outcomes(
    outcomes: &[(&InstanceId, AttemptOutcome)],
    fleet: &Fleet,
    waiting_node: &WaitingNode,
    at_once: u32,
) -> Option<Admission> {
    let is_to_begin = |id: &InstanceId, outcome: &AttemptOutcome| {
        *outcome == AttemptOutcome::NotBegun && is_in_service(id, fleet)
    };
    let to_begin = outcomes
        .iter()
        .filter(|(id, outcome)| is_to_begin(id, outcome))
        .count();
    let is_none_to_begin =
        is_one_left(to_begin, at_once) || waiting_node.waited_for(WaitReason::Beginning) >= LONGEST_BEGIN;
    outcomes.iter().find_map(|(id, outcome)| {
        let wait_reason = match outcome {
            AttemptOutcome::NotBegun => {
                (is_in_service(id, fleet) && !is_none_to_begin).then_some(WaitReason::Beginning)
            }
            AttemptOutcome::BetweenAttempts => Some(WaitReason::Beginning),
            AttemptOutcome::Running => Some(WaitReason::Canary),
            AttemptOutcome::Done | AttemptOutcome::Failed => None,
        };
        wait_reason.map(|wait_reason| Admission::Wait(wait_reason, describe_awaited(id)))
    })
}

pub(crate) fn describe_awaited(first: &InstanceId) -> String {
    format!("the group's first replacement, that of {first}, is not known yet")
}
