//! The node as it is now, found through its records, and the release of a claim on it.

use node_record::NodeChange;
use recycle::claim::{Phase, StoredClaim};
use recycle::ids::{Fence, GroupName};
use recycle::names::{CLAIM_ANNOTATION, CLAIM_TAG, GROUP_LABEL, GROUP_TAG, PROGRESS_ANNOTATION};
use recycle::node::{Group, Instance, NodeFacts};

use crate::request::Subject;
use crate::{Error, RestoreNode};

pub(crate) struct Target {
    client: kube::Client,
    pub(crate) instance: Option<Instance>,
    group: Option<Group>,
    pub(crate) node: Option<NodeFacts>,
    subject: Subject,
}

impl RestoreNode {
    pub(crate) async fn fetch(&self, subject: &Subject) -> Result<Target, Error> {
        let id = &subject.instance;
        let instance = self.instances.fetch(id).await?;
        let group = self.groups.find(id).await?;
        let cluster = self.access.describe_cluster(&subject.cluster).await?;
        let client = self.access.connect(&cluster).await?;
        let hint = instance
            .as_ref()
            .and_then(|instance| instance.private_dns_name.as_deref());
        let node = node_record::find_node(&client, id, hint).await?;
        Ok(Target {
            client,
            instance,
            group,
            node,
            subject: subject.clone(),
        })
    }

    /// Takes the claim away, from the Node first: a half that stays on the instance belongs to an execution that has ended.
    pub(crate) async fn release(&self, target: &Target, me: &Fence) -> Result<(), Error> {
        if let Some(node) = &target.node {
            node_record::amend_node(&target.client, node.clone(), |node| {
                if node.claim().is_none() {
                    return Ok(None);
                }
                node_record::check_claim(node, me)?;
                Ok::<_, Error>(Some(
                    NodeChange::new()
                        .remove_annotation(CLAIM_ANNOTATION)
                        .remove_annotation(PROGRESS_ANNOTATION)
                        .remove_label(GROUP_LABEL),
                ))
            })
            .await?;
        }
        Ok(self
            .instances
            .untag(&target.subject.instance, &[CLAIM_TAG, GROUP_TAG])
            .await?)
    }
}

impl Target {
    /// The phases of those claims, on Node and instance, that are this execution's.
    pub(crate) fn own_phases(&self, me: &Fence) -> Vec<Phase> {
        let on_node = self.node.as_ref().and_then(NodeFacts::claim);
        let on_instance = self.instance.as_ref().and_then(Instance::claim);
        [on_node, on_instance]
            .into_iter()
            .filter_map(|claim| match claim {
                Some(StoredClaim::Known(claim)) if claim.fence == *me => Some(claim.phase),
                Some(StoredClaim::Known(_) | StoredClaim::Newer(_) | StoredClaim::Unreadable(_)) | None => {
                    None
                }
            })
            .collect()
    }

    pub(crate) fn lifecycle_state(&self) -> Option<&str> {
        let member = self.group.as_ref()?.member(&self.subject.instance)?;
        Some(&member.lifecycle_state)
    }

    pub(crate) fn group_name(&self) -> Option<&GroupName> {
        self.group.as_ref().map(|group| &group.name)
    }
}
