//! The failures of calls to AWS, sorted by what the caller can do about them.

use aws_sdk_autoscaling::error::{ProvideErrorMetadata, SdkError};
use recycle::base::failure::{Failure, NamedFailure, with_causes};

use crate::whole::NotWhole;

/// A failed call to AWS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// AWS throttles the call, fails or cannot be reached, or the group is busy. Another attempt may succeed.
    #[error("failed to call {call} because AWS is busy or cannot be reached")]
    Unavailable {
        /// The IAM action, such as `ec2:DescribeInstances`.
        call: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The function's role lacks the action.
    #[error("failed to call {call} because the role of this function lacks the permission")]
    Denied { call: &'static str, source: Reply },
    /// The state of the instance does not allow the call. The call may have succeeded before, so read the state again and decide.
    #[error("failed to call {call}: the state of the instance does not allow it")]
    WrongState { call: &'static str, source: Reply },
    /// AWS refuses the call for another reason.
    #[error("failed to call {call}")]
    Refused { call: &'static str, source: Reply },
    /// The SDK could not build the request, or the answer cannot be read or lacks a needed value. This counts as an internal error.
    #[error("failed to make sense of {call}: {what}")]
    Unintelligible { call: &'static str, what: String },
}

/// The code and the message of an AWS error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Reply {
    /// The error code, such as `ValidationError`.
    pub code: String,
    pub message: String,
}

/// The error codes of calls that are worth another attempt. With ScalingActivityInProgress and ResourceContention, the group is busy with
/// something else for a moment.
const BUSY: [&str; 14] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "SlowDown",
    "ScalingActivityInProgress",
    "ResourceContention",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
];

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Unavailable { .. } => Failure::ServiceUnavailable,
            Self::Denied { .. } | Self::WrongState { .. } | Self::Refused { .. } => Failure::ServiceRefused,
            Self::Unintelligible { .. } => Failure::InternalError,
        }
    }
}

impl Error {
    /// Builds the error for an answer that lacks a needed value.
    pub fn unintelligible(call: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Unintelligible { call, what }
    }

    /// Returns AWS's error code if AWS refused the call. None for a failure that is worth another attempt, even if AWS gave it a code.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Denied { source, .. } | Self::WrongState { source, .. } | Self::Refused { source, .. } => {
                Some(&source.code)
            }
            Self::Unavailable { .. } | Self::Unintelligible { .. } => None,
        }
    }

    /// Sorts the error that the SDK returned for `call`. It fits every service, because the errors of all SDKs have the same shape.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's enum is open; every other variant is a way not to arrive"
    )]
    pub fn from_sdk<E>(call: &'static str, error: SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let status = error
            .raw_response()
            .map_or(0, |response| response.status().as_u16());
        if let Some(missing) = find_missing(&error) {
            return Self::unintelligible(call, missing.to_string());
        }
        match error {
            SdkError::ServiceError(answer) if status < 300 => {
                Self::unintelligible(call, with_causes(answer.err()))
            }
            SdkError::ServiceError(answer) => Self::from_reply(call, status, Reply::of(answer.err())),
            SdkError::ConstructionFailure(_) => Self::unintelligible(call, with_causes(&error)),
            other => Self::Unavailable {
                call,
                source: Box::new(other),
            },
        }
    }

    fn from_reply(call: &'static str, status: u16, reply: Reply) -> Self {
        match reply.code.as_str() {
            code if status >= 500 || status == 429 || BUSY.contains(&code) => Self::Unavailable {
                call,
                source: reply.into(),
            },
            "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" | "AuthFailure" => {
                Self::Denied { call, source: reply }
            }
            // Auto Scaling answers ValidationError, and EC2 answers IncorrectInstanceState.
            "ValidationError" | "IncorrectInstanceState" => Self::WrongState { call, source: reply },
            _ => Self::Refused { call, source: reply },
        }
    }
}

/// Finds what the answer lacks, if that is the cause of the error.
fn find_missing<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a NotWhole> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|cause| cause.downcast_ref())
}

impl Reply {
    fn of(error: &(impl ProvideErrorMetadata + std::error::Error)) -> Self {
        Self {
            code: error.code().unwrap_or("no error code").to_owned(),
            message: error.message().map_or_else(|| with_causes(error), str::to_owned),
        }
    }
}
