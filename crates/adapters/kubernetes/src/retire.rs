//! Builds the last change of the Node of a stopped or detached instance, which keeps its Node.

use recycle::base::ids::InstanceId;
use recycle::base::names::{
    EXCLUDE_FROM_BALANCERS_LABEL, KEPT_BEFORE_ANNOTATION, PROGRESS_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION,
};
use recycle::cluster::autoscaler::{DISABLED, find_value_before, let_go_of_old_node};
use recycle::cluster::node::{
    NodeFacts, Taint, detached_taint, is_draining_taint, out_of_service_taint, stopped_taint,
};
use recycle::records::lease::LEASED;
use recycle::records::node_record::Record;
use recycle::restore::undo::EXCLUDED;

use crate::{Error, NodeChange};

/// Builds the last request for a stopped instance's Node that needs the claim. None if the request was made already.
/// The cordon, and a taint that says why, keep pods away. The out-of-service taint makes Kubernetes remove the remaining pods,
/// except those that tolerate every taint. The Node also stays excluded from load balancers and from Cluster Autoscaler's scale-down.
/// A second annotation keeps the value that the scale-down annotation had before. recycle-eks leaves nothing else.
///
/// The Node itself stays because Cluster Autoscaler also lists members in Standby. It terminates a machine that has had no Node for
/// 15 minutes, and the group loses that place (`removeOldUnregisteredNodes` in `core/static_autoscaler.go`).
pub fn retire_stopped(node: &NodeFacts, instance: &InstanceId) -> Result<Option<NodeChange>, Error> {
    let stopped = stopped_taint(instance);
    if is_retired(node, &stopped) {
        return Ok(None);
    }
    let record = node.record().unwrap_or_default();
    let taints = replace_taints(node, [stopped, out_of_service_taint()]);
    let mut change = forget(NodeChange::new().taints(taints), &record)?
        .unschedulable(true)
        .annotate(SCALE_DOWN_DISABLED_ANNOTATION, DISABLED);
    if !node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL) {
        change = change.label(EXCLUDE_FROM_BALANCERS_LABEL, EXCLUDED);
    }
    Ok(Some(match find_value_before(node, &record) {
        Some(before) => change.annotate(KEPT_BEFORE_ANNOTATION, before),
        None => change.remove_annotation(KEPT_BEFORE_ANNOTATION),
    }))
}

/// Builds the request for a detached instance's Node. None if the request was made already.
/// The annotation for Cluster Autoscaler gets back the value that it had before the execution.
pub fn retire_detached(node: &NodeFacts, instance: &InstanceId) -> Result<Option<NodeChange>, Error> {
    let detached = detached_taint(instance);
    if is_retired(node, &detached) {
        return Ok(None);
    }
    // An unreadable record counts as an empty one, so the annotation stays as it is.
    let record = node.record().unwrap_or_default();
    let change = forget(
        NodeChange::new().taints(replace_taints(node, [detached])),
        &record,
    )?;
    let change = change.remove_annotation(KEPT_BEFORE_ANNOTATION);
    Ok(Some(change.scale_down(let_go_of_old_node(node, &record))))
}

/// Replaces the draining taint, and every taint with the same key and effect as one of the new taints.
/// Kubernetes allows only one taint with a given key and effect.
fn replace_taints<const N: usize>(node: &NodeFacts, added: [Taint; N]) -> Vec<Taint> {
    let stays = |taint: &&Taint| {
        let is_replaced = added
            .iter()
            .any(|new| (&new.key, &new.effect) == (&taint.key, &taint.effect));
        !is_replaced && !is_draining_taint(taint)
    };
    let others: Vec<Taint> = node.taints.iter().filter(stays).cloned().collect();
    others.into_iter().chain(added).collect()
}

fn is_retired(node: &NodeFacts, taint: &Taint) -> bool {
    node.claim().is_none() && node.taints.contains(taint)
}

/// Removes the claim and the records. Only the names of members that are still protected stay in the Lease, for the sweep.
fn forget(change: NodeChange, record: &Record) -> Result<NodeChange, Error> {
    let own = LEASED.into_iter().chain([PROGRESS_ANNOTATION]);
    let change = own.fold(change, NodeChange::remove_annotation);
    match record.remainder() {
        Some(remainder) => change.record(&remainder),
        None => Ok(change),
    }
}
