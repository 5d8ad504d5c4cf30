//! Finds the nodes that carry marks of recycle-eks, and decides whether the sweep may work on them.
//!
//! The steps of a restore are the same for a sweep and for an execution. [`crate::restore::next_step`] decides them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::base::ids::{ExecutionArn, Fence, InstanceId};
use crate::base::names::{
    CLAIM_ANNOTATION, CLAIM_TAG, CORDONED_FOR_ANNOTATION, DRAIN_UNTIL_ANNOTATION, GAVE_UP_TAG, GROUP_TAG,
    KEPT_FOR_LABEL, PROGRESS_ANNOTATION, RESTORE_LOG_TAG, STANDBY_TAG,
};
use crate::cluster::instance::Instance;
use crate::cluster::node::{NodeFacts, draining_taint};
use crate::input::urgency::Urgency;
use crate::records::claim::{Claim, ClaimDecision, Phase, StoredClaim, decide_claim, is_forgotten};
use crate::records::lease::Lease;
use crate::records::owner::Owner;

/// The number of nodes that one sweep works on. Each takes at most 412 history events (44 steps of a restore, a notification).
/// An execution has room for 25,000.
pub const MOST_NODES: usize = 40;
/// Seconds between two sweeps, as in the module's rule.
pub const INTERVAL: i64 = 900;
/// Seconds for which a function may still be at work after its execution was stopped.
/// `evict-pods` has a timeout of 240 seconds, and its answer takes a while to arrive.
pub const LONGEST_CALL: i64 = 300;

/// The prefix of the names of executions that a sweep starts for a member that this installation's hook holds.
pub const BY_HOOK: &str = "hook";
/// The prefix of the names of executions that a sweep starts for a node that an operator has tainted.
pub const BY_REQUEST: &str = "request";

/// Returns the cause that distinguishes the execution that a sweep starts for a node from earlier ones.
/// It consists of the quarter of an hour, and of the previous execution, if the new one resumes its work.
/// All sweeps of a quarter of an hour find the same cause. So an execution that cannot begin is not started again by the sweep
/// that its own end triggers.
pub fn find_cause(previous: Option<&Claim>, now: Timestamp) -> String {
    let quarter = now.as_second().div_euclid(INTERVAL);
    previous.map_or_else(
        || quarter.to_string(),
        |previous| format!("{quarter} {}", previous.fence.execution),
    )
}

/// Checks whether the execution that held this claim has drained the member and completed its work.
/// In that case the group waits for another tool's hook.
pub fn is_done_with(previous: &Claim, owner: Option<&Owner>) -> bool {
    previous.phase == Phase::Disposing && owner.is_some_and(|owner| owner.status == "SUCCEEDED")
}

/// Checks whether a sweep has started this execution for an operator's taint. The taint counts as answered, whatever the outcome.
pub fn is_by_request(execution: &ExecutionArn) -> bool {
    let name = execution.as_str().rsplit(':').next();
    let rest = name.and_then(|name| name.strip_prefix(BY_REQUEST));
    rest.is_some_and(|rest| rest.starts_with("-i-"))
}

/// The tags that mark an instance because of the instance itself, not because of another one.
pub const OWN_TAGS: [&str; 5] = [CLAIM_TAG, GROUP_TAG, STANDBY_TAG, RESTORE_LOG_TAG, GAVE_UP_TAG];

/// Returns every instance for which something of recycle-eks is left in a Lease, on a Node or on an instance, or that an operator's taint
/// requests.
/// `instances` are instances of this cluster. An id that a mark on a Node names counts unless it is `foreign`, of another cluster.
/// `recycle-eks:stopped`, `recycle-eks:detached` with the taint of that name, and `recycle-eks/replacement-for` do not count:
/// they are results.
pub fn find_leftovers(
    nodes: &[NodeFacts],
    leases: &[Lease],
    instances: &[Instance],
    foreign: &BTreeSet<InstanceId>,
) -> BTreeSet<InstanceId> {
    let marked_nodes = nodes.iter().filter(|node| is_marked(node));
    let mut leftovers: BTreeSet<InstanceId> = marked_nodes.filter_map(|node| node.instance.clone()).collect();
    leftovers.extend(leases.iter().map(|lease| lease.instance.clone()));
    leftovers.extend(named(nodes).filter(|id| !foreign.contains(id)));
    let is_marked = |instance: &&Instance| OWN_TAGS.iter().any(|tag| instance.tags.contains_key(*tag));
    let living = instances.iter().filter(|instance| !instance.is_gone());
    leftovers.extend(living.filter(is_marked).map(|instance| instance.id.clone()));
    leftovers
}

/// Returns the instances that marks on Nodes name, and that have no Node and are not among `instances`.
/// A kubelet writes its own Node, so such an id may be of any instance.
pub fn find_named(nodes: &[NodeFacts], instances: &[Instance]) -> BTreeSet<InstanceId> {
    let of_nodes = nodes.iter().filter_map(|node| node.instance.as_ref());
    let known: BTreeSet<&InstanceId> = of_nodes
        .chain(instances.iter().map(|instance| &instance.id))
        .collect();
    named(nodes).filter(|id| !known.contains(id)).collect()
}

/// Returns the instances for which other instances' Nodes were cordoned or protected from Cluster Autoscaler.
fn named(nodes: &[NodeFacts]) -> impl Iterator<Item = InstanceId> {
    let values = nodes.iter().flat_map(|node| {
        [
            node.annotations.get(CORDONED_FOR_ANNOTATION),
            node.labels.get(KEPT_FOR_LABEL),
        ]
    });
    values.flatten().filter_map(|value| value.parse().ok())
}

fn is_marked(node: &NodeFacts) -> bool {
    // An end that came too late for its drain would end the next one.
    let annotations = [CLAIM_ANNOTATION, PROGRESS_ANNOTATION, DRAIN_UNTIL_ANNOTATION];
    annotations.iter().any(|key| node.annotations.contains_key(*key))
        || node.is_requested()
        // A taint whose value or effect differs was changed by an operator or another tool, and stays.
        || node.instance.as_ref().is_some_and(|instance| node.taints.contains(&draining_taint(instance)))
}

/// Checks whether the instance was stopped or detached as asked.
/// If so, the sweep removes the marks of the execution, and an operator has nothing to do.
pub fn is_result(node: Option<&NodeFacts>, instance: &Instance, lifecycle_state: Option<&str>) -> bool {
    let is_draining = node.is_some_and(|node| node.taints.contains(&draining_taint(&instance.id)));
    let is_detached = instance.was_detached() && lifecycle_state.is_none();
    let is_stopped = instance.was_stopped() && matches!(lifecycle_state, None | Some("Standby"));
    is_stopped || (is_detached && !is_draining)
}

/// Returns the instances that this sweep works on.
/// Unclaimed members that this installation's hook holds come first, because heartbeats are due.
/// If there are too many instances, the next sweep begins where this one ends.
pub fn choose_instances(
    leftovers: BTreeSet<InstanceId>,
    held: &BTreeSet<InstanceId>,
    now: Timestamp,
) -> Vec<InstanceId> {
    let unclaimed = held.difference(&leftovers).cloned().collect();
    let mut chosen = rotate(unclaimed, now);
    chosen.extend(rotate(leftovers.into_iter().collect(), now));
    chosen.truncate(MOST_NODES);
    chosen
}

fn rotate(mut ids: Vec<InstanceId>, now: Timestamp) -> Vec<InstanceId> {
    if ids.len() > MOST_NODES {
        let sweeps = usize::try_from(now.as_second() / INTERVAL).unwrap_or_default();
        let first = sweeps.wrapping_mul(MOST_NODES) % ids.len();
        ids.rotate_left(first);
    }
    ids
}

/// The decision of a sweep about the claim of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftoverDecision {
    /// This sweep holds the claim: restore the node.
    Restore,
    /// No execution works on the node: make the claim this sweep's. Holds the claim that was there, if there was one.
    Claim(Option<Claim>),
    /// Ask Step Functions whether the claim's owner still runs.
    AskOwner(ExecutionArn),
    /// The owner has ended, but one of its functions may still be at work for this many seconds.
    Wait(u32),
    /// An execution works on the node, or the claim belongs to another installation or version. The text says which.
    Leave(String),
    /// The annotation is not a claim. An operator has to remove it.
    Unreadable(String),
}

/// Decides what a sweep does about a claim. `owner` is the answer of Step Functions when it was asked.
/// An owner that has ended at an unknown time counts as ended at `sweep_began`, the start of this sweep.
/// That bounds the wait for its functions. For an owner that Step Functions no longer knows there is no wait.
pub fn judge_leftover(
    found: Option<&StoredClaim>,
    me: &Fence,
    owner: Option<&Owner>,
    sweep_began: Option<Timestamp>,
    now: Timestamp,
) -> LeftoverDecision {
    match decide_claim(found, me, Urgency::Planned, owner, now) {
        ClaimDecision::Take => LeftoverDecision::Claim(None),
        ClaimDecision::AlreadyHeld(_) => LeftoverDecision::Restore,
        ClaimDecision::Resume(claim) => {
            let ended_at = owner
                .filter(|owner| !is_forgotten(&owner.status))
                .and_then(|owner| owner.ended_at.or(sweep_began));
            let ended_for = ended_at.map_or(i64::MAX, |at| now.duration_since(at).as_secs());
            match u32::try_from(LONGEST_CALL.saturating_sub(ended_for)) {
                Ok(seconds) if seconds > 0 => LeftoverDecision::Wait(seconds),
                Ok(_) | Err(_) => LeftoverDecision::Claim(Some(claim)),
            }
        }
        ClaimDecision::AskOwner(owner) => LeftoverDecision::AskOwner(owner),
        // A sweep has the lowest urgency, so that no claim is less urgent.
        ClaimDecision::TakeOver(claim) => {
            LeftoverDecision::Leave(format!("{} works on this node", claim.fence.execution))
        }
        ClaimDecision::Duplicate(reason) => LeftoverDecision::Leave(reason),
        // Another installation, or a newer version, may be at work under this claim. Its own sweep works on its nodes.
        ClaimDecision::Foreign(what) => LeftoverDecision::Leave(format!("its claim is {what}")),
        ClaimDecision::Unreadable(text) => LeftoverDecision::Unreadable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{
        DETACHED_TAG, DRAINING_TAINT, PROTECTED_FOR_TAG, RECORD_ANNOTATION, REPLACEMENT_FOR_ANNOTATION,
        REQUEST_TAINT, STOPPED_TAG,
    };
    use crate::cluster::node::detached_taint;
    use crate::fixtures::{ARN, at, claim, fence, id, instance, leased, leases, node, taint};
    use crate::input::start::Start;

    const OTHER: &str = "i-0dddddddddddddddd";

    fn with_annotation(key: &str, value: &str) -> NodeFacts {
        NodeFacts {
            annotations: [(key.to_owned(), value.to_owned())].into(),
            ..node("a")
        }
    }

    fn with_tag(key: &str, value: &str) -> Instance {
        Instance {
            tags: [(key.to_owned(), value.to_owned())].into(),
            ..instance()
        }
    }

    fn found(nodes: &[NodeFacts], instances: &[Instance]) -> Vec<String> {
        let ids = find_leftovers(nodes, &leases(nodes), instances, &BTreeSet::new());
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_times_match_the_terraform_module() {
        let rule = format!("\"rate({} minutes)\"", INTERVAL / 60);
        assert!(
            include_str!("../../../../terraform/sweep.tf").contains(&rule),
            "{rule}"
        );
        let timeouts: Vec<i64> = include_str!("../../../../terraform/functions.tf")
            .split("timeout = ")
            .filter_map(|rest| rest.split([' ', '\n']).next()?.parse().ok())
            .collect();
        assert!(!timeouts.is_empty());
        assert!(
            timeouts.iter().all(|seconds| *seconds < LONGEST_CALL),
            "{timeouts:?}"
        );
    }

    #[test]
    fn marks_on_a_node_name_its_instance() {
        let itself = node("a").instance.unwrap().to_string();
        for key in [CLAIM_ANNOTATION, PROGRESS_ANNOTATION, DRAIN_UNTIL_ANNOTATION] {
            assert_eq!(
                found(&[with_annotation(key, "{}")], &[]),
                [itself.as_str()],
                "{key}"
            );
        }
        let recorded = leased(node("a"), [(RECORD_ANNOTATION, "{}")]);
        let tainted = NodeFacts {
            taints: vec![draining_taint(&id(crate::fixtures::OLD))],
            ..node("a")
        };
        let requested = NodeFacts {
            taints: vec![taint(REQUEST_TAINT, "PreferNoSchedule")],
            ..node("a")
        };
        for node in [recorded, tainted, requested] {
            assert_eq!(found(&[node], &[]), [itself.as_str()]);
        }
        let changed = NodeFacts {
            taints: vec![taint(DRAINING_TAINT, "NoSchedule")],
            ..node("a")
        };
        assert!(found(&[node("a"), changed], &[]).is_empty());
    }

    #[test]
    fn marks_on_an_instance_name_it_unless_it_is_gone() {
        for key in OWN_TAGS {
            assert_eq!(found(&[], &[with_tag(key, "x")]), [crate::fixtures::OLD], "{key}");
            let gone = Instance {
                state: "terminated".to_owned(),
                ..with_tag(key, "x")
            };
            assert!(found(&[], &[gone]).is_empty(), "{key}");
        }
    }

    #[test]
    fn marks_on_other_members_name_the_instance_that_they_are_for() {
        let cordoned = || with_annotation(CORDONED_FOR_ANNOTATION, OTHER);
        let kept = || NodeFacts {
            labels: [(KEPT_FOR_LABEL.to_owned(), OTHER.to_owned())].into(),
            ..node("a")
        };
        let other = || Instance {
            id: id(OTHER),
            ..instance()
        };
        let other_node = || NodeFacts {
            instance: Some(id(OTHER)),
            ..node("b")
        };
        for marked in [cordoned, kept] {
            assert_eq!(found(&[marked()], &[other()]), [OTHER]);
            assert_eq!(found(&[marked(), other_node()], &[]), [OTHER]);
        }
        assert!(found(&[with_annotation(CORDONED_FOR_ANNOTATION, "no id")], &[]).is_empty());
    }

    #[test]
    fn an_instance_that_is_not_of_this_cluster_is_not_followed() {
        let nodes = [with_annotation(CORDONED_FOR_ANNOTATION, OTHER)];
        let named = find_named(&nodes, &[]);
        assert_eq!(named, [id(OTHER)].into());
        assert!(find_leftovers(&nodes, &[], &[], &named).is_empty());
        assert_eq!(
            found(&nodes, &[]),
            [OTHER],
            "EC2 no longer knows it, and its mark is left"
        );
        assert!(found(&[], &[with_tag(PROTECTED_FOR_TAG, OTHER)]).is_empty());
    }

    #[test]
    fn only_executions_named_for_a_request_answer_it() {
        let arn = |name: &str| ARN.replace("run-1", name).parse().unwrap();
        let started = Start::new(BY_REQUEST, &id(OTHER), "a sweep");
        assert!(is_by_request(&arn(&started.name)));
        for name in [
            Start::new(BY_HOOK, &id(OTHER), "a sweep").name.as_str(),
            "request",
            "requested-i-1",
            "run-1",
        ] {
            assert!(!is_by_request(&arn(name)), "{name}");
        }
    }

    #[test]
    fn results_are_not_leftovers() {
        let node = with_annotation(REPLACEMENT_FOR_ANNOTATION, OTHER);
        let detached = NodeFacts {
            taints: vec![detached_taint(&id(crate::fixtures::OLD))],
            ..crate::fixtures::node("b")
        };
        let tags = [STOPPED_TAG, DETACHED_TAG].map(|tag| with_tag(tag, "2027-01-01T00:00:00Z"));
        assert!(found(&[node, detached], &tags).is_empty());
    }

    #[test]
    fn a_result_is_stopped_or_detached_as_its_tag_says() {
        let draining = NodeFacts {
            taints: vec![draining_taint(&id(crate::fixtures::OLD))],
            ..node("a")
        };
        let cases = [
            (STOPPED_TAG, "stopped", Some("Standby"), None, true),
            (STOPPED_TAG, "stopped", Some("Standby"), Some(&draining), true),
            (STOPPED_TAG, "running", Some("Standby"), None, true),
            (STOPPED_TAG, "running", Some("InService"), None, false),
            (DETACHED_TAG, "running", None, None, true),
            (DETACHED_TAG, "running", None, Some(&draining), false),
            (DETACHED_TAG, "running", Some("InService"), None, false),
            (STANDBY_TAG, "stopped", Some("Standby"), None, false),
        ];
        for (tag, state, lifecycle_state, node, expected) in cases {
            let instance = Instance {
                state: state.to_owned(),
                ..with_tag(tag, "2027-01-01T00:00:00Z")
            };
            assert_eq!(
                is_result(node, &instance, lifecycle_state),
                expected,
                "{tag} {state} {lifecycle_state:?}"
            );
        }
    }

    #[test]
    fn successive_sweeps_cover_more_nodes_than_one_sweep_can() {
        let ids: BTreeSet<InstanceId> = (0..100).map(|n| id(&format!("i-{n:017x}"))).collect();
        let mut seen = BTreeSet::new();
        for sweep in 0..3 {
            let chosen = choose_instances(ids.clone(), &BTreeSet::new(), at(sweep * INTERVAL));
            assert_eq!(chosen.len(), MOST_NODES);
            seen.extend(chosen);
        }
        assert_eq!(seen, ids);
        let few: BTreeSet<InstanceId> = ids.into_iter().take(3).collect();
        assert_eq!(
            choose_instances(few.clone(), &BTreeSet::new(), at(INTERVAL)),
            few.into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn unclaimed_members_that_a_hook_holds_come_first() {
        let ids = |from: u32, to: u32| -> BTreeSet<InstanceId> {
            (from..to).map(|n| id(&format!("i-{n:017x}"))).collect()
        };
        let (leftovers, held) = (ids(0, 100), ids(90, 130));
        let chosen = choose_instances(leftovers, &held, at(0));
        assert_eq!(chosen.len(), MOST_NODES);
        let unclaimed = ids(100, 130);
        assert!(
            chosen.iter().take(30).all(|id| unclaimed.contains(id)),
            "{chosen:?}"
        );
        let chosen = choose_instances(ids(0, 3), &ids(1, 5), at(0));
        assert_eq!(chosen.into_iter().collect::<BTreeSet<_>>(), ids(0, 5));
    }

    #[test]
    fn sweeps_start_one_execution_per_quarter_of_an_hour_and_per_ended_execution() {
        let quarter = |seconds| find_cause(None, at(seconds));
        assert_eq!(quarter(0), quarter(INTERVAL - 1));
        assert_ne!(quarter(0), quarter(INTERVAL));
        let previous = claim(Phase::Draining);
        let after = |seconds| find_cause(Some(&previous), at(seconds));
        assert_ne!(after(0), quarter(0));
        assert_eq!(after(0), after(INTERVAL - 1));
    }

    #[test]
    fn an_execution_that_succeeded_after_the_drain_leaves_nothing_to_do() {
        let owner = |status: &str| Owner {
            execution: ARN.parse().unwrap(),
            status: status.to_owned(),
            ended_at: None,
        };
        for (phase, owner, expected) in [
            (Phase::Disposing, Some(owner("SUCCEEDED")), true),
            (Phase::Disposing, Some(owner("ABORTED")), false),
            (Phase::Disposing, None, false),
            (Phase::Draining, Some(owner("SUCCEEDED")), false),
        ] {
            assert_eq!(
                is_done_with(&claim(phase), owner.as_ref()),
                expected,
                "{phase:?} {owner:?}"
            );
        }
    }

    #[test]
    fn a_claim_is_taken_over_only_some_time_after_its_owner_has_ended() {
        let me: Fence = format!("{}#0", ARN.replace("run-1", "sweep-1")).parse().unwrap();
        let theirs = claim(Phase::Draining);
        let mine = Claim {
            fence: me.clone(),
            ..theirs.clone()
        };
        let owner = |status: &str, ended_at: Option<i64>| Owner {
            execution: fence(0).execution,
            status: status.to_owned(),
            ended_at: ended_at.map(at),
        };
        let taken = LeftoverDecision::Claim(Some(theirs.clone()));
        let known = |claim: &Claim| Some(StoredClaim::Known(claim.clone()));
        let now = 1_000;
        let cases = [
            ("no claim", None, None, LeftoverDecision::Claim(None)),
            ("its own", known(&mine), None, LeftoverDecision::Restore),
            (
                "the owner was not asked about",
                known(&theirs),
                None,
                LeftoverDecision::AskOwner(fence(0).execution),
            ),
            (
                "ended long ago",
                known(&theirs),
                Some(owner("ABORTED", Some(now - LONGEST_CALL))),
                taken.clone(),
            ),
            (
                "ended just now",
                known(&theirs),
                Some(owner("ABORTED", Some(now - 40))),
                LeftoverDecision::Wait(260),
            ),
            (
                "ended, and no time was given",
                known(&theirs),
                Some(owner("ABORTED", None)),
                LeftoverDecision::Wait(200),
            ),
            (
                "forgotten by Step Functions",
                known(&theirs),
                Some(owner("Sfn.ExecutionDoesNotExistException", None)),
                taken,
            ),
            (
                "another tool's text",
                Some(StoredClaim::Unreadable("x".to_owned())),
                None,
                LeftoverDecision::Unreadable("x".to_owned()),
            ),
        ];
        for (name, found, owner, expected) in cases {
            assert_eq!(
                judge_leftover(found.as_ref(), &me, owner.as_ref(), Some(at(now - 100)), at(now)),
                expected,
                "{name}"
            );
        }
        for status in ["RUNNING", "Sfn.AccessDeniedException"] {
            let decision = judge_leftover(
                known(&theirs).as_ref(),
                &me,
                Some(&owner(status, None)),
                Some(at(now)),
                at(now),
            );
            assert!(
                matches!(decision, LeftoverDecision::Leave(_)),
                "{status}: {decision:?}"
            );
        }
        let newer = judge_leftover(Some(&StoredClaim::Newer(9)), &me, None, Some(at(now)), at(now));
        assert!(matches!(newer, LeftoverDecision::Leave(_)), "{newer:?}");
    }
}
