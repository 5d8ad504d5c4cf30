//! Test fixtures: a node in Standby whose execution has failed.

use std::collections::BTreeMap;

use recycle::base::ids::{Fence, InstanceId};
use recycle::base::names::{
    CLAIM_ANNOTATION, CLAIM_TAG, GAVE_UP_ANNOTATION, GAVE_UP_TAG, GROUP_TAG, REQUEST_TAINT,
};
use recycle::cluster::group::{Group, Member};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, Taint};
use recycle::contract::requests::RestoreRequest;
use recycle::input::urgency::Urgency;
use recycle::records::claim::Claim;
use recycle::records::lease::Lease;
use scripted_kube::ScriptedKube;
use serde_json::json;

use crate::cluster::Cluster;
use crate::facts::FetchedFacts;

pub(crate) const OLD: &str = "i-0123456789abcdef0";
pub(crate) const NODE: &str = "/api/v1/nodes/node-a";

pub(crate) fn id() -> InstanceId {
    OLD.parse().unwrap()
}

fn fence(execution: &str) -> Fence {
    format!("arn:aws:states:eu-west-1:123456789012:execution:recycle:{execution}#0")
        .parse()
        .unwrap()
}

fn me() -> Fence {
    fence("one")
}

pub(crate) fn claim(execution: &str) -> Claim {
    let claimed_at = "2027-01-01T00:00:00Z".parse().unwrap();
    Claim::new(
        fence(execution),
        "workers".parse().unwrap(),
        Urgency::Planned,
        claimed_at,
    )
}

pub(crate) fn node(claim: Option<Claim>) -> NodeFacts {
    let annotation = |claim| {
        (
            CLAIM_ANNOTATION.to_owned(),
            serde_json::to_string(&claim).unwrap(),
        )
    };
    let annotations: BTreeMap<String, String> = claim.into_iter().map(annotation).collect();
    NodeFacts {
        name: "node-a".parse().unwrap(),
        resource_version: "7".to_owned(),
        instance: Some(id()),
        ready: true,
        not_ready_since: None,
        unschedulable: false,
        cordoned_by: None,
        taints: Vec::new(),
        labels: BTreeMap::new(),
        annotations: annotations.clone(),
        extended_resources: Vec::new(),
        volumes: Vec::new(),
        kubelet: String::new(),
        lease: (!annotations.is_empty()).then(|| Lease {
            instance: id(),
            resource_version: "5".to_owned(),
            node: None,
            annotations,
        }),
    }
}

pub(crate) fn request_taint() -> Taint {
    Taint::new(REQUEST_TAINT, Some("now"), "NoSchedule")
}

fn instance(claim: Option<Claim>) -> Instance {
    let tags = |claim: Claim| {
        [
            (CLAIM_TAG.to_owned(), claim.to_tag()),
            (GROUP_TAG.to_owned(), claim.group.to_string()),
        ]
    };
    Instance {
        id: id(),
        state: "running".to_owned(),
        private_dns_name: None,
        tags: claim.into_iter().flat_map(tags).collect(),
        is_spot: false,
    }
}

fn member(id: &str, lifecycle_state: &str) -> Member {
    Member {
        instance: id.parse().unwrap(),
        lifecycle_state: lifecycle_state.to_owned(),
        protected_from_scale_in: false,
    }
}

fn group() -> Group {
    Group {
        name: "workers".parse().unwrap(),
        min: 1,
        desired: 2,
        max: 4,
        members: vec![member(OLD, "Standby")],
        suspended: Vec::new(),
        protects_new_members: false,
        zones: 1,
        rebalances_capacity: false,
        retains: false,
    }
}

pub(crate) fn facts(on_node: Option<Claim>, on_instance: Option<Claim>) -> FetchedFacts {
    facts_in(&ScriptedKube::new(), on_node, on_instance)
}

pub(crate) fn facts_in(
    kube: &ScriptedKube,
    on_node: Option<Claim>,
    on_instance: Option<Claim>,
) -> FetchedFacts {
    let cluster = Cluster {
        client: kube.client(),
        node: Some(node(on_node.clone())),
        lease: node(on_node).lease,
        new_members: Some(Vec::new()),
        marked: Vec::new(),
        raised_from: None,
        ahead: None,
    };
    let mut facts = FetchedFacts::new(id(), request(None), Some(instance(on_instance)), Ok(cluster));
    facts.group = Some(group());
    facts
}

/// Marks the instance as given up, in its tag and in its Lease.
pub(crate) fn give_up(facts: &mut FetchedFacts, at: &str) {
    let tags = &mut facts.instance.as_mut().unwrap().tags;
    tags.insert(GAVE_UP_TAG.to_owned(), at.to_owned());
    let lease = &mut facts.cluster.as_mut().unwrap().lease;
    let lease = lease.get_or_insert_with(|| Lease {
        instance: id(),
        resource_version: "5".to_owned(),
        node: None,
        annotations: BTreeMap::new(),
    });
    let key = GAVE_UP_ANNOTATION.to_owned();
    lease.annotations.insert(key, at.to_owned());
}

/// Returns the request of the state machine after a drain that took too long, `seconds` after the restore began.
pub(crate) fn request(seconds: Option<u32>) -> RestoreRequest {
    let restore = seconds.map_or_else(
        || json!({}),
        |_| json!({"since": "2027-01-01T00:00:00Z", "steps": 3, "reason": "waits"}),
    );
    let minutes = seconds.unwrap_or_default() / 60;
    serde_json::from_value(json!({
        "context": {
            "Execution": {
                "Id": me().execution,
                "Input": {"instance_id": OLD, "cluster_name": "world"},
            },
            "State": {"EnteredTime": format!("2027-01-01T00:{minutes:02}:00Z")},
        },
        "failure": {"Error": "DrainTimedOut", "Cause": "two pods are left"},
        "restore": restore,
    }))
    .unwrap()
}
