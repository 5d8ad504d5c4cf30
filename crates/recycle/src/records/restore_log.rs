//! The group changes of a restore, and the tag of an instance that the restore gave up.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::base::text::cut_given;

/// All group changes of a restore, in the order in which they were recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupChanges(pub(crate) Vec<GroupChange>);

impl GroupChanges {
    /// Returns these group changes and one more.
    /// A group change that had not taken effect, and is recorded again with the current value, counts once.
    pub fn with(&self, group_change: GroupChange) -> Self {
        let mut group_changes = self.0.clone();
        if group_changes.last().map(discriminant) == Some(discriminant(&group_change)) {
            group_changes.pop();
        }
        group_changes.push(group_change);
        Self(group_changes)
    }

    /// Returns these group changes with the ExitStandby of a copy, if they have none and its number is the only possible one: one less
    /// than `desired_before` if a place was given up before, else that.
    #[must_use]
    pub fn with_exit_of(self, copy: &Self, desired_before: u32) -> Self {
        let paid = u32::from(!self.0.is_empty());
        match copy.exited_from() {
            Some(from) if self.exited_from().is_none() && from + paid == desired_before => {
                self.with(GroupChange::Exit(from))
            }
            Some(_) | None => self,
        }
    }

    /// Returns the desired capacity before ExitStandby, if the restore recorded that call.
    pub(crate) fn exited_from(&self) -> Option<u32> {
        self.0.iter().rev().find_map(|group_change| match group_change {
            GroupChange::Exit(from) => Some(*from),
            GroupChange::Lower(_) | GroupChange::Terminate(_) => None,
        })
    }
}

impl fmt::Display for GroupChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(GroupChange::to_string).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for GroupChanges {
    type Err = UnreadableGroupChange;

    fn from_str(text: &str) -> Result<Self, UnreadableGroupChange> {
        let read = |word: &str| {
            let (kind, value) = word.split_once(':')?;
            match kind {
                "lower" => value.parse().ok().map(GroupChange::Lower),
                "exit" => value.parse().ok().map(GroupChange::Exit),
                "terminate" => value.parse().ok().map(GroupChange::Terminate),
                _ => None,
            }
        };
        text.split_whitespace()
            .map(|word| read(word).ok_or_else(|| UnreadableGroupChange(cut_given(word))))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The tag `recycle-eks:gave-up`, and the annotation of the Lease: operators were notified that they have to act on the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp {
    pub at: Timestamp,
    /// Whether AWS or Kubernetes refused a call of the restore. If not, the group's limits did not allow a restore.
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

/// The same in the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasedGaveUp {
    pub gave_up: GaveUp,
    /// Whether EC2 refused the tag, so that it is not missing because an operator has removed it.
    pub is_untagged: bool,
}

const UNTAGGED: &str = " untagged";

impl fmt::Display for LeasedGaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_untagged { UNTAGGED } else { "" };
        write!(f, "{}{word}", self.gave_up)
    }
}

impl FromStr for LeasedGaveUp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let tagged = text.strip_suffix(UNTAGGED);
        Ok(Self {
            gave_up: tagged.unwrap_or(text).parse()?,
            is_untagged: tagged.is_some(),
        })
    }
}

/// A change of the group's size, recorded in the Lease and in the tag `recycle-eks:restore-log` before it was called for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupChange {
    /// SetDesiredCapacity to one less than this.
    Lower(u32),
    /// TerminateInstanceInAutoScalingGroup with decrement of this replacement.
    Terminate(InstanceId),
    /// ExitStandby while the desired capacity was this.
    Exit(u32),
}

impl fmt::Display for GroupChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lower(from) => write!(f, "lower:{from}"),
            Self::Terminate(id) => write!(f, "terminate:{id}"),
            Self::Exit(from) => write!(f, "exit:{from}"),
        }
    }
}

/// The error that the annotation `recycle-eks/restore-log` of the Lease, or the tag of that name, cannot be read, because it was edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to read the restore-log of the Lease or of the instance's tag: {0:?} is not a group change of a restore"
)]
pub struct UnreadableGroupChange(String);
