//! Finds the nodes that something has to be done about. Reads only; what is done about them, and whether, others decide.

mod error;
mod rotation;

use aws_config::SdkConfig;
use eks_auth::Access;
use instance_record::autoscaling::Groups;
use instance_record::ec2::Instances;
use recycle::contract::{Answer, SelectRequest, SelectVerdict, Selection};
use recycle::failure::with_causes;
use recycle::ids::ClusterName;
use recycle::metrics::measure_claims;
use recycle::names::PROTECTED_FOR_TAG;
use recycle::node::NodeFacts;
use recycle::sweep::{OWN_TAGS, find_leftovers, take_turns};

pub use error::Error;

/// The step.
#[derive(Debug)]
pub struct SelectNodes {
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl SelectNodes {
    /// The step with clients of `aws`.
    #[must_use]
    pub fn new(aws: &SdkConfig) -> Self {
        Self {
            access: Access::new(aws),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Selects as asked.
    pub async fn handle(&self, request: SelectRequest) -> Result<Answer<SelectVerdict>, Error> {
        match request.select {
            Selection::Leftovers => self.select_leftovers(request).await,
            Selection::Rotation => self.select_rotation(request).await,
        }
    }

    /// A cluster that cannot be asked is left out: what is on its instances can be put back without it.
    async fn select_leftovers(&self, request: SelectRequest) -> Result<Answer<SelectVerdict>, Error> {
        let tags: Vec<&str> = OWN_TAGS.into_iter().chain([PROTECTED_FOR_TAG]).collect();
        let cluster = &request.cluster_name;
        let instances = self.instances.fetch_marked(cluster, &tags).await?;
        let nodes = self.list_nodes(cluster).await;
        let counted = nodes
            .as_deref()
            .ok()
            .map(|nodes| measure_claims(nodes, request.context.now()));
        let leftovers = find_leftovers(nodes.as_deref().unwrap_or_default(), &instances);
        let held = self.groups.find_held(cluster).await?;
        let mut reason = format!(
            "something of ours is left on or for {} instances, or holds them",
            leftovers.union(&held).count()
        );
        if let Err(error) = nodes {
            reason = format!("{reason}; the cluster cannot be asked: {}", with_causes(&error));
        }
        Ok(Answer {
            nodes: Some(take_turns(leftovers, &held, request.context.now())),
            ..Answer::new(SelectVerdict::EachNode, reason).counting(counted.into_iter().flatten())
        })
    }

    async fn list_nodes(&self, cluster: &ClusterName) -> Result<Vec<NodeFacts>, Error> {
        let cluster = self.access.describe_cluster(cluster).await?;
        let client = self.access.connect(&cluster).await?;
        Ok(node_record::list_nodes(&client).await?)
    }
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_cluster_that_is_away_does_not_hide_what_is_on_instances() {
        let marked = "<reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId>\
            <instanceState><name>running</name></instanceState><tagSet><item><key>recycle-eks:standby</key>\
            <value>2027-01-01T00:00:00Z</value></item></tagSet></item></instancesSet></item></reservationSet>";
        let aws = ScriptedAws::new()
            .on("DescribeInstances", marked)
            .on("DescribeAutoScalingGroups", "<AutoScalingGroups/>")
            .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
        let request = serde_json::from_value(json!({
            "context": {
                "Execution": {
                    "Id": "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-sweep:one",
                    "Input": {},
                },
                "State": {"EnteredTime": "2027-01-01T00:00:00Z"},
            },
            "select": "leftovers",
            "cluster_name": "world",
        }));
        let answer = SelectNodes::new(&aws.config())
            .handle(request.unwrap())
            .await
            .unwrap();
        assert_eq!(answer.nodes, Some(vec!["i-0123456789abcdef0".parse().unwrap()]));
        assert!(
            answer.reason.contains("the cluster cannot be asked"),
            "{}",
            answer.reason
        );
        let asked = &aws.calls()[0];
        assert!(asked.contains("kubernetes.io%2Fcluster%2Fworld"), "{asked}");
    }
}
