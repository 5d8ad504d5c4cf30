//! Test fixtures: a claimed node in service.

use std::collections::BTreeMap;

use recycle::base::ids::{Fence, InstanceId};
use recycle::base::names::CLAIM_ANNOTATION;
use recycle::cluster::group::{Group, Member};
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

use crate::{FetchedFacts, StandbyNode};

pub(crate) const NODE: &str = "/api/v1/nodes/node-a";

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

fn input() -> Input {
    let settings = Settings {
        cluster_name: "world".parse().unwrap(),
        limits: Limits::default(),
        defaults: serde_json::Map::new(),
    };
    parse_input(&json!({"instance_id": id(), "cluster_name": "world"}), &settings).unwrap()
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

/// Returns an empty answer to a list of all Nodes.
pub(crate) fn no_nodes() -> Value {
    json!({"metadata": {}, "items": []})
}

pub(crate) fn run() -> Run {
    let (group, node) = ("workers".parse().unwrap(), "node-a".parse().unwrap());
    let claimed_at = "2027-01-01T00:00:00Z".parse().unwrap();
    Run::new(input(), RecyclePath::Before, group, node, claimed_at)
}

fn node() -> NodeFacts {
    let claim = serde_json::to_string(&claim(Phase::Claimed)).unwrap();
    let annotations = BTreeMap::from([(CLAIM_ANNOTATION.to_owned(), claim)]);
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
        lease: Some(Lease {
            instance: id(),
            resource_version: "5".to_owned(),
            node: None,
            annotations,
        }),
    }
}

/// Returns a claimed node in service, the only member of its group.
pub(crate) fn facts(kube: &ScriptedKube) -> FetchedFacts {
    let member = Member {
        instance: id(),
        lifecycle_state: "InService".to_owned(),
        protected_from_scale_in: false,
    };
    let group = Group {
        name: "workers".parse().unwrap(),
        min: 1,
        desired: 1,
        max: 2,
        members: vec![member],
        suspended: Vec::new(),
        protects_new_members: false,
        zones: 1,
        rebalances_capacity: false,
        retains: false,
    };
    FetchedFacts {
        client: kube.client(),
        node: node(),
        claim: claim(Phase::Claimed),
        group: Some(group),
        run: run(),
        me: me(),
        now: "2027-01-01T00:01:00Z".parse().unwrap(),
    }
}

pub(crate) fn step(aws: &ScriptedAws) -> StandbyNode {
    StandbyNode::new(&aws.config(), &"world".parse().unwrap())
}

/// Returns the group as AWS describes it, with the member in a lifecycle state.
pub(crate) fn described_group(lifecycle_state: &str) -> String {
    format!(
        "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
         <MaxSize>2</MaxSize><DesiredCapacity>1</DesiredCapacity><Instances><member><InstanceId>{}</InstanceId>\
         <LifecycleState>{lifecycle_state}</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>",
        id()
    )
}
