//! The annotation that reports the progress of a drain.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::records::blocker::Blocker;

/// The annotation `recycle-eks/progress`: the awaited pods, the blockers, the start of the drain and its latest end.
/// `kubectl describe node` shows its first 140 characters, so the first field is short and the most important.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// A summary in a few words.
    pub summary: String,
    /// The time at which the drain, or the wait in the queue, began.
    pub since: Timestamp,
    /// The time at which it ends at the latest.
    pub until: Timestamp,
    /// The end of the lifecycle hook, if it is earlier and the group does not retain the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_until: Option<Timestamp>,
    /// The action that follows at that time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub then: String,
    /// Obstacles to evictions, the one that has lasted longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<Blocker>,
    /// Events from outside, such as an instance refresh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disruptions: Vec<String>,
    /// Reasons that hold pods back, such as a volume that no other node can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// The number of pods in each class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u32>,
    /// The first five names of each class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Vec<String>>,
}

impl Progress {
    /// Creates a progress without pods.
    pub fn new(summary: String, since: Timestamp, until: Timestamp) -> Self {
        Self {
            summary,
            since,
            until,
            ..Self::default()
        }
    }

    /// Checks whether this progress names pods of a class that `before` did not count. A `before` of another drain counts nothing.
    pub fn has_update(&self, before: Option<&Self>) -> bool {
        let known = |class: &str| {
            before.is_some_and(|before| before.since == self.since && before.counts.contains_key(class))
        };
        self.names.keys().any(|class| !known(class))
    }
}
