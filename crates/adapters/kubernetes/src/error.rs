//! The failures of calls to the API server, sorted by what the caller can do about them.

use recycle::base::failure::{Failure, NamedFailure};
use recycle::records::claim::{ClaimLost, Phase};
use recycle::records::lease::UnreadableRecord;

use crate::call::{Call, CallFailure, cut};

pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to sign in to the cluster")]
    Access(#[from] eks_auth::Error),
    /// Another client changed the object since it was read, or the object to create exists already (409).
    #[error("failed to {call}: another client changed the object at the same moment")]
    Conflict { call: String, source: Source },
    /// The API server rejected the token (401). It never says why.
    #[error(
        "failed to {call}: the cluster does not accept the token of this function; check that its role has an access entry"
    )]
    Unauthorized { call: String, source: Source },
    /// Role-based access control or an admission policy refused the call (403).
    #[error("failed to {call}: the cluster does not allow {verb} on {resource}")]
    Forbidden {
        call: String,
        verb: &'static str,
        resource: &'static str,
        source: Source,
    },
    /// The Node object is gone (404).
    #[error("failed to find the Node object {node}: it is gone")]
    NodeGone { node: String },
    /// The namespace of the Leases is missing (404 for a new Lease).
    #[error(
        "failed to create a Lease: there is no namespace {namespace}; apply the file terraform/rbac/recycle-eks.yaml"
    )]
    NoNamespace { namespace: &'static str },
    /// A continue token expired twice (410).
    #[error("failed to {call}: the list changed faster than it could be read")]
    Expired { call: String, source: Source },
    /// The API server answered, but is busy or has a failure (429, 5xx).
    #[error("failed to {call}: the API server is not available")]
    Unavailable { call: String, source: Source },
    /// No answer came, or none within the time limit.
    #[error("failed to {call}: the API server cannot be reached")]
    Unreachable { call: String, source: Source },
    /// The answer cannot be read or has an unexpected status, or the request could not be built.
    #[error("failed to {call}: the answer is not understood")]
    Unexpected { call: String, source: Source },
    /// A value cannot be written as JSON.
    #[error("failed to write the annotation {annotation}")]
    Unwritable {
        annotation: &'static str,
        source: serde_json::Error,
    },
}

impl Error {
    /// Builds the error for an answer that is incomplete or cannot be read.
    pub(crate) fn unexpected(call: Call<'_>, why: impl Into<Source>) -> Self {
        Self::Unexpected {
            call: call.to_string(),
            source: why.into(),
        }
    }

    /// Turns the failure of a call into an error. A 404 becomes [`Error::NodeGone`], because it can only mean the Node.
    /// A caller that names another kind of object handles a 404 itself.
    pub(crate) fn from_failure(call: Call<'_>, failure: CallFailure) -> Self {
        let text = call.to_string();
        let status = match failure {
            CallFailure::Status(status) => status,
            CallFailure::NoAnswer(source) => return Self::Unreachable { call: text, source },
            CallFailure::Malformed(source) => return Self::Unexpected { call: text, source },
        };
        let source = cut(&status.to_string()).into();
        match status.code {
            401 => Self::Unauthorized { call: text, source },
            403 => Self::Forbidden {
                call: text,
                verb: call.verb,
                resource: call.resource,
                source,
            },
            404 => Self::NodeGone {
                node: call.name.to_owned(),
            },
            409 => Self::Conflict { call: text, source },
            410 => Self::Expired { call: text, source },
            429 | 500..=599 => Self::Unavailable { call: text, source },
            _ => Self::Unexpected { call: text, source },
        }
    }
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Access(error) => error.failure(),
            Self::Conflict { .. }
            | Self::Unauthorized { .. }
            | Self::Expired { .. }
            | Self::Unavailable { .. }
            | Self::Unreachable { .. } => Failure::ServiceUnavailable,
            Self::Forbidden { .. } | Self::NoNamespace { .. } => Failure::ServiceRefused,
            Self::NodeGone { .. } => Failure::NodeLost,
            Self::Unexpected { .. } | Self::Unwritable { .. } => Failure::InternalError,
        }
    }
}

/// The errors of a step that needs the cluster alone.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Node(#[from] Error),
    #[error(transparent)]
    ClaimLost(#[from] ClaimLost),
    #[error(transparent)]
    Record(#[from] UnreadableRecord),
    /// A caller has left a step out, or the step found no Node, or the execution has lost its place in the queue.
    #[error(
        "the work on node {node} is in the phase {phase}, and this step comes after the phase {least}; start another execution"
    )]
    TooEarly {
        node: String,
        phase: Phase,
        least: Phase,
    },
}

impl NamedFailure for StepError {
    fn failure(&self) -> Failure {
        match self {
            Self::Node(error) => error.failure(),
            Self::ClaimLost(error) => error.failure(),
            Self::Record(_) => Failure::InternalError,
            Self::TooEarly { .. } => Failure::ServiceRefused,
        }
    }
}
