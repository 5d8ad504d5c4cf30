//! The table of a restore: what to do, by the sizes of the group and the state of the replacement.

use crate::cluster::group::Group;

/// Which sizes the group allows: m, d, M are its minimum, desired capacity and maximum at this moment.
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
    /// The process Launch is suspended: AWS lets nobody out of Standby.
    LaunchSuspended,
}

/// What became of the replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// It is not in service: not launched, or still on its way.
    NotLaunched,
    /// It is there, without pods other than those of DaemonSets and mirrors.
    Empty,
    /// It has pods or cannot be looked at, or there is none that is due: nothing is taken away.
    Stays,
}

/// By which sequence the instance comes back.
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
    /// No legal sequence: it stays in Standby, schedulable.
    Stay,
}

/// The table of the put-back.
pub const TABLE: [(Row, [(Column, Way); 3]); 5] = [
    (
        Row::Free,
        [
            (Column::NotLaunched, Way::LowerThenExit),
            (Column::Empty, Way::DropThenExit),
            (Column::Stays, Way::Exit),
        ],
    ),
    (
        Row::AtMaximum,
        [
            (Column::NotLaunched, Way::LowerThenExit),
            (Column::Empty, Way::DropThenExit),
            (Column::Stays, Way::Stay),
        ],
    ),
    (
        Row::AtMinimum,
        [
            (Column::NotLaunched, Way::ExitThenLower),
            (Column::Empty, Way::ExitThenDrop),
            (Column::Stays, Way::Exit),
        ],
    ),
    (
        Row::Fixed,
        [
            (Column::NotLaunched, Way::Stay),
            (Column::Empty, Way::Stay),
            (Column::Stays, Way::Stay),
        ],
    ),
    (
        Row::LaunchSuspended,
        [
            (Column::NotLaunched, Way::Stay),
            (Column::Empty, Way::Stay),
            (Column::Stays, Way::Stay),
        ],
    ),
];

/// The cell of the table.
#[must_use]
pub fn look_up(row: Row, column: Column) -> Way {
    TABLE
        .iter()
        .filter(|(of, _)| *of == row)
        .flat_map(|(_, cells)| cells)
        .find(|(of, _)| *of == column)
        .map_or(Way::Stay, |(_, way)| *way)
}

/// The row that the group is in.
#[must_use]
pub fn find_row(group: &Group) -> Row {
    let is_suspended = group.suspended.iter().any(|process| process == "Launch");
    match (is_suspended, group.min < group.desired, group.desired < group.max) {
        (true, _, _) => Row::LaunchSuspended,
        (false, true, true) => Row::Free,
        (false, true, false) => Row::AtMaximum,
        (false, false, true) => Row::AtMinimum,
        (false, false, false) => Row::Fixed,
    }
}
