//! Why it cannot be said what a failure left.

use recycle::failure::{Failure, NamedFailure};

/// Why it cannot be said what a failure left.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The way into the cluster.
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    /// Somebody else took the claim while we released it.
    #[error(transparent)]
    ClaimLost(#[from] node_record::ClaimLost),
    /// Kubernetes.
    #[error(transparent)]
    Node(#[from] node_record::Error),
    /// AWS.
    #[error(transparent)]
    Instance(#[from] instance_record::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::ClaimLost(error) => error.failure(),
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
