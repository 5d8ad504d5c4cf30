//! The steps that a restore has taken, and the tag that it gave up.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::base::text::cut_given;

/// All deeds of a put-back, in the order in which they were recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deeds(pub(crate) Vec<Deed>);

impl Deeds {
    /// Returns these deeds and one more.
    /// A deed that had not taken effect, and is recorded again with the current value, counts once.
    #[must_use]
    pub fn with(&self, deed: Deed) -> Self {
        let mut deeds = self.0.clone();
        if deeds.last().map(discriminant) == Some(discriminant(&deed)) {
            deeds.pop();
        }
        deeds.push(deed);
        Self(deeds)
    }

    /// Returns the desired capacity before ExitStandby, if the put-back recorded that call.
    pub(crate) fn exited_from(&self) -> Option<u32> {
        self.0.iter().rev().find_map(|deed| match deed {
            Deed::Exit(from) => Some(*from),
            Deed::Lower(_) | Deed::Terminate(_) => None,
        })
    }
}

impl fmt::Display for Deeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Deed::to_string).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Deeds {
    type Err = UnreadableDeed;

    fn from_str(text: &str) -> Result<Self, UnreadableDeed> {
        let read = |word: &str| {
            let (kind, value) = word.split_once(':')?;
            match kind {
                "lower" => value.parse().ok().map(Deed::Lower),
                "exit" => value.parse().ok().map(Deed::Exit),
                "terminate" => value.parse().ok().map(Deed::Terminate),
                _ => None,
            }
        };
        text.split_whitespace()
            .map(|word| read(word).ok_or_else(|| UnreadableDeed(cut_given(word))))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The tag `recycle-eks:gave-up`: operators were told that they have to see to the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp {
    pub at: Timestamp,
    /// Whether AWS or Kubernetes refused the way back. If not, there was no way back.
    pub was_refused: bool,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.was_refused { " refused" } else { "" };
        write!(f, "{}{word}", self.at)
    }
}

impl FromStr for GaveUp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let (at, word) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self {
            at: at.parse()?,
            was_refused: word == "refused",
        })
    }
}

/// A change of the group's size, recorded in the tag `recycle-eks:put-back` before it was called for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// SetDesiredCapacity to one less than this.
    Lower(u32),
    /// TerminateInstanceInAutoScalingGroup with decrement of this replacement.
    Terminate(InstanceId),
    /// ExitStandby while the desired capacity was this.
    Exit(u32),
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lower(from) => write!(f, "lower:{from}"),
            Self::Terminate(id) => write!(f, "terminate:{id}"),
            Self::Exit(from) => write!(f, "exit:{from}"),
        }
    }
}

/// The error that the tag `recycle-eks:put-back` cannot be read, because it was edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the tag recycle-eks:put-back: {0:?} is no step of a put-back")]
pub struct UnreadableDeed(String);
