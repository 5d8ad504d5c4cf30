//! Connects to the cluster and reads one Node with its Lease, and other facts at the same time.

use std::time::{Duration, Instant};

use eks_auth::Access;
use futures::future::try_join;
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

/// The time after which a reading of AWS is too old to be judged beside the Node. A warm function needs a tenth of a second, a cold one less
/// than a second.
const FRESH: Duration = Duration::from_secs(5);

/// Connects and fetches like [`open`], and calls `read` at the same time, for facts that do not come from the cluster.
/// If the cluster answers so late that these facts are old, `read` is called again.
pub async fn open_beside<T>(
    access: &Access,
    run: &Run,
    read: impl AsyncFn() -> T,
) -> Result<(kube::Client, Option<NodeFacts>, T), Error> {
    let opened = async { Ok::<_, Error>((open(access, run).await?, Instant::now())) };
    let found = async { Ok::<_, Error>((read().await, Instant::now())) };
    // An error of the cluster does not wait for the other answer.
    let (((client, node), opened_at), (found, found_at)) = try_join(opened, found).await?;
    let is_fresh = is_fresh(found_at, opened_at);
    Ok((client, node, if is_fresh { found } else { read().await }))
}

/// Whether facts that were found at one moment can be judged beside a Node that was read at another.
fn is_fresh(found_at: Instant, opened_at: Instant) -> bool {
    opened_at.saturating_duration_since(found_at) <= FRESH
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_facts_that_are_much_older_than_the_node_are_not_fresh() {
        let now = Instant::now();
        let after = |milliseconds| now + Duration::from_millis(milliseconds);
        for (found_at, opened_at, expected) in [
            (0, 0, true),
            (0, 5_000, true),
            (0, 5_001, false),
            (20_000, 0, true),
        ] {
            assert_eq!(
                is_fresh(after(found_at), after(opened_at)),
                expected,
                "{found_at} {opened_at}"
            );
        }
    }
}
