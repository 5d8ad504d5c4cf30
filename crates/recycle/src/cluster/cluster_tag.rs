//! The tag by which an instance or an Auto Scaling group belongs to a cluster. The functions' policies allow changes only to resources
//! with this tag (`of_this_cluster` in `terraform/iam.tf`).

use std::collections::BTreeMap;

use crate::base::ids::{ClusterName, GroupName, InstanceId};
use crate::base::shell::quote;
use crate::cluster::instance::Instance;

const PREFIX: &str = "kubernetes.io/cluster/";

pub const CLUSTER_TAG_VALUES: [&str; 2] = ["owned", "shared"];

pub fn cluster_tag(cluster: &str) -> String {
    format!("{PREFIX}{cluster}")
}

/// Checks whether these are the tags of a resource that belongs to `cluster`.
pub fn has_cluster_tag(tags: &BTreeMap<String, String>, cluster: &ClusterName) -> bool {
    tags.get(&cluster_tag(cluster.as_str()))
        .is_some_and(|value| CLUSTER_TAG_VALUES.contains(&value.as_str()))
}

/// Returns the cluster that an instance's tags name, if they name only other clusters.
pub fn find_other_cluster<'a>(instance: &'a Instance, cluster: &str) -> Option<&'a str> {
    let named = ["aws:eks:cluster-name", "eks:cluster-name"]
        .iter()
        .filter_map(|key| instance.tags.get(*key))
        .map(String::as_str);
    let owned = instance.tags.keys().filter_map(|key| key.strip_prefix(PREFIX));
    let clusters: Vec<&str> = named.chain(owned).collect();
    if clusters.contains(&cluster) {
        return None;
    }
    clusters.first().copied()
}

/// Returns the command that sets the tag on instances.
pub fn tag_instances(ids: &[InstanceId], cluster: &str) -> String {
    let ids: Vec<&str> = ids.iter().map(InstanceId::as_str).collect();
    let tag = format!("Key={},Value={}", cluster_tag(cluster), CLUSTER_TAG_VALUES[0]);
    format!(
        "aws ec2 create-tags --resources {} --tags {}",
        ids.join(" "),
        quote(&tag)
    )
}

/// Returns the command that sets the tag on a group, and so on each instance that the group launches from then on.
pub fn tag_group(group: &GroupName, cluster: &ClusterName) -> String {
    // The AWS CLI's shorthand needs quotation marks around a value with a comma or an equals sign. JSON needs no such rule.
    let tag = serde_json::json!({
        "ResourceId": group,
        "ResourceType": "auto-scaling-group",
        "Key": cluster_tag(cluster.as_str()),
        "Value": CLUSTER_TAG_VALUES[0],
        "PropagateAtLaunch": true,
    });
    format!(
        "aws autoscaling create-or-update-tags --tags {}",
        quote(&tag.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{OTHER, id, instance, strings};

    #[test]
    fn a_cluster_is_distinguished_from_one_whose_name_it_begins_with() {
        let tagged = Instance {
            tags: strings([("kubernetes.io/cluster/prod-2", "owned")]),
            ..instance()
        };
        assert_eq!(find_other_cluster(&tagged, "prod"), Some("prod-2"));
        assert_eq!(find_other_cluster(&instance(), "prod"), None);
    }

    #[test]
    fn only_the_values_that_the_policies_allow_count() {
        let cluster = "prod".parse().unwrap();
        for (key, value, expected) in [
            ("kubernetes.io/cluster/prod", "owned", true),
            ("kubernetes.io/cluster/prod", "shared", true),
            ("kubernetes.io/cluster/prod", "Owned", false),
            ("kubernetes.io/cluster/prod", "", false),
            ("kubernetes.io/cluster/prod-2", "owned", false),
            ("eks:cluster-name", "prod", false),
        ] {
            assert_eq!(
                has_cluster_tag(&strings([(key, value)]), &cluster),
                expected,
                "{key}={value}"
            );
        }
        let policy = include_str!("../../../../terraform/iam.tf");
        assert!(policy.contains(&format!("= {}", serde_json::json!(CLUSTER_TAG_VALUES)).replace(',', ", ")));
    }

    #[test]
    fn the_commands_set_the_tag() {
        let cluster = "prod".parse().unwrap();
        assert_eq!(
            tag_instances(&[id(OTHER)], "prod"),
            format!(
                "aws ec2 create-tags --resources {OTHER} --tags 'Key=kubernetes.io/cluster/prod,Value=owned'"
            )
        );
        let command = tag_group(&"it's, mine=1".parse().unwrap(), &cluster);
        let words = shlex::split(&command).unwrap();
        assert_eq!(
            words[..4],
            ["aws", "autoscaling", "create-or-update-tags", "--tags"]
        );
        let tag: serde_json::Value = serde_json::from_str(&words[4]).unwrap();
        assert_eq!(tag["ResourceId"], "it's, mine=1");
        assert_eq!(words.len(), 5);
    }
}
