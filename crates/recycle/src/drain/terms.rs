//! The terms of a drain: the input, the deadline, and when an awaited pod is evicted before it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::base::ids::InstanceId;
use crate::base::names::DRAIN_UNTIL_ANNOTATION;
use crate::base::poll::{HOOK_POLL_BUDGET, POLL_BUDGET, SHORTEST_WAIT};
use crate::base::text::cut_text;
use crate::base::time::later;
use crate::cluster::hook::HeldByHook;
use crate::cluster::node::{NodeFacts, draining_taint};
use crate::cluster::pod::PodFacts;
use crate::drain::blocked::RefusalKind;
use crate::input::model::{Awaited, Evict, Input, LONGEST_DRAIN, OnDrainTimeout, Override};

/// Seconds that are left between the end of a pod's grace period and the deadline with `on_drain_timeout: evict`.
/// Two more checks fit in, for an eviction that is refused at first and for a slow kubelet.
pub(crate) const EVICTION_MARGIN: u32 = 60;

/// Seconds for which late pods, which came after the draining taint and tolerate it, are evicted once nothing else holds the node.
/// Without a limit their controllers could keep the node indefinitely. An example is an hourly CronJob that tolerates every taint.
pub const LATE_PATIENCE: u32 = 300;

/// Seconds after the time that EC2 announced. If the instance still exists then, the interruption counts as cancelled, which EC2 does not
/// report.
const INTERRUPTION_PATIENCE: u32 = 600;

/// The terms that the pods of a node are judged by: the input and time.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms<'a> {
    /// The pods to wait for, by label.
    pub awaited: &'a Awaited,
    /// How the other pods are treated.
    pub evict: Evict,
    /// The refusals that do not count.
    pub overrides: &'a BTreeSet<Override>,
    /// Seconds after which a stuck pod no longer holds the node, counted from its deletionTimestamp; None if it always does.
    pub skip_stuck_after: Option<u32>,
    /// How awaited pods are treated that need more time than the drain has.
    pub on_timeout: OnDrainTimeout,
    /// Seconds that the drain may take (`drain_timeout` of the input).
    pub drain_timeout: u32,
    /// When the draining taint was set; None if the Node does not have it.
    pub tainted_since: Option<Timestamp>,
    /// The instance that the draining taint names.
    pub instance: &'a InstanceId,
    /// The time since which only late pods are left: pods that tolerate the taint and came after it.
    pub emptied_at: Option<Timestamp>,
    /// The start of the drain.
    pub since: Timestamp,
    pub now: Timestamp,
    pub deadline: Deadline,
    /// The time at which EC2 takes the instance away; None if it does not. If it is set, no pod is waited for.
    pub interrupted_at: Option<Timestamp>,
    /// The lifecycle hook of this installation that holds the member, if there is one.
    pub hook: Option<&'a HeldByHook>,
    /// The grace period that evictions ask for, in seconds; None for each pod's own.
    pub grace: Option<u32>,
}

impl<'a> Terms<'a> {
    /// Returns the terms, and a remark about the annotation `recycle-eks/drain-until` if it is wrong or was cut.
    /// `draining_since` is None before the drain has begun. `node` is None if it is gone.
    pub fn find(
        input: &'a Input,
        node: Option<&NodeFacts>,
        tainted_since: Option<Timestamp>,
        draining_since: Option<Timestamp>,
        now: Timestamp,
    ) -> (Self, Option<String>) {
        let since = draining_since.unwrap_or(now);
        let drain_until = node.and_then(NodeFacts::drain_until);
        let drain_timeout = input.drain_timeout;
        let (deadline, remark) = find_deadline(since, now, drain_timeout, drain_until);
        let terms = Self {
            awaited: &input.awaited,
            evict: input.evict,
            overrides: &input.overrides,
            skip_stuck_after: input.skip_stuck_after,
            on_timeout: input.on_drain_timeout,
            drain_timeout,
            tainted_since,
            instance: &input.instance_id,
            emptied_at: None,
            since,
            now,
            deadline,
            interrupted_at: None,
            hook: None,
            grace: input.grace_period,
        };
        match input.interrupted_at {
            Some(at) => (terms.interrupted(at), None),
            None => (terms, remark),
        }
    }

    /// Sets the time since which only late pods are left.
    pub fn emptied_at(self, emptied_at: Option<Timestamp>) -> Self {
        Self { emptied_at, ..self }
    }

    /// Checks whether a pod came after the draining taint and tolerates it.
    /// A pod that came after the taint and does not tolerate it was bound from the scheduler's stale cache.
    pub(crate) fn is_late(&self, pod: &PodFacts) -> bool {
        let came_after = self.tainted_since.is_some_and(|at| pod.created_at > Some(at));
        came_after && pod.tolerates(&draining_taint(self.instance))
    }

    /// Checks whether a pod is stuck for so long that it no longer holds the node.
    pub(crate) fn skips(&self, pod: &PodFacts) -> bool {
        let ended = pod.deletion_at.zip(self.skip_stuck_after);
        pod.is_stuck(self.now) && ended.is_some_and(|(at, patience)| self.now > later(at, patience))
    }

    /// Checks whether a pod may be deleted past the budget that refuses its eviction. Its containers keep failing, so it serves no client.
    pub fn may_delete(&self, pod: &PodFacts, refused: RefusalKind) -> bool {
        let is_by_budget = match refused {
            RefusalKind::BudgetFull | RefusalKind::SeveralBudgets => true,
            RefusalKind::BudgetNotReady
            | RefusalKind::Admission
            | RefusalKind::NamespaceTerminating
            | RefusalKind::Forbidden
            | RefusalKind::Throttled
            | RefusalKind::Invalid
            | RefusalKind::Failed => false,
        };
        let containers = &pod.containers;
        let is_asked = self.overrides.contains(&Override::UnhealthyBudget);
        is_by_budget && is_asked && containers.is_crash_looping && !containers.is_ready
    }

    /// Checks whether all pods have to leave now, in whatever order.
    pub(crate) fn hurries(&self) -> bool {
        self.interrupted_at.is_some() || self.is_time_over()
    }

    /// Returns the seconds for which late pods may still be evicted and waited for.
    pub(crate) fn late_patience(&self) -> u32 {
        if self.interrupted_at.is_some() || self.is_time_over() {
            return 0;
        }
        let waited = self.now.duration_since(self.emptied_at.unwrap_or(self.now));
        u32::try_from(i64::from(LATE_PATIENCE) - waited.as_secs()).unwrap_or(0)
    }

    /// Sets the hook that holds the member.
    pub fn held_by(self, hook: Option<&'a HeldByHook>) -> Self {
        Self { hook, ..self }
    }

    /// Changes the terms to those of an instance that EC2 takes away. Every pod ends with the instance, so all pods are evicted now.
    pub(crate) fn interrupted(self, at: Timestamp) -> Self {
        Self {
            evict: Evict::Others,
            deadline: Deadline {
                at: later(at, INTERRUPTION_PATIENCE),
                by_person: false,
            },
            interrupted_at: Some(at),
            ..self
        }
    }

    /// Returns the seconds that a pod gets to end when it is evicted.
    pub(crate) fn grace_of(&self, pod: &PodFacts) -> u32 {
        self.grace.unwrap_or(pod.grace_seconds)
    }

    /// Returns the time at which a pod is gone at the latest, if it is evicted now or was evicted before.
    pub(crate) fn ends_at(&self, pod: &PodFacts) -> Timestamp {
        pod.deletion_at
            .unwrap_or_else(|| later(self.now, self.grace_of(pod)))
    }

    /// Returns the grace period that a pod's eviction asks for; None for the pod's own.
    /// If EC2 takes the instance away, the grace period is no longer than the time that is left.
    pub fn asked_grace(&self, pod: &PodFacts) -> Option<u32> {
        let left = self
            .interrupted_at
            .map(|at| at.duration_since(self.now).as_secs().max(1));
        let left = left.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(1));
        let grace = self.grace_of(pod).min(left);
        (grace != pod.grace_seconds).then_some(grace)
    }

    /// Returns how often the pods may be checked.
    pub(crate) fn poll_budget(&self) -> u32 {
        match self.hook {
            Some(_) => HOOK_POLL_BUDGET,
            None => POLL_BUDGET,
        }
    }

    /// Checks whether the pods were checked as often as one execution can.
    pub fn is_budget_spent(&self, polls: u32) -> bool {
        polls >= self.poll_budget()
    }

    pub fn is_time_over(&self) -> bool {
        self.deadline.is_past(self.now)
    }

    /// Returns when an awaited pod is evicted; None if it is not.
    pub(crate) fn end_of_patience(&self, pod: &PodFacts) -> Option<Timestamp> {
        let end = self.deadline.at;
        let needed = i64::from(self.grace_of(pod)) + i64::from(EVICTION_MARGIN);
        let in_time = end.checked_sub(SignedDuration::from_secs(needed));
        match self.on_timeout {
            OnDrainTimeout::Restore => None,
            OnDrainTimeout::Evict => Some(in_time.unwrap_or(Timestamp::MIN)),
            OnDrainTimeout::Terminate => Some(end),
        }
    }

    /// Checks whether an awaited pod has to be evicted now.
    /// With `on_drain_timeout: evict`, an eviction that becomes due before the earliest next check is due now.
    pub(crate) fn is_out_of_time(&self, pod: &PodFacts) -> bool {
        if self.interrupted_at.is_some() {
            return true;
        }
        let before_the_next_check = match self.on_timeout {
            OnDrainTimeout::Evict => later(self.now, SHORTEST_WAIT),
            OnDrainTimeout::Restore | OnDrainTimeout::Terminate => self.now,
        };
        let end = self.end_of_patience(pod);
        end.is_some_and(|end| end <= before_the_next_check)
    }
}

/// The time at which a drain has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub at: Timestamp,
    /// True if an operator set the end with the annotation.
    pub by_person: bool,
}

impl Deadline {
    /// Checks whether the time is over.
    /// An eviction that is asked for from now on is the last one: record it in [`crate::contract::run::Run`].
    pub fn is_past(&self, now: Timestamp) -> bool {
        now >= self.at
    }
}

/// Returns the deadline: `since` plus `drain_timeout` seconds, unless an operator set `recycle-eks/drain-until`.
/// The annotation is an RFC 3339 time, or `now`. Any other text is reported and ignored.
/// A time more than 30 days after `since` is reported and cut to 30 days, because an execution's history has no room for more.
pub fn find_deadline(
    since: Timestamp,
    now: Timestamp,
    drain_timeout: u32,
    drain_until: Option<&str>,
) -> (Deadline, Option<String>) {
    let planned = Deadline {
        at: later(since, drain_timeout),
        by_person: false,
    };
    let asked = |at| Deadline { at, by_person: true };
    let Some(text) = drain_until.map(str::trim) else {
        return (planned, None);
    };
    if text == "now" {
        return (asked(now), None);
    }
    let Ok(at) = text.parse::<Timestamp>() else {
        let mut text = text.to_owned();
        cut_text(&mut text, 60);
        let report = format!(
            "the annotation {DRAIN_UNTIL_ANNOTATION} must be a time such as 2027-01-31T18:00:00Z, or now, but is {text:?}; \
             it is ignored"
        );
        return (planned, Some(report));
    };
    let latest = later(since, LONGEST_DRAIN);
    if at > latest {
        let report = format!(
            "the annotation {DRAIN_UNTIL_ANNOTATION} is {at}, but a drain may last at most 30 days; this drain ends at {latest}"
        );
        return (asked(latest), Some(report));
    }
    (asked(at), None)
}
