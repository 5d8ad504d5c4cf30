//! The EKS managed node group that an Auto Scaling group belongs to.

use std::collections::BTreeMap;

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
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.status.as_str(), "UPDATING" | "DELETING")
    }
}

/// Returns the names that the managed node group may have: by the tag of the Auto Scaling group, and by the label of the Node.
/// A kubelet may write the label, and a principal may write the tag. So a name counts only if EKS confirms it.
#[must_use]
pub fn find_node_group_names(group_tags: &BTreeMap<String, String>, node: Option<&NodeFacts>) -> Vec<String> {
    let tag = group_tags.get(NODE_GROUP_TAG);
    let label = node.and_then(|node| node.labels.get(NODE_GROUP_LABEL));
    let mut names: Vec<String> = tag.into_iter().chain(label).cloned().collect();
    names.dedup();
    names
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
