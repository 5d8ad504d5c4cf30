//! A change of one Node and of its Lease.

use std::collections::BTreeMap;

use jiff::Timestamp;
use recycle::base::names::{
    CLAIM_ANNOTATION, DRAIN_UNTIL_ANNOTATION, GAVE_UP_ANNOTATION, PROGRESS_ANNOTATION, RECORD_ANNOTATION,
    RESTORE_LOG_ANNOTATION, RESTORING_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION,
};
use recycle::cluster::autoscaler::ScaleDown;
use recycle::cluster::node::{NodeFacts, Taint};
use recycle::records::claim::Claim;
use recycle::records::lease::LEASED;
use recycle::records::node_record::Record;
use recycle::records::progress::Progress;
use recycle::records::restore_log::{GroupChanges, LeasedGaveUp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Error;
use crate::leases::Records;

/// A change of one Node and of its Lease, written in one request to each.
///
/// The Lease is written first, so that it describes the Node before the Node is changed. A change that undoes something is written to the
/// Node first, so that the Lease describes the Node for as long as there is something to undo.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChange {
    records: Records,
    undoes: bool,
    annotations: BTreeMap<String, Option<String>>,
    labels: BTreeMap<String, Option<String>>,
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

impl NodeChange {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn annotate(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), Some(value.into()));
        self
    }

    /// Applies the decision about the annotation for Cluster Autoscaler.
    pub fn scale_down(self, change: ScaleDown) -> Self {
        match change {
            ScaleDown::Keep => self,
            ScaleDown::Remove => self.remove_annotation(SCALE_DOWN_DISABLED_ANNOTATION),
            ScaleDown::Set(value) => self.annotate(SCALE_DOWN_DISABLED_ANNOTATION, value),
        }
    }

    /// Removes an annotation, from the Lease also if it is one of [`LEASED`].
    pub fn remove_annotation(mut self, key: &str) -> Self {
        if let Some(key) = LEASED.into_iter().find(|leased| *leased == key) {
            self.records.insert(key, None);
            self.undoes |= key == CLAIM_ANNOTATION;
        }
        self.annotations.insert(key.to_owned(), None);
        self
    }

    /// Writes the change to the Node first.
    pub fn undoing(self) -> Self {
        Self { undoes: true, ..self }
    }

    /// Sets the claim, and its copy on the Node.
    pub fn claim(mut self, claim: &Claim) -> Result<Self, Error> {
        let text = to_text(CLAIM_ANNOTATION, claim)?;
        self.records.insert(CLAIM_ANNOTATION, Some(text.clone()));
        Ok(self.annotate(CLAIM_ANNOTATION, text))
    }

    pub fn record(mut self, record: &Record) -> Result<Self, Error> {
        let text = to_text(RECORD_ANNOTATION, record)?;
        self.records.insert(RECORD_ANNOTATION, Some(text));
        Ok(self)
    }

    /// Builds the change to a record that is written already. None if it would stay the same.
    pub fn of_record(old: &Record, new: &Record) -> Result<Option<Self>, Error> {
        (old != new).then(|| Self::new().record(new)).transpose()
    }

    /// Sets the time since which the node is being restored.
    pub fn restoring(mut self, since: Timestamp) -> Self {
        self.records.insert(RESTORING_ANNOTATION, Some(since.to_string()));
        self
    }

    /// Sets the group changes of a restore.
    pub fn restore_log(mut self, group_changes: &GroupChanges) -> Self {
        let text = group_changes.to_string();
        self.records.insert(RESTORE_LOG_ANNOTATION, Some(text));
        self
    }

    pub fn gave_up(mut self, gave_up: LeasedGaveUp) -> Self {
        self.records.insert(GAVE_UP_ANNOTATION, Some(gave_up.to_string()));
        self
    }

    /// Sets the end of the drain for an operator.
    pub fn drain_until(mut self, end: String) -> Self {
        self.records.insert(DRAIN_UNTIL_ANNOTATION, Some(end));
        self
    }

    /// Sets the annotation `recycle-eks/progress`, which is written for operators.
    pub fn progress(self, progress: &Progress) -> Result<Self, Error> {
        let text = to_text(PROGRESS_ANNOTATION, progress)?;
        Ok(self.annotate(PROGRESS_ANNOTATION, text))
    }

    pub fn label(mut self, key: &str, value: impl Into<String>) -> Self {
        self.labels.insert(key.to_owned(), Some(value.into()));
        self
    }

    pub fn remove_label(mut self, key: &str) -> Self {
        self.labels.insert(key.to_owned(), None);
        self
    }

    /// Sets the whole list of taints, because Kubernetes has no smaller change of it.
    pub fn taints(mut self, taints: Vec<Taint>) -> Self {
        self.taints = Some(taints);
        self
    }

    /// Cordons or uncordons.
    pub fn unschedulable(mut self, unschedulable: bool) -> Self {
        self.unschedulable = Some(unschedulable);
        self
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn undoes(&self) -> bool {
        self.undoes
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// Builds the JSON merge patch of the Node, in which null removes a field. None if only the Lease changes.
    pub(crate) fn into_patch(self, node: &NodeFacts) -> Option<Value> {
        let is_there = |key: &String, value: &Option<String>| value.as_ref() == node.annotations.get(key);
        let changes_nothing = self.annotations.iter().all(|(key, value)| is_there(key, value));
        if changes_nothing && self.labels.is_empty() && self.taints.is_none() && self.unschedulable.is_none()
        {
            return None;
        }
        let resource_version = &node.resource_version;
        let mut metadata = json!({ "resourceVersion": resource_version });
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        if !self.labels.is_empty() {
            metadata["labels"] = json!(self.labels);
        }
        let mut patch = json!({ "metadata": metadata });
        if let Some(taints) = self.taints {
            patch["spec"]["taints"] = json!(taints);
        }
        if let Some(unschedulable) = self.unschedulable {
            patch["spec"]["unschedulable"] = json!(unschedulable);
        }
        Some(patch)
    }
}

fn to_text(annotation: &'static str, value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|source| Error::Unwritable { annotation, source })
}
