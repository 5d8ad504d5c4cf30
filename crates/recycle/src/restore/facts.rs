//! The facts that a restore is decided by.

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::records::restore_log::GroupChanges;

/// A member that came after EnterStandby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    pub instance: InstanceId,
    /// `LifecycleState`.
    pub lifecycle_state: String,
    /// Its Node, if it has registered.
    pub node: Option<NodeFacts>,
    /// True if its Node has, or may have, pods other than finished ones and those of DaemonSets and mirrors.
    pub has_pods: bool,
}

impl NewMember {
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.annotations.get(key).map(String::as_str)
    }

    pub(crate) fn is_cordoned(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.unschedulable)
    }
}

/// The state of the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesHalf {
    /// The cluster cannot be asked.
    Unseen,
    /// There is no Node of this instance.
    Vanished,
    /// Something has to be taken away from the Node ([`crate::restore::undo::undo_kubernetes`]).
    Undo,
    /// No mark of an execution keeps pods away.
    Clean,
}

/// The facts that a put-back is decided by.
#[derive(Debug, Clone)]
pub struct RestoreFacts<'a> {
    pub id: &'a InstanceId,
    /// None if EC2 does not know it.
    pub instance: Option<&'a Instance>,
    /// The instance's group, or the group that it was claimed in. In a sweep it may be the group of a member that is protected for it.
    pub group: Option<&'a Group>,
    pub kubernetes: KubernetesHalf,
    /// True if the Node has not been Ready for so long that it counts as lost ([`crate::drain::lost`]).
    pub is_lost: bool,
    /// The members that came after EnterStandby; None if no record says who was there before, or the cluster cannot be asked.
    pub new_members: Option<&'a [NewMember]>,
    /// Other instances whose Nodes this put-back has cordoned, or this node's execution keeps from Cluster Autoscaler.
    pub marked: &'a [NewMember],
    /// When the Node was marked as being put back; None if it is not.
    pub queued_since: Option<Timestamp>,
    /// The Node of the group that is put back first, if that is another one.
    pub ahead: Option<&'a NodeName>,
    /// The members and former members that an execution or put-back of this instance has protected from scale-in.
    pub protected: &'a [InstanceId],
    /// The changes of the group that were made or about to be made.
    pub group_changes: &'a GroupChanges,
    /// Seconds since the put-back began.
    pub waited: i64,
    /// The number of steps and checks before this one.
    pub steps: u32,
}
