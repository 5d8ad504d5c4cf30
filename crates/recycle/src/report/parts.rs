//! The parts of a report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::report::event::{Event, Execution, Stage};

/// To how many looks the counts of pods are thinned: more than a screen has points.
pub(crate) const MOST_LOOKS: usize = 400;

/// How many of the pods that were seen are named.
pub(crate) const MOST_PODS: usize = 200;

/// How many tries that failed are told.
pub(crate) const MOST_TROUBLES: usize = 50;

/// Something that lasted; until now, if it has no end.
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

/// How many pods of each class were seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    pub at: Timestamp,
    pub counts: BTreeMap<String, u32>,
}

/// A pod, and what it counted as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeenPod {
    /// See [`crate::drain::survey::PodSurvey`].
    pub class: String,
    /// `namespace/name`.
    pub name: String,
}

/// What people were told, in the words of the notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    pub at: Timestamp,
    pub event: String,
    pub severity: String,
    pub subject: String,
}

/// A try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub at: Timestamp,
    pub state: String,
    pub error: String,
    pub cause: String,
}

/// What every report begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The ARN of the execution.
    pub execution: String,
    /// The outcome or the error's name; `running` while it runs.
    pub outcome: String,
    /// Whether it came to a good end, or may still.
    pub is_well: bool,
    pub reason: String,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// How many events its history has.
    pub events: i64,
}

/// The report of an execution of `recycle-node`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    pub summary: Summary,
    pub instance: Option<String>,
    /// Its Node, if it came so far.
    pub node: Option<String>,
    /// Its group, if it came so far.
    pub group: Option<String>,
    pub cluster: Option<String>,
    pub stages: Vec<Span<Stage>>,
    /// How often the pods were looked at.
    pub polls: usize,
    /// How many pods were seen, wherever that changed.
    pub looks: Vec<Look>,
    /// The pods that answers named: of each class the first five, in the order of the alphabet.
    pub pods: Vec<Span<SeenPod>>,
    /// What kept the drain from going on.
    pub blocked: Vec<Span<Vec<String>>>,
    pub told: Vec<Told>,
    pub troubles: Vec<Trouble>,
    /// What a dry run would do.
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
        reason: end.map_or("", |end| end.reason()).to_owned(),
        started_at: execution.started_at,
        ended_at: execution.ended_at,
        events: events.last().map_or(0, |event| event.id),
    }
}

/// Evenly, the first and the last stay.
pub(crate) fn thin(looks: &mut Vec<Look>) {
    let every = looks.len().div_ceil(MOST_LOOKS).max(1);
    let last = looks.len().saturating_sub(1);
    let mut stays = (0..=last).map(|index| index % every == 0 || index == last);
    looks.retain(|_| stays.next().unwrap_or_default());
}
