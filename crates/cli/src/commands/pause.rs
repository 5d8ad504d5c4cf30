//! `pause` and `resume`: the tag on Auto Scaling groups that rotations look at before they begin another node.

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::types::{Filter, Tag};
use recycle::base::names::PAUSED_TAG;
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use serde_json::json;

use crate::args::flags::Groups;
use crate::aws::installation::Installation;
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::views::output::Output;

const DESCRIBE: &str = "autoscaling:DescribeAutoScalingGroups";
const TAG: &str = "autoscaling:CreateOrUpdateTags";
const UNTAG: &str = "autoscaling:DeleteTags";
/// Groups of one call: one that is refused leaves few behind.
const AT_ONCE: usize = 20;

pub(crate) async fn pause(
    installation: &Installation,
    output: &Output,
    wanted: &Groups,
) -> Result<Exit, Error> {
    let groups = ClusterGroups::fetch(installation).await?;
    let chosen = groups.choose(wanted)?;
    let mut done = Vec::new();
    let ended = groups.pause(&chosen, &mut done).await;
    let meaning = "rotations begin no other node of it; those that are under way go on";
    tell(output, &done, "paused", meaning)?;
    ended.map(|()| Exit::Done)
}

pub(crate) async fn resume(
    installation: &Installation,
    output: &Output,
    wanted: &Groups,
) -> Result<Exit, Error> {
    let groups = ClusterGroups::fetch(installation).await?;
    let chosen = groups.choose(wanted)?;
    let mut done = Vec::new();
    let ended = groups.resume(&chosen, &mut done).await;
    let meaning = "rotations that wait for it go on when they look again";
    tell(output, &done, "resumed", meaning)?;
    ended.map(|()| Exit::Done)
}

/// What was done is told, also if the rest is refused.
fn tell(output: &Output, groups: &[String], what: &str, meaning: &str) -> Result<(), Error> {
    for group in groups {
        output.say(format!("{what} {group}: {meaning}"))?;
    }
    output.document(&json!({what: groups}))
}

/// The groups of the cluster.
struct ClusterGroups {
    client: Client,
    cluster: String,
    names: BTreeSet<String>,
}

impl ClusterGroups {
    async fn fetch(installation: &Installation) -> Result<Self, Error> {
        Self::fetch_of(&installation.aws, &installation.cluster).await
    }

    async fn fetch_of(aws: &SdkConfig, cluster: &str) -> Result<Self, Error> {
        let client = Client::new(aws);
        let belongs = Filter::builder()
            .name(format!("tag:{}", cluster_tag(cluster)))
            .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
            .build();
        let mut pages = client
            .describe_auto_scaling_groups()
            .filters(belongs)
            .into_paginator()
            .send();
        let mut names = BTreeSet::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| Error::aws(DESCRIBE, error))?;
            names.extend(
                page.auto_scaling_groups()
                    .iter()
                    .filter_map(|group| group.auto_scaling_group_name.clone()),
            );
        }
        Ok(Self {
            client,
            cluster: cluster.to_owned(),
            names,
        })
    }

    fn choose(&self, wanted: &Groups) -> Result<Vec<String>, Error> {
        if self.names.is_empty() {
            return Err(Error::Refused(format!(
                "cluster {} has no Auto Scaling group: none has the tag {} with the value owned or shared",
                self.cluster,
                cluster_tag(&self.cluster)
            )));
        }
        if wanted.all {
            return Ok(self.names.iter().cloned().collect());
        }
        match wanted.groups.iter().find(|group| !self.names.contains(*group)) {
            Some(unknown) => Err(Error::Refused(format!(
                "GROUP must be a group of cluster {} ({}), but is {unknown:?}",
                self.cluster,
                self.names
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
            None => Ok(wanted.groups.clone()),
        }
    }

    /// `done` has those that were paused, also after an error.
    async fn pause(&self, groups: &[String], done: &mut Vec<String>) -> Result<(), Error> {
        for part in groups.chunks(AT_ONCE) {
            let tagged = self.client.create_or_update_tags().set_tags(Some(tags(part)));
            tagged.send().await.map_err(|error| Error::aws(TAG, error))?;
            done.extend_from_slice(part);
        }
        Ok(())
    }

    async fn resume(&self, groups: &[String], done: &mut Vec<String>) -> Result<(), Error> {
        for part in groups.chunks(AT_ONCE) {
            let untagged = self.client.delete_tags().set_tags(Some(tags(part)));
            untagged.send().await.map_err(|error| Error::aws(UNTAG, error))?;
            done.extend_from_slice(part);
        }
        Ok(())
    }
}

/// Not propagated: it says something of the group, not of its instances.
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
    async fn only_groups_of_the_cluster_can_be_meant() {
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", TWO_GROUPS);
        let groups = ClusterGroups::fetch_of(&aws.config(), "world").await.unwrap();
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
    async fn a_pause_is_a_tag_that_no_instance_gets() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", TWO_GROUPS)
            .on("CreateOrUpdateTags", "")
            .on("DeleteTags", "");
        let groups = ClusterGroups::fetch_of(&aws.config(), "world").await.unwrap();
        let chosen = ["a".to_owned()];
        let mut done = Vec::new();
        groups.pause(&chosen, &mut done).await.unwrap();
        groups.resume(&chosen, &mut done).await.unwrap();
        assert_eq!(done, ["a", "a"]);
        for call in &aws.calls()[1..] {
            assert!(
                call.contains("recycle-eks%3Apaused") && call.contains("PropagateAtLaunch=false"),
                "{call}"
            );
        }
    }

    #[tokio::test]
    async fn what_was_paused_before_a_refusal_is_known_and_no_group_at_all_is_a_refusal() {
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                "<AutoScalingGroups></AutoScalingGroups>",
            )
            .on("CreateOrUpdateTags", "")
            .refuses("CreateOrUpdateTags", 403, "AccessDenied", "no");
        let groups = ClusterGroups::fetch_of(&aws.config(), "world").await.unwrap();
        let refusal = groups.choose(&wanted(&[], true)).unwrap_err().to_string();
        assert!(refusal.contains("has no Auto Scaling group"), "{refusal}");
        let many: Vec<String> = (0..21).map(|number| number.to_string()).collect();
        let mut done = Vec::new();
        groups.pause(&many, &mut done).await.unwrap_err();
        assert_eq!(done.len(), 20);
    }
}
