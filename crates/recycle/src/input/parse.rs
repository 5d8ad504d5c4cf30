//! Parses the input. An error names the field before anything is touched.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::base::ids::ClusterName;
use crate::base::names::LIFECYCLE_HOOK;
use crate::base::selector::{Selector, is_dns_label};
use crate::base::text::cut_given;
use crate::input::fields::{
    CLUSTER_NAME, Choice, DISPOSE, DRAIN_TIMEOUT, DRY_RUN, EVICT, FIELDS, FORCE, Field, GRACE_PERIOD, HOOK,
    INSTANCE_ID, INTERRUPTED_AT, Kind, LABEL_SELECTOR, LOAD_BALANCER_GRACE, NAMESPACES, NODE_LOST_AFTER,
    ON_DRAIN_TIMEOUT, REPLACEMENT, REPLACEMENT_TIMEOUT, Settings, URGENCY, choices, default_of,
};
use crate::input::model::{Awaited, Dispose, Force, Hook, Input, InvalidInput, OnDrainTimeout, Replacement};
use crate::input::suggest::{name_given, suggest};
use crate::input::urgency::Urgency;

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

pub(crate) struct Reader<'a> {
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

    fn read_identifier<T: FromStr<Err = crate::base::ids::InvalidId>>(
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
