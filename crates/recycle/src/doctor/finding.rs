//! A finding and its level.

use serde::Serialize;

use crate::doctor::facts::Seen;

/// How a finding is meant. The worst of them is the exit code's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It works, but some day it will not, or not as one expects.
    Warning,
    /// Nodes are not recycled, or not safely.
    Problem,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// In what: a group, a function, a rule; empty if there is only one of it.
    pub of: String,
    /// How it is meant.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, of: &str, found: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, of, found, None)
    }

    pub(crate) fn warning(
        check: &'static str,
        of: &str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(Level::Warning, check, of, found, Some(mend.into()))
    }

    pub(crate) fn problem(
        check: &'static str,
        of: &str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(Level::Problem, check, of, found, Some(mend.into()))
    }

    pub(crate) fn new(
        level: Level,
        check: &'static str,
        of: &str,
        found: impl Into<String>,
        mend: Option<String>,
    ) -> Self {
        Self {
            check,
            of: of.to_owned(),
            level,
            found: found.into(),
            mend,
        }
    }
}

/// The worst of them.
#[must_use]
pub fn worst(findings: &[Finding]) -> Level {
    findings
        .iter()
        .map(|finding| finding.level)
        .max()
        .unwrap_or(Level::Ok)
}

/// Of how many Nodes or groups a finding names those that it is about.
const MOST_NAMES: usize = 5;

/// Instances in a command to paste: 25 characters each. The next look has the others.
pub(crate) const MOST_IN_COMMAND: usize = 50;

/// What is judged if it is known; if not, that is the finding.
pub(crate) fn judge<T>(
    check: &'static str,
    of: &str,
    seen: &Seen<T>,
    judge: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    match seen {
        Seen::Found(found) => judge(found),
        Seen::Denied(what) => vec![Finding::new(
            Level::Unknown,
            check,
            of,
            format!("unknown: not allowed to {what}"),
            Some(
                "Let whoever runs this have the policy of the module's output operator_policy_json."
                    .to_owned(),
            ),
        )],
        Seen::Unanswered(why) => vec![unanswered(check, of, why)],
        Seen::Failed(why) => vec![Finding::problem(
            check,
            of,
            format!("could not be asked: {why}"),
            "See the text.",
        )],
    }
}

/// That a call was throttled, or not answered, says nothing of what was asked.
pub(crate) fn unanswered(check: &'static str, of: &str, why: &str) -> Finding {
    Finding::new(
        Level::Unknown,
        check,
        of,
        format!("unknown: {why}"),
        Some("Ask again in a while.".to_owned()),
    )
}

/// What a module's apply puts right.
pub(crate) const APPLY: &str = "Apply the Terraform module again, with packages of its own version.";

pub(crate) fn count(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

pub(crate) fn name_some(names: &[String]) -> String {
    let some: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
    let more = names.len().saturating_sub(MOST_NAMES);
    if more == 0 {
        some.join(", ")
    } else {
        format!("{} and {more} more", some.join(", "))
    }
}
