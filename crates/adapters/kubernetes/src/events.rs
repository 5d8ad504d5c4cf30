//! Writes the Events that `kubectl describe` shows: on a Node one for each phase that an execution reaches, and others about its pods,
//! and on a pod the notice that its node is being retired.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::Api;
use recycle::base::failure::with_causes;
use recycle::base::ids::{Fence, NodeName, short_hash};
use recycle::base::names::FIELD_MANAGER;
use recycle::cluster::pod::PodFacts;
use recycle::records::claim::Phase;

use crate::Error;
use crate::call::{Call, send};
use crate::object::own_post;

/// The namespace for Events of Nodes, which have no namespace. The API server refuses such Events in any other namespace.
const NAMESPACE: &str = "default";
/// The maximum number of bytes in a message, a limit of the API server.
const LONGEST_MESSAGE: usize = 1024;
/// The maximum number of characters of an object's name in the name of an Event, which has 253. The rest is for reason and hash.
const LONGEST_NAME: usize = 200;

/// The object that an Event is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Node(&'a NodeName),
    Pod(&'a PodFacts),
}

impl<'a> From<&'a NodeName> for Subject<'a> {
    fn from(node: &'a NodeName) -> Self {
        Self::Node(node)
    }
}

impl<'a> From<&'a PodFacts> for Subject<'a> {
    fn from(pod: &'a PodFacts) -> Self {
        Self::Pod(pod)
    }
}

impl Subject<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Node(node) => node.as_str(),
            Self::Pod(pod) => &pod.name,
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Node(_) => NAMESPACE,
            Self::Pod(pod) => &pod.namespace,
        }
    }

    fn refer(&self) -> ObjectReference {
        let (kind, namespace, uid) = match self {
            // The kubelet also uses the name as the uid, and `kubectl describe node` also lists the Events with this uid.
            Self::Node(node) => ("Node", None, node.to_string()),
            Self::Pod(pod) => ("Pod", Some(pod.namespace.clone()), pod.uid.clone()),
        };
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(self.name().to_owned()),
            namespace,
            uid: Some(uid),
            ..ObjectReference::default()
        }
    }
}

/// The reason for an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion<'a> {
    Phase(Phase),
    /// Pods of these classes are on the node. There is one Event for each set of classes.
    Pods(&'a str),
    /// A blocker stands in the way of evictions. There is one Event for each blocker.
    Blocked(&'a str),
    /// An obstacle came up from outside while the execution works on the node. There is one Event for each obstacle.
    Disturbed(&'a str),
    /// The node of a pod is being retired. There is one Event for each end of the drain.
    Notice(Timestamp),
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
            Self::Notice(_) => "RecycleNotice",
            Self::Refused => "RecycleRefused",
            Self::Planned => "RecyclePlanned",
            Self::Lost => "RecycleNodeLost",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Phase(_) | Self::Pods(_) | Self::Notice(_) | Self::Planned => "Normal",
            Self::Blocked(_) | Self::Disturbed(_) | Self::Refused | Self::Lost => "Warning",
        }
    }

    /// Returns the text in which Events of the same reason differ.
    fn detail(&self) -> String {
        match self {
            Self::Phase(_) | Self::Refused | Self::Planned | Self::Lost => String::new(),
            Self::Pods(detail) | Self::Blocked(detail) | Self::Disturbed(detail) => (*detail).to_owned(),
            Self::Notice(until) => until.to_string(),
        }
    }
}

/// Writes an Event on a Node or a pod: a phase began, or something else happened that an operator should know.
/// A second Event of the execution with the same reason and detail is dropped, unless the execution was redriven in between.
/// An Event that cannot be written is logged and fails nothing, because only the record counts.
pub async fn record_event(
    client: &kube::Client,
    subject: impl Into<Subject<'_>>,
    occasion: impl Into<Occasion<'_>>,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) {
    let subject = subject.into();
    let event = write_event(subject, occasion.into(), message, now, fence);
    let call = Call::new("create", "events", subject.name());
    let api: Api<Event> = Api::namespaced(client.clone(), subject.namespace());
    match send(call, api.create(&own_post(), &event)).await {
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => tracing::warn!(error = with_causes(&error), "failed to write an Event"),
    }
}

fn write_event(
    subject: Subject<'_>,
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
            name: Some(event_name(subject, occasion, fence)),
            namespace: Some(subject.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: subject.refer(),
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

/// Returns the Event's name. Subject, occasion, execution and redrive count determine it, so the API server keeps only the first Event.
fn event_name(subject: Subject<'_>, occasion: Occasion<'_>, fence: &Fence) -> String {
    let name: String = subject.name().chars().take(LONGEST_NAME).collect();
    let name = name.trim_end_matches(['-', '.']);
    let hash = short_hash(&format!("{fence}{}", occasion.detail()));
    format!("{name}.{}.{hash}", occasion.reason().to_lowercase())
}
