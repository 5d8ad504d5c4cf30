//! Does the group have as many usable members without the old node as it had with it?
//!
//! Auto Scaling does not say which launch belongs to which EnterStandby. While one launch takes its time, a neighbour may die, and its
//! successor may arrive first. Whoever took that for the replacement would leave the group one member short.

use crate::ids::InstanceId;
use crate::node::{Group, Member, NodeFacts};
use crate::old_node::OldNode;
use crate::replacement::{describe_missing, find_defect, reserved_for};

/// Too few members are usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    usable: usize,
    needed: usize,
    missing: Vec<String>,
}

impl Shortage {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} of {} members are usable: {}",
            self.usable,
            self.needed,
            describe_missing(&self.missing)
        )
    }
}

/// Members of the group on which pods of the old node could not run now. Its own Node may be one of them.
#[must_use]
pub fn find_unusable(group: &Group, old_node: &NodeFacts, nodes: &[NodeFacts]) -> Vec<InstanceId> {
    let is_unusable = |member: &&Member| find_defect(member, find_node(nodes, member), old_node).is_some();
    let unusable = group.members.iter().filter(is_unusable);
    unusable.map(|member| member.instance.clone()).collect()
}

/// Whether pods of the old node could run on this member now.
#[must_use]
pub fn is_usable(id: Option<&InstanceId>, old_node: &NodeFacts, group: &Group, nodes: &[NodeFacts]) -> bool {
    let member = id.and_then(|id| group.member(id));
    member.is_some_and(|member| find_defect(member, find_node(nodes, member), old_node).is_none())
}

/// Fewer members are usable than before the old node left service, or than the group wants by now; none if enough are.
///
/// A member that another execution has put into Standby counts: that execution waits for its replacement. Where it has gone, the
/// member that is reserved for it counts in its place. A member that was not usable before never counts.
#[must_use]
pub fn find_shortage(
    old: &InstanceId,
    old_node: &NodeFacts,
    before: &OldNode,
    group: &Group,
    nodes: &[NodeFacts],
) -> Option<Shortage> {
    let wanted = usize::try_from(group.desired).unwrap_or(usize::MAX);
    let needed = before.count_usable().min(wanted);
    let (mut usable, mut missing) = (0, Vec::new());
    for member in group.members.iter().filter(|member| member.instance != *old) {
        let node = find_node(nodes, member);
        let is_new = !before.was_member(&member.instance);
        let is_ours = is_new && stands_in(node, old, before, group);
        if !before.was_usable(&member.instance) && !is_ours {
            continue;
        }
        match find_defect(member, node, old_node) {
            Some(_) if !is_new && is_in_standby(member) => usable += 1,
            Some(defect) => missing.push(defect),
            None => usable += 1,
        }
    }
    (usable < needed).then_some(Shortage {
        usable,
        needed,
        missing,
    })
}

/// Whether a new member may count for the old node's group: not if it is reserved for one that counts itself, or never did.
fn stands_in(node: Option<&NodeFacts>, old: &InstanceId, before: &OldNode, group: &Group) -> bool {
    let Some(owner) = node.and_then(reserved_for) else {
        return true;
    };
    let Ok(owner) = owner.parse::<InstanceId>() else {
        return false;
    };
    let has_gone = group.member(&owner).is_none_or(Member::is_leaving);
    let counted = before.was_usable(&owner) || !before.was_member(&owner);
    owner == *old || (has_gone && counted)
}

fn is_in_standby(member: &Member) -> bool {
    matches!(member.lifecycle_state.as_str(), "Standby" | "EnteringStandby")
}

fn find_node<'a>(nodes: &'a [NodeFacts], member: &Member) -> Option<&'a NodeFacts> {
    nodes
        .iter()
        .find(|node| node.instance.as_ref() == Some(&member.instance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{id, member, node};
    use crate::names::REPLACEMENT_FOR_ANNOTATION;

    /// `a` is the old node, `b` and `c` are its neighbours, and the rest came after them.
    fn id_of(name: char) -> InstanceId {
        id(&format!("i-0{}", name.to_string().repeat(16)))
    }

    fn node_of(name: char, reserved: Option<char>) -> NodeFacts {
        let reserved = reserved.map(|owner| id_of(owner).to_string());
        NodeFacts {
            instance: Some(id_of(name)),
            annotations: reserved
                .map(|owner| (REPLACEMENT_FOR_ANNOTATION.to_owned(), owner))
                .into_iter()
                .collect(),
            ..node(&name.to_string())
        }
    }

    /// What is short of a group with the desired capacity 3, of which `a`, `b` and `c` were usable, and `unusable` was not.
    fn short(
        desired: u32,
        unusable: &[char],
        members: &[(char, &str)],
        nodes: &[NodeFacts],
    ) -> Option<(usize, usize)> {
        let before: Vec<InstanceId> = ['a', 'b', 'c'].map(id_of).into();
        let unusable: Vec<InstanceId> = unusable.iter().copied().map(id_of).collect();
        let group = Group {
            desired,
            members: members
                .iter()
                .map(|(name, state)| member(id_of(*name).as_str(), state))
                .collect(),
            ..crate::fixtures::group()
        };
        let before = OldNode::new(None, &before, &unusable);
        let found = find_shortage(&id_of('a'), &node_of('a', None), &before, &group, nodes);
        found.map(|shortage| (shortage.usable, shortage.needed))
    }

    const STANDBY: (char, &str) = ('a', "Standby");
    const B: (char, &str) = ('b', "InService");
    const C: (char, &str) = ('c', "InService");
    const D: (char, &str) = ('d', "InService");
    const E: (char, &str) = ('e', "InService");

    /// What it is, the desired capacity, who was not usable before, the members, their Nodes, and how many are usable of those needed.
    type Case<'a> = (
        &'a str,
        u32,
        &'a [char],
        &'a [(char, &'a str)],
        Vec<NodeFacts>,
        Option<(usize, usize)>,
    );

    #[test]
    fn the_group_has_as_many_usable_members_as_before_or_as_it_wants() {
        let ready = |names: &[char]| names.iter().map(|name| node_of(*name, None)).collect::<Vec<_>>();
        let all = ready(&['a', 'b', 'c', 'd', 'e']);
        let silent = NodeFacts {
            ready: false,
            ..node_of('b', None)
        };
        let with = |changed: NodeFacts| {
            let others = all
                .iter()
                .filter(|node| node.instance != changed.instance)
                .cloned();
            others.chain([changed.clone()]).collect::<Vec<_>>()
        };
        let taken = |owner| with(node_of('d', Some(owner)));
        let cases: [Case<'_>; 18] = [
            (
                "nothing was launched",
                3,
                &[],
                &[STANDBY, B, C],
                all.clone(),
                Some((2, 3)),
            ),
            (
                "its launch is on its way",
                3,
                &[],
                &[STANDBY, B, C, ('d', "Pending")],
                all.clone(),
                Some((2, 3)),
            ),
            ("it is there", 3, &[], &[STANDBY, B, C, D], all.clone(), None),
            (
                "it is reserved for us",
                3,
                &[],
                &[STANDBY, B, C, D],
                taken('a'),
                None,
            ),
            (
                "it has no Node",
                3,
                &[],
                &[STANDBY, B, C, D],
                ready(&['a', 'b', 'c']),
                Some((2, 3)),
            ),
            (
                "a neighbour's successor alone",
                3,
                &[],
                &[STANDBY, C, D],
                all.clone(),
                Some((2, 3)),
            ),
            ("and ours, too", 3, &[], &[STANDBY, C, D, E], all.clone(), None),
            (
                "a neighbour is not Ready",
                3,
                &[],
                &[STANDBY, B, C, D],
                with(silent.clone()),
                Some((2, 3)),
            ),
            (
                "it was not before",
                3,
                &['b'],
                &[STANDBY, B, C, D],
                with(silent),
                None,
            ),
            (
                "it was not before and is now",
                3,
                &['b'],
                &[STANDBY, B, C],
                all.clone(),
                Some((1, 2)),
            ),
            (
                "the old one was not usable itself",
                3,
                &['a'],
                &[STANDBY, B, C],
                all.clone(),
                None,
            ),
            (
                "the group wants fewer by now",
                2,
                &[],
                &[STANDBY, B, C],
                all.clone(),
                None,
            ),
            (
                "another goes, too",
                3,
                &[],
                &[STANDBY, ('b', "Standby"), C, D],
                all.clone(),
                None,
            ),
            (
                "and has its replacement",
                3,
                &[],
                &[STANDBY, ('b', "Standby"), C, D],
                taken('b'),
                Some((2, 3)),
            ),
            (
                "another has gone and left its replacement",
                3,
                &[],
                &[STANDBY, C, D, E],
                taken('b'),
                None,
            ),
            (
                "it went while it was in Standby before us",
                3,
                &['b'],
                &[STANDBY, C, D],
                taken('b'),
                Some((1, 2)),
            ),
            (
                "a replacement was replaced",
                3,
                &[],
                &[STANDBY, B, C, D],
                taken('f'),
                None,
            ),
            (
                "its group ends a neighbour",
                3,
                &[],
                &[STANDBY, ('b', "Terminating:Wait"), C, D],
                all.clone(),
                Some((2, 3)),
            ),
        ];
        for (name, desired, unusable, members, nodes, expected) in cases {
            assert_eq!(short(desired, unusable, members, &nodes), expected, "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let group = Group {
            desired: 2,
            members: vec![
                member(id_of('a').as_str(), "Standby"),
                member(id_of('b').as_str(), "InService"),
                member(id_of('d').as_str(), "Pending"),
            ],
            ..crate::fixtures::group()
        };
        let cordoned = NodeFacts {
            unschedulable: true,
            ..node_of('b', None)
        };
        let before = OldNode::new(None, &['a', 'b'].map(id_of), &[]);
        let found = find_shortage(
            &id_of('a'),
            &node_of('a', None),
            &before,
            &group,
            std::slice::from_ref(&cordoned),
        );
        assert_eq!(
            found.unwrap().describe(),
            "0 of 2 members are usable: node b is cordoned; i-0dddddddddddddddd is Pending"
        );
        assert_eq!(
            find_unusable(&group, &node_of('a', None), &[node_of('a', None), cordoned]),
            ['a', 'b', 'd'].map(id_of)
        );
    }
}
