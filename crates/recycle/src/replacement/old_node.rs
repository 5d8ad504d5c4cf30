//! Records facts about a node that is gone when its replacement comes (path `after`).

use serde::{Deserialize, Serialize};

use crate::base::ids::{InstanceId, NodeName};
use crate::base::member_marks::{is_marked, mark_members};
use crate::cluster::group::{Group, Member};
use crate::cluster::node::{NodeFacts, Taint};
use crate::replacement::defect::keeps_pods_away;

/// The maximum number of bytes of all names of taints and resources together, because they are part of every answer.
const NAMES_BUDGET: usize = 500;

/// The facts about the old node by which its replacement is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldNode {
    /// Four characters for each member before the termination, made of the end of its id.
    /// 500 whole ids would be larger than an answer may be.
    pub members: String,
    /// Extended resources of the old node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Taints of the old node that keep pods away, each as `key:effect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
}

impl OldNode {
    /// Records a Node, if there is one, and the members that its group had at that time.
    pub fn new(node: Option<&NodeFacts>, members: &[InstanceId]) -> Self {
        let taints = node.into_iter().flat_map(|node| &node.taints);
        let taints = taints.filter(|taint| keeps_pods_away(taint));
        let taints = taints.map(|taint| format!("{}:{}", taint.key, taint.effect));
        let resources = node.into_iter().flat_map(|node| node.extended_resources.clone());
        let mut left = NAMES_BUDGET;
        let mut fits = |name: &String| {
            let fits = name.len() <= left;
            left -= if fits { name.len() } else { 0 };
            fits
        };
        Self {
            resources: resources.filter(&mut fits).collect(),
            taints: taints.filter(&mut fits).collect(),
            members: mark_members(members),
        }
    }

    /// Checks whether the members were recorded.
    pub fn knows_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns the members that were not in the group at that time.
    pub fn new_members<'a>(&self, group: &'a Group) -> Vec<&'a Member> {
        let is_new = |member: &&Member| !is_marked(&self.members, &member.instance);
        group.members.iter().filter(is_new).collect()
    }

    /// Rebuilds the Node as far as its replacement is compared with it.
    pub fn to_facts(&self, name: &NodeName, instance: &InstanceId) -> NodeFacts {
        let taint = |text: &String| {
            let (key, effect) = text.rsplit_once(':')?;
            Some(Taint::new(key, None, effect))
        };
        NodeFacts {
            name: name.clone(),
            resource_version: String::new(),
            instance: Some(instance.clone()),
            ready: false,
            not_ready_since: None,
            unschedulable: true,
            cordoned_by: None,
            taints: self.taints.iter().filter_map(taint).collect(),
            labels: Default::default(),
            annotations: Default::default(),
            extended_resources: self.resources.clone(),
            volumes: Vec::new(),
            kubelet: String::new(),
            lease: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OLD, OTHER, group, id, member, node, taint};

    fn gpu() -> NodeFacts {
        NodeFacts {
            taints: vec![
                taint("nvidia.com/gpu", "NoSchedule"),
                taint("soft", "PreferNoSchedule"),
            ],
            extended_resources: vec!["nvidia.com/gpu".to_owned()],
            ..node("old")
        }
    }

    #[test]
    fn new_members_are_recognised_by_the_end_of_the_id() {
        let old = OldNode::new(None, &[id(OLD), id(OTHER)]);
        assert_eq!(old.members.len(), 2 * 4);
        let mut group = group();
        assert!(old.new_members(&group).is_empty());
        group.members.push(member(NEW, "Pending"));
        let new_members = old.new_members(&group);
        assert_eq!(new_members.len(), 1);
        assert_eq!(new_members[0].instance, id(NEW));
        assert_eq!(OldNode::default().new_members(&group).len(), 3);
        assert!(old.knows_members() && !OldNode::default().knows_members());
    }

    #[test]
    fn the_replacement_is_compared_with_the_old_node() {
        let old = OldNode::new(Some(&gpu()), &[]);
        assert_eq!(old.taints, ["nvidia.com/gpu:NoSchedule"]);
        let facts = old.to_facts(&"old".parse().unwrap(), &id(OLD));
        assert_eq!(facts.extended_resources, gpu().extended_resources);
        assert_eq!(facts.taints, [taint("nvidia.com/gpu", "NoSchedule")]);
        assert_eq!(facts.instance, Some(id(OLD)));
    }

    #[test]
    fn the_record_stays_small_for_any_node() {
        let node = NodeFacts {
            extended_resources: (0..50).map(|n| format!("example.com/{n:040}")).collect(),
            taints: (0..50)
                .map(|n| taint(&format!("example.com/{n:040}"), "NoSchedule"))
                .collect(),
            ..node("old")
        };
        let members: Vec<InstanceId> = (0..500).map(|n| id(&format!("i-{n:017x}"))).collect();
        let old = OldNode::new(Some(&node), &members);
        assert!(serde_json::to_string(&old).unwrap().len() < 2_700);
        assert!(!old.resources.is_empty());
    }
}
