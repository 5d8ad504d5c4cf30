//! The Node of an instance that was drained and stays: stopped in its group, or running outside it.

use recycle::base::ids::InstanceId;
use recycle::base::names::{
    CLAIM_ANNOTATION, DRAIN_UNTIL_ANNOTATION, EXCLUDE_FROM_BALANCERS_LABEL, GROUP_LABEL,
    KEPT_BEFORE_ANNOTATION, PROGRESS_ANNOTATION, RECORD_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION,
};
use recycle::cluster::autoscaler::{DISABLED, find_value_before, let_go_of_old_node};
use recycle::cluster::node::{
    NodeFacts, Taint, detached_taint, is_draining_taint, out_of_service_taint, stopped_taint,
};
use recycle::restore::undo::EXCLUDED;

use crate::NodeChange;

/// One request for a stopped instance's Node, the last that needs the claim; none if it was made. The cordon, and a taint that says why,
/// keep pods away, and recycle-eks leaves nothing else. Kubernetes removes the pods that were left, but for those that tolerate every taint.
///
/// The Node stays because Cluster Autoscaler lists members in Standby, too, and terminates a machine that has had no Node for
/// 15 minutes with its place in the group (`removeOldUnregisteredNodes` in `core/static_autoscaler.go`).
#[must_use]
pub fn retire_stopped(node: &NodeFacts, instance: &InstanceId) -> Option<NodeChange> {
    let stopped = stopped_taint(instance);
    if is_retired(node, &stopped) {
        return None;
    }
    let taints = replace_taints(node, [stopped, out_of_service_taint()]);
    let mut change = forget(NodeChange::new().taints(taints))
        .unschedulable(true)
        .annotate(SCALE_DOWN_DISABLED_ANNOTATION, DISABLED);
    if !node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL) {
        change = change.label(EXCLUDE_FROM_BALANCERS_LABEL, EXCLUDED);
    }
    let record = node.record().unwrap_or_default();
    Some(match find_value_before(node, &record) {
        Some(before) => change.annotate(KEPT_BEFORE_ANNOTATION, before),
        None => change,
    })
}

/// The same for a detached instance's Node, which is Cluster Autoscaler's again as it was.
#[must_use]
pub fn retire_detached(node: &NodeFacts, instance: &InstanceId) -> Option<NodeChange> {
    let detached = detached_taint(instance);
    if is_retired(node, &detached) {
        return None;
    }
    let change = forget(NodeChange::new().taints(replace_taints(node, [detached])));
    // Without a record nothing is known of the annotation.
    let record = node.record().unwrap_or_default();
    Some(change.scale_down(let_go_of_old_node(node, &record)))
}

/// The draining taint gives way to these; Kubernetes allows one of a key and an effect.
fn replace_taints<const N: usize>(node: &NodeFacts, left: [Taint; N]) -> Vec<Taint> {
    let stays = |taint: &&Taint| {
        let is_replaced = left
            .iter()
            .any(|new| (&new.key, &new.effect) == (&taint.key, &taint.effect));
        !is_replaced && !is_draining_taint(taint)
    };
    let others: Vec<Taint> = node.taints.iter().filter(stays).cloned().collect();
    others.into_iter().chain(left).collect()
}

fn is_retired(node: &NodeFacts, taint: &Taint) -> bool {
    node.claim().is_none() && node.taints.contains(taint)
}

fn forget(change: NodeChange) -> NodeChange {
    change
        .remove_label(GROUP_LABEL)
        .remove_annotation(CLAIM_ANNOTATION)
        .remove_annotation(RECORD_ANNOTATION)
        .remove_annotation(PROGRESS_ANNOTATION)
        .remove_annotation(DRAIN_UNTIL_ANNOTATION)
}
