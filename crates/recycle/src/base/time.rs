//! Arithmetic on timestamps.

use jiff::{SignedDuration, Timestamp};

/// `from` and so many seconds; the end of time if that is later than time goes.
pub(crate) fn later(from: Timestamp, seconds: u32) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(i64::from(seconds)))
        .unwrap_or(Timestamp::MAX)
}
