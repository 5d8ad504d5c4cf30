//! The parts of a report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::report::event::{Execution, Stage};

/// To how many looks the counts of pods are thinned: more than a screen has points.
pub(crate) const MOST_LOOKS: usize = 400;

/// How many of the pods that were seen are named.
pub(crate) const MOST_PODS: usize = 200;

/// How many tries that failed are told.
pub(crate) const MOST_TROUBLES: usize = 50;

/// Something that lasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span<What> {
    /// What.
    pub what: What,
    /// Since when.
    pub since: Timestamp,
    /// Until when; none: it lasts.
    pub until: Option<Timestamp>,
}

/// How many pods of each class were seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    /// When.
    pub at: Timestamp,
    /// How many of each class.
    pub counts: BTreeMap<String, u32>,
}

/// A pod, and what it counted as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeenPod {
    /// The class ([`crate::drain::survey::PodSurvey`]).
    pub class: String,
    /// `namespace/name`.
    pub name: String,
}

/// What people were told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// When.
    pub at: Timestamp,
    /// The notification's `event`.
    pub event: String,
    /// Its `severity`.
    pub severity: String,
    /// Its `subject`.
    pub subject: String,
}

/// A try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// When.
    pub at: Timestamp,
    /// In which state.
    pub state: String,
    /// The error's name.
    pub error: String,
    /// Its text.
    pub cause: String,
}

/// What every report begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The execution.
    pub execution: String,
    /// The outcome or the error's name; `running` while it runs.
    pub outcome: String,
    /// Whether it came to a good end, or may still.
    pub is_well: bool,
    /// Why.
    pub reason: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; none while it runs.
    pub ended_at: Option<Timestamp>,
    /// How many events its history has.
    pub events: i64,
}

/// The report of an execution of `recycle-node`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// The summary.
    pub summary: Summary,
    /// The instance.
    pub instance: Option<String>,
    /// Its Node, if it came so far.
    pub node: Option<String>,
    /// Its group, if it came so far.
    pub group: Option<String>,
    /// Its cluster.
    pub cluster: Option<String>,
    /// Its stages, one after the other.
    pub stages: Vec<Span<Stage>>,
    /// How often the pods were looked at.
    pub polls: usize,
    /// How many pods were seen, wherever that changed.
    pub looks: Vec<Look>,
    /// The pods that answers named: of each class the first five, in the order of the alphabet.
    pub pods: Vec<Span<SeenPod>>,
    /// What kept the drain from going on.
    pub blocked: Vec<Span<Vec<String>>>,
    /// What people were told.
    pub told: Vec<Told>,
    /// Tries that failed.
    pub troubles: Vec<Trouble>,
    /// What a dry run would do.
    pub plan: Vec<String>,
}

pub(crate) fn summarize(execution: &Execution) -> Summary {
    let text = |name: &str| {
        execution
            .output
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let failed = execution.error.clone();
    let outcome = failed.or_else(|| text("outcome"));
    Summary {
        execution: execution.arn.clone(),
        outcome: outcome.unwrap_or_else(|| execution.status.to_lowercase()),
        is_well: matches!(execution.status.as_str(), "SUCCEEDED" | "RUNNING"),
        reason: execution
            .cause
            .clone()
            .or_else(|| text("reason"))
            .unwrap_or_default(),
        started_at: execution.started_at,
        ended_at: execution.ended_at,
        events: execution.events.last().map_or(0, |event| event.id),
    }
}

/// Evenly, the first and the last stay.
pub(crate) fn thin(looks: &mut Vec<Look>) {
    let every = looks.len().div_ceil(MOST_LOOKS).max(1);
    let last = looks.len().saturating_sub(1);
    let mut index = 0;
    looks.retain(|_| {
        let stays = index % every == 0 || index == last;
        index += 1;
        stays
    });
}
