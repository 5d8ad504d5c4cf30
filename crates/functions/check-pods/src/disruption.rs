//! Reads at each check what other tools do to the node and its group during the drain. Cancels an instance refresh that would end the
//! node with its pods, if the module allows it. A failed call does not hold up the drain.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use autoscaling::groups::Groups;
use aws_config::SdkConfig;
use eks_auth::Access;
use futures::future::join;
use recycle::base::failure::with_causes;
use recycle::base::ids::{GroupName, InstanceId};
use recycle::claim::obstacle::Refusal;
use recycle::cluster::group::Group;
use recycle::cluster::hook::{HeldByHook, WAITING};
use recycle::cluster::node::NodeFacts;
use recycle::cluster::node_group::{NodeGroup, find_node_group_names};
use recycle::cluster::refresh::{Cancellation, Refresh};
use recycle::contract::run::Run;
use recycle::drain::disruption::{
    DisruptionFacts, DrainValidity, find_remarks, is_ended_by_refresh, judge_drain_validity,
};
use recycle::input::model::Override;
use recycle::input::path::RecyclePath;
use recycle::records::node_record::Record;

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

/// The node's group at one check: as AWS answered, or why it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupReading {
    /// None if the group is gone.
    pub(crate) answer: Result<Option<FoundGroup>, String>,
    /// The rest of [`PATIENCE`], for the managed node group.
    pub(crate) left: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundGroup {
    pub(crate) group: Group,
    pub(crate) tags: BTreeMap<String, String>,
    /// The instance refresh that is under way.
    pub(crate) refresh: Option<Refresh>,
    /// The hook of recycle-eks, if it holds the member and the execution does not know that: its event was lost, or is still on its way.
    pub(crate) hook: Option<HeldByHook>,
}

/// The acts of other tools that concern the node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Disruptions {
    /// Whether an instance refresh would terminate the member in Standby with its pods.
    pub(crate) is_ended_by_refresh: bool,
    pub(crate) remarks: Vec<Refusal>,
    /// The error of AWS, if a call failed.
    pub(crate) aws_error: Option<String>,
}

/// Reads the group of the node, its instance refresh, and a hook that the execution does not know. It needs no Node, so the Node can be
/// read at the same time. Never fails: an error is part of the reading.
pub(crate) async fn read_group(outside: &Outside, run: &Run) -> GroupReading {
    read_within(PATIENCE, outside, run).await
}

async fn read_within(limit: Duration, outside: &Outside, run: &Run) -> GroupReading {
    let start = Instant::now();
    let answer = match tokio::time::timeout(limit, find_group(outside.groups(), run)).await {
        Ok(answer) => answer.map_err(|error| with_causes(&error)),
        Err(_) => Err(describe_silence(limit)),
    };
    GroupReading {
        answer,
        left: limit.saturating_sub(start.elapsed()),
    }
}

fn describe_silence(limit: Duration) -> String {
    format!("AWS did not answer in {} seconds", limit.as_secs())
}

async fn find_group(groups: &Groups, run: &Run) -> Result<Option<FoundGroup>, autoscaling::Error> {
    let refresh = async {
        match run.path {
            // No remark is about it: whatever replaces the member, its group terminates it already.
            RecyclePath::Hook => Ok(None),
            RecyclePath::Before | RecyclePath::After | RecyclePath::Surge => {
                groups.find_refresh(&run.group).await
            }
        }
    };
    let (group, refresh) = join(groups.fetch_with_tags(&run.group), refresh).await;
    let Some((group, tags)) = group? else {
        return Ok(None);
    };
    let hook = match run.hook {
        None if group.state_of(&run.input.instance_id) == Some(WAITING) => {
            let timeout = groups.find_hook(&run.group).await?;
            timeout.map(|timeout| HeldByHook::new(timeout, None, group.retains))
        }
        Some(_) | None => None,
    };
    Ok(Some(FoundGroup {
        group,
        tags,
        refresh: refresh?,
        hook,
    }))
}

impl GroupReading {
    /// Notes in the run the hook of recycle-eks, and whether it holds the instance now.
    pub(crate) fn note_hook(&self, run: &mut Run) {
        let Ok(Some(found)) = &self.answer else { return };
        if let Some(hook) = &found.hook {
            run.hook = Some(hook.clone());
            run.path = RecyclePath::Hook;
        }
        let is_waiting = found.group.state_of(&run.input.instance_id) == Some(WAITING);
        if let Some(hook) = &mut run.hook {
            hook.see(is_waiting, found.group.retains);
        }
    }

    /// Decides whether the drain still makes sense. Without an answer of AWS it does.
    pub(crate) fn judge_validity(&self, node: &NodeFacts, run: &Run) -> DrainValidity {
        match &self.answer {
            Ok(Some(found)) => judge_drain_validity(&found.facts(node, &find_record(node), None, run)),
            Ok(None) => DrainValidity::TakenAway(format!("its group {} is gone", run.group)),
            Err(_) => DrainValidity::Goes,
        }
    }

    /// Finds the acts of other tools that concern the node. Reads its managed node group for that.
    pub(crate) async fn find_disruptions(
        &self,
        client: &kube::Client,
        outside: &Outside,
        node: &NodeFacts,
        run: &Run,
    ) -> Disruptions {
        let found = match &self.answer {
            Ok(Some(found)) => found,
            Ok(None) => return Disruptions::default(),
            Err(why) => {
                return Disruptions {
                    aws_error: Some(why.clone()),
                    ..Disruptions::default()
                };
            }
        };
        let (node_group, aws_error) = match self.find_node_group(found, outside, node, run).await {
            Ok(node_group) => (node_group, None),
            Err(why) => (None, Some(why)),
        };
        let mut record = find_record(node);
        let is_there = |id: &InstanceId| found.group.member(id).is_some_and(|member| !member.is_leaving());
        // The places of others count only for the remark about a replacement that is gone. Without an answer, the record is kept.
        if record.replacement.as_ref().is_some_and(|id| !is_there(id))
            && let Ok(Some(size)) =
                kubernetes::find_size_without_place(client, &record, &run.input.instance_id, &found.group)
                    .await
        {
            record.raised_from = Some(size);
        }
        let facts = found.facts(node, &record, node_group.as_ref(), run);
        Disruptions {
            is_ended_by_refresh: is_ended_by_refresh(&facts),
            remarks: find_remarks(&facts),
            aws_error,
        }
    }

    async fn find_node_group(
        &self,
        found: &FoundGroup,
        outside: &Outside,
        node: &NodeFacts,
        run: &Run,
    ) -> Result<Option<NodeGroup>, String> {
        // No remark is about it on the hook path.
        if run.path == RecyclePath::Hook {
            return Ok(None);
        }
        for name in find_node_group_names(&found.tags, Some(node)) {
            let asked = outside.access.describe_node_group(&name, &run.group);
            match tokio::time::timeout(self.left, asked).await {
                Ok(Ok(None)) => {}
                Ok(answer) => return answer.map_err(|error| with_causes(&error)),
                Err(_) => return Err(describe_silence(self.left)),
            }
        }
        Ok(None)
    }
}

/// Returns the record of the node. A record that was edited by hand fails the step elsewhere, with its own error name.
fn find_record(node: &NodeFacts) -> Record {
    node.record().unwrap_or_default()
}

impl FoundGroup {
    fn facts<'a>(
        &'a self,
        node: &'a NodeFacts,
        record: &'a Record,
        node_group: Option<&'a NodeGroup>,
        run: &'a Run,
    ) -> DisruptionFacts<'a> {
        DisruptionFacts {
            id: &run.input.instance_id,
            path: run.path,
            node,
            record,
            group: &self.group,
            refresh: self.refresh.as_ref(),
            node_group,
            is_protection_meant: run.input.overrides.contains(&Override::ScaleInProtection),
        }
    }
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

    fn outside(aws: &ScriptedAws) -> Outside {
        let access = Access::new(&aws.config(), &run().input.cluster_name);
        Outside::new(&aws.config(), access, false)
    }

    /// Reads the group, and judges the node with the labels by it.
    async fn judge(aws: &ScriptedAws, labels: serde_json::Value) -> (Run, DrainValidity, Disruptions) {
        let (outside, mut run, node) = (outside(aws), run(), node(labels).await);
        let client = scripted_kube::ScriptedKube::new().client();
        let group = read_group(&outside, &run).await;
        group.note_hook(&mut run);
        let disruptions = group.find_disruptions(&client, &outside, &node, &run).await;
        (run.clone(), group.judge_validity(&node, &run), disruptions)
    }

    #[tokio::test]
    async fn the_member_the_refreshes_and_the_managed_node_group_are_read() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described("Standby"))
            .on("DescribeInstanceRefreshes", NO_REFRESH);
        let (_, validity, disruptions) = judge(&aws, json!({})).await;
        assert_eq!(
            (validity, disruptions),
            (DrainValidity::Goes, Disruptions::default())
        );

        let refreshes = "<InstanceRefreshes><member><Status>Successful</Status></member>\
                         <member><Status>InProgress</Status></member></InstanceRefreshes>";
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described("InService"))
            .on("DescribeInstanceRefreshes", refreshes)
            .on(
                "DescribeNodegroup",
                &json!({"nodegroup": {"status": "UPDATING", "resources": {"autoScalingGroups": [{"name": "workers"}]}}}).to_string(),
            );
        let (_, validity, found) = judge(&aws, json!({"eks.amazonaws.com/nodegroup": "blue"})).await;
        assert!(matches!(validity, DrainValidity::TakenAway(_)), "{validity:?}");
        let names: Vec<&str> = found
            .remarks
            .iter()
            .map(|remark| remark.obstacle.name())
            .collect();
        assert_eq!(names, ["instance_refresh", "managed_group_update"]);
    }

    #[tokio::test]
    async fn a_managed_node_group_is_also_known_by_the_tag_of_its_group() {
        let tag = "<Tags><member><Key>eks:nodegroup-name</Key><Value>blue</Value></member></Tags><Instances>";
        let status = json!({"nodegroup": {"status": "UPDATING", "resources": {"autoScalingGroups": [{"name": "workers"}]}}});
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                &described("Standby").replace("<Instances>", tag),
            )
            .on("DescribeInstanceRefreshes", NO_REFRESH)
            .on("DescribeNodegroup", &status.to_string());
        let (_, _, found) = judge(&aws, json!({})).await;
        let remarks = found.remarks.iter();
        let names: Vec<&str> = remarks.map(|remark| remark.obstacle.name()).collect();
        assert_eq!(names, ["managed_group_update"]);
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
        let run = Run {
            path: RecyclePath::Hook,
            hook: Some(HeldByHook::new(3600, None, true)),
            ..run()
        };
        let node = node(json!({"eks.amazonaws.com/nodegroup": "blue"})).await;
        let group = read_group(&outside(&aws), &run).await;
        let client = scripted_kube::ScriptedKube::new().client();
        let disruptions = group.find_disruptions(&client, &outside(&aws), &node, &run).await;
        assert_eq!(disruptions, Disruptions::default());
        assert_eq!(aws.actions(), ["DescribeAutoScalingGroups"]);
    }

    #[tokio::test]
    async fn a_policy_of_the_group_that_changes_during_the_drain_is_that_of_the_hook() {
        const RETAINS: &str = "<InstanceLifecyclePolicy><RetentionTriggers><TerminateHookAbandon>retain</TerminateHookAbandon>\
                               </RetentionTriggers></InstanceLifecyclePolicy><Instances>";
        let group = described("Terminating:Wait");
        for (was, group, is) in [
            (false, group.replace("<Instances>", RETAINS), true),
            (true, group, false),
        ] {
            let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", &group);
            let mut run = Run {
                path: RecyclePath::Hook,
                hook: Some(HeldByHook::new(3600, None, was)),
                ..run()
            };
            read_group(&outside(&aws), &run).await.note_hook(&mut run);
            assert_eq!(run.hook.map(|hook| hook.retain), Some(is));
        }
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
            let (_, validity, found) = judge(&aws, json!({})).await;
            assert_eq!((&validity, found.remarks.len()), (&DrainValidity::Goes, 0));
            assert!(
                found
                    .aws_error
                    .unwrap()
                    .starts_with("failed to call autoscaling:Describe")
            );
        }
        let aws = ScriptedAws::new().hangs_on("DescribeAutoScalingGroups");
        let found = read_within(Duration::from_millis(20), &outside(&aws), &run()).await;
        assert_eq!(
            found.answer.as_ref().unwrap_err(),
            "AWS did not answer in 0 seconds"
        );
        assert_eq!(found.left, Duration::ZERO);
    }

    #[tokio::test]
    async fn without_its_managed_node_group_the_remarks_of_the_group_remain() {
        let labels = json!({"eks.amazonaws.com/nodegroup": "blue"});
        let group = described("Standby").replace(">false<", ">true<");
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &group)
            .on("DescribeInstanceRefreshes", NO_REFRESH)
            .breaks_on("DescribeNodegroup");
        let (_, _, found) = judge(&aws, labels).await;
        assert_eq!(found.remarks.len(), 1);
        assert!(found.aws_error.unwrap().contains("node group"));
    }

    #[tokio::test]
    async fn a_hook_that_the_execution_does_not_know_is_noted() {
        let hooks = "<LifecycleHooks><member><LifecycleHookName>recycle-eks</LifecycleHookName>\
                     <LifecycleTransition>autoscaling:EC2_INSTANCE_TERMINATING</LifecycleTransition>\
                     <HeartbeatTimeout>3600</HeartbeatTimeout></member></LifecycleHooks>";
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described("Terminating:Wait"))
            .on("DescribeInstanceRefreshes", NO_REFRESH)
            .on("DescribeLifecycleHooks", hooks);
        let (run, validity, _) = judge(&aws, json!({})).await;
        assert_eq!((run.path, validity), (RecyclePath::Hook, DrainValidity::Goes));
        assert!(run.hook.is_some());
    }

    #[tokio::test]
    async fn a_node_without_its_group_is_taken_away() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", "<AutoScalingGroups/>")
            .refuses(
                "DescribeInstanceRefreshes",
                400,
                "ValidationError",
                "no such group",
            );
        let (_, validity, _) = judge(&aws, json!({})).await;
        assert_eq!(
            validity,
            DrainValidity::TakenAway("its group workers is gone".to_owned())
        );
    }
}
