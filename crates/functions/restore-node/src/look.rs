//! What is fetched of the node that is put back, and of its group.

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use recycle::base::ids::{InstanceId, NodeName};
use recycle::base::names::{CORDONED_FOR_ANNOTATION, GROUP_LABEL, PUT_BACK_TAG};
use recycle::cluster::autoscaler::is_kept_for;
use recycle::cluster::group::{Group, Member};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, NodeList};
use recycle::drain::classify::is_empty_node;
use recycle::drain::lost::{LOST_AFTER, find_patience};
use recycle::records::restore_log::Deeds;
use recycle::replacement::usable::newcomers;
use recycle::restore::facts::Newcomer;

use crate::Error;

/// The cluster's half.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) node: Option<NodeFacts>,
    /// Who came after EnterStandby; none without a record of who was there before.
    pub(crate) newcomers: Option<Vec<Newcomer>>,
    /// Other Nodes that this node's execution has kept from Cluster Autoscaler, or its put-back has cordoned.
    pub(crate) marked: Vec<Newcomer>,
    /// The Node of the group that is put back first.
    pub(crate) ahead: Option<NodeName>,
}

impl Cluster {
    /// Answers after how many seconds without Ready the node counts as lost.
    pub(crate) async fn look_around(
        &mut self,
        old: &InstanceId,
        group: Option<&Group>,
    ) -> Result<u32, Error> {
        let nodes = kubernetes::list_nodes(&self.client).await?;
        let record = self.node.as_ref().and_then(|node| node.record().ok());
        let asked = record.as_ref().and_then(|record| record.lost_after);
        let before = record
            .map(|record| record.members_before)
            .filter(|before| !before.is_empty());
        if let (Some(before), Some(group)) = (before, group) {
            let members = newcomers(group, &before);
            self.newcomers = Some(fetch_newcomers(&self.client, members, &nodes).await?);
        }
        let nodes = nodes.readable;
        self.ahead = self.node.as_ref().and_then(|node| find_ahead(node, &nodes));
        self.marked = find_marked(nodes, old, group, self.newcomers.as_deref());
        let silent = self.node.as_ref().filter(|node| node.not_ready_since.is_some());
        let pods = match silent {
            Some(node) => kubernetes::list_pods(&self.client, &node.name).await?,
            None => Vec::new(),
        };
        Ok(find_patience(asked.unwrap_or(LOST_AFTER), &pods))
    }
}

/// Of the Nodes of the group that are being put back, the one that began first, if that is not this one.
pub(crate) fn find_ahead(node: &NodeFacts, nodes: &[NodeFacts]) -> Option<NodeName> {
    let queued = |node: &NodeFacts| node.queued_since().map(|since| (since, node.name.clone()));
    let group = node.labels.get(GROUP_LABEL)?;
    let first = nodes
        .iter()
        .filter(|other| other.labels.get(GROUP_LABEL) == Some(group))
        .filter_map(queued)
        .min()?;
    (first < queued(node)?).then_some(first.1)
}

/// Those that carry our cordon for this instance, or are kept from Cluster Autoscaler for it, and came at a time that nobody remembers.
fn find_marked(
    nodes: Vec<NodeFacts>,
    old: &InstanceId,
    group: Option<&Group>,
    known: Option<&[Newcomer]>,
) -> Vec<Newcomer> {
    let lifecycle_state = |id: &InstanceId| {
        let member = group.and_then(|group| group.member(id));
        member.map(|member| member.lifecycle_state.clone())
    };
    let is_known =
        |id: &InstanceId| known.is_some_and(|known| known.iter().any(|other| other.instance == *id));
    nodes
        .into_iter()
        .filter(|node| {
            let cordoned_for = node.annotations.get(CORDONED_FOR_ANNOTATION);
            cordoned_for.is_some_and(|owner| owner == old.as_str()) || is_kept_for(node, old)
        })
        .filter_map(|node| Some((node.instance.clone().filter(|id| !is_known(id))?, node)))
        .map(|(instance, node)| Newcomer {
            lifecycle_state: lifecycle_state(&instance).unwrap_or_default(),
            instance,
            node: Some(node),
            has_pods: true,
        })
        .collect()
}

/// Ten at once: a group that changes a lot has hundreds after a long drain. A newcomer whose Node cannot be read counts as one with pods,
/// so that it is not terminated.
pub(crate) async fn fetch_newcomers(
    client: &kube::Client,
    members: Vec<&Member>,
    nodes: &NodeList,
) -> Result<Vec<Newcomer>, Error> {
    let fetch = async |member: &Member| {
        let node = nodes
            .readable
            .iter()
            .find(|node| node.instance.as_ref() == Some(&member.instance))
            .cloned();
        let has_pods = match &node {
            Some(node) if !member.is_leaving() => {
                !is_empty_node(&kubernetes::list_pods(client, &node.name).await?)
            }
            Some(_) => false,
            None => nodes.find_unreadable(&member.instance).is_some(),
        };
        Ok(Newcomer {
            instance: member.instance.clone(),
            lifecycle_state: member.lifecycle_state.clone(),
            node,
            has_pods,
        })
    };
    futures::stream::iter(members.into_iter().map(fetch))
        .buffered(10)
        .try_collect()
        .await
}

pub(crate) fn read_deeds(instance: Option<&Instance>) -> Result<Deeds, Error> {
    let tag = instance.and_then(|instance| instance.tags.get(PUT_BACK_TAG));
    Ok(tag.map_or_else(|| Ok(Deeds::default()), |text| text.parse())?)
}

pub(crate) fn count_seconds(since: Option<Timestamp>, now: Timestamp) -> i64 {
    since.map_or(0, |since| now.duration_since(since).as_secs())
}
