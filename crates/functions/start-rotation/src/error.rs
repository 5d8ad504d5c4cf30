//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the environment variable {0}: {1}")]
    Environment(&'static str, String),
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
            Self::Environment(..) => Failure::InternalError,
            Self::Input(_) => Failure::InvalidInput,
            Self::Start(error) => error.failure(),
        }
    }
}
