//! The current time, for durations that the command line shows. No decision depends on it.

use jiff::Timestamp;

/// The environment variable that names a file with the time (RFC 3339).
/// The local world of the tests sets it, because its clock is virtual.
const CLOCK_FILE: &str = "RECYCLE_EKS_CLOCK";

pub(crate) fn now() -> Timestamp {
    read_clock_file().unwrap_or_else(real)
}

/// The beginning of the names of executions that the command line starts.
pub(crate) const NAMES: &str = "recycle-eks-";

/// Returns a name that no other execution has. One process does not start two executions within a nanosecond.
pub(crate) fn unique_name() -> String {
    format!("{NAMES}{}-{}", real().as_nanosecond(), std::process::id())
}

fn read_clock_file() -> Option<Timestamp> {
    let file = std::env::var_os(CLOCK_FILE)?;
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the output shows how long something has taken so far, and a name has to be unique"
)]
fn real() -> Timestamp {
    Timestamp::now()
}
