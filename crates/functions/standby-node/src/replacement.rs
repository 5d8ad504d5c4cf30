//! Chooses the replacement among the members that came since the group was asked for one, reserves it by compare-and-swap, and records it.

use kubernetes::{NodeChange, Wanted};
use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::InstanceId;
use recycle::base::names::{EVICTED_ANNOTATION, KEPT_FOR_LABEL, REPLACEMENT_FOR_ANNOTATION, REPLACES_LABEL};
use recycle::base::poll::SHORTEST_WAIT;
use recycle::claim::obstacle::{Obstacle, Refusal};
use recycle::claim::places::count_wanted;
use recycle::cluster::autoscaler::describe_removal;
use recycle::cluster::group::{Group, Member};
use recycle::cluster::node::NodeFacts;
use recycle::contract::verdicts::{StandbyBody, StandbyVerdict};
use recycle::input::path::RecyclePath;
use recycle::records::node_record::Record;
use recycle::replacement::defect::reserved_for;
use recycle::replacement::shortage::{Shortage, find_shortage};
use recycle::replacement::usable::{Candidate, Patience, ReplacementVerdict, judge_replacement, new_members};

use crate::raising::find_size_without_place;
use crate::{Answered, Error, FetchedFacts, StandbyNode};

impl StandbyNode {
    pub(crate) async fn await_replacement(&self, mut facts: FetchedFacts) -> Answered {
        let since = *facts.run.replacement_since.get_or_insert(facts.now);
        let record = facts.node.record()?;
        let group = facts.group.iter();
        let members = group.flat_map(|group| new_members(group, &record.members_before));
        let candidates = self.fetch_candidates(&facts.client, members.collect()).await?;
        if let Some(removed) = find_removal(&facts, &record, &candidates).await? {
            return Err(time_out(&facts, &removed.to_string()));
        }
        let candidates = keep_new_members(&facts, candidates).await?;
        let id = &facts.run.input.instance_id;
        let shortage = find_shortage_by(&facts, record.usable_before, &candidates).await?;
        let patience = Patience {
            since,
            now: facts.now,
            timeout: facts.run.input.replacement_timeout,
        };
        // A full group matters only while a member is in Standby.
        let is_before = facts.run.path == RecyclePath::Before;
        let (group, short) = (facts.group.as_ref().filter(|_| is_before), shortage.as_ref());
        let old = facts.node.clone().with_drivers(record.drivers);
        let candidates = add_drivers(&facts.client, id, &old, candidates).await?;
        match judge_replacement(id, &old, group, &candidates, short, patience) {
            ReplacementVerdict::Reserve(replacement) => {
                let is_reserved = reserve(&facts.client, id, &candidates, &replacement, None).await?;
                let reason = match shortage {
                    None if is_reserved => return accept(facts, replacement).await,
                    Some(shortage) if is_reserved => {
                        format!("{replacement} is reserved; {}", shortage.describe())
                    }
                    Some(_) | None => describe_rivalry(&replacement),
                };
                Ok(facts.wait(SHORTEST_WAIT, reason))
            }
            ReplacementVerdict::Ready(replacement) => accept(facts, replacement).await,
            ReplacementVerdict::Wait { reason, wait_seconds } => {
                let reason = format!("{}: {reason}", facts.describe_state("waits for its replacement"));
                Ok(facts.wait(wait_seconds, reason))
            }
            ReplacementVerdict::TimedOut(reason) => Err(time_out(&facts, &reason)),
        }
    }

    pub(crate) async fn fetch_candidates(
        &self,
        client: &kube::Client,
        new_members: Vec<&Member>,
    ) -> Result<Vec<Candidate>, Error> {
        let ids: Vec<InstanceId> = new_members.iter().map(|member| member.instance.clone()).collect();
        let instances = self.instances.fetch_all(&ids).await?;
        let wanted = new_members.iter().map(|member| {
            let instance = instances.iter().find(|instance| instance.id == member.instance);
            Wanted {
                instance: &member.instance,
                hint: instance.and_then(|instance| instance.private_dns_name.as_deref()),
                // A new member that is not in service yet may not have registered. All Nodes are read only for a new member in service.
                in_list: member.is_in_service(),
            }
        });
        let nodes = kubernetes::find_nodes(client, &wanted.collect::<Vec<_>>()).await?;
        let candidates = new_members.into_iter().zip(nodes);
        let build = |(member, node): (&Member, _)| Candidate {
            member: member.clone(),
            node,
        };
        Ok(candidates.map(build).collect())
    }
}

fn time_out(facts: &FetchedFacts, reason: &str) -> Error {
    let state = facts.describe_state(match facts.run.path {
        RecyclePath::Surge => "waits for its replacement",
        RecyclePath::Before | RecyclePath::After | RecyclePath::Hook => "is in Standby",
    });
    let text = format!("{state}: {reason}");
    Error::Ended(Failure::ReplacementTimedOut, text)
}

/// Returns the shortage if the group has too few usable members. The Nodes are read only once a new member is in service and has a Node.
async fn find_shortage_by(
    facts: &FetchedFacts,
    before: Option<u32>,
    candidates: &[Candidate],
) -> Result<Option<Shortage>, Error> {
    let group = facts
        .group
        .as_ref()
        .filter(|_| candidates.iter().any(is_registered));
    let (Some(group), Some(before)) = (group, before) else {
        return Ok(None);
    };
    let nodes = kubernetes::list_nodes(&facts.client).await?.readable;
    let id = &facts.run.input.instance_id;
    let record = facts.node.record()?;
    let size = find_size_without_place(facts, &record, group).await?;
    let group = Group {
        desired: count_wanted(group, record.raised_from, size),
        ..group.clone()
    };
    Ok(find_shortage(id, &facts.node, before, &group, &nodes))
}

/// Whether the new member is in service and has a Node.
fn is_registered(candidate: &Candidate) -> bool {
    candidate.member.is_in_service() && candidate.node.is_some()
}

/// Adds the drivers that offer devices on the new members that may become the replacement, if the old node had any to compare with.
pub(crate) async fn add_drivers(
    client: &kube::Client,
    id: &InstanceId,
    old: &NodeFacts,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, Error> {
    if !old.has_drivers() {
        return Ok(candidates);
    }
    let is_free = |candidate: &Candidate| candidate.reserved_for().is_none_or(|owner| owner == id.as_str());
    let may_replace = |candidate: &&mut Candidate| {
        let is_ready = candidate.node.as_ref().is_some_and(|node| node.ready);
        is_ready && is_registered(candidate) && is_free(candidate)
    };
    for candidate in candidates.iter_mut().filter(may_replace) {
        if let Some(node) = candidate.node.take() {
            candidate.node = Some(kubernetes::add_drivers(client, node).await?);
        }
    }
    Ok(candidates)
}

/// Writes that another node was quicker to reserve a usable new member.
pub(crate) fn describe_rivalry(new_member: &InstanceId) -> String {
    format!("{new_member} has just become the replacement of another node")
}

/// Checks whether the replacement was removed together with its place in the group, so that no other will come.
async fn find_removal(
    facts: &FetchedFacts,
    record: &Record,
    candidates: &[Candidate],
) -> Result<Option<Refusal>, Error> {
    let Some(group) = &facts.group else {
        return Ok(None);
    };
    let record = Record {
        raised_from: find_size_without_place(facts, record, group).await?,
        ..record.clone()
    };
    let staying = candidates.iter().filter(|candidate| candidate.is_staying());
    let text = describe_removal(group, &record, staying.count());
    Ok(text.map(|text| Obstacle::ReplacementRemoved.because(text)))
}

/// Keeps Cluster Autoscaler from removing a new member that may become the replacement, as soon as it has a Node.
async fn keep_new_members(facts: &FetchedFacts, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Error> {
    let old = &facts.run.input.instance_id;
    let mut kept = Vec::new();
    for candidate in candidates {
        let is_free = candidate.is_staying() && candidate.reserved_for().is_none();
        let node = match candidate.node {
            Some(node) if is_free => match kubernetes::keep_new_member(&facts.client, node, old).await {
                // The Node has gone since it was read.
                Err(kubernetes::Error::NodeGone { .. }) => None,
                kept => Some(kept?),
            },
            node => node,
        };
        kept.push(Candidate { node, ..candidate });
    }
    Ok(kept)
}

/// Reserves the replacement for `old` on the replacement's Node.
/// `evicted` notes the controllers whose pods were evicted while there was no replacement.
/// Returns false if there is no such Node, or if the Node is reserved for another node by now.
pub(crate) async fn reserve(
    client: &kube::Client,
    old: &InstanceId,
    candidates: &[Candidate],
    replacement: &InstanceId,
    evicted: Option<&str>,
) -> Result<bool, Error> {
    let old = old.as_str();
    let mut candidates = candidates.iter();
    let chosen = candidates.find(|candidate| candidate.member.instance == *replacement);
    let Some(node) = chosen.and_then(|candidate| candidate.node.clone()) else {
        return Ok(false);
    };
    let reserved = kubernetes::amend_node(client, node, |node| {
        if reserved_for(node).is_some() {
            return Ok(None);
        }
        let mut change = NodeChange::new()
            .annotate(REPLACEMENT_FOR_ANNOTATION, old)
            .label(REPLACES_LABEL, old);
        if let Some(evicted) = evicted {
            change = change.annotate(EVICTED_ANNOTATION, evicted);
        }
        // The new member may have been kept for another node. From now on it is kept for this one.
        if node.labels.get(KEPT_FOR_LABEL).is_some_and(|other| other != old) {
            change = change.label(KEPT_FOR_LABEL, old);
        }
        Ok::<_, Error>(Some(change))
    })
    .await?;
    Ok(reserved_for(&reserved) == Some(old))
}

/// Records the replacement on the old Node. After that the old node may be drained.
async fn accept(facts: FetchedFacts, replacement: InstanceId) -> Answered {
    kubernetes::amend_node(&facts.client, facts.node.clone(), |node| {
        kubernetes::check_claim(node, &facts.me, facts.run.input.urgency)?;
        let record = node.record()?;
        if record.replacement.as_ref() == Some(&replacement) {
            return Ok(None);
        }
        let record = Record {
            replacement: Some(replacement.clone()),
            ..record
        };
        Ok::<_, Error>(Some(NodeChange::new().record(&record)?))
    })
    .await?;
    let subject = facts.run.describe_node();
    let reason = format!("{subject} has its replacement: {replacement} is in service and usable");
    let body = StandbyBody {
        replacement: Some(replacement),
    };
    Ok(Answer::new(StandbyVerdict::Taint, reason)
        .with(body)
        .carrying(facts.run))
}
