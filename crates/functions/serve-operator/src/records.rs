//! Collects the records of instances for `recycle-eks report --bundle`.

use recycle::base::ids::InstanceId;
use recycle::notify::records::collect_records;
use serde_json::{Value, json};

use crate::{Error, ServeOperator};

impl ServeOperator {
    /// Returns the records of these instances. If the cluster cannot be read, says why, and returns only the tags.
    pub(crate) async fn collect_records(&self, wanted: &[InstanceId]) -> Result<Value, Error> {
        let instances = self.instances.fetch_all(wanted).await?;
        let (nodes, leases, cluster_error) = self.read_cluster().await;
        Ok(json!({
            "instances": collect_records(wanted, &nodes.readable, &leases, &instances),
            "cluster_is_away": cluster_error,
            "unreadable_nodes": nodes.describe_unreadable(),
        }))
    }
}
