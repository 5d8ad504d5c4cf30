//! Keeps Cluster Autoscaler from removing an old node or a replacement, and releases the replacement later.

use recycle::base::ids::InstanceId;
use recycle::base::names::{KEPT_BEFORE_ANNOTATION, KEPT_FOR_LABEL, SCALE_DOWN_DISABLED_ANNOTATION};
use recycle::cluster::autoscaler::{self, DISABLED, is_kept_for, is_to_be_kept, let_go_of_new_member};
use recycle::cluster::node::NodeFacts;
use recycle::records::node_record::Record;

use crate::{Error, NodeChange, amend_node, list_labelled};

/// Adds to `change` the record, and the annotation that keeps Cluster Autoscaler from removing the old node.
/// The value before is written beside it, too. A node that has the annotation already gets the record alone.
pub fn keep_old_node(change: NodeChange, node: &NodeFacts, record: &Record) -> Result<NodeChange, Error> {
    let Some(kept) = autoscaler::keep_old_node(node, record) else {
        return change.record(record);
    };
    let before = kept.kept_before.clone().unwrap_or_default();
    let change = change
        .record(&kept)?
        .annotate(SCALE_DOWN_DISABLED_ANNOTATION, DISABLED);
    Ok(change.annotate(KEPT_BEFORE_ANNOTATION, before))
}

/// Keeps Cluster Autoscaler from removing a new member, for `old`.
/// A new member that an operator or an execution keeps already stays as it is.
/// Returns the Node as it is afterwards.
pub async fn keep_new_member(
    client: &kube::Client,
    new_member: NodeFacts,
    old: &InstanceId,
) -> Result<NodeFacts, Error> {
    amend_node(client, new_member, |node| {
        Ok(is_to_be_kept(node).then(|| {
            let change = NodeChange::new()
                .label(KEPT_FOR_LABEL, old.as_str())
                .annotate(SCALE_DOWN_DISABLED_ANNOTATION, DISABLED);
            match node.annotations.get(SCALE_DOWN_DISABLED_ANNOTATION) {
                Some(before) => change.annotate(KEPT_BEFORE_ANNOTATION, before),
                None => change.remove_annotation(KEPT_BEFORE_ANNOTATION),
            }
        }))
    })
    .await
}

/// Adds to `change` the removal of the marks of [`keep_new_member`]. Returns `change` as it is if the new member is not kept for `old`.
pub fn let_go(new_member: &NodeFacts, old: &InstanceId, change: NodeChange) -> NodeChange {
    if !is_kept_for(new_member, old) {
        return change;
    }
    change
        .remove_label(KEPT_FOR_LABEL)
        .remove_annotation(KEPT_BEFORE_ANNOTATION)
        .scale_down(let_go_of_new_member(new_member))
}

/// Removes the marks of [`keep_new_member`] from every new member that is kept for `old`.
pub async fn let_go_of_all(client: &kube::Client, old: &InstanceId) -> Result<(), Error> {
    let selector = format!("{KEPT_FOR_LABEL}={old}");
    for new_member in list_labelled(client, &selector, &format!("kept for {old}")).await? {
        let amended = amend_node(client, new_member, |node| {
            let change = let_go(node, old, NodeChange::new());
            Ok((!change.is_empty()).then_some(change))
        })
        .await;
        match amended {
            // A Node that is gone needs no change.
            Ok(_) | Err(Error::NodeGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
