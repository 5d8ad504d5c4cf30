//! Which nodes `rotate-nodes` recycles: its input, and the choice among what AWS and Kubernetes say.
//!
//! Whether a chosen node can be recycled, it does not ask: that is pre-flight's question, in the execution of that node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::claim::StoredClaim;
use crate::cluster_tag::has_cluster_tag;
use crate::contract::Start;
use crate::drain::later;
use crate::ids::{ClusterName, GroupName, InstanceId, short_hash};
use crate::input::{FIELDS, InvalidInput, name_given};
use crate::names::{PAUSED_TAG, REPLACEMENT_FOR_ANNOTATION};
use crate::node::{Instance, NodeFacts};
use crate::outdated::Outdated;
use crate::pods::cut_text;
use crate::rotation::{Terms, read_terms};
use crate::strict::{Unreadable, read_value};

/// How many nodes a trigger starts at most, so that its answer stays under 8 KB.
pub const MOST_STARTS: usize = 40;
/// Bytes of the fields that a rotation lays over the module's defaults, for the same reason.
const LONGEST_RECYCLE: usize = 2_000;
/// Characters of a reason, for the same reason.
const LONGEST_REASON: usize = 1_000;
/// Minutes: a group-wide metric needs a while to show what a new node does for it.
const COOLDOWN_MINUTES: u32 = 60;
/// Seconds between EC2's warning and the end of a Spot instance (EC2 user guide, "Spot Instance interruption notices").
const SPOT_NOTICE: u32 = 120;
/// What a trigger's fields may not say: which node, and what the trigger itself says.
const NOT_TO_BE_SET: [&str; 5] = ["instance_id", "cluster_name", "urgency", "hook", "interrupted_at"];

/// What began a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A CloudWatch alarm.
    Alarm,
    /// An EventBridge event that names an instance.
    Event,
    /// EC2's interruption warning.
    Spot,
    /// EC2's rebalance recommendation.
    Rebalance,
    /// A schedule.
    Schedule,
    /// `terraform apply`.
    Apply,
    /// A person.
    Manual,
}

impl Trigger {
    /// The word for it, with which the names of its executions begin.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Event => "event",
            Self::Spot => "spot",
            Self::Rebalance => "rebalance",
            Self::Schedule => "schedule",
            Self::Apply => "apply",
            Self::Manual => "manual",
        }
    }

    /// Whether it goes through groups on terms, node by node. What else there is, is urgent.
    #[must_use]
    pub fn begins_rotation(self) -> bool {
        match self {
            Self::Schedule | Self::Apply | Self::Manual => true,
            Self::Alarm | Self::Event | Self::Spot | Self::Rebalance => false,
        }
    }

    /// Whether EC2 itself says so, of whichever instance.
    fn is_of_ec2(self) -> bool {
        match self {
            Self::Spot | Self::Rebalance => true,
            Self::Alarm | Self::Event | Self::Schedule | Self::Apply | Self::Manual => false,
        }
    }
}

/// The input of `rotate-nodes`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// `trigger`.
    pub trigger: Trigger,
    /// `selection`.
    pub selection: Selection,
    /// `recycle`: fields of `recycle-node`'s input that are laid over the module's defaults.
    pub recycle: Map<String, Value>,
    /// On which terms groups are gone through; none: each node is started at once, because it is urgent.
    pub terms: Option<Terms>,
    /// `event`: the AWS event that began it, or null.
    pub event: Value,
}

/// `selection`: exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// These instances; an ARN that ends in an instance's id is as good.
    InstanceIds(#[serde(deserialize_with = "read_instances")] Vec<InstanceId>),
    /// What the alarm in `event` is about.
    Alarm(AlarmTerms),
    /// Members that are not as their group would launch them now, or too old.
    Outdated(Outdated),
}

impl Selection {
    /// Whether the groups' templates have to be read to tell what is meant.
    #[must_use]
    pub fn asks_templates(&self) -> bool {
        match self {
            Self::Outdated(outdated) => outdated.asks_templates(),
            Self::InstanceIds(_) | Self::Alarm(_) => false,
        }
    }

    /// Whether the Nodes have to be.
    #[must_use]
    pub fn asks_nodes(&self) -> bool {
        match self {
            Self::Outdated(outdated) => outdated.asks_nodes(),
            Self::InstanceIds(_) | Self::Alarm(_) => false,
        }
    }
}

/// Which node an alarm means.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmTerms {
    /// The group, if the alarm does not say so.
    #[serde(default)]
    pub group: Option<GroupName>,
    /// Which node of a group.
    #[serde(default)]
    pub pick: Option<Pick>,
    /// For how long after the last claim or replacement in a group an alarm recycles none of it.
    #[serde(default = "default_cooldown")]
    pub cooldown_minutes: u32,
}

/// Which node of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The one that runs longest.
    Oldest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    trigger: Trigger,
    selection: Value,
    #[serde(default)]
    recycle: Option<Map<String, Value>>,
    #[serde(default)]
    event: Value,
    #[serde(default)]
    dry_run: Option<bool>,
}

fn default_cooldown() -> u32 {
    COOLDOWN_MINUTES
}

fn read_instances<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<InstanceId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| text.rsplit('/').next().unwrap_or_default().parse())
        .collect::<Result<_, _>>()
        .map_err(serde::de::Error::custom)
}

/// Parses the input of `rotate-nodes`.
pub fn parse_rotation(input: &Value) -> Result<Rotation, InvalidInput> {
    let refuse = |what: &str, error: &Unreadable| InvalidInput(format!("{what}: {error}"));
    let (terms, rest) = split_terms(input);
    let given: Given = read_value(&rest).map_err(|error| refuse("the input of a rotation", &error))?;
    let selection: Selection = read_value(&given.selection).map_err(|error| refuse("selection", &error))?;
    let trigger = given.trigger;
    check_selection(trigger, &selection)?;
    if !trigger.begins_rotation()
        && let Some(name) = terms
            .keys()
            .next()
            .map(String::as_str)
            .or(given.dry_run.map(|_| "dry_run"))
    {
        return Err(InvalidInput(format!(
            "{name} makes no sense with trigger {}: its nodes are started at once",
            trigger.name()
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

/// The terms, and the fields that every trigger has. `null` is Terraform's way to say that a field is not given.
fn split_terms(input: &Value) -> (Map<String, Value>, Value) {
    let Value::Object(fields) = input else {
        return (Map::new(), input.clone());
    };
    let given = fields.clone().into_iter();
    let (terms, rest): (Map<_, _>, Map<_, _>) =
        given.partition(|(name, _)| crate::rotation::FIELDS.contains(&name.as_str()));
    (
        terms.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        rest.into(),
    )
}

fn check_selection(trigger: Trigger, selection: &Selection) -> Result<(), InvalidInput> {
    let refuse = |text: &str| Err(InvalidInput(text.to_owned()));
    match selection {
        Selection::InstanceIds(ids) if ids.is_empty() => {
            refuse("selection: instance_ids is empty; was there an instance id where it was looked for?")
        }
        Selection::InstanceIds(ids) if ids.len() > MOST_STARTS => {
            refuse("selection: instance_ids has more than 40 instances")
        }
        Selection::Outdated(_) if !trigger.begins_rotation() => {
            refuse("selection: outdated is for the triggers manual, schedule and apply")
        }
        Selection::Alarm(_) if trigger != Trigger::Alarm => {
            refuse("selection: alarm is for the trigger alarm")
        }
        Selection::Outdated(outdated) => outdated.check(),
        Selection::InstanceIds(_) | Selection::Alarm(_) => Ok(()),
    }
}

/// `null` is Terraform's way to say that a field is not given. What the values may be, `claim-node` checks.
fn check_recycle(given: Map<String, Value>) -> Result<Map<String, Value>, InvalidInput> {
    let fields: Map<String, Value> = given.into_iter().filter(|(_, value)| !value.is_null()).collect();
    for name in fields.keys() {
        if NOT_TO_BE_SET.contains(&name.as_str()) {
            return Err(InvalidInput(format!("recycle: {name} is set by the trigger")));
        }
        if !FIELDS.iter().any(|field| field.name == name) {
            return Err(InvalidInput(format!(
                "recycle: {} is no field of the input of recycle-node",
                name_given(name)
            )));
        }
    }
    let length = Value::Object(fields.clone()).to_string().len();
    if length > LONGEST_RECYCLE {
        return Err(InvalidInput(format!(
            "recycle has {length} bytes, more than {LONGEST_RECYCLE}"
        )));
    }
    Ok(fields)
}

impl Rotation {
    /// The fields that each execution is started with, beside its node.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = self.recycle.clone();
        match self.trigger {
            Trigger::Spot => {
                fields.insert("urgency".to_owned(), "spot".into());
                if let Some(at) = self.interrupted_at() {
                    fields.insert("interrupted_at".to_owned(), at.to_string().into());
                }
            }
            Trigger::Rebalance => {
                fields.insert("urgency".to_owned(), "spot".into());
            }
            Trigger::Alarm | Trigger::Event | Trigger::Schedule | Trigger::Apply | Trigger::Manual => {}
        }
        if self.terms.as_ref().is_some_and(|terms| terms.dry_run) {
            fields.insert("dry_run".to_owned(), true.into());
        }
        fields
    }

    fn interrupted_at(&self) -> Option<Timestamp> {
        let warned: Timestamp = self.event.get("time")?.as_str()?.parse().ok()?;
        Some(later(warned, SPOT_NOTICE))
    }

    /// The execution of a node: an event that is delivered twice names the same one, and so does an alarm, whichever way it came.
    /// `execution` stands for what has no event.
    #[must_use]
    pub fn start(&self, instance: &InstanceId, execution: &str) -> Start {
        let event = || self.event.get("id").and_then(Value::as_str).map(str::to_owned);
        let cause = self.change_of_alarm().or_else(event);
        Start::new(
            self.trigger.name(),
            instance,
            cause.as_deref().unwrap_or(execution),
        )
    }

    /// The alarm and when it changed: what the event and the message to a topic have in common.
    fn change_of_alarm(&self) -> Option<String> {
        let at = |pointer: &str| self.event.pointer(pointer).and_then(Value::as_str);
        let (alarm, moment) = (at("/resources/0")?, at("/detail/state/timestamp")?);
        (self.trigger == Trigger::Alarm).then(|| format!("{alarm} {moment}"))
    }
}

impl Start {
    /// `cause` makes it another execution than those that began for other causes.
    #[must_use]
    pub fn new(trigger: &str, instance: &InstanceId, cause: &str) -> Self {
        Self {
            name: format!("{trigger}-{instance}-{}", short_hash(cause)),
            instance_id: instance.clone(),
            hook: None,
        }
    }
}

/// An instance, and what it was launched as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The instance.
    pub instance: Instance,
    /// `LaunchTime`: also that of its last start.
    pub launched_at: Timestamp,
    /// `ImageId`.
    pub image: String,
}

/// A launch template and one of its versions, as a group or a member names it: the version may be `$Latest` or `$Default`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template {
    /// `LaunchTemplateId`.
    pub id: String,
    /// `Version`.
    pub version: String,
}

impl Template {
    /// Its newest version.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self {
            id: self.id.clone(),
            version: "$Latest".to_owned(),
        }
    }
}

/// What a template's version is at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFacts {
    /// Its number.
    pub version: String,
    /// The image that it names; none if it names none, or a parameter that holds one.
    pub image: Option<String>,
}

/// A group of the cluster, as far as rotations look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Its name.
    pub name: GroupName,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// What it launches from; none: a launch configuration.
    pub template: Option<Template>,
    /// What it launches from instead, by instance type (overrides of a mixed-instances policy).
    pub overrides: BTreeMap<String, Template>,
    /// Its members.
    pub members: Vec<FleetMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    /// Its instance.
    pub instance: InstanceId,
    /// `LifecycleState`.
    pub lifecycle_state: String,
    /// `InstanceType`.
    pub instance_type: String,
    /// `AvailabilityZone`.
    pub zone: String,
    /// What it was launched from, with the version's number.
    pub template: Option<Template>,
}

impl Fleet {
    /// What it launches a member of this type from.
    #[must_use]
    pub fn template_of(&self, instance_type: &str) -> Option<&Template> {
        self.overrides.get(instance_type).or(self.template.as_ref())
    }

    /// Somebody has paused it for rotations.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.tags.get(PAUSED_TAG).is_some_and(|value| value == "true")
    }

    /// The members that take their part.
    pub(crate) fn in_service(&self) -> impl Iterator<Item = &FleetMember> {
        self.members
            .iter()
            .filter(|member| member.lifecycle_state == "InService")
    }
}

/// Those that were chosen, and a word on each that was looked at and was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The chosen, in the order in which they are started.
    pub chosen: Vec<InstanceId>,
    /// Why others were not.
    pub left_out: Vec<String>,
}

impl Choice {
    fn only(instance: InstanceId) -> Self {
        Self {
            chosen: vec![instance],
            left_out: Vec::new(),
        }
    }

    fn nothing(why: String) -> Self {
        Self {
            chosen: Vec::new(),
            left_out: vec![why],
        }
    }

    /// In one sentence.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = match self.chosen.len() {
            0 => "no node is recycled".to_owned(),
            1 => "1 node is recycled".to_owned(),
            count => format!("{count} nodes are recycled"),
        };
        for why in &self.left_out {
            text = format!("{text}; {why}");
        }
        cut_text(&mut text, LONGEST_REASON);
        text
    }
}

/// Those of the instances that are this cluster's and still there. Events name instances of the whole region.
#[must_use]
pub fn choose_listed(
    trigger: Trigger,
    wanted: &[InstanceId],
    machines: &[Machine],
    fleets: &[Fleet],
    cluster: &ClusterName,
) -> Choice {
    let mut choice = Choice::default();
    for id in wanted.iter().collect::<BTreeSet<_>>() {
        let machine = machines.iter().find(|machine| machine.instance.id == *id);
        match machine {
            None => choice.left_out.push(format!("EC2 does not know {id}")),
            Some(machine) if machine.instance.is_gone() => {
                choice
                    .left_out
                    .push(format!("{id} is {}", machine.instance.state));
            }
            Some(machine) if !is_of(cluster, &machine.instance, fleets) => choice
                .left_out
                .push(format!("{id} is no instance of cluster {cluster}")),
            // EC2 warns of every Spot instance of the region, of Karpenter's, too. A person is told by pre-flight what to do instead.
            Some(_) if trigger.is_of_ec2() && fleet_of(id, fleets).is_none() => choice
                .left_out
                .push(format!("{id} is in no Auto Scaling group of cluster {cluster}")),
            Some(_) => choice.chosen.push(id.clone()),
        }
    }
    choice
}

/// By its own tag, or as a member of a group with that tag.
fn is_of(cluster: &ClusterName, instance: &Instance, fleets: &[Fleet]) -> bool {
    has_cluster_tag(&instance.tags, cluster) || fleet_of(&instance.id, fleets).is_some()
}

/// The group that the instance is a member of.
#[must_use]
pub fn fleet_of<'a>(instance: &InstanceId, fleets: &'a [Fleet]) -> Option<&'a Fleet> {
    fleets
        .iter()
        .find(|fleet| fleet.members.iter().any(|member| member.instance == *instance))
}

/// What an alarm is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarmed {
    /// One instance.
    Instance(InstanceId),
    /// The oldest of a group.
    OldestOf(GroupName),
}

/// Reads it from the alarm's event.
pub fn read_alarm(event: &Value, terms: &AlarmTerms) -> Result<Alarmed, InvalidInput> {
    let metrics = list_metrics(event);
    if let [dimensions] = metrics.as_slice()
        && let Some(instance) = dimensions.get("InstanceId")
    {
        let id = instance.parse();
        return id
            .map(Alarmed::Instance)
            .map_err(|error| InvalidInput(format!("the alarm's dimension InstanceId {error}")));
    }
    let named = match metrics.as_slice() {
        [dimensions] => dimensions.get("AutoScalingGroupName"),
        _ => None,
    };
    let group: Option<GroupName> =
        match (&terms.group, named) {
            (Some(group), _) => Some(group.clone()),
            (None, Some(name)) => Some(name.parse().map_err(|error| {
                InvalidInput(format!("the alarm's dimension AutoScalingGroupName {error}"))
            })?),
            (None, None) => None,
        };
    match (group, terms.pick) {
        (Some(group), Some(Pick::Oldest)) => Ok(Alarmed::OldestOf(group)),
        (Some(group), None) => Err(InvalidInput(format!(
            "the alarm names no instance but group {group}: write pick = \"oldest\" if its oldest node is meant"
        ))),
        (None, Some(_) | None) => Err(InvalidInput(format!(
            "the alarm names neither one instance nor one group (it has {}): write group and pick = \"oldest\"",
            describe_metrics(&metrics)
        ))),
    }
}

/// The dimensions of each metric of the alarm (CloudWatch user guide, "Alarm events and EventBridge").
fn list_metrics(event: &Value) -> Vec<BTreeMap<String, String>> {
    let metrics = event
        .pointer("/detail/configuration/metrics")
        .and_then(Value::as_array);
    metrics
        .into_iter()
        .flatten()
        .filter_map(|metric| metric.pointer("/metricStat/metric"))
        .map(|metric| read_pairs(&metric["dimensions"]))
        .collect()
}

fn read_pairs(dimensions: &Value) -> BTreeMap<String, String> {
    let pairs = dimensions.as_object().into_iter().flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn describe_metrics(metrics: &[BTreeMap<String, String>]) -> String {
    let one = |dimensions: &BTreeMap<String, String>| {
        let names: Vec<String> = dimensions
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if names.is_empty() {
            "no dimension".to_owned()
        } else {
            names.join(", ")
        }
    };
    let mut text = match metrics {
        [] => "no metric of its own".to_owned(),
        [dimensions] => one(dimensions),
        several => {
            let all: Vec<String> = several.iter().map(one).collect();
            format!("{} metrics: {}", several.len(), all.join(" / "))
        }
    };
    cut_text(&mut text, LONGEST_REASON / 2);
    text
}

/// The node that an alarm means, unless its group had its turn a moment ago. `machines` are the group's members, and whoever was
/// claimed in it.
pub fn choose_alarmed(
    alarmed: &Alarmed,
    terms: &AlarmTerms,
    fleets: &[Fleet],
    machines: &[Machine],
    nodes: &[NodeFacts],
    cluster: &ClusterName,
    now: Timestamp,
) -> Choice {
    let fleet = match alarmed {
        Alarmed::Instance(id) => {
            let listed = choose_listed(
                Trigger::Alarm,
                std::slice::from_ref(id),
                machines,
                fleets,
                cluster,
            );
            if listed.chosen.is_empty() {
                return listed;
            }
            let Some(fleet) = fleet_of(id, fleets) else {
                return listed;
            };
            if let Some(group) = terms.group.as_ref().filter(|group| **group != fleet.name) {
                return Choice::nothing(format!("{id} is in group {}, not in {group}", fleet.name));
            }
            fleet
        }
        Alarmed::OldestOf(group) => match fleets.iter().find(|fleet| fleet.name == *group) {
            Some(fleet) => fleet,
            None => return Choice::nothing(format!("{group} is no group of cluster {cluster}")),
        },
    };
    let cooldown = SignedDuration::from_mins(i64::from(terms.cooldown_minutes));
    if let Some(last) =
        find_last_work(fleet, machines, nodes).filter(|last| now.duration_since(*last) < cooldown)
    {
        return Choice::nothing(format!(
            "group {} cools down: its last node was claimed or replaced at {last}, less than {} minutes ago",
            fleet.name, terms.cooldown_minutes
        ));
    }
    match alarmed {
        Alarmed::Instance(id) => Choice::only(id.clone()),
        Alarmed::OldestOf(group) => find_oldest(fleet, machines).map_or_else(
            || Choice::nothing(format!("group {group} has no member in service")),
            Choice::only,
        ),
    }
}

/// When a node of the group was claimed, or a replacement launched, last.
fn find_last_work(fleet: &Fleet, machines: &[Machine], nodes: &[NodeFacts]) -> Option<Timestamp> {
    let on_nodes = nodes.iter().filter_map(NodeFacts::claim);
    let in_tags = machines.iter().filter_map(|machine| machine.instance.claim());
    let claimed = on_nodes.chain(in_tags).filter_map(|claim| match claim {
        StoredClaim::Known(claim) if claim.group == fleet.name => Some(claim.claimed_at),
        StoredClaim::Known(_) | StoredClaim::Newer(_) | StoredClaim::Unreadable(_) => None,
    });
    let replacements: BTreeSet<&InstanceId> = nodes
        .iter()
        .filter(|node| node.annotations.contains_key(REPLACEMENT_FOR_ANNOTATION))
        .filter_map(|node| node.instance.as_ref())
        .collect();
    let launched = machines
        .iter()
        .filter(|machine| replacements.contains(&machine.instance.id))
        .filter(|machine| {
            let mut members = fleet.members.iter();
            members.any(|member| member.instance == machine.instance.id)
        })
        .map(|machine| machine.launched_at);
    claimed.chain(launched).max()
}

fn find_oldest(fleet: &Fleet, machines: &[Machine]) -> Option<InstanceId> {
    let in_service: BTreeSet<&InstanceId> = fleet.in_service().map(|member| &member.instance).collect();
    machines
        .iter()
        .filter(|machine| in_service.contains(&machine.instance.id))
        .min_by_key(|machine| (machine.launched_at, machine.instance.id.clone()))
        .map(|machine| machine.instance.id.clone())
}

#[cfg(test)]
mod tests;
