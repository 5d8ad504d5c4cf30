//! A finding and its level.

use serde::Serialize;

use crate::doctor::facts::Seen;

/// How a finding is meant. The worst of them is the exit code's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It works, but some day it will not, or not as one expects.
    Warning,
    /// Nodes are not recycled, or not safely.
    Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// In what: a group, a function, a rule; empty if there is only one of it.
    pub of: String,
    pub level: Level,
    pub found: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

#[must_use]
pub fn worst(findings: &[Finding]) -> Level {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(Level::Ok)
}

/// What is looked at, and in what; it makes the findings of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check<'a> {
    name: &'static str,
    of: &'a str,
}

impl<'a> Check<'a> {
    /// Of something of which there are several.
    pub(crate) fn new(name: &'static str, of: &'a str) -> Self {
        Self { name, of }
    }

    /// Of something of which there is only one.
    pub(crate) fn only(name: &'static str) -> Self {
        Self { name, of: "" }
    }

    pub(crate) fn ok(self, found: impl Into<String>) -> Finding {
        self.find(Level::Ok, found.into(), None)
    }

    pub(crate) fn warning(self, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        self.find(Level::Warning, found.into(), Some(mend.into()))
    }

    pub(crate) fn problem(self, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        self.find(Level::Problem, found.into(), Some(mend.into()))
    }

    /// That a call was throttled, or not answered, says nothing of what was asked.
    pub(crate) fn unanswered(self, why: &str) -> Finding {
        self.unknown(why, "Ask again in a while.")
    }

    fn unknown(self, why: &str, mend: &str) -> Finding {
        self.find(Level::Unknown, format!("unknown: {why}"), Some(mend.to_owned()))
    }

    pub(crate) fn find(self, level: Level, found: String, mend: Option<String>) -> Finding {
        Finding {
            check: self.name,
            of: self.of.to_owned(),
            level,
            found,
            mend,
        }
    }

    /// What is odd; if nothing is, that all is well.
    pub(crate) fn or_ok(self, odd: Vec<Finding>, found: impl Into<String>) -> Vec<Finding> {
        if odd.is_empty() { vec![self.ok(found)] } else { odd }
    }

    /// What is judged if it is known; if not, that is the finding.
    pub(crate) fn judge<T>(self, seen: &Seen<T>, judge: impl FnOnce(&T) -> Finding) -> Finding {
        self.known(seen).map_or_else(|unknown| unknown, judge)
    }

    /// The same of what there are several findings of.
    pub(crate) fn judge_all<T>(self, seen: &Seen<T>, judge: impl FnOnce(&T) -> Vec<Finding>) -> Vec<Finding> {
        self.known(seen).map_or_else(|unknown| vec![unknown], judge)
    }

    fn known<T>(self, seen: &Seen<T>) -> Result<&T, Finding> {
        Err(match seen {
            Seen::Found(found) => return Ok(found),
            Seen::Denied(what) => self.unknown(
                &format!("not allowed to {what}"),
                "Let whoever runs this have the policy of the module's output operator_policy_json.",
            ),
            Seen::Unanswered(why) => self.unanswered(why),
            Seen::Failed(why) => self.problem(format!("could not be asked: {why}"), "See the text."),
        })
    }
}

/// Of how many Nodes or groups a finding names those that it is about.
const MOST_NAMES: usize = 5;

/// Instances in a command to paste: 25 characters each. The next look has the others.
pub(crate) const MOST_IN_COMMAND: usize = 50;

/// What a module's apply puts right.
pub(crate) const APPLY: &str = "Apply the Terraform module again, with packages of its own version.";

pub(crate) fn count(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

pub(crate) fn name_some(names: &[String]) -> String {
    let some = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
