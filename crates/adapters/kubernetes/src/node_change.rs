//! The changes of a Node that one request writes.

use std::collections::BTreeMap;

use recycle::base::names::{
    CLAIM_ANNOTATION, PROGRESS_ANNOTATION, RECORD_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION,
};
use recycle::cluster::autoscaler::ScaleDown;
use recycle::cluster::node::Taint;
use recycle::records::claim::Claim;
use recycle::records::node_record::Record;
use recycle::records::progress::Progress;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Error;

/// A change of one Node, written in one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChange {
    annotations: BTreeMap<String, Option<String>>,
    labels: BTreeMap<String, Option<String>>,
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

impl NodeChange {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn annotate(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), Some(value.into()));
        self
    }

    /// Applies the decision about the annotation for Cluster Autoscaler.
    #[must_use]
    pub fn scale_down(self, change: ScaleDown) -> Self {
        match change {
            ScaleDown::Keep => self,
            ScaleDown::Remove => self.remove_annotation(SCALE_DOWN_DISABLED_ANNOTATION),
            ScaleDown::Set(value) => self.annotate(SCALE_DOWN_DISABLED_ANNOTATION, value),
        }
    }

    #[must_use]
    pub fn remove_annotation(mut self, key: &str) -> Self {
        self.annotations.insert(key.to_owned(), None);
        self
    }

    pub fn claim(self, claim: &Claim) -> Result<Self, Error> {
        self.annotate_json(CLAIM_ANNOTATION, claim)
    }

    pub fn record(self, record: &Record) -> Result<Self, Error> {
        self.annotate_json(RECORD_ANNOTATION, record)
    }

    /// Sets the annotation `recycle-eks/progress`, which is written for operators.
    pub fn progress(self, progress: &Progress) -> Result<Self, Error> {
        self.annotate_json(PROGRESS_ANNOTATION, progress)
    }

    fn annotate_json(self, annotation: &'static str, value: &impl Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|source| Error::Unwritable { annotation, source })?;
        Ok(self.annotate(annotation, text))
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: impl Into<String>) -> Self {
        self.labels.insert(key.to_owned(), Some(value.into()));
        self
    }

    #[must_use]
    pub fn remove_label(mut self, key: &str) -> Self {
        self.labels.insert(key.to_owned(), None);
        self
    }

    /// Sets the whole list of taints, because Kubernetes has no smaller change of it.
    #[must_use]
    pub fn taints(mut self, taints: Vec<Taint>) -> Self {
        self.taints = Some(taints);
        self
    }

    /// Cordons or uncordons.
    #[must_use]
    pub fn unschedulable(mut self, unschedulable: bool) -> Self {
        self.unschedulable = Some(unschedulable);
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Builds the JSON merge patch, in which null removes a field.
    pub(crate) fn into_patch(self, resource_version: &str) -> Value {
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
        patch
    }
}
