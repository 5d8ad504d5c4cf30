//! Checks whether the group has as many usable members without the old node as it had with it.
//!
//! Auto Scaling does not report which launch belongs to which EnterStandby. While one launch is pending, another member may die and its
//! successor may arrive first. If that successor counted as the replacement, the group would be one member short.

use crate::base::ids::InstanceId;
use crate::cluster::group::{Group, Member};
use crate::cluster::node::NodeFacts;
use crate::records::claim::{Phase, StoredClaim};
use crate::replacement::defect::{find_defect, list_at_most_three, reserved_for};

/// The finding that too few members are usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    usable: u32,
    needed: u32,
    missing: Vec<String>,
}

impl Shortage {
    pub fn describe(&self) -> String {
        let count = format!("{} of {} members are usable", self.usable, self.needed);
        if self.missing.is_empty() {
            count
        } else {
            format!("{count}: {}", list_at_most_three(&self.missing))
        }
    }
}

/// Counts the usable members while the old node is still in service.
/// The old node counts unless it is not Ready, even if an operator has cordoned it.
pub fn count_usable(old: &InstanceId, old_node: &NodeFacts, group: &Group, nodes: &[NodeFacts]) -> u32 {
    let (others, _) = count_others(old, old_node, group, nodes);
    others + u32::from(old_node.not_ready_since.is_none())
}

/// Returns the shortage if fewer members are usable than are needed. None if enough are usable.
/// The number needed is `before`, which was usable before the old node left service, or the number that the group wants now if that is
/// less.
pub fn find_shortage(
    old: &InstanceId,
    old_node: &NodeFacts,
    before: u32,
    group: &Group,
    nodes: &[NodeFacts],
) -> Option<Shortage> {
    let needed = before.min(group.desired);
    let (usable, missing) = count_others(old, old_node, group, nodes);
    (usable < needed).then_some(Shortage {
        usable,
        needed,
        missing,
    })
}

/// Checks whether pods of the old node could run on this member now.
pub fn is_usable(id: Option<&InstanceId>, old_node: &NodeFacts, group: &Group, nodes: &[NodeFacts]) -> bool {
    let member = id.and_then(|id| group.member(id));
    member.is_some_and(|member| find_defect(member, find_node(nodes, member), old_node).is_none())
}

/// Counts the usable members other than the old node, and describes what the others lack.
///
/// A member that an execution keeps in Standby counts, because that execution waits for its replacement.
/// The replacement does not count a second time.
fn count_others(
    old: &InstanceId,
    old_node: &NodeFacts,
    group: &Group,
    nodes: &[NodeFacts],
) -> (u32, Vec<String>) {
    let (mut usable, mut missing) = (0, Vec::new());
    for member in group.members.iter().filter(|member| member.instance != *old) {
        let node = find_node(nodes, member);
        match find_defect(member, node, old_node) {
            _ if is_kept_in_standby(member, node) => usable += 1,
            Some(defect) => missing.push(defect),
            None if is_counted_elsewhere(node, old, group, nodes) => {}
            None => usable += 1,
        }
    }
    (usable, missing)
}

/// Whether an execution has put the member into Standby and has not begun to dispose of it.
fn is_kept_in_standby(member: &Member, node: Option<&NodeFacts>) -> bool {
    let claim = node.and_then(NodeFacts::claim).and_then(StoredClaim::known);
    member.is_in_standby() && claim.is_some_and(|claim| claim.phase < Phase::Disposing)
}

/// Whether the member stands in for a member in Standby that counts itself.
fn is_counted_elsewhere(
    node: Option<&NodeFacts>,
    old: &InstanceId,
    group: &Group,
    nodes: &[NodeFacts],
) -> bool {
    let owner = node
        .and_then(reserved_for)
        .and_then(|owner| owner.parse::<InstanceId>().ok())
        .filter(|owner| owner != old);
    let owner = owner.and_then(|owner| group.member(&owner));
    owner.is_some_and(|owner| is_kept_in_standby(owner, find_node(nodes, owner)))
}

fn find_node<'a>(nodes: &'a [NodeFacts], member: &Member) -> Option<&'a NodeFacts> {
    nodes
        .iter()
        .find(|node| node.instance.as_ref() == Some(&member.instance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
    use crate::fixtures::{claimed, id, member, node};
    use crate::records::node_record::Record;

    /// `a` is the old node, `b` and `c` are the other members, and the rest came after them.
    fn id_of(name: char) -> InstanceId {
        id(&format!("i-0{}", name.to_string().repeat(16)))
    }

    fn ready(name: char) -> NodeFacts {
        NodeFacts {
            instance: Some(id_of(name)),
            ..node(&name.to_string())
        }
    }

    fn reserved(name: char, owner: char) -> NodeFacts {
        let annotation = (REPLACEMENT_FOR_ANNOTATION.to_owned(), id_of(owner).to_string());
        NodeFacts {
            annotations: [annotation].into(),
            ..ready(name)
        }
    }

    fn of(desired: u32, members: &[(char, &str)]) -> Group {
        Group {
            desired,
            members: members
                .iter()
                .map(|(name, state)| member(id_of(*name).as_str(), state))
                .collect(),
            ..crate::fixtures::group()
        }
    }

    const STANDBY: (char, &str) = ('a', "Standby");
    const B: (char, &str) = ('b', "InService");
    const C: (char, &str) = ('c', "InService");
    const D: (char, &str) = ('d', "InService");
    const E: (char, &str) = ('e', "InService");
    const B_TOO: (char, &str) = ('b', "Standby");

    /// Three members were usable before, and all Nodes are Ready except those that are given.
    #[test]
    fn the_group_has_as_many_usable_members_as_before_or_as_it_wants() {
        let silent = NodeFacts {
            ready: false,
            ..ready('b')
        };
        let worked_on = |phase| claimed(ready('b'), phase, &Record::default());
        let cases = [
            ("no launch yet", 3, vec![STANDBY, B, C], vec![], Some((2, 3))),
            (
                "its launch is pending",
                3,
                vec![STANDBY, B, C, ('d', "Pending")],
                vec![],
                Some((2, 3)),
            ),
            (
                "it is usable",
                3,
                vec![STANDBY, B, C, D],
                vec![reserved('d', 'a')],
                None,
            ),
            (
                "only the successor of another member",
                3,
                vec![STANDBY, C, D],
                vec![reserved('d', 'a')],
                Some((2, 3)),
            ),
            (
                "both launches are usable",
                3,
                vec![STANDBY, C, D, E],
                vec![reserved('d', 'a')],
                None,
            ),
            (
                "another member is not Ready",
                3,
                vec![STANDBY, B, C, D],
                vec![silent.clone()],
                Some((2, 3)),
            ),
            (
                "the group wants fewer by now",
                2,
                vec![STANDBY, B, C],
                vec![],
                None,
            ),
            (
                "another member is also drained",
                3,
                vec![STANDBY, B_TOO, C, D],
                vec![worked_on(Phase::Waiting)],
                None,
            ),
            (
                "another member is also drained and has its replacement",
                3,
                vec![STANDBY, B_TOO, C, D],
                vec![worked_on(Phase::Waiting), reserved('d', 'b')],
                Some((2, 3)),
            ),
            (
                "the other drained member is being disposed of",
                3,
                vec![STANDBY, B_TOO, C, D, E],
                vec![worked_on(Phase::Disposing), reserved('d', 'b')],
                None,
            ),
            (
                "the other drained member is gone",
                3,
                vec![STANDBY, C, D, E],
                vec![reserved('d', 'b')],
                None,
            ),
            (
                "the other drained member was restored",
                3,
                vec![STANDBY, B, C, D],
                vec![reserved('d', 'a')],
                None,
            ),
            (
                "an operator has put one into Standby",
                3,
                vec![STANDBY, B_TOO, C, D],
                vec![],
                Some((2, 3)),
            ),
            (
                "its group terminates another member",
                3,
                vec![STANDBY, ('b', "Terminating:Wait"), C, D],
                vec![],
                Some((2, 3)),
            ),
            (
                "the replacement is itself being replaced",
                3,
                vec![STANDBY, C, ('b', "Standby"), D, E],
                vec![worked_on(Phase::Draining), reserved('d', 'b')],
                None,
            ),
        ];
        for (name, desired, members, given, expected) in cases {
            let all = ['a', 'b', 'c', 'd', 'e'].map(ready);
            let others = all
                .iter()
                .filter(|node| given.iter().all(|given| given.instance != node.instance));
            let nodes: Vec<NodeFacts> = others.chain(&given).cloned().collect();
            let found = find_shortage(&id_of('a'), &ready('a'), 3, &of(desired, &members), &nodes);
            assert_eq!(
                found.map(|shortage| (shortage.usable, shortage.needed)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_node_that_is_cordoned_before_it_is_recycled_counts_as_long_as_it_is_ready() {
        let group = of(3, &[('a', "InService"), B, ('c', "Pending")]);
        let nodes = ['a', 'b'].map(ready);
        for (old, expected) in [
            (ready('a'), 2),
            (
                NodeFacts {
                    unschedulable: true,
                    ..ready('a')
                },
                2,
            ),
            (
                NodeFacts {
                    ready: false,
                    not_ready_since: Some(crate::fixtures::at(0)),
                    ..ready('a')
                },
                1,
            ),
        ] {
            assert_eq!(count_usable(&id_of('a'), &old, &group, &nodes), expected);
        }
    }

    #[test]
    fn a_shortage_names_the_unusable_members() {
        let group = of(2, &[STANDBY, B, ('d', "Pending")]);
        let cordoned = NodeFacts {
            unschedulable: true,
            ..ready('b')
        };
        let found = |nodes: &[NodeFacts]| {
            let shortage = find_shortage(&id_of('a'), &ready('a'), 2, &group, nodes);
            shortage.unwrap().describe()
        };
        assert_eq!(
            found(std::slice::from_ref(&cordoned)),
            "0 of 2 members are usable: node b is cordoned; i-0dddddddddddddddd is Pending"
        );
        let alone = find_shortage(&id_of('a'), &ready('a'), 1, &of(1, &[STANDBY]), &[]);
        assert_eq!(alone.unwrap().describe(), "0 of 1 members are usable");
        assert!(is_usable(Some(&id_of('b')), &ready('a'), &group, &[ready('b')]));
        assert!(!is_usable(Some(&id_of('b')), &ready('a'), &group, &[cordoned]));
        assert!(
            !is_usable(Some(&id_of('f')), &ready('a'), &group, &[])
                && !is_usable(None, &ready('a'), &group, &[])
        );
    }
}
