//! An execution and its history events.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// An execution, as DescribeExecution tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Its ARN.
    pub arn: String,
    /// `status`.
    pub status: String,
    /// `startDate`.
    pub started_at: Timestamp,
    /// `stopDate`; none while it runs.
    pub ended_at: Option<Timestamp>,
    /// `input`.
    pub input: Value,
    /// `output`, if it succeeded; null otherwise.
    pub output: Value,
    /// `error`, if it failed.
    pub error: Option<String>,
    /// `cause`, if it failed.
    pub cause: Option<String>,
    /// Its history, from the beginning.
    pub events: Vec<Event>,
}

/// An event of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: i64,
    /// When it was.
    pub at: Timestamp,
    /// What happened.
    pub what: Happened,
}

/// What happened, as far as a report is interested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A state of this name was entered.
    Entered(String),
    /// A task is begun with these arguments.
    Scheduled(Value),
    /// A task has brought this result.
    Answered(Value),
    /// A task has failed; it may be tried again.
    Failed {
        /// The error's name.
        error: String,
        /// Its text.
        cause: String,
    },
    /// A Distributed Map has begun.
    MapRun(String),
    /// Something else.
    Other,
}

/// A stage on a node's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Pre-flight, claim, and waiting for its turn.
    Turn,
    /// Standby, and waiting for the replacement.
    Replacement,
    /// Moving pods, and waiting for them.
    Drain,
    /// Balancers, volumes, and the instance's way out.
    Disposal,
    /// Being put back.
    PutBack,
}

impl Stage {
    /// All, in their usual order.
    pub const ALL: [Self; 5] = [
        Self::Turn,
        Self::Replacement,
        Self::Drain,
        Self::Disposal,
        Self::PutBack,
    ];

    /// In a word, which is the class of its bars in the report's page too.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Replacement => "replacement",
            Self::Drain => "drain",
            Self::Disposal => "disposal",
            Self::PutBack => "put-back",
        }
    }

    /// The stage that a state of `recycle-node` belongs to; none: to the one that it was in.
    #[must_use]
    pub fn of_state(state: &str) -> Option<Self> {
        match state {
            "ClaimNode" | "WaitForTurn" | "DescribeClaimOwner" => Some(Self::Turn),
            "StandbyNode" | "WaitForReplacement" => Some(Self::Replacement),
            "TaintNode" | "CheckPods" | "EvictPods" | "WaitForPods" | "RecordHeartbeat" => Some(Self::Drain),
            "DetachTerminate" | "WaitForDisposal" => Some(Self::Disposal),
            "RestoreNode" | "WaitForRestore" => Some(Self::PutBack),
            _ => None,
        }
    }
}
