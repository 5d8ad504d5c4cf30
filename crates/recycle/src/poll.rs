//! The poll law: how long to wait before looking again, the same for every way in (DESIGN §3).
//!
//! The law alone bounds a drain's history; [`POLL_BUDGET`] holds where a person moved the drain's end.

/// The shortest wait in seconds: below it a drain of minutes would cost more history than it tells.
pub const SHORTEST_WAIT: u32 = 30;
/// The longest wait in seconds for time-outs up to 7.5 days: trouble is noticed within 15 minutes.
pub const LONGEST_WAIT: u32 = 900;
/// How many times one execution may check its pods. A drain of 30 days takes 1,203 polls by the law below; the rest is for
/// a drain whose end a person moved. With an eviction in every one of them, a day in the queue, an hour of waiting for the replacement
/// and a slow disposal, 2,000 of Step Functions' 25,000 history events are left for retries (the tests below count them).
pub const POLL_BUDGET: u32 = 1_230;

/// Seconds to wait: 1 % of what was waited so far, between the bounds, and never past the next deadline.
///
/// `waited` and `left` (to the next deadline, may be past) are seconds; `drain_timeout` is the input's, 0 outside a drain;
/// `heartbeat_timeout` is the hook's, while it can still be kept alive.
#[must_use]
pub fn next_wait(waited: i64, left: i64, drain_timeout: u32, heartbeat_timeout: Option<u32>) -> u32 {
    let longest = i64::from(LONGEST_WAIT.max(drain_timeout / 720));
    let mut wait = (waited / 100)
        .max(i64::from(SHORTEST_WAIT))
        .min(longest)
        .min(left);
    if let Some(heartbeat_timeout) = heartbeat_timeout {
        wait = wait.min(i64::from(heartbeat_timeout / 3));
    }
    u32::try_from(wait.max(1)).unwrap_or(LONGEST_WAIT)
}

/// Whether a hook's heartbeat has to be recorded before waiting `wait` seconds more; `since_last` is the time since the last one.
#[must_use]
pub fn is_heartbeat_due(since_last: i64, wait: u32, heartbeat_timeout: u32) -> bool {
    since_last + i64::from(wait) > i64::from(heartbeat_timeout / 3)
}
