//! The Events that `kubectl describe node` shows: one for each phase that an execution reaches.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, PostParams};
use recycle::claim::Phase;
use recycle::failure::with_causes;
use recycle::ids::{Fence, NodeName};
use recycle::names::FIELD_MANAGER;

use crate::Error;
use crate::call::{Call, Trouble, send};

/// Events of Nodes, which are in no namespace, live here; elsewhere the API server refuses them.
const NAMESPACE: &str = "default";
/// The API server refuses longer messages.
const LONGEST_MESSAGE: usize = 1024;
/// The reason of the one Event that is no phase.
const NODE_LOST: &str = "RecycleNodeLost";
/// Leaves room for reason and hash within the 253 characters of a name.
const LONGEST_NODE: usize = 200;
/// The reason of what comes up from outside.
const WARNING: &str = "RecycleDisturbed";

/// Tells those who watch the Node that a phase began. Said twice by the same execution, it counts once. An Event that cannot
/// be written is logged and fails nothing: the record is what counts.
pub async fn tell(
    client: &kube::Client,
    node: &NodeName,
    phase: Phase,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) {
    let event = write_event(node, reason(phase), "Normal", message, now, fence);
    post(client, node, event).await;
}

/// Tells them that the node is lost, and which pods with it. The Node object may be gone: an Event needs none.
pub async fn tell_loss(client: &kube::Client, node: &NodeName, message: &str, now: Timestamp, fence: &Fence) {
    let event = write_event(node, NODE_LOST, "Warning", message, now, fence);
    post(client, node, event).await;
}

/// Tells them, as a warning, what came up from outside while a node is worked on; `what` is its name. Said twice by the same execution, it
/// counts once.
pub async fn warn(
    client: &kube::Client,
    node: &NodeName,
    what: &str,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) {
    let mut event = write_event(node, WARNING, "Warning", message, now, fence);
    let name = event_name(node, WARNING, &format!("{fence} {what}"));
    event.metadata.name = Some(name);
    post(client, node, event).await;
}

async fn post(client: &kube::Client, node: &NodeName, event: Event) {
    let call = Call {
        verb: "create",
        resource: "events",
        name: node.as_str(),
    };
    let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match send(api.create(&params, &event)).await {
        Ok(_) => {}
        Err(Trouble::Status(status)) if status.code == 409 => {}
        Err(trouble) => {
            tracing::warn!(
                error = with_causes(&Error::from_trouble(call, trouble)),
                "no Event was written"
            );
        }
    }
}

fn write_event(
    node: &NodeName,
    reason: &str,
    severity: &str,
    message: &str,
    now: Timestamp,
    fence: &Fence,
) -> Event {
    let execution = fence.execution.as_str().rsplit(':').next().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(node, reason, &fence.to_string())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_string()),
            // As the kubelet does it: `kubectl describe node` asks for this uid, too.
            uid: Some(node.to_string()),
            ..ObjectReference::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(reason.to_owned()),
        message: Some(message.chars().take(LONGEST_MESSAGE).collect()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        event_time: Some(MicroTime(now)),
        reporting_component: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(execution.to_owned()),
        ..Event::default()
    }
}

fn reason(phase: Phase) -> &'static str {
    match phase {
        Phase::Claimed => "RecycleClaimed",
        Phase::Turn => "RecycleTurn",
        Phase::Standby => "RecycleStandby",
        Phase::Draining => "RecycleDraining",
        Phase::Waiting => "RecycleWaiting",
        Phase::Disposing => "RecycleDisposing",
    }
}

/// The same for the same node, phase and life of an execution (or what else `teller` says), so that the API server keeps only the first.
fn event_name(node: &NodeName, reason: &str, teller: &str) -> String {
    let node: String = node.as_str().chars().take(LONGEST_NODE).collect();
    let node = node.trim_end_matches(['-', '.']);
    format!("{node}.{}.{}", reason.to_lowercase(), short_hash(teller))
}

/// The first 8 hexadecimal digits of FNV-1a (64 bits): stable between versions, and nobody is kept out by it.
pub(crate) fn short_hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{:08x}", hash >> 32)
}
