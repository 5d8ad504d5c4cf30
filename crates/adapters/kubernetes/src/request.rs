//! Answers the request of an operator by the taint `recycle-eks/request`.

use jiff::Timestamp;
use recycle::base::ids::Fence;
use recycle::cluster::node::{NodeFacts, is_request_taint};

use crate::{Error, NodeChange, Occasion, amend_node, record_event};

/// Answers a request that starts no work. Writes an Event with the reason, then removes the taint, so that no sweep starts it again.
/// If an execution claims the node in between, the taint stays, because that execution removes it.
pub async fn answer_request(
    client: &kube::Client,
    node: &NodeFacts,
    answer: Occasion<'_>,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) -> Result<(), Error> {
    if !is_open(node) {
        return Ok(());
    }
    record_event(client, &node.name, answer, message, now, fence).await;
    amend_node(client, node.clone(), |node| {
        let others = node.taints.iter().filter(|taint| !is_request_taint(taint));
        let change = NodeChange::new().taints(others.cloned().collect());
        Ok(is_open(node).then_some(change))
    })
    .await
    .map(|_| ())
}

fn is_open(node: &NodeFacts) -> bool {
    node.is_requested() && node.claim().is_none()
}
