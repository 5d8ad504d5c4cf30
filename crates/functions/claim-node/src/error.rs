//! Why a node is not claimed.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::input::model::InvalidInput;
use recycle::records::claim::ClaimLost;
use recycle::records::node_record::UnreadableRecord;

/// Why a node is not claimed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the function's environment.
    #[error("failed to read the environment variable {variable}: {reason}")]
    InvalidEnvironment {
        /// Its name.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The execution's input.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// The node cannot be recycled as asked; every reason with its name, one a line.
    #[error("{0}")]
    Refused(String),
    /// Its turn did not come.
    #[error("{0}")]
    TurnTimedOut(String),
    /// While it waited for its turn, the claim was taken away.
    #[error(transparent)]
    ClaimLost(#[from] ClaimLost),
    /// Pre-flight let something pass without an instance, a group or a Node.
    #[error("failed to find what pre-flight had found: {0}")]
    Incomplete(&'static str),
    /// Somebody edited our record.
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
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
            Self::InvalidInput(_) => Failure::InvalidInput,
            Self::Refused(_) => Failure::PreflightRefused,
            Self::TurnTimedOut(_) => Failure::TurnTimedOut,
            Self::ClaimLost(error) => error.failure(),
            Self::InvalidEnvironment { .. } | Self::Incomplete(_) | Self::Record(_) => Failure::InternalError,
            Self::Access(error) => error.failure(),
            Self::Node(error) => error.failure(),
            Self::Instance(error) => error.failure(),
        }
    }
}
