//! The facts that pre-flight checks.

use std::collections::BTreeMap;

use crate::base::ids::InstanceId;
use crate::cluster::balancers::Balancer;
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::cluster::node_group::NodeGroup;
use crate::cluster::refresh::Refresh;
use crate::input::model::Input;

/// Facts about a group beyond its size and its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Whether the desired capacity counts units other than instances.
    pub is_weighted: bool,
    pub refresh: Option<Refresh>,
    /// The EKS managed node group that the group belongs to.
    pub node_group: Option<NodeGroup>,
    /// The load balancers that EnterStandby would take the instance out of.
    pub balancers: Vec<Balancer>,
    /// The node whose record names the instance among the members that recycle-eks has protected from scale-in.
    /// With replacement `surge` it may be the instance itself.
    pub protected_for: Option<InstanceId>,
    /// The places that other executions with replacement `surge` have added to the group, or are about to add.
    pub added_places: u32,
    /// Whether the group still has the place that an earlier execution has added for this node.
    pub has_place: bool,
    /// Another node of the group that is being restored, which may change the desired capacity.
    pub restored: Option<InstanceId>,
    /// Other members in service that lack the cluster's tag.
    pub untagged: Vec<InstanceId>,
}

/// Everything that pre-flight reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightFacts<'a> {
    pub input: &'a Input,
    /// The instance, if EC2 knows it.
    pub instance: Option<&'a Instance>,
    /// `LifecycleState` of the instance, if it belongs to a group.
    /// Also set for an instance in a warm pool, which is not among the group's members.
    pub lifecycle_state: Option<&'a str>,
    pub group: Option<&'a Group>,
    pub group_tags: &'a BTreeMap<String, String>,
    /// Keys of the tags that the group sets on instances that it launches.
    pub group_propagates: &'a [String],
    pub group_state: &'a GroupState,
    pub node: Option<&'a NodeFacts>,
    /// The cluster's endpoint, if it has never answered.
    pub unreachable: Option<&'a str>,
    /// Permissions that the groups of the functions lack in the cluster, in one text for each group.
    pub missing_permissions: &'a [String],
    /// Whether this execution, or a dead owner of the claim, has already touched the node.
    /// Changes that were already made are then no reason to refuse.
    pub resuming: bool,
}
