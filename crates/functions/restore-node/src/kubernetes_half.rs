//! Changes the Nodes during a restore.

use kubernetes::{NodeChange, remove_notices};
use recycle::base::ids::InstanceId;
use recycle::base::names::{
    CORDONED_FOR_ANNOTATION, EVICTED_ANNOTATION, EXCLUDE_FROM_BALANCERS_LABEL, REPLACEMENT_FOR_ANNOTATION,
    REPLACES_LABEL,
};
use recycle::cluster::node::{NodeFacts, draining_taint};
use recycle::records::claim::{Claim, Phase};
use recycle::restore::undo::undo_kubernetes;

use crate::Error;
use crate::facts::FetchedFacts;

impl FetchedFacts {
    /// Removes everything of recycle-eks from the Node in one request, except the claim. The record follows.
    /// The claim's phase goes back to Standby, because nothing is being drained now.
    /// The notices of the pods go first: once the Node is as before, the restore does not come back to them.
    pub(crate) async fn undo_kubernetes(&self) -> Result<(), Error> {
        if let (Ok(cluster), Some(node)) = (&self.cluster, self.node()) {
            self.check_claim(node)?;
            remove_notices(&cluster.client, &node.name).await?;
        }
        let taint = draining_taint(&self.id);
        self.amend_node(|node| {
            let claim = self.check_claim(node)?;
            let Some(undo) = undo_kubernetes(node, &taint, self.is_in_standby()) else {
                return Ok(None);
            };
            let mut change = NodeChange::new().undoing().scale_down(undo.scale_down);
            if let Some(taints) = undo.taints {
                change = change.taints(taints);
            }
            if undo.uncordon {
                change = change.unschedulable(false);
            }
            if undo.remove_label {
                change = change.remove_label(EXCLUDE_FROM_BALANCERS_LABEL);
            }
            for annotation in undo.annotations {
                change = change.remove_annotation(annotation);
            }
            // Without a Lease there is no record to change.
            if let Some(record) = undo
                .record
                .filter(|record| node.record().ok().as_ref() != Some(record))
            {
                change = change.record(&record)?;
            }
            if let Some(claim) = claim.filter(|claim| claim.phase > Phase::Standby) {
                let phase = Phase::Standby;
                change = change.claim(&Claim { phase, ..claim })?;
            }
            Ok(Some(change))
        })
        .await
        .map(|_| ())
    }

    /// Cordons the replacement, and records in the same request that recycle-eks did so.
    pub(crate) async fn cordon_replacement(&self, id: &InstanceId) -> Result<(), Error> {
        self.amend_new_members(std::slice::from_ref(id), |node| {
            let change = NodeChange::new()
                .annotate(CORDONED_FOR_ANNOTATION, self.id.as_str())
                .unschedulable(true);
            (!node.unschedulable).then_some(change)
        })
        .await
    }

    pub(crate) async fn release_replacements(
        &self,
        ids: &[InstanceId],
        reservation: bool,
    ) -> Result<(), Error> {
        let old = self.id.as_str();
        let is_for_old =
            |node: &NodeFacts, key: &str| node.annotations.get(key).is_some_and(|owner| owner == old);
        self.amend_new_members(ids, |node| {
            let mut change = NodeChange::new();
            if is_for_old(node, CORDONED_FOR_ANNOTATION) {
                change = change.remove_annotation(CORDONED_FOR_ANNOTATION);
                if node.is_cordoned_by_recycle_eks() {
                    change = change.unschedulable(false);
                }
            }
            if reservation && is_for_old(node, REPLACEMENT_FOR_ANNOTATION) {
                change = change
                    .remove_annotation(REPLACEMENT_FOR_ANNOTATION)
                    .remove_annotation(EVICTED_ANNOTATION)
                    .remove_label(REPLACES_LABEL);
            }
            let change = kubernetes::let_go(node, &self.id, change);
            (!change.is_empty()).then_some(change)
        })
        .await
    }

    async fn amend_new_members(
        &self,
        ids: &[InstanceId],
        change: impl Fn(&NodeFacts) -> Option<NodeChange>,
    ) -> Result<(), Error> {
        let Ok(cluster) = &self.cluster else {
            return Ok(());
        };
        let new_members = cluster.new_members.iter().flatten().chain(&cluster.marked);
        let chosen = new_members.filter(|new_member| ids.contains(&new_member.instance));
        for node in chosen.filter_map(|new_member| new_member.node.clone()) {
            match kubernetes::amend_node(&cluster.client, node, |node| Ok(change(node))).await {
                // A missing Node carries no marks.
                Ok(_) | Err(kubernetes::Error::NodeGone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
