//! Fetches the facts about the group that may forbid a start.

use futures::TryFutureExt as _;
use futures::future::try_join5;
use recycle::base::ids::InstanceId;
use recycle::base::names::PROTECTED_FOR_TAG;
use recycle::claim::facts::GroupState;
use recycle::claim::places::{find_added_places, find_restored};
use recycle::cluster::cluster_tag::has_cluster_tag;
use recycle::cluster::group::Group;
use recycle::cluster::instance::Instance;
use recycle::cluster::node_group::{NodeGroup, find_node_group_names};
use recycle::input::model::{Input, Replacement};
use recycle::records::claim::Phase;

use crate::balancers::fetch_balancers;
use crate::facts::FetchedFacts;
use crate::{ClaimNode, Error};

impl ClaimNode {
    /// Fetches the EKS managed node group of the member. None for a node whose replacement is decided: its group or EC2 ends it, its group
    /// does not have it in service, or an earlier execution has decided.
    pub(crate) async fn fetch_node_group(
        &self,
        found: &FetchedFacts,
        input: &Input,
    ) -> Result<Option<NodeGroup>, Error> {
        let membership = found.membership.as_ref();
        let is_ended_by_others = input.hook.is_some() || input.interrupted_at.is_some();
        let is_open = found.member_state() == Some("InService") && !found.was_raised() && !is_ended_by_others;
        let Some(membership) = membership.filter(|_| is_open) else {
            return Ok(None);
        };
        for name in find_node_group_names(&membership.tags, found.node.as_ref()) {
            let group = &membership.group.name;
            if let Some(managed) = self.access.describe_node_group(&name, group).await? {
                return Ok(Some(managed));
            }
        }
        Ok(None)
    }

    /// Fetches the other facts about the group that may forbid a start. Makes no call if there is no group, or if the instance is gone.
    pub(crate) async fn fetch_group_state(
        &self,
        found: &FetchedFacts,
        input: &Input,
        node_group: Option<NodeGroup>,
    ) -> Result<GroupState, Error> {
        let instance = found.instance.as_ref();
        let there = instance.filter(|instance| !instance.is_gone());
        let (Some(instance), Some(membership)) = (there, &found.membership) else {
            return Ok(GroupState::default());
        };
        let (id, group) = (&instance.id, &membership.group);
        let others: Vec<InstanceId> = group
            .members
            .iter()
            .filter(|member| member.is_in_service() && member.instance != *id)
            .map(|member| member.instance.clone())
            .collect();
        let surges = async {
            match input.replacement {
                Replacement::Surge => find_other_surges(found, id, group).await,
                Replacement::Before | Replacement::After => Ok((0, None)),
            }
        };
        let (mut others, (added_places, restored), protected_for, refresh, balancers) = try_join5(
            self.instances.fetch_all(&others).map_err(Error::from),
            surges,
            find_cause_of_protection(found, instance, group),
            self.groups.find_refresh(&group.name).map_err(Error::from),
            fetch_balancers(&self.config, &membership.attachments, group, id).map_err(Error::from),
        )
        .await?;
        others.retain(|other| !has_cluster_tag(&other.tags, &input.cluster_name));
        let own_size = group.desired.saturating_sub(added_places);
        let raised_from = found.record().and_then(|record| record.raised_from);
        Ok(GroupState {
            has_place: raised_from.is_some_and(|from| own_size > from),
            protected_for,
            added_places,
            restored,
            untagged: others.into_iter().map(|other| other.id).collect(),
            is_weighted: membership.is_weighted,
            refresh,
            node_group,
            balancers,
        })
    }
}

/// Counts the places that other executions have added to the group, or are about to add, and finds a node of it that is being restored.
/// Without access to the cluster nothing is seen.
async fn find_other_surges(
    found: &FetchedFacts,
    id: &InstanceId,
    group: &Group,
) -> Result<(u32, Option<InstanceId>), Error> {
    if found.node.is_none() {
        return Ok((0, None));
    }
    let leases = kubernetes::list_group(&found.client, &group.name).await?;
    let places = find_added_places(&leases, id, group, Phase::Standby).len();
    let restored = find_restored(&leases, id, group).map(|lease| lease.instance.clone());
    Ok((u32::try_from(places).unwrap_or(u32::MAX), restored))
}

/// Finds the node for which recycle-eks has protected the instance from scale-in: one that is restored or detached, or with replacement
/// `surge` the instance itself. Its tag names that node. The tag is not enough, because other principals can write it: the record of that
/// node must name the instance.
async fn find_cause_of_protection(
    found: &FetchedFacts,
    instance: &Instance,
    group: &Group,
) -> Result<Option<InstanceId>, Error> {
    let cause = instance
        .tags
        .get(PROTECTED_FOR_TAG)
        .and_then(|id| id.parse().ok());
    let Some(cause) = cause.filter(|_| group.is_protected(&instance.id) && found.node.is_some()) else {
        return Ok(None);
    };
    let lease = kubernetes::get_lease(&found.client, &cause).await?;
    let record = lease.and_then(|lease| lease.record().ok());
    Ok(record
        .is_some_and(|record| record.protected.contains(&instance.id))
        .then_some(cause))
}
