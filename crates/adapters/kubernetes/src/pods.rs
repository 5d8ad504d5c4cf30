//! Lists and evicts the pods of one Node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::api::policy::v1::Eviction as EvictionRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{Api, ListParams, PostParams};
use recycle::base::ids::NodeName;
use recycle::base::names::FIELD_MANAGER;
use recycle::base::strict::read_value;
use recycle::cluster::pod::{Controller, PodContainers, PodFacts, PodVolumes, Toleration};
use recycle::drain::blocked::RefusalKind;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::call::{self, Call, CallFailure, attempt};
use crate::object::{Gap, Item, Metadata, Objects, OwnerReference, given, keep_read, text_at};

/// The parts of a pod that are read. The code to read a whole pod would be a tenth of a function.
#[derive(Debug, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    restart_policy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    volumes: Vec<PodVolume>,
    tolerations: Vec<SpecToleration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecToleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodVolume {
    empty_dir: Option<Value>,
    persistent_volume_claim: Option<ClaimReference>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimReference {
    claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    start_time: Option<Timestamp>,
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerStatus {
    #[serde(default)]
    state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<Value>,
}

/// The API server's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// The outcome of a request to evict a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is being terminated.
    Accepted,
    /// The pod is gone, or another one has its name.
    Gone,
    /// The pod may not be evicted now.
    Refused {
        kind: RefusalKind,
        /// The API server's own text.
        says: String,
    },
}

/// Lists all pods that are bound to a Node, including those that cannot be read ([`PodFacts::unreadable`]).
pub async fn list_pods(client: &kube::Client, node: &NodeName) -> Result<Vec<PodFacts>, Error> {
    let (selector, name) = (format!("spec.nodeName={node}"), format!("of node {node}"));
    list(client, &selector, &name).await
}

/// Lists the pods of the cluster that are Pending: no node has room for them, or they have not started yet.
pub async fn list_pending_pods(client: &kube::Client) -> Result<Vec<PodFacts>, Error> {
    list(client, "status.phase=Pending", "that are Pending").await
}

async fn list(client: &kube::Client, selector: &str, name: &str) -> Result<Vec<PodFacts>, Error> {
    let params = ListParams::default().fields(selector);
    let call = Call::new("list", "pods", name);
    call::list(&Objects::of::<v1::Pod>(client, None), params, call).await
}

/// Requests the eviction of exactly this pod (`policy/v1`). The request names the pod's uid, so that a later pod of the same name is safe.
pub async fn evict_pod(client: &kube::Client, pod: &PodFacts, grace: Option<u32>) -> Result<Eviction, Error> {
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let name = pod.full_name();
    let call = Call::new("create", "pods/eviction", &name);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    // `Api::evict` does not fit. It writes `delete_options`, which the API server does not know, so the uid would not be checked.
    let request = request(pod, grace);
    let answer = api.create_subresource::<_, kube::core::Status>("eviction", &pod.name, &params, &request);
    let Err(failure) = attempt(answer).await else {
        return Ok(Eviction::Accepted);
    };
    let refusal = match &failure {
        CallFailure::Status(status) => read_refusal(status),
        CallFailure::NoAnswer(_) | CallFailure::Malformed(_) => None,
    };
    refusal.ok_or_else(|| Error::from_failure(call, failure))
}

/// Builds the request. `grace` is a grace period in seconds that replaces the pod's own.
fn request(pod: &PodFacts, grace: Option<u32>) -> EvictionRequest {
    EvictionRequest {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: grace.map(i64::from),
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    }
}

/// Reads a refusal that is an answer about the pod. None if the refusal is a failure of the call.
/// A 429 without a budget among its causes is the API server's own throttling.
/// A budget with a retry time means that its controller has not processed it yet.
fn read_refusal(status: &kube::core::Status) -> Option<Eviction> {
    let budget = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .find(|cause| cause.reason == "DisruptionBudget");
    match (status.code, budget) {
        (404, _) => Some(Eviction::Gone),
        (409, _) if status.message.contains("UID in the precondition") => Some(Eviction::Gone),
        (429, Some(cause)) => {
            let retry_after = status.details.as_ref().map(|details| details.retry_after_seconds);
            Some(Eviction::Refused {
                kind: match retry_after {
                    Some(1..) => RefusalKind::BudgetNotReady,
                    Some(0) | None => RefusalKind::BudgetFull,
                },
                says: cause.message.clone(),
            })
        }
        (500, _) if status.message.contains("more than one PodDisruptionBudget") => Some(Eviction::Refused {
            kind: RefusalKind::SeveralBudgets,
            says: status.message.clone(),
        }),
        _ => None,
    }
}

impl Item for PodFacts {
    fn read(object: &Value) -> Self {
        read_pod(object).unwrap_or_else(|gap| {
            let [namespace, name, uid] =
                ["namespace", "name", "uid"].map(|field| text_at(object, &format!("/metadata/{field}")));
            let pod = Self::unreadable(namespace, name, uid, &gap.to_string());
            tracing::warn!(
                pod = pod.full_name(),
                why = pod.unreadable,
                "a pod cannot be read"
            );
            pod
        })
    }
}

/// Reads a pod, and requires the fields that evictions depend on.
/// Without name and uid, an eviction could hit another pod, or the pod could count as gone.
/// Without phase, creation time and controller, a pod could be evicted although it has finished, tolerates the draining taint, or belongs
/// to a DaemonSet.
fn read_pod(object: &Value) -> Result<PodFacts, Gap> {
    let Pod {
        metadata,
        spec,
        status,
    } = read_value(object)?;
    let status = status.unwrap_or_default();
    if metadata.creation_timestamp.is_none() {
        return Err(Gap("metadata.creationTimestamp is missing".to_owned()));
    }
    let mut owners = metadata.owner_references.into_iter();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let controller = controller.map(read_controller).transpose()?;
    let grace = spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
    Ok(PodFacts {
        namespace: given("metadata.namespace", metadata.namespace)?,
        name: given("metadata.name", metadata.name)?,
        uid: given("metadata.uid", metadata.uid)?,
        unreadable: None,
        labels: metadata.labels.unwrap_or_default(),
        annotations: keep_read(metadata.annotations),
        controller,
        phase: given("status.phase", status.phase)?,
        containers: PodContainers {
            restart_policy: spec.restart_policy.unwrap_or_else(|| "Always".to_owned()),
            is_debugged: status
                .ephemeral_container_statuses
                .iter()
                .any(|container| container.state.running.is_some()),
        },
        volumes: PodVolumes {
            has_empty_dir: spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            claims: spec
                .volumes
                .into_iter()
                .filter_map(|volume| volume.persistent_volume_claim)
                .map(|claim| claim.claim_name)
                .collect(),
        },
        grace_seconds: u32::try_from(grace.max(0)).unwrap_or(u32::MAX),
        created_at: metadata.creation_timestamp,
        started_at: status.start_time,
        tolerations: spec
            .tolerations
            .into_iter()
            .map(|given| Toleration {
                key: given.key,
                operator: given.operator,
                value: given.value,
                effect: given.effect,
                seconds: given.toleration_seconds,
            })
            .collect(),
        deletion_at: metadata.deletion_timestamp,
    })
}

fn read_controller(owner: OwnerReference) -> Result<Controller, Gap> {
    let read = |field: &str, value| given(&format!("metadata.ownerReferences.{field}"), value);
    Ok(Controller {
        kind: read("kind", owner.kind)?,
        name: read("name", owner.name)?,
        uid: read("uid", owner.uid)?,
    })
}
