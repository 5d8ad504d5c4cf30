//! The public names of outcomes and failures. `ErrorEquals` in the ASL matches them, and users search for them, so they are API.
//!
//! The ASL decides which state ends with which name.

use std::error::Error;

use crate::base::named::named;

named! {
    /// The reason why an execution ends FAILED, or why a step is tried again.
    pub enum Failure {
        /// The input is wrong; nothing was touched.
        InvalidInput = "InvalidInput",
        /// The node cannot be recycled as asked; nothing was touched.
        PreflightRefused = "PreflightRefused",
        /// The node was not admitted within 24 hours; nothing was touched.
        QueueTimedOut = "QueueTimedOut",
        /// The node was lost while the execution worked on it.
        /// Its Node object or its instance is gone, or it has not been Ready for `node_lost_after`.
        NodeLost = "NodeLost",
        /// No usable replacement came in time.
        ReplacementTimedOut = "ReplacementTimedOut",
        /// The pods did not go in time.
        DrainTimedOut = "DrainTimedOut",
        /// The group's limits do not allow the instance to leave Standby.
        LeftInStandby = "LeftInStandby",
        /// The execution no longer holds the node; nothing was done.
        ClaimLost = "ClaimLost",
        /// A more urgent execution has taken the node over; nothing was done. The machine ends with [`Outcome::Superseded`].
        Superseded = "Superseded",
        /// AWS or Kubernetes is busy, throttles or cannot be reached; the state machine tries again.
        ServiceUnavailable = "ServiceUnavailable",
        /// AWS or Kubernetes refused a call that should have been allowed, such as for a missing permission.
        ServiceRefused = "ServiceRefused",
        /// A fault of recycle-eks: an answer that it did not understand, or a record that it cannot have written.
        InternalError = "InternalError",
    }
}

impl Failure {
    /// Checks whether an execution ends FAILED under this name. A superseded execution has nothing left to do, and ends SUCCEEDED.
    pub fn ends_failed(self) -> bool {
        self != Self::Superseded
    }

    /// Describes the state in which the node is left, for the documentation.
    pub fn describe_node(self) -> &'static str {
        match self {
            Self::InvalidInput | Self::PreflightRefused => "untouched",
            Self::QueueTimedOut => {
                "untouched, because the queue of its group did not admit it within 24 hours"
            }
            Self::NodeLost => {
                "disposed of by its group, because its Node object or its instance is gone, or it has not been Ready for `node_lost_after`; the cause names the pods that were lost"
            }
            Self::ReplacementTimedOut => {
                "restored, or still drained if its replacement was lost during the drain; with `replacement: after`, the node is gone and \
                 its place in the group is still empty"
            }
            Self::DrainTimedOut => {
                "restored; on the hook path it keeps its taint, and its group retains it (`retain`) or terminates it"
            }
            Self::LeftInStandby => {
                "in Standby, untainted, because its group's limits do not allow the restore, or AWS refused it for half an hour; the cause has \
                 the first error and the manual commands"
            }
            Self::ClaimLost => "left as it is, because the execution no longer holds its claim",
            Self::Superseded => Outcome::Superseded.describe_node(),
            Self::ServiceUnavailable => {
                "restored as far as possible, because AWS or Kubernetes could not be reached for too long"
            }
            Self::ServiceRefused => {
                "restored, because AWS or Kubernetes refused a call that should have been allowed, or because an operator or another tool \
                 removed the taint or took the instance out of its group. If the restore was also refused, the cause describes the node"
            }
            Self::InternalError => "restored, because recycle-eks has a defect",
        }
    }
}

named! {
    /// The result of an execution that ends SUCCEEDED: the field `outcome` of its output.
    pub enum Outcome {
        Recycled = "recycled",
        /// There was nothing to do.
        AlreadyGone = "already_gone",
        /// The lifecycle hook of recycle-eks held an instance that has no pods to wait for.
        Released = "released",
        /// A dry run.
        Planned = "planned",
        /// Another execution works on the node.
        Duplicate = "duplicate",
        /// A more urgent execution took the node over.
        Superseded = "superseded",
    }
}

impl Outcome {
    pub fn describe_node(self) -> &'static str {
        match self {
            Self::Recycled => "gone, or stopped or detached as `dispose` says",
            Self::AlreadyGone => "gone before the execution began",
            Self::Released => {
                "leaving: its lifecycle hook was completed at once, because it goes to the warm pool of its group or was never a node of the cluster"
            }
            Self::Planned => "untouched (dry run); the plan is in the output",
            Self::Duplicate => "held by another execution",
            Self::Superseded => "held by a more urgent execution, which has taken it over",
        }
    }
}

/// An error that knows the public name under which the state machine sees it.
pub trait NamedFailure: Error {
    fn failure(&self) -> Failure;
}

/// Returns an error with all its causes in one line: `failed to taint node a: failed to reach …: connection refused`.
pub fn with_causes(error: &dyn Error) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<String> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to taint node a")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("failed to reach the cluster")]
    struct Inner(#[source] std::fmt::Error);

    #[test]
    fn an_error_is_written_with_all_its_causes() {
        let error = Outer(Inner(std::fmt::Error));
        assert!(
            with_causes(&error).starts_with("failed to taint node a: failed to reach the cluster: "),
            "{}",
            with_causes(&error)
        );
    }

    #[test]
    fn a_superseded_execution_has_not_failed() {
        let ends: Vec<Failure> = Failure::ALL
            .into_iter()
            .filter(|failure| !failure.ends_failed())
            .collect();
        assert_eq!(ends, [Failure::Superseded]);
    }

    #[test]
    fn names_are_written_as_they_are() {
        for failure in Failure::ALL {
            assert_eq!(format!("{failure:?}"), failure.name());
            assert_eq!(serde_json::to_value(failure).unwrap(), failure.name());
        }
        assert_eq!(
            serde_json::to_value(Outcome::ALL).unwrap(),
            serde_json::json!([
                "recycled",
                "already_gone",
                "released",
                "planned",
                "duplicate",
                "superseded"
            ])
        );
    }
}
