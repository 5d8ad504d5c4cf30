//! Describes the end of an execution, and maps it to an exit code.

use recycle::input::fields::FIELDS;
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

/// Lists the settings that a refusal advises, as flags. None if it advises none.
/// The refusal names them as the input has them, such as `set replacement "after"` or `set override ["last_target"]`.
pub(crate) fn describe_flags(end: &End) -> Option<String> {
    if exit_of(end) != Exit::Refused {
        return None;
    }
    let parts: Vec<&str> = end.reason().split('"').collect();
    let flags = parts.chunks_exact(2).filter_map(|pair| {
        let [before, value] = pair else { return None };
        let mut words = before.trim_end_matches(['[', ' ']).rsplit(' ');
        let (field, verb) = (words.next()?, words.next()?);
        let is_field = FIELDS.iter().any(|known| known.name == field);
        (is_field && matches!(verb, "set" | "with")).then(|| format!("--{} {value}", field.replace('_', "-")))
    });
    let flags: Vec<String> = flags.collect();
    (!flags.is_empty()).then(|| format!("as flags: {}", flags.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_a_refusal_advises_are_named_as_flags() {
        for (error, cause, expected) in [
            (
                "PreflightRefused",
                "no room; set replacement \"after\", or set override [\"last_target\"]",
                Some("as flags: --replacement after, --override last_target"),
            ),
            (
                "PreflightRefused",
                "set replacement \"surge\" with dispose \"terminate\"",
                Some("as flags: --replacement surge, --dispose terminate"),
            ),
            ("PreflightRefused", "the group \"a\" is gone", None),
            ("PreflightRefused", "replacement \"surge\" needs one more", None),
            ("DrainTimedOut", "set replacement \"after\"", None),
        ] {
            let end = End {
                status: "FAILED".to_owned(),
                error: error.to_owned(),
                cause: cause.to_owned(),
                ..End::default()
            };
            assert_eq!(describe_flags(&end).as_deref(), expected, "{cause}");
        }
    }
}
