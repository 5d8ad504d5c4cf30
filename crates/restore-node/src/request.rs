//! What can be read from the execution's input and from the error that led here, whatever shape they are in.

use recycle::contract::CaughtError;
use recycle::failure::Failure;
use recycle::ids::{ClusterName, InstanceId};
use recycle::left_behind::LeftBehind;
use serde_json::Value;

/// Characters of the first error's text that are told again. With the commands (at most six, each under 600 characters) the
/// answer stays below 8 KB.
const LONGEST_REASON: usize = 3_000;

/// Which node the execution was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) instance: InstanceId,
    pub(crate) cluster: ClusterName,
}

/// Reads the two fields that matter; none if one is missing or malformed, in which case nothing was ever claimed.
pub(crate) fn read_subject(input: &Value) -> Option<Subject> {
    Some(Subject {
        instance: input.get("instance_id")?.as_str()?.parse().ok()?,
        cluster: input.get("cluster_name")?.as_str()?.parse().ok()?,
    })
}

/// An invalid input is refused before anything is read. It may name a cluster that we may not even ask about.
pub(crate) fn may_have_claimed(failure: &CaughtError) -> bool {
    failure.error != Failure::InvalidInput.name()
}

/// The text of the error that led here. A function's comes wrapped in JSON; others, such as a time-out's, come as they are.
pub(crate) fn first_error(failure: &CaughtError) -> String {
    let wrapped = serde_json::from_str::<Value>(&failure.cause).ok();
    let message = wrapped
        .as_ref()
        .and_then(|cause| cause.get("errorMessage"))
        .and_then(Value::as_str);
    let text = message.unwrap_or(&failure.cause);
    let text = if text.is_empty() {
        failure.error.as_str()
    } else {
        text
    };
    text.chars().take(LONGEST_REASON).collect()
}

/// The first error, then the node's state, then the commands, one a line.
pub(crate) fn write_report(reason: &str, left: &LeftBehind) -> String {
    let mut lines = vec![reason.to_owned(), format!("The node was kept: {}.", left.state)];
    if !left.commands.is_empty() {
        lines.push("To go on, start another execution: it resumes. To put the node back instead:".to_owned());
        lines.extend(left.commands.iter().cloned());
    }
    lines.join("\n")
}
