//! Lists the Auto Scaling groups of the cluster.

use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Filter};
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};

use crate::base::error::{Error, Result};

pub(crate) async fn list_groups(client: &Client, cluster: &str) -> Result<Vec<AutoScalingGroup>> {
    let belongs = Filter::builder()
        .name(format!("tag:{}", cluster_tag(cluster)))
        .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
        .build();
    let list = client.describe_auto_scaling_groups().filters(belongs);
    let found: Result<Vec<_>, _> = list.into_paginator().items().send().collect().await;
    found.map_err(Error::of("autoscaling:DescribeAutoScalingGroups"))
}
