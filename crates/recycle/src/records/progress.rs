//! The annotation that reports the progress of a drain.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::records::blocker::Blocker;

/// The annotation `recycle-eks/progress`: what is awaited, what blocks, since when, until when. `kubectl describe node` shows its
/// first 140 characters: what comes first is short, and says the most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// In a few words.
    pub summary: String,
    /// When the drain began.
    pub since: Timestamp,
    /// When it ends at the latest.
    pub until: Timestamp,
    /// What happens then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub then: String,
    /// What stands in the way of evictions, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<Blocker>,
    /// What came up from outside, such as an instance refresh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<String>,
    /// What holds pods back, such as a volume that no other node can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// How many pods of each class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u32>,
    /// The first five names of each class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Vec<String>>,
}

impl Progress {
    /// A story without pods.
    #[must_use]
    pub fn new(summary: String, since: Timestamp, until: Timestamp) -> Self {
        Self {
            summary,
            since,
            until,
            ..Self::default()
        }
    }

    /// Whether something is told of that was not told of `before`, in the same drain.
    #[must_use]
    pub fn has_news(&self, before: Option<&Self>) -> bool {
        let known = |class: &str| {
            before.is_some_and(|before| before.since == self.since && before.counts.contains_key(class))
        };
        self.names.keys().any(|class| !known(class))
    }
}
