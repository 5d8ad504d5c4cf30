//! Cluster Autoscaler and Karpenter: finds the taint by which they announce a removal, and keeps Cluster Autoscaler from removing a node.
//!
//! Cluster Autoscaler removes nodes that it does not need, and each removal lowers the group's desired capacity by one. The old node
//! (from before EnterStandby) and its replacement (as soon as its Node appears) therefore get the annotation `scale-down-disabled`.
//! If the annotation had another value before, that value is written again in the end.
//!
//! The Lease's record has that value, and so has an annotation beside it: without the Lease, which an operator may delete, the Node
//! alone shows that recycle-eks set the annotation. It decides about nothing else, because a kubelet writes its own Node.

use crate::base::ids::InstanceId;
use crate::base::names::{KEPT_BEFORE_ANNOTATION, KEPT_FOR_LABEL, SCALE_DOWN_DISABLED_ANNOTATION};
use crate::cluster::group::Group;
use crate::cluster::node::NodeFacts;
use crate::records::node_record::Record;

/// The annotation's value that recycle-eks sets. Cluster Autoscaler ignores all other values.
pub const DISABLED: &str = "true";

/// The tool that is about to remove a node, with the taint that announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remover {
    ClusterAutoscaler(&'static str),
    Karpenter(&'static str),
}

/// Returns the tool that has announced by a taint that it removes the node.
pub fn find_remover(node: &NodeFacts) -> Option<Remover> {
    const ANNOUNCEMENTS: [Remover; 3] = [
        Remover::ClusterAutoscaler("ToBeDeletedByClusterAutoscaler"),
        Remover::Karpenter("karpenter.sh/disrupted"),
        // The key until Karpenter 1.0.
        Remover::Karpenter("karpenter.sh/disruption"),
    ];
    ANNOUNCEMENTS.into_iter().find(|remover| {
        let (Remover::ClusterAutoscaler(key) | Remover::Karpenter(key)) = remover;
        node.taints.iter().any(|taint| taint.key == *key)
    })
}

/// Returns the record to write together with the annotation on the old node. The restore undoes the annotation by it.
/// None if the node has the annotation already, whether recycle-eks set it or not.
pub fn keep_old_node(node: &NodeFacts, record: &Record) -> Option<Record> {
    (!says_disabled(node)).then(|| Record {
        kept: true,
        kept_before: node.annotations.get(SCALE_DOWN_DISABLED_ANNOTATION).cloned(),
        ..record.clone()
    })
}

/// The change to the annotation for Cluster Autoscaler when an execution no longer keeps a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleDown {
    /// The execution did not set the annotation, or it was changed since: leave it.
    Keep,
    Remove,
    /// Set the value that the annotation had before.
    Set(String),
}

/// Decides the change to the annotation of the old node. Without a record of it, the value beside the annotation decides.
pub fn let_go_of_old_node(node: &NodeFacts, record: &Record) -> ScaleDown {
    let is_kept = record.kept || find_value_beside(node).is_some();
    let_go(
        is_kept && says_disabled(node),
        find_value_before(node, record).as_ref(),
    )
}

/// Returns the value that recycle-eks wrote beside the old node's annotation: the value before, empty if there was none.
/// None if there is no such value, or if it belongs to a replacement, which has a label, too.
pub fn find_value_beside(node: &NodeFacts) -> Option<&String> {
    let beside = node.annotations.get(KEPT_BEFORE_ANNOTATION);
    beside.filter(|_| !node.labels.contains_key(KEPT_FOR_LABEL))
}

/// Returns the value of an old node's annotation before recycle-eks set it, if it was another one.
/// An operator who brings a stopped instance back needs the value.
pub fn find_value_before(node: &NodeFacts, record: &Record) -> Option<String> {
    if record.kept {
        return record.kept_before.clone();
    }
    if let Some(beside) = find_value_beside(node) {
        return Some(beside.clone()).filter(|before| !before.is_empty());
    }
    let found = node.annotations.get(SCALE_DOWN_DISABLED_ANNOTATION);
    found.filter(|value| *value != DISABLED).cloned()
}

/// Checks whether an execution may keep this new member. It may not if an operator or another execution already keeps it.
pub fn is_to_be_kept(new_member: &NodeFacts) -> bool {
    !says_disabled(new_member) && !new_member.labels.contains_key(KEPT_FOR_LABEL)
}

pub fn is_kept_for(new_member: &NodeFacts, old: &InstanceId) -> bool {
    let kept_for = new_member.labels.get(KEPT_FOR_LABEL);
    kept_for.is_some_and(|id| id == old.as_str())
}

/// Decides the change to the annotation of a new member that an execution kept for an old node.
pub fn let_go_of_new_member(new_member: &NodeFacts) -> ScaleDown {
    let before = new_member.annotations.get(KEPT_BEFORE_ANNOTATION);
    let_go(
        says_disabled(new_member),
        before.filter(|value| !value.is_empty()),
    )
}

fn let_go(is_set_by_execution: bool, before: Option<&String>) -> ScaleDown {
    if !is_set_by_execution {
        return ScaleDown::Keep;
    }
    before.map_or(ScaleDown::Remove, |value| ScaleDown::Set(value.clone()))
}

fn says_disabled(node: &NodeFacts) -> bool {
    let value = node.annotations.get(SCALE_DOWN_DISABLED_ANNOTATION);
    value.is_some_and(|value| value == DISABLED)
}

/// Describes, in one sentence, that the replacement was removed together with its place in the group, as Cluster Autoscaler does.
/// None if the group still has a new member or the place, or launches another member.
/// If the group has its desired capacity, no other replacement comes. `staying` is the number of new members that are not leaving.
pub fn describe_removal(group: &Group, record: &Record, staying: usize) -> Option<String> {
    let before = record
        .desired_before
        .or(record.raised_from.map(|from| from + 1))?;
    let is_complete = group.in_service() + group.pending() >= group.desired;
    (staying == 0 && group.desired < before && is_complete).then(|| {
        format!(
            "the replacement was removed from group {}, which now has the desired capacity {} instead of {before}. Cluster Autoscaler \
             does this if a node does not register within 15 minutes, or is not needed",
            group.name, group.desired
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OLD, OTHER, group, id, member, node, strings, taint};

    fn annotated(value: &str) -> NodeFacts {
        NodeFacts {
            annotations: strings([(SCALE_DOWN_DISABLED_ANNOTATION, value)]),
            ..node("a")
        }
    }

    #[test]
    fn the_value_of_a_stopped_nodes_annotation_before_the_execution_is_known() {
        let kept = |before: Option<&str>| Record {
            kept: true,
            kept_before: before.map(str::to_owned),
            ..Record::default()
        };
        for (record, found, before) in [
            (kept(None), Some("true"), None),
            (kept(Some("false")), Some("true"), Some("false")),
            // An operator's value, from before the execution.
            (Record::default(), Some("true"), None),
            (Record::default(), Some("false"), Some("false")),
            (Record::default(), None, None),
        ] {
            let node = found.map_or_else(|| node("a"), annotated);
            assert_eq!(find_value_before(&node, &record).as_deref(), before, "{record:?}");
        }
    }

    #[test]
    fn a_taint_names_the_tool_that_removes_the_node() {
        let cases = [
            (None, None),
            (Some("node.kubernetes.io/unschedulable"), None),
            // Only a preference, which Cluster Autoscaler may take back.
            (Some("DeletionCandidateOfClusterAutoscaler"), None),
            (
                Some("ToBeDeletedByClusterAutoscaler"),
                Some(Remover::ClusterAutoscaler("ToBeDeletedByClusterAutoscaler")),
            ),
            (
                Some("karpenter.sh/disrupted"),
                Some(Remover::Karpenter("karpenter.sh/disrupted")),
            ),
            (
                Some("karpenter.sh/disruption"),
                Some(Remover::Karpenter("karpenter.sh/disruption")),
            ),
        ];
        for (key, expected) in cases {
            let tainted = NodeFacts {
                taints: key.map(|key| taint(key, "NoSchedule")).into_iter().collect(),
                ..node("a")
            };
            assert_eq!(find_remover(&tainted), expected, "{key:?}");
        }
    }

    #[test]
    fn the_old_node_gets_back_its_previous_annotation() {
        for (found, before) in [(node("a"), None), (annotated("false"), Some("false".to_owned()))] {
            let record = keep_old_node(&found, &Record::default()).unwrap();
            assert!(record.kept);
            assert_eq!(
                let_go_of_old_node(&annotated(DISABLED), &record),
                let_go(true, before.as_ref())
            );
            assert_eq!(
                let_go_of_old_node(&annotated("false"), &record),
                ScaleDown::Keep,
                "changed since"
            );
            assert_eq!(
                let_go_of_old_node(&node("a"), &record),
                ScaleDown::Keep,
                "removed since"
            );
        }
        assert_eq!(
            keep_old_node(&annotated(DISABLED), &Record::default()),
            None,
            "set by an operator"
        );
        assert_eq!(
            let_go_of_old_node(&annotated(DISABLED), &Record::default()),
            ScaleDown::Keep
        );
    }

    #[test]
    fn without_its_record_the_old_node_itself_has_the_value_before() {
        let beside = |value: &str, before: &str, is_replacement: bool| NodeFacts {
            annotations: strings([
                (SCALE_DOWN_DISABLED_ANNOTATION, value),
                (KEPT_BEFORE_ANNOTATION, before),
            ]),
            labels: is_replacement
                .then(|| (KEPT_FOR_LABEL.to_owned(), OTHER.to_owned()))
                .into_iter()
                .collect(),
            ..node("a")
        };
        let set = |value: &str| ScaleDown::Set(value.to_owned());
        for (found, change, before) in [
            (beside(DISABLED, "", false), ScaleDown::Remove, None),
            (beside(DISABLED, "false", false), set("false"), Some("false")),
            // Changed since.
            (beside("false", "", false), ScaleDown::Keep, None),
            // A replacement that another execution keeps: the value is that execution's.
            (beside(DISABLED, "", true), ScaleDown::Keep, None),
        ] {
            let record = Record::default();
            assert_eq!(let_go_of_old_node(&found, &record), change, "{found:?}");
            assert_eq!(find_value_before(&found, &record).as_deref(), before, "{found:?}");
        }
        let kept = Record {
            kept: true,
            ..Record::default()
        };
        let written_by_the_kubelet = beside(DISABLED, "false", false);
        assert_eq!(
            let_go_of_old_node(&written_by_the_kubelet, &kept),
            ScaleDown::Remove,
            "the record decides"
        );
    }

    #[test]
    fn a_new_member_is_kept_once_and_for_one_node() {
        let kept = NodeFacts {
            labels: strings([(KEPT_FOR_LABEL, OLD)]),
            ..annotated(DISABLED)
        };
        let cases = [
            (node("a"), true, false),
            (annotated("false"), true, false),
            (annotated(DISABLED), false, false),
            (kept.clone(), false, true),
        ];
        for (new_member, to_be_kept, is_kept) in cases {
            assert_eq!(is_to_be_kept(&new_member), to_be_kept, "{new_member:?}");
            assert_eq!(is_kept_for(&new_member, &id(OLD)), is_kept, "{new_member:?}");
            assert!(!is_kept_for(&new_member, &id(OTHER)));
        }
        assert_eq!(let_go_of_new_member(&kept), ScaleDown::Remove);
        let with_before = NodeFacts {
            annotations: strings([
                (SCALE_DOWN_DISABLED_ANNOTATION, DISABLED),
                (KEPT_BEFORE_ANNOTATION, "false"),
            ]),
            ..kept
        };
        assert_eq!(
            let_go_of_new_member(&with_before),
            ScaleDown::Set("false".to_owned())
        );
        assert_eq!(let_go_of_new_member(&annotated("false")), ScaleDown::Keep);
    }

    #[test]
    fn a_place_that_is_gone_with_the_replacement_was_removed_by_an_autoscaler() {
        let record = Record {
            desired_before: Some(3),
            ..Record::default()
        };
        let standby = Group {
            members: vec![
                member(OLD, "Standby"),
                member(OTHER, "InService"),
                member(NEW, "InService"),
            ],
            ..group()
        };
        let group = || standby.clone();
        let text = describe_removal(&group(), &record, 0).unwrap();
        assert!(text.contains("desired capacity 2 instead of 3"), "{text}");
        assert_eq!(describe_removal(&group(), &record, 1), None, "it is there");
        let raised = Record {
            raised_from: Some(2),
            ..Record::default()
        };
        let of_surge = describe_removal(&group(), &raised, 0);
        assert_eq!(of_surge.as_deref(), Some(text.as_str()), "the place of surge");
        let same = Record {
            desired_before: Some(2),
            ..Record::default()
        };
        assert_eq!(describe_removal(&group(), &same, 0), None, "the place is there");
        assert_eq!(
            describe_removal(&group(), &Record::default(), 0),
            None,
            "an older record"
        );
        let launching = Group {
            members: vec![member(OLD, "Standby"), member(OTHER, "InService")],
            ..group()
        };
        let mut launched = launching.clone();
        launched.members.push(member(NEW, "Pending"));
        assert!(
            describe_removal(&launched, &record, 0).is_some(),
            "the other one comes"
        );
        assert_eq!(
            describe_removal(&launching, &record, 0),
            None,
            "one is still to be launched"
        );
    }
}
