//! Fetches the facts in the cluster: the Node that is restored, and the other Nodes of its group.

use futures::{StreamExt as _, TryStreamExt as _};
use recycle::base::ids::{InstanceId, NodeName};
use recycle::base::names::CORDONED_FOR_ANNOTATION;
use recycle::claim::places::size_without_place;
use recycle::cluster::autoscaler::is_kept_for;
use recycle::cluster::group::{Group, Member};
use recycle::cluster::node::{NodeFacts, NodeList};
use recycle::drain::classify::is_empty_node;
use recycle::drain::lost::{LOST_AFTER, find_patience};
use recycle::records::lease::Lease;
use recycle::replacement::usable::new_members;
use recycle::restore::facts::NewMember;
use recycle::restore::group_half::find_ahead;

use crate::Error;

pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) node: Option<NodeFacts>,
    /// The Lease of the instance, with or without a Node.
    pub(crate) lease: Option<Lease>,
    /// Members that came after EnterStandby; None without a record of the members before.
    pub(crate) new_members: Option<Vec<NewMember>>,
    /// Other Nodes that this node's execution has protected from Cluster Autoscaler, or that its restore has cordoned.
    pub(crate) marked: Vec<NewMember>,
    /// The desired capacity that the group has without the place that the execution has added; None if it has added none.
    pub(crate) raised_from: Option<u32>,
    /// The Node of the group that is restored first; None if no other Node is ahead of this one.
    pub(crate) ahead: Option<NodeName>,
}

impl Cluster {
    /// Reads the new members, the marked Nodes and the order of restores.
    /// Returns the seconds without Ready after which the node counts as lost.
    pub(crate) async fn fetch_group_nodes(
        &mut self,
        old: &InstanceId,
        group: Option<&Group>,
    ) -> Result<u32, Error> {
        let (nodes, leases) = kubernetes::list_claimed_nodes(&self.client).await?;
        let node = self.node.as_ref();
        let record = self.lease.as_ref().and_then(|lease| lease.record().ok());
        let record = record.unwrap_or_default();
        if let Some(group) = group.filter(|_| !record.members_before.is_empty()) {
            let members = new_members(group, &record.members_before);
            self.new_members = Some(fetch_new_members(&self.client, members, &nodes).await?);
        }
        self.raised_from = match (record.raised_from, group) {
            (Some(from), Some(group)) => Some(size_without_place(from, &leases, old, group)),
            (from, _) => from,
        };
        let nodes = nodes.readable;
        self.ahead = node.and_then(|node| find_ahead(node, &nodes));
        self.marked = find_marked(nodes, old, group, self.new_members.as_deref());
        let pods = match node.filter(|node| node.not_ready_since.is_some()) {
            Some(node) => kubernetes::list_pods(&self.client, &node.name).await?,
            None => Vec::new(),
        };
        Ok(find_patience(record.lost_after.unwrap_or(LOST_AFTER), &pods))
    }
}

/// Finds the Nodes that recycle-eks has cordoned, or protects from Cluster Autoscaler, because of this instance.
/// The known new members are not among them.
fn find_marked(
    nodes: Vec<NodeFacts>,
    old: &InstanceId,
    group: Option<&Group>,
    known: Option<&[NewMember]>,
) -> Vec<NewMember> {
    let is_known = |id: &InstanceId| known.into_iter().flatten().any(|other| other.instance == *id);
    let is_marked = |node: &NodeFacts| {
        let cordoned_for = node.annotations.get(CORDONED_FOR_ANNOTATION);
        cordoned_for.is_some_and(|owner| owner == old.as_str()) || is_kept_for(node, old)
    };
    let to_new_member = |node: NodeFacts| {
        let instance = node.instance.clone().filter(|id| !is_known(id))?;
        let state = group.and_then(|group| group.state_of(&instance));
        Some(NewMember {
            lifecycle_state: state.unwrap_or_default().to_owned(),
            instance,
            node: Some(node),
            // No record says when the member came, so it may have pods.
            has_pods: true,
        })
    };
    nodes
        .into_iter()
        .filter(is_marked)
        .filter_map(to_new_member)
        .collect()
}

/// Fetches the new members, ten at once, because a group that changes a lot has hundreds after a long drain.
/// A new member whose Node cannot be read counts as one with pods, so that it is not terminated.
pub(crate) async fn fetch_new_members(
    client: &kube::Client,
    members: Vec<&Member>,
    nodes: &NodeList,
) -> Result<Vec<NewMember>, Error> {
    let fetch = async |member: &Member| {
        let mut readable = nodes.readable.iter();
        let node = readable.find(|node| node.instance.as_ref() == Some(&member.instance));
        let has_pods = match node {
            Some(node) if !member.is_leaving() => {
                !is_empty_node(&kubernetes::list_pods(client, &node.name).await?)
            }
            Some(_) => false,
            None => nodes.find_unreadable(&member.instance).is_some(),
        };
        Ok(NewMember {
            instance: member.instance.clone(),
            lifecycle_state: member.lifecycle_state.clone(),
            node: node.cloned(),
            has_pods,
        })
    };
    futures::stream::iter(members.into_iter().map(fetch))
        .buffered(10)
        .try_collect()
        .await
}
