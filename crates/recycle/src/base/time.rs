//! Arithmetic on timestamps.

use jiff::{SignedDuration, Timestamp};

/// Returns the time `seconds` after `from`, or the end of time if that is out of range.
pub fn later(from: Timestamp, seconds: u32) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(i64::from(seconds)))
        .unwrap_or(Timestamp::MAX)
}
