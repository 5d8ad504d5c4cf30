//! Reads the execution's input and the error that led to the restore, whatever shape they are in, and writes the report.

use recycle::base::failure::Failure;
use recycle::base::ids::{ClusterName, InstanceId};
use recycle::contract::requests::{CaughtError, RestoreRequest};
use recycle::restore::manual_commands::ManualCommands;
use recycle::restore::sweep::is_by_request;
use serde_json::Value;

/// The maximum number of characters of the first error's text that an answer repeats. With the commands (at most ten, each under 500
/// characters) the
/// answer stays below 8 KB.
const LONGEST_REASON: usize = 1_500;

/// The maximum number of characters of any other reason in an answer, such as why the cluster could not be read.
pub(crate) const LONGEST_WHY: usize = 400;

/// The node that the execution was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeToRestore {
    pub(crate) instance: InstanceId,
    pub(crate) cluster: ClusterName,
}

/// Returns the node that a sweep found, or else the node of the execution.
/// None if that execution has certainly claimed nothing and has no request taint to answer.
pub(crate) fn find_node_to_restore(request: &RestoreRequest) -> Option<NodeToRestore> {
    if let Some(leftover) = request.leftover.clone() {
        return Some(NodeToRestore {
            instance: leftover.instance_id,
            cluster: leftover.cluster_name,
        });
    }
    let execution = &request.context.execution;
    let may_be_left = request.failure.as_ref().is_none_or(may_have_claimed) || is_by_request(&execution.id);
    read_node_to_restore(&execution.input).filter(|_| may_be_left)
}

/// Reads the two fields that matter; None if one is missing or malformed. In that case nothing was ever claimed.
fn read_node_to_restore(input: &Value) -> Option<NodeToRestore> {
    Some(NodeToRestore {
        instance: input.get("instance_id")?.as_str()?.parse().ok()?,
        cluster: input.get("cluster_name")?.as_str()?.parse().ok()?,
    })
}

/// Checks whether the execution may have claimed a node. An invalid input is refused before anything is read.
/// It may name a cluster that this installation has no permission to read.
fn may_have_claimed(failure: &CaughtError) -> bool {
    failure.error != Failure::InvalidInput.name()
}

/// Returns why the node is restored: the error that led here, or, in a sweep, the end of the execution that had claimed the node.
pub(crate) fn find_reason(request: &RestoreRequest) -> String {
    match (&request.failure, &request.restore.owner) {
        (Some(failure), _) => first_error(failure),
        (None, Some(owner)) => format!("{} no longer runs ({})", owner.execution, owner.status),
        (None, None) => "no execution works on it".to_owned(),
    }
}

/// Returns the reason of an execution that has touched nothing.
/// For an error that is raised before anything is touched, the text adds that the node is untouched.
/// Another error may have come after another execution had touched the node.
pub(crate) fn find_reason_of_untouched(request: &RestoreRequest) -> String {
    let reason = find_reason(request);
    let touches_nothing = [
        Failure::InvalidInput,
        Failure::PreflightRefused,
        Failure::QueueTimedOut,
    ];
    let has_ended_by =
        |failure: Failure| matches!(&request.failure, Some(caught) if caught.error == failure.name());
    if touches_nothing.into_iter().any(has_ended_by) {
        format!("{reason}\nThe node is untouched.")
    } else {
        reason
    }
}

/// Returns the reason with the first error's name, for an execution that ends under another name.
pub(crate) fn name_reason(request: &RestoreRequest) -> String {
    let reason = find_reason(request);
    match &request.failure {
        Some(failure) => format!("{}: {reason}", failure.error),
        None => reason,
    }
}

/// Returns the text of the error that led here. A function's text comes wrapped in JSON. Others, such as a time-out's, come as they are.
fn first_error(failure: &CaughtError) -> String {
    let wrapped = serde_json::from_str::<Value>(&failure.cause).unwrap_or_default();
    let text = wrapped["errorMessage"].as_str().unwrap_or(&failure.cause);
    let text = if text.is_empty() { &failure.error } else { text };
    text.chars().take(LONGEST_REASON).collect()
}

/// Report about a node at the end of its restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// The reason, and the state of the node.
    pub(crate) text: String,
    /// Instructions for an operator: a sentence, then the commands, one a line. Empty if there is nothing to do.
    pub(crate) what_to_do: Vec<String>,
}

impl From<String> for Report {
    fn from(text: String) -> Self {
        let what_to_do = Vec::new();
        Self { text, what_to_do }
    }
}

impl Report {
    pub(crate) fn to_text(&self) -> String {
        let lines = std::iter::once(&self.text).chain(&self.what_to_do);
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Writes sentences about the members that stay protected from scale-in. No sweep finds those in `unrecorded`.
pub(crate) fn describe_protected(protected: &[InstanceId], unrecorded: &[InstanceId]) -> String {
    let mut text = String::new();
    let recorded = protected.iter().filter(|id| !unrecorded.contains(id)).count();
    if recorded > 0 {
        let members = if recorded == 1 { "member" } else { "members" };
        text = format!(" A later sweep removes the scale-in protection of {recorded} {members}.");
    }
    if !unrecorded.is_empty() {
        let ids: Vec<&str> = unrecorded.iter().map(InstanceId::as_str).collect();
        let found = format!("no record names {}, so no sweep does it", ids.join(", "));
        text = format!("{text} Remove the scale-in protection by hand: {found}.");
    }
    text
}

/// Writes the report: the first error, what was done (a sentence, or nothing), the node's state, and the commands, one a line.
/// `cluster_error` is the reason why the cluster could not be read.
pub(crate) fn write_report(
    reason: &str,
    done: &str,
    manual: &ManualCommands,
    cluster_error: Option<&str>,
) -> Report {
    let state = match (manual.is_lost, done.is_empty()) {
        (true, _) => format!("Now {}.", manual.state),
        (false, true) => format!("The node was kept: {}.", manual.state),
        (false, false) => format!("{done} Now {}.", manual.state),
    };
    let mut report = Report::from(format!("{reason}\n{state}"));
    if let Some(why) = cluster_error {
        let why: String = why.chars().take(LONGEST_WHY).collect();
        report.text += &format!(
            "\nIts Node object cannot be read now ({why}). Once the cluster answers, the next sweep restores it."
        );
    }
    if !manual.commands.is_empty() {
        let heading = if manual.is_lost {
            "To end it:"
        } else if manual.can_be_resumed && cluster_error.is_none() {
            "To go on, start another execution: it resumes. To restore the node instead:"
        } else {
            "To restore the node:"
        };
        report.what_to_do.push(heading.to_owned());
        report.what_to_do.extend(manual.commands.iter().cloned());
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_no_record_names_are_left_to_an_operator() {
        let [one, two]: [InstanceId; 2] =
            ["i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"].map(|id| id.parse().unwrap());
        assert_eq!(describe_protected(&[], &[]), "");
        assert_eq!(
            describe_protected(&[one, two.clone()], &[two]),
            " A later sweep removes the scale-in protection of 1 member. Remove the scale-in protection by hand: no record names \
             i-0bbbbbbbbbbbbbbbb, so no sweep does it."
        );
    }

    fn caught(error: &str, cause: &str) -> CaughtError {
        CaughtError {
            error: error.to_owned(),
            cause: cause.to_owned(),
        }
    }

    #[test]
    fn the_error_of_a_function_is_unwrapped() {
        let cause = json!({"errorType": "DrainTimedOut", "errorMessage": "two pods are left", "trace": []})
            .to_string();
        assert_eq!(first_error(&caught("DrainTimedOut", &cause)), "two pods are left");
    }

    #[test]
    fn any_other_error_is_reported_unchanged() {
        let cases = [
            ("States.Timeout", "", "States.Timeout"),
            ("InternalError", "unknown verdict: x", "unknown verdict: x"),
            ("Lambda.Unknown", r#"{"other": 1}"#, r#"{"other": 1}"#),
        ];
        for (error, cause, expected) in cases {
            assert_eq!(first_error(&caught(error, cause)), expected);
        }
    }

    #[test]
    fn a_report_stays_below_8_kilobytes() {
        let reason = first_error(&caught("InternalError", &"x".repeat(100_000)));
        let left = ManualCommands {
            state: "s".repeat(1_000),
            commands: vec!["c".repeat(500); 10],
            can_be_resumed: true,
            is_lost: false,
        };
        for unseen in [None, Some("w".repeat(100_000))] {
            let report = write_report(&reason, "", &left, unseen.as_deref()).to_text();
            assert!(report.len() < 8_500, "{}", report.len());
        }
    }

    #[test]
    fn a_report_mentions_another_execution_only_if_it_can_resume() {
        let left = |can_be_resumed| ManualCommands {
            state: "it is Standby".to_owned(),
            commands: vec!["undo".to_owned()],
            can_be_resumed,
            is_lost: false,
        };
        let goes_on = write_report("oh", "", &left(true), None).to_text();
        assert_eq!(
            goes_on,
            "oh\nThe node was kept: it is Standby.\nTo go on, start another execution: it resumes. To restore the node \
             instead:\nundo"
        );
        let ends_here = write_report("oh", "", &left(false), None).to_text();
        assert_eq!(
            ends_here,
            "oh\nThe node was kept: it is Standby.\nTo restore the node:\nundo"
        );
        let unseen = write_report("oh", "", &left(false), Some("connection refused")).to_text();
        assert!(unseen.contains("(connection refused)"), "{unseen}");
        assert!(
            unseen.contains("Once the cluster answers, the next sweep"),
            "{unseen}"
        );
        assert!(unseen.ends_with("undo"), "{unseen}");
    }

    #[test]
    fn only_the_fields_that_are_needed_are_read_from_the_input() {
        let good = json!({"instance_id": "i-0123456789abcdef0", "cluster_name": "world", "evict": 7});
        assert!(read_node_to_restore(&good).is_some());
        for bad in [
            json!(null),
            json!([]),
            json!({"instance_id": "i-0123456789abcdef0"}),
            json!({"instance_id": "i-1", "cluster_name": "world"}),
            json!({"instance_id": 1, "cluster_name": "world"}),
        ] {
            assert_eq!(read_node_to_restore(&bad), None, "{bad}");
        }
    }

    #[test]
    fn only_an_invalid_input_is_certain_to_have_claimed_nothing() {
        for failure in Failure::ALL {
            let expected = failure != Failure::InvalidInput;
            assert_eq!(
                may_have_claimed(&caught(failure.name(), "")),
                expected,
                "{failure:?}"
            );
        }
    }
}
