//! Decides the next step of a restore. A restore returns a node that could not be recycled to its earlier state.
//!
//! A restore has two independent halves. On the Node, it removes what an execution wrote. In the group, it returns the instance to
//! service by a table ([`look_up`](crate::restore::table::look_up)). Each step is decided from live state, and from the changes that
//! were recorded before the calls ([`GroupChange`]). So a step can be repeated after a crash at any point. A restore ends no pod. It
//! terminates only a replacement without pods.

use jiff::Timestamp;

use crate::cluster::group::{Group, Member};
use crate::records::restore_log::{GaveUp, GroupChange, GroupChanges};
use crate::restore::facts::{KubernetesHalf, RestoreFacts};
use crate::restore::step::{LONG_WAIT, Place, RestoreStep, Stuck, wait_for_cluster};

/// Seconds to wait for an unreachable cluster before the group's half begins without it.
pub const CLUSTER_PATIENCE: u32 = 120;

/// Seconds until a refused restore is attempted again.
/// An attempt takes half an hour. In that time no other execution can claim the node.
pub const REFUSED_PATIENCE: i64 = 6 * 3_600;

pub fn next_restore_step(restore_facts: &RestoreFacts<'_>) -> RestoreStep {
    let Some(group) = restore_facts.group else {
        return restore_facts.clean_up(RestoreStep::Report(None));
    };
    let step = match (restore_facts.place(group), restore_facts.kubernetes) {
        (Place::Lost, _) if restore_facts.is_dead_in_standby(group) && restore_facts.has_time() => {
            RestoreStep::ForgetDead
        }
        (Place::Lost, KubernetesHalf::Undo | KubernetesHalf::Clean)
            if restore_facts.instance.is_none() && restore_facts.has_time() =>
        {
            RestoreStep::Wait(
                LONG_WAIT,
                "EC2 does not know the instance, but its Node is there".to_owned(),
            )
        }
        (Place::Lost, _) => {
            restore_facts.clean_up(RestoreStep::Report(restore_facts.note_larger_group(group)))
        }
        (_, KubernetesHalf::Undo) => RestoreStep::UndoKubernetes,
        (_, KubernetesHalf::Unseen) if restore_facts.waited < i64::from(CLUSTER_PATIENCE) => {
            wait_for_cluster()
        }
        (Place::Foreign, _) => {
            restore_facts.clean_up(RestoreStep::Report(restore_facts.note_larger_group(group)))
        }
        (Place::OnTheWay(state), _) if restore_facts.has_time() => {
            RestoreStep::Wait(LONG_WAIT, format!("the instance is {state}"))
        }
        (Place::OnTheWay(_), _) => restore_facts.end(RestoreStep::LeaveInStandby(Stuck::TooLong), None),
        (Place::Standby, _) => restore_facts.leave_standby(group),
        (Place::InService, _) => restore_facts.settle(group),
    };
    if step.changes_group() {
        restore_facts.wait_in_line().unwrap_or(step)
    } else {
        step
    }
}

impl GaveUp {
    /// Checks whether another attempt is pointless for now, given that `step` would be the next one.
    pub fn is_final(self, step: &RestoreStep, now: Timestamp) -> bool {
        let is_end = matches!(step, RestoreStep::LeaveInStandby(_) | RestoreStep::Report(_));
        // A principal that may tag instances could write a time in the far future.
        let is_recent = (0..REFUSED_PATIENCE).contains(&now.duration_since(self.at).as_secs());
        is_end || (self.was_refused && is_recent)
    }
}

impl GroupChanges {
    /// Checks whether the group was made one smaller again, as far as the group shows that.
    /// If the answer to a call was lost, the desired capacity shows whether the call took effect.
    pub(crate) fn has_paid(&self, group: &Group) -> bool {
        self.has_paid_within(self.0.len(), group)
    }

    /// Checks the same, for the changes before ExitStandby.
    pub(crate) fn has_paid_before_exit(&self, group: &Group) -> bool {
        let is_exit = |group_change: &GroupChange| matches!(group_change, GroupChange::Exit(_));
        let exit = self.0.iter().rposition(is_exit);
        exit.is_some_and(|position| self.has_paid_within(position, group))
    }

    fn has_paid_within(&self, end: usize, group: &Group) -> bool {
        let mut before = self.0.iter().enumerate().take(end);
        before.any(|(position, group_change)| match group_change {
            GroupChange::Lower(from) => position + 1 < self.0.len() || group.desired != *from,
            GroupChange::Terminate(id) => group.member(id).is_none_or(Member::is_leaving),
            GroupChange::Exit(_) => false,
        })
    }
}

#[cfg(test)]
mod tests;
