//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::lease::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to taint the node")]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Node(error) => error.failure(),
            Self::ClaimLost(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
        }
    }
}
