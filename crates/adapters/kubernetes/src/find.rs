//! Finds the Node of an instance, whose name is not known.

use recycle::base::ids::InstanceId;
use recycle::cluster::node::NodeFacts;
use recycle::records::lease::Lease;

use crate::leases::get_lease;
use crate::nodes::{OF_CLUSTER, listing};
use crate::{Error, get_node, list_nodes};

/// Finds the Node of an instance: first under the hint (its private DNS name), then under its id, then in a list of all Nodes.
/// A Node is accepted only if its `spec.providerID` names the instance. The rules for names differ from cluster to cluster, and names
/// are used again. A Node of the instance that cannot be read is an error. So is any unreadable Node under one of the two names.
pub async fn find_node(
    client: &kube::Client,
    instance: &InstanceId,
    hint: Option<&str>,
) -> Result<Option<NodeFacts>, Error> {
    Ok(find_node_and_lease(client, instance, hint).await?.0)
}

/// Finds the Node of an instance like [`find_node`], and also the Lease of an instance without a Node.
pub async fn find_node_and_lease(
    client: &kube::Client,
    instance: &InstanceId,
    hint: Option<&str>,
) -> Result<(Option<NodeFacts>, Option<Lease>), Error> {
    if let Some(node) = guess_node(client, instance, hint).await? {
        let lease = node.lease.clone();
        return Ok((Some(node), lease));
    }
    let all = list_nodes(client).await?;
    if let Some(node) = all.find_unreadable(instance) {
        return Err(Error::unexpected(listing(OF_CLUSTER), node.clone()));
    }
    let mut found = all.readable.into_iter();
    let node = found.find(|node| node.instance.as_ref() == Some(instance));
    let lease = get_lease(client, instance).await?;
    let node = node.map(|node| NodeFacts {
        lease: lease.clone(),
        ..node
    });
    Ok((node, lease))
}

/// Finds the Node of an instance under its hint or its id only, for an instance that may not have registered yet.
/// The list of all Nodes that [`find_node`] reads would cost more the larger the cluster is.
pub async fn guess_node(
    client: &kube::Client,
    instance: &InstanceId,
    hint: Option<&str>,
) -> Result<Option<NodeFacts>, Error> {
    for guess in [hint, Some(instance.as_str())].into_iter().flatten() {
        let Ok(name) = guess.parse() else { continue };
        let found = get_node(client, &name, instance).await?;
        if let Some(node) = found.filter(|node| node.instance.as_ref() == Some(instance)) {
            return Ok(Some(node));
        }
    }
    Ok(None)
}
