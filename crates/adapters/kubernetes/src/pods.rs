//! Lists and evicts the pods of one Node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::api::policy::v1::Eviction as EvictionRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{Api, ListParams};
use recycle::base::ids::NodeName;
use recycle::base::strict::read_value;
use recycle::cluster::pod::{Controller, PodContainers, PodFacts, PodScheduling, PodVolumes, Toleration};
use recycle::drain::blocked::{RefusalKind, read_admission};
use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::call::{self, Call, CallFailure, attempt};
use crate::object::{Gap, Item, Metadata, Objects, OwnerReference, given, keep_read, own_post, text_at};
use crate::shallow::LeftOut;

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
    priority_class_name: Option<String>,
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
    host_path: Option<Value>,
    ephemeral: Option<Value>,
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
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
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
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    exit_code: Option<i64>,
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
    // `Api::evict` does not fit. It writes `delete_options`, which the API server does not know, so the uid would not be checked.
    let (params, request) = (own_post(), request(pod, grace));
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

/// Deletes exactly this pod, in exactly this state: after any change the API server refuses. No budget is asked.
pub async fn delete_pod(
    client: &kube::Client,
    pod: &PodFacts,
    grace: Option<u32>,
) -> Result<Eviction, Error> {
    let pods = Objects::of::<v1::Pod>(client, Some(&pod.namespace));
    let name = pod.full_name();
    let call = Call::new("delete", "pods", &name);
    let as_read = kube::api::Preconditions {
        uid: Some(pod.uid.clone()),
        resource_version: Some(pod.containers.version.clone()),
    };
    match attempt(pods.delete(&pod.name, as_read, grace)).await {
        Ok(_) => Ok(Eviction::Accepted),
        Err(CallFailure::Status(status)) if status.code == 404 => Ok(Eviction::Gone),
        Err(failure) => Err(Error::from_failure(call, failure)),
    }
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
/// A budget with a retry time means that its controller has not processed it yet.
/// A webhook chooses the code of its refusal, and one that does not answer is an internal error (500). Both have its name in the text.
fn read_refusal(status: &kube::core::Status) -> Option<Eviction> {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    let budget = causes().find(|cause| cause.reason == "DisruptionBudget");
    let is_terminating = causes().any(|cause| cause.reason == "NamespaceTerminating");
    let text = &status.message;
    let kind = match (status.code, budget) {
        (404, _) => return Some(Eviction::Gone),
        (409, _) if text.contains("UID in the precondition") => return Some(Eviction::Gone),
        (429, Some(_)) => {
            let retry_after = status.details.as_ref().map(|details| details.retry_after_seconds);
            match retry_after {
                Some(1..) => RefusalKind::BudgetNotReady,
                Some(0) | None => RefusalKind::BudgetFull,
            }
        }
        (500, _) if text.contains("more than one PodDisruptionBudget") => RefusalKind::SeveralBudgets,
        _ if read_admission(text).is_some() => RefusalKind::Admission,
        (403, _) if is_terminating => RefusalKind::NamespaceTerminating,
        (403, _) => RefusalKind::Forbidden,
        (429, None) => RefusalKind::Throttled,
        (400 | 422, _) => RefusalKind::Invalid,
        _ => return None,
    };
    let says = budget.map_or(text, |budget| &budget.message).clone();
    Some(Eviction::Refused { kind, says })
}

impl Item for PodFacts {
    const LEFT_OUT: &'static [LeftOut] = &[
        LeftOut("metadata", &[LeftOut("managedFields", &[])]),
        LeftOut(
            "spec",
            &[LeftOut("containers", &[]), LeftOut("initContainers", &[])],
        ),
    ];

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
    let containers = PodContainers {
        version: metadata.resource_version.unwrap_or_default(),
        ..read_containers(&status, spec.restart_policy)
    };
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
        containers,
        volumes: PodVolumes {
            has_local_storage: spec.volumes.iter().any(PodVolume::is_local),
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
        scheduling: PodScheduling {
            priority_class: spec.priority_class_name.unwrap_or_default(),
            tolerations: spec.tolerations.into_iter().map(Toleration::from).collect(),
        },
        deletion_at: metadata.deletion_timestamp,
    })
}

impl From<SpecToleration> for Toleration {
    fn from(given: SpecToleration) -> Self {
        Self {
            key: given.key,
            operator: given.operator,
            value: given.value,
            effect: given.effect,
            seconds: given.toleration_seconds,
        }
    }
}

impl PodVolume {
    /// Checks whether the data of the volume ends with the pod or its machine.
    fn is_local(&self) -> bool {
        self.empty_dir.is_some() || self.host_path.is_some() || self.ephemeral.is_some()
    }
}

fn read_containers(status: &Status, restart_policy: Option<String>) -> PodContainers {
    let is_running = |container: &ContainerStatus| container.state.running.is_some();
    let is_completed = |container: &ContainerStatus| {
        let terminated = container.state.terminated.as_ref();
        terminated.is_some_and(|end| end.exit_code == Some(0))
    };
    let is_looping = |container: &ContainerStatus| {
        let waiting = container.state.waiting.as_ref();
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    let containers = &status.container_statuses;
    PodContainers {
        version: String::new(),
        restart_policy: restart_policy.unwrap_or_else(|| "Always".to_owned()),
        is_debugged: status.ephemeral_container_statuses.iter().any(is_running),
        is_half_completed: containers.iter().any(is_completed) && containers.iter().any(is_running),
        is_ready: status
            .conditions
            .iter()
            .any(|condition| condition.r#type == "Ready" && condition.status == "True"),
        is_crash_looping: containers.iter().any(is_looping),
    }
}

fn read_controller(owner: OwnerReference) -> Result<Controller, Gap> {
    let read = |field: &str, value| given(&format!("metadata.ownerReferences.{field}"), value);
    let version = read("apiVersion", owner.api_version)?;
    // The core group has no name: its versions are written `v1`.
    let (api_group, _) = version.split_once('/').unwrap_or_default();
    Ok(Controller {
        api_group: api_group.to_owned(),
        kind: read("kind", owner.kind)?,
        name: read("name", owner.name)?,
        uid: read("uid", owner.uid)?,
    })
}
