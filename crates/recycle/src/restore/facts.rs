//! Defines the facts that decide a restore.

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::records::restore_log::GroupChanges;

/// A member that came after EnterStandby, or after the desired capacity was raised.
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
    /// The cluster cannot be reached.
    Unseen,
    /// There is no Node of this instance.
    Vanished,
    /// Something has to be removed from the Node ([`crate::restore::undo::undo_kubernetes`]).
    Undo,
    /// No mark of an execution keeps pods away.
    Clean,
}

/// The facts that decide the next step of a restore.
#[derive(Debug, Clone)]
pub struct RestoreFacts<'a> {
    pub id: &'a InstanceId,
    /// None if EC2 does not know it.
    pub instance: Option<&'a Instance>,
    /// The instance's group, or the group that it was claimed in. In a sweep it may be the group of a member that is protected for it.
    pub group: Option<&'a Group>,
    pub kubernetes: KubernetesHalf,
    /// True if recycle-eks put the instance into Standby. An operator's Standby is left untouched.
    pub has_entered_standby: bool,
    /// The desired capacity that the group has without the place that an execution has added (path `surge`); None if it has added none.
    pub raised_from: Option<u32>,
    /// True if the Node has not been Ready for so long that it counts as lost ([`crate::drain::lost`]).
    pub is_lost: bool,
    /// The members that came after EnterStandby. None if no record lists the members before it, or the cluster cannot be reached.
    pub new_members: Option<&'a [NewMember]>,
    /// Other instances whose Nodes this restore has cordoned, or that this node's execution protects from Cluster Autoscaler.
    pub marked: &'a [NewMember],
    /// The time at which the Node was marked as being restored. None if it is not marked.
    pub restoring_since: Option<Timestamp>,
    /// The Node of the group that is restored first, if that is another one.
    pub ahead: Option<&'a NodeName>,
    /// The current and earlier members that an execution or restore of this instance has protected from scale-in, by its record or its
    /// own state.
    pub protected: &'a [InstanceId],
    /// The recorded changes of the group. The last one may not have been made.
    pub group_changes: &'a GroupChanges,
    /// Seconds since the restore began.
    pub waited: i64,
    /// The number of steps and checks before this one.
    pub steps: u32,
}
