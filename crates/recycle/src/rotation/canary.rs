//! Checks the first replacement of a group, before more nodes of the group start.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::base::names::EVICTED_ANNOTATION;
use crate::cluster::node::NodeFacts;
use crate::cluster::pod::PodFacts;
use crate::drain::evicted::is_noted;
use crate::rotation::admission::{
    Admission, LONGEST_PENDING, Stop, WaitReason, WaitingNode, comes_after_others,
};
use crate::rotation::attempts::{Begun, describe_awaited};
use crate::rotation::fleet::{Fleet, FleetMember};
use crate::rotation::outdated::{Outdated, OutdatedFacts, Release, is_outdated};

/// The state of the group's first replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canary<'a> {
    /// Two other nodes have begun. The second is taken to have started only after a check of the first replacement.
    Passed,
    /// The first replacement exists and has to be checked.
    Judge {
        first: &'a InstanceId,
        replacement: &'a NodeFacts,
    },
    Await(&'a InstanceId),
    /// No other node has begun. The function has to look up the executions of the earlier nodes.
    Ask,
    First,
}

pub fn find_canary<'a>(waiting_node: &WaitingNode, begun: &'a [Begun]) -> Canary<'a> {
    let others = begun
        .iter()
        .filter(|one| one.instance != waiting_node.instance_id);
    match others.collect::<Vec<_>>().as_slice() {
        [] if waiting_node.index == 0 => Canary::First,
        [] => Canary::Ask,
        [only] => {
            let first = &only.instance;
            let judge = |replacement| Canary::Judge { first, replacement };
            only.replacement.as_ref().map_or(Canary::Await(first), judge)
        }
        [_, _, ..] => Canary::Passed,
    }
}

/// Decides on a wait without a call to Step Functions.
/// A node waits while an execution is working on the group's first node.
/// A node that asks from the beginning also waits at its first check, because the first node is about to be started then.
/// Otherwise a rotation of many groups would make hundreds of calls at one moment.
pub fn check_canary(canary: &Canary<'_>, waiting_node: &WaitingNode, at_once: u32) -> Option<Admission> {
    match canary {
        Canary::Await(first) => Some(Admission::Await(describe_awaited(first))),
        Canary::Ask if waiting_node.waited == 0 && !comes_after_others(waiting_node, at_once) => {
            let reason = "the group's first node is about to start";
            Some(Admission::Wait(WaitReason::Beginning, reason.to_owned()))
        }
        Canary::Ask | Canary::Passed | Canary::Judge { .. } | Canary::First => None,
    }
}

/// Checks whether the first replacement's kubelet is newer than the control plane, and if so stops the group.
pub fn check_kubelet(replacement: &NodeFacts, control_plane: Option<Release>) -> Option<Admission> {
    let kubelet = Release::read(&replacement.kubelet)?;
    let plane = control_plane.filter(|plane| kubelet > *plane)?;
    let name = &replacement.name;
    let why = format!("the replacement {name} has kubelet {kubelet}, but the control plane is {plane}");
    Some(Admission::stop_with(Stop::KubeletTooNew, why))
}

/// Describes a kubelet that is newer than the control plane. None if it is not, or a version is unknown.
pub fn describe_newer(
    name: &str,
    kubelet: Option<Release>,
    control_plane: Option<Release>,
) -> Option<String> {
    let (kubelet, plane) = kubelet.zip(control_plane)?;
    (kubelet > plane).then(|| format!("{name} has kubelet {kubelet}, the control plane is {plane}"))
}

/// Finds a kubelet that is newer than the control plane, on members that have the template version and the image that the group launches
/// now. Such a kubelet shows what the group would launch.
/// A version is the word of the kubelet, so all of these members must agree, and those that the rotation recycles do not count.
pub fn find_newer_members(
    fleet: &Fleet,
    selected: &[InstanceId],
    known: &OutdatedFacts<'_>,
) -> Option<String> {
    let source = Outdated {
        launch_template: true,
        ami: true,
        ..Outdated::default()
    };
    let is_like_new = |member: &&FleetMember| {
        !selected.contains(&member.instance) && !is_outdated(&source, fleet, member, known)
    };
    let like_new = fleet.in_service().filter(is_like_new);
    let nodes = like_new.filter_map(|member| known.node(&member.instance));
    let newer = nodes.map(|node| {
        let kubelet = Release::read(&node.kubelet);
        describe_newer(node.name.as_str(), kubelet, known.control_plane)
    });
    let newer: Option<Vec<String>> = newer.collect();
    newer?.into_iter().next()
}

/// Returns the Pending pods that were created since the rotation began and whose controllers had pods evicted by this rotation.
pub fn find_displaced(replacements: &[NodeFacts], pending: &[PodFacts], began_at: Timestamp) -> Vec<String> {
    let evicted: BTreeSet<&str> = replacements
        .iter()
        .filter_map(|node| node.annotations.get(EVICTED_ANNOTATION))
        .flat_map(|hashes| hashes.split(' '))
        .collect();
    let is_displaced = |pod: &&PodFacts| {
        let is_new = pod.created_at.is_some_and(|created| created >= began_at);
        is_new && pod.deletion_at.is_none() && is_noted(&evicted, pod)
    };
    let displaced = pending.iter().filter(is_displaced);
    displaced.map(PodFacts::full_name).collect()
}

pub fn has_evicted(replacements: &[NodeFacts]) -> bool {
    let mut replacements = replacements.iter();
    replacements.any(|node| node.annotations.contains_key(EVICTED_ANNOTATION))
}

pub fn check_displaced(displaced: &[String], waiting_node: &WaitingNode) -> Option<Admission> {
    let first = displaced.first()?;
    let count = displaced.len();
    let text = match count {
        1 => format!("1 pod that this rotation evicted is still Pending: {first}"),
        _ => format!("{count} pods that this rotation evicted are still Pending, such as {first}"),
    };
    Some(
        if waiting_node.waited_for(WaitReason::Pending) >= LONGEST_PENDING {
            Admission::stop_with(Stop::PodsPending, text)
        } else {
            Admission::Wait(WaitReason::Pending, text)
        },
    )
}
