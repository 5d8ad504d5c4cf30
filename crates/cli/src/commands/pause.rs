//! `pause` and `resume`: set and remove a tag on Auto Scaling groups. Rotations check it before they start another node.

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::types::Tag;
use recycle::base::names::PAUSED_TAG;
use recycle::cluster::cluster_tag::cluster_tag;
use serde_json::json;

use crate::args::flags::Groups;
use crate::aws::groups::list_groups;
use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::views::output::Output;

/// The maximum number of groups in one call. If a call is refused, earlier calls have already changed their groups.
const AT_ONCE: usize = 20;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Pause,
    Resume,
}

pub(crate) async fn run(
    installation: &Installation,
    output: &Output,
    wanted: &Groups,
    change: Change,
) -> Result<Exit> {
    let groups = ClusterGroups::fetch(&installation.aws, &installation.cluster).await?;
    let chosen = groups.choose(wanted)?;
    let mut done = Vec::new();
    let ended = groups.apply(change, &chosen, &mut done).await;
    // The changed groups are printed even if the rest is refused.
    let (what, meaning) = match change {
        Change::Pause => (
            "paused",
            "rotations start no other node of this group; nodes under way go on",
        ),
        Change::Resume => ("resumed", "waiting rotations go on at their next check"),
    };
    for group in &done {
        output.say(format!("{what} {group}: {meaning}"))?;
    }
    output.document(&json!({what: done}))?;
    ended.map(|()| Exit::Done)
}

struct ClusterGroups {
    client: Client,
    cluster: String,
    /// In alphabetical order.
    names: Vec<String>,
}

impl ClusterGroups {
    async fn fetch(aws: &SdkConfig, cluster: &str) -> Result<Self> {
        let client = Client::new(aws);
        let found = list_groups(&client, cluster).await?.into_iter();
        let names: BTreeSet<String> = found.filter_map(|group| group.auto_scaling_group_name).collect();
        Ok(Self {
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
        if let Some(unknown) = wanted.groups.iter().find(|group| !names.contains(group)) {
            misuse!(
                "GROUP must be a group of cluster {} ({}), but is {unknown:?}",
                self.cluster,
                names.join(", ")
            );
        }
        Ok(wanted.groups.clone())
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
