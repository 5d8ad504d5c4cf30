//! The record of a Node: its state before the execution changed it, and the choices of the execution.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::InstanceId;

/// The state of the Node before the execution changed it, and the choices of the execution.
/// Written before the change that it describes ([`crate::records::lease`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`crate::records::schema::SCHEMA`] of the writer; 0 if nothing was recorded yet.
    #[serde(default)]
    pub schema: u32,
    /// The group's members before EnterStandby, or before the termination (path `after`). All other members came later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members_before: Vec<InstanceId>,
    /// The number of members that were usable then, including this one ([`crate::replacement::shortage`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_before: Option<u32>,
    /// The reserved replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<InstanceId>,
    /// The time at which the taint was set. Pods created later tolerate the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tainted_at: Option<Timestamp>,
    /// Seconds without Ready after which the execution counts the node as lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<u32>,
    /// Whether the node was cordoned before the execution began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_unschedulable: bool,
    /// The time at which the execution set the label [`crate::base::names::EXCLUDE_FROM_BALANCERS_LABEL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_at: Option<Timestamp>,
    /// The label's value before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_before: Option<String>,
    /// The group's desired capacity before EnterStandby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_before: Option<u32>,
    /// Whether the execution set the annotation [`crate::base::names::SCALE_DOWN_DISABLED_ANNOTATION`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// The annotation's value before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_before: Option<String>,
}
