//! Lists the Auto Scaling groups of the cluster.

use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Filter};
use recycle::base::names::PAUSED_TAG;
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};

use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, misuse};

pub(crate) async fn list_groups(client: &Client, cluster: &str) -> Result<Vec<AutoScalingGroup>> {
    let belongs = Filter::builder()
        .name(format!("tag:{}", cluster_tag(cluster)))
        .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
        .build();
    let list = client.describe_auto_scaling_groups().filters(belongs);
    let found: Result<Vec<_>, _> = list.into_paginator().items().send().collect().await;
    found.map_err(Error::of("autoscaling:DescribeAutoScalingGroups"))
}

/// Refuses a group that is not one of these. `what` is the argument that names it.
pub(crate) fn check_names(what: &str, wanted: &[String], names: &[String], cluster: &str) -> Result<()> {
    match wanted.iter().find(|group| !names.contains(group)) {
        Some(unknown) => misuse!(
            "{what} must be a group of cluster {cluster} ({}), but is {unknown:?}",
            names.join(", ")
        ),
        None => Ok(()),
    }
}

/// Lists the names of the groups of the cluster that are paused, in alphabetical order.
pub(crate) async fn list_paused(installation: &Installation) -> Result<Vec<String>> {
    let client = Client::new(&installation.aws);
    let groups = list_groups(&client, &installation.cluster).await?.into_iter();
    let paused = groups.filter(is_paused);
    let mut names: Vec<String> = paused.filter_map(|group| group.auto_scaling_group_name).collect();
    names.sort();
    Ok(names)
}

/// Whether rotations start no node of any group. False if the groups cannot be read.
pub(crate) async fn are_all_paused(installation: &Installation) -> bool {
    let client = Client::new(&installation.aws);
    let groups = list_groups(&client, &installation.cluster).await;
    groups.is_ok_and(|groups| !groups.is_empty() && groups.iter().all(is_paused))
}

/// Whether rotations start no node of the group (`recycle::rotation::fleet`).
pub(crate) fn is_paused(group: &AutoScalingGroup) -> bool {
    let tags = group.tags();
    tags.iter()
        .any(|tag| tag.key() == Some(PAUSED_TAG) && tag.value() == Some("true"))
}
