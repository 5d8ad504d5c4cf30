//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::claim::ClaimLost;
use recycle::records::lease::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The execution ends under this name. The text gives the reason in a sentence.
    #[error("{1}")]
    Ended(Failure, String),
    /// The claim on the Node, or on the instance if there is no Node to carry it, is not held by this execution.
    #[error(transparent)]
    ClaimLost(#[from] ClaimLost),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Instance(#[from] ec2::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Ended(failure, _) => *failure,
            Self::ClaimLost(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
