//! Defines the Auto Scaling groups and instances that a rotation chooses from.

use std::collections::BTreeMap;

use jiff::Timestamp;

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
    /// `replacement` is that of the input. EKS is not asked: a wrong tag only makes the rotation slower.
    pub fn surge_at_once(&self, replacement: Option<&str>) -> Option<u32> {
        let by_default = self.rebalances_capacity || self.tags.contains_key(NODE_GROUP_TAG);
        let surges = replacement.map_or(by_default, |given| given == "surge");
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
