//! Since when a drain is blocked, and when that was last reported.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What keeps a drain from going on, and what people were told of it. Travels in `run`: an execution that goes on from the records tells
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blockage {
    /// Since when something blocks without a break; none if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When people were told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
}
