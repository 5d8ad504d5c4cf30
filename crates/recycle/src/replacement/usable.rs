//! Checks whether the replacement has arrived and is usable.
//!
//! Auto Scaling does not report which launch belongs to which EnterStandby. A replacement is therefore a new member that recycle-eks has
//! reserved with an annotation.

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::base::poll::next_wait;
use crate::cluster::group::{Group, Member};
use crate::cluster::node::NodeFacts;
use crate::replacement::defect::{find_defect, list_at_most_three, reserved_for};
use crate::replacement::shortage::Shortage;

/// A member that came after EnterStandby, with its Node if it has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub member: Member,
    pub node: Option<NodeFacts>,
}

impl Candidate {
    /// Whether the member is neither leaving the group again nor in Standby.
    pub fn is_staying(&self) -> bool {
        !self.member.is_leaving() && !self.member.is_in_standby()
    }

    pub fn reserved_for(&self) -> Option<&str> {
        reserved_for(self.node.as_ref()?)
    }
}

/// The next step of `standby-node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplacementVerdict {
    /// This candidate is usable and not yet reserved: reserve it.
    Reserve(InstanceId),
    /// The reserved candidate is usable.
    Ready(InstanceId),
    /// No candidate is usable yet: the reason, and the seconds to wait.
    Wait { reason: String, wait_seconds: u32 },
    /// The time is over; the text says what was missing.
    TimedOut(String),
}

/// Returns the members that are not in `members_before`, the members before EnterStandby, in the order of the group's list.
pub fn new_members<'a>(group: &'a Group, members_before: &[InstanceId]) -> Vec<&'a Member> {
    let is_new = |member: &&Member| !members_before.contains(&member.instance);
    group.members.iter().filter(is_new).collect()
}

/// The number of checks for another replacement of a drained node. The execution's history has room for few more.
pub const LOOKS_OF_DRAINED: u32 = 4;

/// The time that an execution has waited for a replacement, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The time at which the wait began.
    pub since: Timestamp,
    pub now: Timestamp,
    /// Seconds after which the execution gives up.
    pub timeout: u32,
}

impl Patience {
    fn waited(&self) -> i64 {
        self.now.duration_since(self.since).as_secs()
    }

    fn left(&self) -> i64 {
        i64::from(self.timeout) - self.waited()
    }

    /// Returns the seconds to wait before the next check for the first replacement, or none if the time is over.
    fn next_wait(&self) -> Option<u32> {
        (self.left() > 0).then(|| next_wait(self.waited(), self.left(), 0, None))
    }

    /// Returns the seconds to wait before the next check for a second replacement, for which a drained node waits.
    /// None if the time is over.
    pub fn next_wait_of_drained(&self) -> Option<u32> {
        let left = u32::try_from(self.left()).ok().filter(|left| *left > 0)?;
        Some(left.min(self.timeout.div_ceil(LOOKS_OF_DRAINED)))
    }
}

/// Decides on the replacement of `old`, which is in `group`.
///
/// A candidate that is reserved for `old` is awaited until it is usable. If it is leaving or gone, another one is reserved.
/// As long as the group is short of members, a candidate may be reserved, but the replacement is not ready.
pub fn judge_replacement(
    old: &InstanceId,
    old_node: &NodeFacts,
    group: Option<&Group>,
    candidates: &[Candidate],
    shortage: Option<&Shortage>,
    patience: Patience,
) -> ReplacementVerdict {
    let is_reserved = |candidate: &&Candidate| candidate.reserved_for() == Some(old.as_str());
    let is_considered = |candidate: &&Candidate| candidate.member.instance != *old && candidate.is_staying();
    let mut considered: Vec<&Candidate> = candidates.iter().filter(is_considered).collect();
    if considered.iter().any(is_reserved) {
        considered.retain(is_reserved);
    }
    let mut missing = Vec::new();
    for candidate in considered {
        match find_what_is_missing(candidate, old, old_node) {
            None if candidate.reserved_for().is_some() => match shortage {
                Some(shortage) => missing.push(shortage.describe()),
                None => return ReplacementVerdict::Ready(candidate.member.instance.clone()),
            },
            None => return ReplacementVerdict::Reserve(candidate.member.instance.clone()),
            Some(text) => missing.push(text),
        }
    }
    let is_launched = !missing.is_empty();
    let reason = if is_launched {
        list_at_most_three(&missing)
    } else {
        "the group has no new member yet".to_owned()
    };
    if let Some(wait_seconds) = patience.next_wait() {
        return ReplacementVerdict::Wait { reason, wait_seconds };
    }
    let waited = patience.waited();
    let full = group.filter(|group| !is_launched && group.desired >= group.max);
    ReplacementVerdict::TimedOut(match full {
        Some(Group { name, max, .. }) => format!(
            "no instance was launched in {waited} seconds; group {name} is at its maximum of {max}, where AWS may launch no replacement for a \
             member in Standby. If the group's scaling activities show no other cause, raise its maximum by one. For other nodes of \
             this group, set replacement \"after\""
        ),
        None => format!("no usable replacement after {waited} seconds: {reason}"),
    })
}

/// Describes what a candidate still lacks. None if it is usable and either free or reserved for `old`.
fn find_what_is_missing(candidate: &Candidate, old: &InstanceId, old_node: &NodeFacts) -> Option<String> {
    let Candidate { member, node } = candidate;
    let other = candidate.reserved_for().filter(|other| *other != old.as_str());
    if let (Some(other), Some(node)) = (other, node)
        && member.is_in_service()
    {
        return Some(format!("node {} is the replacement of {other}", node.name));
    }
    find_defect(member, node.as_ref(), old_node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OLD, OTHER, at, group, id, member, node, strings, taint};

    fn old() -> NodeFacts {
        NodeFacts {
            taints: vec![
                taint("team", "NoSchedule"),
                taint("recycle-eks/draining", "NoSchedule"),
            ],
            extended_resources: vec!["nvidia.com/gpu".to_owned()],
            ..node("old")
        }
    }

    /// A new member that could replace the old node at once.
    fn fresh() -> NodeFacts {
        NodeFacts {
            taints: vec![taint("team", "NoSchedule")],
            ..NodeFacts {
                taints: vec![],
                ..old()
            }
        }
    }

    fn reserved(node: NodeFacts, owner: &str) -> NodeFacts {
        NodeFacts {
            annotations: strings([("recycle-eks/replacement-for", owner)]),
            ..node
        }
    }

    fn candidate(instance: &str, lifecycle_state: &str, node: Option<NodeFacts>) -> Candidate {
        Candidate {
            member: member(instance, lifecycle_state),
            node,
        }
    }

    fn in_service(node: NodeFacts) -> Vec<Candidate> {
        vec![candidate(NEW, "InService", Some(node))]
    }

    fn within(since: i64, now: i64) -> Patience {
        Patience {
            since: at(since),
            now: at(now),
            timeout: 840,
        }
    }

    fn judge(candidates: &[Candidate], now: i64) -> ReplacementVerdict {
        judge_replacement(&id(OLD), &old(), Some(&group()), candidates, None, within(0, now))
    }

    #[test]
    fn the_reason_to_wait_is_named() {
        let tainted = |key, effect| NodeFacts {
            taints: vec![taint(key, effect)],
            ..fresh()
        };
        let cases = [
            ("no new member", vec![], "the group has no new member yet"),
            (
                "it is launching",
                vec![candidate(NEW, "Pending", None)],
                "i-0bbbbbbbbbbbbbbbb is Pending",
            ),
            (
                "its launch hook waits",
                vec![candidate(NEW, "Pending:Wait", Some(fresh()))],
                "i-0bbbbbbbbbbbbbbbb is Pending:Wait",
            ),
            (
                "no Node",
                vec![candidate(NEW, "InService", None)],
                "i-0bbbbbbbbbbbbbbbb has not registered as a Node",
            ),
            (
                "not Ready",
                in_service(NodeFacts {
                    ready: false,
                    ..fresh()
                }),
                "node old is not Ready",
            ),
            (
                "cordoned",
                in_service(NodeFacts {
                    unschedulable: true,
                    ..fresh()
                }),
                "node old is cordoned",
            ),
            (
                "a startup taint",
                in_service(tainted("node.cilium.io/agent-not-ready", "NoExecute")),
                "node old still has the taint node.cilium.io/agent-not-ready:NoExecute",
            ),
            (
                "the same key with another effect",
                in_service(tainted("team", "NoExecute")),
                "node old still has the taint team:NoExecute",
            ),
            (
                "Kubernetes' own taint",
                in_service(tainted("node.kubernetes.io/not-ready", "NoSchedule")),
                "node old still has the taint node.kubernetes.io/not-ready:NoSchedule",
            ),
            (
                "it is itself being drained",
                in_service(tainted("recycle-eks/draining", "NoSchedule")),
                "node old still has the taint recycle-eks/draining:NoSchedule",
            ),
            (
                "no GPU yet",
                in_service(NodeFacts {
                    extended_resources: vec![],
                    ..fresh()
                }),
                "node old does not offer nvidia.com/gpu yet",
            ),
            (
                "it is the replacement of another node",
                in_service(reserved(fresh(), OTHER)),
                "node old is the replacement of i-0cccccccccccccccc",
            ),
            (
                "a new member that is leaving again does not count",
                vec![candidate(NEW, "Terminating:Wait", Some(fresh()))],
                "the group has no new member yet",
            ),
            (
                "both of two are named",
                vec![candidate(NEW, "Pending", None), candidate(OTHER, "Pending", None)],
                "i-0bbbbbbbbbbbbbbbb is Pending; i-0cccccccccccccccc is Pending",
            ),
            (
                "three of many are named",
                vec![candidate(NEW, "Pending", None); 5],
                "i-0bbbbbbbbbbbbbbbb is Pending; and 2 more",
            ),
            (
                "the reserved one is awaited although another is usable",
                vec![
                    candidate(OTHER, "InService", Some(fresh())),
                    candidate(
                        NEW,
                        "InService",
                        Some(reserved(
                            NodeFacts {
                                ready: false,
                                ..fresh()
                            },
                            OLD,
                        )),
                    ),
                ],
                "node old is not Ready",
            ),
        ];
        for (name, candidates, expected) in cases {
            let ReplacementVerdict::Wait { reason, wait_seconds } = judge(&candidates, 60) else {
                panic!("{name}")
            };
            assert!(reason.ends_with(expected), "{name}: {reason}");
            assert_eq!(wait_seconds, 30, "{name}");
        }
    }

    #[test]
    fn a_usable_new_member_is_reserved_and_then_ready() {
        let new = id(NEW);
        let prefer_no = NodeFacts {
            taints: vec![taint("soft", "PreferNoSchedule")],
            ..fresh()
        };
        let gone = candidate(OTHER, "Terminating", Some(reserved(fresh(), OLD)));
        let cases = [
            (
                "it is free",
                in_service(fresh()),
                ReplacementVerdict::Reserve(new.clone()),
            ),
            (
                "it has more than asked",
                in_service(prefer_no),
                ReplacementVerdict::Reserve(new.clone()),
            ),
            (
                "it is reserved",
                in_service(reserved(fresh(), OLD)),
                ReplacementVerdict::Ready(new.clone()),
            ),
            (
                "the replacement of another node is passed over",
                vec![
                    candidate(OTHER, "InService", Some(reserved(fresh(), "i-0dddddddddddddddd"))),
                    candidate(NEW, "InService", Some(fresh())),
                ],
                ReplacementVerdict::Reserve(new.clone()),
            ),
            (
                "if the reserved one leaves, another is reserved",
                vec![gone, candidate(NEW, "InService", Some(fresh()))],
                ReplacementVerdict::Reserve(new),
            ),
        ];
        for (name, candidates, expected) in cases {
            assert_eq!(judge(&candidates, 60), expected, "{name}");
            assert_eq!(
                judge(&candidates, 9_999),
                expected,
                "{name}, although the time is over"
            );
        }
    }

    #[test]
    fn the_wait_ends_at_the_timeout_with_the_last_reason() {
        let pending = [candidate(NEW, "Pending", None)];
        assert!(matches!(
            judge(&pending, 830),
            ReplacementVerdict::Wait { wait_seconds: 10, .. }
        ));
        assert_eq!(
            judge(&pending, 840),
            ReplacementVerdict::TimedOut(
                "no usable replacement after 840 seconds: i-0bbbbbbbbbbbbbbbb is Pending".to_owned()
            )
        );
    }

    #[test]
    fn a_missing_launch_at_the_maximum_has_its_own_advice() {
        let judge = |max, candidates: &[Candidate]| {
            let group = Group { max, ..group() };
            judge_replacement(&id(OLD), &old(), Some(&group), candidates, None, within(0, 840))
        };
        let pending = [candidate(NEW, "Pending", None)];
        for (max, candidates, expected) in [
            (
                2,
                [].as_slice(),
                "group workers is at its maximum of 2, where AWS may launch no replacement",
            ),
            (3, [].as_slice(), "the group has no new member yet"),
            (2, pending.as_slice(), "i-0bbbbbbbbbbbbbbbb is Pending"),
        ] {
            let ReplacementVerdict::TimedOut(text) = judge(max, candidates) else {
                panic!("{expected}")
            };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn new_members_were_not_in_the_group_before() {
        let mut group = group();
        group.members.push(member(NEW, "Pending"));
        let found: Vec<InstanceId> = new_members(&group, &[id(OLD), id(OTHER)])
            .iter()
            .map(|member| member.instance.clone())
            .collect();
        assert_eq!(found, [id(NEW)]);
    }

    #[test]
    fn a_drained_node_waits_for_a_part_of_the_time_and_not_beyond_it() {
        let after = |seconds: i64| Patience {
            since: at(0),
            now: at(seconds),
            timeout: 840,
        };
        let part = 840_u32.div_ceil(LOOKS_OF_DRAINED);
        for (seconds, wait) in [(0, Some(part)), (839, Some(1)), (840, None), (841, None)] {
            assert_eq!(after(seconds).next_wait_of_drained(), wait, "{seconds}");
        }
    }
}
