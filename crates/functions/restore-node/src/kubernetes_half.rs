//! What is done on Nodes.

use kubernetes::NodeChange;
use recycle::base::ids::InstanceId;
use recycle::base::names::{
    CORDONED_FOR_ANNOTATION, EVICTED_ANNOTATION, EXCLUDE_FROM_BALANCERS_LABEL, REPLACEMENT_FOR_ANNOTATION,
    REPLACES_LABEL,
};
use recycle::cluster::node::{NodeFacts, draining_taint};
use recycle::records::claim::{Claim, Phase};
use recycle::restore::undo::undo_kubernetes;

use crate::look::Cluster;
use crate::target::Target;
use crate::{Error, RestoreNode};

impl RestoreNode {
    /// One request for everything that is ours on the Node, but for the records. The phase says that nothing is drained any more.
    pub(crate) async fn undo_kubernetes(&self, target: &Target) -> Result<(), Error> {
        let (Ok(cluster), Some(node)) = (&target.cluster, target.node()) else {
            return Ok(());
        };
        let taint = draining_taint(&target.subject.instance);
        kubernetes::amend_node(&cluster.client, node.clone(), |node| {
            let claim = target.check_claim(node)?;
            let Some(undo) = undo_kubernetes(node, &taint, target.is_in_standby()) else {
                return Ok(None);
            };
            let mut change = NodeChange::new();
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
            change = change.scale_down(undo.scale_down);
            if let Some(record) = undo.record {
                change = change.record(&record)?;
            }
            if let Some(claim) = claim.filter(|claim| claim.phase > Phase::Standby) {
                change = change.claim(&Claim {
                    phase: Phase::Standby,
                    ..claim
                })?;
            }
            Ok::<_, Error>(Some(change))
        })
        .await
        .map(|_| ())
    }
}

impl Target {
    /// Cordons, and writes in the same request that it was us.
    pub(crate) async fn cordon_replacement(&self, id: &InstanceId) -> Result<(), Error> {
        let old = self.subject.instance.as_str();
        self.amend_newcomers(std::slice::from_ref(id), |node| {
            let change = NodeChange::new()
                .annotate(CORDONED_FOR_ANNOTATION, old)
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
        let old = self.subject.instance.as_str();
        let is_ours =
            |node: &NodeFacts, key: &str| node.annotations.get(key).is_some_and(|owner| owner == old);
        self.amend_newcomers(ids, |node| {
            let mut change = NodeChange::new();
            if is_ours(node, CORDONED_FOR_ANNOTATION) {
                change = change.remove_annotation(CORDONED_FOR_ANNOTATION);
            }
            if is_ours(node, CORDONED_FOR_ANNOTATION) && node.is_cordoned_by_us() {
                change = change.unschedulable(false);
            }
            if reservation && is_ours(node, REPLACEMENT_FOR_ANNOTATION) {
                change = change
                    .remove_annotation(REPLACEMENT_FOR_ANNOTATION)
                    .remove_annotation(EVICTED_ANNOTATION)
                    .remove_label(REPLACES_LABEL);
            }
            let change = kubernetes::let_go(node, &self.subject.instance, change);
            (!change.is_empty()).then_some(change)
        })
        .await
    }

    async fn amend_newcomers(
        &self,
        ids: &[InstanceId],
        change: impl Fn(&NodeFacts) -> Option<NodeChange>,
    ) -> Result<(), Error> {
        let Ok(Cluster {
            client,
            newcomers,
            marked,
            ..
        }) = &self.cluster
        else {
            return Ok(());
        };
        let chosen = newcomers
            .iter()
            .flatten()
            .chain(marked)
            .filter(|newcomer| ids.contains(&newcomer.instance));
        for node in chosen.filter_map(|newcomer| newcomer.node.as_ref()) {
            match kubernetes::amend_node(client, node.clone(), |node| Ok::<_, Error>(change(node))).await {
                // Where there is no Node, there are no marks.
                Ok(_) | Err(Error::Node(kubernetes::Error::NodeGone { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
