//! Decides whether an operator may move the end of a node's drain with the annotation `recycle-eks/drain-until`.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

use crate::base::ids::{ClusterName, InstanceId};
use crate::base::time::later;
use crate::cluster::instance::describe_instance;
use crate::cluster::node::NodeFacts;
use crate::input::model::{InvalidInput, LONGEST_DRAIN};
use crate::records::claim::{Claim, Phase, StoredClaim};

/// The request to move the end of a drain, which the command line sends to `serve-operator`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DrainUntil {
    pub instance_id: InstanceId,
    pub cluster_name: ClusterName,
    pub until: DrainEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum DrainEnd {
    /// At the next check of its execution.
    Now,
    At(Timestamp),
}

impl TryFrom<String> for DrainEnd {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        if text == "now" {
            return Ok(Self::Now);
        }
        text.parse().map(Self::At).map_err(|_| {
            InvalidInput(format!(
                "until must be a time such as 2027-01-31T18:00:00Z, or now, but is {text:?}"
            ))
        })
    }
}

/// The value of the annotation.
impl fmt::Display for DrainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::At(time) => time.fmt(f),
        }
    }
}

/// Returns the end that the drain gets, or an error if there is no drain whose end can be moved.
///
/// Only a claimed node has a drain, or will have one. If the instance is being disposed of, the drain is over.
/// This function does not check whether the execution still runs. If it does not, the restore removes the annotation.
pub fn judge_drain_end(
    instance: &InstanceId,
    node: Option<&NodeFacts>,
    asked: DrainEnd,
) -> Result<DrainEnd, InvalidInput> {
    let subject = describe_instance(instance, node.map(|node| &node.name));
    let refuse = |why: &str| Err(InvalidInput(format!("{subject} {why}")));
    match node.map(NodeFacts::claim) {
        None => refuse("has no Node in the cluster, so there is no drain whose end can be moved"),
        Some(None) => refuse("has no claim, so there is no drain whose end can be moved"),
        Some(Some(StoredClaim::Newer(_) | StoredClaim::Unreadable(_))) => {
            refuse("has a claim that this version cannot read")
        }
        Some(Some(StoredClaim::Known(claim))) => match claim.phase {
            // The drain has not begun, so its latest end is unknown. An end that is too late is cut when it begins.
            Phase::Claimed | Phase::Admitted | Phase::Standby => Ok(asked),
            Phase::Draining | Phase::Waiting => {
                let began_at = node.and_then(|node| find_beginning(node, &claim));
                Ok(cut_end(asked, began_at))
            }
            Phase::Disposing => refuse("is being disposed of, so its drain is over"),
        },
    }
}

/// Returns the time at which the drain began, as the Lease has it. The progress on the Node is not asked, because the node can write it.
/// An execution that goes on from the records of an earlier one keeps the time of its taint, but drains for as long as any other.
/// None if the record cannot be read: then `check-pods` cuts an end that is too late.
fn find_beginning(node: &NodeFacts, claim: &Claim) -> Option<Timestamp> {
    let tainted_at = node.record().ok()?.tainted_at?;
    Some(tainted_at.max(claim.claimed_at))
}

/// Cuts an end that is more than 30 days after the start of the drain.
fn cut_end(asked: DrainEnd, began_at: Option<Timestamp>) -> DrainEnd {
    match (asked, began_at) {
        (DrainEnd::At(end), Some(began_at)) => DrainEnd::At(end.min(later(began_at, LONGEST_DRAIN))),
        (DrainEnd::Now, _) | (DrainEnd::At(_), None) => asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_ANNOTATION, PROGRESS_ANNOTATION, RECORD_ANNOTATION};
    use crate::fixtures::{OLD, claim, id, leased, node};

    fn judged(annotation: Option<String>) -> Result<(), String> {
        let node = match annotation {
            Some(text) => leased(node("old"), [(CLAIM_ANNOTATION, &text)]),
            None => node("old"),
        };
        let judged = judge_drain_end(&id(OLD), Some(&node), DrainEnd::Now);
        judged.map(|_| ()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_running_drain_ends_at_most_30_days_after_its_start() {
        let record = r#"{"schema": 1, "tainted_at": "2027-01-01T00:00:00Z"}"#;
        // The node can write its progress.
        let progress =
            r#"{"summary": "waits", "since": "1970-01-01T00:00:00Z", "until": "1970-01-03T00:00:00Z"}"#;
        let first = "2026-12-31T23:00:00Z";
        // The claim of an execution that goes on from the records of an earlier one.
        let second = "2027-01-20T00:00:00Z";
        for (phase, claimed_at, asked, end) in [
            (
                Phase::Draining,
                first,
                "2027-01-30T00:00:00Z",
                "2027-01-30T00:00:00Z",
            ),
            (
                Phase::Draining,
                first,
                "2027-02-01T00:00:00Z",
                "2027-01-31T00:00:00Z",
            ),
            (
                Phase::Waiting,
                first,
                "2027-02-01T00:00:00Z",
                "2027-01-31T00:00:00Z",
            ),
            (
                Phase::Draining,
                second,
                "2027-02-01T00:00:00Z",
                "2027-02-01T00:00:00Z",
            ),
            (
                Phase::Draining,
                second,
                "2027-03-01T00:00:00Z",
                "2027-02-19T00:00:00Z",
            ),
            (
                Phase::Admitted,
                first,
                "2027-02-01T00:00:00Z",
                "2027-02-01T00:00:00Z",
            ),
            (Phase::Draining, first, "now", "now"),
        ] {
            let claim = Claim {
                claimed_at: claimed_at.parse().unwrap(),
                ..claim(phase)
            };
            let text = serde_json::to_string(&claim).unwrap();
            let annotations = [(CLAIM_ANNOTATION, text.as_str()), (RECORD_ANNOTATION, record)];
            let mut node = leased(node("old"), annotations);
            node.annotations
                .insert(PROGRESS_ANNOTATION.to_owned(), progress.to_owned());
            let asked = DrainEnd::try_from(asked.to_owned()).unwrap();
            let judged = judge_drain_end(&id(OLD), Some(&node), asked).unwrap();
            assert_eq!(judged.to_string(), end, "{phase} {claimed_at} {asked}");
        }
    }

    #[test]
    fn the_end_of_a_drain_moves_while_an_execution_drains_the_node_or_will_drain_it() {
        for phase in Phase::ALL {
            let text = serde_json::to_string(&claim(phase)).unwrap();
            assert_eq!(judged(Some(text)).is_ok(), phase != Phase::Disposing, "{phase}");
        }
        for (annotation, words) in [(None, "has no claim"), (Some("mine".to_owned()), "cannot read")] {
            let refusal = judged(annotation).unwrap_err();
            assert!(refusal.contains(words), "{refusal}");
        }
        let refusal = judge_drain_end(&id(OLD), None, DrainEnd::Now)
            .unwrap_err()
            .to_string();
        assert_eq!(
            refusal,
            "instance i-0aaaaaaaaaaaaaaaa has no Node in the cluster, so there is no drain whose end can be moved"
        );
    }

    #[test]
    fn an_end_is_now_or_a_time() {
        let read = |text: &str| DrainEnd::try_from(text.to_owned()).map(|end| end.to_string());
        assert_eq!(read("now").unwrap(), "now");
        assert_eq!(read("2027-01-31T18:00:00Z").unwrap(), "2027-01-31T18:00:00Z");
        assert!(read("soon").unwrap_err().to_string().contains("\"soon\""));
    }
}
