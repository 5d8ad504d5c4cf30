//! Pre-flight checks of the instance.

use crate::base::ids::InstanceId;
use crate::claim::facts::PreflightFacts;
use crate::claim::obstacle::{Obstacle, Refusal, name_some};
use crate::cluster::cluster_tag::{
    cluster_tag, find_other_cluster, has_cluster_tag, tag_group, tag_instances,
};
use crate::cluster::group::Group;
use crate::cluster::hook::PROCEEDING;
use crate::cluster::instance::Instance;
use crate::cluster::node::{NodeFacts, has_entered_standby};
use crate::input::model::{Input, Replacement};
use crate::input::urgency::Urgency;

pub(crate) fn describe_gone(instance: &Instance) -> Option<String> {
    let id = &instance.id;
    if instance.is_gone() {
        return Some(format!("{id} is already {}", instance.state));
    }
    let stopped_at = instance.stopped_at()?;
    Some(format!("{id} was already stopped by recycle-eks at {stopped_at}"))
}

/// Describes an instance that was terminating under a lifecycle hook, and that the hook no longer holds.
/// A group that retains instances may keep a member in `Terminating:Proceed`, so that such a member is drained.
pub(crate) fn describe_going(facts: &PreflightFacts<'_>, instance: &Instance) -> Option<String> {
    let state = facts.lifecycle_state?;
    let has_ended =
        state == "Terminated" || (state == PROCEEDING && !facts.group.is_some_and(|group| group.retains));
    let is_going = facts.input.hook.is_some() && has_ended;
    is_going.then(|| format!("{} is already {state}", instance.id))
}

/// Refuses a node that another tool or EKS itself replaces, with the action to take there.
pub(crate) fn advise_owner(id: &InstanceId, node: &NodeFacts) -> Option<Refusal> {
    let compute_type = node.labels.get("eks.amazonaws.com/compute-type");
    let pool = node.labels.get("karpenter.sh/nodepool");
    let (named, advice) = match pool {
        Some(pool) => (
            format!(" (node pool {pool})"),
            "delete its NodeClaim, or set the pool's expireAfter and disruption budgets",
        ),
        None => (String::new(), "delete its NodeClaim"),
    };
    match compute_type.map(String::as_str) {
        Some("fargate") => Some(Obstacle::Fargate.because(format!(
            "{id} runs on Fargate, where every pod has a node of its own; restart the pod instead"
        ))),
        Some("auto") => Some(Obstacle::AutoMode.because(format!(
            "{id} belongs to EKS Auto Mode{named}, which replaces its nodes itself; {advice}"
        ))),
        Some(_) | None => pool.map(|_| {
            Obstacle::Karpenter.because(format!(
                "{id} belongs to Karpenter{named}, which replaces its nodes itself; {advice}"
            ))
        }),
    }
}

/// Checks that the member is in service, or in the state in which an earlier execution left it.
/// An urgent execution also accepts a member that is terminating. An execution with a hook accepts nothing else.
pub(crate) fn check_lifecycle(
    facts: &PreflightFacts<'_>,
    instance: &Instance,
    group: &Group,
) -> Option<Refusal> {
    let id = &instance.id;
    let name = &group.name;
    let member = group.state_of(id);
    let is_own_standby = has_entered_standby(facts.node, Some(instance));
    let is_urgent = facts.input.urgency > Urgency::Planned;
    match member.or(facts.lifecycle_state) {
        Some(state) if state.starts_with("Terminating") && is_urgent => None,
        Some(state) if facts.input.hook.is_some() => Some(Obstacle::NotTerminating.because(format!(
            "{id} is {state} in group {name}, which is not terminating it; leave out the field hook, which is only for a member that \
             waits for the lifecycle hook"
        ))),
        Some("InService") if member.is_some() => None,
        Some("Standby" | "EnteringStandby") if is_own_standby => None,
        Some(state @ ("Standby" | "EnteringStandby")) => Some(Obstacle::ForeignStandby.because(format!(
            "{id} is {state} in group {name}, but recycle-eks did not put it there (no Lease records that); an operator or another tool \
             may work on it; take it out of Standby first"
        ))),
        Some(state) if state.starts_with("Terminating") && facts.resuming => None,
        Some(state) if state.starts_with("Terminating") => Some(
            Obstacle::Terminating.because(format!("{id} is {state}: group {name} is already terminating it")),
        ),
        Some(state) if state.starts_with("Warmed") => Some(Obstacle::WarmPool.because(format!(
            "{id} is {state}: it waits in the warm pool of group {name} and runs no pods; terminate it, and the warm pool launches a new one"
        ))),
        Some(state) if member.is_some() => Some(Obstacle::NotInService.because(format!(
            "{id} is {state} in group {name}; only a member that is InService can be recycled"
        ))),
        Some(_) | None => Some(Obstacle::NotAMember.because(format!(
            "{id} is no longer a member of group {name}, so nothing would replace it"
        ))),
    }
}

pub(crate) fn describe_missing_node(input: &Input, instance: &Instance) -> Refusal {
    let id = &instance.id;
    let cluster = input.cluster_name.as_str();
    match find_other_cluster(instance, cluster) {
        Some(other) => Obstacle::AnotherCluster.because(format!(
            "{id} has the tags of cluster {other} and is not a node of cluster {cluster}; start the execution of that \
             cluster's module"
        )),
        None => Obstacle::NoNode.because(format!(
            "{id} is not a node of cluster {cluster}: no Node there has its providerID; if it never joined the cluster, terminate it in \
             its group"
        )),
    }
}

/// Checks the tags that the functions' policies require on everything that they change.
/// Unless the group retains instances, its own tag is not needed in two cases.
/// If the lifecycle hook holds the instance, the group is not changed.
/// If EC2 takes the instance away, the group is only asked to terminate it, which EC2 does anyway.
pub(crate) fn check_tags(facts: &PreflightFacts<'_>, instance: &Instance) -> Vec<Refusal> {
    let (input, id) = (facts.input, &instance.id);
    let cluster = &input.cluster_name;
    if let Some(other) = find_other_cluster(instance, cluster.as_str()) {
        return vec![Obstacle::AnotherCluster.because(format!(
            "{id} has the tags of cluster {other}, although it has a Node in cluster {cluster}; correct the tags, or start the \
             execution of that cluster's module"
        ))];
    }
    let mut refusals = Vec::new();
    let tag = cluster_tag(cluster.as_str());
    let lacks = |what: &str, command: &str| {
        Obstacle::MissingClusterTag.because(format!(
            "{what} lacks the tag {tag} with the value owned or shared, without which the functions may not change it; set it: {command}"
        ))
    };
    if !has_cluster_tag(&instance.tags, cluster) {
        refusals.push(lacks(
            &format!("instance {id}"),
            &tag_instances(std::slice::from_ref(id), cluster.as_str()),
        ));
    }
    let leaves_by_itself = input.hook.is_some() || input.interrupted_at.is_some();
    if let Some(group) = facts.group
        && (!leaves_by_itself || group.retains)
        && !has_cluster_tag(facts.group_tags, cluster)
    {
        let name = &group.name;
        refusals.push(lacks(&format!("group {name}"), &tag_group(name, cluster)));
    }
    let untagged = &facts.group_state.untagged;
    let protects_others = input.replacement != Replacement::After;
    if protects_others && !leaves_by_itself && !untagged.is_empty() {
        let names: Vec<&str> = untagged.iter().map(InstanceId::as_str).collect();
        refusals.push(lacks(
            &format!(
                "member {} of the same group, which a restore has to protect,",
                name_some(&names)
            ),
            &tag_instances(&untagged[..untagged.len().min(MOST_TAGGED)], cluster.as_str()),
        ));
    }
    refusals
}

/// The maximum number of instances in a command to paste, at 20 characters each. The next refusal names the others.
const MOST_TAGGED: usize = 20;
