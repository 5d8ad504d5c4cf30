//! The table of the input fields: what each may be, and its default.

use serde_json::{Map, Value};

use crate::base::duration::DurationRange;
use crate::base::ids::ClusterName;
use crate::input::limits::Limits;
use crate::input::model::LONGEST_DRAIN;

/// The module's settings: its cluster, its limits, and defaults for the fields of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The module's cluster. The input must name the same one.
    pub cluster_name: ClusterName,
    /// The limits on the nodes of a group that may be worked on at once.
    pub limits: Limits,
    /// Defaults by field name, checked like the values of an input. `null` is Terraform's way to say that there is none.
    pub defaults: Map<String, Value>,
}

/// One value of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The value as it is written.
    pub value: &'static str,
    /// The meaning of the value, for the documentation.
    pub meaning: &'static str,
}

/// The values that a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier with a type of its own ([`crate::base::ids`]).
    Identifier,
    /// A label selector.
    Selector,
    /// A list of namespaces.
    Namespaces,
    /// A text such as `20h`, or a number of seconds.
    Duration(DurationRange),
    /// `true` or `false`.
    Flag,
    /// One value of a closed list.
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
    pub kind: Kind,
    /// The default as JSON; empty if the field is required or may be absent.
    pub default: &'static str,
    pub required: bool,
    /// Whether the module may set another default.
    pub setting: bool,
    pub meaning: &'static str,
}

const fn choice(value: &'static str, meaning: &'static str) -> Choice {
    Choice { value, meaning }
}

/// Creates the kind of a duration from its bounds in seconds, both of which are allowed.
const fn duration(least: u32, most: u32) -> Kind {
    Kind::Duration(DurationRange::new(least, most))
}

const fn required(name: &'static str, meaning: &'static str) -> Field {
    Field {
        required: true,
        ..field(name, Kind::Identifier, "", meaning)
    }
}

/// Creates a field for which the module may set another default.
const fn setting(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Field {
    Field {
        setting: true,
        ..field(name, kind, default, meaning)
    }
}

/// Creates a field that triggers set. The other kinds of fields start from it.
const fn field(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default,
        required: false,
        setting: false,
        meaning,
    }
}

pub(crate) const INSTANCE_ID: Field = required("instance_id", "the instance to recycle");

pub(crate) const CLUSTER_NAME: Field = required("cluster_name", "its cluster, which must be the module's");

pub(crate) const LABEL_SELECTOR: Field = setting(
    "label_selector",
    Kind::Selector,
    "",
    "the pods to wait for, in the syntax of `kubectl -l`; `\"\"` waits for none by label, `*` for all",
);

pub(crate) const NAMESPACES: Field = setting(
    "namespaces",
    Kind::Namespaces,
    "[]",
    "narrows `label_selector` to these namespaces; empty: all of them",
);

pub(crate) const EVICT: Field = setting(
    "evict",
    Kind::OneOf(&[
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
    "\"others\"",
    "what happens to the pods that are not waited for",
);

pub(crate) const REPLACEMENT: Field = setting(
    "replacement",
    Kind::OneOf(&[
        choice("before", "through Standby: the replacement first"),
        choice("after", "no Standby: for groups that cannot run one node more"),
    ]),
    "\"before\"",
    "when the replacement comes",
);

pub(crate) const DISPOSE: Field = setting(
    "dispose",
    Kind::OneOf(&[
        choice("terminate", "terminated"),
        choice("stop", "stopped in Standby and tagged; its Node stays, cordoned"),
        choice("detach", "out of the group, running, for an investigation"),
    ]),
    "\"terminate\"",
    "what becomes of the drained instance",
);

/// The least value is a minute, because no instance boots faster.
/// The greatest is an hour, because a group that has launched nothing by then is broken and not slow.
/// Longer polling would also cost history events that a drain of 30 days needs ([`crate::base::poll`]).
pub(crate) const REPLACEMENT_TIMEOUT: Field = setting(
    "replacement_timeout",
    duration(60, 3_600),
    "\"14m\"",
    "how long to wait for a usable replacement; the default is under Cluster Autoscaler's 15 minutes",
);

/// The least value is Kubernetes' own default toleration of a node that is not Ready, 300 seconds.
/// A restart of the kubelet takes one or two minutes. The greatest value is a day.
pub(crate) const NODE_LOST_AFTER: Field = setting(
    "node_lost_after",
    duration(300, 86_400),
    "\"30m\"",
    "how long a node may be not Ready until it counts as lost, and is disposed of with its pods; never less than the pods' own `tolerationSeconds`; at once if its machine is off",
);

/// The least value is a minute, which is two polls. The greatest is 30 days, which is what 25,000 history events allow
/// ([`crate::base::poll`]).
pub(crate) const DRAIN_TIMEOUT: Field = setting(
    "drain_timeout",
    duration(60, LONGEST_DRAIN),
    "\"2d\"",
    "how long the pods may need, up to 30 days; the Node annotation `recycle-eks/drain-until` changes a running drain",
);

pub(crate) const ON_DRAIN_TIMEOUT: Field = setting(
    "on_drain_timeout",
    Kind::OneOf(&[
        choice("restore", "the node is put back"),
        choice(
            "evict",
            "the pods that were waited for are evicted, each early enough for its grace period; if some are left, the node is put back",
        ),
        choice(
            "terminate",
            "the node goes with what runs on it; needs `override: [\"running_pods\"]`",
        ),
    ]),
    "\"restore\"",
    "what happens if the pods need longer",
);

/// The greatest value is an hour, the longest deregistration delay that a target group can have (Elastic Load Balancing guide).
pub(crate) const LOAD_BALANCER_GRACE: Field = setting(
    "load_balancer_grace",
    duration(0, 3_600),
    "\"60s\"",
    "between leaving the load balancers and disposal",
);

/// The least value is a second: with 0, pods would end without warning. The greatest is 30 days, like that of a drain.
pub(crate) const GRACE_PERIOD: Field = setting(
    "grace_period",
    duration(1, LONGEST_DRAIN),
    "",
    "the grace period that evictions ask for; absent: each pod's own",
);

pub(crate) const URGENCY: Field = field(
    "urgency",
    Kind::OneOf(&[
        choice("planned", "a person, a schedule, an alarm"),
        choice("spot", "EC2 is likely to take the instance away, or does so"),
        choice("hook", "the group is terminating the instance"),
    ]),
    "\"planned\"",
    "set by triggers; the more urgent takes over, and does not wait for its turn",
);

pub(crate) const DRY_RUN: Field = setting(
    "dry_run",
    Kind::Flag,
    "false",
    "every read, no write; the plan is the output",
);

pub(crate) const OVERRIDE: Field = setting(
    "override",
    Kind::SomeOf(&[
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
    "[]",
    "refusals to override",
);

pub(crate) const INTERRUPTED_AT: Field = field(
    "interrupted_at",
    Kind::Time,
    "",
    "set by the Spot trigger: when EC2 takes the instance away, two minutes after its warning; all pods are evicted at once, with what is left of that time",
);

pub(crate) const HOOK: Field = field(
    "hook",
    Kind::Hook,
    "",
    "set by the lifecycle hook's trigger and by the sweep: the lifecycle action that the group waits for",
);

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
    OVERRIDE,
    INTERRUPTED_AT,
    HOOK,
];

/// Returns the values of a field with a closed list, and none for other fields.
#[must_use]
pub fn choices(field: &Field) -> &'static [Choice] {
    let (Kind::OneOf(choices) | Kind::SomeOf(choices)) = field.kind else {
        return &[];
    };
    choices
}
