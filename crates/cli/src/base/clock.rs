//! What time it is, for "so long ago" and "in so long". The records have their own times; nothing is decided here.

use jiff::Timestamp;

/// The environment variable that names a file with the time (RFC 3339).
/// The local world of the tests sets it, because its clock is virtual.
const CLOCK_FILE: &str = "RECYCLE_EKS_CLOCK";

pub(crate) fn now() -> Timestamp {
    told_by_file().unwrap_or_else(real)
}

/// Returns a name that no other execution has. One process does not start two executions within a nanosecond.
pub(crate) fn unique_name() -> String {
    format!("recycle-eks-{}-{}", real().as_nanosecond(), std::process::id())
}

fn told_by_file() -> Option<Timestamp> {
    let file = std::env::var_os(CLOCK_FILE)?;
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person reads how long something has taken so far; and a name has to be unique"
)]
fn real() -> Timestamp {
    Timestamp::now()
}
