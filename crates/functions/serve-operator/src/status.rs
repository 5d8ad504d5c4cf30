//! Builds the status for `recycle-eks status` from the marks on Nodes and instances.

use recycle::base::failure::with_causes;
use recycle::base::ids::InstanceId;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeList;
use recycle::notify::status::{NodeStatus, build_status};
use recycle::records::lease::Lease;
use recycle::restore::sweep::OWN_TAGS;
use serde_json::{Value, json};

use crate::{Error, ServeOperator};

impl ServeOperator {
    /// Returns the status. If the cluster cannot be read, the instances are still listed, but no Node can be found by its name.
    pub(crate) async fn build_status(&self, wanted: Option<&str>) -> Result<Value, Error> {
        let mut instances = self.instances.fetch_marked(self.access.name(), &OWN_TAGS).await?;
        if let Some(id) = wanted.and_then(|name| name.parse::<InstanceId>().ok()) {
            instances.retain(|instance| instance.id != id);
            instances.extend(self.instances.fetch(&id).await?);
        }
        let (nodes, leases, cluster_error) = self.read_cluster().await;
        let mut status = build_status(&nodes.readable, &leases, &instances, wanted);
        if cluster_error.is_none() {
            for node in status.nodes.iter_mut().filter(|node| node.gave_up_at.is_some()) {
                self.explain(node, &nodes, &instances).await;
            }
        }
        status.cluster_is_away = cluster_error;
        status.unreadable_nodes = nodes.describe_unreadable();
        Ok(json!(status))
    }

    /// Adds what an operator can do about a node. If its group cannot be read, nothing is added. Nothing is added either if the Node is in
    /// doubt, because an unreadable Node is not gone, and of several Nodes that name the instance only one can be right.
    async fn explain(&self, status: &mut NodeStatus, nodes: &NodeList, instances: &[Instance]) {
        let id = status.instance_id.clone();
        let mut named = nodes
            .readable
            .iter()
            .filter(|node| node.instance.as_ref() == Some(&id));
        let (node, another) = (named.next(), named.next());
        if another.is_some() || nodes.find_unreadable(&id).is_some() {
            return;
        }
        let group = match status.group.as_deref().and_then(|name| name.parse().ok()) {
            None => None,
            Some(name) => match self.groups.fetch(&name).await {
                Ok(group) => group,
                Err(_) => return,
            },
        };
        let instance = instances.iter().find(|instance| instance.id == id);
        status.explain(group.as_ref(), instance, node);
    }

    /// Lists the Nodes and the Leases. If the cluster cannot be read, returns none of them, and the reason.
    pub(crate) async fn read_cluster(&self) -> (NodeList, Vec<Lease>, Option<String>) {
        match self.list_claimed_nodes().await {
            Ok((nodes, leases)) => (nodes, leases, None),
            Err(error) => (NodeList::default(), Vec::new(), Some(with_causes(&error))),
        }
    }

    async fn list_claimed_nodes(&self) -> Result<(NodeList, Vec<Lease>), Error> {
        let client = self.access.connect_anew().await?;
        Ok(kubernetes::list_claimed_nodes(&client).await?)
    }
}

#[cfg(test)]
mod tests {
    use recycle::contract::requests::OperatorRequest;
    use scripted_aws::ScriptedAws;

    use super::*;

    #[tokio::test]
    async fn an_outage_of_the_cluster_is_reported_beside_the_marks_on_instances() {
        let marked = "<reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId>\
            <instanceState><name>running</name></instanceState><tagSet><item><key>recycle-eks:standby</key>\
            <value>2027-01-01T00:00:00Z</value></item></tagSet></item></instancesSet></item></reservationSet>";
        let aws = ScriptedAws::new().on("DescribeInstances", marked).refuses(
            "DescribeCluster",
            503,
            "ServiceUnavailableException",
            "away",
        );
        let asked: OperatorRequest =
            serde_json::from_value(json!({"ask": "status", "cluster_name": "world"})).unwrap();
        let report = ServeOperator::new(&aws.config(), &"world".parse().unwrap())
            .handle(asked)
            .await
            .unwrap();
        let report = serde_json::to_value(report).unwrap();
        assert_eq!(
            report["nodes"][0]["instance_id"], "i-0123456789abcdef0",
            "{report}"
        );
        let away = report["cluster_is_away"].as_str().unwrap();
        assert!(away.contains("EKS is not available"), "{away}");
    }
}
