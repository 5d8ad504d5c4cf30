//! Test fixtures: a node that is being claimed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use recycle::base::ids::InstanceId;
use recycle::base::names::CLAIM_ANNOTATION;
use recycle::cluster::group::{Group, Member};
use recycle::cluster::instance::Instance;
use recycle::contract::requests::ClaimRequest;
use recycle::contract::run::Run;
use recycle::input::fields::Settings;
use recycle::input::limits::Limits;
use recycle::input::parse::parse_input;
use recycle::input::path::RecyclePath;
use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, Phase};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use crate::facts::ClaimFacts;

pub(crate) const NOW: &str = "2027-01-01T00:00:00Z";
/// Paths of the node under test and of the list of its group's Leases.
pub(crate) const NODE: &str = "/api/v1/nodes/one";
pub(crate) const LIST: &str = "/leases?";

pub(crate) fn id() -> InstanceId {
    "i-0123456789abcdef0".parse().unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        cluster_name: "world".parse().unwrap(),
        limits: Limits::default(),
        defaults: serde_json::Map::new(),
    }
}

/// Returns the claim of the execution and node of this name, made `seconds` after [`NOW`].
pub(crate) fn claim_of(name: &str, phase: Phase, seconds: i64) -> Claim {
    let fence = format!("arn:aws:states:eu-west-1:123456789012:execution:recycle:{name}#0");
    let claimed_at = NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds);
    Claim {
        phase,
        ..Claim::new(
            fence.parse().unwrap(),
            "workers".parse().unwrap(),
            Urgency::Planned,
            claimed_at,
        )
    }
}

/// Returns the claim of the execution under test.
pub(crate) fn claim(phase: Phase) -> Claim {
    claim_of("one", phase, 0)
}

/// Returns the Node as the API server has it: the node under test, or the other node if the claim is the other execution's.
pub(crate) fn node(claim: Option<&Claim>) -> Value {
    let execution = claim.map(|claim| claim.fence.execution.to_string());
    let is_other = execution.is_some_and(|execution| execution.ends_with("two"));
    let (name, digit) = if is_other { ("two", 1) } else { ("one", 0) };
    let mut metadata = json!({"name": name, "resourceVersion": "7", "annotations": {}, "labels": {}});
    if let Some(claim) = claim {
        metadata["annotations"][CLAIM_ANNOTATION] = json!(serde_json::to_string(claim).unwrap());
    }
    let provider_id = format!("aws:///eu-west-1a/i-0123456789abcdef{digit}");
    json!({"metadata": metadata, "spec": {"providerID": provider_id}})
}

/// Returns the list of the Leases of these Nodes.
pub(crate) fn list(nodes: &[Value]) -> Value {
    let lease = |node: &Value| {
        let (_, instance) = node["spec"]["providerID"].as_str()?.rsplit_once('/')?;
        let mut annotations = node["metadata"]["annotations"].as_object()?.clone();
        annotations.insert("recycle-eks/node".to_owned(), node["metadata"]["name"].clone());
        Some(json!({"metadata": {"name": instance, "resourceVersion": "7", "annotations": annotations}}))
    };
    let leases: Vec<Value> = nodes.iter().filter_map(lease).collect();
    json!({"metadata": {"resourceVersion": "9"}, "items": leases})
}

/// Returns the facts after pre-flight: this Node, and its instance in service and without tags.
pub(crate) async fn facts(kube: &ScriptedKube, node: &Value) -> ClaimFacts {
    let found = ScriptedKube::new().on("GET", NODE, 200, node.clone());
    let facts = kubernetes::get_node(&found.client(), &"one".parse().unwrap(), &id()).await;
    ClaimFacts {
        client: kube.client(),
        instance: Instance {
            id: id(),
            state: "running".to_owned(),
            private_dns_name: None,
            tags: BTreeMap::new(),
            is_spot: false,
        },
        group: Group {
            name: "workers".parse().unwrap(),
            min: 0,
            desired: 1,
            max: 2,
            members: vec![Member {
                instance: id(),
                lifecycle_state: "InService".to_owned(),
                protected_from_scale_in: false,
            }],
            suspended: Vec::new(),
            protects_new_members: false,
            zones: 1,
            rebalances_capacity: false,
            retains: false,
        },
        lifecycle_state: "InService".to_owned(),
        hook: None,
        remark: None,
        node: facts.unwrap().unwrap(),
    }
}

pub(crate) fn input() -> Value {
    json!({"instance_id": id(), "cluster_name": "world"})
}

/// Returns the request of the state machine, with what it carries in `run`.
pub(crate) fn request(run: &Value) -> ClaimRequest {
    serde_json::from_value(json!({
        "context": {
            "Execution": {"Id": claim(Phase::Claimed).fence.execution, "Input": input()},
            "State": {"EnteredTime": NOW},
        },
        "run": run,
    }))
    .unwrap()
}

/// Returns the run that the state machine carries once the node has waited in the queue.
pub(crate) fn run() -> Run {
    let (group, node) = ("workers".parse().unwrap(), "one".parse().unwrap());
    let input = parse_input(&input(), &settings()).unwrap();
    Run::new(input, RecyclePath::Before, group, node, NOW.parse().unwrap())
}
