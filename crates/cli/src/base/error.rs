//! The errors of the command line, and whether a retry may help.

use std::error::Error as StdError;

use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use recycle::base::failure::{Failure, with_causes};

use crate::base::exit::Exit;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A mistake in the command, such as a wrong value or an unknown name. Nothing was changed. One sentence.
    #[error("{0}")]
    Usage(String),
    /// The command is right, but the state of the node does not allow it, or the operator did not confirm it. Nothing was changed. One sentence.
    #[error("{0}")]
    Refused(String),
    /// The cluster could not be read. One sentence.
    #[error("{0}")]
    Unreachable(String),
    /// AWS cannot be used with these settings. One sentence, with what to type.
    #[error("{0}")]
    NoAccess(String),
    /// AWS refused a call, or could not be reached.
    #[error("failed to call {call}: {reason}")]
    Aws {
        /// The name of the call in an IAM policy.
        call: &'static str,
        /// The error code of AWS, or None if AWS did not answer.
        code: Option<String>,
        /// The answer of AWS, or why there was none.
        reason: String,
    },
    #[error("the function {function} failed: {name}: {reason}")]
    Function {
        function: String,
        /// The name of the function's error.
        name: String,
        reason: String,
    },
    /// A function's answer cannot be read by this version.
    #[error("failed to read a function's answer: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("failed to write the output")]
    Output(#[from] std::io::Error),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns from a function with [`Error::Refused`]. The arguments are those of `format!`.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err($crate::base::error::Error::Refused(format!($($text)*)))
    };
}
pub(crate) use refuse;

/// Returns from a function with [`Error::Usage`]. The arguments are those of `format!`.
macro_rules! misuse {
    ($($text:tt)*) => {
        return Err($crate::base::error::Error::Usage(format!($($text)*)))
    };
}
pub(crate) use misuse;

/// The error names of a function that Lambda itself has ended (Lambda guide, "Function errors").
const ENDED_BY_LAMBDA: [&str; 2] = ["Sandbox.Timedout", "Runtime.ExitError"];

impl Error {
    /// Converts the error of an AWS call. If there are no credentials, the reason explains how to get them.
    pub(crate) fn of<E>(call: &'static str) -> impl FnOnce(E) -> Self
    where
        E: ProvideErrorMetadata + StdError,
    {
        move |error| {
            let code = error.code().map(str::to_owned);
            let reason = match (&code, error.message()) {
                (Some(code), Some(message)) => format!("{code}: {message}"),
                (Some(code), None) => code.clone(),
                (None, _) => explain(&with_causes(&error)),
            };
            Self::Aws { call, code, reason }
        }
    }

    /// Returns the error code of AWS, or None if AWS did not answer or the error is of another kind.
    pub(crate) fn code(&self) -> Option<&str> {
        let Self::Aws { code, .. } = self else { return None };
        code.as_deref()
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Refused(_) => Exit::Refused,
            Self::Unreachable(_)
            | Self::NoAccess(_)
            | Self::Aws { .. }
            | Self::Function { .. }
            | Self::Unreadable(_)
            | Self::Output(_) => Exit::Failed,
        }
    }

    /// Whether a retry may succeed, because AWS did not answer or is busy.
    /// That includes functions that fail for this reason, or that Lambda has ended.
    pub(crate) fn is_outage(&self) -> bool {
        // Lambda calls its own failures ServiceException.
        let busy = [
            "Throttl",
            "TooManyRequests",
            "ServiceUnavailable",
            "ServiceException",
            "Internal",
        ];
        let is_busy = |code: &str| busy.iter().any(|word| code.contains(word));
        let of_functions = [Failure::ServiceUnavailable, Failure::InternalError].map(Failure::name);
        match self {
            Self::Aws { code, .. } => code.as_deref().is_none_or(is_busy),
            Self::Function { name, .. } => ENDED_BY_LAMBDA.iter().chain(&of_functions).any(|of| of == name),
            Self::Usage(_)
            | Self::Refused(_)
            | Self::Unreachable(_)
            | Self::NoAccess(_)
            | Self::Unreadable(_)
            | Self::Output(_) => false,
        }
    }

    /// Whether the reader has closed the output, as `head` does.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// The beginning of an error that has to do with credentials.
pub(crate) const NO_CREDENTIALS: &str =
    "there are no AWS credentials (log in as for the AWS CLI, or use --profile): ";

fn explain(text: &str) -> String {
    let words = ["credentials", "SSO", "token"];
    if words.iter().any(|word| text.contains(word)) {
        format!("{NO_CREDENTIALS}{text}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Option<&str>) -> Error {
        Error::Aws {
            call: "states:GetExecutionHistory",
            code: code.map(str::to_owned),
            reason: "why".to_owned(),
        }
    }

    fn failed(name: &str) -> Error {
        Error::Function {
            function: "recycle-eks-serve-operator".to_owned(),
            name: name.to_owned(),
            reason: "why".to_owned(),
        }
    }

    #[test]
    fn only_an_unanswered_or_busy_call_is_an_outage() {
        for (error, is_outage) in [
            (refused(None), true),
            (refused(Some("ThrottlingException")), true),
            (refused(Some("TooManyRequestsException")), true),
            (refused(Some("InternalServerError")), true),
            (refused(Some("AccessDeniedException")), false),
            (refused(Some("ExpiredTokenException")), false),
            (failed("ServiceUnavailable"), true),
            (failed("InternalError"), true),
            (failed("Sandbox.Timedout"), true),
            (failed("Runtime.ExitError"), true),
            (failed("ServiceRefused"), false),
            (Error::Refused("no".to_owned()), false),
        ] {
            assert_eq!(error.is_outage(), is_outage, "{error:?}");
        }
    }

    #[test]
    fn the_error_without_credentials_explains_how_to_log_in() {
        let text = explain("dispatch failure: no providers in chain provided credentials");
        assert!(
            text.starts_with("there are no AWS credentials (log in as for the AWS CLI"),
            "{text}"
        );
        assert_eq!(
            explain("dispatch failure: connection refused"),
            "dispatch failure: connection refused"
        );
    }
}
