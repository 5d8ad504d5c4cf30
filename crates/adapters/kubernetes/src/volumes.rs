//! Reads the volumes of pods, and checks whether another node that takes pods can use them.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1;
use recycle::base::strict::read_value;
use recycle::cluster::node::NodeFacts;
use recycle::drain::survey::PodSurvey;
use recycle::drain::volumes::{
    self, NodeSelectorTerm, Volume, VolumeClaim, claims_to_ask_for, could_take_pods_of, read_reach,
    selectors_of,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::call::{self, Call};
use crate::nodes::is_any_node;
use crate::object::Objects;

/// The number of claims that are read at once. Each takes two short calls, and a node has at most a few dozen volumes.
const AT_ONCE: usize = 10;

/// The part of a claim or of a volume that is read. The metadata is not read, because a tenant may write most of it.
#[derive(Debug, Deserialize)]
struct With<Spec> {
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    volume_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeSelector {
    node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Holds back those pods to evict that have a volume which no other node can use now.
/// Each claim of a pod to evict costs up to two calls. Each set of nodes that the volumes need, such as a zone, costs at least one.
/// If no such pod has a claim, there is no call.
pub async fn hold_back(
    client: &kube::Client,
    node: &NodeFacts,
    survey: PodSurvey,
) -> Result<PodSurvey, Error> {
    let claims = claims_to_ask_for(&survey.evictable);
    if claims.is_empty() {
        return Ok(survey);
    }
    let volumes = fetch_volumes(client, claims).await?;
    let mut places = BTreeSet::new();
    for selector in selectors_of(&volumes) {
        if is_any_node(client, &selector, |other| could_take_pods_of(node, other)).await? {
            places.insert(selector);
        }
    }
    Ok(volumes::hold_back(survey, &volumes, &places))
}

/// Fetches the volumes of the claims that are bound. A claim or a volume that is gone has no entry, so it restricts no pod.
async fn fetch_volumes(
    client: &kube::Client,
    claims: BTreeSet<VolumeClaim>,
) -> Result<BTreeMap<VolumeClaim, Volume>, Error> {
    stream::iter(claims)
        .map(|claim| async {
            let volume = fetch_volume(client, &claim).await?;
            Ok(volume.map(|volume| (claim, volume)))
        })
        .buffer_unordered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await
}

async fn fetch_volume(
    client: &kube::Client,
    (namespace, name): &VolumeClaim,
) -> Result<Option<Volume>, Error> {
    let claims = Objects::of::<v1::PersistentVolumeClaim>(client, Some(namespace));
    let claim: Option<ClaimSpec> = get_spec(&claims, "persistentvolumeclaims", name).await?;
    let bound = claim.and_then(|claim| claim.volume_name);
    let Some(name) = bound.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let volumes = Objects::of::<v1::PersistentVolume>(client, None);
    let volume: Option<VolumeSpec> = get_spec(&volumes, "persistentvolumes", &name).await?;
    Ok(volume.map(|volume| {
        let affinity = volume.node_affinity.and_then(|affinity| affinity.required);
        let reach = read_reach(&affinity.unwrap_or_default().node_selector_terms);
        Volume { name, reach }
    }))
}

/// Fetches the spec of one object. None if there is no object with the name.
async fn get_spec<Spec: DeserializeOwned>(
    objects: &Objects<'_>,
    resource: &'static str,
    name: &str,
) -> Result<Option<Spec>, Error> {
    let call = Call::new("get", resource, name);
    let Some(found) = call::get(objects, call).await? else {
        return Ok(None);
    };
    let With { spec } = read_value(&found).map_err(|why| Error::unexpected(call, why))?;
    Ok(Some(spec))
}
