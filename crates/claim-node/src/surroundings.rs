//! Everything that is read before the claim: cluster, instance, group, Node, and what we may do there.

use recycle::claim::{ClaimDecision, ClaimLost, Phase, StoredClaim, Urgency};
use recycle::contract::{Cluster, describe_instance};
use recycle::ids::Fence;
use recycle::input::Input;
use recycle::left_behind::is_untouched;
use recycle::names::{CLAIM_ANNOTATION, CLAIM_TAG};
use recycle::node::{Group, Instance, NodeFacts};

use crate::{ClaimNode, Error};

/// What was found; none where there is none.
pub(crate) struct Found {
    cluster: Cluster,
    client: kube::Client,
    missing_permissions: Vec<String>,
    instance: Option<Instance>,
    group: Option<Group>,
    node: Option<NodeFacts>,
}

/// The same once pre-flight has passed: nothing is missing.
pub(crate) struct Target {
    pub(crate) cluster: Cluster,
    pub(crate) client: kube::Client,
    pub(crate) instance: Instance,
    pub(crate) group: Group,
    pub(crate) node: NodeFacts,
}

impl ClaimNode {
    pub(crate) async fn fetch_surroundings(&self, input: &Input) -> Result<Found, Error> {
        let id = &input.instance_id;
        let instance = self.instances.fetch(id).await?;
        let group = self.groups.find(id).await?;
        let cluster = self.access.describe_cluster(&input.cluster_name).await?;
        let client = self.access.connect(&cluster).await?;
        let missing_permissions = node_record::missing_permissions(&client).await?;
        let node = if missing_permissions.is_empty() {
            let hint = instance
                .as_ref()
                .and_then(|instance| instance.private_dns_name.as_deref());
            node_record::find_node(&client, id, hint).await?
        } else {
            // Pre-flight refuses anyway, and names all that is missing instead of the first call that fails.
            None
        };
        Ok(Found {
            cluster,
            client,
            missing_permissions,
            instance,
            group,
            node,
        })
    }
}

impl Found {
    /// The Node's claim; where it has none, the instance's.
    pub(crate) fn claim(&self) -> Option<StoredClaim> {
        let on_node = self.node.as_ref().and_then(NodeFacts::claim);
        on_node.or_else(|| self.instance.as_ref().and_then(Instance::claim))
    }

    /// For an execution that has waited for its turn: the claim has to be its own still. Without a Node, whose instance may be gone,
    /// pre-flight ends it whatever the claim says.
    pub(crate) fn decide_queued(&self, me: &Fence, urgency: Urgency) -> Result<ClaimDecision, ClaimLost> {
        match &self.node {
            Some(node) => node_record::check_claim(node, me, urgency).map(ClaimDecision::Ours),
            None => Ok(ClaimDecision::Take),
        }
    }

    /// Whether the holder of a claim that came to this phase has touched the node. In the queue nothing is touched, whatever others do.
    pub(crate) fn has_begun(&self, phase: Phase) -> bool {
        if phase <= Phase::Turn {
            return false;
        }
        let id = self.instance.as_ref().map(|instance| &instance.id);
        let member = id.and_then(|id| self.group.as_ref()?.member(id));
        !is_untouched(&[phase], member.map(|member| member.lifecycle_state.as_str()))
    }

    pub(crate) fn unreadable_claim(&self, text: &str) -> Error {
        let place = match (&self.node, &self.instance) {
            (Some(node), _) if node.claim().is_some() => {
                format!("the annotation {CLAIM_ANNOTATION} of node {}", node.name)
            }
            (_, Some(instance)) => {
                format!("the tag {CLAIM_TAG} of {}", describe_instance(&instance.id, None))
            }
            (_, None) => "the claim".to_owned(),
        };
        Error::Refused(format!(
            "{place} is not a claim of ours but {text:?}; remove it if nobody works on the node"
        ))
    }

    pub(crate) fn for_preflight<'a>(
        &'a self,
        input: &'a Input,
        resuming: bool,
    ) -> recycle::preflight::Surroundings<'a> {
        recycle::preflight::Surroundings {
            input,
            instance: self.instance.as_ref(),
            group: self.group.as_ref(),
            node: self.node.as_ref(),
            missing_permissions: &self.missing_permissions,
            resuming,
        }
    }

    pub(crate) fn into_target(self) -> Result<Target, Error> {
        Ok(Target {
            cluster: self.cluster,
            client: self.client,
            instance: self.instance.ok_or(Error::Incomplete("the instance"))?,
            group: self.group.ok_or(Error::Incomplete("its group"))?,
            node: self.node.ok_or(Error::Incomplete("its Node"))?,
        })
    }
}
