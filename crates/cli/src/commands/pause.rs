//! `pause` and `resume`: set and remove a tag on Auto Scaling groups. Rotations check it before they start another node.

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Tag};
use recycle::base::names::PAUSED_TAG;
use recycle::cluster::cluster_tag::cluster_tag;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::Phase;
use serde_json::json;

use crate::args::flags::Groups;
use crate::aws::groups::{check_names, is_paused, list_groups};
use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::views::output::Output;

/// The maximum number of groups in one call. If a call is refused, earlier calls have already changed their groups.
const AT_ONCE: usize = 20;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Pause,
    Resume,
}

impl Change {
    fn pauses(self) -> bool {
        matches!(self, Self::Pause)
    }
}

pub(crate) async fn run(
    installation: &Installation,
    output: &Output,
    wanted: &Groups,
    change: Change,
) -> Result<Exit> {
    let groups = ClusterGroups::fetch(&installation.aws, &installation.cluster).await?;
    let chosen = groups.choose(wanted)?;
    let (same, chosen): (Vec<String>, Vec<String>) = chosen
        .into_iter()
        .partition(|group| groups.paused.contains(group) == change.pauses());
    for group in &same {
        output.say_first(match change {
            Change::Pause => format!("{group} is paused already"),
            Change::Resume => format!("{group} is not paused"),
        })?;
    }
    let mut done = Vec::new();
    let ended = groups.apply(change, &chosen, &mut done).await;
    // The changed groups are printed even if the rest is refused.
    let (what, meaning) = match change {
        Change::Pause => (
            "paused",
            "rotations start no other node of this group; nodes under way go on",
        ),
        Change::Resume => (
            "resumed",
            "waiting rotations go on at their next check, whose time status shows",
        ),
    };
    for group in &done {
        output.say(format!("{what} {group}: {meaning}"))?;
    }
    let queued = match change {
        Change::Pause => list_queued(installation, &groups.wanted(wanted)).await,
        Change::Resume => Ok(Vec::new()),
    };
    match &queued {
        Ok(none) if none.is_empty() => {}
        Ok(queued) => output.say(describe_queued(queued))?,
        Err(error) => output.say(format!(
            "nodes that wait in the queue go on; which ones is unknown: {error}"
        ))?,
    }
    output.document(&json!({what: done, "unchanged": same, "queued_instances": queued.ok()}))?;
    ended.map(|()| Exit::Done)
}

/// Lists the instances of these groups whose executions wait in the queue. A pause does not hold them, because they were started already.
async fn list_queued(installation: &Installation, groups: &[String]) -> Result<Vec<String>> {
    let running = installation
        .states
        .list_running(&installation.machine("recycle-node"))
        .await?;
    let status = fetch_status(installation, None).await?;
    let queued = status
        .nodes
        .iter()
        .filter(|node| is_queued(node, groups, &running));
    Ok(queued.map(|node| node.instance_id.to_string()).collect())
}

fn is_queued(node: &NodeStatus, groups: &[String], running: &[String]) -> bool {
    node.claim.as_ref().is_some_and(|claim| {
        matches!(claim.phase, Phase::Claimed | Phase::Admitted)
            && groups.iter().any(|group| *group == claim.group.as_str())
            && running.iter().any(|arn| *arn == claim.fence.execution.as_str())
    })
}

fn describe_queued(queued: &[String]) -> String {
    let (nodes, them) = if queued.len() == 1 {
        ("1 queued node".to_owned(), "it")
    } else {
        (format!("{} queued nodes", queued.len()), "one of them")
    };
    format!(
        "{nodes} will still be recycled, because the executions have begun: {}. To stop {them}: {}",
        queued.join(", "),
        recycle_eks(format_args!(
            "abort {}",
            queued.first().map_or("", String::as_str)
        ))
    )
}

struct ClusterGroups {
    client: Client,
    cluster: String,
    /// In alphabetical order.
    names: Vec<String>,
    paused: BTreeSet<String>,
}

impl ClusterGroups {
    async fn fetch(aws: &SdkConfig, cluster: &str) -> Result<Self> {
        let client = Client::new(aws);
        let found = list_groups(&client, cluster).await?;
        let name = |group: &AutoScalingGroup| group.auto_scaling_group_name.clone();
        let names: BTreeSet<String> = found.iter().filter_map(name).collect();
        Ok(Self {
            paused: found
                .iter()
                .filter(|group| is_paused(group))
                .filter_map(name)
                .collect(),
            names: names.into_iter().collect(),
            client,
            cluster: cluster.to_owned(),
        })
    }

    fn choose(&self, wanted: &Groups) -> Result<Vec<String>> {
        let names = &self.names;
        if names.is_empty() {
            misuse!(
                "cluster {} has no Auto Scaling group: none has the tag {} with the value owned or shared",
                self.cluster,
                cluster_tag(&self.cluster)
            );
        }
        if wanted.all {
            return Ok(names.clone());
        }
        check_names("GROUP", &wanted.groups, names, &self.cluster)?;
        Ok(wanted.groups.clone())
    }

    /// The names of the groups that were asked for, whether they have to be changed or not.
    fn wanted(&self, wanted: &Groups) -> Vec<String> {
        if wanted.all {
            self.names.clone()
        } else {
            wanted.groups.clone()
        }
    }

    /// Changes the tags of the groups. `done` holds the groups that were changed, even after an error.
    async fn apply(&self, change: Change, groups: &[String], done: &mut Vec<String>) -> Result<()> {
        for part in groups.chunks(AT_ONCE) {
            let tags = Some(tags(part));
            match change {
                Change::Pause => {
                    let tag = self.client.create_or_update_tags().set_tags(tags).send();
                    tag.await.map_err(Error::of("autoscaling:CreateOrUpdateTags"))?;
                }
                Change::Resume => {
                    let untag = self.client.delete_tags().set_tags(tags).send();
                    untag.await.map_err(Error::of("autoscaling:DeleteTags"))?;
                }
            }
            done.extend_from_slice(part);
        }
        Ok(())
    }
}

/// Returns the tag for each group. It is not propagated, because a pause concerns the group and not its instances.
fn tags(groups: &[String]) -> Vec<Tag> {
    let tag = |group: &String| {
        Tag::builder()
            .resource_type("auto-scaling-group")
            .resource_id(group)
            .key(PAUSED_TAG)
            .value("true")
            .propagate_at_launch(false)
            .build()
    };
    groups.iter().map(tag).collect()
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;

    use super::*;

    const TWO_GROUPS: &str = "<AutoScalingGroups>\
        <member><AutoScalingGroupName>a</AutoScalingGroupName></member>\
        <member><AutoScalingGroupName>b</AutoScalingGroupName></member></AutoScalingGroups>";

    fn wanted(groups: &[&str], all: bool) -> Groups {
        Groups {
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            all,
        }
    }

    #[tokio::test]
    async fn a_group_of_another_cluster_is_refused() {
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", TWO_GROUPS);
        let groups = ClusterGroups::fetch(&aws.config(), "world").await.unwrap();
        assert_eq!(groups.choose(&wanted(&["b"], false)).unwrap(), ["b"]);
        assert_eq!(groups.choose(&wanted(&[], true)).unwrap(), ["a", "b"]);
        let refusal = groups
            .choose(&wanted(&["b", "c"], false))
            .unwrap_err()
            .to_string();
        assert_eq!(
            refusal,
            "GROUP must be a group of cluster world (a, b), but is \"c\""
        );
        assert!(
            aws.calls()[0].contains("tag%3Akubernetes.io%2Fcluster%2Fworld")
                && aws.calls()[0].contains("shared"),
            "{:?}",
            aws.calls()
        );
    }

    #[tokio::test]
    async fn the_pause_tag_is_not_propagated_to_instances() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", TWO_GROUPS)
            .on("CreateOrUpdateTags", "")
            .on("DeleteTags", "");
        let groups = ClusterGroups::fetch(&aws.config(), "world").await.unwrap();
        let chosen = ["a".to_owned()];
        let mut done = Vec::new();
        groups.apply(Change::Pause, &chosen, &mut done).await.unwrap();
        groups.apply(Change::Resume, &chosen, &mut done).await.unwrap();
        assert_eq!(done, ["a", "a"]);
        for call in &aws.calls()[1..] {
            assert!(
                call.contains("recycle-eks%3Apaused") && call.contains("PropagateAtLaunch=false"),
                "{call}"
            );
        }
    }

    #[tokio::test]
    async fn groups_that_were_paused_before_a_refusal_are_listed_and_a_cluster_without_groups_is_refused() {
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                "<AutoScalingGroups></AutoScalingGroups>",
            )
            .on("CreateOrUpdateTags", "")
            .refuses("CreateOrUpdateTags", 403, "AccessDenied", "no");
        let groups = ClusterGroups::fetch(&aws.config(), "world").await.unwrap();
        let refusal = groups.choose(&wanted(&[], true)).unwrap_err().to_string();
        assert!(refusal.contains("has no Auto Scaling group"), "{refusal}");
        let many: Vec<String> = (0..21).map(|number| number.to_string()).collect();
        let mut done = Vec::new();
        groups.apply(Change::Pause, &many, &mut done).await.unwrap_err();
        assert_eq!(done.len(), 20);
    }
}
