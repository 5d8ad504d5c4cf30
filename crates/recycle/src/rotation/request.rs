//! Parses the input of `rotate-nodes`: the trigger, the selection of nodes, and the fields of each node's execution.
//!
//! [`crate::rotation::terms`] reads the terms.

use std::fmt;

use jiff::Timestamp;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::base::ids::{GroupName, InstanceId, InvalidId};
use crate::base::named::named;
use crate::base::strict::{Unreadable, read_value};
use crate::base::time::later;
use crate::input::fields::FIELDS;
use crate::input::model::InvalidInput;
use crate::input::start::Start;
use crate::input::suggest::name_given;
use crate::rotation::outdated::Outdated;
use crate::rotation::terms::{self, Terms, read_terms};

/// Bytes of the fields that a rotation sets over the module's defaults, so that they fit into an answer of 8 KB.
pub(crate) const LONGEST_RECYCLE: usize = 2_000;

/// Seconds between EC2's warning and the end of a Spot instance (EC2 user guide, "Spot Instance interruption notices").
const SPOT_NOTICE: u32 = 120;

/// Fields that `recycle` may not set: the node, the cluster, and the values that the trigger sets.
const NOT_TO_BE_SET: [&str; 5] = ["instance_id", "cluster_name", "urgency", "hook", "interrupted_at"];

named! {
    /// The names of its executions begin with its name.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Trigger {
        Alarm = "alarm",
        /// An EventBridge event that names an instance.
        Event = "event",
        /// EC2's interruption warning.
        Spot = "spot",
        /// EC2's rebalance recommendation.
        Rebalance = "rebalance",
        Schedule = "schedule",
        /// `terraform apply`.
        Apply = "apply",
        Manual = "manual",
    }
}

impl Trigger {
    /// Checks whether the trigger starts a rotation, which goes through groups node by node. Any other trigger is urgent.
    pub fn begins_rotation(self) -> bool {
        match self {
            Self::Schedule | Self::Apply | Self::Manual => true,
            Self::Alarm | Self::Event | Self::Spot | Self::Rebalance => false,
        }
    }

    /// Checks whether EC2 sends the event. It sends events for every instance of the region.
    pub(crate) fn is_of_ec2(self) -> bool {
        matches!(self, Self::Spot | Self::Rebalance)
    }
}

/// The input of `rotate-nodes`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    pub trigger: Trigger,
    pub selection: Selection,
    /// Fields of `recycle-node`'s input that are set over the module's defaults.
    pub recycle: Map<String, Value>,
    /// Terms on which groups are rotated. None: each node is started at once, because the trigger is urgent.
    pub terms: Option<Terms>,
    /// The AWS event that began the rotation, or null.
    pub event: Value,
}

/// The field `selection`: exactly one of these variants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Instances by id, or by an ARN that ends in the id. An item may also be a list of these, which a path of an event yields.
    InstanceIds(#[serde(deserialize_with = "read_instances")] Vec<InstanceId>),
    /// The node that the alarm in `event` points to.
    Alarm(AlarmTerms),
    /// Members that differ from what their group would launch now, or that meet another criterion such as age.
    Outdated(Outdated),
}

impl Selection {
    /// Checks whether the groups' templates have to be read to find the selected nodes.
    pub fn asks_templates(&self) -> bool {
        matches!(self, Self::Outdated(outdated) if outdated.asks_templates())
    }

    /// Checks whether the Nodes have to be read to find the selected nodes.
    pub fn asks_nodes(&self) -> bool {
        matches!(self, Self::Outdated(outdated) if outdated.asks_nodes())
    }
}

/// How to choose the node that an alarm points to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmTerms {
    /// Group of the node. An instance that the alarm names must be in this group. If absent, the alarm's dimension names the group.
    pub group: Option<GroupName>,
    pub pick: Option<Pick>,
    /// Minutes after the last claim or replacement in a group during which an alarm recycles none of its nodes.
    #[serde(default = "default_cooldown")]
    pub cooldown_minutes: u32,
}

/// The choice of a node in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The node that was launched first.
    Oldest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    trigger: Trigger,
    selection: Value,
    recycle: Option<Map<String, Value>>,
    #[serde(default)]
    event: Value,
    dry_run: Option<bool>,
}

/// Returns minutes. A group-wide metric needs a while to show the effect of a new node.
fn default_cooldown() -> u32 {
    60
}

fn read_instances<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<InstanceId>, D::Error> {
    let items = Vec::<Item>::deserialize(deserializer)?;
    let read = |text: &String| text.rsplit('/').next().unwrap_or_default().parse();
    let ids: Result<_, InvalidId> = items.iter().flat_map(|Item(texts)| texts).map(read).collect();
    ids.map_err(de::Error::custom)
}

/// An item of `instance_ids`: one text, or a list of texts.
/// The trigger puts the value at its path into a list. At `$.resources` of an event of AWS Health that value is a list itself.
struct Item(Vec<String>);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an instance id or a list of instance ids")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
        Ok(Item(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(Item(texts))
    }
}

pub fn parse_rotation(input: &Value) -> Result<Rotation, InvalidInput> {
    let refuse = |what: &str, error: &Unreadable| InvalidInput(format!("{what}: {error}"));
    let (terms, rest) = split_terms(input);
    let given: Given = read_value(&rest).map_err(|error| refuse("the input of a rotation", &error))?;
    let selection: Selection = read_value(&given.selection).map_err(|error| refuse("selection", &error))?;
    let trigger = given.trigger;
    check_selection(trigger, &selection)?;
    let dry_run = given.dry_run.map(|_| "dry_run");
    let term = terms.keys().map(String::as_str).chain(dry_run).next();
    if let Some(term) = term.filter(|_| !trigger.begins_rotation()) {
        let trigger = trigger.name();
        return Err(InvalidInput(format!(
            "{term} is not allowed with trigger {trigger}, because its nodes are started at once; remove {term}"
        )));
    }
    let terms = read_terms(terms, given.dry_run.unwrap_or_default())?;
    Ok(Rotation {
        trigger,
        selection,
        recycle: check_recycle(given.recycle.unwrap_or_default())?,
        terms: trigger.begins_rotation().then_some(terms),
        event: given.event,
    })
}

/// Splits the input into the terms and the fields that every trigger has. Terraform passes `null` for a field that is not given.
fn split_terms(input: &Value) -> (Map<String, Value>, Value) {
    let Value::Object(fields) = input else {
        return (Map::new(), input.clone());
    };
    let given = fields.clone().into_iter();
    let (mut terms, rest): (Map<_, _>, Map<_, _>) =
        given.partition(|(name, _)| terms::FIELDS.contains(&name.as_str()));
    terms.retain(|_, value| !value.is_null());
    (terms, rest.into())
}

fn check_selection(trigger: Trigger, selection: &Selection) -> Result<(), InvalidInput> {
    let refuse = |text: &str| Err(InvalidInput(text.to_owned()));
    match selection {
        Selection::InstanceIds(ids) if ids.is_empty() => refuse(
            "selection: instance_ids is empty; check the path from which the trigger reads the instance id",
        ),
        Selection::InstanceIds(ids) if ids.len() > MOST_STARTS => {
            refuse("selection: instance_ids has more than 40 instances")
        }
        Selection::Outdated(_) if !trigger.begins_rotation() => {
            refuse("selection: outdated is allowed only with the triggers manual, schedule and apply")
        }
        Selection::Alarm(_) if trigger != Trigger::Alarm => {
            refuse("selection: alarm is allowed only with the trigger alarm")
        }
        Selection::Outdated(outdated) => outdated.check(),
        Selection::InstanceIds(_) | Selection::Alarm(_) => Ok(()),
    }
}

/// Checks the fields' names and length. `claim-node` checks their values. Terraform passes `null` for a field that is not given.
fn check_recycle(mut fields: Map<String, Value>) -> Result<Map<String, Value>, InvalidInput> {
    fields.retain(|_, value| !value.is_null());
    for name in fields.keys() {
        if NOT_TO_BE_SET.contains(&name.as_str()) {
            return Err(InvalidInput(format!(
                "recycle: {name} is set by the trigger; remove it"
            )));
        }
        if !FIELDS.iter().any(|field| field.name == name) {
            return Err(InvalidInput(format!(
                "recycle: {} is not a field of the input of recycle-node",
                name_given(name)
            )));
        }
    }
    let length = Value::Object(fields.clone()).to_string().len();
    if length > LONGEST_RECYCLE {
        return Err(InvalidInput(format!(
            "recycle must have at most {LONGEST_RECYCLE} bytes, but has {length}"
        )));
    }
    Ok(fields)
}

impl Rotation {
    /// Returns the fields with which each execution is started, in addition to its node.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = self.recycle.clone();
        if self.trigger.is_of_ec2() {
            fields.insert("urgency".to_owned(), "spot".into());
        }
        if let Some(at) = self.interrupted_at() {
            fields.insert("interrupted_at".to_owned(), at.to_string().into());
        }
        if self.terms.as_ref().is_some_and(|terms| terms.dry_run) {
            fields.insert("dry_run".to_owned(), true.into());
        }
        fields
    }

    fn interrupted_at(&self) -> Option<Timestamp> {
        let warned: Timestamp = self.event.get("time")?.as_str()?.parse().ok()?;
        (self.trigger == Trigger::Spot).then(|| later(warned, SPOT_NOTICE))
    }

    /// Returns the start of a node's execution. An event that is delivered twice gives the same name.
    /// So does an alarm, whether it came by EventBridge or by a topic. `execution` is the cause if there is no event.
    pub fn start(&self, instance: &InstanceId, execution: &str) -> Start {
        let event = || self.event.get("id").and_then(Value::as_str).map(str::to_owned);
        let cause = self.change_of_alarm().or_else(event);
        let cause = cause.as_deref().unwrap_or(execution);
        Start::new(self.trigger.name(), instance, cause)
    }

    /// Returns the alarm and the time of its change, which the EventBridge event and the message to a topic have in common.
    fn change_of_alarm(&self) -> Option<String> {
        let at = |pointer: &str| self.event.pointer(pointer).and_then(Value::as_str);
        let (alarm, moment) = (at("/resources/0")?, at("/detail/state/timestamp")?);
        (self.trigger == Trigger::Alarm).then(|| format!("{alarm} {moment}"))
    }
}

/// The maximum number of instances that a selection may list, so that the answer with their starts stays under 8 KB.
pub const MOST_STARTS: usize = 40;
