//! What can go wrong while pods are checked.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::node_record::UnreadableRecord;

/// What can go wrong while pods are checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster did not do as it was asked.
    #[error("failed to check the node's pods")]
    Node(#[from] kubernetes::Error),
    /// The claim is not ours any more.
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    /// Somebody edited what we had recorded.
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    /// Somebody put the node to use again, or took it out of its group.
    #[error("{0}; it is not drained any more")]
    TakenAway(String),
    /// The pods did not go in time.
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
