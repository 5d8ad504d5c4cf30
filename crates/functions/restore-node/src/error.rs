//! Why a node could not be put back.

use recycle::base::failure::{Failure, NamedFailure};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Access(#[from] eks_auth::Error),
    /// Another execution took the claim while this one released it.
    #[error(transparent)]
    ClaimLost(#[from] recycle::records::claim::ClaimLost),
    #[error(transparent)]
    Node(#[from] kubernetes::Error),
    #[error(transparent)]
    Instance(#[from] ec2::Error),
    #[error(transparent)]
    Deed(#[from] recycle::records::restore_log::UnreadableDeed),
    /// A call was refused until there was no patience left. The text says how the node is.
    #[error("{0}")]
    Left(String, #[source] Box<Error>),
    /// A step of a group without the group: what is decided for one is done to one.
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
            Self::Deed(_) | Self::NoGroup(_) => Failure::InternalError,
        }
    }
}
