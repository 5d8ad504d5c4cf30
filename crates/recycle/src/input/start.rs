//! An execution to start.

use serde::Serialize;

use crate::base::ids::InstanceId;
use crate::input::model::Hook;

/// An execution of `recycle-node` to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The execution's name. A second start under the same name finds the execution there.
    pub name: String,
    pub instance_id: InstanceId,
    /// The hook that holds the instance, if the execution starts for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}
