//! Why no rotation could be started.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;

/// Why no rotation could be started.
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
    /// The rotation asks for what cannot be selected.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// Step Functions.
    #[error(transparent)]
    Start(#[from] autoscaling::Error),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::InvalidEnvironment { .. } => Failure::InternalError,
            Self::Input(_) => Failure::InvalidInput,
            Self::Start(error) => error.failure(),
        }
    }
}
