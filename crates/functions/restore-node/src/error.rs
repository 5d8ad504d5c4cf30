//! The errors of this function.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::ExecutionArn;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    /// Another execution took the claim during the restore.
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Instance(#[from] ec2::Error),
    #[error(transparent)]
    GroupChange(#[from] recycle::records::restore_log::UnreadableGroupChange),
    /// A call was refused until the time was over. The text describes the node's state.
    #[error("{0}")]
    Left(String, #[source] Box<Error>),
    /// Step Functions is eventually consistent, so the execution may have just begun.
    #[error("Step Functions does not know the execution {0} (yet)")]
    UnknownExecution(ExecutionArn),
    #[error("nothing is claimed: the execution {execution} is {status}, or is no sweep")]
    OtherExecution { execution: ExecutionArn, status: String },
    /// A step on the group was decided, but no group is known. That is a defect, since such a step is decided from the group.
    #[error("{0}")]
    NoGroup(String),
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::ClaimLost(error) => error.failure(),
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
            Self::Left(_, error) => error.failure(),
            Self::UnknownExecution(_) => Failure::ServiceUnavailable,
            Self::OtherExecution { .. } => Failure::ClaimLost,
            Self::GroupChange(_) | Self::NoGroup(_) => Failure::InternalError,
        }
    }
}
