//! An instance refresh that is under way, and its effect on members in Standby.

/// The values of `InstanceRefreshStatus` while a refresh replaces instances or may still do so (API reference, InstanceRefresh).
const UNDER_WAY: [&str; 5] = [
    "Pending",
    "InProgress",
    "Cancelling",
    "RollbackInProgress",
    "Baking",
];

/// An instance refresh that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    pub status: String,
    pub standby: StandbyInstances,
}

/// The preference `StandbyInstances` of a refresh (API reference, RefreshPreferences).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyInstances {
    Terminate,
    Ignore,
    Wait,
}

/// The answer to a refresh that would terminate a member in Standby with its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancellation {
    /// The module does not allow it (`cancel_instance_refresh`).
    NotAllowed,
    Done,
    /// The refresh had ended before.
    NotNeeded,
    /// The call failed, with this error.
    Failed(String),
}

impl Refresh {
    /// Returns the refresh unless it has ended. Without the preference it waits for members in Standby.
    pub fn under_way(status: &str, standby: Option<&str>) -> Option<Self> {
        UNDER_WAY.contains(&status).then(|| Self {
            status: status.to_owned(),
            standby: match standby {
                Some("Terminate") => StandbyInstances::Terminate,
                Some("Ignore") => StandbyInstances::Ignore,
                Some(_) | None => StandbyInstances::Wait,
            },
        })
    }

    /// Describes what the refresh does to members in Standby.
    pub fn describe_effect(&self) -> &'static str {
        match self.standby {
            StandbyInstances::Terminate => "terminates members in Standby with their pods",
            StandbyInstances::Ignore => "leaves members in Standby alone",
            StandbyInstances::Wait => "waits an hour for members in Standby, then fails",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Refresh, StandbyInstances};

    #[test]
    fn a_refresh_that_has_not_ended_is_under_way_and_waits_for_standby_unless_its_preference_says_otherwise()
    {
        for (status, preference, expected) in [
            ("Pending", None, Some(StandbyInstances::Wait)),
            ("InProgress", Some("Wait"), Some(StandbyInstances::Wait)),
            ("InProgress", Some("Terminate"), Some(StandbyInstances::Terminate)),
            ("Baking", Some("Ignore"), Some(StandbyInstances::Ignore)),
            ("Cancelling", Some("Terminate"), Some(StandbyInstances::Terminate)),
            (
                "RollbackInProgress",
                Some("a new value"),
                Some(StandbyInstances::Wait),
            ),
            ("Successful", Some("Terminate"), None),
            ("Cancelled", None, None),
            ("Failed", None, None),
        ] {
            let refresh = Refresh::under_way(status, preference);
            assert_eq!(
                refresh.map(|refresh| refresh.standby),
                expected,
                "{status} {preference:?}"
            );
        }
    }
}
