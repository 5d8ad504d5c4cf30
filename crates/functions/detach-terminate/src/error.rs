//! Why an instance is not disposed of.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::claim::ClaimLost;
use recycle::records::node_record::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disposal ends under this name, for a reason in a sentence: `ServiceRefused` if the node was put to use again or does not go,
    /// `ReplacementTimedOut`, or `NodeLost` once a lost node is disposed of; then the text names the pods that were lost with it.
    #[error("{1}")]
    Ended(Failure, String),
    /// The claim on the Node, or if there is none on the instance, is not ours.
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
