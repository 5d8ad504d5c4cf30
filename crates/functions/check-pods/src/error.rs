//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::lease::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to check the node's pods")]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    /// The node was put to use again, or was taken out of its group.
    #[error("{0}; its drain is over")]
    TakenAway(String),
    #[error("failed to drain the node in time: {0}")]
    TimedOut(String),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Node(error) => error.failure(),
            Self::ClaimLost(error) => error.failure(),
            Self::TakenAway(_) => Failure::ServiceRefused,
            Self::Record(_) => Failure::InternalError,
            Self::TimedOut(_) => Failure::DrainTimedOut,
        }
    }
}
