//! Reads at each check what other tools do to the node and its group during the drain. Cancels an instance refresh that would end the
//! node with its pods, if the module allows it. A failed call does not hold up the drain.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use autoscaling::groups::Groups;
use aws_config::SdkConfig;
use eks_auth::Access;
use recycle::base::failure::with_causes;
use recycle::base::ids::GroupName;
use recycle::claim::obstacle::Refusal;
use recycle::cluster::hook::{HeldByHook, WAITING};
use recycle::cluster::node::NodeFacts;
use recycle::cluster::node_group::{NodeGroup, find_node_group_names};
use recycle::cluster::refresh::{Cancellation, Refresh};
use recycle::contract::run::Run;
use recycle::drain::disruption::{
    DisruptionFacts, DrainValidity, find_remarks, is_ended_by_refresh, judge_drain_validity,
};
use recycle::input::path::RecyclePath;

/// The time limit for the reads together, and for the cancellation. If AWS hangs, it must not use up the function's time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients for the facts about the node's group.
#[derive(Debug)]
pub struct Outside {
    aws: SdkConfig,
    /// Created at the first call, because the SDK reads every root certificate of the system when it creates a client.
    groups: OnceLock<Groups>,
    access: Access,
    /// Whether an instance refresh that would terminate the member in Standby is cancelled.
    cancels_refreshes: bool,
}

impl Outside {
    #[must_use]
    pub fn new(aws: &SdkConfig, access: Access, cancels_refreshes: bool) -> Self {
        Self {
            aws: aws.clone(),
            groups: OnceLock::new(),
            access,
            cancels_refreshes,
        }
    }

    /// Cancels the instance refresh of the group if the module allows that.
    pub(crate) async fn cancel_refresh(&self, group: &GroupName) -> Cancellation {
        self.cancel_within(PATIENCE, group).await
    }

    async fn cancel_within(&self, limit: Duration, group: &GroupName) -> Cancellation {
        if !self.cancels_refreshes {
            return Cancellation::NotAllowed;
        }
        match tokio::time::timeout(limit, self.groups().cancel_refresh(group)).await {
            Ok(Ok(true)) => Cancellation::Done,
            Ok(Ok(false)) => Cancellation::NotNeeded,
            Ok(Err(error)) => Cancellation::Failed(with_causes(&error)),
            Err(_) => Cancellation::Failed(describe_silence(limit)),
        }
    }

    fn groups(&self) -> &Groups {
        self.groups.get_or_init(|| Groups::new(&self.aws))
    }
}

/// The judgement about the node's group at one check: whether the drain goes on, and remarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutsideFacts {
    /// Whether the drain still makes sense.
    pub(crate) validity: DrainValidity,
    /// Whether the instance waits in its group for a lifecycle hook.
    /// None if the group could not be read, is gone, or was not read because there is no Node.
    pub(crate) is_waiting: Option<bool>,
    /// The hook of recycle-eks, if it holds the member and the execution does not know that: its event was lost, or is still on its way.
    pub(crate) hook: Option<HeldByHook>,
    /// Whether an instance refresh would terminate the member in Standby with its pods.
    pub(crate) is_ended_by_refresh: bool,
    /// Remarks for operators.
    pub(crate) remarks: Vec<Refusal>,
    /// The error of AWS, if a call failed.
    pub(crate) aws_error: Option<String>,
}

impl OutsideFacts {
    /// Returns the facts of a check at which nothing came up.
    pub(crate) fn quiet() -> Self {
        Self {
            validity: DrainValidity::Goes,
            is_waiting: None,
            hook: None,
            is_ended_by_refresh: false,
            remarks: Vec::new(),
            aws_error: None,
        }
    }

    fn failed(why: String) -> Self {
        Self {
            aws_error: Some(why),
            ..Self::quiet()
        }
    }
}

/// Reads the facts about the node's group. Never fails: an error becomes `aws_error`.
pub(crate) async fn fetch_outside_facts(
    outside: &Outside,
    node: Option<&NodeFacts>,
    run: &Run,
) -> OutsideFacts {
    fetch_within(PATIENCE, outside, node, run).await
}

async fn fetch_within(
    limit: Duration,
    outside: &Outside,
    node: Option<&NodeFacts>,
    run: &Run,
) -> OutsideFacts {
    let Some(node) = node else {
        return OutsideFacts::quiet();
    };
    match tokio::time::timeout(limit, fetch_from_aws(outside, node, run)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => OutsideFacts::failed(with_causes(error.as_ref())),
        Err(_) => OutsideFacts::failed(describe_silence(limit)),
    }
}

fn describe_silence(limit: Duration) -> String {
    format!("AWS did not answer in {} seconds", limit.as_secs())
}

async fn fetch_from_aws(
    outside: &Outside,
    node: &NodeFacts,
    run: &Run,
) -> Result<OutsideFacts, Box<dyn std::error::Error + Send + Sync>> {
    let Some(group) = outside.groups().fetch(&run.group).await? else {
        return Ok(OutsideFacts {
            validity: DrainValidity::TakenAway(format!("its group {} is gone", run.group)),
            ..OutsideFacts::quiet()
        });
    };
    let (refresh, managed) = if run.path == RecyclePath::Hook {
        // No remark is about them: whatever replaces the member, its group terminates it already.
        (None, None)
    } else {
        fetch_updates(outside, node, &group.name).await?
    };
    let member = group.member(&run.input.instance_id);
    let is_waiting = member.is_some_and(|member| member.lifecycle_state == WAITING);
    let hook = match run.hook {
        None if is_waiting => find_hook(outside.groups(), run).await?,
        Some(_) | None => None,
    };
    let facts = DisruptionFacts {
        id: &run.input.instance_id,
        path: run.path,
        node,
        // A record that was edited by hand fails the step elsewhere, with its own error name.
        record: &node.record().unwrap_or_default(),
        group: &group,
        refresh: refresh.as_ref(),
        node_group: managed.as_ref(),
    };
    Ok(OutsideFacts {
        validity: judge_drain_validity(&facts),
        is_waiting: Some(is_waiting),
        hook,
        is_ended_by_refresh: is_ended_by_refresh(&facts),
        remarks: find_remarks(&facts),
        aws_error: None,
    })
}

/// Returns the instance refresh that is under way, and the managed node group.
async fn fetch_updates(
    outside: &Outside,
    node: &NodeFacts,
    group: &GroupName,
) -> Result<(Option<Refresh>, Option<NodeGroup>), Box<dyn std::error::Error + Send + Sync>> {
    let refresh = outside.groups().find_refresh(group).await?;
    let names = find_node_group_names(&BTreeMap::new(), Some(node));
    let managed = match names.first() {
        Some(name) => outside.access.describe_node_group(name, group).await?,
        None => None,
    };
    Ok((refresh, managed))
}

async fn find_hook(groups: &Groups, run: &Run) -> Result<Option<HeldByHook>, autoscaling::Error> {
    let Some(timeout) = groups.find_hook(&run.group).await? else {
        return Ok(None);
    };
    let membership = groups.find_membership(&run.input.instance_id).await?;
    Ok(membership.map(|membership| HeldByHook::new(timeout, None, membership.retains)))
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;

    const NO_REFRESH: &str = "<InstanceRefreshes/>";

    fn run() -> Run {
        crate::tests::request("2027-01-01T07:00:00Z").run
    }

    async fn node(labels: serde_json::Value) -> NodeFacts {
        let stored = json!({"metadata": {"name": "a", "resourceVersion": "7", "labels": labels}, "spec": {}});
        let kube = scripted_kube::ScriptedKube::new().on("GET", "/nodes/a", 200, stored);
        let found = kubernetes::get_node(
            &kube.client(),
            &"a".parse().unwrap(),
            &"i-0123456789abcdef0".parse().unwrap(),
        )
        .await;
        found.unwrap().unwrap()
    }

    fn described(state: &str) -> String {
        format!(
            "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>2</MaxSize>\
             <DesiredCapacity>1</DesiredCapacity><Instances><member><InstanceId>i-0123456789abcdef0</InstanceId>\
             <LifecycleState>{state}</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>"
        )
    }

    async fn fetch(aws: &ScriptedAws, labels: serde_json::Value) -> OutsideFacts {
        fetch_outside_facts(
            &Outside::new(
                &aws.config(),
                Access::new(&aws.config(), &run().input.cluster_name),
                false,
            ),
            Some(&node(labels).await),
            &run(),
        )
        .await
    }

    #[tokio::test]
    async fn the_member_the_refreshes_and_the_managed_node_group_are_read() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described("Standby"))
            .on("DescribeInstanceRefreshes", NO_REFRESH);
        let in_standby = OutsideFacts {
            is_waiting: Some(false),
            ..OutsideFacts::quiet()
        };
        assert_eq!(fetch(&aws, json!({})).await, in_standby);

        let refreshes = "<InstanceRefreshes><member><Status>Successful</Status></member>\
                         <member><Status>InProgress</Status></member></InstanceRefreshes>";
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described("InService"))
            .on("DescribeInstanceRefreshes", refreshes)
            .on(
                "DescribeNodegroup",
                &json!({"nodegroup": {"status": "UPDATING", "resources": {"autoScalingGroups": [{"name": "workers"}]}}}).to_string(),
            );
        let found = fetch(&aws, json!({"eks.amazonaws.com/nodegroup": "blue"})).await;
        assert!(matches!(found.validity, DrainValidity::TakenAway(_)), "{found:?}");
        let names: Vec<&str> = found
            .remarks
            .iter()
            .map(|remark| remark.obstacle.name())
            .collect();
        assert_eq!(names, ["instance_refresh", "managed_group_update"]);
    }

    #[tokio::test]
    async fn a_refresh_is_cancelled_if_the_module_allows_it() {
        let call = "CancelInstanceRefresh";
        let gone = "ActiveInstanceRefreshNotFound";
        let group: GroupName = "workers".parse().unwrap();
        let refuses = |status, code, text| ScriptedAws::new().refuses(call, status, code, text);
        let cancels = || ScriptedAws::new().on(call, "<InstanceRefreshId>1</InstanceRefreshId>");
        let briefly = Duration::from_millis(20);
        for (aws, is_allowed, limit, expected) in [
            (cancels(), false, PATIENCE, Ok(Cancellation::NotAllowed)),
            (cancels(), true, PATIENCE, Ok(Cancellation::Done)),
            (
                refuses(400, gone, "none"),
                true,
                PATIENCE,
                Ok(Cancellation::NotNeeded),
            ),
            (
                refuses(403, "AccessDenied", "not authorized"),
                true,
                PATIENCE,
                Err("not authorized"),
            ),
            (
                ScriptedAws::new().hangs_on(call),
                true,
                briefly,
                Err("AWS did not answer in 0 seconds"),
            ),
        ] {
            let access = Access::new(&aws.config(), &run().input.cluster_name);
            let outside = Outside::new(&aws.config(), access, is_allowed);
            let found = outside.cancel_within(limit, &group).await;
            assert_eq!(aws.actions().is_empty(), !is_allowed);
            match (found, expected) {
                (Cancellation::Failed(error), Err(words)) => assert!(error.contains(words), "{error}"),
                (found, expected) => assert_eq!(Ok(found), expected),
            }
        }
    }

    #[tokio::test]
    async fn on_the_hook_path_only_the_group_is_read() {
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", &described("Terminating:Wait"));
        let access = Access::new(&aws.config(), &run().input.cluster_name);
        let run = Run {
            path: RecyclePath::Hook,
            hook: Some(HeldByHook::new(3600, None, true)),
            ..run()
        };
        let node = node(json!({"eks.amazonaws.com/nodegroup": "blue"})).await;
        let found = fetch_outside_facts(&Outside::new(&aws.config(), access, false), Some(&node), &run).await;
        assert_eq!((found.is_waiting, found.aws_error), (Some(true), None));
        assert_eq!(aws.actions(), ["DescribeAutoScalingGroups"]);
    }

    #[tokio::test]
    async fn an_error_of_aws_is_reported_and_has_no_other_effect() {
        for aws in [
            ScriptedAws::new().breaks_on("DescribeAutoScalingGroups"),
            ScriptedAws::new().refuses("DescribeAutoScalingGroups", 403, "AccessDenied", "not authorized"),
            ScriptedAws::new()
                .on("DescribeAutoScalingGroups", &described("Standby"))
                .breaks_on("DescribeInstanceRefreshes"),
        ] {
            let found = fetch(&aws, json!({})).await;
            assert_eq!((&found.validity, found.remarks.len()), (&DrainValidity::Goes, 0));
            assert!(
                found
                    .aws_error
                    .unwrap()
                    .starts_with("failed to call autoscaling:Describe")
            );
        }
        let aws = ScriptedAws::new().hangs_on("DescribeAutoScalingGroups");
        let (outside, node) = (
            Outside::new(
                &aws.config(),
                Access::new(&aws.config(), &run().input.cluster_name),
                false,
            ),
            node(json!({})).await,
        );
        let found = fetch_within(Duration::from_millis(20), &outside, Some(&node), &run()).await;
        assert_eq!(
            found.aws_error.as_deref(),
            Some("AWS did not answer in 0 seconds")
        );
    }

    #[tokio::test]
    async fn a_node_without_its_group_is_taken_away() {
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", "<AutoScalingGroups/>");
        let found = fetch(&aws, json!({})).await;
        assert_eq!(
            found.validity,
            DrainValidity::TakenAway("its group workers is gone".to_owned())
        );
    }

    #[tokio::test]
    async fn without_a_node_there_is_no_call() {
        let aws = ScriptedAws::new();
        let found = fetch_outside_facts(
            &Outside::new(
                &aws.config(),
                Access::new(&aws.config(), &run().input.cluster_name),
                false,
            ),
            None,
            &run(),
        )
        .await;
        assert_eq!(found, OutsideFacts::quiet());
        assert!(aws.calls().is_empty());
    }
}
