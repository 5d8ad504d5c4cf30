//! The public names of failures: `ErrorEquals` in the ASL matches them, users search for them, so they are API.

use std::error::Error;
use std::fmt::Write as _;

use serde::Serialize;

/// Why an execution ends FAILED, or why a step is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Failure {
    /// The input is wrong; nothing was touched.
    InvalidInput,
    /// The node cannot be recycled as asked; nothing was touched.
    PreflightRefused,
    /// The node's turn did not come within 24 hours; nothing was touched.
    TurnTimedOut,
    /// The node died while it was drained; it was disposed of.
    NodeLost,
    /// No usable replacement came in time.
    ReplacementTimedOut,
    /// The pods did not go in time.
    DrainTimedOut,
    /// The group's limits allow no way back from Standby.
    StandbyLeftBehind,
    /// The node is no longer ours; nothing was done.
    ClaimLost,
    /// AWS or Kubernetes is busy, throttles or cannot be reached; the state machine tries again.
    ServiceUnavailable,
    /// AWS or Kubernetes refused a call that should have been allowed, such as for a missing permission.
    ServiceRefused,
    /// Our own fault: an answer that we did not understand, or a record that nobody can have written.
    InternalError,
}

impl Failure {
    /// All names, for the contract tests and the generated documentation.
    pub const ALL: [Self; 11] = [
        Self::InvalidInput,
        Self::PreflightRefused,
        Self::TurnTimedOut,
        Self::NodeLost,
        Self::ReplacementTimedOut,
        Self::DrainTimedOut,
        Self::StandbyLeftBehind,
        Self::ClaimLost,
        Self::ServiceUnavailable,
        Self::ServiceRefused,
        Self::InternalError,
    ];

    /// The public name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "InvalidInput",
            Self::PreflightRefused => "PreflightRefused",
            Self::TurnTimedOut => "TurnTimedOut",
            Self::NodeLost => "NodeLost",
            Self::ReplacementTimedOut => "ReplacementTimedOut",
            Self::DrainTimedOut => "DrainTimedOut",
            Self::StandbyLeftBehind => "StandbyLeftBehind",
            Self::ClaimLost => "ClaimLost",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::ServiceRefused => "ServiceRefused",
            Self::InternalError => "InternalError",
        }
    }
}

/// An error that knows the public name under which the state machine sees it.
pub trait NamedFailure: Error {
    /// The public name.
    fn failure(&self) -> Failure;
}

/// An error with all its causes in one line: `failed to taint node a: failed to reach …: connection refused`.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
