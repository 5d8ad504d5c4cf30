//! Test fixtures: a drained node in Standby.

use std::collections::BTreeMap;

use recycle::base::ids::{Fence, InstanceId};
use recycle::base::names::{CLAIM_ANNOTATION, CLAIM_TAG};
use recycle::cluster::group::{Group, Member};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeFacts;
use recycle::contract::run::Run;
use recycle::input::fields::Settings;
use recycle::input::limits::Limits;
use recycle::input::model::Input;
use recycle::input::parse::parse_input;
use recycle::input::path::RecyclePath;
use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, Phase};
use recycle::records::lease::Lease;
use scripted_aws::ScriptedAws;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use crate::DetachTerminate;
use crate::facts::FetchedFacts;

pub(crate) const NODE: &str = "/api/v1/nodes/node-a";
pub(crate) const OTHER: &str = "i-0bbbbbbbbbbbbbbbb";

pub(crate) fn id() -> InstanceId {
    "i-0123456789abcdef0".parse().unwrap()
}

pub(crate) fn me() -> Fence {
    "arn:aws:states:eu-west-1:123456789012:execution:recycle:one#0"
        .parse()
        .unwrap()
}

pub(crate) fn claim(phase: Phase) -> Claim {
    let mut claim = Claim::new(
        me(),
        "workers".parse().unwrap(),
        Urgency::Planned,
        "2027-01-01T00:00:00Z".parse().unwrap(),
    );
    claim.phase = phase;
    claim
}

fn input(dispose: &str) -> Input {
    let settings = Settings {
        cluster_name: "world".parse().unwrap(),
        limits: Limits::default(),
        defaults: serde_json::Map::new(),
    };
    parse_input(
        &json!({"instance_id": id(), "cluster_name": "world", "dispose": dispose}),
        &settings,
    )
    .unwrap()
}

/// Returns the Node as the API server has it.
pub(crate) fn stored_node(phase: Phase) -> Value {
    json!({
        "metadata": {
            "name": "node-a",
            "resourceVersion": "8",
            "annotations": {CLAIM_ANNOTATION: serde_json::to_string(&claim(phase)).unwrap()},
        },
        "spec": {"providerID": format!("aws:///eu-west-1a/{}", id())},
    })
}

pub(crate) fn run(dispose: &str) -> Run {
    let (group, node) = ("workers".parse().unwrap(), "node-a".parse().unwrap());
    let claimed_at = "2027-01-01T00:00:00Z".parse().unwrap();
    Run::new(input(dispose), RecyclePath::Before, group, node, claimed_at)
}

pub(crate) fn node() -> NodeFacts {
    let claim = serde_json::to_string(&claim(Phase::Draining)).unwrap();
    let annotations = BTreeMap::from([(CLAIM_ANNOTATION.to_owned(), claim)]);
    NodeFacts {
        name: "node-a".parse().unwrap(),
        resource_version: "7".to_owned(),
        instance: Some(id()),
        ready: true,
        not_ready_since: None,
        unschedulable: true,
        cordoned_by: None,
        taints: vec![recycle::cluster::node::draining_taint(&id())],
        labels: BTreeMap::new(),
        annotations: annotations.clone(),
        extended_resources: Vec::new(),
        volumes: Vec::new(),
        kubelet: String::new(),
        lease: Some(Lease {
            instance: id(),
            resource_version: "5".to_owned(),
            node: None,
            annotations,
        }),
    }
}

pub(crate) fn instance(state: &str) -> Instance {
    Instance {
        id: id(),
        state: state.to_owned(),
        private_dns_name: None,
        tags: BTreeMap::new(),
        is_spot: false,
    }
}

/// Returns the group, with the member in a lifecycle state and another member in service.
pub(crate) fn group(lifecycle_state: &str) -> Group {
    let member = |id: &str, state: &str| Member {
        instance: id.parse().unwrap(),
        lifecycle_state: state.to_owned(),
        protected_from_scale_in: false,
    };
    Group {
        name: "workers".parse().unwrap(),
        min: 1,
        desired: 1,
        max: 3,
        members: vec![member(id().as_str(), lifecycle_state), member(OTHER, "InService")],
        suspended: Vec::new(),
        protects_new_members: false,
        zones: 1,
        rebalances_capacity: false,
        retains: false,
    }
}

/// Returns a drained node in Standby, to be disposed of as asked.
pub(crate) fn facts(kube: &ScriptedKube, dispose: &str, state: &str) -> FetchedFacts {
    FetchedFacts {
        client: kube.client(),
        node: Some(node()),
        lease: node().lease,
        instance: Some(Instance {
            tags: [(CLAIM_TAG.to_owned(), claim(Phase::Draining).to_tag())].into(),
            ..instance(state)
        }),
        group: Some(group("Standby")),
        waits_for_recycle_eks_hook: false,
        protected: Vec::new(),
        raised_from: None,
        claim: Some(claim(Phase::Draining)),
        run: run(dispose),
        me: me(),
        now: "2027-01-01T20:00:00Z".parse().unwrap(),
    }
}

pub(crate) fn step(aws: &ScriptedAws) -> DetachTerminate {
    DetachTerminate::new(&aws.config(), &"world".parse().unwrap())
}
