//! What a pipeline reads: the exit codes.

/// The exit code of an invocation. [`Exit::meaning`] explains each code.
/// By convention, parsers of command lines exit with 2, and shells report 130 after Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Refused = 2,
    RestoreState = 3,
    NeedsPerson = 4,
    Others = 5,
    Findings = 6,
    Warnings = 7,
    Unwatched = 130,
}

impl Exit {
    pub(crate) const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::RestoreState,
        Self::NeedsPerson,
        Self::Others,
        Self::Findings,
        Self::Warnings,
        Self::Unwatched,
    ];

    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning of the code, for the help and the documentation.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Done => "as asked: recycled, rotated, planned, restored, nothing to do",
            Self::Failed => "AWS or the cluster could not be asked, or refused; what was started goes on",
            Self::Refused => {
                "refused before anything was touched: a flag, an unknown node or installation, InvalidInput, PreflightRefused, QueueTimedOut"
            }
            Self::RestoreState => {
                "begun and failed; the node is put back, or gone, or other nodes of the rotation are left: failed, or not begun"
            }
            Self::NeedsPerson => {
                "failed, and a person is needed: LeftInStandby, NodeLost, a put-back that did not come to its end"
            }
            Self::Others => {
                "another execution works on the node, or has taken it over: duplicate, superseded, ClaimLost"
            }
            Self::Findings => "doctor has found a problem",
            Self::Warnings => {
                "doctor has found warnings, or what it was not allowed to look at, and no problem"
            }
            Self::Unwatched => "Ctrl-C while watching, or the output was closed; what was started goes on",
        }
    }
}

pub(crate) fn list_exits() -> String {
    let lines = Exit::ALL.map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_exit_has_a_number_of_its_own() {
        let codes: BTreeSet<u8> = Exit::ALL.into_iter().map(Exit::code).collect();
        assert_eq!(codes.len(), Exit::ALL.len());
    }
}
