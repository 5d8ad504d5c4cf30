//! Why no nodes could be selected.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::InvalidId;
use recycle::input::model::InvalidInput;

/// Why no nodes could be selected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment lacks something, or has a value that makes no sense.
    #[error("failed to read the environment variable {variable}: {reason}")]
    InvalidEnvironment {
        /// Its name.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The state machine did not say what it has to.
    #[error("failed to find {0} in what the state machine passed")]
    NotAsked(&'static str),
    /// A name that no execution can have.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// The rotation asks for what cannot be selected.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// The way into the cluster.
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
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
            Self::InvalidEnvironment { .. } | Self::NotAsked(_) | Self::Name(_) => Failure::InternalError,
            Self::Input(_) => Failure::InvalidInput,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
