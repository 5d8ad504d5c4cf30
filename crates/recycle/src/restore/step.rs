//! The steps of a restore.

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;

/// The next step of a put-back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBackStep {
    /// Take from the Node what we wrote.
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
    /// SetDesiredCapacity, because the group would trim members of ours after ExitStandby.
    Raise { to: u32 },
    ExitStandby {
        /// The desired capacity before it.
        from: u32,
    },
    /// Take our cordon from these members' Nodes, and the reservation, too, unless another execution may go on with it.
    ReleaseReplacements {
        newcomers: Vec<InstanceId>,
        /// The reservation is removed.
        reservation: bool,
    },
    /// Take our protection from these members.
    Unprotect(Vec<InstanceId>),
    /// TerminateInstanceInAutoScalingGroup of a dead member in Standby, where no health check reaches it: its group forgets it.
    ForgetDead,
    /// Wait so many seconds; why.
    Wait(u32, String),
    /// The node is what it was. The text says what is not, if anything.
    Done(Option<String>),
    /// There is no legal way back; why.
    LeaveInStandby(Stuck),
    /// The node is lost, somebody else's, or cannot be seen: nothing more is done to it. The text says what is not as it was in its group,
    /// if anything.
    Report(Option<String>),
}

/// Why an instance stays in Standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    AtMaximum,
    LaunchSuspended,
    /// The instance does not run; its state.
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
    /// On Nodes or members, or a wait.
    Other,
    /// It changes the group's size, or prepares that.
    Group,
    End,
}

impl PutBackStep {
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

    /// It changes the group's size, or prepares that. Two put-backs of one group would take each other's changes for their own.
    pub(crate) fn changes_group(&self) -> bool {
        self.kind() == Kind::Group
    }
}

/// Seconds that a put-back may take before the node is left where it is: half an hour, in which a launch that is under way comes or
/// fails, and a group that was busy has calmed down.
pub const PATIENCE: u32 = 1_800;

/// Seconds for which other put-backs of the group are waited for. A crashed one is taken up by the sweep in that time.
pub const LINE_PATIENCE: u32 = 900;

/// Seconds between two steps, enough for Auto Scaling to show what the last one did.
pub const STEP_WAIT: u32 = 10;

/// Seconds between two looks at something that takes its time: half an hour of them is 30.
pub const LONG_WAIT: u32 = 60;

/// How many steps and looks a put-back may have before it is at the end of its patience: 30 looks and 10 steps, twice as many as any
/// way needs. The execution's history has no room for more.
pub const MOST_STEPS: u32 = 40;

pub(crate) enum Place {
    /// The instance or its Node is gone, or it is on its way out.
    Lost,
    /// In Standby, but not by us; or stopped as asked, to stay there.
    Foreign,
    OnTheWay(String),
    Standby,
    InService,
}

pub(crate) fn wait_for_cluster() -> PutBackStep {
    PutBackStep::Wait(LONG_WAIT, "the cluster cannot be asked".to_owned())
}

/// Members that count towards the desired capacity.
pub(crate) fn count(group: &Group) -> u32 {
    group.in_service() + group.pending()
}
