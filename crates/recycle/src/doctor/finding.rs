//! Defines a finding and its level.

use serde::Serialize;

pub(crate) use crate::base::text::count;
use crate::doctor::facts::Seen;

/// The level of a finding. The worst level decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// The check could not be made.
    Unknown,
    /// Recycling works, but may fail later or behave in an unexpected way.
    Warning,
    /// Nodes are not recycled, or not safely.
    Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    /// The object that was checked, such as a group, a function or a rule. Empty if there is only one.
    pub of: String,
    pub level: Level,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

pub fn worst(findings: &[Finding]) -> Level {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(Level::Ok)
}

/// A check of an object, which builds its findings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check<'a> {
    name: &'static str,
    of: &'a str,
}

impl<'a> Check<'a> {
    /// Returns a check of one object of several.
    pub(crate) fn new(name: &'static str, of: &'a str) -> Self {
        Self { name, of }
    }

    /// Returns a check of an object that exists once.
    pub(crate) fn only(name: &'static str) -> Self {
        Self { name, of: "" }
    }

    pub(crate) fn ok(self, found: impl Into<String>) -> Finding {
        self.find(Level::Ok, found.into(), None)
    }

    pub(crate) fn warning(self, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.find(Level::Warning, found.into(), Some(remedy.into()))
    }

    pub(crate) fn problem(self, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.find(Level::Problem, found.into(), Some(remedy.into()))
    }

    /// Returns a finding for a call that was throttled or got no answer, which says nothing about the object.
    pub(crate) fn unanswered(self, why: &str) -> Finding {
        self.unknown(why, "Run doctor again in a few minutes.")
    }

    fn unknown(self, why: &str, remedy: &str) -> Finding {
        self.find(Level::Unknown, format!("unknown: {why}"), Some(remedy.to_owned()))
    }

    pub(crate) fn find(self, level: Level, found: String, remedy: Option<String>) -> Finding {
        Finding {
            check: self.name,
            of: self.of.to_owned(),
            level,
            found,
            remedy,
        }
    }

    /// Returns the odd findings. If there are none, returns one finding of level ok.
    pub(crate) fn or_ok(self, odd: Vec<Finding>, found: impl Into<String>) -> Vec<Finding> {
        if odd.is_empty() { vec![self.ok(found)] } else { odd }
    }

    /// Judges a fact if it is known. If not, the reason is the finding.
    pub(crate) fn judge<T>(self, seen: &Seen<T>, judge: impl FnOnce(&T) -> Finding) -> Finding {
        self.known(seen).map_or_else(|unknown| unknown, judge)
    }

    /// Judges a fact if it is known, with several findings. If not, the reason is the only finding.
    pub(crate) fn judge_all<T>(self, seen: &Seen<T>, judge: impl FnOnce(&T) -> Vec<Finding>) -> Vec<Finding> {
        self.known(seen).map_or_else(|unknown| vec![unknown], judge)
    }

    fn known<T>(self, seen: &Seen<T>) -> Result<&T, Finding> {
        Err(match seen {
            Seen::Found(found) => return Ok(found),
            Seen::Denied(what) => self.unknown(
                &format!("not allowed to {what}"),
                "Give the caller the policy in the module's output operator_policy_json.",
            ),
            Seen::Unanswered(why) => self.unanswered(why),
            Seen::Failed(why) => self.problem(format!("cannot be read: {why}"), "Fix the cause in the text."),
        })
    }
}

/// The maximum number of Nodes or groups that a finding names.
const MOST_NAMES: usize = 5;

/// Instances in a command to paste, at 25 characters each. The next run of doctor lists the others.
pub(crate) const MOST_IN_COMMAND: usize = 50;

/// The remedy where applying the module is enough.
pub(crate) const APPLY: &str = "Apply the Terraform module again, with the packages of the module's version.";

pub(crate) fn name_some(names: &[String]) -> String {
    let some = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
