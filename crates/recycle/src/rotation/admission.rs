//! Decides whether the next node of a group may start: checks the end of the rotation, a paused group, and pauses.
//!
//! A rotation asks before each of its nodes. `attempts.rs` judges failures, and `canary.rs` judges the first replacement.
//!
//! Each check reads live state: the nodes that have begun, the nodes that have failed, and the first replacement. No check depends on
//! an earlier one. So a rotation that is started again, or redriven, continues from the live state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::ids::{ExecutionArn, InstanceId, InvalidId};
use crate::base::names::PAUSED_TAG;
use crate::base::poll::{SHORTEST_WAIT, spread};
use crate::base::text::cut_text;
use crate::input::start::Start;
use crate::rotation::fleet::Fleet;
use crate::rotation::marks::machine_of;
use crate::rotation::request::Trigger;
use crate::rotation::terms::{Part, Terms};

/// Seconds that a node waits for one reason before it and the nodes after it are left for the next rotation.
/// Also the longest wait between two checks.
pub(crate) const LONGEST_WAIT: u32 = 86_400;

/// Seconds for which a node waits for evicted pods to find a place.
/// A scheduler or an autoscaler that has not found one by then does not find one by itself.
/// Every further node would make the shortage worse.
pub(crate) const LONGEST_PENDING: u32 = 3_600;

/// Seconds for which a node waits for an earlier node without any execution.
/// A node that may start asks and is started at once.
/// The retries of its Tasks last no longer (`terraform/state-machine.tf`: ten minutes of waiting, and eleven attempts of 90 seconds).
pub(crate) const LONGEST_BEGIN: u32 = 1_800;

/// The fewest seconds between a failed attempt and the next.
/// A restored node needs time to settle, and the cause of a failure seldom disappears at once.
pub(crate) const SHORTEST_RETRY: u32 = 60;

/// Characters of the text about a duplicate, which holds the other execution's ARN.
/// Ten such texts leave room for other groups in a cause. `NodeDuplicate` in `state-machine/rotate-nodes.asl.json` has the same limit.
const LONGEST_DUPLICATE: usize = 160;

/// Characters of the reason for which a node did not start. The output repeats the reason for every such node.
const LONGEST_WHY: usize = 240;

/// The reason for which a node waits. Seconds are counted for the current reason only, because each reason has its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// An operator has paused the group.
    Paused,
    /// The first or next attempt of an earlier node is about to begin.
    Beginning,
    /// An execution is working on an earlier node, whose replacement, the group's first, is not known yet.
    Canary,
    /// Pods that the rotation evicted are still Pending.
    Pending,
    /// The execution of this attempt, which has the same name, still runs.
    Execution,
    /// A CloudWatch alarm is in ALARM, or its state cannot be read.
    Alarm,
}

/// The error names under which a group stops, as they stand in the rotation's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stop {
    /// The first replacement meets the criteria that the old node met. Recycling the other nodes would change nothing.
    ReplacementStillOutdated,
    /// A kubelet is newer than the control plane. Kubernetes' version skew policy allows an older kubelet, but no newer one.
    KubeletTooNew,
    /// Only the Nodes of some members could say whether these must be recycled, and they do not.
    NodeUnreadable,
    /// Pods that the rotation evicted were Pending for an hour.
    PodsPending,
}

/// The node that asks to start, as the state machine carries it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WaitingNode {
    pub instance_id: InstanceId,
    /// Position among the group's nodes, from 0.
    pub index: usize,
    /// The time of its first check, or of the end of its last failed attempt.
    pub began_at: Timestamp,
    /// Total seconds of waiting. Pauses between nodes or attempts do not count.
    pub waited: u32,
    pub waits_for: Option<WaitReason>,
    /// Seconds of waiting for `waits_for`.
    #[serde(default)]
    pub waited_for_it: u32,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Status of the last attempt's execution.
    pub status: Option<String>,
    /// Error name of the last attempt, if it had one.
    pub error: Option<String>,
    /// Whether an execution with the name of this attempt already exists.
    #[serde(default)]
    pub exists: bool,
    /// Present if CloudWatch was asked since the last check.
    pub alarms: Option<AlarmAnswer>,
}

/// The answer of CloudWatch about the alarms of a rotation, as the state machine passes it on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmAnswer {
    States(Vec<AlarmState>),
    /// The error name of the call.
    Error(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AlarmState {
    pub name: String,
    /// `StateValue`: `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
}

/// The fields of [`WaitingNode`] that change with a wait, under the same names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// Total seconds of waiting.
    pub waited: u32,
    pub waits_for: WaitReason,
    /// Seconds for `waits_for`.
    pub waited_for_it: u32,
}

impl WaitingNode {
    /// Returns the seconds that the node has waited for this reason so far.
    pub(crate) fn waited_for(&self, wait_reason: WaitReason) -> u32 {
        let waits_for_this = self.waits_for == Some(wait_reason);
        if waits_for_this { self.waited_for_it } else { 0 }
    }
}

/// The end of a node that is not started, or gets no further attempt. It is part of the rotation's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// `failed`, `left`, `next_pass`, or `none` for a group of which nothing is left.
    pub end: &'static str,
    pub why: String,
    /// The error name under which the group stops, if it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Stop>,
}

/// The decision whether a node may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Start,
    /// Waits for this reason, for a day at most.
    Wait(WaitReason, String),
    /// Waits for an execution that is working on an earlier node, however long that takes.
    Await(String),
    /// Has the state machine read the states of the alarms, and asks again.
    DescribeAlarms,
    /// Waits this many seconds: a pause of the input, whose field is named, or the pause between two attempts.
    Pause(u32, &'static str),
    /// Leaves this node. The next node may start.
    Skip(Ended),
    /// Leaves this node and all nodes after it.
    Stop(Ended),
}

impl Ended {
    fn new(end: &'static str, why: impl Into<String>, error: Option<Stop>) -> Self {
        let mut why = why.into();
        cut_text(&mut why, LONGEST_WHY);
        Self { end, why, error }
    }

    /// Leaves the node for the next rotation.
    pub fn left(why: impl Into<String>) -> Self {
        Self::new("left", why, None)
    }

    /// Leaves the node for the next rotation, under an error's name.
    pub fn stopping(error: Stop, why: impl Into<String>) -> Self {
        Self::new("left", why, Some(error))
    }

    /// Ends a later pass of a group, because no node is left to recycle.
    pub fn nothing_left(why: impl Into<String>) -> Self {
        Self::new("none", why, None)
    }

    /// Leaves the node for the next pass of the same rotation ([`crate::rotation::passes`]).
    pub fn next_pass(why: impl Into<String>) -> Self {
        Self::new("next_pass", why, None)
    }

    /// Changes the end to `failed` if the last attempt failed, whatever prevents the next one.
    /// An end under an error's name stays as it is.
    pub(crate) fn after(self, waiting_node: &WaitingNode) -> Self {
        match &waiting_node.status {
            Some(status) if self.error.is_none() => {
                Self::new("failed", waiting_node.error.as_ref().unwrap_or(status), None)
            }
            Some(_) | None => self,
        }
    }
}

/// Returns the end of a node whose execution had SUCCEEDED before the node asked. `output` is that of `recycle-node`.
/// A duplicate has not recycled the node, so the node has failed.
pub fn judge_end_before(output: Option<&Value>) -> Ended {
    let field = |name: &str| output?.get(name)?.as_str();
    if field("outcome") != Some("duplicate") {
        return Ended::left("its execution had already ended");
    }
    let mut why = format!("duplicate: {}", field("reason").unwrap_or_default());
    cut_text(&mut why, LONGEST_DUPLICATE);
    Ended::new("failed", why, None)
}

impl Admission {
    /// Leaves the node. The next node may start.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skip(Ended::left(why))
    }

    /// Leaves the node and all nodes after it.
    pub fn stop(why: impl Into<String>) -> Self {
        Self::Stop(Ended::left(why))
    }

    /// Leaves the node and all nodes after it, under an error's name.
    pub fn stop_with(error: Stop, why: impl Into<String>) -> Self {
        Self::Stop(Ended::stopping(error, why))
    }
}

/// Returns the seconds to wait next: half of what was waited so far, from [`SHORTEST_WAIT`] to [`LONGEST_WAIT`].
/// A day of waiting takes 20 checks.
/// The first wait is longer by a spread, because the groups of a rotation begin at the same moment.
/// Without it, their nodes would all check, and begin, at the same moments.
pub(crate) fn pace(waited: u32, instance: &InstanceId) -> u32 {
    let first = if waited == 0 { spread(instance) } else { 0 };
    (waited / 2).clamp(SHORTEST_WAIT, LONGEST_WAIT) + first
}

/// Checks whether a node asks only after another node has ended.
/// The first `at_once` nodes ask from the beginning.
pub fn comes_after_others(waiting_node: &WaitingNode, at_once: u32) -> bool {
    waiting_node.index >= usize::try_from(at_once).unwrap_or(usize::MAX)
}

/// Returns the seconds that must pass before this attempt, counted from `WaitingNode::began_at`.
fn find_pause(terms: &Terms, waiting_node: &WaitingNode, at_once: u32) -> u32 {
    let between = terms.wait_between_nodes;
    match waiting_node.status {
        Some(_) => between.max(SHORTEST_RETRY),
        None if comes_after_others(waiting_node, at_once) => between,
        None => 0,
    }
}

/// Returns the cause that gives the execution of an attempt its name. It depends only on the rotation and the attempt.
pub fn name_cause(rotation: &ExecutionArn, attempt: u32) -> String {
    match attempt {
        0 | 1 => rotation.to_string(),
        attempt => format!("{rotation} {attempt}"),
    }
}

/// Returns the ARN of the execution of an attempt, in the `recycle-node` machine of the rotation's installation.
pub fn find_execution(
    part: &Part,
    trigger: Trigger,
    instance: &InstanceId,
    attempt: u32,
) -> Result<ExecutionArn, InvalidId> {
    let name = name_attempt(part, trigger, instance, attempt);
    format!("{}:{name}", name_machine(part)).parse()
}

pub fn name_attempt(part: &Part, trigger: Trigger, instance: &InstanceId, attempt: u32) -> String {
    Start::new(trigger.name(), instance, &name_cause(&part.execution, attempt)).name
}

/// Returns the ARN of the machine that recycles a rotation's nodes.
pub fn find_machine(part: &Part) -> String {
    name_machine(part).replacen(":execution:", ":stateMachine:", 1)
}

/// Returns the prefix of the ARNs of that machine's executions.
fn name_machine(part: &Part) -> String {
    let machine = machine_of(&part.execution);
    let module = machine.strip_suffix("rotate-nodes").unwrap_or(machine);
    format!("{module}recycle-node")
}

/// Decides without a call to AWS or Kubernetes. A node gets no attempt after its last retry, or after its execution was ABORTED.
/// A dry run always starts, and no other node starts after the end.
pub fn check_waiting_node(
    terms: &Terms,
    part: &Part,
    waiting_node: &WaitingNode,
    now: Timestamp,
) -> Option<Admission> {
    // An operator who stops an execution does not want another one.
    if let Some(status) = &waiting_node.status
        && (status == "ABORTED" || waiting_node.attempt > terms.retries.saturating_add(1))
    {
        return Some(Admission::Skip(
            Ended::left("no further attempt").after(waiting_node),
        ));
    }
    if terms.dry_run {
        return Some(Admission::Start);
    }
    let end = terms.end(part.began_at).filter(|end| now >= *end)?;
    Some(Admission::stop(format!("start_no_new_node_after was {end}")))
}

/// Decides from the state of the group. The group may be gone or paused, or the node may be out of service.
/// The pause before the node or the attempt may also not be over yet. `at_once` is the number of nodes that may ask or run at once.
pub fn check_group(
    terms: &Terms,
    waiting_node: &WaitingNode,
    at_once: u32,
    fleet: Option<&Fleet>,
    now: Timestamp,
) -> Option<Admission> {
    let Some(fleet) = fleet else {
        return Some(Admission::stop("the group is gone"));
    };
    match fleet.state_of(&waiting_node.instance_id) {
        None => return Some(Admission::skip("is no longer a member of its group")),
        Some("InService") => {}
        Some(state) => return Some(Admission::skip(format!("is {state}"))),
    }
    let since = now.duration_since(waiting_node.began_at).as_secs();
    let left = i64::from(find_pause(terms, waiting_node, at_once)) - since;
    if let Ok(left @ 1..) = u32::try_from(left) {
        return Some(Admission::Pause(left, "wait_between_nodes"));
    }
    let reason = format!("group {} has the tag {PAUSED_TAG}", fleet.name);
    fleet
        .is_paused()
        .then_some(Admission::Wait(WaitReason::Paused, reason))
}

#[cfg(test)]
mod tests;
