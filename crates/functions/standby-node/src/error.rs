//! Why a node does not get its replacement.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::claim::ClaimLost;
use recycle::records::node_record::UnreadableRecord;

/// Why a node does not get its replacement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else put it into another state before we touched it.
    #[error("{0}")]
    Refused(String),
    /// Somebody put it to use again while its replacement was waited for.
    #[error("{0}")]
    BroughtBack(String),
    /// It went away while its replacement was waited for.
    #[error("{0}")]
    Lost(String),
    /// No usable replacement came in time.
    #[error("{0}")]
    ReplacementTimedOut(String),
    /// The claim on the Node, or if there is none on the instance, is not ours.
    #[error(transparent)]
    ClaimLost(#[from] ClaimLost),
    /// Somebody edited our record.
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    /// Kubernetes.
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    /// AWS.
    #[error(transparent)]
    Instance(#[from] ec2::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Refused(_) => Failure::PreflightRefused,
            Self::BroughtBack(_) => Failure::ServiceRefused,
            Self::Lost(_) => Failure::NodeLost,
            Self::ReplacementTimedOut(_) => Failure::ReplacementTimedOut,
            Self::ClaimLost(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
