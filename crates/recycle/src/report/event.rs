//! Defines an execution and the events of its history. The report and every view of the command line read this model.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::base::named::named;

/// An execution, as DescribeExecution returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Execution {
    pub arn: String,
    pub input: Value,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// None while the execution runs.
    pub end: Option<End>,
}

impl Execution {
    /// Whether it is a dry run, which changes nothing: a plan.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.input["dry_run"] == true
    }
}

/// Returns the ARN of an execution. `machine` may name an alias or a version, which have no executions of their own.
pub fn name_execution(machine: &str, name: &str) -> String {
    let parts: Vec<&str> = machine.split(':').take(7).collect();
    let machine = parts.join(":").replacen(":stateMachine:", ":execution:", 1);
    format!("{machine}:{name}")
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// `SUCCEEDED`, `FAILED`, `TIMED_OUT` or `ABORTED`.
    pub status: String,
    /// Null unless the execution succeeded.
    pub output: Value,
    /// Name of the error, or empty.
    pub error: String,
    /// Text of the error, or empty.
    pub cause: String,
}

impl End {
    /// Returns the outcome. Without an outcome, returns the error's name, or the status if there is no error.
    pub fn outcome(&self) -> &str {
        match self.output["outcome"].as_str() {
            Some(outcome) => outcome,
            None if self.error.is_empty() => &self.status,
            None => &self.error,
        }
    }

    /// Returns the reason in the output, or else the error's text.
    pub fn reason(&self) -> &str {
        self.output["reason"].as_str().unwrap_or(&self.cause)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Number of the event. Events are numbered from 1.
    pub id: i64,
    /// Number of the event that led to this event.
    pub previous: i64,
    pub at: Timestamp,
    pub what: EventKind,
}

/// The content of an event, with what is read from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The execution began with this input.
    Started(Value),
    /// A state of this name was entered.
    Entered(String),
    /// A task was scheduled with these arguments.
    Scheduled(Value),
    /// A function returned this answer.
    Answered(Value),
    /// A task failed. A retry may follow.
    Failed {
        error: String,
        cause: String,
    },
    /// A Distributed Map began. The text is the ARN of its run.
    MapRun(String),
    /// In a rotation, the node with this index began to ask whether it may start.
    NodeAsked(usize),
    /// In a rotation, a node ended. The value is the input of the state `NodeDone`.
    NodeDone(Value),
    Ended(End),
    Other,
}

named! {
    /// A stage in the recycling of a node. Its name is also the class of its bars in the report's page.
    pub enum Stage {
        /// Pre-flight, claim, and waiting in the queue.
        Queue = "queue",
        /// Standby, and waiting for the replacement.
        Replacement = "replacement",
        /// Moving pods, and waiting for them.
        Drain = "drain",
        /// Balancers, volumes, and the removal of the instance.
        Disposal = "disposal",
        Restore = "restore",
    }
}

/// The boxes of the picture, from left to right, each with its stage and its states in `state-machine/recycle-node.asl.json`.
/// A test checks that no state is missing. A box has the name of the state that calls its function.
pub const BOXES: [(&str, Stage, &[&str]); 6] = [
    ("ClaimNode", Stage::Queue, &["ClaimNode", "WaitInQueue"]),
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
    ("RestoreNode", Stage::Restore, &["RestoreNode", "WaitForRestore"]),
];

/// Returns the name and the stage of the box that a state belongs to.
/// None for a state that only decides, or sends a notification or an event, within a moment.
pub fn find_box(state: &str) -> Option<(&'static str, Stage)> {
    let mut boxes = BOXES.into_iter();
    let (name, stage, _) = boxes.find(|(_, _, states)| states.contains(&state))?;
    Some((name, stage))
}
