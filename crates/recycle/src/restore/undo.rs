//! Decides what a restore removes from the Node.

use crate::base::names::{
    CORDONED_FOR_ANNOTATION, DRAIN_UNTIL_ANNOTATION, EXCLUDE_FROM_BALANCERS_LABEL, FIELD_MANAGER,
    KEPT_BEFORE_ANNOTATION, PROGRESS_ANNOTATION,
};
use crate::cluster::autoscaler::{ScaleDown, find_value_beside, let_go_of_old_node};
use crate::cluster::node::{
    NodeFacts, Taint, detached_taint, is_out_of_service_taint, is_request_taint, stopped_taint,
};
use crate::records::node_record::Record;

/// The value of the balancers' label if the execution has set it.
pub const EXCLUDED: &str = "true";

/// The steps in which a restore removes annotations by themselves: the claim of a sweep, and the removal.
const STEPS_FOR_ANNOTATIONS: u32 = 2;

/// The changes that a restore makes on a Node.
/// It removes values that an execution wrote and that are unchanged. It also removes an operator's request and end of the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The taints that stay. None if there is no taint to remove: the draining taint, the out-of-service taint of recycle-eks,
    /// or an operator's request taint.
    pub taints: Option<Vec<Taint>>,
    pub uncordon: bool,
    pub annotations: Vec<&'static str>,
    /// Remove the label that keeps the node out of load balancers.
    pub remove_label: bool,
    pub scale_down: ScaleDown,
    /// The record after that; None if the record cannot be read.
    pub record: Option<Record>,
}

impl Undo {
    /// Checks whether the restore has to do this before it goes on. The node's kubelet can write annotations again after each removal, so
    /// that they alone count only at the beginning. The end of the restore removes them, too.
    pub fn has_to_be_done(&self, node: &NodeFacts, steps: u32) -> bool {
        let is_by_kubelet = self.taints.is_none() && !self.uncordon && !self.remove_label;
        !is_by_kubelet || self.record != node.record().ok() || steps < STEPS_FOR_ANNOTATIONS
    }
}

/// Decides what to remove from a Node. None if only the claim and the record are left, which go last.
/// `taint` is the taint that the execution set.
///
/// Cluster Autoscaler also lists members in Standby. So the annotation that keeps it away stays until the node is out of Standby.
pub fn undo_kubernetes(node: &NodeFacts, taint: &Taint, in_standby: bool) -> Option<Undo> {
    let record = node.record();
    let known = record.as_ref().ok();
    let others: Vec<Taint> = node
        .taints
        .iter()
        .filter(|other| *other != taint && !is_out_of_service_taint(other) && !is_request_taint(other))
        .cloned()
        .collect();
    let was_excluded = known.is_some_and(|record| record.excluded_at.is_some());
    let had_label = known.is_none_or(|record| record.excluded_before.is_some());
    let label = node.labels.get(EXCLUDE_FROM_BALANCERS_LABEL);
    let scale_down = known
        .filter(|_| !in_standby)
        .map_or(ScaleDown::Keep, |record| let_go_of_old_node(node, record));
    let has_end = node.drain_until().is_some();
    let has_progress = node.annotations.contains_key(PROGRESS_ANNOTATION);
    let has_value_beside = known.is_some() && !in_standby && find_value_beside(node).is_some();
    let annotations = [
        (PROGRESS_ANNOTATION, has_progress),
        (DRAIN_UNTIL_ANNOTATION, has_end),
        (KEPT_BEFORE_ANNOTATION, has_value_beside),
    ]
    .into_iter()
    .filter_map(|(key, is_there)| is_there.then_some(key))
    .collect();
    let undo = Undo {
        taints: (others.len() < node.taints.len()).then_some(others),
        uncordon: known.is_some_and(|record| has_cordoned(node, record)),
        annotations,
        remove_label: was_excluded && !had_label && label.is_some_and(|value| value == EXCLUDED),
        scale_down,
        record: known.map(|record| Record {
            tainted_at: None,
            was_unschedulable: false,
            excluded_at: None,
            excluded_before: None,
            kept: record.kept && in_standby,
            kept_before: record.kept_before.clone().filter(|_| in_standby),
            ..record.clone()
        }),
    };
    let is_clean = undo.taints.is_none()
        && !undo.uncordon
        && undo.annotations.is_empty()
        && !undo.remove_label
        && undo.scale_down == ScaleDown::Keep
        && undo.record.as_ref() == known;
    (!is_clean).then_some(undo)
}

/// Checks whether an execution has set the node's cordon. Three things hold then: the record says that it drained the node, the cordon
/// was not there before, and no other field manager has written the field since.
///
/// Without a record, because an operator has deleted the Lease, the field manager has to be recycle-eks: a field keeps its manager if
/// another one writes the same value. The cordon of a stopped or detached instance, or for another node's restore, is not meant.
pub fn has_cordoned(node: &NodeFacts, record: &Record) -> bool {
    let is_forgotten = *record == Record::default() && node.cordoned_by.as_deref() == Some(FIELD_MANAGER);
    let is_for_another = node.annotations.contains_key(CORDONED_FOR_ANNOTATION);
    let is_result = node.instance.as_ref().is_some_and(|id| {
        let results = [stopped_taint(id), detached_taint(id)];
        results.iter().any(|taint| node.taints.contains(taint))
    });
    let has_drained = record.tainted_at.is_some() || (is_forgotten && !is_for_another && !is_result);
    node.is_cordoned_by_recycle_eks() && has_drained && !record.was_unschedulable
}
