//! Writes and removes the marks of rotations on many Nodes at once.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, future};
use recycle::base::names::OUTDATED_ANNOTATION;
use recycle::cluster::node::{NodeFacts, Taint};
use recycle::rotation::marks::{add_mark, marked_by, without_mark, write_mark};
use recycle::rotation::terms::{Marking, Unmarking};

use crate::{Error, NodeChange, amend_node, list_nodes};

/// The number of Nodes that are changed at once. The API server answers ten requests in a tenth of a second.
const AT_ONCE: usize = 10;

/// The real time after which no further change begins. A call that hangs takes 15 seconds, and the functions have 60.
const CHANGING: Duration = Duration::from_secs(35);

/// Marks the nodes of a rotation. Returns how many Nodes were handled, including those that stay with another rotation's mark.
/// A node that is not reached in time goes without a mark.
pub async fn mark_nodes(client: &kube::Client, marking: &Marking) -> Result<usize, Error> {
    let rotation = &marking.rotation;
    let mark = write_mark(rotation, marking.began_at);
    let nodes = list_nodes(client).await?.readable;
    let is_selected = |node: &NodeFacts| {
        let id = node.instance.as_ref();
        id.is_some_and(|id| marking.nodes.contains(id))
    };
    change_all(client, nodes.into_iter().filter(is_selected).collect(), |node| {
        let taints = add_mark(node, rotation, marking.mark, &marking.ended)?;
        let change = NodeChange::new().annotate(OUTDATED_ANNOTATION, mark.as_str());
        Some(with_taints(node, change, taints))
    })
    .await
}

/// Removes the marks of rotations. Returns how many marked Nodes were handled.
/// The next sweep handles the Nodes that are not reached in time.
pub async fn unmark_nodes(client: &kube::Client, unmarking: &Unmarking) -> Result<usize, Error> {
    let is_marked = |node: &NodeFacts| {
        let owner = marked_by(node);
        owner.is_some_and(|owner| unmarking.rotations.iter().any(|arn| arn.as_str() == owner))
    };
    let is_selected = |node: &NodeFacts| {
        let id = node.instance.as_ref();
        let nodes = unmarking.nodes.as_ref();
        nodes.is_none_or(|nodes| id.is_some_and(|id| nodes.contains(id)))
    };
    let nodes = list_nodes(client).await?.readable.into_iter();
    let marked = nodes
        .filter(|node| is_marked(node) && is_selected(node))
        .collect();
    change_all(client, marked, |node| {
        is_marked(node).then(|| {
            let change = NodeChange::new().remove_annotation(OUTDATED_ANNOTATION);
            with_taints(node, change, without_mark(node))
        })
    })
    .await
}

/// Adds the taints to the change only if they differ from those of the Node.
fn with_taints(node: &NodeFacts, change: NodeChange, taints: Vec<Taint>) -> NodeChange {
    if taints == node.taints {
        return change;
    }
    change.taints(taints)
}

/// Changes Nodes as `decide` says, until [`CHANGING`] is over. Returns how many Nodes were changed or needed no change.
/// A Node that is gone does not count.
async fn change_all(
    client: &kube::Client,
    nodes: Vec<NodeFacts>,
    decide: impl Fn(&NodeFacts) -> Option<NodeChange>,
) -> Result<usize, Error> {
    let (end, decide) = (Instant::now() + CHANGING, &decide);
    futures::stream::iter(nodes)
        .take_while(|_| future::ready(Instant::now() < end))
        .map(|node| async move {
            match amend_node(client, node, |node| Ok::<_, Error>(decide(node))).await {
                Err(Error::NodeGone { .. }) => Ok(0),
                changed => changed.map(|_| 1),
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |sum, one| future::ready(Ok(sum + one)))
        .await
}
