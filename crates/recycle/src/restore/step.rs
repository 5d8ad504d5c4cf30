//! The steps of a restore.

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;

/// The next step of a put-back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStep {
    /// Take from the Node what an execution wrote.
    UndoKubernetes,
    /// Write on the Node that it is being put back.
    Queue,
    /// Protect these members from scale-in.
    Protect(Vec<InstanceId>),
    /// Keep pods away from the replacement, so that it stays empty.
    CordonReplacement(InstanceId),
    /// Terminate the replacement, which has no pods, with decrement.
    TerminateReplacement(InstanceId),
    /// SetDesiredCapacity, one less than it is.
    Lower { from: u32 },
    /// SetDesiredCapacity, because the group would trim a member of its own choice after ExitStandby.
    Raise { to: u32 },
    ExitStandby {
        /// The desired capacity before it.
        from: u32,
    },
    /// Take from these members' Nodes the put-back's cordon and the mark that keeps them from Cluster Autoscaler.
    /// The reservation goes, too, unless another execution may go on with it.
    ReleaseReplacements {
        new_members: Vec<InstanceId>,
        /// True if the reservation is removed.
        reservation: bool,
    },
    /// Take away the protection that the execution or the put-back gave these members.
    Unprotect(Vec<InstanceId>),
    /// TerminateInstanceInAutoScalingGroup of a dead member in Standby, so that its group forgets it. No health check reaches it there.
    ForgetDead,
    /// Wait this many seconds, for the reason in the text.
    Wait(u32, String),
    /// The node is what it was. The text says what is not, if anything.
    Done(Option<String>),
    /// There is no legal way back, for this reason.
    LeaveInStandby(Stuck),
    /// The node is lost, has no group, cannot be seen, was stopped as asked, or is in Standby without an execution's doing.
    /// Nothing more is done to it. The text says what is not as it was in its group, if anything.
    Report(Option<String>),
}

/// The reason why an instance stays in Standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    AtMaximum,
    LaunchSuspended,
    /// The instance does not run; holds its state.
    NotRunning(String),
    /// The way back did not open in time.
    TooLong,
}

impl Stuck {
    #[must_use]
    pub fn describe(&self, group: &Group) -> String {
        let Group {
            name,
            min,
            desired,
            max,
            ..
        } = group;
        match self {
            Self::AtMaximum => format!(
                "group {name} has minimum {min}, desired capacity {desired} and maximum {max}, which allow no way back"
            ),
            Self::LaunchSuspended => format!(
                "the process Launch of group {name} is suspended, without which AWS lets nobody out of Standby"
            ),
            Self::NotRunning(state) => format!("the instance is {state}"),
            Self::TooLong => format!("the way back was not open within {} minutes", PATIENCE / 60),
        }
    }
}

#[derive(PartialEq)]
enum Kind {
    /// A step on Nodes or members that does not change the group's size, or a wait.
    Other,
    /// A step that changes the group's size or prepares that.
    Group,
    End,
}

impl RestoreStep {
    fn kind(&self) -> Kind {
        match self {
            Self::Protect(_)
            | Self::CordonReplacement(_)
            | Self::TerminateReplacement(_)
            | Self::Lower { .. }
            | Self::Raise { .. }
            | Self::ExitStandby { .. } => Kind::Group,
            Self::UndoKubernetes
            | Self::Queue
            | Self::ReleaseReplacements { .. }
            | Self::Unprotect(_)
            | Self::ForgetDead
            | Self::Wait(..) => Kind::Other,
            Self::Done(_) | Self::LeaveInStandby(_) | Self::Report(_) => Kind::End,
        }
    }

    #[must_use]
    pub fn is_end(&self) -> bool {
        self.kind() == Kind::End
    }

    /// Checks whether the step changes the group's size or prepares that.
    /// Two such put-backs of one group at the same time would take each other's changes for their own.
    pub(crate) fn changes_group(&self) -> bool {
        self.kind() == Kind::Group
    }
}

/// Seconds that a put-back may take before the node is left where it is: half an hour.
/// In that time a launch that is under way comes or fails, and a busy group calms down.
pub const PATIENCE: u32 = 1_800;

/// Seconds for which a put-back waits for other put-backs of the group. The sweep takes up a crashed one in that time.
pub const LINE_PATIENCE: u32 = 900;

/// Seconds between two steps, enough for Auto Scaling to show the effect of the last one.
pub const STEP_WAIT: u32 = 10;

/// Seconds between two checks of something that takes its time: half an hour has 30 of them.
pub const LONG_WAIT: u32 = 60;

/// The number of steps and checks after which a put-back gives up: 30 checks and 10 steps, twice as many as any way needs.
/// The execution's history has no room for more.
pub const MOST_STEPS: u32 = 40;

pub(crate) enum Place {
    /// The instance is gone, is not a member or is leaving its group; or its Node is gone or counts as lost.
    Lost,
    /// The instance is in Standby, but no execution put it there, or it was stopped as asked and stays there.
    Foreign,
    OnTheWay(String),
    Standby,
    InService,
}

pub(crate) fn wait_for_cluster() -> RestoreStep {
    RestoreStep::Wait(LONG_WAIT, "the cluster cannot be asked".to_owned())
}

/// Counts the members that count towards the desired capacity.
pub(crate) fn count(group: &Group) -> u32 {
    group.in_service() + group.pending()
}
