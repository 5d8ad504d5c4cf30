//! An execution and the events of its history: the one model of them, which the report and every view of the command line are read from.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// An execution, as DescribeExecution tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub arn: String,
    pub input: Value,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// None while it runs.
    pub end: Option<End>,
}

/// The ARN of an execution of a machine, which may be named by an alias or a version: those have no executions of their own.
#[must_use]
pub fn name_execution(machine: &str, name: &str) -> String {
    let parts: Vec<&str> = machine.split(':').take(7).collect();
    let machine = parts.join(":").replacen(":stateMachine:", ":execution:", 1);
    format!("{machine}:{name}")
}

/// How an execution has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// `SUCCEEDED`, `FAILED`, `TIMED_OUT` or `ABORTED`.
    pub status: String,
    /// Null unless it succeeded.
    pub output: Value,
    /// The name of its error, else empty.
    pub error: String,
    /// The text of its error, else empty.
    pub cause: String,
}

impl End {
    /// The outcome, or the error's name.
    #[must_use]
    pub fn outcome(&self) -> &str {
        match self.output["outcome"].as_str() {
            Some(outcome) => outcome,
            None if self.error.is_empty() => &self.status,
            None => &self.error,
        }
    }

    /// Why, in the execution's own words.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.output["reason"].as_str().unwrap_or(&self.cause)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number: they count up from 1.
    pub id: i64,
    /// The number of the event that led to it.
    pub previous: i64,
    pub at: Timestamp,
    pub what: Happened,
}

/// What happened, as far as something is read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The execution began with this input.
    Started(Value),
    /// A state of this name was entered.
    Entered(String),
    /// A task is begun with these arguments.
    Scheduled(Value),
    /// A function has answered this.
    Answered(Value),
    /// A task has failed; it may be tried again.
    Failed {
        error: String,
        cause: String,
    },
    /// A Distributed Map has begun; the ARN of its run.
    MapRun(String),
    /// In a rotation: the turn of the node with this index began.
    TurnBegan(usize),
    /// In a rotation: the turn of a node has ended, and how (the input of the state `TurnEnded`).
    TurnEnded(Value),
    Ended(End),
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
}

/// The boxes of the picture, from left to right, each with its stage and its states (`state-machine/recycle-node.asl.json`; a test knows them
/// all). A box has the name of the state that calls its function.
pub const BOXES: [(&str, Stage, &[&str]); 6] = [
    (
        "ClaimNode",
        Stage::Turn,
        &["ClaimNode", "WaitForTurn", "DescribeClaimOwner"],
    ),
    (
        "StandbyNode",
        Stage::Replacement,
        &["StandbyNode", "WaitForReplacement"],
    ),
    ("TaintNode", Stage::Drain, &["TaintNode"]),
    (
        "CheckPods",
        Stage::Drain,
        &["CheckPods", "EvictPods", "WaitForPods", "RecordHeartbeat"],
    ),
    (
        "DetachTerminate",
        Stage::Disposal,
        &["DetachTerminate", "WaitForDisposal"],
    ),
    ("RestoreNode", Stage::PutBack, &["RestoreNode", "WaitForRestore"]),
];

/// The name and the stage of the box that a state belongs to; none of those that decide or tell within a moment.
#[must_use]
pub fn find_box(state: &str) -> Option<(&'static str, Stage)> {
    let mut boxes = BOXES.into_iter();
    let (name, stage, _) = boxes.find(|(_, _, states)| states.contains(&state))?;
    Some((name, stage))
}
