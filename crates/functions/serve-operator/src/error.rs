//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is refused, for example because the node has no drain whose end could be moved.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Aws(#[from] ec2::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Input(_) => Failure::InvalidInput,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Aws(error) => error.failure(),
        }
    }
}
