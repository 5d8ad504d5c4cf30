//! The queue: decides which of a group's claimed nodes are admitted, and how long a node waits for its admission (a day).
//!
//! The claims in the Leases of the group are the queue, in the order in which they were made. There is no other record that could be lost.
//!
//! An execution is admitted in two steps. In each step it lists the claims after its own last write. If the first list has room, it swaps
//! its claim to [`Phase::Admitted`]. Then it lists again, and goes on only if there is still room when *all* claims in that phase or later
//! are counted.
//! Two executions that have swapped at the same moment see each other, so no more go on than the limits allow. The order of the claims
//! decides which execution steps back and which one waits for that. Safety does not depend on the order, so wrong clocks and late writes
//! do no harm.
//!
//! The queue does not know whether the owner of a claim still runs. The claim of an execution that has ended keeps its place until another
//! execution resumes the node or the sweep restores it.

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::base::poll::patient_wait;
use crate::base::text::NAMES_PER_CLASS;
use crate::base::time::later;
use crate::claim::facts::GroupState;
use crate::cluster::balancers::Balancer;
use crate::cluster::group::Group;
use crate::cluster::instance::describe_instance;
use crate::input::limits::Limits;
use crate::input::model::{Input, Override, Replacement};
use crate::input::urgency::Urgency;
use crate::records::claim::{Claim, Phase};
use crate::records::lease::Lease;
use crate::records::progress::Progress;

/// The longest wait in the queue, in seconds: one day.
/// With less, a group whose pods need 20 hours would refuse executions that are started in the evening.
/// After a longer wait an operator should be informed. An execution's history has room for a day ([`crate::base::poll`]).
pub const LONGEST_QUEUE_WAIT: u32 = 86_400;

/// Another claimed node of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    pub node: Option<NodeName>,
    pub instance: InstanceId,
    pub claim: Claim,
}

impl Rival {
    /// Whether the node is being replaced, or its pods are being moved.
    fn is_busy(&self) -> bool {
        match self.claim.phase {
            Phase::Admitted | Phase::Standby | Phase::Draining => true,
            Phase::Claimed | Phase::Waiting | Phase::Disposing => false,
        }
    }

    /// Whether the node is past the queue.
    fn is_underway(&self) -> bool {
        self.claim.phase >= Phase::Admitted
    }

    fn is_ahead_of(&self, me: &Claim, instance: &InstanceId) -> bool {
        (self.claim.claimed_at, &self.instance) < (me.claimed_at, instance)
    }

    pub(crate) fn describe(&self) -> String {
        let subject = describe_instance(&self.instance, self.node.as_ref());
        format!("{subject} is being recycled")
    }
}

/// Returns the claims on other nodes of the group of `claim`, which is on the instance `me`.
/// `leases` are those with the group's label. Labels are short hashes, so two groups may share one.
/// A claim that no execution of this installation can have written is left out.
pub fn find_rivals(leases: &[Lease], me: &InstanceId, claim: &Claim) -> Vec<Rival> {
    let is_of_group =
        |other: &Claim| other.group == claim.group && other.is_of_installation(&claim.fence.execution);
    let others = leases.iter().filter(|lease| lease.instance != *me);
    let rivals = others.filter_map(|lease| {
        Some(Rival {
            node: lease.node.clone(),
            instance: lease.instance.clone(),
            claim: lease.claim()?.known().filter(is_of_group)?,
        })
    });
    rivals.collect()
}

/// The next step of a claimed node that waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueStep {
    /// Swap the claim to [`Phase::Admitted`], list again, decide again.
    Swap,
    /// The node is admitted: act, in the next invocation.
    Go,
    /// Wait; the claim stays as it is.
    Wait,
    /// Swap the claim back to [`Phase::Claimed`], then wait.
    StepBack,
}

/// Checks whether a claim of this urgency waits in the queue.
/// An instance that the group or EC2 takes away does not wait for other nodes.
pub fn waits_in_queue(urgency: Urgency) -> bool {
    match urgency {
        Urgency::Planned => true,
        Urgency::Hook | Urgency::Spot | Urgency::Interruption => false,
    }
}

/// Decides the next step of the claim `me` on `instance`. `rivals` were listed after `me` was written.
/// A claim that was found past the queue, because its owner ended or was less urgent, already has its place.
pub fn decide_queue_step(me: &Claim, instance: &InstanceId, rivals: &[Rival], limits: Limits) -> QueueStep {
    let is_exempt = !waits_in_queue(me.urgency);
    match me.phase {
        Phase::Claimed if is_exempt || has_room(limits, rivals, queue_ahead(me, instance, rivals)) => {
            QueueStep::Swap
        }
        Phase::Claimed => QueueStep::Wait,
        Phase::Admitted if is_exempt || has_room(limits, rivals, 0) => QueueStep::Go,
        Phase::Admitted => {
            // A rival behind this node steps back when it sees this claim, unless it was already admitted.
            // In that case it will have moved on to a later phase.
            let is_settled =
                |rival: &&Rival| rival.claim.phase != Phase::Admitted || rival.is_ahead_of(me, instance);
            let settled: Vec<Rival> = rivals.iter().filter(is_settled).cloned().collect();
            if has_room(limits, &settled, 0) {
                QueueStep::Wait
            } else {
                QueueStep::StepBack
            }
        }
        Phase::Standby | Phase::Draining | Phase::Waiting | Phase::Disposing => QueueStep::Go,
    }
}

/// Checks whether there is room for one more node in addition to these rivals and the `ahead` nodes that go before it.
fn has_room(limits: Limits, rivals: &[Rival], ahead: usize) -> bool {
    let busy = rivals.iter().filter(|rival| rival.is_busy()).count();
    limits.allow(busy + ahead, count_underway(rivals) + ahead)
}

fn count_underway(rivals: &[Rival]) -> usize {
    rivals.iter().filter(|rival| rival.is_underway()).count()
}

fn queue_ahead(me: &Claim, instance: &InstanceId, rivals: &[Rival]) -> usize {
    let waits = |rival: &&Rival| rival.claim.phase == Phase::Claimed && rival.is_ahead_of(me, instance);
    rivals.iter().filter(waits).count()
}

/// Describes why this node is not admitted: which nodes are being recycled, whether the group is full, and how many nodes are ahead.
pub fn describe_queue(me: &Claim, instance: &InstanceId, rivals: &[Rival], limits: Limits) -> String {
    let mut busy: Vec<&Rival> = rivals.iter().filter(|rival| rival.is_busy()).collect();
    busy.sort_by_key(|rival| (&rival.node, &rival.instance));
    let named = busy.iter().take(NAMES_PER_CLASS);
    let mut parts: Vec<String> = named.map(|rival| rival.describe()).collect();
    let (underway, surge) = (count_underway(rivals), limits.surge);
    if underway >= surge {
        parts.push(if surge > limits.parallel {
            format!("{underway} nodes of the group are underway, and max_surge_per_group is {surge}")
        } else {
            format!("{underway} of the group's nodes are underway, and at most {surge} may be")
        });
    }
    match queue_ahead(me, instance, rivals) {
        0 => {}
        1 => parts.push("1 node is ahead".to_owned()),
        ahead => parts.push(format!("{ahead} nodes are ahead")),
    }
    parts.join("; ")
}

/// Returns why a node has to wait although no node is ahead of it.
/// With replacement `after` the group is already short of members or of healthy targets: the claim of the node that was recycled last is
/// gone, and its replacement is not there yet. With `surge` the group is full of nodes that are underway.
pub fn find_shortage(me: &Claim, group: &Group, input: &Input, state: &GroupState) -> Option<String> {
    let waits = waits_in_queue(me.urgency) && me.phase <= Phase::Admitted;
    match input.replacement {
        Replacement::After if waits => find_missing_member(group, state.is_weighted)
            .or_else(|| find_missing_target(group, input, &state.balancers)),
        Replacement::Surge if waits => find_disturbance(&input.instance_id, group, state),
        Replacement::After | Replacement::Before | Replacement::Surge => None,
    }
}

/// Describes what has to end before the desired capacity may be raised.
fn find_disturbance(me: &InstanceId, group: &Group, state: &GroupState) -> Option<String> {
    if let Some(restored) = &state.restored {
        return Some(format!(
            "{restored} of the group is being restored; with replacement \"surge\", the next node is admitted after that"
        ));
    }
    // The protection that an earlier execution gave this node for itself holds up nothing.
    if state.protected_for.as_ref().is_some_and(|cause| cause != me) {
        return Some(
            "another node is being restored or detached, and protects this one from scale-in; the next node is admitted after that"
                .to_owned(),
        );
    }
    (group.desired >= group.max && state.added_places > 0 && !state.has_place).then(|| {
        format!(
            "the group has its maximum of {} members, {} of them for nodes that are underway; the next node is admitted when one of those \
             is gone",
            group.max, state.added_places
        )
    })
}

/// Describes which members the group lacks. A group that counts weights does not say how many members it wants. It therefore counts as
/// lacking one while a member comes or goes.
fn find_missing_member(group: &Group, is_weighted: bool) -> Option<String> {
    let in_service = group.in_service();
    let moving = group.members.iter().filter(|member| {
        member.lifecycle_state.starts_with("Pending") || member.lifecycle_state.starts_with("Terminating")
    });
    if is_weighted {
        return match moving.count() {
            0 => None,
            moving => Some(format!(
                "{moving} of its members are launching or terminating; with replacement \"after\", the next node is admitted when none is"
            )),
        };
    }
    (in_service < group.desired).then(|| {
        format!(
            "{in_service} of its {} members are in service; with replacement \"after\", the next node is admitted when all are",
            group.desired
        )
    })
}

/// Describes a load balancer in which no other target is healthy. A member in service can be an unhealthy target for minutes.
/// The only member of a group is always the last target, so it does not wait.
fn find_missing_target(group: &Group, input: &Input, balancers: &[Balancer]) -> Option<String> {
    let last = balancers.iter().find(|balancer| balancer.others == 0)?;
    let is_overridden = input.overrides.contains(&Override::LastTarget);
    (group.members.len() > 1 && !is_overridden).then(|| {
        format!(
            "{} has no other healthy target; with replacement \"after\", the next node is admitted when it has one",
            last.name
        )
    })
}

/// Returns the seconds until the next check, or none if the time in the queue is over.
pub fn pace_queue(claimed_at: Timestamp, now: Timestamp) -> Option<u32> {
    let waited = now.duration_since(claimed_at).as_secs();
    let left = i64::from(LONGEST_QUEUE_WAIT) - waited;
    (left > 0).then(|| patient_wait(waited, left, 0, None))
}

/// Writes the progress of a node that waits in the queue.
pub fn write_queue_progress(summary: String, claimed_at: Timestamp) -> Progress {
    Progress::new(summary, claimed_at, later(claimed_at, LONGEST_QUEUE_WAIT))
}

#[cfg(test)]
mod tests;
