//! The input of `recycle-node`: every field, its default and its limits, complete from the first release.
//!
//! [`FIELDS`] is the one table of them: the parser, the error texts and the documented table come from it.
//!
//! Nothing here asks AWS or Kubernetes anything; whether the instance exists is pre-flight's question.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::claim::Urgency;
use crate::ids::{ClusterName, GroupName, InstanceId};
use crate::names::LIFECYCLE_HOOK;
use crate::pods::cut_given;
use crate::selector::{Selector, is_dns_label};
use crate::turn::Limits;

/// The input with every default filled in, as it travels in `run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// `instance_id`.
    pub instance_id: InstanceId,
    /// `cluster_name`.
    pub cluster_name: ClusterName,
    /// `label_selector` and `namespaces`.
    pub awaited: Awaited,
    /// `evict`.
    pub evict: Evict,
    /// `replacement`.
    pub replacement: Replacement,
    /// `dispose`.
    pub dispose: Dispose,
    /// `node_lost_after_seconds`.
    pub node_lost_after_seconds: u32,
    /// `replacement_timeout_seconds`.
    pub replacement_timeout_seconds: u32,
    /// `drain_timeout_seconds`.
    pub drain_timeout_seconds: u32,
    /// `on_drain_timeout`.
    pub on_drain_timeout: OnDrainTimeout,
    /// `load_balancer_grace_seconds`.
    pub load_balancer_grace_seconds: u32,
    /// `grace_period_seconds`; none: each pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// `urgency`.
    pub urgency: Urgency,
    /// `dry_run`.
    pub dry_run: bool,
    /// `force`.
    pub force: BTreeSet<Force>,
    /// `interrupted_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_at: Option<Timestamp>,
    /// `hook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}

/// The pods to wait for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Which labels; none: no pod is awaited by label.
    pub selector: Option<Selector>,
    /// In which namespaces; empty: in all.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
}

/// `evict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evict {
    /// What is not waited for is evicted at once.
    Others,
    /// The same, and pods that run to completion are not waited for because of that.
    OthersAndJobs,
    /// What is not waited for is left alone.
    None,
}

/// `replacement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// Standby: the replacement first.
    Before,
    /// No Standby.
    After,
}

/// `dispose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispose {
    /// Terminated, its place in the group refilled.
    Terminate,
    /// Stopped in Standby.
    Stop,
    /// Out of the group, running.
    Detach,
}

/// `on_drain_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDrainTimeout {
    /// The node is put back.
    Restore,
    /// The pods that were waited for are evicted, early enough for the longest grace period.
    Evict,
    /// The node goes, whatever runs on it.
    Terminate,
}

/// `hook`: the lifecycle action that the group waits for. Its time-out is the hook's own, and read from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// The hook's name: only ours is worked on.
    pub name: String,
    /// The group that waits.
    pub auto_scaling_group_name: GroupName,
    /// Where the instance goes: `EC2`, or `WarmPool`, which is completed at once.
    pub destination: String,
    /// When it fired; none if a sweep has found the member, and nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Timestamp>,
    /// What the module's variable says of the group: its instance lifecycle policy retains instances. None if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
}

/// Where an instance goes that is terminated (EC2 Auto Scaling user guide, "Example lifecycle hook events").
pub const TO_EC2: &str = "EC2";

/// A refusal that may be overridden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// The instance is protected from scale-in.
    ScaleInProtection,
    /// It is the last InService target of a target group.
    LastTarget,
    /// Pods may still run when the drain's time is over.
    RunningPods,
    /// The group's process Launch or Terminate is suspended.
    SuspendedProcess,
}

/// One sentence: the field, what is allowed, what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);

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
    /// An identifier with a type of its own ([`crate::ids`]).
    Identifier,
    /// A label selector.
    Selector,
    /// A list of namespaces.
    Namespaces,
    /// A whole number of seconds within limits; both are allowed.
    Seconds {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
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
    /// Its name.
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

const INSTANCE_ID: Field = Field {
    name: "instance_id",
    kind: Kind::Identifier,
    default: "",
    required: true,
    setting: false,
    meaning: "the instance to recycle",
};

const CLUSTER_NAME: Field = Field {
    name: "cluster_name",
    kind: Kind::Identifier,
    default: "",
    required: true,
    setting: false,
    meaning: "its cluster, which must be the module's",
};

const LABEL_SELECTOR: Field = Field {
    name: "label_selector",
    kind: Kind::Selector,
    default: "",
    required: false,
    setting: true,
    meaning: "the pods to wait for, in the syntax of `kubectl -l`; `\"\"` waits for none by label, `*` for all",
};

const NAMESPACES: Field = Field {
    name: "namespaces",
    kind: Kind::Namespaces,
    default: "[]",
    required: false,
    setting: true,
    meaning: "narrows `label_selector` to these namespaces; empty: all of them",
};

const EVICT: Field = Field {
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

const REPLACEMENT: Field = Field {
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

const DISPOSE: Field = Field {
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
/// not slow but broken, and because longer polling would cost history events that a drain of 30 days needs ([`crate::poll`]).
const REPLACEMENT_TIMEOUT: Field = Field {
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
const NODE_LOST_AFTER: Field = Field {
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

/// At least a minute, which is two polls. At most 30 days, which is what 25,000 history events allow ([`crate::poll`]).
const DRAIN_TIMEOUT: Field = Field {
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

const ON_DRAIN_TIMEOUT: Field = Field {
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
const LOAD_BALANCER_GRACE: Field = Field {
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
const GRACE_PERIOD: Field = Field {
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

const URGENCY: Field = Field {
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

const DRY_RUN: Field = Field {
    name: "dry_run",
    kind: Kind::Flag,
    default: "false",
    required: false,
    setting: true,
    meaning: "every read, no write; the plan is the output",
};

const FORCE: Field = Field {
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

const INTERRUPTED_AT: Field = Field {
    name: "interrupted_at",
    kind: Kind::Time,
    default: "",
    required: false,
    setting: false,
    meaning: "set by the Spot trigger: when EC2 takes the instance away, two minutes after its warning; all pods are evicted at once, with what is left of that time",
};

const HOOK: Field = Field {
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

/// Seconds of the longest drain: 30 days. Longer ones would not fit into an execution's history ([`crate::poll`]).
pub const LONGEST_DRAIN: u32 = 30 * 86_400;
/// How many characters a selector may have: it travels in every answer, and answers stay under 8 KB.
const LONGEST_SELECTOR: usize = 512;
/// How many namespaces may be given, for the same reason.
const MOST_NAMESPACES: usize = 16;

/// Parses an execution's input.
pub fn parse_input(input: &Value, settings: &Settings) -> Result<Input, InvalidInput> {
    let Value::Object(given) = input else {
        return Err(InvalidInput(format!(
            "the input must be a JSON object, but is {}",
            describe(input)
        )));
    };
    let reader = Reader { given, settings };
    reader.check_names()?;
    let input = reader.read_input()?;
    reader.check_combinations(&input)?;
    Ok(input)
}

/// A value and where it comes from.
#[derive(Clone, Copy)]
struct Given<'a> {
    value: &'a Value,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Input,
    Setting,
}

impl Origin {
    /// What stands before a field's name in an error.
    fn prefix(self) -> &'static str {
        match self {
            Self::Input => "",
            Self::Setting => "the module setting ",
        }
    }
}

struct Reader<'a> {
    given: &'a Map<String, Value>,
    settings: &'a Settings,
}

impl<'a> Reader<'a> {
    fn check_names(&self) -> Result<(), InvalidInput> {
        for name in self.given.keys() {
            if !FIELDS.iter().any(|field| field.name == name) {
                return Err(InvalidInput(format!(
                    "{} is no field of the input; {}",
                    name_given(name),
                    suggest(name, |_| true)
                )));
            }
        }
        for name in self.settings.defaults.keys() {
            if !FIELDS.iter().any(|field| field.setting && field.name == name) {
                let suggestion = suggest(name, |field| field.setting);
                return Err(InvalidInput(format!(
                    "the module has no setting {}; {suggestion}",
                    name_given(name)
                )));
            }
        }
        Ok(())
    }

    fn find(&self, field: &Field) -> Option<Given<'a>> {
        if let Some(value) = self.given.get(field.name) {
            return Some(Given {
                value,
                origin: Origin::Input,
            });
        }
        let value = self
            .settings
            .defaults
            .get(field.name)
            .filter(|value| !value.is_null())?;
        Some(Given {
            value,
            origin: Origin::Setting,
        })
    }

    fn read_input(&self) -> Result<Input, InvalidInput> {
        let instance_id = self.read_identifier(&INSTANCE_ID)?;
        let cluster_name: ClusterName = self.read_identifier(&CLUSTER_NAME)?;
        if cluster_name != self.settings.cluster_name {
            return Err(InvalidInput(format!(
                "cluster_name must be {:?}, the cluster of this module, but is {:?}",
                self.settings.cluster_name.as_str(),
                cluster_name.as_str()
            )));
        }
        let hook = self.read_hook()?;
        let interrupted_at = self.read_time(&INTERRUPTED_AT)?;
        let urgency = match (self.find(&URGENCY), &hook) {
            (None, Some(_)) => Urgency::Hook,
            (Some(_) | None, _) => self.read_choice(&URGENCY)?,
        };
        // How an instance goes that others end, is not ours to choose, nor the module's defaults.
        let is_ended_by_others = hook.is_some() || interrupted_at.is_some();
        let (replacement, dispose) = if is_ended_by_others {
            (Replacement::After, Dispose::Terminate)
        } else {
            (self.read_choice(&REPLACEMENT)?, self.read_choice(&DISPOSE)?)
        };
        Ok(Input {
            instance_id,
            cluster_name,
            awaited: self.read_awaited()?,
            evict: self.read_choice(&EVICT)?,
            replacement,
            dispose,
            node_lost_after_seconds: self.read_seconds(&NODE_LOST_AFTER)?,
            replacement_timeout_seconds: self.read_seconds(&REPLACEMENT_TIMEOUT)?,
            drain_timeout_seconds: self.read_seconds(&DRAIN_TIMEOUT)?,
            on_drain_timeout: self.read_choice(&ON_DRAIN_TIMEOUT)?,
            load_balancer_grace_seconds: self.read_seconds(&LOAD_BALANCER_GRACE)?,
            grace_period_seconds: self
                .find(&GRACE_PERIOD)
                .map(|_| self.read_seconds(&GRACE_PERIOD))
                .transpose()?,
            urgency: match (urgency, interrupted_at) {
                (Urgency::Spot, Some(_)) => Urgency::Interruption,
                (urgency, _) => urgency,
            },
            dry_run: self.read_flag(&DRY_RUN)?,
            force: self.read_force()?,
            interrupted_at,
            hook,
        })
    }

    fn read_identifier<T: FromStr<Err = crate::ids::InvalidId>>(
        &self,
        field: &Field,
    ) -> Result<T, InvalidInput> {
        let Some(given) = self.find(field) else {
            return Err(InvalidInput(format!(
                "{} is required, but is missing",
                field.name
            )));
        };
        match given.value.as_str().map(str::parse) {
            Some(Ok(id)) => Ok(id),
            Some(Err(error)) => Err(InvalidInput(format!("{} {error}", field.name))),
            None => Err(refuse(field, given, "a text")),
        }
    }

    fn read_awaited(&self) -> Result<Awaited, InvalidInput> {
        let selector_given = self.find(&LABEL_SELECTOR);
        let selector = selector_given.map_or(Ok(None), read_selector)?;
        let namespaces_given = self.find(&NAMESPACES);
        let mut namespaces = namespaces_given.map_or_else(|| Ok(BTreeSet::new()), read_namespaces)?;
        if selector.is_none() && !namespaces.is_empty() {
            let selector_origin = selector_given.map(|given| given.origin);
            match namespaces_given.map(|given| given.origin) {
                // The execution said "none by label": the module's namespaces have nothing to narrow.
                Some(Origin::Setting) if selector_origin == Some(Origin::Input) => namespaces.clear(),
                Some(origin) => {
                    return Err(InvalidInput(format!(
                        "{}namespaces narrows label_selector, but there is none; write label_selector \"*\" to wait for \
                         every pod in these namespaces",
                        origin.prefix()
                    )));
                }
                None => {}
            }
        }
        Ok(Awaited { selector, namespaces })
    }

    fn read_choice<T: DeserializeOwned>(&self, field: &Field) -> Result<T, InvalidInput> {
        let default = default_of(field);
        let given = self.find(field).unwrap_or(Given {
            value: &default,
            origin: Origin::Input,
        });
        let is_listed = choices(field).iter().any(|choice| *given.value == choice.value);
        serde_json::from_value(given.value.clone())
            .ok()
            .filter(|_| is_listed)
            .ok_or_else(|| refuse(field, given, &format!("one of {}", list_choices(choices(field)))))
    }

    fn read_seconds(&self, field: &Field) -> Result<u32, InvalidInput> {
        let Kind::Seconds { least, most } = field.kind else {
            return Err(InvalidInput(format!("{} is no number of seconds", field.name)));
        };
        let default = default_of(field);
        let given = self.find(field).unwrap_or(Given {
            value: &default,
            origin: Origin::Input,
        });
        given
            .value
            .as_u64()
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|seconds| (least..=most).contains(seconds))
            .ok_or_else(|| refuse(field, given, &format!("a whole number from {least} to {most}")))
    }

    fn read_flag(&self, field: &Field) -> Result<bool, InvalidInput> {
        match self.find(field) {
            None => Ok(false),
            Some(given) => given
                .value
                .as_bool()
                .ok_or_else(|| refuse(field, given, "true or false")),
        }
    }

    fn read_force(&self) -> Result<BTreeSet<Force>, InvalidInput> {
        let Some(given) = self.find(&FORCE) else {
            return Ok(BTreeSet::new());
        };
        let expected = || format!("a list of {}", list_choices(choices(&FORCE)));
        let Some(values) = given.value.as_array() else {
            return Err(refuse(&FORCE, given, &expected()));
        };
        let mut force = BTreeSet::new();
        for value in values {
            let refusal: Force = serde_json::from_value(value.clone())
                .map_err(|_| refuse_element(&FORCE, given.origin, value, &expected()))?;
            if !force.insert(refusal) {
                return Err(repeated(&FORCE, given.origin, value));
            }
        }
        Ok(force)
    }

    fn read_time(&self, field: &Field) -> Result<Option<Timestamp>, InvalidInput> {
        let Some(given) = self.find(field) else {
            return Ok(None);
        };
        let time = given.value.as_str().and_then(|text| text.parse().ok());
        time.map(Some)
            .ok_or_else(|| refuse(field, given, "a time such as 2027-01-31T18:00:00Z"))
    }

    fn read_hook(&self) -> Result<Option<Hook>, InvalidInput> {
        let Some(given) = self.find(&HOOK) else {
            return Ok(None);
        };
        let hook: Option<Hook> = serde_json::from_value(given.value.clone()).ok();
        hook.filter(|hook| hook.name == LIFECYCLE_HOOK)
            .map(Some)
            .ok_or_else(|| {
                let expected = format!(
                    "an object with name {LIFECYCLE_HOOK:?}, auto_scaling_group_name and destination, and fired_at (a time) and retain \
                     (true or false) if they are known"
                );
                refuse(&HOOK, given, &expected)
            })
    }

    /// Values that are right one by one and make no sense together.
    fn check_combinations(&self, input: &Input) -> Result<(), InvalidInput> {
        let refused = |text: &str| Err(InvalidInput(text.to_owned()));
        if input.hook.is_some() {
            for field in [REPLACEMENT, DISPOSE] {
                if self.given.contains_key(field.name) {
                    return Err(InvalidInput(format!(
                        "hook and {} make no sense together: the group is terminating the instance already",
                        field.name
                    )));
                }
            }
            if input.urgency != Urgency::Hook {
                return refused("hook makes sense only with urgency \"hook\": leave urgency out");
            }
        } else if input.urgency == Urgency::Hook {
            return refused("urgency \"hook\" makes no sense without hook");
        }
        if input.interrupted_at.is_some() {
            if input.urgency != Urgency::Interruption {
                return refused("interrupted_at makes sense only with urgency \"spot\"");
            }
            for field in [REPLACEMENT, DISPOSE] {
                if self.given.contains_key(field.name) {
                    return Err(InvalidInput(format!(
                        "interrupted_at and {} make no sense together: EC2 takes the instance away",
                        field.name
                    )));
                }
            }
        }
        if input.replacement == Replacement::After {
            match input.dispose {
                Dispose::Terminate => {}
                Dispose::Stop | Dispose::Detach => {
                    return refused(
                        "replacement \"after\" allows only dispose \"terminate\": stopping and detaching need Standby, \
                         so write replacement \"before\"",
                    );
                }
            }
        }
        if input.on_drain_timeout == OnDrainTimeout::Terminate && !input.force.contains(&Force::RunningPods) {
            return refused(
                "on_drain_timeout \"terminate\" ends pods that still run; write force [\"running_pods\"] if that is meant",
            );
        }
        Ok(())
    }
}

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

fn default_of(field: &Field) -> Value {
    serde_json::from_str(field.default).unwrap_or(Value::Null)
}

fn read_selector(given: Given<'_>) -> Result<Option<Selector>, InvalidInput> {
    let Some(text) = given.value.as_str() else {
        return Err(refuse(&LABEL_SELECTOR, given, "a text"));
    };
    if text.chars().count() > LONGEST_SELECTOR {
        return Err(InvalidInput(format!(
            "{}label_selector must have at most {LONGEST_SELECTOR} characters, but has {}",
            given.origin.prefix(),
            text.chars().count()
        )));
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| {
        InvalidInput(format!(
            "{}label_selector must be a Kubernetes label selector, but is {:?}: {error}",
            given.origin.prefix(),
            cut_given(text)
        ))
    })
}

fn read_namespaces(given: Given<'_>) -> Result<BTreeSet<String>, InvalidInput> {
    const EXPECTED: &str = "a list of namespace names (1 to 63 lower-case letters, digits and hyphens each)";
    let Some(values) = given.value.as_array() else {
        return Err(refuse(&NAMESPACES, given, EXPECTED));
    };
    if values.len() > MOST_NAMESPACES {
        return Err(InvalidInput(format!(
            "{}namespaces must have at most {MOST_NAMESPACES} names, but has {}",
            given.origin.prefix(),
            values.len()
        )));
    }
    let mut namespaces = BTreeSet::new();
    for value in values {
        let name = value
            .as_str()
            .filter(|name| is_dns_label(name))
            .ok_or_else(|| refuse_element(&NAMESPACES, given.origin, value, EXPECTED))?;
        if !namespaces.insert(name.to_owned()) {
            return Err(repeated(&NAMESPACES, given.origin, value));
        }
    }
    Ok(namespaces)
}

fn refuse(field: &Field, given: Given<'_>, expected: &str) -> InvalidInput {
    InvalidInput(format!(
        "{}{} must be {expected}, but is {}",
        given.origin.prefix(),
        field.name,
        describe(given.value)
    ))
}

/// The same for one value of a list.
fn refuse_element(field: &Field, origin: Origin, value: &Value, expected: &str) -> InvalidInput {
    InvalidInput(format!(
        "{}{} must be {expected}, but has {}",
        origin.prefix(),
        field.name,
        describe(value)
    ))
}

fn repeated(field: &Field, origin: Origin, value: &Value) -> InvalidInput {
    InvalidInput(format!(
        "{}{} must name each value once, but has {value} twice",
        origin.prefix(),
        field.name
    ))
}

fn list_choices(choices: &[Choice]) -> String {
    choices
        .iter()
        .map(|choice| format!("{:?}", choice.value))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A value as people wrote it, cut if it is long.
fn describe(value: &Value) -> String {
    cut_given(&value.to_string())
}

/// A name that somebody gave to a field: as it is, if it could be one.
pub(crate) fn name_given(name: &str) -> String {
    let could_be_one = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    let name = cut_given(name);
    if could_be_one { name } else { format!("{name:?}") }
}

/// "did you mean …", or all names.
fn suggest(name: &str, allowed: fn(&Field) -> bool) -> String {
    let names: Vec<&str> = FIELDS
        .iter()
        .filter(|field| allowed(field))
        .map(|field| field.name)
        .collect();
    let nearest = names.iter().min_by_key(|known| edit_distance(name, known));
    match nearest {
        // A third of the letters wrong is still a slip of the pen; more is another word.
        Some(known) if edit_distance(name, known) * 3 <= known.len() => format!("did you mean {known}?"),
        Some(_) | None => format!("allowed are {}", names.join(", ")),
    }
}

/// Levenshtein's distance.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, character) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let substituted = diagonal + usize::from(character != *other);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{OLD, at, input, input_json, settings};

    fn with_defaults(defaults: Value) -> Settings {
        let Value::Object(defaults) = defaults else {
            panic!("{defaults} is no object")
        };
        Settings {
            defaults,
            ..settings()
        }
    }

    fn refusal(more: Value) -> String {
        parse_input(&input_json(more.clone()), &settings())
            .expect_err(&more.to_string())
            .to_string()
    }

    #[test]
    fn the_predecessors_three_fields_are_enough() {
        let input = input(json!({"label_selector": "airflow_version=1.2.3,airflow-worker"}));
        assert_eq!(
            input,
            Input {
                instance_id: OLD.parse().unwrap(),
                cluster_name: "prod".parse().unwrap(),
                awaited: Awaited {
                    selector: Some("airflow_version=1.2.3,airflow-worker".parse().unwrap()),
                    namespaces: BTreeSet::new(),
                },
                evict: Evict::Others,
                replacement: Replacement::Before,
                dispose: Dispose::Terminate,
                node_lost_after_seconds: 1_800,
                replacement_timeout_seconds: 840,
                drain_timeout_seconds: 172_800,
                on_drain_timeout: OnDrainTimeout::Restore,
                load_balancer_grace_seconds: 60,
                grace_period_seconds: None,
                urgency: Urgency::Planned,
                dry_run: false,
                force: BTreeSet::new(),
                interrupted_at: None,
                hook: None,
            }
        );
    }

    #[test]
    fn every_value_is_taken() {
        let input = input(json!({
            "label_selector": "*", "namespaces": ["jobs"], "evict": "none", "replacement": "before", "dispose": "stop",
            "replacement_timeout_seconds": 60, "drain_timeout_seconds": 2_592_000, "on_drain_timeout": "terminate",
            "load_balancer_grace_seconds": 0, "grace_period_seconds": 5, "urgency": "planned", "dry_run": true,
            "force": ["scale_in_protection", "running_pods", "suspended_process"],
        }));
        assert_eq!(input.awaited.selector, Some(Selector::everything()));
        assert_eq!(input.awaited.namespaces, BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(input.grace_period_seconds, Some(5));
        assert_eq!(
            (input.evict, input.dispose, input.dry_run),
            (Evict::None, Dispose::Stop, true)
        );
        assert_eq!(
            input.force,
            BTreeSet::from([
                Force::ScaleInProtection,
                Force::RunningPods,
                Force::SuspendedProcess
            ])
        );
        assert_eq!(input.on_drain_timeout, OnDrainTimeout::Terminate);
    }

    fn hook() -> Value {
        json!({"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2", "fired_at": at(0)})
    }

    #[test]
    fn how_an_instance_goes_that_others_end_no_module_setting_says() {
        let settings = with_defaults(json!({"replacement": "before", "dispose": "stop"}));
        for more in [
            json!({"hook": hook()}),
            json!({"urgency": "spot", "interrupted_at": at(0)}),
        ] {
            let input = parse_input(&input_json(more), &settings).unwrap();
            assert_eq!(
                (input.replacement, input.dispose),
                (Replacement::After, Dispose::Terminate)
            );
        }
    }

    #[test]
    fn a_trigger_may_say_that_it_is_urgent() {
        assert_eq!(input(json!({"urgency": "spot"})).urgency, Urgency::Spot);
        let interrupted = input(json!({"urgency": "spot", "interrupted_at": at(120)}));
        assert_eq!(interrupted.urgency, Urgency::Interruption);
        assert_eq!(interrupted.interrupted_at, Some(at(120)));
        assert_eq!(input(json!({"hook": hook()})).urgency, Urgency::Hook);
        assert_eq!(input(json!({})).urgency, Urgency::Planned);
    }

    #[test]
    fn a_wrong_field_is_refused_with_what_is_allowed_and_what_was_given() {
        let cases = [
            (json!({"instance_id": 1}), "instance_id must be a text, but is 1"),
            (
                json!({"instance_id": "i-1"}),
                "instance_id must be an instance id (i- and 8 or 17 hexadecimal digits), but is \"i-1\"",
            ),
            (
                json!({"instance_id": null}),
                "instance_id must be a text, but is null",
            ),
            (
                json!({"cluster_name": "test"}),
                "cluster_name must be \"prod\", the cluster of this module, but is \"test\"",
            ),
            (
                json!({"cluster_name": ["prod"]}),
                "cluster_name must be a text, but is [\"prod\"]",
            ),
            (
                json!({"cluster_name": "-"}),
                "cluster_name must be a cluster name",
            ),
            (
                json!({"label_selector": 5}),
                "label_selector must be a text, but is 5",
            ),
            (
                json!({"label_selector": "app web"}),
                "label_selector must be a Kubernetes label selector, but is \"app web\": expected one of =, ==, !=, in, notin, <, \
                 > or a comma at character 5, but found \"web\"",
            ),
            (
                json!({"label_selector": "a".repeat(513)}),
                "label_selector must have at most 512 characters, but has 513",
            ),
            (
                json!({"namespaces": "jobs"}),
                "namespaces must be a list of namespace names",
            ),
            (json!({"namespaces": ["Jobs"]}), "each), but has \"Jobs\""),
            (json!({"namespaces": [""]}), "each), but has \"\""),
            (json!({"namespaces": [7]}), "each), but has 7"),
            (
                json!({"namespaces": ["a", "a"]}),
                "namespaces must name each value once, but has \"a\" twice",
            ),
            (
                json!({"namespaces": vec!["a"; 17]}),
                "namespaces must have at most 16 names, but has 17",
            ),
            (
                json!({"evict": "all"}),
                "evict must be one of \"others\", \"others_and_jobs\", \"none\", but is \"all\"",
            ),
            (
                json!({"evict": null}),
                "evict must be one of \"others\", \"others_and_jobs\", \"none\", but is null",
            ),
            (
                json!({"replacement": true}),
                "replacement must be one of \"before\", \"after\", but is true",
            ),
            (
                json!({"dispose": "Stop"}),
                "dispose must be one of \"terminate\", \"stop\", \"detach\", but is \"Stop\"",
            ),
            (
                json!({"replacement_timeout_seconds": 59}),
                "replacement_timeout_seconds must be a whole number from 60 to 3600, but is 59",
            ),
            (
                json!({"drain_timeout_seconds": "2 days"}),
                "drain_timeout_seconds must be a whole number from 60 to 2592000, but is \"2 days\"",
            ),
            (json!({"drain_timeout_seconds": 2_592_001}), "but is 2592001"),
            (json!({"drain_timeout_seconds": 3_600.5}), "but is 3600.5"),
            (json!({"drain_timeout_seconds": -1}), "but is -1"),
            (
                json!({"drain_timeout_seconds": u64::MAX}),
                "but is 18446744073709551615",
            ),
            (
                json!({"grace_period_seconds": 0}),
                "grace_period_seconds must be a whole number from 1 to 2592000, but is 0",
            ),
            (
                json!({"load_balancer_grace_seconds": 3_601}),
                "load_balancer_grace_seconds must be a whole number from 0 to 3600, but is 3601",
            ),
            (
                json!({"on_drain_timeout": "kill"}),
                "on_drain_timeout must be one of \"restore\", \"evict\", \"terminate\", but is \"kill\"",
            ),
            (
                json!({"urgency": "very"}),
                "urgency must be one of \"planned\", \"spot\", \"hook\", but is \"very\"",
            ),
            (
                json!({"dry_run": "true"}),
                "dry_run must be true or false, but is \"true\"",
            ),
            (
                json!({"force": "scale_in_protection"}),
                "force must be a list of \"scale_in_protection\", \"last_target\", \"running_pods\", \"suspended_process\", but is \
                 \"scale_in_protection\"",
            ),
            (
                json!({"force": ["everything"]}),
                "\"suspended_process\", but has \"everything\"",
            ),
            (
                json!({"force": ["suspended_process", "suspended_process"]}),
                "force must name each value once, but has \"suspended_process\" twice",
            ),
            (
                json!({"hook": {"name": "drain", "auto_scaling_group_name": "workers", "destination": "EC2"}}),
                "hook must be an object with name \"recycle-eks\"",
            ),
            (json!({"urgency": "interruption"}), "urgency must be one of"),
            (
                json!({"interrupted_at": "soon"}),
                "interrupted_at must be a time such as 2027-01-31T18:00:00Z, but is \"soon\"",
            ),
            (
                json!({"hook": "drain"}),
                "hook must be an object with name \"recycle-eks\", auto_scaling_group_name and destination",
            ),
        ];
        for (more, expected) in cases {
            let text = refusal(more.clone());
            assert!(text.contains(expected), "{more}: {text}");
            assert!(!text.contains('\n') && text.len() < 400, "{more}: {text}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_or_missing_is_named() {
        assert_eq!(
            parse_input(&json!({"cluster_name": "prod"}), &settings())
                .unwrap_err()
                .0,
            "instance_id is required, but is missing"
        );
        assert_eq!(
            parse_input(&json!({"instance_id": OLD}), &settings())
                .unwrap_err()
                .0,
            "cluster_name is required, but is missing"
        );
        assert_eq!(
            refusal(json!({"drain_timeout_second": 60})),
            "drain_timeout_second is no field of the input; did you mean drain_timeout_seconds?"
        );
        assert_eq!(
            refusal(json!({"label_selectors": ""})),
            "label_selectors is no field of the input; did you mean label_selector?"
        );
        for (from, to, distance) in [
            ("", "", 0),
            ("evict", "", 5),
            ("abc", "abd", 1),
            ("abc", "xabc", 1),
            ("abcd", "xyzw", 4),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(
                (edit_distance(from, to), edit_distance(to, from)),
                (distance, distance),
                "{from} {to}"
            );
        }
        let long = refusal(json!({"x".repeat(20_000): 1}));
        assert!(long.len() < 600, "{long}");
        assert!(refusal(json!({"a\nb": 1})).starts_with("\"a\\nb\" is no field of the input; "));
        let text = refusal(json!({"region": "eu-west-1"}));
        assert!(
            text.starts_with("region is no field of the input; allowed are instance_id, cluster_name, "),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (input, shown) in [
            (json!([]), "[]"),
            (json!("i-1"), "\"i-1\""),
            (Value::Null, "null"),
        ] {
            assert_eq!(
                parse_input(&input, &settings()).unwrap_err().0,
                format!("the input must be a JSON object, but is {shown}")
            );
        }
    }

    #[test]
    fn values_that_make_no_sense_together_are_refused() {
        let hook = hook();
        let cases = [
            (
                json!({"replacement": "after", "dispose": "stop"}),
                "replacement \"after\" allows only dispose",
            ),
            (
                json!({"replacement": "after", "dispose": "detach"}),
                "replacement \"after\" allows only dispose",
            ),
            (
                json!({"on_drain_timeout": "terminate"}),
                "write force [\"running_pods\"] if that is meant",
            ),
            (
                json!({"hook": hook, "dispose": "stop"}),
                "hook and dispose make no sense together",
            ),
            (
                json!({"hook": hook, "replacement": "before"}),
                "hook and replacement make no sense together",
            ),
            (
                json!({"hook": hook, "urgency": "planned"}),
                "hook makes sense only with urgency \"hook\"",
            ),
            (
                json!({"interrupted_at": at(0)}),
                "interrupted_at makes sense only with urgency \"spot\"",
            ),
            (
                json!({"urgency": "spot", "interrupted_at": at(0), "dispose": "stop"}),
                "interrupted_at and dispose make no sense together",
            ),
            (
                json!({"urgency": "hook"}),
                "urgency \"hook\" makes no sense without hook",
            ),
            (
                json!({"namespaces": ["jobs"]}),
                "write label_selector \"*\" to wait for every pod in these namespaces",
            ),
            (
                json!({"namespaces": ["jobs"], "label_selector": ""}),
                "namespaces narrows label_selector",
            ),
        ];
        for (more, expected) in cases {
            let text = refusal(more.clone());
            assert!(text.contains(expected), "{more}: {text}");
        }
    }

    #[test]
    fn a_module_setting_is_the_default_and_the_input_wins() {
        let settings = with_defaults(
            json!({"evict": "none", "drain_timeout_seconds": 600, "label_selector": "app=batch",
            "namespaces": ["jobs"], "dispose": null}),
        );
        let by_default = parse_input(&input_json(json!({})), &settings).unwrap();
        assert_eq!(
            (by_default.evict, by_default.drain_timeout_seconds),
            (Evict::None, 600)
        );
        assert_eq!(by_default.awaited.selector, Some("app=batch".parse().unwrap()));
        assert_eq!(by_default.awaited.namespaces, BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(by_default.dispose, Dispose::Terminate);

        let given = parse_input(
            &input_json(json!({"evict": "others", "label_selector": ""})),
            &settings,
        )
        .unwrap();
        assert_eq!(given.evict, Evict::Others);
        assert_eq!(
            given.awaited,
            Awaited::default(),
            "none by label: there is nothing to narrow"
        );

        let everywhere = parse_input(&input_json(json!({"namespaces": []})), &settings).unwrap();
        assert!(everywhere.awaited.namespaces.is_empty());
    }

    #[test]
    fn a_setting_narrows_a_selector_that_the_input_gives() {
        let settings = with_defaults(json!({"label_selector": "", "namespaces": []}));
        let input = parse_input(
            &input_json(json!({"label_selector": "*", "namespaces": ["a"]})),
            &settings,
        )
        .unwrap();
        assert_eq!(input.awaited.namespaces.len(), 1);
    }

    #[test]
    fn a_wrong_module_setting_is_named_as_one() {
        let cases = [
            (
                json!({"evict": "all"}),
                "the module setting evict must be one of \"others\", \"others_and_jobs\", \"none\", but is \"all\"",
            ),
            (
                json!({"label_selector": "=" }),
                "the module setting label_selector must be a Kubernetes label selector",
            ),
            (
                json!({"namespaces": ["a"]}),
                "the module setting namespaces narrows label_selector, but there is none",
            ),
            (
                json!({"namespaces": ["A"]}),
                "the module setting namespaces must be a list",
            ),
            (
                json!({"force": [1]}),
                "the module setting force must be a list of",
            ),
            (
                json!({"dry_run": 1}),
                "the module setting dry_run must be true or false, but is 1",
            ),
            (
                json!({"drain_timeout": 60}),
                "the module has no setting drain_timeout; ",
            ),
            (
                json!({"evicts": "none"}),
                "the module has no setting evicts; did you mean evict?",
            ),
            (
                json!({"instance_id": OLD}),
                "the module has no setting instance_id; allowed are label_selector, ",
            ),
            (
                json!({"urgency": "planned"}),
                "the module has no setting urgency; ",
            ),
        ];
        for (defaults, expected) in cases {
            let text = parse_input(&input_json(json!({})), &with_defaults(defaults.clone()))
                .unwrap_err()
                .0;
            assert!(text.contains(expected), "{defaults}: {text}");
        }
    }

    /// The values that a type reads, from what serde says of one that it does not.
    fn values_of<T: DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_value::<T>(json!("?")).err().unwrap().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_and_the_types_know_the_same_values() {
        let mut compared = 0;
        for field in FIELDS.iter().filter(|field| !choices(field).is_empty()) {
            let of_type = match field.name {
                "evict" => values_of::<Evict>(),
                "replacement" => values_of::<Replacement>(),
                "dispose" => values_of::<Dispose>(),
                "on_drain_timeout" => values_of::<OnDrainTimeout>(),
                // An interruption is told by its time.
                "urgency" => values_of::<Urgency>()
                    .into_iter()
                    .filter(|word| word != "interruption")
                    .collect(),
                "force" => values_of::<Force>(),
                name => panic!("{name} has a closed list that no type reads"),
            };
            let of_table: Vec<&str> = choices(field).iter().map(|choice| choice.value).collect();
            assert_eq!(of_type, of_table, "{}", field.name);
            compared += 1;
        }
        assert_eq!(compared, 6);
    }

    #[test]
    fn every_default_is_one_that_the_table_allows() {
        for field in &FIELDS {
            if !field.default.is_empty() {
                let value: Value = serde_json::from_str(field.default).unwrap();
                parse_input(&input_json(json!({field.name: value})), &settings()).unwrap();
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::sample::select(vec![
                "",
                "*",
                "app=web",
                "others",
                "after",
                "stop",
                "last_target",
                "prod",
                "Ü"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                inner.prop_map(|value| json!({"name": value})),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_input_is_taken_or_refused_in_one_sentence(
            fields in prop::collection::btree_map(
                prop::sample::select(FIELDS.iter().map(|field| field.name).chain(["unknown"]).collect::<Vec<_>>()),
                any_value(),
                0..4,
            ),
        ) {
            let more: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            match parse_input(&input_json(Value::Object(more)), &settings()) {
                Ok(input) => {
                    // What travels in `run` is read again as it was.
                    let carried = serde_json::to_value(&input).unwrap();
                    prop_assert_eq!(serde_json::from_value::<Input>(carried).unwrap(), input);
                }
                Err(error) => prop_assert!(!error.0.is_empty() && !error.0.contains('\n')),
            }
        }
    }
}
