//! Why an instance is not disposed of.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::claim::ClaimLost;
use recycle::records::node_record::UnreadableRecord;

use crate::guard::NotAsLeft;

/// Why an instance is not disposed of.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody put the node to use again, although the claim is still ours.
    #[error(transparent)]
    NotAsLeft(#[from] NotAsLeft),
    /// Nothing more can be done, and it is still there.
    #[error("{0}")]
    DoesNotGo(String),
    /// Its replacement has gone, and the group has no other in time.
    #[error("{0}")]
    ReplacementTimedOut(String),
    /// It was lost, and is disposed of; the text names the pods that were lost with it.
    #[error("{0}")]
    NodeLost(String),
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
            Self::NotAsLeft(_) | Self::DoesNotGo(_) => Failure::ServiceRefused,
            Self::ReplacementTimedOut(_) => Failure::ReplacementTimedOut,
            Self::NodeLost(_) => Failure::NodeLost,
            Self::ClaimLost(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
