//! The record of a Node: its state before the execution changed it, and what the execution chose.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{InstanceId, NodeName};
use crate::base::strict::Unreadable;

/// The annotation `recycle-eks/record` was edited by somebody.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the annotation recycle-eks/record of node {node}")]
pub struct UnreadableRecord {
    pub(crate) node: NodeName,
    pub(crate) source: Unreadable,
}

/// What was there before us, and what we chose: the Kubernetes half of the record. Written in the same request as the change
/// that it describes, or before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`crate::records::schema::SCHEMA`] of the writer; 0 if nothing was recorded yet.
    #[serde(default)]
    pub schema: u32,
    /// The group's members before EnterStandby, or before the termination (way in `after`): who is not among them came after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members_before: Vec<InstanceId>,
    /// How many members were usable then, itself included ([`crate::replacement::shortage`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_before: Option<u32>,
    /// The reserved replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<InstanceId>,
    /// When the taint was set: pods created later tolerate it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tainted_at: Option<Timestamp>,
    /// Seconds without Ready after which the execution counts the node as lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<u32>,
    /// The node was cordoned before we came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_unschedulable: bool,
    /// When we set the label [`crate::base::names::EXCLUDE_FROM_BALANCERS_LABEL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_at: Option<Timestamp>,
    /// Its value before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_before: Option<String>,
    /// The group's desired capacity before EnterStandby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_before: Option<u32>,
    /// We set the annotation [`crate::base::names::SCALE_DOWN_DISABLED_ANNOTATION`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Its value before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_before: Option<String>,
}
