//! The execution that holds a claim, as Step Functions describes it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::ExecutionArn;

/// The answer of Step Functions about the execution that holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The execution that Step Functions was asked about.
    pub execution: ExecutionArn,
    /// The execution's status, or the name of the error that the request met.
    pub status: String,
    /// The time at which the execution ended. `None` if it has not, or if the answer has no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}
