//! May the next node of a group start? Checks the end of the rotation, a paused group, and the pauses between nodes and tries.
//!
//! A rotation asks before each of its nodes. Failures are judged in `attempts.rs`, and the first replacement in `canary.rs`.
//!
//! Nothing is remembered from one question to the next: what has begun, what has failed and how the first replacement came out, the world
//! says. A rotation that is started again, or redriven, goes on from there.

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

/// Seconds after which a node that may not start is left for the next rotation; and between two looks at most.
pub(crate) const LONGEST_WAIT: u32 = 86_400;

/// Seconds for which a node waits for evicted pods to find a place. A scheduler or an autoscaler that has not found one by then will not
/// find one by itself, and every further node would make it worse.
pub(crate) const LONGEST_PENDING: u32 = 3_600;

/// Seconds for which a node waits for one before it that has not begun, nor been tried: whoever may begin asks and begins at once, and
/// the retries of its Tasks last no longer (`terraform/state-machine.tf`: ten minutes of waiting, and eleven tries of 90 seconds).
pub(crate) const LONGEST_BEGIN: u32 = 1_800;

/// Seconds between a try that failed and the next at least: what it was put back into has to settle, and what failed is seldom better at once.
pub(crate) const SHORTEST_RETRY: u32 = 60;

/// Characters of what is said of a duplicate, so that ten of them leave room for other groups in a cause: the other execution's ARN. As in
/// NodeDuplicate of `state-machine/rotate-nodes.asl.json`.
const LONGEST_DUPLICATE: usize = 160;

/// Characters of a reason for which a node did not start: it stands beside every such node.
const LONGEST_WHY: usize = 240;

/// What a node waits for. Each has a patience of its own: the seconds of one say nothing of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holdup {
    /// A person who has paused the group.
    Paused,
    /// A node before it, which is about to begin or to be tried again.
    Beginning,
    /// The group's first replacement, which somebody is at work on.
    Canary,
    /// Pods that the rotation evicted.
    Pending,
    /// An execution of its own name.
    Execution,
}

/// What stops a group, by the name that people look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stop {
    /// The first replacement meets the criteria that the old node met: recycling the others would change nothing.
    ReplacementStillOutdated,
    /// A kubelet may be older than the control plane, but not newer (Kubernetes' version skew policy).
    KubeletTooNew,
}

/// Which node asks, as the state machine carries it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Turn {
    pub instance_id: InstanceId,
    /// Its place among the group's nodes, from 0.
    pub index: usize,
    /// When it began to ask, or its last try failed.
    pub began_at: Timestamp,
    /// Seconds that it has waited for others, in all: what the input asks for is not among them.
    pub waited: u32,
    /// What it has waited for last.
    pub waits_for: Option<Holdup>,
    /// Seconds that it has waited for that.
    #[serde(default)]
    pub waited_for_it: u32,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// How the last try ended: the execution's status.
    pub status: Option<String>,
    /// And the error's name, if it had one.
    pub error: Option<String>,
    /// An execution of this try's name is there.
    #[serde(default)]
    pub exists: bool,
}

/// What a turn has to say after a wait, under the same names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// Seconds in all.
    pub waited: u32,
    pub waits_for: Holdup,
    /// Seconds for `waits_for`.
    pub waited_for_it: u32,
}

impl Turn {
    /// Seconds that it has waited for this by now.
    pub(crate) fn waited_for(&self, holdup: Holdup) -> u32 {
        let waits_for_this = self.waits_for == Some(holdup);
        if waits_for_this { self.waited_for_it } else { 0 }
    }
}

/// How a node that is not started, or not again, ends: what stands in the rotation's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// `recycled`, `failed` or `left`.
    pub end: &'static str,
    pub why: String,
    /// What stops the group, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Stop>,
}

/// The answer to the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    Start,
    /// Not yet, for this reason.
    Wait(Holdup, String),
    /// Not yet: somebody is at work on the node that it waits for, however long that takes.
    Await(String),
    /// Not before so many seconds have passed: what the input says, or what lies between two tries.
    Pause(u32),
    /// It does not, but the next may.
    Skip(Ended),
    /// It does not, and neither do those after it.
    Stop(Ended),
}

impl Ended {
    fn new(end: &'static str, why: impl Into<String>, error: Option<Stop>) -> Self {
        let mut why = why.into();
        cut_text(&mut why, LONGEST_WHY);
        Self { end, why, error }
    }

    /// Left for the next rotation.
    pub fn left(why: impl Into<String>) -> Self {
        Self::new("left", why, None)
    }

    /// The same under an error's name.
    pub fn stopping(error: Stop, why: impl Into<String>) -> Self {
        Self::new("left", why, Some(error))
    }

    /// A node whose last try failed has failed, whatever keeps the next from coming.
    pub(crate) fn after(self, turn: &Turn) -> Self {
        match &turn.status {
            Some(status) if self.error.is_none() => {
                Self::new("failed", turn.error.as_ref().unwrap_or(status), None)
            }
            Some(_) | None => self,
        }
    }
}

/// How a node ends whose execution had SUCCEEDED before it was asked about. Its output is what `recycle-node` says: a duplicate has not
/// recycled the node.
#[must_use]
pub fn judge_end_before(output: Option<&Value>) -> Ended {
    let field = |name: &str| output?.get(name)?.as_str();
    if field("outcome") != Some("duplicate") {
        return Ended::left("its execution has ended before");
    }
    let mut why = format!("duplicate: {}", field("reason").unwrap_or_default());
    cut_text(&mut why, LONGEST_DUPLICATE);
    Ended::new("failed", why, None)
}

impl Gate {
    /// The node is left, the next may start.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skip(Ended::left(why))
    }

    /// The node is left, and so are all after it.
    pub fn stop(why: impl Into<String>) -> Self {
        Self::Stop(Ended::left(why))
    }

    /// The same under an error's name.
    pub fn stop_with(error: Stop, why: impl Into<String>) -> Self {
        Self::Stop(Ended::stopping(error, why))
    }
}

/// Seconds to wait after so many: half of that, no less than the shortest and no more than the longest. A day in vain takes 20 looks. The
/// first wait is spread: the groups of a rotation begin at the same moment, and their nodes would all look, and begin, at the same moments.
pub(crate) fn pace(waited: u32, instance: &InstanceId) -> u32 {
    let first = if waited == 0 { spread(instance) } else { 0 };
    (waited / 2).clamp(SHORTEST_WAIT, LONGEST_WAIT) + first
}

/// Whether a node's turn has come because another's was over: as many as there are at once have theirs from the beginning.
#[must_use]
pub fn comes_after_others(turn: &Turn, at_once: u32) -> bool {
    turn.index >= usize::try_from(at_once).unwrap_or(usize::MAX)
}

/// Seconds that lie before this try, from the end of whatever was before it.
fn find_pause(terms: &Terms, turn: &Turn, at_once: u32) -> u32 {
    let between = terms.wait_between_nodes_seconds;
    match turn.status {
        Some(_) => between.max(SHORTEST_RETRY),
        None if comes_after_others(turn, at_once) => between,
        None => 0,
    }
}

/// The cause after which the execution of a try is named: anybody can compute it.
#[must_use]
pub fn name_cause(rotation: &ExecutionArn, attempt: u32) -> String {
    match attempt {
        0 | 1 => rotation.to_string(),
        attempt => format!("{rotation} {attempt}"),
    }
}

/// The execution of a try: of the machine `recycle-node` that belongs to the rotation's own.
pub fn find_execution(
    part: &Part,
    trigger: Trigger,
    instance: &InstanceId,
    attempt: u32,
) -> Result<ExecutionArn, InvalidId> {
    let name = name_try(part, trigger, instance, attempt);
    format!("{}:{name}", name_machine(part)).parse()
}

#[must_use]
pub fn name_try(part: &Part, trigger: Trigger, instance: &InstanceId, attempt: u32) -> String {
    Start::new(trigger.name(), instance, &name_cause(&part.execution, attempt)).name
}

/// The machine that recycles a rotation's nodes.
#[must_use]
pub fn find_machine(part: &Part) -> String {
    name_machine(part).replacen(":execution:", ":stateMachine:", 1)
}

/// What the ARNs of its executions begin with.
fn name_machine(part: &Part) -> String {
    let machine = machine_of(&part.execution);
    let module = machine.strip_suffix("rotate-nodes").unwrap_or(machine);
    format!("{module}recycle-node")
}

/// What needs no question to anybody: dry runs start, what failed for the last time has failed, and after the end nothing starts.
#[must_use]
pub fn check_turn(terms: &Terms, part: &Part, turn: &Turn, now: Timestamp) -> Option<Gate> {
    // A person who stops an execution does not want it again.
    if let Some(status) = &turn.status
        && (status == "ABORTED" || turn.attempt > terms.retries.saturating_add(1))
    {
        return Some(Gate::Skip(Ended::left("not again").after(turn)));
    }
    if terms.dry_run {
        return Some(Gate::Start);
    }
    let end = terms.end(part.began_at).filter(|end| now >= *end)?;
    Some(Gate::stop(format!("start_no_new_node_after was {end}")))
}

/// What the group says: it is gone, or paused, or the node takes no part in it, or the next, or the next try, is not to come yet. `at_once`
/// is how many nodes the group has at once.
#[must_use]
pub fn check_group(
    terms: &Terms,
    turn: &Turn,
    at_once: u32,
    fleet: Option<&Fleet>,
    now: Timestamp,
) -> Option<Gate> {
    let Some(fleet) = fleet else {
        return Some(Gate::stop("the group is gone"));
    };
    match fleet.state_of(&turn.instance_id) {
        None => return Some(Gate::skip("is no member of its group any more")),
        Some("InService") => {}
        Some(state) => return Some(Gate::skip(format!("is {state}"))),
    }
    let since = now.duration_since(turn.began_at).as_secs();
    let left = i64::from(find_pause(terms, turn, at_once)) - since;
    if let Ok(left @ 1..) = u32::try_from(left) {
        return Some(Gate::Pause(left));
    }
    let reason = format!("group {} has the tag {PAUSED_TAG}", fleet.name);
    fleet.is_paused().then_some(Gate::Wait(Holdup::Paused, reason))
}

#[cfg(test)]
mod tests;
