//! Fetches nodes from `serve-operator`.

use recycle::base::ids::NodeName;
use recycle::notify::status::{NodeStatus, Status};
use serde_json::json;

use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, misuse};

/// Fetches every node that carries a mark of recycle-eks, or the given node with or without a mark. A node with a mark may also be given
/// by the first label of its name, to which a table shortens it.
pub(crate) async fn fetch_status(installation: &Installation, node: Option<&str>) -> Result<Status> {
    let ask = async |node: Option<&str>| -> Result<Status> {
        let question = json!({"ask": "status", "cluster_name": installation.cluster, "node": node});
        installation.ask(&question).await
    };
    let mut status = ask(node).await?;
    if let Some(label) = node.filter(|name| status.nodes.is_empty() && !name.contains('.')) {
        status.nodes = find_by_label(ask(None).await?.nodes, label);
    }
    Ok(status)
}

fn find_by_label(mut nodes: Vec<NodeStatus>, label: &str) -> Vec<NodeStatus> {
    let has_label = |name: &NodeName| name.as_str().split('.').next() == Some(label);
    nodes.retain(|node| node.node.as_ref().is_some_and(has_label));
    nodes
}

/// Fetches the status of at most one node. A label of several nodes is refused.
pub(crate) async fn fetch_one(installation: &Installation, name: &str) -> Result<Status> {
    let status = fetch_status(installation, Some(name)).await?;
    if status.nodes.len() > 1 {
        let nodes = status.nodes.iter().filter_map(|node| node.node.as_ref());
        let names: Vec<&str> = nodes.map(NodeName::as_str).collect();
        misuse!(
            "several nodes are called {name:?}: use one of {}",
            names.join(", ")
        );
    }
    Ok(status)
}

/// Fetches one node by its instance id or by the name of its Node. If the cluster cannot be read, an instance still has its tags.
pub(crate) async fn find_node(installation: &Installation, name: &str) -> Result<NodeStatus> {
    let mut status = fetch_one(installation, name).await?;
    match status.nodes.pop() {
        Some(node) => Ok(node),
        None => Err(describe_missing(installation, name, status)),
    }
}

/// Fetches one node for a command that needs what the cluster says about it.
pub(crate) async fn find_node_in_cluster(installation: &Installation, name: &str) -> Result<NodeStatus> {
    let mut status = fetch_one(installation, name).await?;
    let found = status.nodes.pop().filter(|_| status.cluster_is_away.is_none());
    found.ok_or_else(|| describe_missing(installation, name, status))
}

fn describe_missing(installation: &Installation, name: &str, status: Status) -> Error {
    let cluster = &installation.cluster;
    if let Some(why) = status.cluster_is_away {
        return Error::Unreachable(format!(
            "{name:?} cannot be found: the cluster {cluster} cannot be read: {why}"
        ));
    }
    let unreadable = status.unreadable_nodes.map(|why| format!("; {why}"));
    Error::Usage(format!(
        "there is no instance and no node {name:?} in cluster {cluster}: use an instance id, or the name of a Node or an execution{}",
        unreadable.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_the_first_label_of_its_name() {
        let nodes = [
            "ip-10-0-0-1.a.internal",
            "ip-10-0-0-1.b.internal",
            "ip-10-0-0-11.a.internal",
        ];
        let nodes =
            nodes.map(|name| json!({"instance_id": "i-0123456789abcdef0", "node": name, "is_marked": true}));
        let status: Status = serde_json::from_value(json!({"nodes": nodes})).unwrap();
        for (label, found) in [
            ("ip-10-0-0-1", 2),
            ("ip-10-0-0-11", 1),
            ("ip-10-0-0", 0),
            ("a", 0),
        ] {
            assert_eq!(find_by_label(status.nodes.clone(), label).len(), found, "{label}");
        }
    }
}
