//! Defines the steps of a restore, and its limits.

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStep {
    /// Remove from the Node what an execution wrote.
    UndoKubernetes,
    /// Mark the Node as being restored.
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
    /// Remove the restore's cordon from these members' Nodes, and the mark that protects them from Cluster Autoscaler.
    /// Also remove the reservation, unless another execution may resume with it.
    ReleaseReplacements {
        new_members: Vec<InstanceId>,
        /// True if the reservation is removed.
        reservation: bool,
    },
    /// Remove the protection that the execution or the restore gave these members.
    Unprotect(Vec<InstanceId>),
    /// TerminateInstanceInAutoScalingGroup of a dead member in Standby, where the group does not check its health.
    ForgetDead,
    /// Wait this many seconds, for the reason in the text.
    Wait(u32, String),
    /// The node is restored. The text says how the group differs from before, if it does.
    Done(Option<String>),
    /// The instance cannot leave Standby, for this reason.
    LeaveInStandby(Stuck),
    /// The node is lost, has no group, cannot be seen, was stopped as asked, or was put into Standby by an operator or another tool.
    /// The restore does nothing more to it. The text says how its group differs from before, if it does.
    Report(Option<String>),
}

/// The reason why an instance stays in Standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    AtMaximum,
    LaunchSuspended,
    /// The instance is not running. Holds its state.
    NotRunning(String),
    /// The instance could not leave Standby in time.
    TooLong,
}

impl Stuck {
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
                "group {name} has minimum {min}, desired capacity {desired} and maximum {max}, so the instance cannot leave Standby"
            ),
            Self::LaunchSuspended => format!(
                "the process Launch of group {name} is suspended, and without it AWS lets no instance leave Standby"
            ),
            Self::NotRunning(state) => format!("the instance is {state}"),
            Self::TooLong => format!(
                "the instance could not leave Standby within {} minutes",
                PATIENCE / 60
            ),
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

    pub fn is_end(&self) -> bool {
        self.kind() == Kind::End
    }

    /// Checks whether the step changes the group's size or prepares that.
    /// Two such restores of one group at the same time would take each other's changes for their own.
    pub(crate) fn changes_group(&self) -> bool {
        self.kind() == Kind::Group
    }
}

/// Seconds that a restore may take before the node is left where it is: half an hour.
/// In that time a launch that is under way succeeds or fails, and a busy group calms down.
pub const PATIENCE: u32 = 1_800;

/// Seconds for which a restore waits for other restores of the group. In that time the sweep resumes a crashed one.
pub const LINE_PATIENCE: u32 = 900;

/// Seconds between two steps, enough for Auto Scaling to show the effect of the last one.
pub const STEP_WAIT: u32 = 10;

/// Seconds between two checks of something slow. Half an hour has 30 of them.
pub const LONG_WAIT: u32 = 60;

/// The number of steps and checks after which a restore gives up: 30 checks and 10 steps, twice as many as any restore needs.
/// The execution's history has no room for more.
pub const MOST_STEPS: u32 = 40;

/// The number of steps after which a restore removes no more marks from Nodes. A kubelet can write them again each time.
pub(crate) const MOST_STEPS_FOR_MARKS: u32 = MOST_STEPS + 2;

pub(crate) enum Place {
    /// The instance is gone, is not a member or is leaving its group; or its Node is gone or counts as lost.
    Lost,
    /// The instance is in Standby, but no execution put it there, or it was stopped as asked.
    Foreign,
    OnTheWay(String),
    Standby,
    InService,
}

pub(crate) fn wait_for_cluster() -> RestoreStep {
    RestoreStep::Wait(LONG_WAIT, "the cluster cannot be reached".to_owned())
}

/// Counts the members that count towards the desired capacity.
pub(crate) fn count(group: &Group) -> u32 {
    group.in_service() + group.pending()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::group;

    #[test]
    fn each_reason_to_stay_in_standby_is_named() {
        for (stuck, words) in [
            (
                Stuck::AtMaximum,
                "group workers has minimum 1, desired capacity 2 and maximum 4",
            ),
            (
                Stuck::LaunchSuspended,
                "the process Launch of group workers is suspended",
            ),
            (Stuck::NotRunning("stopped".to_owned()), "the instance is stopped"),
            (Stuck::TooLong, "could not leave Standby within 30 minutes"),
        ] {
            let text = stuck.describe(&group());
            assert!(text.contains(words), "{text}");
        }
    }
}
