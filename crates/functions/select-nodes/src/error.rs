//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::InvalidId;
use recycle::input::model::InvalidInput;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to find {0} in the request of the state machine")]
    NotAsked(&'static str),
    /// A name that no execution can have.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// The rotation's input is invalid, or its selection is impossible.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Instance(#[from] ec2::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::NotAsked(_) | Self::Name(_) => Failure::InternalError,
            Self::Input(_) => Failure::InvalidInput,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
