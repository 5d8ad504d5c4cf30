//! Examines the installation from inside a function: whether its role and its network reach the cluster and AWS.

use std::collections::BTreeSet;

use kubernetes::{list_nodes, missing_permissions, server_version};
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::{ClusterName, ExecutionArn, InstanceId};
use recycle::cluster::cluster_tag::has_cluster_tag;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeList;
use recycle::doctor::facts::{Inside, Seen, find_odd_nodes};
use recycle::rotation::fleet::Fleet;

use crate::{Error, ServeOperator};

type Ids = BTreeSet<InstanceId>;

const DESCRIBE_EXECUTION: &str = "states:DescribeExecution";

impl ServeOperator {
    /// Examines everything, whatever fails, because failures are what the doctor reports.
    /// Makes all calls at once, because a service that cannot be reached takes its time, and the function has a minute.
    pub(crate) async fn examine(&self, execution: Option<&ExecutionArn>) -> Inside {
        let cluster = self.access.name();
        let (step_functions, (api_server, missing_permissions, nodes), (fleets, members, there)) = tokio::join!(
            self.reach_step_functions(execution),
            self.examine_api_server(),
            self.examine_groups(cluster),
        );
        let untagged = there.as_ref().map(|there| find_untagged(there, cluster));
        let given_up = there.as_ref().map(|there| find_given_up(there));
        let instances = there
            .as_ref()
            .map(|there| u32::try_from(there.len()).unwrap_or(u32::MAX));
        let there = self.add_instances_of_nodes(there, &members, &nodes).await;
        Inside {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_server,
            missing_permissions,
            groups: fleets.map(|fleets| fleets.iter().map(|fleet| fleet.name.to_string()).collect()),
            instances,
            untagged: Some(untagged),
            given_up: Some(given_up),
            step_functions,
            nodes: nodes.and_then(|nodes| {
                members.and_then(|members| there.map(|there| find_odd_nodes(&nodes, &members, &there)))
            }),
        }
    }

    async fn reach_step_functions(&self, execution: Option<&ExecutionArn>) -> Option<Seen<()>> {
        let asked = self.step_functions.describe_execution();
        let answer = asked.execution_arn(execution?.as_str()).send().await;
        // The answer that there is no such execution also shows that Step Functions answers.
        let answer = match answer.map_err(|error| ec2::Error::from_sdk(DESCRIBE_EXECUTION, error)) {
            Err(error) if matches!(error.code(), Some("ExecutionDoesNotExist" | "InvalidArn")) => Ok(()),
            answer => answer.map(|_| ()),
        };
        Some(seen(answer))
    }

    /// Reads the API server's version, the permissions that the groups of all functions lack there, and the Nodes.
    async fn examine_api_server(&self) -> (Seen<String>, Seen<Vec<String>>, Seen<NodeList>) {
        let client = seen(self.access.connect_anew().await);
        tokio::join!(
            ask(&client, async |client| server_version(client).await),
            ask(&client, async |client| missing_permissions(client).await),
            ask(&client, async |client| list_nodes(client).await),
        )
    }

    /// Reads the cluster's groups, their members, and the members that exist.
    async fn examine_groups(
        &self,
        cluster: &ClusterName,
    ) -> (Seen<Vec<Fleet>>, Seen<Ids>, Seen<Vec<Instance>>) {
        let fleets = seen(self.groups.fetch_fleets(cluster).await);
        let members: Seen<Ids> = fleets.as_ref().map(|fleets| {
            let members = fleets.iter().flat_map(|fleet| &fleet.members);
            members.map(|member| member.instance.clone()).collect()
        });
        let ids = members.as_ref().found().into_iter().flatten();
        let there = seen(self.find_there(ids).await);
        (fleets, members, there)
    }

    /// Adds the existing instances of Nodes that are in no group to the existing members.
    async fn add_instances_of_nodes(
        &self,
        there: Seen<Vec<Instance>>,
        members: &Seen<Ids>,
        nodes: &Seen<NodeList>,
    ) -> Seen<Ids> {
        let there = there.map(|there| there.into_iter().map(|instance| instance.id).collect::<Ids>());
        let (Seen::Found(there), Seen::Found(nodes)) = (&there, nodes) else {
            return there;
        };
        let on_nodes = nodes.readable.iter().filter_map(|node| node.instance.as_ref());
        let is_member = |id: &InstanceId| matches!(members, Seen::Found(members) if members.contains(id));
        let more = self.find_there(on_nodes.filter(|id| !is_member(id))).await;
        seen(more).map(|more| {
            let more = more.into_iter().map(|instance| instance.id);
            there.iter().cloned().chain(more).collect()
        })
    }

    /// Finds the instances that EC2 knows and that have not ended.
    async fn find_there(&self, ids: impl Iterator<Item = &InstanceId>) -> Result<Vec<Instance>, Error> {
        let ids: Vec<InstanceId> = ids.cloned().collect();
        let mut found = self.instances.fetch_all(&ids).await?;
        found.retain(|instance| !instance.is_gone());
        Ok(found)
    }
}

/// Finds the instances that the functions' policies do not let them change, because they lack the cluster's tag.
fn find_untagged(members: &[Instance], cluster: &ClusterName) -> Vec<InstanceId> {
    let untagged = members
        .iter()
        .filter(|instance| !has_cluster_tag(&instance.tags, cluster));
    untagged.map(|instance| instance.id.clone()).collect()
}

/// Finds the instances that need an operator. An execution works again on an instance with a claim.
fn find_given_up(members: &[Instance]) -> Vec<InstanceId> {
    let given_up = members
        .iter()
        .filter(|instance| instance.gave_up().is_some() && instance.claim().is_none());
    given_up.map(|instance| instance.id.clone()).collect()
}

async fn ask<T>(
    client: &Seen<kube::Client>,
    call: impl AsyncFnOnce(&kube::Client) -> Result<T, kubernetes::Error>,
) -> Seen<T> {
    match client.as_ref().known() {
        Ok(client) => seen(call(client).await),
        Err(unknown) => unknown,
    }
}

/// Sorts an error: a refusal, which another attempt does not change, a busy AWS, or any other failure.
/// A refused token counts as a refusal, because the cluster has not admitted the function's role.
fn seen<T, E: Into<Error>>(answer: Result<T, E>) -> Seen<T> {
    let error: Error = match answer {
        Ok(found) => return Seen::Found(found),
        Err(error) => error.into(),
    };
    let is_refused = matches!(error, Error::Node(kubernetes::Error::Unauthorized { .. }))
        || error.failure() == Failure::ServiceRefused;
    let why = with_causes(&error);
    if is_busy(&error) {
        Seen::Unanswered(why)
    } else if is_refused {
        Seen::Denied(why)
    } else {
        Seen::Failed(why)
    }
}

/// Checks whether AWS was reached and answered that it is busy, by a throttle or a fault of its own.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Aws(ec2::Error::Unavailable { source, .. }) if source.is::<ec2::Reply>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scripted_aws::ScriptedAws;

    use super::*;

    #[tokio::test]
    async fn a_refused_call_hides_no_other_finding() {
        let groups = "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
            <MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity><Instances><member>\
            <InstanceId>i-0aaaaaaaaaaaaaaaa</InstanceId><LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>";
        let aws = ScriptedAws::new()
            .refuses("DescribeCluster", 403, "AccessDeniedException", "not you")
            .on("DescribeAutoScalingGroups", groups)
            .refuses(
                "DescribeInstances",
                403,
                "UnauthorizedOperation",
                "not you either",
            );
        let inside = ServeOperator::new(&aws.config(), &"world".parse().unwrap())
            .examine(None)
            .await;
        assert_eq!(inside.groups, Seen::Found(vec!["workers".to_owned()]));
        assert!(
            matches!(&inside.api_server, Seen::Denied(why) if why.contains("EKS refused")),
            "{inside:?}"
        );
        assert!(
            matches!(&inside.missing_permissions, Seen::Denied(_)),
            "{inside:?}"
        );
        assert!(
            matches!(&inside.instances, Seen::Denied(why) if why.contains("not you either")),
            "{inside:?}"
        );
        assert!(matches!(&inside.nodes, Seen::Denied(_)), "{inside:?}");
        assert_eq!(inside.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(aws.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn a_call_without_an_answer_holds_up_no_other_call() {
        let execution: ExecutionArn =
            "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:doctor"
                .parse()
                .unwrap();
        let groups = "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
            <MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity><Instances><member>\
            <InstanceId>i-0aaaaaaaaaaaaaaaa</InstanceId><LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>";
        let aws = ScriptedAws::new()
            .hangs_on("DescribeExecution")
            .hangs_on("DescribeCluster")
            .on("DescribeAutoScalingGroups", groups)
            .hangs_on("DescribeInstances");
        let server = ServeOperator::new(&aws.config(), &"world".parse().unwrap());
        let all_called = async {
            while aws.exchanges_left() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            inside = server.examine(Some(&execution)) => panic!("{inside:?}"),
            () = all_called => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("only {:?}", aws.actions()),
        }
    }

    #[tokio::test]
    async fn step_functions_is_reached_if_the_execution_does_not_exist() {
        let execution: ExecutionArn =
            "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:doctor"
                .parse()
                .unwrap();
        for (status, code, expected) in [
            (400, "ExecutionDoesNotExist", "Found"),
            (400, "ThrottlingException", "Unanswered"),
            (400, "AccessDeniedException", "Denied"),
        ] {
            let aws = ScriptedAws::new()
                .refuses("DescribeExecution", status, code, "no")
                .refuses("DescribeCluster", 403, "AccessDeniedException", "not you")
                .refuses("DescribeAutoScalingGroups", 400, "Throttling", "later");
            let inside = ServeOperator::new(&aws.config(), &"world".parse().unwrap())
                .examine(Some(&execution))
                .await;
            let found = format!("{:?}", inside.step_functions);
            assert!(found.starts_with(&format!("Some({expected}(")), "{code}: {found}");
            assert!(
                matches!(inside.groups, Seen::Unanswered(_)),
                "{:?}",
                inside.groups
            );
        }
    }
}
