//! The record of a Node: its state before the execution changed it, and the choices of the execution.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::InstanceId;
use crate::records::schema::SCHEMA;

/// The state of the Node before the execution changed it, and the choices of the execution.
/// Written before the change that it describes ([`crate::records::lease`]).
#[must_use]
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
    /// The drivers of dynamic resource allocation that offered devices on the Node before its drain. The replacement must offer some too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
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
    /// The group's desired capacity before EnterStandby. Without it, recycle-eks has not put the instance into Standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_before: Option<u32>,
    /// The group's desired capacity before the execution raised it by one for the replacement (path `surge`), without the places that
    /// other executions had added. The call may not have been made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_from: Option<u32>,
    /// Whether the execution set the annotation [`crate::base::names::SCALE_DOWN_DISABLED_ANNOTATION`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// The annotation's value before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_before: Option<String>,
    /// The members that were protected from scale-in because of this instance. Only these lose the protection again.
    /// Their tag [`crate::base::names::PROTECTED_FOR_TAG`] is a copy for operators: other principals can write tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<InstanceId>,
}

impl Record {
    /// Whether an execution has raised the desired capacity of the group for this node.
    pub fn was_raised(&self) -> bool {
        self.raised_from.is_some()
    }

    pub fn protecting(mut self, members: &[InstanceId]) -> Self {
        let added = members.iter().filter(|id| !self.protected.contains(id));
        let added: Vec<InstanceId> = added.cloned().collect();
        self.protected.extend(added);
        self.schema = SCHEMA;
        self
    }

    pub fn unprotecting(mut self, members: &[InstanceId]) -> Self {
        self.protected.retain(|id| !members.contains(id));
        self
    }

    /// Returns the record that stays when everything else is done: the members that are still protected. None if there are none.
    pub fn remainder(&self) -> Option<Self> {
        (!self.protected.is_empty()).then(|| Self::default().protecting(&self.protected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OTHER, id};

    #[test]
    fn a_record_names_each_protected_member_once_until_it_is_unprotected() {
        let record = Record {
            desired_before: Some(2),
            ..Record::default()
        };
        let record = record.protecting(&[id(NEW)]).protecting(&[id(NEW), id(OTHER)]);
        assert_eq!(record.protected, [id(NEW), id(OTHER)]);
        let left = record.unprotecting(&[id(NEW)]);
        let remainder = left.remainder().unwrap();
        assert_eq!(
            (&remainder.protected, remainder.desired_before),
            (&vec![id(OTHER)], None)
        );
        assert_eq!(left.unprotecting(&[id(OTHER)]).remainder(), None);
    }
}
