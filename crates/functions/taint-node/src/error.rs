//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;
use recycle::records::lease::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to taint the node")]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    /// The request from the command line is refused, for example because the node has no drain whose end could be moved.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Node(error) => error.failure(),
            Self::ClaimLost(error) => error.failure(),
            Self::Input(_) => Failure::InvalidInput,
            Self::Access(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
        }
    }
}
