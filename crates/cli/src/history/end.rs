//! Describes the end of an execution, and maps it to an exit code.

use recycle::report::event::End;
use serde_json::Value;

use crate::base::exit::Exit;

/// Describes an end in one sentence. If the cause is a JSON document, only its error message is shown, if there is one.
pub(crate) fn describe_end(end: &End) -> String {
    match end.reason() {
        "" => end.outcome().to_owned(),
        reason if reason.starts_with(['{', '[']) => {
            let cause: Value = serde_json::from_str(reason).unwrap_or_default();
            // Lambda guide, "Function errors".
            let text = cause["errorMessage"].as_str();
            let text = text.unwrap_or("see recycle-eks report");
            format!("{}: {text}", end.outcome())
        }
        reason => format!("{}: {reason}", end.outcome()),
    }
}

pub(crate) fn exit_of(end: &End) -> Exit {
    match (end.status.as_str(), end.outcome()) {
        ("SUCCEEDED", "duplicate" | "superseded") | (_, "ClaimLost") => Exit::Others,
        ("SUCCEEDED", _) => Exit::Done,
        (_, "InvalidInput") => Exit::Usage,
        (_, "PreflightRefused") => Exit::Refused,
        (_, "LeftInStandby" | "NodeLost") => Exit::NeedsOperator,
        _ if end.cause.contains("and RestoreNode failed with") => Exit::NeedsOperator,
        ("TIMED_OUT", _) | (_, "QueueTimedOut" | "ReplacementTimedOut" | "DrainTimedOut") => Exit::TimedOut,
        _ => Exit::Restored,
    }
}
