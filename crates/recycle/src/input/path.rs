//! The three ways in: `before` (Standby first), `after` (no Standby), and a lifecycle hook.

use serde::{Deserialize, Serialize};

/// The three ways in: how the replacement comes, and how the instance goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecyclePath {
    /// Standby: the replacement first.
    Before,
    /// No Standby: the replacement after the instance has gone.
    After,
    /// The group is already terminating the instance.
    Hook,
}
