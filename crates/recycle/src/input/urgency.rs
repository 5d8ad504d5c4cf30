//! How urgent an execution is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::text::UnknownWord;

/// How urgent the work is; the more urgent may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// A person, a schedule, an alarm.
    Planned,
    /// EC2 is likely to take the instance away.
    Spot,
    /// The group is terminating the instance, and waits for heartbeats.
    Hook,
    /// EC2 takes the instance away within two minutes.
    Interruption,
}

impl fmt::Display for Urgency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Urgency {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|urgency| urgency.name() == word)
            .ok_or_else(|| UnknownWord(word.to_owned()))
    }
}
