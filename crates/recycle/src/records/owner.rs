//! The execution that holds a claim, as Step Functions describes it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::ExecutionArn;
use crate::base::strict::unreadable_is_none;

/// What Step Functions said about the execution that holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who was asked for.
    pub execution: ExecutionArn,
    /// The execution's status, or the name of the error that the question met.
    pub status: String,
    /// When it ended; `None` if it has not, or if the time that Step Functions gave is missing or unreadable. How an SDK integration
    /// writes a time is not documented.
    #[serde(
        default,
        deserialize_with = "unreadable_is_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ended_at: Option<Timestamp>,
}
