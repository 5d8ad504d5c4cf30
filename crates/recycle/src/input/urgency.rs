//! The urgency of an execution.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The urgency of the work. A more urgent execution may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// The work of an operator, a schedule or an alarm.
    Planned,
    /// EC2 is likely to take the instance away.
    Spot,
    /// The group is terminating the instance, and waits for heartbeats.
    Hook,
    /// EC2 takes the instance away within two minutes.
    Interruption,
}

impl fmt::Display for Urgency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
