//! A blocker: an obstacle to evictions, with the pods that it blocks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::text::{cut_text, list_names};

/// Seconds after which an obstacle is reported to operators.
/// A budget that lets pods go one after the other is not worth a report, nor are the API server's first minutes with a new budget.
pub const REPORTED_AFTER: i64 = 300;

/// The length, in characters, to which the sentence in an answer is cut. Answers stay under 8 KB.
const LONGEST_UPDATE: usize = 300;

/// An obstacle to evictions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The obstacle, such as `budget shop/web`.
    pub what: String,
    /// The API server's own text about the first of the pods.
    pub says: String,
    /// The time since which it has blocked at least one pod of this node.
    pub since: Timestamp,
    /// The number of pods that it blocks.
    pub count: u32,
    /// The names of the first five of these pods.
    pub names: Vec<String>,
    /// Whether there is an Event about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
}

/// Adds up the pods that the blockers block. The sum saturates, because an operator may have written any number.
pub fn count_all(blockers: &[Blocker]) -> u32 {
    let counts = blockers.iter().map(|blocker| blocker.count);
    counts.fold(0, u32::saturating_add)
}

impl Blocker {
    /// Checks whether operators should know of the blocker.
    pub fn is_long_enough(&self, now: Timestamp) -> bool {
        now.duration_since(self.since).as_secs() >= REPORTED_AFTER
    }

    pub(crate) fn describe_shortly(&self) -> String {
        let mut text = self.describe();
        cut_text(&mut text, LONGEST_UPDATE);
        text
    }

    /// Describes the blocker in one sentence. The names come last, because they can be missed if the sentence is cut.
    pub fn describe(&self) -> String {
        let noun = if self.count == 1 { "pod" } else { "pods" };
        let names = list_names(&self.names, usize::try_from(self.count).unwrap_or(usize::MAX));
        format!(
            "{} has blocked {} {noun} since {}: {} ({names})",
            self.what, self.count, self.since, self.says
        )
    }
}
