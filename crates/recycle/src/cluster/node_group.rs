//! The EKS managed node group that an Auto Scaling group belongs to.

use std::collections::BTreeMap;

use crate::base::shell::quote;
use crate::cluster::node::NodeFacts;

/// The tag that EKS sets on the Auto Scaling group of a managed node group (AWS managed policy AWSServiceRoleForAmazonEKSNodegroup).
pub const NODE_GROUP_TAG: &str = "eks:nodegroup-name";

/// The label that EKS sets on the Nodes of a managed node group (EKS user guide, "Update a managed node group").
const NODE_GROUP_LABEL: &str = "eks.amazonaws.com/nodegroup";

/// A managed node group, of which EKS says that the Auto Scaling group belongs to it (DescribeNodegroup).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    pub name: String,
    /// `NodegroupStatus`.
    pub status: String,
}

impl NodeGroup {
    /// Whether EKS removes nodes of the group (EKS API reference, `NodegroupStatus`).
    pub fn is_busy(&self) -> bool {
        matches!(self.status.as_str(), "UPDATING" | "DELETING")
    }
}

/// Returns the names that the managed node group may have: by the tag of the Auto Scaling group, and by the label of the Node.
/// A kubelet may write the label, and a principal may write the tag. So a name counts only if EKS confirms it.
pub fn find_node_group_names(group_tags: &BTreeMap<String, String>, node: Option<&NodeFacts>) -> Vec<String> {
    let tag = group_tags.get(NODE_GROUP_TAG);
    let label = node.and_then(|node| node.labels.get(NODE_GROUP_LABEL));
    let names = tag
        .into_iter()
        .chain(label)
        .filter(|name| is_node_group_name(name));
    let mut names: Vec<String> = names.cloned().collect();
    names.dedup();
    names
}

/// Writes the command that raises the maximum of the group by one.
pub(crate) fn write_room(cluster: &str, group: &str, node_group: Option<&str>, max: u32) -> String {
    let max = max.saturating_add(1);
    match node_group {
        Some(node_group) => format!(
            "aws eks update-nodegroup-config --cluster-name {} --nodegroup-name {} --scaling-config maxSize={max}",
            quote(cluster),
            quote(node_group)
        ),
        None => format!(
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --max-size {max}",
            quote(group)
        ),
    }
}

/// Explains why replacement `surge` fits a group better than `before`. None if it does not.
pub fn explain_surge(node_group: Option<&str>, rebalances_capacity: bool) -> Option<String> {
    match node_group {
        Some(name) => Some(format!(
            "it belongs to the EKS managed node group {name}, and whether EKS accepts members in Standby is unknown"
        )),
        None if rebalances_capacity => {
            Some("it has Capacity Rebalancing, and replaces instances at risk itself".to_owned())
        }
        None => None,
    }
}

/// Checks whether EKS allows the name (CreateNodegroup, `nodegroupName`). It refuses a request with any other.
fn is_node_group_name(name: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, strings};

    #[test]
    fn a_node_group_is_named_by_the_tag_of_its_group_and_by_the_label_of_its_nodes() {
        let tags = |name| strings([(NODE_GROUP_TAG, name)]);
        let labelled = |name| NodeFacts {
            labels: strings([(NODE_GROUP_LABEL, name)]),
            ..node("a")
        };
        let names = |tags, node: Option<NodeFacts>| find_node_group_names(&tags, node.as_ref());
        assert_eq!(names(tags("blue"), Some(labelled("blue"))), ["blue"]);
        assert_eq!(names(tags("blue"), Some(labelled("green"))), ["blue", "green"]);
        assert_eq!(names(tags("blue"), None), ["blue"]);
        assert_eq!(names(BTreeMap::new(), Some(labelled("green"))), ["green"]);
        assert!(names(BTreeMap::new(), Some(node("a"))).is_empty());
        for odd in ["", "-blue", "b.lue", "blue/green", &"b".repeat(64)] {
            assert!(names(BTreeMap::new(), Some(labelled(odd))).is_empty(), "{odd}");
        }
    }

    #[test]
    fn eks_removes_nodes_while_it_updates_or_deletes_a_node_group() {
        // The values of NodegroupStatus.
        for (status, expected) in [
            ("CREATING", false),
            ("ACTIVE", false),
            ("UPDATING", true),
            ("DELETING", true),
            ("CREATE_FAILED", false),
            ("DELETE_FAILED", false),
            ("DEGRADED", false),
        ] {
            let group = NodeGroup {
                name: "blue".to_owned(),
                status: status.to_owned(),
            };
            assert_eq!(group.is_busy(), expected, "{status}");
        }
    }
}
