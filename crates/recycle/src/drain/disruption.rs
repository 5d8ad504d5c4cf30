//! Judges changes from outside while a node is drained: conditions that pre-flight would have refused, and what operators and other
//! controllers do to the member.
//!
//! Most of these changes are only reported, because to stop half-way would not help. [`DrainValidity`] says which of them end a drain.

use crate::base::ids::InstanceId;
use crate::claim::obstacle::{Obstacle, Refusal};
use crate::cluster::autoscaler::{Remover, describe_removal, find_remover};
use crate::cluster::group::{Group, Member};
use crate::cluster::instance::describe_instance;
use crate::cluster::node::NodeFacts;
use crate::cluster::node_group::NodeGroup;
use crate::cluster::refresh::{Refresh, StandbyInstances};
use crate::input::path::RecyclePath;
use crate::records::node_record::Record;

/// The facts of one check, as far as they could be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionFacts<'a> {
    pub id: &'a InstanceId,
    pub path: RecyclePath,
    pub node: &'a NodeFacts,
    /// The node record: the state that the execution found.
    pub record: &'a Record,
    pub group: &'a Group,
    pub refresh: Option<&'a Refresh>,
    /// The EKS managed node group that the group belongs to.
    pub node_group: Option<&'a NodeGroup>,
    /// Whether the input allows to recycle a node that is protected from scale-in.
    pub is_protection_meant: bool,
}

/// Whether the drain still makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainValidity {
    /// The drain goes on. That includes a member that its group terminates and another tool's hook holds:
    /// its pods run as long as its node is Ready.
    Goes,
    /// An operator or another tool has brought the node back into service, or has taken it out of its group; one sentence.
    TakenAway(String),
}

pub fn judge_drain_validity(facts: &DisruptionFacts<'_>) -> DrainValidity {
    // The group is terminating the member, and waits for this installation's hook.
    if facts.path == RecyclePath::Hook {
        return DrainValidity::Goes;
    }
    let taken = |what: &str| {
        let subject = describe_instance(facts.id, Some(&facts.node.name));
        DrainValidity::TakenAway(format!(
            "{subject} {what} group {}, which recycle-eks did not do",
            facts.group.name
        ))
    };
    let Some(lifecycle_state) = facts.group.state_of(facts.id) else {
        return taken("has left its");
    };
    // ExitStandby leads through Pending.
    let is_back = lifecycle_state == "InService" || lifecycle_state.starts_with("Pending");
    let is_moved = match facts.path {
        RecyclePath::Before => is_back,
        RecyclePath::Surge => lifecycle_state.ends_with("Standby"),
        RecyclePath::After | RecyclePath::Hook => false,
    };
    if is_moved || lifecycle_state.starts_with("Detach") {
        taken(&format!("is {lifecycle_state} in its"))
    } else {
        DrainValidity::Goes
    }
}

/// Lists what an operator should know, one sentence each, under the names that pre-flight uses.
pub fn find_remarks(facts: &DisruptionFacts<'_>) -> Vec<Refusal> {
    let name = &facts.group.name;
    let mut remarks = Vec::new();
    if facts.path == RecyclePath::Hook {
        // On the hook path the group terminates the member itself. The state of the group is the cause, not a remark.
        return remarks;
    }
    if let Some(remover) = find_remover(facts.node) {
        let (obstacle, tool, key) = match remover {
            Remover::ClusterAutoscaler(key) => (Obstacle::RemovedByAutoscaler, "Cluster Autoscaler", key),
            Remover::Karpenter(key) => (Obstacle::DisruptedByKarpenter, "Karpenter", key),
        };
        remarks.push(obstacle.because(format!(
            "{tool} is about to remove the node and has set the taint {key}"
        )));
    }
    if let Some(refresh) = facts.refresh {
        remarks.push(Obstacle::InstanceRefresh.because(format!(
            "an instance refresh of group {name} is {}; it {} (StandbyInstances)",
            refresh.status,
            refresh.describe_effect()
        )));
    }
    if let Some(NodeGroup { name, status }) = facts.node_group.filter(|node_group| node_group.is_busy()) {
        remarks.push(Obstacle::ManagedGroupUpdate.because(format!(
            "the EKS managed node group {name} is {status}, so EKS also replaces its nodes"
        )));
    }
    let state = facts.group.state_of(facts.id).unwrap_or_default();
    if state.starts_with("Terminat") {
        remarks.push(Obstacle::Terminating.because(format!(
            "it is {state} in group {name}; its pods run until the instance is terminated"
        )));
    }
    let is_protected = facts.group.is_protected(facts.id);
    if facts.record.protected.contains(facts.id) {
        if !is_protected && state == "InService" {
            remarks.push(Obstacle::ScaleInProtection.because(format!(
                "its protection from scale-in was removed, and recycle-eks does not set it again: group {name} may terminate it with its pods"
            )));
        }
    } else if is_protected && !facts.group.protects_new_members && !facts.is_protection_meant {
        remarks.push(Obstacle::ScaleInProtection.because(
            "it is protected from scale-in now. The restore of another node of its group may have protected it for a while. If an operator \
             wants to keep it, stop the execution, or end the drain with recycle-eks/drain-until",
        ));
    }
    let needed: &[&str] = match facts.path {
        RecyclePath::Before => &["Launch"],
        RecyclePath::After | RecyclePath::Surge | RecyclePath::Hook => &["Launch", "Terminate"],
    };
    let suspended: Vec<&str> = needed
        .iter()
        .copied()
        .filter(|process| facts.group.is_suspended(process))
        .collect();
    if !suspended.is_empty() {
        let suspended = suspended.join(" and ");
        remarks.push(Obstacle::SuspendedProcess.because(format!("group {name} has {suspended} suspended")));
    }
    remarks.extend(find_removed_replacement(facts));
    remarks
}

/// Whether an instance refresh would terminate the member in Standby with its pods.
pub fn is_ended_by_refresh(facts: &DisruptionFacts<'_>) -> bool {
    let member = facts.group.member(facts.id);
    let is_in_standby = member.is_some_and(Member::is_in_standby);
    // A refresh that is being cancelled, or whose instances are all replaced, replaces no more.
    let replaces = |refresh: &Refresh| !["Cancelling", "Baking"].contains(&refresh.status.as_str());
    let ends_it = |refresh: &Refresh| refresh.standby == StandbyInstances::Terminate && replaces(refresh);
    is_in_standby && facts.refresh.is_some_and(ends_it)
}

/// Returns a remark if the replacement that had been accepted is gone.
/// Its place in the group may be gone with it, so that no other replacement comes.
fn find_removed_replacement(facts: &DisruptionFacts<'_>) -> Option<Refusal> {
    let replacement = facts.record.replacement.as_ref()?;
    let member = facts.group.member(replacement);
    let staying = member.filter(|member| !member.is_leaving()).iter().count();
    match describe_removal(facts.group, facts.record, staying) {
        Some(text) => Some(Obstacle::ReplacementRemoved.because(text)),
        None if staying == 0 => Some(Obstacle::ReplacementGone.because(format!(
            "its replacement {replacement} is gone; the node is not disposed of before group {} has another one, and is restored if none \
             comes in time",
            facts.group.name
        ))),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OLD, OTHER, group, id, member, node, taint};

    struct Fixture {
        node: NodeFacts,
        record: Record,
        group: Group,
        refresh: Option<Refresh>,
        node_group: Option<NodeGroup>,
    }

    fn fixture(state: &str) -> Fixture {
        Fixture {
            node: node("old"),
            record: Record {
                replacement: Some(id(NEW)),
                desired_before: Some(2),
                ..Record::default()
            },
            group: Group {
                members: vec![
                    member(OLD, state),
                    member(OTHER, "InService"),
                    member(NEW, "InService"),
                ],
                ..group()
            },
            refresh: None,
            node_group: None,
        }
    }

    impl Fixture {
        fn facts<'a>(&'a self, old: &'a InstanceId, path: RecyclePath) -> DisruptionFacts<'a> {
            DisruptionFacts {
                id: old,
                path,
                node: &self.node,
                record: &self.record,
                group: &self.group,
                refresh: self.refresh.as_ref(),
                node_group: self.node_group.as_ref(),
                is_protection_meant: false,
            }
        }

        fn remarks(&self) -> Vec<&'static str> {
            let found = find_remarks(&self.facts(&id(OLD), RecyclePath::Before));
            found.iter().map(|remark| remark.obstacle.name()).collect()
        }
    }

    #[test]
    fn the_state_of_the_member_decides_whether_the_drain_goes_on() {
        let (goes, taken) = ("goes", "taken away");
        let cases = [
            ("Standby", [goes, goes, taken, goes]),
            ("EnteringStandby", [goes, goes, taken, goes]),
            ("InService", [taken, goes, goes, goes]),
            ("Pending", [taken, goes, goes, goes]),
            ("Terminating:Wait", [goes, goes, goes, goes]),
            ("Detaching", [taken, taken, taken, goes]),
        ];
        for (state, expected) in cases {
            let paths = [
                RecyclePath::Before,
                RecyclePath::After,
                RecyclePath::Surge,
                RecyclePath::Hook,
            ];
            for (path, expected) in paths.into_iter().zip(expected) {
                let validity = match judge_drain_validity(&fixture(state).facts(&id(OLD), path)) {
                    DrainValidity::Goes => goes,
                    DrainValidity::TakenAway(text) => {
                        assert!(text.contains(state), "{text}");
                        assert!(text.contains("which recycle-eks did not do"), "{text}");
                        taken
                    }
                };
                assert_eq!(validity, expected, "{state} {path:?}");
            }
        }
        let unknown = "i-0dddddddddddddddd".parse().unwrap();
        let validity = judge_drain_validity(&fixture("Standby").facts(&unknown, RecyclePath::Before));
        assert!(matches!(validity, DrainValidity::TakenAway(_)), "{validity:?}");
    }

    #[test]
    fn a_removed_protection_of_a_surge_is_reported_and_the_own_one_is_not() {
        let mut fixture = fixture("InService");
        fixture.record.protected = vec![id(OLD)];
        let found = |fixture: &Fixture| -> Vec<String> {
            let remarks = find_remarks(&fixture.facts(&id(OLD), RecyclePath::Surge));
            remarks.iter().map(Refusal::to_string).collect()
        };
        assert_eq!(
            found(&fixture),
            [
                "scale_in_protection: its protection from scale-in was removed, and recycle-eks does not set it again: group workers may \
                 terminate it with its pods"
            ]
        );
        fixture.group.members[0].protected_from_scale_in = true;
        assert!(found(&fixture).is_empty());
        fixture.record.protected.clear();
        assert_eq!(found(&fixture).len(), 1, "another client has protected it");
        let old = id(OLD);
        let meant = DisruptionFacts {
            is_protection_meant: true,
            ..fixture.facts(&old, RecyclePath::Surge)
        };
        assert!(find_remarks(&meant).is_empty(), "the input allows it");
    }

    #[test]
    fn a_member_that_its_group_terminates_is_reported() {
        let mut fixture = fixture("Terminating:Wait");
        fixture.group.members[2].lifecycle_state = "InService".to_owned();
        assert_eq!(fixture.remarks(), ["terminating"]);
        let on_hook_path = find_remarks(&fixture.facts(&id(OLD), RecyclePath::Hook));
        assert!(on_hook_path.is_empty(), "{on_hook_path:?}");
    }

    #[test]
    fn a_refresh_ends_a_member_in_standby_only_if_its_preference_says_so() {
        for (state, status, preference, expected) in [
            ("Standby", "InProgress", Some("Terminate"), true),
            ("EnteringStandby", "Pending", Some("Terminate"), true),
            ("Standby", "RollbackInProgress", Some("Terminate"), true),
            ("Standby", "Cancelling", Some("Terminate"), false),
            ("Standby", "Baking", Some("Terminate"), false),
            ("InService", "InProgress", Some("Terminate"), false),
            ("Standby", "InProgress", Some("Ignore"), false),
            ("Standby", "InProgress", None, false),
        ] {
            let mut fixture = fixture(state);
            fixture.refresh = Refresh::under_way(status, preference);
            let old = id(OLD);
            let is_ended = is_ended_by_refresh(&fixture.facts(&old, RecyclePath::Before));
            assert_eq!(is_ended, expected, "{state} {status} {preference:?}");
        }
        let mut quiet = fixture("Standby");
        quiet.refresh = None;
        assert!(!is_ended_by_refresh(&quiet.facts(&id(OLD), RecyclePath::Before)));
    }

    #[test]
    fn changes_from_outside_are_reported_under_the_names_of_the_refusals() {
        let mut busy = fixture("Standby");
        assert_eq!(busy.remarks(), Vec::<&str>::new());
        busy.refresh = Refresh::under_way("InProgress", None);
        let node_group = |status: &str| {
            Some(NodeGroup {
                name: "blue".to_owned(),
                status: status.to_owned(),
            })
        };
        busy.node_group = node_group("UPDATING");
        busy.node.taints = vec![taint("ToBeDeletedByClusterAutoscaler", "NoSchedule")];
        busy.group.members[0].protected_from_scale_in = true;
        busy.group.suspended = vec![
            "AZRebalance".to_owned(),
            "Terminate".to_owned(),
            "Launch".to_owned(),
        ];
        assert_eq!(
            busy.remarks(),
            [
                "removed_by_autoscaler",
                "instance_refresh",
                "managed_group_update",
                "scale_in_protection",
                "suspended_process"
            ]
        );
        let texts = find_remarks(&busy.facts(&id(OLD), RecyclePath::Before));
        let suspended = texts.last().unwrap().to_string();
        assert!(
            suspended.ends_with("group workers has Launch suspended"),
            "{suspended}"
        );
        let after = find_remarks(&busy.facts(&id(OLD), RecyclePath::After));
        let suspended = after.last().unwrap().to_string();
        assert!(
            suspended.ends_with("has Launch and Terminate suspended"),
            "{suspended}"
        );
        busy.group.protects_new_members = true;
        assert!(!busy.remarks().contains(&"scale_in_protection"));
        busy.node_group = node_group("ACTIVE");
        assert!(!busy.remarks().contains(&"managed_group_update"));
    }

    #[test]
    fn a_replacement_that_is_gone_with_its_place_is_reported() {
        let mut fixture = fixture("Standby");
        fixture.record.desired_before = Some(2);
        fixture.group.desired = 1;
        assert_eq!(fixture.remarks(), Vec::<&str>::new(), "it is there");
        fixture.group.members[2].lifecycle_state = "Terminating".to_owned();
        assert_eq!(fixture.remarks(), ["replacement_removed_by_autoscaler"]);
        fixture.group.desired = 2;
        assert_eq!(
            fixture.remarks(),
            ["replacement_gone"],
            "and its place is still there"
        );
        fixture.group.desired = 1;
        fixture.group.members.remove(2);
        assert_eq!(fixture.remarks(), ["replacement_removed_by_autoscaler"]);
        fixture.record.replacement = None;
        assert_eq!(fixture.remarks(), Vec::<&str>::new());
    }
}
