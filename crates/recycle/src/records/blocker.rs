//! What prevents evictions, with its pods.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::text::{cut_text, list_names};

/// Seconds after which people are told of what stands in the way. A budget that lets pods go one after the other, and the API server's
/// first minutes with a new one, are no news.
pub const NEWS_AFTER: i64 = 300;

/// To how many characters the sentence is cut that travels in answers, which stay under 8 KB.
const LONGEST_NEWS: usize = 300;

/// Something that stands in the way of evictions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// What, such as `budget shop/web`.
    pub what: String,
    /// The API server's own text about the first of the pods.
    pub says: String,
    /// Since when it has kept at least one pod of this node.
    pub since: Timestamp,
    /// How many pods it keeps.
    pub count: u32,
    /// The first five of them.
    pub names: Vec<String>,
    /// There is an Event about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

/// How many pods they keep. A person may have written any number.
#[must_use]
pub fn count_all(blockers: &[Blocker]) -> u32 {
    let counts = blockers.iter().map(|blocker| blocker.count);
    counts.fold(0, u32::saturating_add)
}

impl Blocker {
    /// People should know of it.
    #[must_use]
    pub fn is_news(&self, now: Timestamp) -> bool {
        now.duration_since(self.since).as_secs() >= NEWS_AFTER
    }

    pub(crate) fn describe_shortly(&self) -> String {
        let mut text = self.describe();
        cut_text(&mut text, LONGEST_NEWS);
        text
    }

    /// In one sentence, the names last: they are what can be missed if it is cut.
    #[must_use]
    pub fn describe(&self) -> String {
        let noun = if self.count == 1 { "pod" } else { "pods" };
        let names = list_names(&self.names, usize::try_from(self.count).unwrap_or(usize::MAX));
        format!(
            "{} has kept {} {noun} since {}: {} ({names})",
            self.what, self.count, self.since, self.says
        )
    }
}
