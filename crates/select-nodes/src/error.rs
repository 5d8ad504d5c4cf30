//! Why no nodes could be selected.

use recycle::failure::{Failure, NamedFailure};
use recycle::input::InvalidInput;

/// Why no nodes could be selected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rotation asks for what cannot be selected.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// The way into the cluster.
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
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
            Self::Input(_) => Failure::InvalidInput,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
