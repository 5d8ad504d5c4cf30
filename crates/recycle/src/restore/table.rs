//! Defines the table of a restore: the calls by which the instance leaves Standby, by the group's sizes and the replacement's state.

use crate::cluster::group::Group;

/// The sizes that the group allows: m, d, M are its minimum, desired capacity and maximum at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// m < d < M
    Free,
    /// m < d = M
    AtMaximum,
    /// m = d < M
    AtMinimum,
    /// m = d = M
    Fixed,
    /// The process Launch is suspended. Without it, AWS lets no instance leave Standby.
    LaunchSuspended,
}

/// The state of the replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The replacement is not in service: not launched, or still on its way.
    NotLaunched,
    /// The replacement is in service, without pods other than finished ones and those of DaemonSets and mirrors.
    Empty,
    /// The replacement has pods or cannot be checked, or none is due. No member is terminated.
    Stays,
}

/// The sequence of calls by which the instance returns to service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// SetDesiredCapacity(d-1), then ExitStandby makes it d.
    LowerThenExit,
    /// Terminate the replacement with decrement, then ExitStandby makes it d.
    DropThenExit,
    /// ExitStandby makes it d+1, then SetDesiredCapacity(d) when nothing is Pending.
    ExitThenLower,
    /// ExitStandby makes it d+1, then terminate the replacement with decrement.
    ExitThenDrop,
    /// ExitStandby, and the group stays one larger.
    Exit,
    /// No legal sequence: the instance stays in Standby, schedulable.
    Stay,
}

pub fn look_up(row: Row, column: Column) -> Way {
    match (row, column) {
        (Row::Free | Row::AtMaximum, Column::NotLaunched) => Way::LowerThenExit,
        (Row::Free | Row::AtMaximum, Column::Empty) => Way::DropThenExit,
        (Row::AtMinimum, Column::NotLaunched) => Way::ExitThenLower,
        (Row::AtMinimum, Column::Empty) => Way::ExitThenDrop,
        (Row::Free | Row::AtMinimum, Column::Stays) => Way::Exit,
        (Row::AtMaximum, Column::Stays) | (Row::Fixed | Row::LaunchSuspended, _) => Way::Stay,
    }
}

pub fn find_row(group: &Group) -> Row {
    if group.is_suspended("Launch") {
        return Row::LaunchSuspended;
    }
    match (group.min < group.desired, group.desired < group.max) {
        (true, true) => Row::Free,
        (true, false) => Row::AtMaximum,
        (false, true) => Row::AtMinimum,
        (false, false) => Row::Fixed,
    }
}
