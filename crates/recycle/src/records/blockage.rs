//! Records since when a drain is blocked, and when that was last reported.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The time since which a drain is blocked, and the time of the last report about it. `run` carries both, not the records, so an execution
/// that resumes from the records reports the blockage again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blockage {
    /// The time since which something blocks the drain without a break; none if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time of the last report to operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Timestamp>,
}
