//! The table of the input fields: their kinds, defaults and meanings. The command line and the documentation are built from it.

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
    /// Defaults by field name, checked like the values of an input. `null` means that there is no default.
    pub defaults: Map<String, Value>,
}

impl Settings {
    /// Returns the same settings with the default `surge` for `replacement`, if the module sets none.
    pub fn preferring_surge(&self) -> Self {
        let mut settings = self.clone();
        let default = settings.defaults.entry(REPLACEMENT.name).or_insert(Value::Null);
        if default.is_null() {
            *default = Value::from("surge");
        }
        settings
    }
}

/// One value of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub value: &'static str,
    /// The meaning of the value, for the documentation.
    pub meaning: &'static str,
}

/// The values that a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier with a type of its own ([`crate::base::ids`]).
    Identifier,
    Selector,
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

pub(crate) const INSTANCE_ID: Field = required("instance_id", "The instance to recycle");

pub(crate) const CLUSTER_NAME: Field = required(
    "cluster_name",
    "The cluster of the instance, which must be the cluster of the module",
);

pub(crate) const LABEL_SELECTOR: Field = setting(
    "label_selector",
    Kind::Selector,
    "",
    "The pods to wait for, in the syntax of `kubectl -l`. `\"\"` waits for no pods by label, `*` waits for all pods",
);

pub(crate) const NAMESPACES: Field = setting(
    "namespaces",
    Kind::Namespaces,
    "[]",
    "Narrows `label_selector` to these namespaces. Empty: all namespaces",
);

pub(crate) const EVICT: Field = setting(
    "evict",
    Kind::OneOf(&[
        choice(
            "others",
            "they are evicted at once, except pods that run to completion, which are waited for (their `restartPolicy` is not `Always`, as in Jobs and workflows)",
        ),
        choice(
            "others_and_jobs",
            "like `others`, but pods that run to completion are also evicted, unless they are selected or annotated",
        ),
        choice(
            "all",
            "like `others_and_jobs`, but bare pods are also evicted, which no controller starts again",
        ),
        choice(
            "none",
            "they are left alone, unless they have the annotation `recycle-eks/drain` with the value `evict`",
        ),
    ]),
    "\"others\"",
    "What happens to the pods that are not waited for",
);

pub(crate) const REPLACEMENT: Field = setting(
    "replacement",
    Kind::OneOf(&[
        choice(
            "before",
            "it comes before the drain, while the node is in Standby",
        ),
        choice(
            "after",
            "it comes after the instance has gone, without Standby, for groups that cannot run one more node",
        ),
        choice(
            "surge",
            "it comes before the drain, because the desired capacity is raised by one; the node stays in service until it is drained",
        ),
    ]),
    "\"before\"",
    "When the replacement comes. For an instance of an EKS managed node group, or of a group with Capacity Rebalancing, the default is \
     `surge`, unless it is to be stopped or detached",
);

pub(crate) const DISPOSE: Field = setting(
    "dispose",
    Kind::OneOf(&[
        choice("terminate", "it is terminated"),
        choice(
            "stop",
            "it is stopped in Standby and tagged, and its Node stays, cordoned",
        ),
        choice(
            "detach",
            "it leaves the group and keeps running, for an investigation",
        ),
    ]),
    "\"terminate\"",
    "What happens to the drained instance",
);

/// The minimum is a minute, because no instance boots faster.
/// The maximum is an hour: a group that has launched nothing by then is broken, not slow.
/// Longer polling would also cost history events that a drain of 30 days needs ([`crate::base::poll`]).
pub(crate) const REPLACEMENT_TIMEOUT: Field = setting(
    "replacement_timeout",
    duration(60, 3_600),
    "\"14m\"",
    "How long to wait for a usable replacement. The default is shorter than the 15 minutes after which Cluster Autoscaler removes an \
     instance without a Node",
);

/// The minimum is Kubernetes' own default toleration of a node that is not Ready, 300 seconds.
/// A restart of the kubelet takes one or two minutes. The maximum is a day.
pub(crate) const NODE_LOST_AFTER: Field = setting(
    "node_lost_after",
    duration(300, 86_400),
    "\"30m\"",
    "How long a node may be not Ready before it counts as lost and is disposed of with its pods. Pods with longer `tolerationSeconds` \
     extend this time. A node whose machine is off counts as lost at once",
);

/// The least value is a minute, which is two checks. The greatest is 30 days, which is what 25,000 history events allow
/// ([`crate::base::poll`]).
pub(crate) const DRAIN_TIMEOUT: Field = setting(
    "drain_timeout",
    duration(60, LONGEST_DRAIN),
    "\"2d\"",
    "How long the pods may take, up to 30 days. The Node annotation `recycle-eks/drain-until` moves the end of a running drain",
);

pub(crate) const ON_DRAIN_TIMEOUT: Field = setting(
    "on_drain_timeout",
    Kind::OneOf(&[
        choice("restore", "the node is restored"),
        choice(
            "evict",
            "the pods that are waited for are evicted, each early enough for its grace period; if pods remain, the node is restored",
        ),
        choice(
            "terminate",
            "the instance is disposed of with its running pods, which needs `override: [\"running_pods\"]`",
        ),
    ]),
    "\"restore\"",
    "What happens if the pods take longer",
);

/// The minimum is the time after which a pod counts as stuck ([`crate::drain::classify`]).
pub(crate) const SKIP_STUCK_AFTER: Field = setting(
    "skip_stuck_after",
    duration(300, LONGEST_DRAIN),
    "",
    "How long a pod may still be there after the end of its grace period before it no longer holds the node. The outcome names such pods. \
     Absent: they hold the node until the drain is over",
);

/// The default is the default deregistration delay of a target group, and the maximum, an hour, its longest (Elastic Load Balancing
/// guide).
pub(crate) const LOAD_BALANCER_GRACE: Field = setting(
    "load_balancer_grace",
    duration(0, 3_600),
    "\"5m\"",
    "Time between leaving the load balancers and the disposal of the instance",
);

/// The minimum is a second: with 0, pods would end without warning. The maximum is 30 days, like that of a drain.
pub(crate) const GRACE_PERIOD: Field = setting(
    "grace_period",
    duration(1, LONGEST_DRAIN),
    "",
    "The grace period of evictions. Absent: the grace period of each pod",
);

pub(crate) const URGENCY: Field = field(
    "urgency",
    Kind::OneOf(&[
        choice(
            "planned",
            "an operator, a schedule or an alarm starts the execution",
        ),
        choice(
            "spot",
            "EC2 is likely to take the Spot instance away, or takes it away",
        ),
        choice("hook", "the group is terminating the instance"),
    ]),
    "\"planned\"",
    "How urgent the execution is, set by triggers. A more urgent execution takes over the node, and does not wait in the queue",
);

pub(crate) const DRY_RUN: Field = setting(
    "dry_run",
    Kind::Flag,
    "false",
    "Read everything and write nothing. The output is the plan",
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
            "recycle although the instance is the last healthy target of a target group",
        ),
        choice(
            "standby_in_managed_group",
            "put an instance of an EKS managed node group into Standby, which was never tried on AWS",
        ),
        choice("running_pods", "allow `on_drain_timeout: terminate`"),
        choice(
            "suspended_process",
            "recycle although the process Launch or Terminate of the group is suspended",
        ),
        choice(
            "owner_protected",
            "evict pods although an annotation for Karpenter, Cluster Autoscaler or Cyclops protects them",
        ),
        choice(
            "unhealthy_budget",
            "delete crash-looping pods whose eviction a disruption budget refuses",
        ),
    ]),
    "[]",
    "Refusals to override",
);

pub(crate) const INTERRUPTED_AT: Field = field(
    "interrupted_at",
    Kind::Time,
    "",
    "The time at which EC2 takes the Spot instance away, two minutes after its warning. The Spot trigger sets it. All pods are evicted at \
     once, and have until then to end",
);

pub(crate) const HOOK: Field = field(
    "hook",
    Kind::Hook,
    "",
    "The lifecycle action that the group waits for, set by the trigger of the lifecycle hook and by the sweep",
);

/// Every field, in the order of the documentation.
pub const FIELDS: [Field; 19] = [
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
    SKIP_STUCK_AFTER,
    LOAD_BALANCER_GRACE,
    GRACE_PERIOD,
    URGENCY,
    DRY_RUN,
    OVERRIDE,
    INTERRUPTED_AT,
    HOOK,
];

/// Returns the values of a field with a closed list, and none for other fields.
pub fn choices(field: &Field) -> &'static [Choice] {
    let (Kind::OneOf(choices) | Kind::SomeOf(choices)) = field.kind else {
        return &[];
    };
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_needs_a_node_and_its_cluster() {
        let required = FIELDS.iter().filter(|field| field.required);
        let names: Vec<&str> = required.map(|field| field.name).collect();
        assert_eq!(names, ["instance_id", "cluster_name"]);
    }
}
