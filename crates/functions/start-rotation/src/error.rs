//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request, or the rotation that it asks for, is invalid.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// Step Functions did not start the rotation.
    #[error(transparent)]
    Start(#[from] autoscaling::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Input(_) => Failure::InvalidInput,
            Self::Start(error) => error.failure(),
        }
    }
}
