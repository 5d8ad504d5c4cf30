//! The Lease of an instance: the claim and the records that only recycle-eks can write.
//!
//! A Lease is named by its instance and lies in the namespace [`NAMESPACE`]. A kubelet may write its own Node, and an AWS principal with
//! `ec2:CreateTags` may write any tag. Neither may write here. The claim on the Node and the claim tag are copies for operators.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::{
    CLAIM_ANNOTATION, DRAIN_UNTIL_ANNOTATION, GAVE_UP_ANNOTATION, NAMESPACE, RECORD_ANNOTATION,
    RESTORE_LOG_ANNOTATION, RESTORING_ANNOTATION,
};
use crate::base::strict::{Unreadable, read_text};
use crate::records::claim::{Claim, Phase, StoredClaim};
use crate::records::node_record::Record;
use crate::records::restore_log::LeasedGaveUp;

/// The annotations of a Lease that decide.
pub const LEASED: [&str; 6] = [
    CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    RESTORING_ANNOTATION,
    RESTORE_LOG_ANNOTATION,
    GAVE_UP_ANNOTATION,
    DRAIN_UNTIL_ANNOTATION,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// `metadata.name`.
    pub instance: InstanceId,
    /// `metadata.resourceVersion`, which every write of recycle-eks carries.
    pub resource_version: String,
    /// The name of the instance's Node, for operators and for the texts about the queue.
    pub node: Option<NodeName>,
    /// The annotations in [`LEASED`].
    pub annotations: BTreeMap<String, String>,
}

/// The error that the record of a Lease cannot be read, because it was edited.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the annotation {RECORD_ANNOTATION} of lease {instance} in namespace {NAMESPACE}")]
pub struct UnreadableRecord {
    instance: InstanceId,
    source: Unreadable,
}

impl Lease {
    pub fn claim(&self) -> Option<StoredClaim> {
        let text = self.annotations.get(CLAIM_ANNOTATION)?;
        Some(Claim::from_annotation(text))
    }

    /// Returns the record; an empty one if there is none.
    pub fn record(&self) -> Result<Record, UnreadableRecord> {
        let text = self.annotations.get(RECORD_ANNOTATION);
        let record = text.map(|text| read_text(text)).transpose();
        record
            .map(Option::unwrap_or_default)
            .map_err(|source| UnreadableRecord {
                instance: self.instance.clone(),
                source,
            })
    }

    /// Returns the time since which the node is being restored. A value that is not a time counts as none.
    pub fn restoring_since(&self) -> Option<Timestamp> {
        self.annotations.get(RESTORING_ANNOTATION)?.parse().ok()
    }

    /// Returns the group changes of a restore, as they were written; None if there are none.
    pub fn restore_log(&self) -> Option<&str> {
        self.annotations.get(RESTORE_LOG_ANNOTATION).map(String::as_str)
    }

    /// Returns the record that a restore gave up the instance. A value that was edited counts as none.
    pub fn gave_up(&self) -> Option<LeasedGaveUp> {
        self.annotations.get(GAVE_UP_ANNOTATION)?.parse().ok()
    }

    /// Checks whether the instance can have been stopped as asked: the execution that holds the claim was about to dispose of it, or none
    /// holds it.
    pub fn may_be_disposed_of(&self) -> bool {
        let claim = self.claim().and_then(StoredClaim::known);
        claim.is_none_or(|claim| claim.phase == Phase::Disposing)
    }

    /// Returns the end of the drain that an operator has set with `recycle-eks extend` or `finish`.
    pub fn drain_until(&self) -> Option<&str> {
        self.annotations.get(DRAIN_UNTIL_ANNOTATION).map(String::as_str)
    }
}
