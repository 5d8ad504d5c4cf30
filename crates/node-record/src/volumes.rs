//! The volumes of pods: on which nodes they can be used, and whether there is one that takes pods.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1;
use kube::api::{Api, ApiResource, Object};
use recycle::node::NodeFacts;
use recycle::pods::PodSurvey;
use recycle::strict::Strict;
use recycle::zones::{
    self, NodeSelectorTerm, Volume, VolumeClaim, claims_to_ask_for, could_take_pods_of, read_reach,
    selectors_of,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::call::{Call, Trouble, send};
use crate::nodes::is_any_node;

/// How many claims are read at once: each is two short calls, and a node has at most a few dozen volumes.
const AT_ONCE: usize = 10;

/// Of a claim what is read here.
type PersistentVolumeClaim = Object<Strict<ClaimSpec>, Nothing>;
/// Of a volume what is read here.
type PersistentVolume = Object<Strict<VolumeSpec>, Nothing>;

/// A status that is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
struct Nothing {}

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

/// Holds back those of the pods to evict that have a volume which no other node can use now. Costs two calls for each claim of a pod to
/// evict and one for each zone; nothing if no such pod has a claim.
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
    Ok(zones::hold_back(survey, &volumes, &places))
}

/// The volumes of the claims that are bound. A claim or a volume that is gone binds nobody.
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
    let resource = ApiResource::erase::<v1::PersistentVolumeClaim>(&());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced_with(client.clone(), namespace, &resource);
    let claim = get(&claims, "persistentvolumeclaims", name).await?;
    let Some(name) = claim
        .and_then(|claim| claim.spec.0.volume_name)
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let resource = ApiResource::erase::<v1::PersistentVolume>(&());
    let volumes: Api<PersistentVolume> = Api::all_with(client.clone(), &resource);
    let volume = get(&volumes, "persistentvolumes", &name).await?;
    Ok(volume.map(|volume| {
        let affinity = volume.spec.0.node_affinity.and_then(|affinity| affinity.required);
        let terms = affinity.unwrap_or_default().node_selector_terms;
        Volume {
            name,
            reach: read_reach(&terms),
        }
    }))
}

/// One object; none if there is none of that name.
async fn get<K>(api: &Api<K>, resource: &'static str, name: &str) -> Result<Option<K>, Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let call = Call {
        verb: "get",
        resource,
        name,
    };
    match send(api.get(name)).await {
        Ok(found) => Ok(Some(found)),
        Err(Trouble::Status(status)) if status.code == 404 => Ok(None),
        Err(trouble) => Err(Error::from_trouble(call, trouble)),
    }
}
