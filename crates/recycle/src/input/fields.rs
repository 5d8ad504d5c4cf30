//! The table of the input fields: what each may be, and its default.

use serde_json::{Map, Value};

use crate::base::ids::ClusterName;
use crate::input::limits::Limits;
use crate::input::model::LONGEST_DRAIN;

/// The module's settings: its cluster, how many nodes of a group at once, and defaults for the fields of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The module's cluster; the input's must be the same.
    pub cluster_name: ClusterName,
    /// How many nodes of a group may be worked on at once.
    pub limits: Limits,
    /// Defaults by field name, checked like an input's; `null` is Terraform's way to say that there is none.
    pub defaults: Map<String, Value>,
}

/// One value of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// As it is written.
    pub value: &'static str,
    /// What it means, for the documentation.
    pub meaning: &'static str,
}

/// What a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier with a type of its own ([`crate::base::ids`]).
    Identifier,
    /// A label selector.
    Selector,
    /// A list of namespaces.
    Namespaces,
    /// A whole number of seconds within limits; both are allowed.
    Seconds { least: u32, most: u32 },
    /// `true` or `false`.
    Flag,
    /// One of a closed list.
    OneOf(&'static [Choice]),
    /// A list of values of a closed list, each at most once.
    SomeOf(&'static [Choice]),
    /// A moment in RFC 3339.
    Time,
    /// An object that only a trigger writes.
    Hook,
}

/// A field of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// Its default, as JSON; empty if the field is required or may be absent.
    pub default: &'static str,
    /// It must be given.
    pub required: bool,
    /// The module may set another default.
    pub setting: bool,
    /// What it means, for the documentation.
    pub meaning: &'static str,
}

const fn choice(value: &'static str, meaning: &'static str) -> Choice {
    Choice { value, meaning }
}

pub(crate) const INSTANCE_ID: Field = Field {
    name: "instance_id",
    kind: Kind::Identifier,
    default: "",
    required: true,
    setting: false,
    meaning: "the instance to recycle",
};

pub(crate) const CLUSTER_NAME: Field = Field {
    name: "cluster_name",
    kind: Kind::Identifier,
    default: "",
    required: true,
    setting: false,
    meaning: "its cluster, which must be the module's",
};

pub(crate) const LABEL_SELECTOR: Field = Field {
    name: "label_selector",
    kind: Kind::Selector,
    default: "",
    required: false,
    setting: true,
    meaning: "the pods to wait for, in the syntax of `kubectl -l`; `\"\"` waits for none by label, `*` for all",
};

pub(crate) const NAMESPACES: Field = Field {
    name: "namespaces",
    kind: Kind::Namespaces,
    default: "[]",
    required: false,
    setting: true,
    meaning: "narrows `label_selector` to these namespaces; empty: all of them",
};

pub(crate) const EVICT: Field = Field {
    name: "evict",
    kind: Kind::OneOf(&[
        choice(
            "others",
            "what is not waited for is evicted at once; pods that run to completion (of Jobs, workflows and the like: a `restartPolicy` other than `Always`) are waited for",
        ),
        choice(
            "others_and_jobs",
            "the same, but pods that run to completion are evicted like others, unless they are selected or annotated",
        ),
        choice(
            "none",
            "what is not waited for is left alone, unless annotated `evict`",
        ),
    ]),
    default: "\"others\"",
    required: false,
    setting: true,
    meaning: "what happens to the pods that are not waited for",
};

pub(crate) const REPLACEMENT: Field = Field {
    name: "replacement",
    kind: Kind::OneOf(&[
        choice("before", "through Standby: the replacement first"),
        choice("after", "no Standby: for groups that cannot run one node more"),
    ]),
    default: "\"before\"",
    required: false,
    setting: true,
    meaning: "when the replacement comes",
};

pub(crate) const DISPOSE: Field = Field {
    name: "dispose",
    kind: Kind::OneOf(&[
        choice("terminate", "terminated"),
        choice("stop", "stopped in Standby and tagged; its Node stays, cordoned"),
        choice("detach", "out of the group, running, for an investigation"),
    ]),
    default: "\"terminate\"",
    required: false,
    setting: true,
    meaning: "what becomes of the drained instance",
};

/// At least a minute, because no instance boots faster. At most an hour, because a group that has launched nothing by then is
/// not slow but broken, and because longer polling would cost history events that a drain of 30 days needs ([`crate::base::poll`]).
pub(crate) const REPLACEMENT_TIMEOUT: Field = Field {
    name: "replacement_timeout_seconds",
    kind: Kind::Seconds {
        least: 60,
        most: 3_600,
    },
    default: "840",
    required: false,
    setting: true,
    meaning: "how long to wait for a usable replacement; the default is under Cluster Autoscaler's 15 minutes",
};

/// At least Kubernetes' own default toleration of a node that is not Ready: a restart of the kubelet takes one or two minutes. At most a day.
pub(crate) const NODE_LOST_AFTER: Field = Field {
    name: "node_lost_after_seconds",
    kind: Kind::Seconds {
        least: 300,
        most: 86_400,
    },
    default: "1800",
    required: false,
    setting: true,
    meaning: "how long a node may be not Ready until it counts as lost, and is disposed of with its pods; never less than the pods' own `tolerationSeconds`; at once if its machine is off",
};

/// At least a minute, which is two polls. At most 30 days, which is what 25,000 history events allow ([`crate::base::poll`]).
pub(crate) const DRAIN_TIMEOUT: Field = Field {
    name: "drain_timeout_seconds",
    kind: Kind::Seconds {
        least: 60,
        most: LONGEST_DRAIN,
    },
    default: "172800",
    required: false,
    setting: true,
    meaning: "how long the pods may need, up to 30 days; the Node annotation `recycle-eks/drain-until` changes a running drain",
};

pub(crate) const ON_DRAIN_TIMEOUT: Field = Field {
    name: "on_drain_timeout",
    kind: Kind::OneOf(&[
        choice("restore", "the node is put back"),
        choice(
            "evict",
            "the pods that were waited for are evicted, each early enough for its grace period; if some are left, the node is put back",
        ),
        choice(
            "terminate",
            "the node goes with what runs on it; needs `force: [\"running_pods\"]`",
        ),
    ]),
    default: "\"restore\"",
    required: false,
    setting: true,
    meaning: "what happens if the pods need longer",
};

/// At most an hour: the longest deregistration delay that a target group can have (Elastic Load Balancing guide).
pub(crate) const LOAD_BALANCER_GRACE: Field = Field {
    name: "load_balancer_grace_seconds",
    kind: Kind::Seconds {
        least: 0,
        most: 3_600,
    },
    default: "60",
    required: false,
    setting: true,
    meaning: "between leaving the load balancers and disposal",
};

/// At least a second: 0 would be no eviction but an end without warning. At most 30 days, as a drain.
pub(crate) const GRACE_PERIOD: Field = Field {
    name: "grace_period_seconds",
    kind: Kind::Seconds {
        least: 1,
        most: LONGEST_DRAIN,
    },
    default: "",
    required: false,
    setting: true,
    meaning: "the grace period that evictions ask for; absent: each pod's own",
};

pub(crate) const URGENCY: Field = Field {
    name: "urgency",
    kind: Kind::OneOf(&[
        choice("planned", "a person, a schedule, an alarm"),
        choice("spot", "EC2 is likely to take the instance away, or does so"),
        choice("hook", "the group is terminating the instance"),
    ]),
    default: "\"planned\"",
    required: false,
    setting: false,
    meaning: "set by triggers; the more urgent takes over, and does not wait for its turn",
};

pub(crate) const DRY_RUN: Field = Field {
    name: "dry_run",
    kind: Kind::Flag,
    default: "false",
    required: false,
    setting: true,
    meaning: "every read, no write; the plan is the output",
};

pub(crate) const FORCE: Field = Field {
    name: "force",
    kind: Kind::SomeOf(&[
        choice(
            "scale_in_protection",
            "recycle although the instance is protected from scale-in",
        ),
        choice(
            "last_target",
            "recycle although it is the last healthy target of a target group",
        ),
        choice("running_pods", "allow `on_drain_timeout: terminate`"),
        choice(
            "suspended_process",
            "recycle although the group's process Launch or Terminate is suspended",
        ),
    ]),
    default: "[]",
    required: false,
    setting: true,
    meaning: "refusals to override",
};

pub(crate) const INTERRUPTED_AT: Field = Field {
    name: "interrupted_at",
    kind: Kind::Time,
    default: "",
    required: false,
    setting: false,
    meaning: "set by the Spot trigger: when EC2 takes the instance away, two minutes after its warning; all pods are evicted at once, with what is left of that time",
};

pub(crate) const HOOK: Field = Field {
    name: "hook",
    kind: Kind::Hook,
    default: "",
    required: false,
    setting: false,
    meaning: "set by the lifecycle hook's trigger and by the sweep: the lifecycle action that the group waits for",
};

/// Every field, in the order of the documentation.
pub const FIELDS: [Field; 18] = [
    INSTANCE_ID,
    CLUSTER_NAME,
    LABEL_SELECTOR,
    NAMESPACES,
    EVICT,
    REPLACEMENT,
    DISPOSE,
    REPLACEMENT_TIMEOUT,
    DRAIN_TIMEOUT,
    ON_DRAIN_TIMEOUT,
    NODE_LOST_AFTER,
    LOAD_BALANCER_GRACE,
    GRACE_PERIOD,
    URGENCY,
    DRY_RUN,
    FORCE,
    INTERRUPTED_AT,
    HOOK,
];

/// The values of a field with a closed list; none for other fields.
#[must_use]
pub fn choices(field: &Field) -> &'static [Choice] {
    match field.kind {
        Kind::OneOf(choices) | Kind::SomeOf(choices) => choices,
        Kind::Identifier
        | Kind::Selector
        | Kind::Namespaces
        | Kind::Seconds { .. }
        | Kind::Flag
        | Kind::Time
        | Kind::Hook => &[],
    }
}

pub(crate) fn default_of(field: &Field) -> Value {
    serde_json::from_str(field.default).unwrap_or(Value::Null)
}
