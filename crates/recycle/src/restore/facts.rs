//! The facts that a restore is decided by.

use jiff::Timestamp;

use crate::base::ids::{InstanceId, NodeName};
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::records::restore_log::Deeds;

/// A member that came after EnterStandby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newcomer {
    pub instance: InstanceId,
    /// `LifecycleState`.
    pub lifecycle_state: String,
    /// Its Node, if it has registered.
    pub node: Option<NodeFacts>,
    /// Its Node has pods other than those of DaemonSets and mirrors.
    pub has_pods: bool,
}

impl Newcomer {
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.annotations.get(key).map(String::as_str)
    }

    pub(crate) fn is_cordoned(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.unschedulable)
    }
}

/// How the Node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesHalf {
    /// The cluster cannot be asked.
    Unseen,
    /// There is no Node of this instance.
    Vanished,
    /// Something that we wrote is to be taken away ([`crate::restore::undo::undo_kubernetes`]).
    Undo,
    /// Nothing of ours keeps pods away.
    Clean,
}

/// Everything that a put-back looks at.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    pub id: &'a InstanceId,
    /// None if EC2 does not know it.
    pub instance: Option<&'a Instance>,
    /// Its group, or the one that it was claimed in.
    pub group: Option<&'a Group>,
    pub kubernetes: KubernetesHalf,
    /// It has not been Ready for so long that the node counts as lost ([`crate::drain::lost`]).
    pub is_lost: bool,
    /// Who came after EnterStandby; none if nobody can say that.
    pub newcomers: Option<&'a [Newcomer]>,
    /// Others that carry our cordon for this instance.
    pub marked: &'a [Newcomer],
    /// Since when the Node says that it is being put back.
    pub queued_since: Option<Timestamp>,
    /// The Node of the group that is put back first.
    pub ahead: Option<&'a NodeName>,
    /// The members, and instances that were members, which we protected from scale-in.
    pub protected: &'a [InstanceId],
    /// What was done or about to be done.
    pub deeds: &'a Deeds,
    /// Seconds since the put-back began.
    pub waited: i64,
    /// Steps and looks before this one.
    pub steps: u32,
}
