//! Fetches nodes from `serve-operator`.

use recycle::notify::status::{NodeStatus, Status};
use serde_json::json;

use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, misuse};

/// Fetches every node that carries a mark of recycle-eks, or the given node with or without a mark.
pub(crate) async fn fetch_status(installation: &Installation, node: Option<&str>) -> Result<Status> {
    let question = json!({"ask": "status", "cluster_name": installation.cluster, "node": node});
    installation.ask(&question).await
}

/// Fetches one node by its instance id or by the name of its Node.
pub(crate) async fn find_node(installation: &Installation, name: &str) -> Result<NodeStatus> {
    let status = fetch_status(installation, Some(name)).await?;
    if let Some(node) = status.nodes.into_iter().next() {
        return Ok(node);
    }
    let cluster = &installation.cluster;
    if let Some(why) = status.cluster_is_away {
        return Err(Error::Unreachable(format!(
            "{name:?} is unknown, and the cluster {cluster} cannot be read: {why}"
        )));
    }
    let unreadable = status.unreadable_nodes.map(|why| format!("; {why}"));
    misuse!(
        "there is no instance and no node {name:?} in cluster {cluster}: use an instance id or the name of a Node{}",
        unreadable.unwrap_or_default()
    )
}
