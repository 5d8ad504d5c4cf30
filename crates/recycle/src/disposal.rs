//! The steps by which a drained node leaves: balancers, volumes, then terminate or stop.
//!
//! Each step looks at what is there and not at what was done before, so that it may be repeated after a crash at any point.
//! Whether pods are still on the node is not asked here.

use jiff::Timestamp;

use crate::input::Dispose;
use crate::names::{EXCLUDE_FROM_BALANCERS_LABEL, STOPPED_TAG};
use crate::node::{Instance, NodeFacts};
use crate::poll::next_wait;

/// Seconds to wait for volumes to detach before disposing anyway (DESIGN §5: at most 5 minutes).
pub const VOLUME_GRACE: u32 = 300;
/// Seconds between two looks at an instance that is going.
pub const DISPOSAL_WAIT: u32 = 30;
/// Seconds that an instance may take to go once nothing holds it any more: half an hour, several times what EC2 needs. Longer waits
/// are another tool's lifecycle hook, up to 48 h, which an execution's history has no room for.
pub const DISPOSAL_PATIENCE: u32 = 1_800;

/// The next step of a disposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisposalStep {
    /// Set the label that takes the node out of load balancers; then wait so many seconds.
    LeaveBalancers(u32),
    /// Wait so many seconds; why.
    Wait(u32, String),
    /// Call TerminateInstanceInAutoScalingGroup without decrement; then wait so many seconds.
    Terminate(u32),
    /// Call StopInstances on the Standby member; then wait so many seconds.
    Stop(u32),
    /// Stopped: tag it, remove its Node and our claim.
    Retire,
    /// All is done.
    Done,
    /// It does not go; the text says what it is instead.
    GiveUp(String),
}

/// Decides the next step. `instance` is none if EC2 no longer knows it; `lifecycle_state` is none if it is in no group;
/// `since` is when this execution began to dispose; `balancer_grace` is in seconds.
#[must_use]
pub fn next_disposal_step(
    dispose: Dispose,
    node: Option<&NodeFacts>,
    instance: Option<&Instance>,
    lifecycle_state: Option<&str>,
    since: Timestamp,
    now: Timestamp,
    balancer_grace: u32,
) -> DisposalStep {
    let timing = Timing {
        waited: now.duration_since(since).as_secs(),
        balancer_grace: i64::from(balancer_grace),
    };
    let Some(lifecycle_state) = lifecycle_state else {
        return DisposalStep::Done;
    };
    if is_terminating(lifecycle_state) {
        // The group does the rest, whatever another tool's hook makes it wait for.
        return if timing.left() > 0 {
            DisposalStep::Wait(timing.wait(), format!("the instance is {lifecycle_state}"))
        } else {
            DisposalStep::Done
        };
    }
    let Some(instance) = instance.filter(|instance| !instance.is_gone()) else {
        // The group checks no health in Standby: it lists a dead member until it is told.
        return terminate(lifecycle_state, &timing);
    };
    match dispose {
        Dispose::Terminate => {
            find_what_holds(node, &timing).unwrap_or_else(|| terminate(lifecycle_state, &timing))
        }
        Dispose::Stop => stop(node, instance, lifecycle_state, &timing),
        Dispose::Detach => DisposalStep::GiveUp(
            "dispose \"detach\" has no disposal: the input's check refuses it".to_owned(),
        ),
    }
}

struct Timing {
    /// Seconds since the disposal began.
    waited: i64,
    balancer_grace: i64,
}

impl Timing {
    /// Seconds until patience is at an end.
    fn left(&self) -> i64 {
        self.balancer_grace + i64::from(VOLUME_GRACE) + i64::from(DISPOSAL_PATIENCE) - self.waited
    }

    fn wait(&self) -> u32 {
        next_wait(self.waited, self.left().max(i64::from(DISPOSAL_WAIT)), 0, None)
    }

    fn wait_or_give_up(&self, state: String) -> DisposalStep {
        if self.left() > 0 {
            DisposalStep::Wait(self.wait(), state)
        } else {
            DisposalStep::GiveUp(format!("{state} after {} seconds", self.waited))
        }
    }
}

/// Balancers first, then volumes; none if neither holds the instance any more.
fn find_what_holds(node: Option<&NodeFacts>, timing: &Timing) -> Option<DisposalStep> {
    let node = node?;
    if !node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL) {
        return Some(DisposalStep::LeaveBalancers(whole_seconds(
            timing.balancer_grace.max(1),
        )));
    }
    let was_out_before_us = node.record().is_ok_and(|record| record.excluded_before.is_some());
    let grace_left = timing.balancer_grace - timing.waited;
    if !was_out_before_us && grace_left > 0 {
        return Some(DisposalStep::Wait(
            whole_seconds(grace_left),
            "the load balancers are given time to forget the node".to_owned(),
        ));
    }
    let volumes_left = timing.balancer_grace + i64::from(VOLUME_GRACE) - timing.waited;
    if !node.volumes.is_empty() && volumes_left > 0 {
        return Some(DisposalStep::Wait(
            next_wait(timing.waited, volumes_left, 0, None),
            format!("{} volumes are still attached", node.volumes.len()),
        ));
    }
    None
}

fn terminate(lifecycle_state: &str, timing: &Timing) -> DisposalStep {
    match lifecycle_state {
        // Retained: the group keeps it after a hook was abandoned, until this very call.
        "Standby" | "InService" | "Terminating:Retained" => DisposalStep::Terminate(DISPOSAL_WAIT),
        _ => timing.wait_or_give_up(format!("the instance is {lifecycle_state}")),
    }
}

fn stop(
    node: Option<&NodeFacts>,
    instance: &Instance,
    lifecycle_state: &str,
    timing: &Timing,
) -> DisposalStep {
    match instance.state.as_str() {
        "stopped" if instance.tags.contains_key(STOPPED_TAG) && node.is_none() => DisposalStep::Done,
        "stopped" => DisposalStep::Retire,
        "running" if lifecycle_state == "Standby" => {
            find_what_holds(node, timing).unwrap_or(DisposalStep::Stop(DISPOSAL_WAIT))
        }
        // Stopping a member in service would only make the group replace it once more.
        "running" => timing.wait_or_give_up(format!(
            "the instance is {lifecycle_state} and no longer in Standby"
        )),
        state => timing.wait_or_give_up(format!("the instance is {state}")),
    }
}

fn is_terminating(lifecycle_state: &str) -> bool {
    lifecycle_state.starts_with("Terminat") && lifecycle_state != "Terminating:Retained"
}

fn whole_seconds(seconds: i64) -> u32 {
    u32::try_from(seconds).unwrap_or(0)
}
