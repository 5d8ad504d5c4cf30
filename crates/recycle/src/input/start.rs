//! An execution to start.

use serde::Serialize;

use crate::base::ids::InstanceId;
use crate::input::model::Hook;

/// An execution of `recycle-node` to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Its name: who starts it again finds it there.
    pub name: String,
    pub instance_id: InstanceId,
    /// The hook that holds it, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}
