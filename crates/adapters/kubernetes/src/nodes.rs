//! Finds, reads, lists and changes Nodes.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use kube::api::ListParams;
use recycle::base::ids::{Fence, GroupName, InstanceId, InvalidId, NodeName, short_hash};
use recycle::base::names::REPLACES_LABEL;
use recycle::base::strict::read_value;
use recycle::cluster::node::{NodeFacts, NodeList, Taint, UnreadableNode};
use recycle::input::urgency::Urgency;
use recycle::records::claim::{self, Claim, ClaimLost, Phase};
use recycle::records::lease::Lease;
use recycle::rotation::outdated::Release;
use serde::Deserialize;
use serde_json::Value;

use crate::call::{self, Call, send};
use crate::leases::{Records, get_lease, list_leases, write_records};
use crate::node_change::NodeChange;
use crate::object::{Gap, Item, ManagedFields, Metadata, Objects, given, keep_read, read_time, text_at};
use crate::permissions::server_version;
use crate::shallow::LeftOut;
use crate::{Error, StepError};

/// The number of attempts to change a Node that other clients also write.
/// The kubelet and the node controllers write a Node every few seconds at most, so a second attempt usually succeeds.
/// After three conflicts in a row the call fails, and the state machine tries again later.
const ATTEMPTS: u32 = 3;

/// The parts of a Node that are read. The code to read a whole Node would be a tenth of a function.
#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Vec<Condition>,
    allocatable: BTreeMap<String, Value>,
    volumes_attached: Vec<AttachedVolume>,
    volumes_in_use: Vec<String>,
    node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    kubelet_version: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default, deserialize_with = "read_time")]
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
struct AttachedVolume {
    name: String,
}

/// The name for a writer without a name, or with a time that cannot be represented. It differs from recycle-eks's own name.
const FORGED: &str = "forged";

/// Finds the client that last wrote `spec.unschedulable`. A client that sets a field to another value owns it from then on.
/// The API server also keeps entries that clients send. An entry that the API server itself would not have written counts as another
/// client's ([`FORGED`]).
fn find_cordoner(entries: Vec<ManagedFields>) -> Option<String> {
    let mut owners = entries;
    owners.retain(|entry| entry.fields_v1.pointer("/f:spec/f:unschedulable").is_some());
    let is_forged = |entry: &ManagedFields| entry.manager.is_none() || entry.time == Some(Timestamp::MAX);
    if owners.iter().any(is_forged) {
        return Some(FORGED.to_owned());
    }
    owners.into_iter().next()?.manager
}

fn nodes(client: &kube::Client) -> Objects<'_> {
    Objects::of::<v1::Node>(client, None)
}

impl Item for Result<NodeFacts, UnreadableNode> {
    const LEFT_OUT: &'static [LeftOut] = &[LeftOut("status", &[LeftOut("images", &[])])];

    fn read(object: &Value) -> Self {
        read_node(object).map_err(|gap| UnreadableNode {
            name: call::cut(&text_at(object, "/metadata/name")),
            instance: read_provider_id(&text_at(object, "/spec/providerID")),
            why: gap.to_string(),
        })
    }
}

/// Fetches the Node of an instance, and the instance's Lease. None if there is no such Node, or if it names another instance: names of
/// Nodes are reused, and a caller's payload has the name. A Node that cannot be read is an error.
///
/// Both are read at the same time. An execution that takes over a claim writes the Lease, and then the copy of the claim on the Node.
/// If the copy differs from the Lease, the Lease may have been read too early, so it is read again. So a change against this version of
/// the Node never succeeds after another execution has taken over.
pub async fn get_node(
    client: &kube::Client,
    name: &NodeName,
    instance: &InstanceId,
) -> Result<Option<NodeFacts>, Error> {
    let (node, lease) = join(read(client, name), get_lease(client, instance)).await;
    // If both fail, the error about the Node is reported.
    let is_another = |node: &NodeFacts| node.instance.as_ref().is_some_and(|id| id != instance);
    let Some(node) = node?.filter(|node| !is_another(node)) else {
        return Ok(None);
    };
    let node = NodeFacts {
        lease: lease?,
        ..node
    };
    if node.shows_claim() {
        return Ok(Some(node));
    }
    let lease = get_lease(client, instance).await?;
    Ok(Some(NodeFacts { lease, ..node }))
}

async fn read(client: &kube::Client, name: &NodeName) -> Result<Option<NodeFacts>, Error> {
    let call = Call::new("get", "nodes", name.as_str());
    let node = call::get(&nodes(client), call).await?;
    node.map(|node| understand(call, &node)).transpose()
}

/// Reads a Node that was requested by name. An unreadable Node is an error, because it cannot be left out as in a list.
fn understand(call: Call<'_>, object: &Value) -> Result<NodeFacts, Error> {
    Result::read(object).map_err(|node: UnreadableNode| Error::unexpected(call, node))
}

pub(crate) const OF_CLUSTER: &str = "of the cluster";

/// Lists every Node of the cluster with the Lease of its instance. Also returns all Leases, some of which may have no Node.
pub async fn list_claimed_nodes(client: &kube::Client) -> Result<(NodeList, Vec<Lease>), Error> {
    let (nodes, leases) = join(list_nodes(client), list_leases(client)).await;
    let (mut nodes, leases) = (nodes?, leases?);
    for node in &mut nodes.readable {
        let lease = leases
            .iter()
            .find(|lease| Some(&lease.instance) == node.instance.as_ref());
        node.lease = lease.cloned();
    }
    Ok((nodes, leases))
}

/// Lists every Node of the cluster, in pages, without Leases.
pub async fn list_nodes(client: &kube::Client) -> Result<NodeList, Error> {
    list(client, ListParams::default(), OF_CLUSTER).await
}

/// Lists Nodes and logs those that cannot be read, because some callers leave them out.
async fn list(client: &kube::Client, params: ListParams, name: &str) -> Result<NodeList, Error> {
    let mut found = NodeList::default();
    for node in call::list(&nodes(client), params, listing(name)).await? {
        match node {
            Ok(node) => found.readable.push(node),
            Err(node) => {
                warn_of(&node);
                found.unreadable.push(node);
            }
        }
    }
    set_twins_aside(&mut found);
    Ok(found)
}

/// Counts Nodes that name the same instance as unreadable. A kubelet chooses `providerID` when it registers, so nothing says which of them
/// is the instance's Node.
fn set_twins_aside(found: &mut NodeList) {
    let mut named = BTreeMap::<InstanceId, usize>::new();
    for id in found.readable.iter().filter_map(|node| node.instance.clone()) {
        *named.entry(id).or_default() += 1;
    }
    let is_twin = |node: &mut NodeFacts| node.instance.as_ref().is_some_and(|id| named.get(id) > Some(&1));
    for node in found.readable.extract_if(.., is_twin) {
        let twin = UnreadableNode {
            name: node.name.to_string(),
            instance: node.instance,
            why: "spec.providerID: another Node names the same instance".to_owned(),
        };
        warn_of(&twin);
        found.unreadable.push(twin);
    }
}

fn warn_of(node: &UnreadableNode) {
    tracing::warn!(node = node.name, why = node.why, "a Node cannot be read");
}

pub async fn list_replacements(client: &kube::Client, of: &[InstanceId]) -> Result<Vec<NodeFacts>, Error> {
    let ids: Vec<&str> = of.iter().map(InstanceId::as_str).collect();
    let selector = format!("{REPLACES_LABEL} in ({})", ids.join(","));
    list_labelled(client, &selector, "that are replacements").await
}

/// Lists the Nodes that replace any node of the cluster.
pub async fn list_all_replacements(client: &kube::Client) -> Result<Vec<NodeFacts>, Error> {
    list_labelled(client, REPLACES_LABEL, "that are replacements").await
}

/// Reads the control plane's version. None if the API server's text is not a version.
pub async fn read_release(client: &kube::Client) -> Result<Option<Release>, Error> {
    Ok(Release::read(&server_version(client).await?))
}

/// Lists the readable Nodes that a label selector matches. `name` describes the list in errors.
pub(crate) async fn list_labelled(
    client: &kube::Client,
    selector: &str,
    name: &str,
) -> Result<Vec<NodeFacts>, Error> {
    let params = ListParams::default().labels(selector);
    Ok(list(client, params, name).await?.readable)
}

/// Checks whether any other Node is Ready. If none is, the fault lies in their connection to the API server, not in the nodes.
/// Kubernetes also deletes no pods when all nodes stop reporting.
pub async fn is_another_ready(client: &kube::Client, than: &NodeName) -> Result<bool, Error> {
    is_any_node(client, "", |node| node.ready && node.name != *than).await
}

/// The number of Nodes in a page when one match is enough. A zone has at most one or two Nodes at a time that are drained or not Ready.
const FEW: u32 = 20;

/// Checks whether any Node that a label selector matches meets `is_such`. An unreadable Node does not.
/// No page is fetched after the one with the first match.
pub(crate) async fn is_any_node(
    client: &kube::Client,
    selector: &str,
    is_such: impl Fn(&NodeFacts) -> bool,
) -> Result<bool, Error> {
    let params = ListParams::default().labels(selector).limit(FEW);
    let name = format!("with {selector}");
    let is_one = |node: Result<NodeFacts, _>| node.inspect_err(warn_of).is_ok_and(|node| is_such(&node));
    call::any(&nodes(client), params, listing(&name), is_one).await
}

pub(crate) fn listing(name: &str) -> Call<'_> {
    Call::new("list", "nodes", name)
}

/// Returns the Node's claim if `me` still holds it. Every acting step calls this first. `urgency` is that of the calling execution.
pub fn check_claim(node: &NodeFacts, me: &Fence, urgency: Urgency) -> Result<Claim, ClaimLost> {
    claim::check_claim(node.claim(), me, urgency, &format!("node {}", node.name))
}

/// Returns the same claim if its work has reached the phase `least`. A caller of the function can leave out the steps before it.
pub fn check_phase(node: &NodeFacts, me: &Fence, urgency: Urgency, least: Phase) -> Result<Claim, StepError> {
    let claim = check_claim(node, me, urgency)?;
    if claim.phase >= least {
        return Ok(claim);
    }
    Err(StepError::TooEarly {
        node: node.name.to_string(),
        phase: claim.phase,
        least,
    })
}

/// Writes a change against the versions of the Node and of its Lease that were read. Returns the Node after the change.
pub async fn change_node(
    client: &kube::Client,
    node: &NodeFacts,
    change: NodeChange,
) -> Result<NodeFacts, Error> {
    if change.undoes() {
        let records = change.records().clone();
        let node = patch_node(client, node, change).await?;
        let lease = write_lease(client, &node, &records).await?;
        return Ok(NodeFacts { lease, ..node });
    }
    let lease = write_lease(client, node, change.records()).await?;
    let node = patch_node(client, node, change).await?;
    Ok(NodeFacts { lease, ..node })
}

async fn write_lease(
    client: &kube::Client,
    node: &NodeFacts,
    records: &Records,
) -> Result<Option<Lease>, Error> {
    let lease = node.lease.as_ref();
    match lease.map(|lease| &lease.instance).or(node.instance.as_ref()) {
        Some(instance) => write_records(client, instance, Some(&node.name), lease, records).await,
        None => Ok(None),
    }
}

async fn patch_node(client: &kube::Client, node: &NodeFacts, change: NodeChange) -> Result<NodeFacts, Error> {
    let Some(patch) = change.into_patch(node) else {
        return Ok(node.clone());
    };
    let call = Call::new("patch", "nodes", node.name.as_str());
    let changed = send(call, nodes(client).patch(call.name, None, patch)).await?;
    let lease = node.lease.clone();
    Ok(NodeFacts {
        lease,
        ..understand(call, &changed)?
    })
}

/// Changes a Node as `decide` says, and returns the Node as it is in the end. `decide` returns None if nothing has to change.
/// If another client changes the Node first, the Node is read again and `decide` is called again, up to `ATTEMPTS` times in total.
/// A caller that needs the claim therefore checks it in `decide`.
pub async fn amend_node<E: From<Error>>(
    client: &kube::Client,
    mut node: NodeFacts,
    decide: impl Fn(&NodeFacts) -> Result<Option<NodeChange>, E>,
) -> Result<NodeFacts, E> {
    let mut attempt = 1;
    loop {
        let Some(change) = decide(&node)? else {
            return Ok(node);
        };
        match change_node(client, &node, change).await {
            Err(Error::Conflict { .. }) if attempt < ATTEMPTS => {
                attempt += 1;
                let found = match node
                    .lease
                    .as_ref()
                    .map(|lease| &lease.instance)
                    .or(node.instance.as_ref())
                {
                    Some(instance) => get_node(client, &node.name, instance).await?,
                    None => read(client, &node.name).await?,
                };
                node = found.ok_or_else(|| Error::NodeGone {
                    node: node.name.to_string(),
                })?;
            }
            changed => return Ok(changed?),
        }
    }
}

/// Returns the value of the Lease's label `recycle-eks/group`, a hash of the group's name.
/// The name itself may be longer than a label value, or contain characters that a label value may not.
pub(crate) fn group_label(group: &GroupName) -> String {
    short_hash(group.as_str())
}

/// Reads what the decisions need of a Node. A missing name, version or spec is an error.
/// Without name and version, a write could not refer to the Node as it was read.
/// Without a spec, the Node would seem to have no taints, and the next change would remove them.
fn read_node(object: &Value) -> Result<NodeFacts, Gap> {
    let Node {
        metadata,
        spec,
        status,
    } = read_value(object)?;
    let status = status.unwrap_or_default();
    let name = given("metadata.name", metadata.name)?;
    let mut conditions = status.conditions.into_iter();
    let condition = conditions.find(|condition| condition.kind == "Ready");
    let ready = condition.as_ref().is_some_and(|ready| ready.status == "True");
    let attached = status.volumes_attached.into_iter().map(|volume| volume.name);
    let volumes: BTreeSet<String> = status.volumes_in_use.into_iter().chain(attached).collect();
    Ok(NodeFacts {
        resource_version: given("metadata.resourceVersion", metadata.resource_version)?,
        name: name
            .parse()
            .map_err(|error: InvalidId| Gap(format!("metadata.name {error}")))?,
        instance: spec.provider_id.as_deref().and_then(read_provider_id),
        ready,
        not_ready_since: condition
            .filter(|_| !ready)
            .and_then(|condition| condition.last_transition_time),
        unschedulable: spec.unschedulable,
        cordoned_by: find_cordoner(metadata.managed_fields),
        taints: spec.taints,
        labels: metadata.labels.unwrap_or_default(),
        annotations: keep_read(metadata.annotations),
        extended_resources: status
            .allocatable
            .into_iter()
            .filter(|(name, quantity)| name.contains('/') && quantity != "0")
            .map(|(name, _)| name)
            .collect(),
        volumes: volumes.into_iter().collect(),
        kubelet: status.node_info.kubelet_version,
        lease: None,
    })
}

/// Reads the instance id from a provider id such as `aws:///eu-west-1a/i-0123456789abcdef0`.
fn read_provider_id(provider_id: &str) -> Option<InstanceId> {
    let (_, id) = provider_id.strip_prefix("aws://")?.rsplit_once('/')?;
    id.parse().ok()
}
