//! An EC2 instance.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::{CLAIM_TAG, DETACHED_TAG, GAVE_UP_TAG, GROUP_TAG, STANDBY_TAG, STOPPED_TAG};
use crate::records::claim::{Claim, StoredClaim};
use crate::records::restore_log::GaveUp;

/// An EC2 instance at this moment (DescribeInstances).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// `State.Name`: `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub state: String,
    /// `PrivateDnsName`: the first hint for the Node's name.
    pub private_dns_name: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Whether `SpotInstanceRequestId` is set.
    pub is_spot: bool,
}

impl Instance {
    /// Returns the time at which recycle-eks stopped the instance as asked, if the instance is still stopped.
    pub fn stopped_at(&self) -> Option<&str> {
        let stopped_at = self.tags.get(STOPPED_TAG)?;
        (self.state == "stopped").then_some(stopped_at)
    }

    /// Checks whether recycle-eks stopped the instance as asked, and has not put it into Standby since then.
    /// An operator decides whether the instance runs again.
    pub fn was_stopped(&self) -> bool {
        self.is_newer_than_standby(STOPPED_TAG)
    }

    pub fn was_detached(&self) -> bool {
        self.is_newer_than_standby(DETACHED_TAG)
    }

    fn is_newer_than_standby(&self, tag: &str) -> bool {
        let time = |tag: &str| self.tags.get(tag)?.parse::<Timestamp>().ok();
        time(tag) > time(STANDBY_TAG)
    }

    pub fn claim(&self) -> Option<StoredClaim> {
        let value = self.tags.get(CLAIM_TAG)?;
        let group = self.tags.get(GROUP_TAG).and_then(|group| group.parse().ok());
        Some(match group {
            Some(group) => Claim::from_tag(value, &group),
            None => StoredClaim::Unreadable(value.clone()),
        })
    }

    /// Returns the record that recycle-eks gave up the instance, so that an operator has to act.
    pub fn gave_up(&self) -> Option<GaveUp> {
        self.tags.get(GAVE_UP_TAG)?.parse().ok()
    }

    /// Whether the instance is terminated or about to be, so that EC2 does not bring it back.
    pub fn is_gone(&self) -> bool {
        matches!(self.state.as_str(), "shutting-down" | "terminated")
    }
}

/// Describes the instance as the subject of a sentence.
pub fn describe_instance(instance: &InstanceId, node: Option<&NodeName>) -> String {
    match node {
        Some(node) => format!("node {node} ({instance})"),
        None => format!("instance {instance}"),
    }
}
