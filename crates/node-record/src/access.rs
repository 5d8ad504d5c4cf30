//! Opens a cluster for one Node.

use eks_auth::Access;
use recycle::contract::Cluster;
use recycle::ids::NodeName;
use recycle::node::NodeFacts;

use crate::{Error, get_node};

/// Connects to the cluster and reads the Node; none if there is no such Node.
///
/// A connection or token that is refused is worth one more try with what EKS says now: endpoints change, and a cluster's CA
/// rotates under executions that last for weeks. `cluster` is brought up to date then.
pub async fn open(
    access: &Access,
    cluster: &mut Cluster,
    node: &NodeName,
) -> Result<(kube::Client, Option<NodeFacts>), Error> {
    match enter(access, cluster, node).await {
        Err(Error::Unauthorized { .. } | Error::Unreachable { .. }) => {
            *cluster = access.describe_cluster(&cluster.name).await?;
            enter(access, cluster, node).await
        }
        entered => entered,
    }
}

async fn enter(
    access: &Access,
    cluster: &Cluster,
    node: &NodeName,
) -> Result<(kube::Client, Option<NodeFacts>), Error> {
    let client = access.connect(cluster).await?;
    let found = get_node(&client, node).await?;
    Ok((client, found))
}
