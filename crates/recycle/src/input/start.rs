//! The start of an execution of `recycle-node`.

use serde::Serialize;

use crate::base::ids::InstanceId;
use crate::input::model::Hook;

/// An execution of `recycle-node` to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The execution's name. A second start with the same name finds the existing execution.
    pub name: String,
    pub instance_id: InstanceId,
    /// The hook that holds the instance, if it is the reason for the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}
