//! The obstacles that pre-flight can find.

use std::fmt;

use crate::base::named::named;
use crate::input::model::Override;

/// The reason why a node is not recycled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub obstacle: Obstacle,
    /// One sentence with what was found and what an operator can do.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obstacle.name(), self.text)
    }
}

named! {
    /// A reason to refuse. Its name is API, because users search for it.
    pub enum Obstacle {
        Redriven = "redriven",
        UnknownInstance = "unknown_instance",
        /// The claim's annotation or tag does not hold a claim.
        UnreadableClaim = "unreadable_claim",
        /// The claim was not written by an execution of this installation and version.
        ForeignClaim = "foreign_claim",
        UnreachableEndpoint = "unreachable_endpoint",
        /// The function lacks a permission in the cluster that the work needs.
        MissingPermission = "missing_permission",
        /// Karpenter replaces its nodes itself.
        Karpenter = "karpenter",
        /// EKS Auto Mode replaces its nodes itself.
        AutoMode = "auto_mode",
        /// A Fargate node belongs to a single pod.
        Fargate = "fargate",
        NoGroup = "no_group",
        NotAMember = "not_a_member",
        WarmPool = "warm_pool",
        /// The instance is in Standby, but recycle-eks did not put it there.
        ForeignStandby = "foreign_standby",
        Terminating = "terminating",
        /// The execution has a hook, but the group is not terminating the instance.
        NotTerminating = "not_terminating",
        /// The instance is not in service for another reason.
        NotInService = "not_in_service",
        AnotherCluster = "another_cluster",
        /// The instance or its group lacks the cluster's tag, without which the functions may change nothing.
        MissingClusterTag = "missing_cluster_tag",
        NoNode = "no_node",
        RemovedByAutoscaler = "removed_by_autoscaler",
        DisruptedByKarpenter = "disrupted_by_karpenter",
        InstanceRefresh = "instance_refresh",
        /// EKS updates or deletes the managed node group.
        ManagedGroupUpdate = "managed_group_update",
        /// Replacement `before` in an EKS managed node group.
        StandbyInManagedGroup = "standby_in_managed_group",
        /// The desired capacity counts weights instead of instances.
        WeightedGroup = "weighted_group",
        /// Replacement `surge` needs one member more, and the group has its maximum.
        NoRoom = "no_room",
        /// Replacement `surge` in a group whose zones are balanced by terminating members.
        ZoneRebalance = "zone_rebalance",
        /// The instance is to be stopped or detached, and an execution with replacement `surge` has begun on it.
        SurgeBegun = "surge_begun",
        /// EC2 cannot stop a one-time Spot instance.
        OneTimeSpot = "one_time_spot",
        /// The execution reports a Spot interruption or a rebalance recommendation, and the instance is no Spot instance.
        NotSpot = "not_spot",
        /// The instance is to be stopped or detached, and its Node is not Ready.
        NotReady = "not_ready",
        ScaleInProtection = "scale_in_protection",
        SuspendedProcess = "suspended_process",
        LastTarget = "last_target",
        /// The replacement was removed together with its place in the group.
        /// Never a reason to refuse, but reported while the node is being recycled.
        ReplacementRemoved = "replacement_removed_by_autoscaler",
        /// The replacement is gone, and the group launches another. Reported like [`Obstacle::ReplacementRemoved`].
        ReplacementGone = "replacement_gone",
    }
}

impl Obstacle {
    /// Checks whether this value of `override` overrides the obstacle.
    pub fn is_overridden_by(self, overrides: Override) -> bool {
        match overrides {
            Override::ScaleInProtection => self == Self::ScaleInProtection,
            Override::SuspendedProcess => self == Self::SuspendedProcess,
            Override::LastTarget => self == Self::LastTarget,
            Override::StandbyInManagedGroup => self == Self::StandbyInManagedGroup,
            Override::RunningPods | Override::OwnerProtected | Override::UnhealthyBudget => false,
        }
    }

    pub fn because(self, text: impl Into<String>) -> Refusal {
        Refusal {
            obstacle: self,
            text: text.into(),
        }
    }
}

/// Lists at most three names and counts the rest, because a group may have dozens of target groups.
pub(crate) fn name_some(names: &[&str]) -> String {
    const MOST: usize = 3;
    let listed = names[..names.len().min(MOST)].join(", ");
    match names.len().saturating_sub(MOST) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
