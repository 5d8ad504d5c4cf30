//! Chooses the nodes that `rotate-nodes` recycles, from the facts of AWS and Kubernetes.
//!
//! The pre-flight of each node's own execution checks whether that node can be recycled.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::base::ids::{ClusterName, ExecutionArn, InstanceId, short_hash};
use crate::base::text::cut_text;
use crate::cluster::cluster_tag::has_cluster_tag;
use crate::input::start::Start;
use crate::rotation::fleet::{Fleet, FleetMember, Machine, fleet_of};
use crate::rotation::outdated::{
    Chosen, Criterion, OutdatedFacts, find_criteria, is_undecided, is_worked_on,
};
use crate::rotation::request::{Selection, Trigger};

/// Characters of a reason, so that the answer stays under 8 KB.
pub(crate) const LONGEST_REASON: usize = 1_000;

impl Start {
    /// Names the execution after `cause`, so that each cause has an execution of its own.
    pub fn new(trigger: &str, instance: &InstanceId, cause: &str) -> Self {
        Self {
            name: format!("{trigger}-{instance}-{}", short_hash(cause)),
            instance_id: instance.clone(),
            hook: None,
        }
    }
}

/// The chosen instances, and a reason for each other instance that was considered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Chosen instances, in the order in which they are started.
    pub chosen: Vec<InstanceId>,
    /// Reasons for which other instances were not chosen.
    pub left_out: Vec<String>,
}

impl Choice {
    pub(crate) fn nothing(why: String) -> Self {
        Self {
            chosen: Vec::new(),
            left_out: vec![why],
        }
    }

    pub fn describe(&self) -> String {
        let mut text = match self.chosen.len() {
            0 => "no node is recycled".to_owned(),
            1 => "1 node is recycled".to_owned(),
            count => format!("{count} nodes are recycled"),
        };
        for why in &self.left_out {
            text = format!("{text}; {why}");
        }
        cut_text(&mut text, LONGEST_REASON);
        text
    }
}

/// Chooses the instances that belong to this cluster and still exist. Events name instances of the whole region.
pub fn choose_listed(
    trigger: Trigger,
    wanted: &[InstanceId],
    machines: &[Machine],
    fleets: &[Fleet],
    cluster: &ClusterName,
) -> Choice {
    let mut choice = Choice::default();
    for id in wanted.iter().collect::<BTreeSet<_>>() {
        let machine = machines.iter().find(|machine| machine.instance.id == *id);
        // An instance belongs to the cluster by its own tag, or as a member of a group with that tag. `fleets` are such groups.
        let fleet = fleet_of(id, fleets);
        let is_in_group = fleet.is_some();
        let why = match machine.map(|machine| &machine.instance) {
            None => format!("EC2 does not know {id}"),
            Some(instance) if instance.is_gone() => format!("{id} is {}", instance.state),
            Some(instance) if !is_in_group && !has_cluster_tag(&instance.tags, cluster) => {
                format!("{id} is not an instance of cluster {cluster}")
            }
            // EC2 sends warnings for every Spot instance of the region, including those of Karpenter.
            // For other triggers, the error of pre-flight says what to do instead.
            Some(_) if !is_in_group && trigger.is_of_ec2() => {
                format!("{id} is in no Auto Scaling group of cluster {cluster}")
            }
            // With Capacity Rebalancing the group launches the replacement itself, and then terminates the instance, which the hook holds
            // (user guide, "Capacity Rebalancing"). A replacement of our own would be one too many.
            Some(_)
                if trigger == Trigger::Rebalance && fleet.is_some_and(|fleet| fleet.rebalances_capacity) =>
            {
                format!("the group of {id} has Capacity Rebalancing, so it replaces the instance itself")
            }
            Some(_) => {
                choice.chosen.push(id.clone());
                continue;
            }
        };
        choice.left_out.push(why);
    }
    choice
}

/// Chooses the members that are in service, selected, and not claimed by an execution of this installation.
/// `rotation` is the execution of the rotation.
pub fn choose_members(
    selection: &Selection,
    fleet: &Fleet,
    known: &OutdatedFacts<'_>,
    rotation: &ExecutionArn,
) -> Chosen {
    let meant_by = |member: &FleetMember| match selection {
        Selection::InstanceIds(ids) if ids.contains(&member.instance) => vec![Criterion::InstanceIds],
        Selection::InstanceIds(_) | Selection::Alarm(_) => Vec::new(),
        Selection::Outdated(outdated) => find_criteria(outdated, fleet, member, known),
    };
    let is_claimed = |id: &InstanceId| {
        let mut leases = known.leases.iter();
        leases.any(|lease| lease.instance == *id && is_worked_on(lease, rotation))
    };
    let lacks_facts = |member: &FleetMember| match selection {
        Selection::InstanceIds(_) | Selection::Alarm(_) => false,
        Selection::Outdated(outdated) => is_undecided(outdated, fleet, member, known),
    };
    let mut found = Vec::new();
    let mut undecided = Vec::new();
    let mut claimed = 0;
    for member in fleet.in_service() {
        let met = meant_by(member);
        match known.machine(&member.instance).filter(|_| !met.is_empty()) {
            Some(_) if is_claimed(&member.instance) => claimed += 1,
            Some(machine) => found.push((member, (machine.launched_at, &member.instance), met)),
            None if lacks_facts(member) && !is_claimed(&member.instance) => {
                undecided.push(member.instance.clone());
            }
            None => {}
        }
    }
    let mut zones: BTreeMap<&str, (Timestamp, &InstanceId)> = BTreeMap::new();
    for (member, age, _) in &found {
        let oldest = zones.entry(member.zone.as_str()).or_insert(*age);
        *oldest = (*oldest).min(*age);
    }
    found.sort_by_key(|(member, age, _)| (zones.get(member.zone.as_str()).copied(), *age));
    let mut criteria: BTreeMap<Criterion, Vec<usize>> = BTreeMap::new();
    for (place, (_, _, met)) in found.iter().enumerate() {
        for criterion in met {
            criteria.entry(*criterion).or_default().push(place);
        }
    }
    let nodes = found.iter().map(|(member, _, _)| member.instance.clone());
    Chosen {
        nodes: nodes.collect(),
        claimed,
        criteria,
        undecided,
    }
}

#[cfg(test)]
mod tests;
