//! Pre-flight checks of the Auto Scaling group.

use crate::base::shell::quote;
use crate::claim::facts::{GroupState, PreflightFacts};
use crate::claim::obstacle::{Obstacle, Refusal, name_some};
use crate::cluster::balancers::Balancer;
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::cluster::node_group::{NodeGroup, write_room};
use crate::input::model::{Dispose, Input, Replacement};
use crate::input::urgency::Urgency;

pub(crate) fn check_updates(facts: &PreflightFacts<'_>, group: &Group) -> Vec<Refusal> {
    let state = facts.group_state;
    let name = &group.name;
    let refresh = state.refresh.as_ref().map(|refresh| {
        Obstacle::InstanceRefresh.because(format!(
            "an instance refresh of group {name} is {} and replaces the nodes itself. It {} (StandbyInstances). Wait for its end, or \
             cancel it",
            refresh.status,
            refresh.describe_effect()
        ))
    });
    let busy = state
        .node_group
        .as_ref()
        .filter(|node_group| node_group.is_busy());
    let update = busy.map(|NodeGroup { name, status }| {
        Obstacle::ManagedGroupUpdate.because(format!(
            "the EKS managed node group {name} is {status}, so EKS replaces its nodes itself; wait until it is ACTIVE"
        ))
    });
    refresh.into_iter().chain(update).collect()
}

/// Refuses replacement `before` in an EKS managed node group: no source says that EKS accepts members in Standby.
pub(crate) fn check_managed(input: &Input, state: &GroupState) -> Option<Refusal> {
    let node_group = state.node_group.as_ref();
    let node_group = node_group.filter(|_| input.replacement == Replacement::Before)?;
    Some(Obstacle::StandbyInManagedGroup.because(format!(
        "{} belongs to the EKS managed node group {}, and whether EKS accepts members in Standby is unknown; set replacement \"surge\" with \
         dispose \"terminate\", or set override [\"standby_in_managed_group\"]",
        input.instance_id, node_group.name
    )))
}

/// Refuses the replacements `before` and `surge` in a weighted group. One instance there is worth several units of the desired capacity,
/// so counting does not show which launch replaces which instance.
pub(crate) fn check_weights(input: &Input, state: &GroupState, group: &Group) -> Option<Refusal> {
    (input.replacement != Replacement::After && state.is_weighted).then(|| {
        Obstacle::WeightedGroup.because(format!(
            "the instances of group {} have weights, so recycle-eks cannot find out which launch replaces which instance; set replacement \"after\"",
            group.name
        ))
    })
}

/// Refuses replacement `surge` where the group has no room for one more member, or could terminate another one while it has that.
pub(crate) fn check_surge(facts: &PreflightFacts<'_>, group: &Group) -> Option<Refusal> {
    let name = &group.name;
    // The place that an execution has added needs no other one.
    if facts.input.replacement != Replacement::Surge || facts.group_state.has_place {
        return None;
    }
    let own_size = group.desired.saturating_sub(facts.group_state.added_places);
    // Places that others have added become free, and the queue waits for that.
    if own_size >= group.max {
        let node_group = facts.group_state.node_group.as_ref();
        let node_group = node_group.map(|node_group| node_group.name.as_str());
        return Some(Obstacle::NoRoom.because(format!(
            "group {name} has its maximum of {} members, and replacement \"surge\" needs one more; make room: {}",
            group.max,
            write_room(facts.input.cluster_name.as_str(), name.as_str(), node_group, group.max)
        )));
    }
    let or_before = match facts.group_state.node_group {
        Some(_) => "",
        None => ", or set replacement \"before\"",
    };
    group.balances_zones().then(|| {
        Obstacle::ZoneRebalance.because(format!(
            "group {name} has {} zones and may terminate another node with its pods to balance them; suspend AZRebalance: aws autoscaling \
             suspend-processes --auto-scaling-group-name {} --scaling-processes AZRebalance{or_before}",
            group.zones,
            quote(name.as_str())
        ))
    })
}

/// Refuses to stop or detach a node that an execution has begun to recycle with replacement `surge`, which needs no Standby.
pub(crate) fn check_begun_surge(input: &Input) -> Option<Refusal> {
    (input.replacement == Replacement::Surge && input.dispose != Dispose::Terminate).then(|| {
        Obstacle::SurgeBegun.because(format!(
            "an execution with replacement \"surge\" has made the group of {} one larger, and only dispose \"terminate\" gives that place \
             up; set it, or wait for the sweep, which restores the node",
            input.instance_id
        ))
    })
}

pub(crate) fn check_protection(input: &Input, state: &GroupState, group: &Group) -> Option<Refusal> {
    let id = &input.instance_id;
    // The restore or the detach of another node protects the other members for minutes.
    let is_protected = group.is_protected(id) && state.protected_for.is_none() && !group.protects_new_members;
    is_protected.then(|| {
        Obstacle::ScaleInProtection.because(format!(
            "{id} is protected from scale-in, so an operator or another tool wants to keep it; remove the protection, or set override \
             [\"scale_in_protection\"]"
        ))
    })
}

pub(crate) fn check_processes(input: &Input, group: &Group) -> Option<Refusal> {
    // A suspended Terminate holds members in service only (user guide, "Suspend and resume Amazon EC2 Auto Scaling processes").
    // With replacement before, the member is in Standby when it is terminated.
    let mut suspended = match (input.dispose, input.replacement) {
        (Dispose::Terminate, Replacement::After | Replacement::Surge) => vec!["Launch", "Terminate"],
        (Dispose::Terminate | Dispose::Stop | Dispose::Detach, _) => vec!["Launch"],
    };
    suspended.retain(|process| group.is_suspended(process));
    (!suspended.is_empty()).then(|| {
        Obstacle::SuspendedProcess.because(format!(
            "group {} has {} suspended, so no node can be replaced; resume all suspended processes, or set override \
             [\"suspended_process\"]",
            group.name,
            suspended.join(" and ")
        ))
    })
}

/// Refuses replacement `before` for the last healthy target.
/// EnterStandby takes the instance out of the group's balancers before the replacement exists.
/// With `after` the instance stays in them until it is drained.
pub(crate) fn check_targets(input: &Input, balancers: &[Balancer]) -> Option<Refusal> {
    let alone = balancers.iter().filter(|balancer| balancer.others == 0);
    let alone: Vec<&str> = alone.map(|balancer| balancer.name.as_str()).collect();
    (input.replacement == Replacement::Before && !alone.is_empty()).then(|| {
        Obstacle::LastTarget.because(format!(
            "{} is the last healthy target of {}, and EnterStandby takes it out of there before its replacement is in service; add a member, \
             set replacement \"after\", or set override [\"last_target\"]",
            input.instance_id,
            name_some(&alone)
        ))
    })
}

/// Refuses the urgency of a Spot instance for any other instance. A caller would skip the queue by it and take over the claim of
/// another execution.
pub(crate) fn check_spot(input: &Input, instance: &Instance) -> Option<Refusal> {
    match input.urgency {
        Urgency::Spot | Urgency::Interruption if !instance.is_spot => Some(Obstacle::NotSpot.because(format!(
            "urgency \"spot\" is for Spot instances, and {} is none; leave urgency and interrupted_at out",
            instance.id
        ))),
        Urgency::Spot | Urgency::Interruption | Urgency::Planned | Urgency::Hook => None,
    }
}

pub(crate) fn check_stop(input: &Input, instance: &Instance) -> Option<Refusal> {
    (input.dispose == Dispose::Stop && instance.is_spot).then(|| {
        Obstacle::OneTimeSpot.because(format!(
            "{} is a one-time Spot instance, which EC2 cannot stop; set dispose \"terminate\"",
            instance.id
        ))
    })
}

/// Refuses to stop or detach an instance whose Node is not Ready.
/// An operator who wants to examine a sick machine would lose it, because the group terminates it once the node counts as lost.
pub(crate) fn check_keeping(input: &Input, node: &NodeFacts, group: &Group) -> Option<Refusal> {
    match input.dispose {
        Dispose::Stop | Dispose::Detach if !node.ready => Some(Obstacle::NotReady.because(format!(
            "node {} is not Ready: after {} minutes it would count as lost, and its group would terminate it; to keep the machine, \
             detach it by hand (aws autoscaling detach-instances --auto-scaling-group-name {} --instance-ids {} \
             --no-should-decrement-desired-capacity)",
            node.name,
            input.node_lost_after / 60,
            quote(group.name.as_str()),
            input.instance_id
        ))),
        Dispose::Stop | Dispose::Detach | Dispose::Terminate => None,
    }
}
