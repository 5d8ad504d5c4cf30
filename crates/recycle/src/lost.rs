//! Nodes that are lost: when a Node counts as such, and what is said of the pods that go with it.
//!
//! Whether its instance still runs is not asked here; an API server that does not answer is no lost node.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::drain::count_and_name;
use crate::node::NodeFacts;
use crate::pods::{PodSurvey, first_names, fit_names};

/// Seconds without Ready after which a node is lost. Kubernetes itself gives the pods of such a node up after as long (the default
/// toleration of `node.kubernetes.io/unreachable`); a restart of the kubelet or the network's agent takes one or two minutes.
pub const LOST_AFTER: i64 = 300;

/// How many bytes the names of lost pods may have together: they travel with every answer.
const NAMES_BUDGET: usize = 150;

/// The pods that held a node when they were seen last. Where the Node is gone, its pods are soon gone, too, and nobody else remembers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// How many.
    pub count: u32,
    /// The first five, `namespace/name`.
    pub names: Vec<String>,
    /// When they were seen.
    pub seen_at: Timestamp,
}

/// That a node is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What was seen, in words.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// Why a Node counts as lost, if it does: it is gone, or has not been Ready for five minutes.
#[must_use]
pub fn find_loss(node: Option<&NodeFacts>, now: Timestamp) -> Option<Lost> {
    let why = match node {
        None => "its Node object is gone".to_owned(),
        Some(node) => {
            let since = node.not_ready_since?;
            if now.duration_since(since).as_secs() < LOST_AFTER {
                return None;
            }
            format!("it has not been Ready since {since}")
        }
    };
    Some(Lost { why, at: now })
}

/// Notes who holds the node now. Where nobody does, or nobody can be seen any more, the last ones that were seen are `before`.
#[must_use]
pub fn note_holders(survey: &PodSurvey, before: Option<Holders>, now: Timestamp) -> Option<Holders> {
    let pods = survey.holding();
    if pods.is_empty() {
        return before;
    }
    let mut names = first_names(&pods);
    fit_names(&mut names.iter_mut().collect::<Vec<_>>(), NAMES_BUDGET);
    Some(Holders {
        count: u32::try_from(pods.len()).unwrap_or(u32::MAX),
        names,
        seen_at: now,
    })
}

/// What is said of a lost node, in one sentence: why, what EC2 says of its instance, which pods are lost, and what became of it.
#[must_use]
pub fn describe_loss(
    subject: &str,
    lost: &Lost,
    instance_state: Option<&str>,
    holders: Option<&Holders>,
) -> String {
    let state = match instance_state {
        Some(state) => format!("its instance is {state}"),
        None => "EC2 knows its instance no more".to_owned(),
    };
    let pods = match holders {
        None => "no pod that matters was seen on it".to_owned(),
        Some(Holders {
            count,
            names,
            seen_at,
        }) => format!(
            "lost with it: {}, seen last at {seen_at}",
            count_and_name(usize::try_from(*count).unwrap_or(usize::MAX), names)
        ),
    };
    format!("{subject} is lost: {}, and {state}; {pods}", lost.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, job_pod, node, pod};

    #[test]
    fn a_node_is_lost_when_it_is_gone_or_has_not_been_ready_for_five_minutes() {
        let unready = |since: Option<i64>| NodeFacts {
            ready: false,
            not_ready_since: since.map(at),
            ..node("a")
        };
        let cases = [
            ("gone", None, Some("its Node object is gone")),
            ("ready", Some(node("a")), None),
            ("never heard of", Some(unready(None)), None),
            ("not Ready for a while", Some(unready(Some(701))), None),
            (
                "not Ready for five minutes",
                Some(unready(Some(700))),
                Some("it has not been Ready since 2027-01-01T00:11:40Z"),
            ),
            ("by a clock that is ahead", Some(unready(Some(1_001))), None),
        ];
        for (name, node, expected) in cases {
            let loss = find_loss(node.as_ref(), at(1_000));
            assert_eq!(loss.as_ref().map(|loss| loss.why.as_str()), expected, "{name}");
            assert!(loss.is_none_or(|loss| loss.at == at(1_000)), "{name}");
        }
    }

    #[test]
    fn those_are_named_that_held_the_node_when_they_were_seen_last() {
        let survey = PodSurvey {
            awaited: vec![job_pod("job")],
            evictable: vec![pod("web")],
            terminating: vec![job_pod("job"), pod("old")],
            tolerates_taint: vec![pod("late")],
            ..PodSurvey::default()
        };
        let seen = note_holders(&survey, None, at(60)).unwrap();
        assert_eq!(
            (seen.count, seen.names.as_slice(), seen.seen_at),
            (
                3,
                ["default/job", "default/old", "default/web"]
                    .map(str::to_owned)
                    .as_slice(),
                at(60)
            )
        );
        let later = note_holders(&PodSurvey::default(), Some(seen.clone()), at(90));
        assert_eq!(later, Some(seen));
        assert_eq!(note_holders(&PodSurvey::default(), None, at(90)), None);
    }

    #[test]
    fn many_long_names_are_few_and_cut() {
        let pods = (0..40)
            .map(|n| pod(&format!("{n:03}-{}", "x".repeat(240))))
            .collect();
        let survey = PodSurvey {
            evictable: pods,
            ..PodSurvey::default()
        };
        let seen = note_holders(&survey, None, at(0)).unwrap();
        assert_eq!((seen.count, seen.names.len()), (40, 5));
        assert!(
            seen.names.iter().map(String::len).sum::<usize>() < 400,
            "{seen:?}"
        );
    }

    #[test]
    fn a_loss_is_told_with_its_cause_and_the_pods() {
        let lost = find_loss(None, at(0)).unwrap();
        let holders = Holders {
            count: 7,
            names: vec!["jobs/a".to_owned(), "jobs/b".to_owned()],
            seen_at: at(0),
        };
        assert_eq!(
            describe_loss("node a (i-1)", &lost, Some("running"), Some(&holders)),
            "node a (i-1) is lost: its Node object is gone, and its instance is running; lost with it: 7 pods (jobs/a, jobs/b, …), \
             seen last at 2027-01-01T00:00:00Z"
        );
        let alone = describe_loss("node a (i-1)", &lost, None, None);
        assert!(
            alone.ends_with("EC2 knows its instance no more; no pod that matters was seen on it"),
            "{alone}"
        );
    }
}
