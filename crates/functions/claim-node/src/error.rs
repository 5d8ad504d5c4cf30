//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::ExecutionArn;
use recycle::claim::obstacle::Obstacle;
use recycle::input::model::InvalidInput;
use recycle::records::claim::ClaimLost;
use recycle::records::lease::UnreadableRecord;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// The node cannot be recycled as asked. The text has one line for each reason, with its name.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    QueueTimedOut(String),
    /// Another execution or the sweep took the claim while the node waited in the queue.
    #[error(transparent)]
    ClaimLost(#[from] ClaimLost),
    /// Step Functions is eventually consistent, so the execution may have just begun.
    #[error("Step Functions does not know the execution {0} (yet)")]
    UnknownExecution(ExecutionArn),
    #[error("nothing is claimed: the execution {execution} is {status}, or has another input")]
    OtherExecution { execution: ExecutionArn, status: String },
    /// A defect of pre-flight: it passed without an instance, a group or a Node.
    #[error("failed to find {0}, which pre-flight had found")]
    Incomplete(&'static str),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Instance(#[from] ec2::Error),
}

impl Error {
    pub(crate) fn refused(obstacle: Obstacle, text: impl Into<String>) -> Self {
        Self::Refused(obstacle.because(text).to_string())
    }
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::InvalidInput(_) => Failure::InvalidInput,
            Self::Refused(_) => Failure::PreflightRefused,
            Self::QueueTimedOut(_) => Failure::QueueTimedOut,
            Self::UnknownExecution(_) => Failure::ServiceUnavailable,
            Self::OtherExecution { .. } => Failure::ClaimLost,
            Self::ClaimLost(error) => error.failure(),
            Self::Incomplete(_) | Self::Record(_) => Failure::InternalError,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
