//! The pods of one Node: listed, evicted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::api::policy::v1::Eviction as EvictionRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions, Time};
use kube::api::{Api, ApiResource, ListParams, Object, PostParams};
use recycle::ids::NodeName;
use recycle::names::FIELD_MANAGER;
use recycle::pods::{Controller, PodFacts};

use serde::Deserialize;

use crate::Error;
use crate::call::{self, Call, Trouble, send};

/// Of a pod what is read here, and nothing else: code that reads all of it is a tenth of a function.
type Pod = Object<Option<Spec>, Status>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    restart_policy: Option<String>,
    volumes: Vec<PodVolume>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodVolume {
    persistent_volume_claim: Option<ClaimReference>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimReference {
    claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

/// What became of the wish to evict a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is on its way out.
    Accepted,
    /// The pod is gone, or another one has its name.
    Gone,
    /// The pod may not go now.
    Blocked {
        /// What stands in the way, as the API server says it.
        by: String,
        /// After how many seconds it may be worth another try, if the API server says so.
        retry_after: Option<u32>,
    },
}

/// The pods that are bound to a Node, all of them.
pub async fn list_pods(client: &kube::Client, node: &NodeName) -> Result<Vec<PodFacts>, Error> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let name = format!("of node {node}");
    let call = Call {
        verb: "list",
        resource: "pods",
        name: &name,
    };
    let pods = call::list(&Api::<Pod>::all_with(client.clone(), &of_pods()), params, call).await?;
    Ok(pods.into_iter().map(read_pod).collect())
}

/// Asks for the eviction of this very pod (`policy/v1`): one of the same name that came after it is safe.
pub async fn evict_pod(client: &kube::Client, pod: &PodFacts) -> Result<Eviction, Error> {
    let api: Api<Pod> = Api::namespaced_with(client.clone(), &pod.namespace, &of_pods());
    let name = pod.full_name();
    let call = Call {
        verb: "create",
        resource: "pods/eviction",
        name: &name,
    };
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    // Not `Api::evict`: it writes `delete_options`, which the API server does not know, and the uid would not be checked.
    match send(api.create_subresource::<_, kube::core::Status>("eviction", &pod.name, &params, &request(pod)))
        .await
    {
        Ok(_) => Ok(Eviction::Accepted),
        Err(Trouble::Status(status)) => match read_refusal(&status) {
            Some(eviction) => Ok(eviction),
            None => Err(Error::from_trouble(call, Trouble::Status(status))),
        },
        Err(trouble) => Err(Error::from_trouble(call, trouble)),
    }
}

fn of_pods() -> ApiResource {
    ApiResource::erase::<v1::Pod>(&())
}

fn request(pod: &PodFacts) -> EvictionRequest {
    EvictionRequest {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    }
}

/// The refusals that are answers. A 429 without a budget among its causes is the API server's own throttling.
fn read_refusal(status: &kube::core::Status) -> Option<Eviction> {
    let budget = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .find(|cause| cause.reason == "DisruptionBudget");
    match (status.code, budget) {
        (404, _) => Some(Eviction::Gone),
        (409, _) if status.message.contains("UID in the precondition") => Some(Eviction::Gone),
        (429, Some(cause)) => Some(Eviction::Blocked {
            by: cause.message.clone(),
            retry_after: status
                .details
                .as_ref()
                .map(|details| details.retry_after_seconds)
                .filter(|after| *after > 0),
        }),
        (500, _) if status.message.contains("more than one PodDisruptionBudget") => Some(Eviction::Blocked {
            by: status.message.clone(),
            retry_after: None,
        }),
        _ => None,
    }
}

fn read_pod(pod: Pod) -> PodFacts {
    let metadata = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let controller = metadata
        .owner_references
        .unwrap_or_default()
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| Controller {
            kind: owner.kind,
            name: owner.name,
        });
    let known = |labels: Option<BTreeMap<String, String>>| labels.unwrap_or_default();
    PodFacts {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        labels: known(metadata.labels),
        annotations: known(metadata.annotations),
        controller,
        phase: pod
            .status
            .and_then(|status| status.phase)
            .unwrap_or_else(|| "Unknown".to_owned()),
        restart_policy: spec.restart_policy.unwrap_or_else(|| "Always".to_owned()),
        created_at: metadata.creation_timestamp.map(|Time(time)| time),
        deletion_at: metadata.deletion_timestamp.map(|Time(time)| time),
        volume_claims: spec
            .volumes
            .into_iter()
            .filter_map(|volume| volume.persistent_volume_claim)
            .map(|claim| claim.claim_name)
            .collect(),
    }
}
