//! Values that tests begin with: one healthy group. Each test changes the part that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::base::ids::{Fence, InstanceId};
use crate::base::names::{CLAIM_ANNOTATION, RECORD_ANNOTATION};
use crate::base::permissions::{PERMISSIONS, Permission};
use crate::cluster::group::{Group, Member};
use crate::cluster::instance::Instance;
use crate::cluster::node::{NodeFacts, Taint};
use crate::cluster::pod::{Controller, PodContainers, PodFacts, PodScheduling, Toleration};
use crate::drain::terms::{Deadline, Terms};
use crate::input::fields::Settings;
use crate::input::limits::Limits;
use crate::input::model::{Awaited, Evict, Input, OnDrainTimeout, Override};
use crate::input::parse::parse_input;
use crate::input::urgency::Urgency;
use crate::records::claim::{Claim, Phase};
use crate::records::lease::Lease;
use crate::records::node_record::Record;
use crate::records::schema::SCHEMA;

pub(crate) const OLD: &str = "i-0aaaaaaaaaaaaaaaa";
pub(crate) const NEW: &str = "i-0bbbbbbbbbbbbbbbb";
pub(crate) const OTHER: &str = "i-0cccccccccccccccc";
pub(crate) const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:run-1";

/// Returns the time this many seconds after the tests' time begins.
pub(crate) fn at(seconds: i64) -> Timestamp {
    "2027-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn id(text: &str) -> InstanceId {
    text.parse().unwrap()
}

pub(crate) fn fence(redrive_count: u32) -> Fence {
    Fence {
        execution: ARN.parse().unwrap(),
        redrive_count,
    }
}

impl Phase {
    /// The earliest first.
    pub(crate) const ALL: [Self; 6] = [
        Self::Claimed,
        Self::Admitted,
        Self::Standby,
        Self::Draining,
        Self::Waiting,
        Self::Disposing,
    ];
}

impl Urgency {
    pub(crate) const ALL: [Self; 4] = [Self::Planned, Self::Hook, Self::Spot, Self::Interruption];
}

pub(crate) fn claim(phase: Phase) -> Claim {
    Claim {
        schema: SCHEMA,
        fence: fence(0),
        group: "workers".parse().unwrap(),
        phase,
        urgency: Urgency::Planned,
        claimed_at: at(0),
    }
}

pub(crate) fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn settings() -> Settings {
    Settings {
        cluster_name: "prod".parse().unwrap(),
        limits: Limits::default(),
        defaults: serde_json::Map::new(),
    }
}

/// Returns a minimal input with these additional fields.
pub(crate) fn input_json(more: Value) -> Value {
    let mut input = json!({"instance_id": OLD, "cluster_name": "prod"});
    let Value::Object(more) = more else {
        panic!("{more} is no object")
    };
    input.as_object_mut().unwrap().extend(more);
    input
}

pub(crate) fn input(more: Value) -> Input {
    parse_input(&input_json(more), &settings()).unwrap()
}

pub(crate) fn node(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.parse().unwrap(),
        resource_version: "1".to_owned(),
        instance: Some(id(OLD)),
        ready: true,
        not_ready_since: None,
        unschedulable: false,
        cordoned_by: None,
        taints: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        extended_resources: Vec::new(),
        volumes: Vec::new(),
        kubelet: String::new(),
        lease: None,
    }
}

/// The same node with a Lease that has these annotations.
pub(crate) fn leased<const N: usize>(node: NodeFacts, annotations: [(&str, &str); N]) -> NodeFacts {
    let lease = Lease {
        instance: node.instance.clone().unwrap(),
        resource_version: "1".to_owned(),
        node: Some(node.name.clone()),
        annotations: strings(annotations),
    };
    NodeFacts {
        lease: Some(lease),
        ..node
    }
}

/// The Leases of these Nodes.
pub(crate) fn leases(nodes: &[NodeFacts]) -> Vec<Lease> {
    nodes.iter().filter_map(|node| node.lease.clone()).collect()
}

/// The same node with a claim and a record of recycle-eks.
pub(crate) fn claimed(node: NodeFacts, phase: Phase, record: &Record) -> NodeFacts {
    let claim = serde_json::to_string(&claim(phase)).unwrap();
    let record = serde_json::to_string(record).unwrap();
    leased(node, [(CLAIM_ANNOTATION, &claim), (RECORD_ANNOTATION, &record)])
}

pub(crate) fn find_permission(text: &str) -> Permission {
    let mut all = PERMISSIONS.iter();
    *all.find(|permission| permission.to_string() == text).expect(text)
}

pub(crate) fn taint(key: &str, effect: &str) -> Taint {
    Taint::new(key, None, effect)
}

pub(crate) fn member(instance: &str, lifecycle_state: &str) -> Member {
    Member {
        instance: id(instance),
        lifecycle_state: lifecycle_state.to_owned(),
        protected_from_scale_in: false,
    }
}

/// A group with room, in which `OLD` is in service.
pub(crate) fn group() -> Group {
    Group {
        name: "workers".parse().unwrap(),
        min: 1,
        desired: 2,
        max: 4,
        members: vec![member(OLD, "InService"), member(OTHER, "InService")],
        suspended: Vec::new(),
        protects_new_members: false,
        zones: 1,
        rebalances_capacity: false,
        retains: false,
    }
}

pub(crate) fn instance() -> Instance {
    Instance {
        id: id(OLD),
        state: "running".to_owned(),
        private_dns_name: Some("ip-10-0-0-1.eu-west-1.compute.internal".to_owned()),
        tags: BTreeMap::new(),
        is_spot: false,
    }
}

/// A running pod of a ReplicaSet in namespace `default`.
pub(crate) fn pod(name: &str) -> PodFacts {
    PodFacts {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        controller: controller("ReplicaSet"),
        phase: "Running".to_owned(),
        containers: restarted("Always"),
        created_at: Some(at(-3_600)),
        started_at: Some(at(-3_600)),
        grace_seconds: 30,
        ..PodFacts::default()
    }
}

/// Containers with this restart policy.
pub(crate) fn restarted(policy: &str) -> PodContainers {
    PodContainers {
        restart_policy: policy.to_owned(),
        ..PodContainers::default()
    }
}

static OLD_ID: LazyLock<InstanceId> = LazyLock::new(|| id(OLD));

/// Tolerates every taint.
pub(crate) fn blanket() -> Vec<Toleration> {
    vec![Toleration {
        key: None,
        operator: Some("Exists".to_owned()),
        value: None,
        effect: None,
        seconds: None,
    }]
}

pub(crate) fn with_tolerations(tolerations: Vec<Toleration>) -> PodScheduling {
    PodScheduling {
        tolerations,
        ..PodScheduling::default()
    }
}

/// No pod is awaited by label.
pub(crate) static NO_AWAITED: Awaited = Awaited {
    selector: None,
    namespaces: BTreeSet::new(),
};

static NO_OVERRIDES: BTreeSet<Override> = BTreeSet::new();

/// The start of a drain of one day that awaits no pod by label.
pub(crate) fn terms() -> Terms<'static> {
    Terms {
        awaited: &NO_AWAITED,
        evict: Evict::Others,
        overrides: &NO_OVERRIDES,
        skip_stuck_after: None,
        on_timeout: OnDrainTimeout::Restore,
        drain_timeout: 86_400,
        tainted_since: None,
        instance: &OLD_ID,
        emptied_at: None,
        since: at(0),
        now: at(0),
        deadline: Deadline {
            at: at(86_400),
            by_person: false,
        },
        interrupted_at: None,
        hook: None,
        grace: None,
    }
}

/// A running pod of a Job.
pub(crate) fn job_pod(name: &str) -> PodFacts {
    PodFacts {
        controller: controller("Job"),
        containers: restarted("Never"),
        ..pod(name)
    }
}

pub(crate) fn controller(kind: &str) -> Option<Controller> {
    let api_group = match kind {
        "Node" => "",
        "Job" => "batch",
        _ => "apps",
    };
    Some(Controller {
        api_group: api_group.to_owned(),
        kind: kind.to_owned(),
        name: "controller".to_owned(),
        uid: "c-1".to_owned(),
    })
}
