//! Reads alarms, as EventBridge and as an SNS topic deliver them, and chooses the node that an alarm points to.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::base::ids::{ClusterName, GroupName, InstanceId, InvalidId};
use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
use crate::base::text::cut_text;
use crate::cluster::node::NodeFacts;
use crate::input::model::InvalidInput;
use crate::records::lease::Lease;
use crate::rotation::attempts::is_in_service;
use crate::rotation::fleet::{Fleet, Machine, fleet_of};
use crate::rotation::request::{AlarmTerms, Pick, Trigger};
use crate::rotation::selection::{Choice, LONGEST_REASON, choose_listed};

/// The node that an alarm points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarmed {
    Instance(InstanceId),
    OldestOf(GroupName),
}

pub fn read_alarm(event: &Value, terms: &AlarmTerms) -> Result<Alarmed, InvalidInput> {
    let metrics = list_metrics(event);
    if let Some(id) = read_dimension(&metrics, "InstanceId")? {
        return Ok(Alarmed::Instance(id));
    }
    let group: Option<GroupName> = match &terms.group {
        Some(group) => Some(group.clone()),
        None => read_dimension(&metrics, "AutoScalingGroupName")?,
    };
    match (group, terms.pick) {
        (Some(group), Some(Pick::Oldest)) => Ok(Alarmed::OldestOf(group)),
        (Some(group), None) => Err(InvalidInput(format!(
            "the alarm names group {group} and no instance: write pick = \"oldest\" to recycle the group's oldest node"
        ))),
        (None, Some(_) | None) => Err(InvalidInput(format!(
            "the alarm names neither one instance nor one group (it has {}): write group and pick = \"oldest\"",
            describe_metrics(&metrics)
        ))),
    }
}

/// Reads a dimension of the alarm's only metric. None if the alarm has several metrics or none, or the metric lacks the dimension.
/// Fails if the value is not a valid id.
fn read_dimension<Id: FromStr<Err = InvalidId>>(
    metrics: &[BTreeMap<String, String>],
    name: &str,
) -> Result<Option<Id>, InvalidInput> {
    let [dimensions] = metrics else { return Ok(None) };
    let id = dimensions.get(name).map(|text| text.parse()).transpose();
    id.map_err(|error| InvalidInput(format!("the alarm's dimension {name} {error}")))
}

/// Lists the dimensions of each metric of the alarm (CloudWatch user guide, "Alarm events and EventBridge").
fn list_metrics(event: &Value) -> Vec<BTreeMap<String, String>> {
    let metrics = event["detail"]["configuration"]["metrics"].as_array();
    let read_pair = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    metrics
        .into_iter()
        .flatten()
        .filter_map(|metric| metric.pointer("/metricStat/metric"))
        .map(|metric| metric["dimensions"].as_object().into_iter().flatten())
        .map(|pairs| pairs.filter_map(read_pair).collect())
        .collect()
}

fn describe_metrics(metrics: &[BTreeMap<String, String>]) -> String {
    let describe = |dimensions: &BTreeMap<String, String>| {
        let pairs = dimensions.iter().map(|(name, value)| format!("{name}={value}"));
        match dimensions.len() {
            0 => "no dimension".to_owned(),
            1.. => pairs.collect::<Vec<_>>().join(", "),
        }
    };
    let all: Vec<String> = metrics.iter().map(describe).collect();
    let mut text = match all.as_slice() {
        [] => "no metric of its own".to_owned(),
        [only] => only.clone(),
        several => format!("{} metrics: {}", several.len(), several.join(" / ")),
    };
    cut_text(&mut text, LONGEST_REASON / 2);
    text
}

/// The fields that are read from CloudWatch's message to a topic (CloudWatch user guide, "Notifying users on alarm changes").
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AlarmMessage {
    pub(crate) alarm_name: String,
    pub(crate) alarm_arn: String,
    #[serde(rename = "AWSAccountId")]
    account: String,
    pub(crate) old_state_value: String,
    pub(crate) new_state_value: String,
    pub(crate) state_change_time: String,
    /// Null for a composite alarm.
    #[serde(default)]
    trigger: Value,
}

impl AlarmMessage {
    /// Checks that the alarm is of the topic's account and region. SNS names the topic, and the publisher writes everything else.
    /// CloudWatch notifies only topics of the alarm's region (CloudWatch user guide, "Setting up Amazon SNS notifications").
    pub(crate) fn is_of_topic(&self, topic: &str) -> bool {
        let parts: Vec<&str> = topic.split(':').collect();
        let [_, partition, _, region, account, _] = parts.as_slice() else {
            return false;
        };
        let arn = format!(
            "arn:{partition}:cloudwatch:{region}:{account}:alarm:{}",
            self.alarm_name
        );
        (&self.alarm_arn, self.account.as_str()) == (&arn, *account)
    }

    /// Converts the message into EventBridge's event about the same change, with the fields that `select-nodes` reads.
    pub(crate) fn as_event(&self) -> Value {
        let mut detail = json!({
            "alarmName": self.alarm_name,
            "previousState": {"value": self.old_state_value},
            "state": {"value": self.new_state_value, "timestamp": self.state_change_time},
        });
        if !self.trigger.is_null() {
            detail["configuration"] = json!({"metrics": read_metrics(&self.trigger)});
        }
        json!({
            "source": "aws.cloudwatch",
            "detail-type": "CloudWatch Alarm State Change",
            "resources": [self.alarm_arn],
            "detail": detail,
        })
    }
}

/// Reads the alarm's metrics: those of its metric math, or its only one.
fn read_metrics(trigger: &Value) -> Vec<Value> {
    let metric =
        |dimensions: &Value| json!({"metricStat": {"metric": {"dimensions": read_dimensions(dimensions)}}});
    let Some(queries) = trigger["Metrics"].as_array() else {
        return vec![metric(&trigger["Dimensions"])];
    };
    let stats = queries
        .iter()
        .filter_map(|query| query.pointer("/MetricStat/Metric"));
    stats.map(|found| metric(&found["Dimensions"])).collect()
}

/// Reads dimensions. A topic's message has a list of names and values, and EventBridge's event an object.
fn read_dimensions(dimensions: &Value) -> BTreeMap<&str, &str> {
    let pairs = dimensions.as_array().into_iter().flatten();
    pairs
        .filter_map(|pair| Some((pair["name"].as_str()?, pair["value"].as_str()?)))
        .collect()
}

/// The facts by which the node of an alarm is chosen.
#[derive(Debug, Clone, Copy)]
pub struct AlarmFacts<'a> {
    pub fleets: &'a [Fleet],
    /// The members of the alarm's group.
    pub machines: &'a [Machine],
    pub nodes: &'a [NodeFacts],
    pub leases: &'a [Lease],
}

/// Chooses the node that an alarm points to, unless a node of its group was claimed or replaced within the cooldown.
pub fn choose_alarmed(
    alarmed: &Alarmed,
    terms: &AlarmTerms,
    facts: &AlarmFacts<'_>,
    cluster: &ClusterName,
    now: Timestamp,
) -> Choice {
    let AlarmFacts {
        fleets,
        machines,
        nodes,
        leases,
    } = *facts;
    let (fleet, node) = match alarmed {
        Alarmed::Instance(id) => {
            let wanted = std::slice::from_ref(id);
            let listed = choose_listed(Trigger::Alarm, wanted, machines, fleets, cluster);
            let Some(fleet) = fleet_of(id, fleets).filter(|_| !listed.chosen.is_empty()) else {
                return listed;
            };
            if let Some(group) = terms.group.as_ref().filter(|group| **group != fleet.name) {
                return Choice::nothing(format!("{id} is in group {}, not in {group}", fleet.name));
            }
            (fleet, Some(id.clone()))
        }
        Alarmed::OldestOf(group) => match fleets.iter().find(|fleet| fleet.name == *group) {
            Some(fleet) => (fleet, find_oldest(fleet, machines)),
            None => return Choice::nothing(format!("{group} is not a group of cluster {cluster}")),
        },
    };
    let cooldown = SignedDuration::from_mins(i64::from(terms.cooldown_minutes));
    let last = find_last_work(fleet, machines, nodes, leases);
    if let Some(last) = last.filter(|last| now.duration_since(*last) < cooldown) {
        return Choice::nothing(format!(
            "group {} is cooling down: its last node was claimed or replaced at {last}, less than {} minutes ago",
            fleet.name, terms.cooldown_minutes
        ));
    }
    match node {
        Some(id) => Choice {
            chosen: vec![id],
            left_out: Vec::new(),
        },
        None => Choice::nothing(format!("group {} has no member in service", fleet.name)),
    }
}

/// Returns the time of the last claim of a node of the group, or of the last launch of a replacement in it.
fn find_last_work(
    fleet: &Fleet,
    machines: &[Machine],
    nodes: &[NodeFacts],
    leases: &[Lease],
) -> Option<Timestamp> {
    let claimed = leases
        .iter()
        .filter_map(|lease| lease.claim()?.known())
        .filter(|claim| claim.group == fleet.name)
        .map(|claim| claim.claimed_at);
    let replacements: BTreeSet<&InstanceId> = nodes
        .iter()
        .filter(|node| node.annotations.contains_key(REPLACEMENT_FOR_ANNOTATION))
        .filter_map(|node| node.instance.as_ref())
        .collect();
    let launched = machines
        .iter()
        .filter(|machine| replacements.contains(&machine.instance.id))
        .filter(|machine| fleet.state_of(&machine.instance.id).is_some())
        .map(|machine| machine.launched_at);
    claimed.chain(launched).max()
}

fn find_oldest(fleet: &Fleet, machines: &[Machine]) -> Option<InstanceId> {
    let in_service = machines
        .iter()
        .filter(|machine| is_in_service(&machine.instance.id, fleet));
    let oldest = in_service.min_by_key(|machine| (machine.launched_at, &machine.instance.id))?;
    Some(oldest.instance.id.clone())
}
