//! Reads and writes the Leases of instances ([`recycle::records::lease`]).
//!
//! Every write carries the resourceVersion that was read, or creates the Lease. So two executions never both take a claim.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1;
use kube::api::{ListParams, Preconditions};
use recycle::base::ids::{GroupName, InstanceId, NodeName};
use recycle::base::names::{CLAIM_ANNOTATION, GROUP_LABEL, NAMESPACE, NODE_ANNOTATION, RECORD_ANNOTATION};
use recycle::base::strict::read_value;
use recycle::claim::places::size_without_place;
use recycle::cluster::group::Group;
use recycle::records::claim::Claim;
use recycle::records::lease::{LEASED, Lease};
use recycle::records::node_record::Record;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::call::{self, Call, CallFailure, attempt, send};
use crate::node_change::NodeChange;
use crate::nodes::group_label;
use crate::object::{Gap, Item, Metadata, Objects, given};

/// The values of [`LEASED`] annotations to write. None removes an annotation.
pub(crate) type Records = BTreeMap<&'static str, Option<String>>;

#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    metadata: Metadata,
}

impl Item for Result<Lease, Gap> {
    fn read(object: &Value) -> Self {
        let metadata = read_value::<Written>(object)?.metadata;
        let mut annotations = metadata.annotations.unwrap_or_default();
        let node = annotations.remove(NODE_ANNOTATION);
        annotations.retain(|key, _| LEASED.contains(&key.as_str()));
        let name = given("metadata.name", metadata.name)?;
        Ok(Lease {
            instance: name
                .parse()
                .map_err(|error| Gap(format!("metadata.name {error}")))?,
            resource_version: given("metadata.resourceVersion", metadata.resource_version)?,
            node: node.and_then(|name| name.parse().ok()),
            annotations,
        })
    }
}

fn leases(client: &kube::Client) -> Objects<'_> {
    Objects::of::<v1::Lease>(client, Some(NAMESPACE))
}

pub async fn get_lease(client: &kube::Client, instance: &InstanceId) -> Result<Option<Lease>, Error> {
    let call = Call::new("get", "leases", instance.as_str());
    let lease = call::get(&leases(client), call).await?;
    lease.map(|lease| understand(call, &lease)).transpose()
}

/// Lists all Leases of the installation's namespace.
pub async fn list_leases(client: &kube::Client) -> Result<Vec<Lease>, Error> {
    list(client, ListParams::default()).await
}

/// Lists the Leases with a group's label: the claims in the group, and perhaps some of another group with the same short hash.
pub async fn list_group(client: &kube::Client, group: &GroupName) -> Result<Vec<Lease>, Error> {
    let selector = format!("{GROUP_LABEL}={}", group_label(group));
    list(client, ListParams::default().labels(&selector)).await
}

/// Returns the desired capacity that the group has at this moment without the place that the execution of `me` has added.
/// None if the record says that it has added none.
pub async fn find_size_without_place(
    client: &kube::Client,
    record: &Record,
    me: &InstanceId,
    group: &Group,
) -> Result<Option<u32>, Error> {
    let Some(raised_from) = record.raised_from else {
        return Ok(None);
    };
    let leases = list_group(client, &group.name).await?;
    Ok(Some(size_without_place(raised_from, &leases, me, group)))
}

/// Lists Leases. A Lease that recycle-eks did not write is logged and left out.
async fn list(client: &kube::Client, params: ListParams) -> Result<Vec<Lease>, Error> {
    let call = Call::new("list", "leases", NAMESPACE);
    let found = call::list::<Result<Lease, Gap>>(&leases(client), params, call).await?;
    let warn = |gap: &Gap| tracing::warn!(why = gap.to_string(), "a Lease cannot be read");
    Ok(found
        .into_iter()
        .filter_map(|lease| lease.inspect_err(warn).ok())
        .collect())
}

/// Writes records to the Lease of an instance, and creates or deletes the Lease for that. Returns the Lease as it is then.
/// Without a change, nothing is written.
pub(crate) async fn write_records(
    client: &kube::Client,
    instance: &InstanceId,
    node: Option<&NodeName>,
    lease: Option<&Lease>,
    records: &Records,
) -> Result<Option<Lease>, Error> {
    let there = |key: &str| lease.and_then(|lease| lease.annotations.get(key));
    if records.iter().all(|(key, value)| there(key) == value.as_ref()) {
        return Ok(lease.cloned());
    }
    let stays = |key: &&str| match records.get(*key) {
        Some(value) => value.is_some(),
        None => there(key).is_some(),
    };
    match lease {
        Some(lease) if !LEASED.iter().any(stays) => delete_lease(client, lease).await.map(|()| None),
        Some(lease) => patch(client, lease, records).await.map(Some),
        None => create(client, instance, node, records).await.map(Some),
    }
}

/// Changes the Lease of an instance that has no Node. Returns the Lease as it is then.
pub async fn change_without_node(
    client: &kube::Client,
    instance: &InstanceId,
    lease: Option<&Lease>,
    change: &NodeChange,
) -> Result<Option<Lease>, Error> {
    write_records(client, instance, None, lease, change.records()).await
}

/// Removes annotations from the Lease of an instance that has no Node. The names of members that are still protected stay in the record,
/// for the sweep.
pub async fn forget_without_node(client: &kube::Client, lease: &Lease, keys: &[&str]) -> Result<(), Error> {
    let mut change = keys
        .iter()
        .fold(NodeChange::new(), |change, key| change.remove_annotation(key));
    if let Some(remainder) = remainder_of(lease).filter(|_| keys.contains(&RECORD_ANNOTATION)) {
        change = change.record(&remainder)?;
    }
    let written = write_records(client, &lease.instance, None, Some(lease), change.records()).await;
    written.map(|_| ())
}

/// Deletes the Lease of an instance that is disposed of. If its record names other members that are still protected, they stay in it, for
/// the sweep.
pub async fn end_lease(client: &kube::Client, lease: &Lease) -> Result<(), Error> {
    match remainder_of(lease) {
        Some(_) => forget_without_node(client, lease, &LEASED).await,
        None => delete_lease(client, lease).await,
    }
}

fn remainder_of(lease: &Lease) -> Option<Record> {
    let own = std::slice::from_ref(&lease.instance);
    lease.record().ok()?.unprotecting(own).remainder()
}

async fn create(
    client: &kube::Client,
    instance: &InstanceId,
    node: Option<&NodeName>,
    records: &Records,
) -> Result<Lease, Error> {
    let mut object = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": instance, "annotations": {}},
        "spec": {},
    });
    let given = records
        .iter()
        .filter_map(|(key, value)| Some((*key, value.as_deref()?)));
    for (key, value) in given.chain(node.map(|node| (NODE_ANNOTATION, node.as_str()))) {
        object["metadata"]["annotations"][key] = json!(value);
    }
    describe_claim(&mut object, records);
    let call = Call::new("create", "leases", instance.as_str());
    match attempt(leases(client).create(&object)).await {
        Err(CallFailure::Status(status)) if status.code == 404 => {
            Err(Error::NoNamespace { namespace: NAMESPACE })
        }
        created => understand(
            call,
            &created.map_err(|failure| Error::from_failure(call, failure))?,
        ),
    }
}

async fn patch(client: &kube::Client, lease: &Lease, records: &Records) -> Result<Lease, Error> {
    let mut change = json!({"metadata": {"resourceVersion": lease.resource_version, "annotations": records}});
    describe_claim(&mut change, records);
    let call = Call::new("patch", "leases", lease.instance.as_str());
    let changed = send(call, leases(client).patch(call.name, None, change)).await;
    understand(call, &changed.map_err(gone_is_conflict)?)
}

/// Deletes a Lease as it was read. A Lease that is gone already is no error.
async fn delete_lease(client: &kube::Client, lease: &Lease) -> Result<(), Error> {
    let call = Call::new("delete", "leases", lease.instance.as_str());
    let as_read = Preconditions {
        resource_version: Some(lease.resource_version.clone()),
        uid: None,
    };
    match send(call, leases(client).delete(call.name, as_read, None)).await {
        Err(Error::NodeGone { .. }) => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

/// Adds the holder, which `kubectl get leases` shows, and the label of the group to a change of the claim.
fn describe_claim(object: &mut Value, records: &Records) {
    let Some(claim) = records.get(CLAIM_ANNOTATION) else {
        return;
    };
    let claim = claim
        .as_deref()
        .and_then(|claim| Claim::from_annotation(claim).known());
    let (holder, group) = match claim {
        Some(claim) => (json!(claim.fence), json!(group_label(&claim.group))),
        None => (Value::Null, Value::Null),
    };
    object["spec"]["holderIdentity"] = holder;
    object["metadata"]["labels"] = json!({GROUP_LABEL: group});
}

/// Turns the 404 of a patch into a conflict: an operator has deleted the Lease since it was read.
fn gone_is_conflict(error: Error) -> Error {
    if let Error::NodeGone { node } = error {
        return Error::Conflict {
            call: format!("patch leases {node}"),
            source: "the Lease is gone".into(),
        };
    }
    error
}

fn understand(call: Call<'_>, object: &Value) -> Result<Lease, Error> {
    Result::read(object).map_err(|gap: Gap| Error::unexpected(call, gap))
}
