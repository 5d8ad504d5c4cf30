//! The exit codes, which pipelines read.

/// The exit code of an invocation. [`Exit::meaning`] explains each code.
/// By convention, parsers of command lines exit with 2, and shells report 130 after Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Restored = 3,
    NeedsOperator = 4,
    Others = 5,
    Findings = 6,
    Warnings = 7,
    Refused = 8,
    TimedOut = 9,
    Unwatched = 130,
}

impl Exit {
    pub(crate) const ALL: [Self; 11] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Restored,
        Self::NeedsOperator,
        Self::Others,
        Self::Findings,
        Self::Warnings,
        Self::Refused,
        Self::TimedOut,
        Self::Unwatched,
    ];

    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning of the code, for the help and the documentation.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Done => {
                "done as requested: recycled, rotated, planned, restored, or there was nothing to do"
            }
            Self::Failed => {
                "AWS or the cluster did not answer, or refused a call; executions that were started go on"
            }
            Self::Usage => {
                "a mistake in the command, found before any change: a wrong flag or value, an unknown node, group, execution or installation, InvalidInput"
            }
            Self::Restored => {
                "failed after the start: the node is restored or gone, or nodes of the rotation failed or were skipped"
            }
            Self::NeedsOperator => {
                "failed, and an operator must act: LeftInStandby, NodeLost, or a restore that did not finish"
            }
            Self::Others => {
                "another execution works on the node or has taken it over: duplicate, superseded, ClaimLost"
            }
            Self::Findings => "doctor found a problem",
            Self::Warnings => "doctor found no problem, but warnings or checks that it could not make",
            Self::Refused => {
                "refused before any change: PreflightRefused, a state that does not allow the command, or a question that you did not answer with yes"
            }
            Self::TimedOut => {
                "a time limit was over: QueueTimedOut, ReplacementTimedOut, DrainTimedOut, TIMED_OUT; the node is untouched or restored"
            }
            Self::Unwatched => {
                "Ctrl-C while watching, or the output was closed; executions that were started go on"
            }
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
    fn every_exit_has_its_own_number() {
        let codes: BTreeSet<u8> = Exit::ALL.into_iter().map(Exit::code).collect();
        assert_eq!(codes.len(), Exit::ALL.len());
    }
}
