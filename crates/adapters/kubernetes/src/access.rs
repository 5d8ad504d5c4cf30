//! Connects to the cluster and reads one Node with its Lease.

use eks_auth::Access;
use recycle::base::ids::{InstanceId, NodeName};
use recycle::cluster::node::NodeFacts;
use recycle::contract::run::Run;

use crate::{Error, get_node};

/// Connects to the cluster and fetches the Node of a run with its Lease. None if there is no such Node. A run of another cluster is an error.
///
/// If the connection fails or the token is rejected, a second attempt follows with the endpoint and the CA that EKS reports now.
/// Endpoints change, and a cluster's CA rotates.
pub async fn open(access: &Access, run: &Run) -> Result<(kube::Client, Option<NodeFacts>), Error> {
    access.check(&run.input.cluster_name)?;
    let (node, instance) = (&run.node, &run.input.instance_id);
    match enter(access, node, instance).await {
        Err(Error::Unauthorized { .. } | Error::Unreachable { .. }) => {
            access.describe_cluster().await?;
            enter(access, node, instance).await
        }
        entered => entered,
    }
}

async fn enter(
    access: &Access,
    node: &NodeName,
    instance: &InstanceId,
) -> Result<(kube::Client, Option<NodeFacts>), Error> {
    let client = access.connect().await?;
    let found = get_node(&client, node, instance).await?;
    Ok((client, found))
}
