//! The Lambda `select-nodes`: selects the nodes for the sweep and for rotations.
//!
//! It only reads. The other functions decide what to do with the nodes.

mod admission;
mod config;
mod error;
mod group;
#[cfg(test)]
mod laws;
mod rotation;

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use jiff::Timestamp;
use recycle::answer::envelope::{Answer, SelectBody};
use recycle::base::failure::with_causes;
use recycle::base::ids::{ClusterName, ExecutionArn, InstanceId};
use recycle::cluster::cluster_tag::has_cluster_tag;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, NodeList};
use recycle::contract::requests::{SelectRequest, Selection};
use recycle::contract::verdicts::SelectVerdict;
use recycle::notify::metrics::measure_claims;
use recycle::records::lease::Lease;
use recycle::restore::sweep::{OWN_TAGS, choose_instances, find_leftovers, find_named};
use recycle::rotation::marks::{find_rotations, machine_of, rotations_beside};
use serde_json::{Map, Value};
use step_functions::Executions;

pub use config::read_most_at_once;
pub use error::Error;

/// The number of rotations that one sweep looks up. Each takes a call, and part of the answer's 8 KB.
const MOST_ROTATIONS: usize = 10;

type Answered = Result<Answer<SelectVerdict>, Error>;

#[derive(Debug)]
pub struct SelectNodes {
    access: Access,
    groups: Groups,
    instances: Instances,
    executions: Executions,
    most_at_once: u32,
    input_defaults: Map<String, Value>,
}

impl SelectNodes {
    /// `most_at_once` is the module's `max_surge_per_group`.
    pub fn new(
        aws: &SdkConfig,
        cluster: &ClusterName,
        most_at_once: u32,
        input_defaults: Map<String, Value>,
    ) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
            executions: Executions::new(aws),
            most_at_once,
            input_defaults,
        }
    }

    /// Selects nodes for a state machine.
    pub async fn handle(&self, request: SelectRequest) -> Result<Answer<SelectVerdict>, Error> {
        self.access.check(&request.cluster_name)?;
        match request.select {
            Selection::Leftovers => self.select_leftovers(request).await,
            Selection::Rotation => self.select_rotation(request).await,
            Selection::Group => self.select_group(request).await,
            Selection::MayStart => self.may_start(request).await,
        }
    }

    /// Selects the nodes that the sweep has to handle. If the cluster cannot be read, only the tags of the instances count, because the
    /// restore of the group does not need the cluster.
    async fn select_leftovers(&self, request: SelectRequest) -> Answered {
        let (cluster, now) = (&request.cluster_name, request.context.now());
        let instances = self.instances.fetch_marked(cluster, &OWN_TAGS).await?;
        let found = self.list_claimed_nodes(cluster).await;
        let known = found.as_ref().ok();
        let counted = known.map(|(nodes, leases)| measure_claims(&nodes.readable, leases, now));
        let (readable, leases) =
            known.map_or((&[][..], &[][..]), |(nodes, leases)| (&nodes.readable, leases));
        let foreign = self.find_foreign(cluster, readable, &instances).await?;
        let leftovers = find_leftovers(readable, leases, &instances, &foreign);
        let held = self.groups.find_held(cluster).await?;
        let machine = rotations_beside(&request.context.execution.id);
        let (ended_rotations, unknown) = self.find_ended_rotations(&machine, readable, now).await;
        let count = leftovers.union(&held).count();
        let mut reason =
            format!("recycle-eks has left something on or for {count} instances, or its hook holds them");
        if let Some(error) = unknown {
            reason = format!("{reason}; cannot check whether a rotation still runs: {error}");
        }
        let unread = match found {
            Ok((nodes, _)) => nodes.describe_unreadable(),
            Err(error) => Some(format!("cannot read the cluster: {}", with_causes(&error))),
        };
        if let Some(unread) = unread {
            reason = format!("{reason}; {unread}");
        }
        let leftovers = SelectBody::Leftovers {
            nodes: choose_instances(leftovers, &held, now),
            ended_rotations,
        };
        Ok(Answer::new(SelectVerdict::EachNode, reason)
            .with(leftovers)
            .counting(counted.into_iter().flatten()))
    }

    /// Finds the rotations of `machine` that have marked nodes and no longer run. Marks of another state machine are left alone.
    /// A rotation whose status cannot be read may still run. The second value is the last error of such a call.
    async fn find_ended_rotations(
        &self,
        machine: &str,
        nodes: &[NodeFacts],
        now: Timestamp,
    ) -> (BTreeSet<ExecutionArn>, Option<String>) {
        let (mut ended, mut unknown) = (BTreeSet::new(), None);
        let rotations = find_rotations(nodes).into_iter();
        let of_machine = rotations.filter(|(rotation, _)| machine_of(rotation) == machine);
        for (rotation, marks) in of_machine.take(MOST_ROTATIONS) {
            match self.executions.is_running(&rotation, &marks, now).await {
                Ok(true) => {}
                Ok(false) => {
                    ended.insert(rotation);
                }
                Err(error) => unknown = Some(with_causes(&error)),
            }
        }
        (ended, unknown)
    }

    /// Returns the living instances of other clusters that marks on Nodes name, and logs them. Such an instance could not be restored, and
    /// the sweep would fail each time. An instance that is gone has no tags, and only its marks are left.
    async fn find_foreign(
        &self,
        cluster: &ClusterName,
        nodes: &[NodeFacts],
        known: &[Instance],
    ) -> Result<BTreeSet<InstanceId>, Error> {
        let named: Vec<InstanceId> = find_named(nodes, known).into_iter().collect();
        let mut foreign = self.instances.fetch_all(&named).await?;
        foreign.retain(|instance| !instance.is_gone() && !has_cluster_tag(&instance.tags, cluster));
        for instance in &foreign {
            tracing::warn!(instance = %instance.id, "a Node names an instance that is not of this cluster");
        }
        Ok(foreign.into_iter().map(|instance| instance.id).collect())
    }

    async fn list_claimed_nodes(&self, cluster: &ClusterName) -> Result<(NodeList, Vec<Lease>), Error> {
        let client = self.connect(cluster).await?;
        Ok(kubernetes::list_claimed_nodes(&client).await?)
    }

    async fn connect(&self, cluster: &ClusterName) -> Result<kube::Client, eks_auth::Error> {
        self.access.check(cluster)?;
        self.access.connect_anew().await
    }
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_outage_of_the_cluster_does_not_hide_the_marks_on_instances() {
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
        let answer = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new())
            .handle(request.unwrap())
            .await
            .unwrap();
        assert_eq!(json!(answer)["nodes"], json!(["i-0123456789abcdef0"]));
        assert!(
            answer.reason.contains("cannot read the cluster"),
            "{}",
            answer.reason
        );
        let call = &aws.calls()[0];
        assert!(call.contains("kubernetes.io%2Fcluster%2Fworld"), "{call}");
    }
}
