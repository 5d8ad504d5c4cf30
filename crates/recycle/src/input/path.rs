//! The paths of an execution: `before` (Standby first), `after` and `surge` (no Standby), and the hook path.

use serde::{Deserialize, Serialize};

/// The path of an execution. It decides when the replacement comes, and how the instance leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecyclePath {
    /// The instance goes into Standby, and the replacement comes first.
    Before,
    /// There is no Standby. The replacement comes after the instance has gone.
    After,
    /// There is no Standby. The group gets one member more, and the instance takes that place away when it goes.
    Surge,
    /// The group is already terminating the instance, and its lifecycle hook waits.
    Hook,
}
