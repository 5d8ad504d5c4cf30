//! The node as it is now, found through its records, and the release of a claim on it.

use node_record::NodeChange;
use recycle::claim::{Phase, StoredClaim};
use recycle::failure::{Failure, NamedFailure as _, with_causes};
use recycle::ids::{Fence, GroupName};
use recycle::names::{
    CLAIM_ANNOTATION, CLAIM_TAG, GROUP_LABEL, GROUP_TAG, PROGRESS_ANNOTATION, RECORD_ANNOTATION, STANDBY_TAG,
};
use recycle::node::{Group, Instance, NodeFacts};

use crate::request::Subject;
use crate::{Error, RestoreNode};

/// How often the cluster is asked before the report goes without it: with the state machine's pauses about two minutes.
const PATIENT_TRIES: u32 = 6;

pub(crate) struct Target {
    pub(crate) instance: Option<Instance>,
    group: Option<Group>,
    /// Why the cluster could not be asked, if it could not.
    pub(crate) cluster: Result<Cluster, String>,
    subject: Subject,
}

/// The cluster's half.
pub(crate) struct Cluster {
    client: kube::Client,
    node: Option<NodeFacts>,
}

impl RestoreNode {
    /// Reads both halves. A cluster that will not answer, or has not for `tries`, is left out: the AWS half stands by itself.
    pub(crate) async fn fetch(&self, subject: &Subject, tries: u32) -> Result<Target, Error> {
        let id = &subject.instance;
        let instance = self.instances.fetch(id).await?;
        let group = self.groups.find(id).await?;
        let hint = instance
            .as_ref()
            .and_then(|instance| instance.private_dns_name.as_deref());
        let cluster = match self.fetch_cluster(subject, hint).await {
            Err(error) if error.failure() == Failure::ServiceUnavailable && tries < PATIENT_TRIES => {
                return Err(error);
            }
            cluster => cluster.map_err(|error| with_causes(&error)),
        };
        Ok(Target {
            instance,
            group,
            cluster,
            subject: subject.clone(),
        })
    }

    async fn fetch_cluster(&self, subject: &Subject, hint: Option<&str>) -> Result<Cluster, Error> {
        let cluster = self.access.describe_cluster(&subject.cluster).await?;
        let client = self.access.connect(&cluster).await?;
        let node = node_record::find_node(&client, &subject.instance, hint).await?;
        Ok(Cluster { client, node })
    }

    /// Takes the claim away with what was recorded under it, from the Node first: a half that stays on the instance belongs to an
    /// execution that has ended.
    pub(crate) async fn release(&self, target: &Target, cluster: &Cluster, me: &Fence) -> Result<(), Error> {
        if let Some(node) = &cluster.node {
            node_record::amend_node(&cluster.client, node.clone(), |node| {
                if node.claim().is_none() {
                    return Ok(None);
                }
                node_record::check_claim(node, me)?;
                Ok::<_, Error>(Some(
                    NodeChange::new()
                        .remove_annotation(CLAIM_ANNOTATION)
                        .remove_annotation(RECORD_ANNOTATION)
                        .remove_annotation(PROGRESS_ANNOTATION)
                        .remove_label(GROUP_LABEL),
                ))
            })
            .await?;
        }
        Ok(self
            .instances
            .untag(&target.subject.instance, &[CLAIM_TAG, GROUP_TAG, STANDBY_TAG])
            .await?)
    }
}

impl Target {
    /// The phases of those claims, on Node and instance, that are this execution's.
    pub(crate) fn own_phases(&self, me: &Fence) -> Vec<Phase> {
        let on_node = self.node().and_then(NodeFacts::claim);
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

    /// The Node, if there is one and the cluster could be asked.
    pub(crate) fn node(&self) -> Option<&NodeFacts> {
        self.cluster.as_ref().ok()?.node.as_ref()
    }

    pub(crate) fn lifecycle_state(&self) -> Option<&str> {
        let member = self.group.as_ref()?.member(&self.subject.instance)?;
        Some(&member.lifecycle_state)
    }

    pub(crate) fn group_name(&self) -> Option<&GroupName> {
        self.group.as_ref().map(|group| &group.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use recycle::claim::{Claim, Urgency};
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;

    const NODE: &str = "/api/v1/nodes/node-a";

    fn fence(execution: &str) -> Fence {
        format!("arn:aws:states:eu-west-1:123456789012:execution:recycle:{execution}#0")
            .parse()
            .unwrap()
    }

    fn claim(execution: &str) -> Claim {
        let claimed_at = "2027-01-01T00:00:00Z".parse().unwrap();
        Claim::new(
            fence(execution),
            "workers".parse().unwrap(),
            Urgency::Planned,
            claimed_at,
        )
    }

    fn target(kube: &ScriptedKube, on_node: Option<Claim>, on_instance: Option<Claim>) -> Target {
        let subject = Subject {
            instance: "i-0123456789abcdef0".parse().unwrap(),
            cluster: "world".parse().unwrap(),
        };
        let annotation = |claim| {
            (
                CLAIM_ANNOTATION.to_owned(),
                serde_json::to_string(&claim).unwrap(),
            )
        };
        let tags = |claim: Claim| {
            [
                (CLAIM_TAG.to_owned(), claim.to_tag()),
                (GROUP_TAG.to_owned(), claim.group.to_string()),
            ]
        };
        let node = NodeFacts {
            name: "node-a".parse().unwrap(),
            resource_version: "7".to_owned(),
            instance: Some(subject.instance.clone()),
            ready: true,
            unschedulable: false,
            taints: Vec::new(),
            labels: BTreeMap::new(),
            annotations: on_node.into_iter().map(annotation).collect(),
            extended_resources: Vec::new(),
            volumes: Vec::new(),
        };
        Target {
            instance: Some(Instance {
                id: subject.instance.clone(),
                state: "running".to_owned(),
                private_dns_name: None,
                tags: on_instance.into_iter().flat_map(tags).collect(),
                is_spot: false,
            }),
            group: None,
            cluster: Ok(Cluster {
                client: kube.client(),
                node: Some(node),
            }),
            subject,
        }
    }

    #[tokio::test]
    async fn only_our_own_claims_count() {
        let kube = ScriptedKube::new();
        let phases = |on_node: Option<&str>, on_instance: Option<&str>| {
            target(&kube, on_node.map(claim), on_instance.map(claim)).own_phases(&fence("one"))
        };
        assert_eq!(phases(None, None), []);
        assert_eq!(phases(Some("two"), Some("two")), []);
        assert_eq!(phases(Some("two"), Some("one")), [Phase::Claimed]);
        assert_eq!(phases(Some("one"), Some("one")), [Phase::Claimed, Phase::Claimed]);
    }

    #[tokio::test]
    async fn a_claim_is_released_on_the_node_and_then_on_the_instance() {
        let released = json!({"metadata": {"name": "node-a"}});
        let kube = ScriptedKube::new().on("PATCH", NODE, 200, released);
        let aws = ScriptedAws::new().on("DeleteTags", "");
        let target = target(&kube, Some(claim("one")), Some(claim("one")));
        RestoreNode::new(&aws.config())
            .release(&target, target.cluster.as_ref().unwrap(), &fence("one"))
            .await
            .unwrap();
        let metadata = &kube.calls()[0].body["metadata"];
        for annotation in [CLAIM_ANNOTATION, RECORD_ANNOTATION, PROGRESS_ANNOTATION] {
            assert_eq!(
                metadata["annotations"].get(annotation),
                Some(&json!(null)),
                "{annotation}"
            );
        }
        assert_eq!(metadata["resourceVersion"], "7");
        assert!(
            aws.calls()[0].contains("recycle-eks%3Aclaim"),
            "{}",
            aws.calls()[0]
        );
    }

    #[tokio::test]
    async fn a_claim_that_somebody_else_took_meanwhile_is_left_alone() {
        let theirs = serde_json::to_string(&claim("two")).unwrap();
        let kube = ScriptedKube::new()
            .refuses("PATCH", NODE, 409, "Conflict", "the object has been modified")
            .on(
                "GET",
                NODE,
                200,
                json!({"metadata": {"name": "node-a", "annotations": {CLAIM_ANNOTATION: theirs}}}),
            );
        let aws = ScriptedAws::new();
        let target = target(&kube, Some(claim("one")), Some(claim("one")));
        let error = RestoreNode::new(&aws.config())
            .release(&target, target.cluster.as_ref().unwrap(), &fence("one"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::ClaimLost(_)), "{error:?}");
        assert!(aws.calls().is_empty());
    }
}
