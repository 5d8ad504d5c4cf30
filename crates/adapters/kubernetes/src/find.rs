//! Finds the Node of an instance, whose name is not known.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use recycle::base::ids::InstanceId;
use recycle::cluster::node::{NodeFacts, NodeList};
use recycle::records::lease::Lease;

use crate::leases::get_lease;
use crate::nodes::{OF_CLUSTER, listing};
use crate::{Error, get_node, list_nodes};

/// The number of Nodes that are read at once, each with its Lease. The API server answers ten requests in a tenth of a second.
const AT_ONCE: usize = 5;

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
    let node = pick(&list_nodes(client).await?, instance)?;
    // The Lease is read after the Node, so it is never older: see `get_node`.
    let lease = get_lease(client, instance).await?;
    let node = node.map(|node| NodeFacts {
        lease: lease.clone(),
        ..node
    });
    Ok((node, lease))
}

/// An instance whose Node is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub instance: &'a InstanceId,
    /// Its private DNS name.
    pub hint: Option<&'a str>,
    /// Whether to look for the Node in a list of all Nodes, too.
    pub in_list: bool,
}

/// Finds the Nodes of several instances like [`find_node`], in the order of `wanted`. All Nodes are listed at most once.
pub async fn find_nodes(
    client: &kube::Client,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Option<NodeFacts>>, Error> {
    let guesses = stream::iter(wanted).map(|wanted| guess_node(client, wanted.instance, wanted.hint));
    let mut found: Vec<Option<NodeFacts>> = guesses.buffered(AT_ONCE).try_collect().await?;
    let missing = wanted.iter().zip(&mut found);
    let mut missing = missing
        .filter(|(wanted, found)| wanted.in_list && found.is_none())
        .peekable();
    if missing.peek().is_some() {
        let all = list_nodes(client).await?;
        for (wanted, found) in missing {
            if let Some(node) = pick(&all, wanted.instance)? {
                let lease = get_lease(client, wanted.instance).await?;
                *found = Some(NodeFacts { lease, ..node });
            }
        }
    }
    Ok(found)
}

/// Picks the Node of an instance from a list. A Node of the instance that cannot be read is an error.
fn pick(all: &NodeList, instance: &InstanceId) -> Result<Option<NodeFacts>, Error> {
    if let Some(node) = all.find_unreadable(instance) {
        return Err(Error::unexpected(listing(OF_CLUSTER), node.clone()));
    }
    let mut readable = all.readable.iter();
    Ok(readable
        .find(|node| node.instance.as_ref() == Some(instance))
        .cloned())
}

/// Finds the Node of an instance under its hint or its id only.
/// The list of all Nodes that [`find_node`] reads would cost more the larger the cluster is.
async fn guess_node(
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
