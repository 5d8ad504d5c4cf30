//! Writes the Events that `kubectl describe node` shows: one for each phase that an execution reaches, and others about its pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, PostParams};
use recycle::base::failure::with_causes;
use recycle::base::ids::{Fence, NodeName, short_hash};
use recycle::base::names::FIELD_MANAGER;
use recycle::records::claim::Phase;

use crate::Error;
use crate::call::{Call, send};

/// The namespace for Events of Nodes, which have no namespace. The API server refuses such Events in any other namespace.
const NAMESPACE: &str = "default";
/// The maximum number of bytes in a message, a limit of the API server.
const LONGEST_MESSAGE: usize = 1024;
/// The maximum number of characters of a Node's name in the name of an Event, which has 253. The rest is for reason and hash.
const LONGEST_NODE: usize = 200;

/// The subject of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion<'a> {
    Phase(Phase),
    /// Pods of these classes are on the node. There is one Event for each set of classes.
    Pods(&'a str),
    /// A blocker stands in the way of evictions. There is one Event for each blocker.
    Blocked(&'a str),
    /// An obstacle came up from outside while the execution works on the node. There is one Event for each obstacle.
    Disturbed(&'a str),
    /// The request of a request taint is refused.
    Refused,
    /// The request of a request taint is a dry run. The message is the plan.
    Planned,
    /// The node is lost. The message names the pods that were lost with it. The Node object may be gone, because an Event does not need it.
    Lost,
}

impl From<Phase> for Occasion<'_> {
    fn from(phase: Phase) -> Self {
        Self::Phase(phase)
    }
}

impl Occasion<'_> {
    fn reason(self) -> &'static str {
        match self {
            Self::Phase(Phase::Claimed) => "RecycleClaimed",
            Self::Phase(Phase::Admitted) => "RecycleAdmitted",
            Self::Phase(Phase::Standby) => "RecycleStandby",
            Self::Phase(Phase::Draining) => "RecycleDraining",
            Self::Phase(Phase::Waiting) => "RecycleWaiting",
            Self::Phase(Phase::Disposing) => "RecycleDisposing",
            Self::Pods(_) => "RecyclePods",
            Self::Blocked(_) => "RecycleBlocked",
            Self::Disturbed(_) => "RecycleDisturbed",
            Self::Refused => "RecycleRefused",
            Self::Planned => "RecyclePlanned",
            Self::Lost => "RecycleNodeLost",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Phase(_) | Self::Pods(_) | Self::Planned => "Normal",
            Self::Blocked(_) | Self::Disturbed(_) | Self::Refused | Self::Lost => "Warning",
        }
    }

    /// Returns the text in which Events of the same reason differ.
    fn detail(&self) -> &str {
        match self {
            Self::Phase(_) | Self::Refused | Self::Planned | Self::Lost => "",
            Self::Pods(detail) | Self::Blocked(detail) | Self::Disturbed(detail) => detail,
        }
    }
}

/// Writes an Event on the Node: a phase began, or something else happened that an operator should know.
/// A second Event of the execution with the same reason and detail is dropped, unless the execution was redriven in between.
/// An Event that cannot be written is logged and fails nothing, because only the record counts.
pub async fn record_event(
    client: &kube::Client,
    node: &NodeName,
    occasion: impl Into<Occasion<'_>>,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) {
    let event = write_event(node, occasion.into(), message, now, fence);
    let call = Call::new("create", "events", node.as_str());
    let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match send(call, api.create(&params, &event)).await {
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => tracing::warn!(error = with_causes(&error), "failed to write an Event"),
    }
}

fn write_event(
    node: &NodeName,
    occasion: Occasion<'_>,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) -> Event {
    let reason = occasion.reason();
    let execution = fence.execution.as_str().rsplit(':').next().unwrap_or_default();
    let end = message.floor_char_boundary(LONGEST_MESSAGE);
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(node, occasion, fence)),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_string()),
            // The kubelet also uses the name as the uid, and `kubectl describe node` also lists the Events with this uid.
            uid: Some(node.to_string()),
            ..ObjectReference::default()
        },
        type_: Some(occasion.kind().to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(reason.to_owned()),
        message: message.get(..end).map(str::to_owned),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        event_time: Some(MicroTime(now)),
        reporting_component: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(execution.to_owned()),
        ..Event::default()
    }
}

/// Returns the Event's name. Node, occasion, execution and redrive count determine it, so the API server keeps only the first Event.
fn event_name(node: &NodeName, occasion: Occasion<'_>, fence: &Fence) -> String {
    let node: String = node.as_str().chars().take(LONGEST_NODE).collect();
    let node = node.trim_end_matches(['-', '.']);
    let hash = short_hash(&format!("{fence}{}", occasion.detail()));
    format!("{node}.{}.{hash}", occasion.reason().to_lowercase())
}
