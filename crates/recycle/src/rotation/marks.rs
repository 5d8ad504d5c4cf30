//! Decides the marks of the nodes that a rotation is about to recycle: a taint, and an annotation that names the rotation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::base::ids::ExecutionArn;
use crate::base::names::{OUTDATED_ANNOTATION, OUTDATED_TAINT};
use crate::cluster::node::{NodeFacts, Taint};
use crate::records::claim::has_just_begun;
use crate::rotation::terms::Mark;

/// Checks whether a taint is a rotation's mark. A taint with a value serves another purpose of an operator.
fn is_mark(taint: &Taint) -> bool {
    taint.key == OUTDATED_TAINT && taint.value.is_none()
}

/// Returns the value of the annotation of a mark: the rotation, and the time at which it began.
pub fn write_mark(rotation: &ExecutionArn, began_at: Option<Timestamp>) -> String {
    match began_at {
        Some(began_at) => format!("{rotation} {began_at}"),
        None => rotation.to_string(),
    }
}

/// Returns the first word of the annotation of a mark, which names the rotation, and the rest. None if the node has no mark.
/// A rotation writes its ARN. Another tool wrote any other value.
fn read_mark(node: &NodeFacts) -> Option<(&str, &str)> {
    let value = node.annotations.get(OUTDATED_ANNOTATION)?.as_str();
    Some(value.split_once(' ').unwrap_or((value, "")))
}

/// Returns the name of the rotation whose mark is on the node. None if the node has no mark.
pub fn marked_by(node: &NodeFacts) -> Option<&str> {
    read_mark(node).map(|(owner, _)| owner)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Time at which it began, by each of the marks that say it.
    pub began_at: Vec<Timestamp>,
}

pub fn find_rotations(nodes: &[NodeFacts]) -> BTreeMap<ExecutionArn, Marks> {
    let mut found: BTreeMap<ExecutionArn, Marks> = BTreeMap::new();
    for (owner, rest) in nodes.iter().filter_map(read_mark) {
        if let Ok(rotation) = owner.parse() {
            let marks = found.entry(rotation).or_default();
            marks.began_at.extend(rest.parse::<Timestamp>().ok());
        }
    }
    found
}

/// Decides whether a rotation with marks may still run. `status` is None if Step Functions does not know the execution.
/// DescribeExecution is eventually consistent, so a rotation that began a moment ago may be unknown.
/// A kubelet can write the annotation of its own Node. So two marks have to say that it has just begun.
pub fn may_run(status: Option<&str>, marks: &Marks, now: Timestamp) -> bool {
    match status {
        Some(status) => matches!(status, "RUNNING" | "PENDING_REDRIVE"),
        None => {
            let began_at = marks.began_at.iter();
            began_at.filter(|at| has_just_begun(**at, now)).count() > 1
        }
    }
}

/// Returns the part of an execution's ARN that all executions of its machine have in common.
pub fn machine_of(execution: &ExecutionArn) -> &str {
    let text = execution.as_str();
    text.rsplit_once(':').map_or(text, |(machine, _)| machine)
}

/// Returns the part that the ARNs of all executions of `rotate-nodes` have in common, in the installation of this sweep.
pub fn rotations_beside(sweep: &ExecutionArn) -> String {
    let machine = machine_of(sweep);
    format!("{}rotate-nodes", machine.strip_suffix("sweep").unwrap_or(machine))
}

/// Returns the node's taints with this mark.
/// None if this rotation's mark is there already, or if the annotation names another owner that is not in `ended`.
pub fn add_mark(
    node: &NodeFacts,
    rotation: &ExecutionArn,
    mark: Mark,
    ended: &BTreeSet<ExecutionArn>,
) -> Option<Vec<Taint>> {
    let owner = marked_by(node);
    let is_own = owner == Some(rotation.as_str());
    let is_free = owner.is_none_or(|owner| is_own || ended.iter().any(|arn| arn.as_str() == owner));
    let effect = mark.effect();
    let mut marks = node.taints.iter().filter(|taint| is_mark(taint));
    let has_it = effect.is_none_or(|effect| marks.any(|taint| taint.effect == effect));
    if !is_free || (is_own && has_it) {
        return None;
    }
    let taint = effect.map(|effect| Taint::new(OUTDATED_TAINT, None, effect));
    Some(without_mark(node).into_iter().chain(taint).collect())
}

pub fn without_mark(node: &NodeFacts) -> Vec<Taint> {
    let others = node.taints.iter().filter(|taint| !is_mark(taint));
    others.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{ARN, at, node, taint};

    fn arn(name: &str) -> ExecutionArn {
        ARN.replace("run-1", name).parse().unwrap()
    }

    fn marked(by: &str, effect: Option<&str>) -> NodeFacts {
        let mut found = node("a");
        found
            .annotations
            .insert(OUTDATED_ANNOTATION.to_owned(), by.to_owned());
        found.taints = std::iter::once(taint("dedicated", "NoSchedule"))
            .chain(effect.map(|effect| taint(OUTDATED_TAINT, effect)))
            .collect();
        found
    }

    #[test]
    fn a_mark_is_added_unless_it_is_there_or_another_rotation_has_marked_the_node() {
        let (me, other) = (arn("me"), arn("other"));
        let ended = [arn("ended")].into();
        for (name, found, mark, expected) in [
            ("new", node("a"), Mark::Soft, Some(vec!["PreferNoSchedule"])),
            ("new and hard", node("a"), Mark::Hard, Some(vec!["NoSchedule"])),
            ("no taint", node("a"), Mark::None, Some(vec![])),
            (
                "there",
                marked(me.as_str(), Some("PreferNoSchedule")),
                Mark::Soft,
                None,
            ),
            (
                "there without a taint",
                marked(me.as_str(), None),
                Mark::None,
                None,
            ),
            (
                "another mark of this rotation",
                marked(me.as_str(), Some("PreferNoSchedule")),
                Mark::Hard,
                Some(vec!["NoSchedule", "NoSchedule"]),
            ),
            (
                "the mark of another rotation",
                marked(other.as_str(), Some("PreferNoSchedule")),
                Mark::Soft,
                None,
            ),
            (
                "the mark of an ended rotation",
                marked(arn("ended").as_str(), Some("NoSchedule")),
                Mark::Soft,
                Some(vec!["NoSchedule", "PreferNoSchedule"]),
            ),
        ] {
            let taints = add_mark(&found, &me, mark, &ended);
            let effects =
                taints.map(|taints| taints.into_iter().map(|taint| taint.effect).collect::<Vec<_>>());
            assert_eq!(
                effects.as_deref(),
                expected
                    .map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
                    .as_deref(),
                "{name}"
            );
        }
    }

    #[test]
    fn the_rotations_of_an_installation_are_found_from_its_sweep() {
        let sweep = ARN.replace("recycle-eks-recycle-node", "recycle-eks-sweep");
        let rotation = ARN.replace("recycle-eks-recycle-node", "recycle-eks-rotate-nodes");
        assert_ne!(sweep, ARN);
        let beside = rotations_beside(&sweep.parse().unwrap());
        assert_eq!(beside, machine_of(&rotation.parse().unwrap()));
        assert_ne!(beside, machine_of(&ARN.parse().unwrap()));
    }

    #[test]
    fn a_mark_is_removed_and_a_taint_with_a_value_stays() {
        let mut found = marked(ARN, Some("NoSchedule"));
        assert_eq!(without_mark(&found), [taint("dedicated", "NoSchedule")]);
        found.taints = vec![Taint {
            value: Some("mine".to_owned()),
            ..taint(OUTDATED_TAINT, "NoSchedule")
        }];
        assert_eq!(without_mark(&found), found.taints);
        assert_eq!(
            find_rotations(&[marked(ARN, None), marked("me", None), node("b")]),
            [(ARN.parse().unwrap(), Marks::default())].into()
        );
    }

    #[test]
    fn a_mark_names_its_rotation_and_the_time_at_which_it_began() {
        let rotation = arn("me");
        let mark = write_mark(&rotation, Some(at(60)));
        let nodes = [
            marked(rotation.as_str(), None),
            marked(&mark, None),
            marked(&format!("{rotation} soon"), None),
        ];
        assert!(
            nodes
                .iter()
                .all(|node| marked_by(node) == Some(rotation.as_str()))
        );
        let marks = Marks {
            began_at: vec![at(60)],
        };
        assert_eq!(find_rotations(&nodes), [(rotation.clone(), marks)].into());
        assert_eq!(write_mark(&rotation, None), rotation.as_str());
    }

    #[test]
    fn an_unknown_rotation_counts_as_running_for_ten_minutes_after_its_start() {
        for (name, status, began_at, expected) in [
            ("running", Some("RUNNING"), vec![], true),
            ("waits for its redrive", Some("PENDING_REDRIVE"), vec![], true),
            ("failed", Some("FAILED"), vec![1, 1], false),
            ("unknown at first", None, vec![1, 1], true),
            ("unknown for ten minutes", None, vec![0, 0], false),
            ("unknown, with a time far ahead", None, vec![1_200, 1_200], false),
            ("unknown, by the mark of one node", None, vec![1], false),
            // A kubelet has copied the mark, with a new time.
            (
                "unknown, by a young mark beside an old one",
                None,
                vec![0, 1],
                false,
            ),
            ("unknown, hidden by an old mark", None, vec![0, 1, 1], true),
            ("unknown, without a time", None, vec![], false),
        ] {
            let marks = Marks {
                began_at: began_at.into_iter().map(at).collect(),
            };
            assert_eq!(may_run(status, &marks, at(600)), expected, "{name}");
        }
    }
}
