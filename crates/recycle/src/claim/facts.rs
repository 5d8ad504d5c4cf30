//! The facts that pre-flight checks.

use std::collections::BTreeMap;

use crate::base::ids::InstanceId;
use crate::cluster::balancers::Balancer;
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::input::model::Input;

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
    pub input: &'a Input,
    /// The instance, if EC2 knows it.
    pub instance: Option<&'a Instance>,
    /// `LifecycleState`, if it belongs to a group: of one in a warm pool, too, which is not among the group's members.
    pub lifecycle_state: Option<&'a str>,
    pub group: Option<&'a Group>,
    pub group_tags: &'a BTreeMap<String, String>,
    /// Keys of the tags that the group sets on instances that it launches.
    pub group_propagates: &'a [String],
    /// The group keeps an instance whose termination hook was abandoned.
    pub group_retains: bool,
    pub group_state: &'a GroupState,
    pub node: Option<&'a NodeFacts>,
    /// The cluster's endpoint, if it never answered.
    pub unreachable: Option<&'a str>,
    /// What we may not do in the cluster, `verb resource`, as SelfSubjectAccessReview said.
    pub missing_permissions: &'a [String],
    /// We, or a dead owner of the claim, have touched the node: what was already done is no reason to refuse.
    pub resuming: bool,
}
