//! Defines the Auto Scaling groups and instances that a rotation chooses from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::base::ids::{GroupName, InstanceId};
use crate::base::names::PAUSED_TAG;
use crate::cluster::instance::Instance;
use crate::cluster::node_group::NODE_GROUP_TAG;

/// An instance, with the time and the image of its launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub instance: Instance,
    /// `LaunchTime`, which is also the time of the last start.
    pub launched_at: Timestamp,
    /// `ImageId`.
    pub image: String,
}

/// A launch template and one of its versions, as a group or a member names it. The version may be `$Latest` or `$Default`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template {
    /// `LaunchTemplateId`.
    pub id: String,
    /// `Version`.
    pub version: String,
}

impl Template {
    pub fn newest(&self) -> Self {
        Self {
            id: self.id.clone(),
            version: "$Latest".to_owned(),
        }
    }
}

/// The current facts of a template's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFacts {
    pub version: String,
    /// Image that the version names. None if it names no image, or a parameter that holds one.
    pub image: Option<String>,
}

/// A group of the cluster, with the facts that rotations need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    pub name: GroupName,
    pub tags: BTreeMap<String, String>,
    /// Template that the group launches from. None if it uses a launch configuration.
    pub template: Option<Template>,
    /// Templates that replace it for some instance types (overrides of a mixed-instances policy).
    pub overrides: BTreeMap<String, Template>,
    /// `CapacityRebalance`: the group itself replaces Spot instances at risk.
    pub rebalances_capacity: bool,
    /// The number of members that the group has room for: `MaxSize` less `DesiredCapacity`.
    pub room: u32,
    pub members: Vec<FleetMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    pub instance: InstanceId,
    pub lifecycle_state: String,
    pub instance_type: String,
    pub zone: String,
    /// Template that the member was launched from, with the version's number.
    pub template: Option<Template>,
}

impl Fleet {
    /// Returns the template that the group launches a member of this type from.
    pub fn template_of(&self, instance_type: &str) -> Option<&Template> {
        self.overrides.get(instance_type).or(self.template.as_ref())
    }

    /// Returns how many nodes may be raised at once. None if the nodes are not recycled with replacement `surge`.
    /// `fields` are those of the executions' input, `defaults` the module's. EKS is not asked: a wrong tag only makes the rotation slower.
    pub fn surge_at_once(&self, fields: &Map<String, Value>, defaults: &Map<String, Value>) -> Option<u32> {
        let given = |name: &str| {
            let value = fields.get(name).filter(|value| !value.is_null());
            value.or_else(|| defaults.get(name)).and_then(Value::as_str)
        };
        let is_given = |name: &str, value: &str| given(name) == Some(value);
        let surges = match given("replacement") {
            Some(replacement) => replacement == "surge",
            // Stopping and detaching need Standby, and warnings of EC2 do not wait for room.
            None => {
                let keeps = is_given("dispose", "stop") || is_given("dispose", "detach");
                let is_by_default = self.rebalances_capacity || self.tags.contains_key(NODE_GROUP_TAG);
                is_by_default && !keeps && !is_given("urgency", "spot")
            }
        };
        surges.then(|| self.room.max(1))
    }

    /// Checks whether an operator has paused the group for rotations.
    pub fn is_paused(&self) -> bool {
        self.tags.get(PAUSED_TAG).is_some_and(|value| value == "true")
    }

    /// Returns the lifecycle state of a member. None if the instance is not a member.
    pub(crate) fn state_of(&self, instance: &InstanceId) -> Option<&str> {
        let member = self.members.iter().find(|member| member.instance == *instance)?;
        Some(&member.lifecycle_state)
    }

    /// Returns the members in the lifecycle state `InService`.
    pub(crate) fn in_service(&self) -> impl Iterator<Item = &FleetMember> {
        self.members
            .iter()
            .filter(|member| member.lifecycle_state == "InService")
    }
}

pub fn fleet_of<'a>(instance: &InstanceId, fleets: &'a [Fleet]) -> Option<&'a Fleet> {
    fleets.iter().find(|fleet| fleet.state_of(instance).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::strings;

    #[test]
    fn only_nodes_that_are_replaced_by_surge_are_limited_to_the_room_of_their_group() {
        let managed = Fleet {
            name: "workers".parse().unwrap(),
            tags: strings([(NODE_GROUP_TAG, "blue")]),
            template: None,
            overrides: BTreeMap::new(),
            rebalances_capacity: false,
            room: 2,
            members: Vec::new(),
        };
        let plain = Fleet {
            tags: BTreeMap::new(),
            ..managed.clone()
        };
        let rebalancing = Fleet {
            rebalances_capacity: true,
            ..plain.clone()
        };
        let full = Fleet {
            room: 0,
            ..managed.clone()
        };
        let none = || json!({});
        let replacement = |value: Value| json!({"replacement": value});
        for (name, fleet, fields, defaults, expected) in [
            ("a managed node group", &managed, none(), none(), Some(2)),
            ("Capacity Rebalancing", &rebalancing, none(), none(), Some(2)),
            ("no room yet", &full, none(), none(), Some(1)),
            (
                "the input asks for it",
                &plain,
                replacement(json!("surge")),
                none(),
                Some(2),
            ),
            (
                "the module asks for it",
                &plain,
                none(),
                replacement(json!("surge")),
                Some(2),
            ),
            (
                "null asks for nothing",
                &plain,
                replacement(Value::Null),
                replacement(json!("surge")),
                Some(2),
            ),
            (
                "the input decides",
                &managed,
                replacement(json!("after")),
                replacement(json!("surge")),
                None,
            ),
            ("another group", &plain, none(), none(), None),
            (
                "another replacement",
                &managed,
                replacement(json!("after")),
                none(),
                None,
            ),
            (
                "the module asks for another one",
                &managed,
                none(),
                replacement(json!("after")),
                None,
            ),
            ("no default", &managed, none(), replacement(Value::Null), Some(2)),
            ("stopped", &managed, json!({"dispose": "stop"}), none(), None),
            (
                "stopped by default",
                &managed,
                none(),
                json!({"dispose": "stop"}),
                None,
            ),
            (
                "a warning of EC2",
                &managed,
                json!({"urgency": "spot"}),
                none(),
                None,
            ),
        ] {
            let found = fleet.surge_at_once(fields.as_object().unwrap(), defaults.as_object().unwrap());
            assert_eq!(found, expected, "{name}");
        }
    }
}
