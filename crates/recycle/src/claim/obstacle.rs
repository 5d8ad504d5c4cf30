//! The obstacles that pre-flight can find, each with what an operator can do about it.

use std::fmt;

use crate::input::model::Force;

/// Why a node is not recycled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which reason it is.
    pub obstacle: Obstacle,
    /// What was found and what a person may do, one sentence.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obstacle.name(), self.text)
    }
}

macro_rules! obstacles {
    ($($(#[$doc:meta])* $obstacle:ident = $name:literal,)+) => {
        /// A reason to refuse. Its name is API: people search for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Obstacle {
            $($(#[$doc])* $obstacle,)+
        }

        impl Obstacle {
            /// All of them, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$obstacle),+];

            /// The name that does not change.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$obstacle => $name,)+
                }
            }
        }
    };
}

obstacles!(
    /// The execution was redriven.
    Redriven = "redriven",
    /// EC2 does not know the instance.
    UnknownInstance = "unknown_instance",
    /// The annotation or tag of the claim is not a claim.
    UnreadableClaim = "unreadable_claim",
    /// No execution of this installation and version has written the claim.
    ForeignClaim = "foreign_claim",
    /// The cluster's endpoint never answered.
    UnreachableEndpoint = "unreachable_endpoint",
    /// We may not do in the cluster what has to be done.
    MissingPermission = "missing_permission",
    /// Karpenter replaces its nodes itself.
    Karpenter = "karpenter",
    /// EKS Auto Mode replaces its nodes itself.
    AutoMode = "auto_mode",
    /// A node of Fargate is a pod's.
    Fargate = "fargate",
    /// The instance is in no group.
    NoGroup = "no_group",
    /// It is not in its group any more.
    NotAMember = "not_a_member",
    /// It is in its group's warm pool.
    WarmPool = "warm_pool",
    /// It is in Standby, but not by us.
    ForeignStandby = "foreign_standby",
    /// Its group is terminating it.
    Terminating = "terminating",
    /// Its group is not terminating it, as a hook's execution has to find it.
    NotTerminating = "not_terminating",
    /// It is not in service for another reason.
    NotInService = "not_in_service",
    /// It is another cluster's.
    AnotherCluster = "another_cluster",
    /// The instance or its group lacks the cluster's tag, without which the functions may change nothing.
    MissingClusterTag = "missing_cluster_tag",
    /// It has no Node in the cluster.
    NoNode = "no_node",
    /// Cluster Autoscaler is about to remove the node.
    RemovedByAutoscaler = "removed_by_autoscaler",
    /// Karpenter is about to remove the node.
    DisruptedByKarpenter = "disrupted_by_karpenter",
    /// An instance refresh of the group runs.
    InstanceRefresh = "instance_refresh",
    /// EKS updates or deletes the managed node group.
    ManagedGroupUpdate = "managed_group_update",
    /// The group counts weights and not instances.
    WeightedGroup = "weighted_group",
    /// EC2 cannot stop a one-time Spot instance.
    OneTimeSpot = "one_time_spot",
    /// It is to be kept, and its Node is not Ready.
    NotReady = "not_ready",
    /// It is protected from scale-in.
    ScaleInProtection = "scale_in_protection",
    /// A process of the group is suspended.
    SuspendedProcess = "suspended_process",
    /// It is the last target of a load balancer.
    LastTarget = "last_target",
    /// The replacement went with its place. Never a reason to refuse: it is told while a drain is under way.
    ReplacementRemoved = "replacement_removed_by_autoscaler",
    /// The replacement has gone, and the group launches another. Told like the one before.
    ReplacementGone = "replacement_gone",
);

impl Obstacle {
    /// By which value of `force` it is overridden, if by any.
    #[must_use]
    pub fn forced_by(self) -> Option<Force> {
        match self {
            Self::ScaleInProtection => Some(Force::ScaleInProtection),
            Self::SuspendedProcess => Some(Force::SuspendedProcess),
            Self::LastTarget => Some(Force::LastTarget),
            Self::Redriven
            | Self::UnknownInstance
            | Self::UnreadableClaim
            | Self::ForeignClaim
            | Self::UnreachableEndpoint
            | Self::MissingPermission
            | Self::Karpenter
            | Self::AutoMode
            | Self::Fargate
            | Self::NoGroup
            | Self::NotAMember
            | Self::WarmPool
            | Self::ForeignStandby
            | Self::Terminating
            | Self::NotTerminating
            | Self::NotInService
            | Self::AnotherCluster
            | Self::MissingClusterTag
            | Self::NoNode
            | Self::RemovedByAutoscaler
            | Self::DisruptedByKarpenter
            | Self::InstanceRefresh
            | Self::ManagedGroupUpdate
            | Self::WeightedGroup
            | Self::OneTimeSpot
            | Self::NotReady
            | Self::ReplacementRemoved
            | Self::ReplacementGone => None,
        }
    }

    /// The refusal for this reason.
    #[must_use]
    pub fn because(self, text: impl Into<String>) -> Refusal {
        Refusal {
            obstacle: self,
            text: text.into(),
        }
    }
}

/// At most three names: a group may have dozens of target groups.
pub(crate) fn name_some(names: &[&str]) -> String {
    const MOST: usize = 3;
    let told: Vec<&str> = names.iter().take(MOST).copied().collect();
    match names.len().saturating_sub(MOST) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}
