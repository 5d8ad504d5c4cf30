//! Defines the parts of a report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::report::event::{Event, Execution, Stage};

/// Number of checks to which the counts of pods are thinned. A screen has fewer points.
pub(crate) const MOST_LOOKS: usize = 400;

/// The maximum number of pods that a report names.
pub(crate) const MOST_PODS: usize = 200;

/// The maximum number of failed attempts that a report lists.
pub(crate) const MOST_FAILED_ATTEMPTS: usize = 50;

/// A condition that lasted. Without an end, it still lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span<What> {
    pub what: What,
    pub since: Timestamp,
    pub until: Option<Timestamp>,
}

impl<What> Span<What> {
    pub(crate) fn begin(what: What, since: Timestamp) -> Self {
        Self {
            what,
            since,
            until: None,
        }
    }
}

/// The number of pods of each class, at one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    pub at: Timestamp,
    pub counts: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeenPod {
    /// See [`crate::drain::survey::PodSurvey`].
    pub class: String,
    /// `namespace/name`.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SentNotification {
    pub at: Timestamp,
    pub event: String,
    pub severity: String,
    pub subject: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedAttempt {
    pub at: Timestamp,
    pub state: String,
    pub error: String,
    pub cause: String,
}

/// The facts with which every report begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// ARN of the execution.
    pub execution: String,
    /// Outcome or error name. `running` while the execution runs.
    pub outcome: String,
    /// Whether the execution succeeded, or still runs.
    pub is_well: bool,
    pub reason: String,
    /// The fields of the input that were set, without those that name the node, the selection, or the cause of the start.
    pub settings: BTreeMap<String, Value>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Number of events in the history.
    pub events: i64,
}

/// The fields of the inputs that are no settings.
const NO_SETTINGS: [&str; 9] = [
    "instance_id",
    "cluster_name",
    "hook",
    "interrupted_at",
    "trigger",
    "selection",
    "event",
    "recycle",
    "started_by",
];

/// The report of an execution of `recycle-node`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    pub summary: Summary,
    pub instance: Option<String>,
    /// Name of the Node, if the execution came that far.
    pub node: Option<String>,
    /// Name of the group, if the execution came that far.
    pub group: Option<String>,
    pub cluster: Option<String>,
    /// Instance that replaces the node, if the execution waited until one was usable.
    pub replacement: Option<String>,
    pub stages: Vec<Span<Stage>>,
    /// Number of checks of the pods.
    pub polls: usize,
    /// Checks at which the number of pods of a class changed.
    pub looks: Vec<Look>,
    /// Pods that answers named. An answer names the first five of each class, in alphabetical order.
    pub pods: Vec<Span<SeenPod>>,
    /// Times during which the drain was blocked, and what blocked it.
    pub blocked: Vec<Span<Vec<String>>>,
    pub notifications: Vec<SentNotification>,
    pub failed_attempts: Vec<FailedAttempt>,
    /// Steps that a dry run lists.
    pub plan: Vec<String>,
}

pub(crate) fn summarize(execution: &Execution, events: &[Event]) -> Summary {
    let end = execution.end.as_ref();
    Summary {
        execution: execution.arn.clone(),
        outcome: match end {
            Some(end) if end.outcome() == end.status => end.status.to_lowercase(),
            Some(end) => end.outcome().to_owned(),
            None => "running".to_owned(),
        },
        is_well: end.is_none_or(|end| end.status == "SUCCEEDED"),
        reason: read_cause(end.map_or("", |end| end.reason())),
        settings: list_settings(&execution.input),
        started_at: execution.started_at,
        ended_at: execution.ended_at,
        events: events.last().map_or(0, |event| event.id),
    }
}

fn list_settings(input: &Value) -> BTreeMap<String, Value> {
    let of_nodes = input["recycle"].as_object();
    let fields = input.as_object().into_iter().chain(of_nodes).flatten();
    let set = fields.filter(|(name, value)| !value.is_null() && !NO_SETTINGS.contains(&name.as_str()));
    set.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the error text. The cause of a Lambda error is a JSON document that contains it.
pub(crate) fn read_cause(cause: &str) -> String {
    let document: Value = serde_json::from_str(cause).unwrap_or_default();
    document["errorMessage"].as_str().unwrap_or(cause).to_owned()
}

/// Removes checks at even distances. The first and the last stay.
pub(crate) fn thin(looks: &mut Vec<Look>) {
    let every = looks.len().div_ceil(MOST_LOOKS).max(1);
    let last = looks.len().saturating_sub(1);
    let mut stays = (0..=last).map(|index| index % every == 0 || index == last);
    looks.retain(|_| stays.next().unwrap_or_default());
}
