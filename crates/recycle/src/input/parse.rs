//! Parses the input of an execution before anything is touched. An error names the field.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::base::ids::{ClusterName, InvalidId};
use crate::base::names::LIFECYCLE_HOOK;
use crate::base::selector::{Selector, is_dns_label};
use crate::base::text::cut_given;
use crate::input::fields::{
    CLUSTER_NAME, DISPOSE, DRAIN_TIMEOUT, DRY_RUN, EVICT, FIELDS, Field, GRACE_PERIOD, HOOK, INSTANCE_ID,
    INTERRUPTED_AT, Kind, LABEL_SELECTOR, LOAD_BALANCER_GRACE, NAMESPACES, NODE_LOST_AFTER, ON_DRAIN_TIMEOUT,
    OVERRIDE, REPLACEMENT, REPLACEMENT_TIMEOUT, SKIP_STUCK_AFTER, Settings, URGENCY, choices,
};
use crate::input::model::{
    Awaited, Dispose, Hook, Input, InvalidInput, OnDrainTimeout, Override, Replacement,
};
use crate::input::suggest::{name_given, suggest};
use crate::input::urgency::Urgency;

/// The maximum number of characters of a selector. A selector is part of every answer, and answers stay under 8 KB.
const LONGEST_SELECTOR: usize = 512;

/// The maximum number of namespaces in an input, for the same reason.
const MOST_NAMESPACES: usize = 16;

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

/// The value of a field: the input's, the module's setting, or the default.
struct Given {
    name: &'static str,
    value: Value,
    is_setting: bool,
}

impl Given {
    /// Returns what `read` makes of the value. Fails if that is nothing.
    fn read<'a, T>(
        &'a self,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, InvalidInput> {
        read(&self.value)
            .ok_or_else(|| self.refuse(format!("must be {expected}, but is {}", describe(&self.value))))
    }

    /// Reads each value of a list like [`Given::read`]. Fails also if the list has a value twice.
    fn read_list<T: Ord>(
        &self,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<BTreeSet<T>, InvalidInput> {
        let mut list = BTreeSet::new();
        for value in self.read(expected, Value::as_array)? {
            let element = read(value)
                .ok_or_else(|| self.refuse(format!("must be {expected}, but has {}", describe(value))))?;
            if !list.insert(element) {
                return Err(self.refuse(format!("must name each value once, but has {value} twice")));
            }
        }
        Ok(list)
    }

    fn refuse(&self, why: impl Display) -> InvalidInput {
        let origin = if self.is_setting {
            "the module setting "
        } else {
            ""
        };
        InvalidInput(format!("{origin}{} {why}", self.name))
    }
}

struct Reader<'a> {
    given: &'a Map<String, Value>,
    settings: &'a Settings,
}

impl Reader<'_> {
    fn check_names(&self) -> Result<(), InvalidInput> {
        for name in self.given.keys() {
            if !FIELDS.iter().any(|field| field.name == name) {
                let (name, suggestion) = (name_given(name), suggest(name, |_| true));
                return Err(InvalidInput(format!(
                    "{name} is not a field of the input; {suggestion}"
                )));
            }
        }
        for name in self.settings.defaults.keys() {
            if !FIELDS.iter().any(|field| field.setting && field.name == name) {
                let (name, suggestion) = (name_given(name), suggest(name, |field| field.setting));
                return Err(InvalidInput(format!(
                    "the module has no setting {name}; {suggestion}"
                )));
            }
        }
        Ok(())
    }

    fn find(&self, field: &Field) -> Option<Given> {
        let setting = self.settings.defaults.get(field.name);
        let (value, is_setting) = match (self.given.get(field.name), setting) {
            (Some(value), _) => (value.clone(), false),
            (None, Some(value)) if !value.is_null() => (value.clone(), true),
            (None, Some(_) | None) => (serde_json::from_str(field.default).ok()?, false),
        };
        Some(Given {
            name: field.name,
            value,
            is_setting,
        })
    }

    fn require(&self, field: &Field) -> Result<Given, InvalidInput> {
        self.find(field)
            .ok_or_else(|| InvalidInput(format!("{} is required, but is missing", field.name)))
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
        let interrupted_at = self.read_interruption()?;
        let urgency = if hook.is_some() && !self.given.contains_key(URGENCY.name) {
            Urgency::Hook
        } else {
            self.read_choice(&URGENCY)?
        };
        // If the group or EC2 ends the instance, neither the execution nor the module's defaults choose how it leaves.
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
            node_lost_after: self.read_duration(&NODE_LOST_AFTER)?,
            replacement_timeout: self.read_duration(&REPLACEMENT_TIMEOUT)?,
            drain_timeout: self.read_duration(&DRAIN_TIMEOUT)?,
            on_drain_timeout: self.read_choice(&ON_DRAIN_TIMEOUT)?,
            load_balancer_grace: self.read_duration(&LOAD_BALANCER_GRACE)?,
            skip_stuck_after: self.read_optional_duration(&SKIP_STUCK_AFTER)?,
            grace_period: self.read_optional_duration(&GRACE_PERIOD)?,
            urgency: match (urgency, interrupted_at) {
                (Urgency::Spot, Some(_)) => Urgency::Interruption,
                (urgency, _) => urgency,
            },
            dry_run: self.require(&DRY_RUN)?.read("true or false", Value::as_bool)?,
            overrides: self.read_override()?,
            interrupted_at,
            hook,
        })
    }

    fn read_identifier<T: FromStr<Err = InvalidId>>(&self, field: &Field) -> Result<T, InvalidInput> {
        let given = self.require(field)?;
        let text = given.read("a text", Value::as_str)?;
        text.parse().map_err(|error| given.refuse(error))
    }

    fn read_awaited(&self) -> Result<Awaited, InvalidInput> {
        let selector_given = self.find(&LABEL_SELECTOR);
        let selector = selector_given.as_ref().map_or(Ok(None), read_selector)?;
        let namespaces_given = self.require(&NAMESPACES)?;
        let mut namespaces = read_namespaces(&namespaces_given)?;
        if selector.is_none() && !namespaces.is_empty() {
            let is_none_by_input = selector_given.is_some_and(|given| !given.is_setting);
            if !(namespaces_given.is_setting && is_none_by_input) {
                return Err(namespaces_given.refuse(
                    "narrows label_selector, which is empty or missing; write label_selector \"*\" to wait for every pod in these namespaces",
                ));
            }
            // The execution waits for no pods by label, so the module's namespaces have nothing to narrow.
            namespaces.clear();
        }
        Ok(Awaited { selector, namespaces })
    }

    fn read_choice<T: DeserializeOwned>(&self, field: &Field) -> Result<T, InvalidInput> {
        let is_listed = |value: &Value| choices(field).iter().any(|choice| *value == choice.value);
        self.require(field)?
            .read(&format!("one of {}", list_choices(field)), |value| {
                serde_json::from_value(value.clone())
                    .ok()
                    .filter(|_| is_listed(value))
            })
    }

    /// Returns seconds.
    fn read_duration(&self, field: &Field) -> Result<u32, InvalidInput> {
        let Kind::Duration(range) = field.kind else {
            return Err(InvalidInput(format!("{} is not a duration", field.name)));
        };
        let given = self.require(field)?;
        let duration = range.read(&given.value).map_err(|error| given.refuse(error))?;
        Ok(duration.as_seconds())
    }

    fn read_optional_duration(&self, field: &Field) -> Result<Option<u32>, InvalidInput> {
        self.find(field).map(|_| self.read_duration(field)).transpose()
    }

    fn read_override(&self) -> Result<BTreeSet<Override>, InvalidInput> {
        let expected = format!("a list of {}", list_choices(&OVERRIDE));
        self.require(&OVERRIDE)?
            .read_list(&expected, |value| serde_json::from_value(value.clone()).ok())
    }

    fn read_interruption(&self) -> Result<Option<Timestamp>, InvalidInput> {
        let read = |given: Given| {
            given.read("a time such as 2027-01-31T18:00:00Z", |value| {
                value.as_str()?.parse().ok()
            })
        };
        self.find(&INTERRUPTED_AT).map(read).transpose()
    }

    fn read_hook(&self) -> Result<Option<Hook>, InvalidInput> {
        let expected = format!(
            "an object with name {LIFECYCLE_HOOK:?}, auto_scaling_group_name and destination, and fired_at (a time) and retain \
             (true or false) if they are known"
        );
        let read = |given: Given| {
            given.read(&expected, |value| {
                let hook: Hook = serde_json::from_value(value.clone()).ok()?;
                (hook.name == LIFECYCLE_HOOK).then_some(hook)
            })
        };
        self.find(&HOOK).map(read).transpose()
    }

    /// Refuses values that are valid one by one but contradict each other.
    fn check_combinations(&self, input: &Input) -> Result<(), InvalidInput> {
        let refused = |text: &str| Err(InvalidInput(text.to_owned()));
        if input.hook.is_some() {
            self.check_disposal("hook", "the group is already terminating the instance")?;
            if input.urgency != Urgency::Hook {
                return refused("hook needs urgency \"hook\"; remove urgency, which then has this value");
            }
        } else if input.urgency == Urgency::Hook {
            return refused("urgency \"hook\" needs the field hook");
        }
        if input.interrupted_at.is_some() {
            if input.urgency != Urgency::Interruption {
                return refused("interrupted_at needs urgency \"spot\"");
            }
            self.check_disposal("interrupted_at", "EC2 takes the instance away")?;
        }
        let named = match input.replacement {
            Replacement::Before => None,
            Replacement::After => Some("after"),
            Replacement::Surge => Some("surge"),
        };
        if let Some(named) = named.filter(|_| input.dispose != Dispose::Terminate) {
            return Err(InvalidInput(format!(
                "replacement {named:?} allows only dispose \"terminate\", because stopping and detaching need Standby; \
                 write replacement \"before\""
            )));
        }
        if input.on_drain_timeout == OnDrainTimeout::Terminate
            && !input.overrides.contains(&Override::RunningPods)
        {
            return refused(
                "on_drain_timeout \"terminate\" ends running pods; write override [\"running_pods\"] to allow this",
            );
        }
        Ok(())
    }

    /// Refuses an input that says how an instance leaves although its group or EC2 ends it.
    fn check_disposal(&self, field: &str, why: &str) -> Result<(), InvalidInput> {
        for other in [REPLACEMENT.name, DISPOSE.name] {
            if self.given.contains_key(other) {
                return Err(InvalidInput(format!(
                    "{field} and {other} cannot be combined, because {why}; remove {other}"
                )));
            }
        }
        Ok(())
    }
}

fn read_selector(given: &Given) -> Result<Option<Selector>, InvalidInput> {
    let text = given.read("a text", Value::as_str)?;
    let length = text.chars().count();
    if length > LONGEST_SELECTOR {
        return Err(given.refuse(format!(
            "must have at most {LONGEST_SELECTOR} characters, but has {length}"
        )));
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| {
        let text = cut_given(text);
        given.refuse(format!(
            "must be a Kubernetes label selector, but is {text:?}: {error}"
        ))
    })
}

fn read_namespaces(given: &Given) -> Result<BTreeSet<String>, InvalidInput> {
    let count = given.value.as_array().map_or(0, Vec::len);
    if count > MOST_NAMESPACES {
        return Err(given.refuse(format!(
            "must have at most {MOST_NAMESPACES} names, but has {count}"
        )));
    }
    given.read_list(
        "a list of namespace names (1 to 63 lower-case letters, digits and hyphens each)",
        |value| {
            value
                .as_str()
                .filter(|name| is_dns_label(name))
                .map(str::to_owned)
        },
    )
}

fn list_choices(field: &Field) -> String {
    let values = choices(field).iter().map(|choice| format!("{:?}", choice.value));
    values.collect::<Vec<_>>().join(", ")
}

/// Returns a value as the user wrote it, cut if it is long.
fn describe(value: &Value) -> String {
    cut_given(&value.to_string())
}
