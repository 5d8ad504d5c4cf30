//! Defines the fields of the Step Functions context object that the functions read.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::base::ids::{ExecutionArn, Fence};

/// The part of the Step Functions context object that the functions read (Step Functions guide, "Context object").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Context {
    pub execution: ExecutionContext,
    pub state: StateContext,
}

/// `$states.context.Execution`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExecutionContext {
    pub id: ExecutionArn,
    /// The execution's input, as it was given.
    pub input: Value,
    /// The time at which the execution started; Step Functions always gives it.
    #[serde(default)]
    pub start_time: Option<Timestamp>,
    /// The number of times that the execution was redriven.
    #[serde(default)]
    pub redrive_count: u32,
}

/// `$states.context.State`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StateContext {
    /// The time at which the state was entered: the "now" of every decision.
    pub entered_time: Timestamp,
    /// The number of retries of the state since then. Only states that can be retried have it.
    #[serde(default)]
    pub retry_count: u32,
}

impl Context {
    /// Returns the time for which decisions are made: when the calling state was entered.
    pub fn now(&self) -> Timestamp {
        self.state.entered_time
    }

    /// Returns the fence that the execution's claims carry.
    pub fn fence(&self) -> Fence {
        Fence {
            execution: self.execution.id.clone(),
            redrive_count: self.execution.redrive_count,
        }
    }
}
