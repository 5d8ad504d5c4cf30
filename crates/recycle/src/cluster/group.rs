//! An Auto Scaling group and its members.

use crate::base::ids::{GroupName, InstanceId};

/// A member of an Auto Scaling group (DescribeAutoScalingGroups).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub instance: InstanceId,
    /// `LifecycleState`, such as `InService` or `Pending:Wait`.
    pub lifecycle_state: String,
    /// `ProtectedFromScaleIn`.
    pub protected_from_scale_in: bool,
}

impl Member {
    pub fn is_in_service(&self) -> bool {
        self.lifecycle_state == "InService"
    }

    /// Whether the member is in Standby or on the way there.
    pub fn is_in_standby(&self) -> bool {
        ["EnteringStandby", "Standby"].contains(&self.lifecycle_state.as_str())
    }

    /// Whether the member will not be in service again.
    pub fn is_leaving(&self) -> bool {
        is_leaving(&self.lifecycle_state)
    }

    /// Whether SetInstanceProtection accepts the member. A call that names one member in another state is refused as a whole.
    pub fn can_be_protected(&self) -> bool {
        self.is_in_service() || self.is_in_standby()
    }
}

/// Checks whether a member in this lifecycle state will not be in service again.
pub fn is_leaving(lifecycle_state: &str) -> bool {
    lifecycle_state.starts_with("Terminat") || lifecycle_state.starts_with("Detach")
}

/// The maximum number of members in one call of SetInstanceProtection (its API reference).
pub const MOST_PROTECTED: usize = 50;

/// An Auto Scaling group at this moment (DescribeAutoScalingGroups).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: GroupName,
    /// `MinSize`.
    pub min: u32,
    /// `DesiredCapacity`.
    pub desired: u32,
    /// `MaxSize`.
    pub max: u32,
    /// `Instances`.
    pub members: Vec<Member>,
    /// `SuspendedProcesses`, their names.
    pub suspended: Vec<String>,
    /// `NewInstancesProtectedFromScaleIn`: every member begins protected, so its protection is no wish of an operator.
    pub protects_new_members: bool,
    /// The number of `AvailabilityZones`.
    pub zones: usize,
    /// `CapacityRebalance`.
    pub rebalances_capacity: bool,
    /// `InstanceLifecyclePolicy`: it keeps an instance whose termination hook was abandoned.
    pub retains: bool,
}

impl Group {
    pub fn member(&self, instance: &InstanceId) -> Option<&Member> {
        self.members.iter().find(|member| member.instance == *instance)
    }

    /// Returns the lifecycle state of a member. None if the group does not list the instance.
    pub fn state_of(&self, instance: &InstanceId) -> Option<&str> {
        Some(&self.member(instance)?.lifecycle_state)
    }

    pub fn is_in_service(&self, instance: &InstanceId) -> bool {
        self.member(instance).is_some_and(Member::is_in_service)
    }

    pub fn is_protected(&self, instance: &InstanceId) -> bool {
        let member = self.member(instance);
        member.is_some_and(|member| member.protected_from_scale_in)
    }

    pub fn is_suspended(&self, process: &str) -> bool {
        self.suspended.iter().any(|suspended| suspended == process)
    }

    /// Whether the group may terminate a member to balance its zones.
    pub fn balances_zones(&self) -> bool {
        self.zones > 1 && !self.is_suspended("AZRebalance")
    }

    /// Returns the instances whose protection can be removed now, or that have lost it because they leave or have left.
    /// The protection of a member on its way into service is removed later, by a sweep that finds the record.
    pub fn find_unprotectable(&self, protected: &[InstanceId]) -> Vec<InstanceId> {
        let is_ready = |id: &&InstanceId| {
            self.member(id)
                .is_none_or(|member| member.is_leaving() || member.can_be_protected())
        };
        protected.iter().filter(is_ready).cloned().collect()
    }

    /// Returns the unprotected members that a scale-in could choose: members in service, and `returning`, which will be in service.
    pub fn find_exposed(&self, returning: Option<&InstanceId>) -> Vec<InstanceId> {
        self.members
            .iter()
            .filter(|member| {
                let is_returning = returning == Some(&member.instance) && member.can_be_protected();
                (member.is_in_service() || is_returning) && !member.protected_from_scale_in
            })
            .map(|member| member.instance.clone())
            .collect()
    }

    /// Describes a group that keeps the place which an execution has added.
    pub fn describe_larger(&self) -> String {
        format!(
            "group {} is one larger than before, desired capacity {}; if it does not need the new member, drain that one and terminate it \
             with decrement",
            self.name, self.desired
        )
    }

    /// Counts the members in service.
    pub fn in_service(&self) -> u32 {
        self.count(Member::is_in_service)
    }

    /// Counts the members on their way into service.
    pub fn pending(&self) -> u32 {
        self.count(|member| member.lifecycle_state.starts_with("Pending"))
    }

    fn count(&self, counts: impl Fn(&Member) -> bool) -> u32 {
        let counted = self.members.iter().filter(|member| counts(member));
        u32::try_from(counted.count()).unwrap_or(u32::MAX)
    }
}
