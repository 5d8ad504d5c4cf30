//! Builds the metrics of the dashboard and of the alarms, in CloudWatch's embedded metric format.
//!
//! A function writes them as lines of its log, so it needs no permission and no call for them. No metric has a dimension for the node.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::base::failure::{Failure, Outcome};
use crate::base::time::later;
use crate::claim::queue::LONGEST_QUEUE_WAIT;
use crate::cluster::node::NodeFacts;
use crate::contract::run::Run;
use crate::contract::verdicts::RestoreVerdict;
use crate::records::claim::StoredClaim;
use crate::records::lease::Lease;

const NAMESPACE: &str = "recycle-eks";

/// Seconds that a claim may outlast its drain. Balancers and volumes take an hour and some minutes at most.
/// The check that ends the drain may be an hour late.
const PATIENCE: i64 = 3 * 3_600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    /// An execution has ended with this outcome or error name.
    Ended(String),
    /// Duration of a recycled node's drain, in seconds.
    DrainSeconds(i64),
    /// Number of pods of one node that cannot be evicted now.
    BlockedPods(u32),
    Restore,
    /// From now on a node needs an operator.
    ManualCommands,
    /// Number of claimed nodes that a sweep sees.
    ClaimedNodes(u32),
    /// Number of those nodes that have been claimed for longer than their drain may take.
    OverdueClaims(u32),
}

impl Metric {
    /// Returns the metric's name in CloudWatch, its unit, and its value.
    fn describe(&self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Ended(_) => ("Executions", "Count", 1),
            Self::DrainSeconds(seconds) => ("DrainSeconds", "Seconds", *seconds),
            Self::BlockedPods(pods) => ("BlockedPods", "Count", i64::from(*pods)),
            Self::Restore => ("Restores", "Count", 1),
            Self::ManualCommands => ("ManualCommands", "Count", 1),
            Self::ClaimedNodes(nodes) => ("ClaimedNodes", "Count", i64::from(*nodes)),
            Self::OverdueClaims(claims) => ("OverdueClaims", "Count", i64::from(*claims)),
        }
    }

    /// Renders one line of the embedded metric format (CloudWatch user guide, "Embedded metric format specification").
    pub fn render(&self, cluster: &str, at: Timestamp) -> Value {
        let (name, unit, value) = self.describe();
        let mut line = json!({
            "_aws": {
                "Timestamp": at.as_millisecond(),
                "CloudWatchMetrics": [{
                    "Namespace": NAMESPACE, "Dimensions": [["cluster"]], "Metrics": [{"Name": name, "Unit": unit}],
                }],
            },
            "cluster": cluster,
            name: value,
        });
        if let Self::Ended(outcome) = self {
            line["outcome"] = json!(outcome);
            line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] = json!([["cluster"], ["cluster", "outcome"]]);
        }
        line
    }
}

/// Returns the metric of an execution's end if the verdict is an outcome, because an outcome ends the execution.
pub fn measure_verdict(verdict: &str) -> Option<Metric> {
    let is_outcome = Outcome::ALL.iter().any(|outcome| outcome.name() == verdict);
    is_outcome.then(|| Metric::Ended(verdict.to_owned()))
}

/// Returns the metric of an execution's end for `ClaimLost` and `Superseded`, after which the execution does nothing more.
/// All other errors of `recycle-node` lead to a restore, which ends the execution.
pub fn measure_failure(error: &str) -> Option<Metric> {
    if error == Failure::ClaimLost.name() {
        return Some(Metric::Ended(Failure::ClaimLost.name().to_owned()));
    }
    (error == Failure::Superseded.name()).then(|| Metric::Ended(Outcome::Superseded.name().to_owned()))
}

pub fn measure_drain(run: &Run) -> Option<Metric> {
    let (began, ended) = (run.drain.draining_since?, run.disposing_since?);
    Some(Metric::DrainSeconds(ended.duration_since(began).as_secs()))
}

/// Returns the metrics of a restore's end: how the execution ended, and what became of the node. `error` is the error of the execution that
/// the restore ends. It is None in a sweep, which ends no execution.
pub fn measure_restore(verdict: RestoreVerdict, error: Option<&str>) -> Vec<Metric> {
    let (ended, restored) = match verdict {
        RestoreVerdict::Wait | RestoreVerdict::Start | RestoreVerdict::Unmarked => return Vec::new(),
        RestoreVerdict::Untouched => (error, None),
        RestoreVerdict::Restored => (error, Some(Metric::Restore)),
        RestoreVerdict::Kept => (error, Some(Metric::ManualCommands)),
        RestoreVerdict::LeftInStandby => (
            error.map(|_| Failure::LeftInStandby.name()),
            Some(Metric::ManualCommands),
        ),
    };
    let ended = ended.map(|name| Metric::Ended(name.to_owned()));
    ended.into_iter().chain(restored).collect()
}

/// Counts the claims that a sweep sees, and those that are overdue.
pub fn measure_claims(nodes: &[NodeFacts], leases: &[Lease], now: Timestamp) -> [Metric; 2] {
    let node_of = |lease: &Lease| {
        nodes
            .iter()
            .find(|node| node.instance.as_ref() == Some(&lease.instance))
    };
    let claimed: Vec<&Lease> = leases.iter().filter(|lease| lease.claim().is_some()).collect();
    let overdue = claimed
        .iter()
        .filter(|lease| is_overdue(lease, node_of(lease), now))
        .count();
    let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
    let (claimed, overdue) = (count(claimed.len()), count(overdue));
    [Metric::ClaimedNodes(claimed), Metric::OverdueClaims(overdue)]
}

/// Checks whether a claim has outlasted the end of its drain by more than [`PATIENCE`]. The Node's progress names that end.
/// Without progress, the drain should have begun [`LONGEST_QUEUE_WAIT`] after the claim.
fn is_overdue(lease: &Lease, node: Option<&NodeFacts>, now: Timestamp) -> bool {
    let progress = node.and_then(NodeFacts::progress);
    let claim = lease.claim().and_then(StoredClaim::known);
    let end_of_queue = claim.map(|claim| later(claim.claimed_at, LONGEST_QUEUE_WAIT));
    let due = progress.map(|progress| progress.until).or(end_of_queue);
    due.is_some_and(|due| now.duration_since(due).as_secs() > PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_ANNOTATION, PROGRESS_ANNOTATION};
    use crate::fixtures::{NEW, OLD, OTHER, at, claim, claimed, id, input, leased, leases, node};
    use crate::input::path::RecyclePath;
    use crate::records::claim::{Claim, Phase};
    use crate::records::node_record::Record;
    use crate::records::progress::Progress;

    #[test]
    fn a_line_has_the_embedded_metric_format() {
        assert_eq!(
            Metric::Ended("recycled".to_owned()).render("prod", at(1)),
            json!({
                "_aws": {"Timestamp": 1_798_761_601_000_i64, "CloudWatchMetrics": [{
                    "Namespace": "recycle-eks", "Dimensions": [["cluster"], ["cluster", "outcome"]],
                    "Metrics": [{"Name": "Executions", "Unit": "Count"}],
                }]},
                "cluster": "prod", "outcome": "recycled", "Executions": 1,
            })
        );
        let line = Metric::DrainSeconds(72_000).render("prod", at(1));
        assert_eq!(line["DrainSeconds"], 72_000);
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"][0]["Dimensions"],
            json!([["cluster"]])
        );
    }

    #[test]
    fn a_restore_is_counted_by_its_verdict_and_the_execution_by_its_error() {
        use RestoreVerdict::{Kept, LeftInStandby, Restored, Untouched, Wait};
        let ended = |name: &str| Metric::Ended(name.to_owned());
        let cases = [
            (Wait, Some("DrainTimedOut"), vec![]),
            (Untouched, None, vec![]),
            (
                Untouched,
                Some("PreflightRefused"),
                vec![ended("PreflightRefused")],
            ),
            (Restored, None, vec![Metric::Restore]),
            (
                Restored,
                Some("DrainTimedOut"),
                vec![ended("DrainTimedOut"), Metric::Restore],
            ),
            (
                Kept,
                Some("NodeLost"),
                vec![ended("NodeLost"), Metric::ManualCommands],
            ),
            (
                LeftInStandby,
                Some("DrainTimedOut"),
                vec![ended("LeftInStandby"), Metric::ManualCommands],
            ),
            (LeftInStandby, None, vec![Metric::ManualCommands]),
        ];
        for (verdict, error, expected) in cases {
            assert_eq!(measure_restore(verdict, error), expected, "{verdict:?} {error:?}");
        }
    }

    #[test]
    fn the_end_of_an_execution_is_counted_once_by_its_name() {
        let name = |metric: Option<Metric>| match metric {
            Some(Metric::Ended(name)) => Some(name),
            other => {
                assert_eq!(other, None);
                None
            }
        };
        let verdicts = [
            ("recycled", Some("recycled")),
            ("duplicate", Some("duplicate")),
            ("wait", None),
        ];
        for (verdict, expected) in verdicts {
            assert_eq!(name(measure_verdict(verdict)).as_deref(), expected, "{verdict}");
        }
        let failures = [
            ("ClaimLost", Some("ClaimLost")),
            ("Superseded", Some("superseded")),
            ("DrainTimedOut", None),
            ("ServiceUnavailable", None),
        ];
        for (failure, expected) in failures {
            assert_eq!(name(measure_failure(failure)).as_deref(), expected, "{failure}");
        }
    }

    #[test]
    fn a_claim_is_overdue_three_hours_after_its_drain_or_the_longest_wait_in_the_queue() {
        let record = Record::default();
        let queued = claimed(node("a"), Phase::Claimed, &record);
        let mut draining = claimed(node("b"), Phase::Draining, &record);
        let progress = Progress::new("x".to_owned(), at(0), at(1_000));
        let text = serde_json::to_string(&progress).unwrap();
        draining.annotations.insert(PROGRESS_ANNOTATION.to_owned(), text);
        draining.lease.as_mut().unwrap().instance = id(NEW);
        draining.instance = Some(id(NEW));
        let nodes = [node("c"), queued, draining];
        let cases = [
            (0, 0),
            (1_000 + PATIENCE, 0),
            (1_001 + PATIENCE, 1),
            (i64::from(LONGEST_QUEUE_WAIT) + PATIENCE + 1, 2),
        ];
        for (now, overdue) in cases {
            assert_eq!(
                measure_claims(&nodes, &leases(&nodes), at(now)),
                [Metric::ClaimedNodes(2), Metric::OverdueClaims(overdue)],
                "{now}"
            );
        }
    }

    #[test]
    fn the_length_of_a_drain_is_measured_when_the_disposal_begins() {
        let (group, node) = ("workers".parse().unwrap(), "old".parse().unwrap());
        let mut run = Run::new(input(json!({})), RecyclePath::Before, group, node, at(0));
        run.drain.draining_since = Some(at(100));
        assert_eq!(measure_drain(&run), None);
        run.disposing_since = Some(at(160));
        assert_eq!(measure_drain(&run), Some(Metric::DrainSeconds(60)));
    }

    #[test]
    fn the_drain_of_its_own_node_decides_whether_a_claim_is_overdue() {
        let drains = |instance: &str, until: i64| {
            let mut node = claimed(node("a"), Phase::Draining, &Record::default());
            let progress = Progress::new("x".to_owned(), at(0), at(until));
            let text = serde_json::to_string(&progress).unwrap();
            node.annotations.insert(PROGRESS_ANNOTATION.to_owned(), text);
            node.lease.as_mut().unwrap().instance = id(instance);
            node.instance = Some(id(instance));
            node
        };
        let nodes = [drains(OLD, 1_000), drains(NEW, 1_000), drains(OTHER, 100_000)];
        assert_eq!(
            measure_claims(&nodes, &leases(&nodes), at(1_001 + PATIENCE)),
            [Metric::ClaimedNodes(3), Metric::OverdueClaims(2)]
        );
    }

    #[test]
    fn a_claim_with_an_extreme_time_is_not_overdue() {
        let late = Claim {
            claimed_at: Timestamp::MAX,
            ..claim(Phase::Claimed)
        };
        let text = serde_json::to_string(&late).unwrap();
        let nodes = [leased(node("a"), [(CLAIM_ANNOTATION, &text)])];
        assert_eq!(
            measure_claims(&nodes, &leases(&nodes), at(0)),
            [Metric::ClaimedNodes(1), Metric::OverdueClaims(0)]
        );
    }
}
