//! May the next node of a group start? What a rotation asks before each of its nodes, for every node anew.
//!
//! Nothing is remembered from one question to the next: what has begun, what has failed and how the first replacement came out, the world
//! says. A rotation that is started again, or redriven, goes on from there.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claim::StoredClaim;
use crate::contract::{Answer, SelectVerdict, Start};
use crate::evicted::is_noted;
use crate::ids::{ExecutionArn, InstanceId, InvalidId};
use crate::names::{EVICTED_ANNOTATION, PAUSED_TAG, REPLACES_LABEL};
use crate::node::{NodeFacts, is_leaving};
use crate::outdated::Release;
use crate::pods::{PodFacts, cut_text};
use crate::poll::{SHORTEST_WAIT, spread};
use crate::rotation::{Part, Terms};
use crate::select::{Fleet, Rotation, Trigger};
use crate::turn::waits_for_turn;

/// Seconds after which a node that may not start is left for the next rotation; and between two looks at most.
const LONGEST_WAIT: u32 = 86_400;
/// Seconds for which a node waits for evicted pods to find a place. A scheduler or an autoscaler that has not found one by then will not
/// find one by itself, and every further node would make it worse.
const LONGEST_PENDING: u32 = 3_600;
/// Seconds for which a node waits for one before it that has not begun, nor been tried: whoever may begin asks and begins at once, and
/// the retries of its Tasks last no longer (`terraform/state-machine.tf`: ten minutes of waiting, and eleven tries of 90 seconds).
const LONGEST_BEGIN: u32 = 1_800;
/// Seconds between a try that failed and the next at least: what it was put back into has to settle, and what failed is seldom better at once.
const SHORTEST_RETRY: u32 = 60;
/// Bytes of what is said of a duplicate, so that ten of them leave room for other groups in a cause: the other execution's ARN. As in
/// NodeDuplicate of `state-machine/rotate-nodes.asl.json`.
const LONGEST_DUPLICATE: usize = 160;
/// Bytes of a reason for which a node did not start: it stands beside every such node.
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
    /// The node.
    pub instance_id: InstanceId,
    /// Its place among the group's nodes, from 0.
    pub index: usize,
    /// When it began to ask, or its last try failed.
    pub began_at: Timestamp,
    /// Seconds that it has waited for others, in all: what the input asks for is not among them.
    pub waited: u32,
    /// What it has waited for last.
    #[serde(default)]
    pub waits_for: Option<Holdup>,
    /// Seconds that it has waited for that.
    #[serde(default)]
    pub waited_for_it: u32,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// How the last try ended: the execution's status.
    #[serde(default)]
    pub status: Option<String>,
    /// And the error's name, if it had one.
    #[serde(default)]
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
    /// What for.
    pub waits_for: Holdup,
    /// Seconds for that.
    pub waited_for_it: u32,
}

impl Turn {
    /// Seconds that it has waited for this by now.
    fn waited_for(&self, holdup: Holdup) -> u32 {
        if self.waits_for == Some(holdup) {
            self.waited_for_it
        } else {
            0
        }
    }
}

/// How a node that is not started, or not again, ends: what stands in the rotation's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// `recycled`, `failed` or `left`.
    pub end: &'static str,
    /// Why.
    pub why: String,
    /// What stops the group, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Stop>,
}

/// The answer to the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// It may.
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
    /// Left for the next rotation.
    pub fn left(why: impl Into<String>) -> Self {
        let mut why = why.into();
        cut_text(&mut why, LONGEST_WHY);
        Self {
            end: "left",
            why,
            error: None,
        }
    }

    /// The same under an error's name.
    pub fn stopping(error: Stop, why: impl Into<String>) -> Self {
        Self {
            error: Some(error),
            ..Self::left(why)
        }
    }
}

/// How a node ends whose execution had SUCCEEDED before it was asked about. Its output is what `recycle-node` says: a duplicate has not
/// recycled the node.
#[must_use]
pub fn judge_end_before(output: Option<&Value>) -> Ended {
    let field = |name: &str| output.and_then(|output| output.get(name)).and_then(Value::as_str);
    match (field("outcome"), field("reason")) {
        (Some("duplicate"), reason) => {
            let mut why = format!("duplicate: {}", reason.unwrap_or_default());
            cut_text(&mut why, LONGEST_DUPLICATE);
            Ended {
                end: "failed",
                ..Ended::left(why)
            }
        }
        (Some(_) | None, _) => Ended::left("its execution has ended before"),
    }
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

    /// As the state machine is told. Whoever has waited for a day is left.
    #[must_use]
    pub fn answer(self, rotation: &Rotation, part: &Part, turn: &Turn) -> Answer<SelectVerdict> {
        match self {
            Self::Start => Answer {
                start: Some(Start::new(
                    rotation.trigger.name(),
                    &turn.instance_id,
                    &name_cause(&part.execution, turn.attempt),
                )),
                ..Answer::new(SelectVerdict::Start, format!("{} may start", turn.instance_id))
            },
            Self::Wait(holdup, reason) => {
                if turn.waited_for(holdup) >= LONGEST_WAIT {
                    return Self::stop(format!("waited for a day: {reason}")).answer(rotation, part, turn);
                }
                wait(holdup, reason, turn)
            }
            Self::Await(reason) => wait(Holdup::Canary, reason, turn),
            Self::Pause(seconds) => {
                Answer::new(SelectVerdict::Pause, "wait_between_nodes_seconds").waiting(seconds)
            }
            Self::Skip(ended) => ended.after(turn).answer(SelectVerdict::Skip),
            Self::Stop(ended) => ended.after(turn).answer(SelectVerdict::Stop),
        }
    }
}

fn wait(holdup: Holdup, reason: String, turn: &Turn) -> Answer<SelectVerdict> {
    let seconds = pace(turn.waited, &turn.instance_id);
    Answer {
        after_wait: Some(Waited {
            waited: turn.waited.saturating_add(seconds),
            waits_for: holdup,
            waited_for_it: turn.waited_for(holdup).saturating_add(seconds),
        }),
        ..Answer::new(SelectVerdict::Wait, reason).waiting(seconds)
    }
}

impl Ended {
    /// Whose last try failed has failed, whatever keeps the next from coming.
    fn after(self, turn: &Turn) -> Self {
        match &turn.status {
            Some(status) if self.error.is_none() => Self {
                end: "failed",
                ..Self::left(turn.error.clone().unwrap_or_else(|| status.clone()))
            },
            Some(_) | None => self,
        }
    }

    fn answer(self, verdict: SelectVerdict) -> Answer<SelectVerdict> {
        Answer {
            ended: Some(self.clone()),
            ..Answer::new(verdict, self.why)
        }
    }
}

/// Seconds to wait after so many: half of that, no less than the shortest and no more than the longest. A day in vain takes 20 looks. The
/// first wait is spread: the groups of a rotation begin at the same moment, and their nodes would all look, and begin, at the same moments.
fn pace(waited: u32, instance: &InstanceId) -> u32 {
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
    format!(
        "{}:{}",
        name_machine(part),
        name_try(part, trigger, instance, attempt)
    )
    .parse()
}

/// The name of that execution.
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
    let rotation = part.execution.as_str();
    let machine = rotation.rsplit_once(':').map_or(rotation, |(machine, _)| machine);
    format!(
        "{}recycle-node",
        machine.strip_suffix("rotate-nodes").unwrap_or(machine)
    )
}

/// What needs no question to anybody: dry runs start, what failed for the last time has failed, and after the end nothing starts.
#[must_use]
pub fn check_turn(terms: &Terms, part: &Part, turn: &Turn, now: Timestamp) -> Option<Gate> {
    if let Some(status) = &turn.status {
        // Somebody who stops an execution does not want it again.
        if status == "ABORTED" || turn.attempt > terms.retries.saturating_add(1) {
            return Some(Gate::Skip(Ended::left("not again").after(turn)));
        }
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
    let member = fleet
        .members
        .iter()
        .find(|member| member.instance == turn.instance_id);
    match member.map(|member| member.lifecycle_state.as_str()) {
        None => return Some(Gate::skip("is no member of its group any more")),
        Some("InService") => {}
        Some(state) => return Some(Gate::skip(format!("is {state}"))),
    }
    let since = now.duration_since(turn.began_at).as_secs();
    let left = i64::from(find_pause(terms, turn, at_once)) - since;
    if let Some(left) = u32::try_from(left).ok().filter(|left| *left > 0) {
        return Some(Gate::Pause(left));
    }
    fleet.is_paused().then(|| {
        Gate::Wait(
            Holdup::Paused,
            format!("group {} has the tag {PAUSED_TAG}", fleet.name),
        )
    })
}

/// What became of an earlier node's execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// There is none.
    NotBegun,
    /// It runs.
    Running,
    /// It failed, and is about to be tried again.
    BetweenTries,
    /// It ended well.
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
    earlier
        .iter()
        .filter(|id| is_there(id, fleet) && !is_under_way(id))
        .collect()
}

/// The earlier nodes that are gone: recycled, most of them, and some lost. There are too many to ask about each.
#[must_use]
pub fn find_gone<'a>(earlier: &'a [InstanceId], fleet: &Fleet) -> Vec<&'a InstanceId> {
    earlier.iter().filter(|id| !is_there(id, fleet)).collect()
}

fn find_state<'a>(node: &InstanceId, fleet: &'a Fleet) -> Option<&'a str> {
    let mut members = fleet.members.iter();
    let member = members.find(|member| member.instance == *node)?;
    Some(member.lifecycle_state.as_str())
}

/// Whether a node is a member of its group, and stays one.
fn is_there(node: &InstanceId, fleet: &Fleet) -> bool {
    find_state(node, fleet).is_some_and(|state| !is_leaving(state))
}

/// Whether a node is a member in service: only such a one begins.
#[must_use]
pub fn is_in_service(node: &InstanceId, fleet: &Fleet) -> bool {
    find_state(node, fleet) == Some("InService")
}

/// Whether one of these earlier nodes, which are in service and have not begun, has been left: beside the one that asks only so many less
/// one have their turn.
#[must_use]
pub fn is_one_left(not_begun: usize, at_once: u32) -> bool {
    not_begun >= usize::try_from(at_once).unwrap_or(usize::MAX)
}

/// Whether more nodes have failed than may.
#[must_use]
pub fn check_failures(budget: u32, failed: usize) -> Option<Gate> {
    (failed > usize::try_from(budget).unwrap_or(usize::MAX)).then(|| {
        Gate::stop(format!(
            "{failed} of its nodes failed, and failure_budget is {budget}"
        ))
    })
}

/// A node of the rotation that has begun, as the cluster knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// It.
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

/// How it stands with the first replacement of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canary<'a> {
    /// Two have begun: whoever came second has seen it.
    Passed,
    /// It is there, to be judged.
    Judge(&'a NodeFacts),
    /// It is awaited.
    Await(&'a InstanceId),
    /// None has begun: what became of the nodes before this one has to be asked.
    Ask,
    /// This is the first.
    First,
}

/// Finds it for the node of this turn.
#[must_use]
pub fn find_canary<'a>(turn: &Turn, begun: &'a [Begun]) -> Canary<'a> {
    let others: Vec<&Begun> = begun
        .iter()
        .filter(|one| one.instance != turn.instance_id)
        .collect();
    match others.as_slice() {
        [] if turn.index == 0 => Canary::First,
        [] => Canary::Ask,
        [only] => only
            .replacement
            .as_ref()
            .map_or(Canary::Await(&only.instance), Canary::Judge),
        [_, _, ..] => Canary::Passed,
    }
}

/// Who waits without a question to Step Functions: while somebody is at work on the group's first node; and, of those that ask from the
/// beginning, at the first look, as the first node is about to begin then. Else a rotation of many groups would ask hundreds of
/// questions at one moment.
#[must_use]
pub fn check_canary(canary: &Canary<'_>, turn: &Turn, at_once: u32) -> Option<Gate> {
    match canary {
        Canary::Await(first) => Some(Gate::Await(describe_awaited(first))),
        Canary::Ask if turn.waited == 0 && !comes_after_others(turn, at_once) => {
            let reason = "the group's first node is about to begin";
            Some(Gate::Wait(Holdup::Beginning, reason.to_owned()))
        }
        Canary::Ask | Canary::Passed | Canary::Judge(_) | Canary::First => None,
    }
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

/// Why a node waits for another.
fn describe_awaited(first: &InstanceId) -> String {
    format!("the replacement of {first}, the group's first, is not known yet")
}

/// Whether the first replacement's kubelet is newer than the control plane.
#[must_use]
pub fn check_kubelet(replacement: &NodeFacts, control_plane: Option<Release>) -> Option<Gate> {
    let kubelet = Release::read(&replacement.kubelet)?;
    let plane = control_plane.filter(|plane| kubelet > *plane)?;
    Some(Gate::stop_with(
        Stop::KubeletTooNew,
        format!(
            "the replacement {} has kubelet {kubelet}, the control plane is {plane}",
            replacement.name
        ),
    ))
}

/// The pods that wait for a node because this rotation evicted their like.
#[must_use]
pub fn find_displaced(begun: &[Begun], pending: &[PodFacts], began_at: Timestamp) -> Vec<String> {
    let evicted: BTreeSet<&str> = begun
        .iter()
        .filter_map(|one| one.replacement.as_ref()?.annotations.get(EVICTED_ANNOTATION))
        .flat_map(|hashes| hashes.split(' '))
        .collect();
    pending
        .iter()
        .filter(|pod| pod.created_at.is_some_and(|created| created >= began_at) && pod.deletion_at.is_none())
        .filter(|pod| is_noted(&evicted, pod))
        .map(PodFacts::full_name)
        .collect()
}

/// Whether any node of the rotation has evicted anything.
#[must_use]
pub fn has_evicted(begun: &[Begun]) -> bool {
    let mut replacements = begun.iter().filter_map(|one| one.replacement.as_ref());
    replacements.any(|node| node.annotations.contains_key(EVICTED_ANNOTATION))
}

/// What to do about them.
#[must_use]
pub fn check_displaced(displaced: &[String], turn: &Turn) -> Option<Gate> {
    let first = displaced.first()?;
    let text = format!(
        "{} pods that this rotation evicted are still Pending, such as {first}",
        displaced.len()
    );
    Some(if turn.waited_for(Holdup::Pending) >= LONGEST_PENDING {
        Gate::stop(text)
    } else {
        Gate::Wait(Holdup::Pending, text)
    })
}

#[cfg(test)]
mod tests;
