//! The put-back: the one next step by which a node that could not be recycled becomes again what it was.
//!
//! Two halves that need not wait for each other: on the Node what we wrote is taken away; in the group the instance comes back into
//! service by a table ([`look_up`](crate::restore::table::look_up)). Each step looks at what is there now and at what was recorded
//! before the calls ([`Deed`]), so that it may be repeated after a crash at any point. Nothing here starts a pod's end: only a
//! replacement without pods goes.

use jiff::Timestamp;

use crate::cluster::group::{Group, Member};
use crate::records::restore_log::{Deed, Deeds, GaveUp};
use crate::restore::facts::{KubernetesHalf, Situation};
use crate::restore::step::{LONG_WAIT, Place, PutBackStep, Stuck, wait_for_cluster};

/// Seconds for which the cluster is asked before the group's half begins without it.
pub const CLUSTER_PATIENCE: u32 = 120;

/// Seconds until a way back that was refused is tried again.
/// A try takes half an hour. In that time no other execution can have the node, and no other node of its group the turn.
pub const REFUSED_PATIENCE: i64 = 6 * 3_600;

#[must_use]
pub fn next_put_back_step(situation: &Situation<'_>) -> PutBackStep {
    let Some(group) = situation.group else {
        return situation.clean_up(PutBackStep::Report(None));
    };
    let step = match (situation.place(group), situation.kubernetes) {
        (Place::Lost, _) if situation.is_dead_in_standby(group) && situation.has_time() => {
            PutBackStep::ForgetDead
        }
        (Place::Lost, _) => situation.clean_up(PutBackStep::Report(None)),
        (_, KubernetesHalf::Undo) => PutBackStep::UndoKubernetes,
        (_, KubernetesHalf::Unseen) if situation.waited < i64::from(CLUSTER_PATIENCE) => wait_for_cluster(),
        (Place::Foreign, _) => situation.clean_up(PutBackStep::Report(None)),
        (Place::OnTheWay(state), _) if situation.has_time() => {
            PutBackStep::Wait(LONG_WAIT, format!("the instance is {state}"))
        }
        (Place::OnTheWay(_), _) => situation.end(PutBackStep::LeaveInStandby(Stuck::TooLong), None),
        (Place::Standby, _) => situation.leave_standby(group),
        (Place::InService, _) => situation.settle(group),
    };
    if step.changes_group() {
        situation.wait_in_line().unwrap_or(step)
    } else {
        step
    }
}

impl GaveUp {
    /// Checks whether another try is pointless for now, given that `step` would be the next one.
    #[must_use]
    pub fn is_final(self, step: &PutBackStep, now: Timestamp) -> bool {
        let is_end = matches!(step, PutBackStep::LeaveInStandby(_) | PutBackStep::Report(_));
        is_end || (self.was_refused && now.duration_since(self.at).as_secs() < REFUSED_PATIENCE)
    }
}

impl Deeds {
    /// Checks whether the group was made one smaller again, as far as the group shows that.
    /// The desired capacity tells whether a call took effect whose answer was lost.
    pub(crate) fn has_paid(&self, group: &Group) -> bool {
        self.0.iter().enumerate().any(|(position, deed)| match deed {
            Deed::Lower(from) => position + 1 < self.0.len() || group.desired != *from,
            Deed::Terminate(id) => group.member(id).is_none_or(Member::is_leaving),
            Deed::Exit(_) => false,
        })
    }
}

#[cfg(test)]
mod tests;
