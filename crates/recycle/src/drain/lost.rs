//! Decides when a node counts as lost, and describes the pods that are lost with it.
//!
//! This module does not check whether the instance still runs. If the API server does not answer, the node does not count as lost.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::text::{count_and_name, fit_names};
use crate::cluster::node::{NodeFacts, Taint};
use crate::cluster::pod::PodFacts;
use crate::drain::survey::{PodSurvey, first_names};

/// Seconds without Ready after which a node is lost, if no execution's input says anything else: half an hour.
/// EKS' node repair waits as long (EKS user guide, "Detect node health issues and enable automatic node repair").
pub const LOST_AFTER: u32 = 1_800;

/// The taints by which Kubernetes gives up the pods of a node that is not Ready, each after the pod's own `tolerationSeconds`.
const GIVING_UP: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

/// The taint that the cloud controller sets on a node that is not Ready if EC2 reports that its machine is off.
const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The bytes that the names of lost pods may have together: they travel with every answer.
const NAMES_BUDGET: usize = 150;

/// The pods that held a node at the last check that found any.
/// If the Node is gone, its pods are soon gone too, and there is no other record of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    pub count: u32,
    /// The first five, `namespace/name`.
    pub names: Vec<String>,
    pub seen_at: Timestamp,
}

/// The finding that a node is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The reason, in words.
    pub why: String,
    pub at: Timestamp,
}

impl Lost {
    pub fn of_gone_node(now: Timestamp) -> Self {
        Self {
            why: "its Node object is gone".to_owned(),
            at: now,
        }
    }
}

/// Returns the seconds without Ready after which a node counts as lost.
/// That is `asked`, or the longest time that its pods tolerate this state if that is longer.
/// Pods that are leaving, have finished, or run on every node (DaemonSets, mirrors) do not count.
/// A pod that tolerates the state without a time limit counts as [`u32::MAX`].
pub fn find_patience(asked: u32, pods: &[PodFacts]) -> u32 {
    let staying = pods
        .iter()
        .filter(|pod| pod.deletion_at.is_none() && !pod.leaves_nothing());
    let tolerated = staying.flat_map(|pod| GIVING_UP.map(|key| tolerates_for(pod, key)));
    tolerated.max().unwrap_or_default().max(asked)
}

/// Returns the seconds for which a pod tolerates a taint, as the taint eviction controller counts them (`getMinTolerationTime`):
/// the shortest of the tolerations that name a time. 0 if the pod does not tolerate it.
fn tolerates_for(pod: &PodFacts, key: &str) -> u32 {
    let taint = Taint::new(key, None, "NoExecute");
    if !pod.tolerates(&taint) {
        return 0;
    }
    let tolerations = pod
        .scheduling
        .tolerations
        .iter()
        .filter(|given| given.tolerates(&taint));
    let shortest = tolerations.filter_map(|given| given.seconds).min();
    let shortest = shortest.unwrap_or(i64::MAX).max(0);
    u32::try_from(shortest).unwrap_or(u32::MAX)
}

/// Returns why a Node counts as lost, or None if it does not.
/// A Node is lost if it is gone, or if it is not Ready and its machine is off.
/// A Node is also lost if it has not been Ready for `patience` seconds.
pub fn find_loss(node: Option<&NodeFacts>, patience: u32, now: Timestamp) -> Option<Lost> {
    let Some(node) = node else {
        return Some(Lost::of_gone_node(now));
    };
    let since = node.not_ready_since?;
    let is_off = node.taints.iter().any(|taint| taint.key == SHUTDOWN_TAINT);
    let is_over = now.duration_since(since).as_secs() >= i64::from(patience);
    let off = if is_off { ", and its machine is off" } else { "" };
    (is_off || is_over).then(|| Lost {
        why: format!("it has not been Ready since {since}{off}"),
        at: now,
    })
}

/// Returns the pods that hold the node now. If no pod holds the node, or the pods can no longer be listed, returns `before`: the pods that
/// were last seen.
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

/// Describes a lost node in one sentence: why it is lost, what EC2 says of its instance, and which pods are lost with it.
pub fn describe_loss(
    subject: &str,
    lost: &Lost,
    instance_state: Option<&str>,
    holders: Option<&Holders>,
) -> String {
    let state = match instance_state {
        Some(state) => format!("its instance is {state}"),
        None => "EC2 no longer knows its instance".to_owned(),
    };
    let pods = match holders {
        None => "no pod that matters was seen on it".to_owned(),
        Some(holders) => {
            let count = usize::try_from(holders.count).unwrap_or(usize::MAX);
            let pods = count_and_name(count, &holders.names);
            format!("lost with it: {pods}, last seen at {}", holders.seen_at)
        }
    };
    format!("{subject} is lost: {}, and {state}; {pods}", lost.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::pod::Toleration;
    use crate::cluster::silence::describe_silence;
    use crate::fixtures::with_tolerations;
    use crate::fixtures::{at, blanket, controller, job_pod, node, pod, taint};

    #[test]
    fn a_node_is_lost_if_it_is_gone_or_off_or_not_ready_for_too_long() {
        let unready = |since: Option<i64>| NodeFacts {
            ready: false,
            not_ready_since: since.map(at),
            ..node("a")
        };
        let off = NodeFacts {
            taints: vec![taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")],
            ..unready(Some(999))
        };
        let cases = [
            ("gone", None, Some("its Node object is gone")),
            ("ready", Some(node("a")), None),
            ("no condition Ready", Some(unready(None)), None),
            ("not Ready for a while", Some(unready(Some(701))), None),
            (
                "off",
                Some(off),
                Some("it has not been Ready since 2027-01-01T00:16:39Z, and its machine is off"),
            ),
            (
                "not Ready for too long",
                Some(unready(Some(700))),
                Some("it has not been Ready since 2027-01-01T00:11:40Z"),
            ),
            (
                "not Ready from a time in the future",
                Some(unready(Some(1_001))),
                None,
            ),
        ];
        for (name, node, expected) in cases {
            let loss = find_loss(node.as_ref(), 300, at(1_000));
            assert_eq!(loss.as_ref().map(|loss| loss.why.as_str()), expected, "{name}");
            assert!(loss.is_none_or(|loss| loss.at == at(1_000)), "{name}");
        }
    }

    #[test]
    fn a_node_is_not_lost_before_its_pods_tolerations_end() {
        let tolerating = |key: &str, seconds: Option<i64>| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            value: None,
            effect: Some("NoExecute".to_owned()),
            seconds,
        };
        let [unreachable, not_ready] = GIVING_UP;
        let default = || {
            vec![
                tolerating(unreachable, Some(300)),
                tolerating(not_ready, Some(300)),
            ]
        };
        for (name, tolerations, leaving, expected) in [
            ("none", Vec::new(), false, 1_800),
            ("Kubernetes' default", default(), false, 1_800),
            (
                "two hours",
                vec![tolerating(unreachable, Some(7_200))],
                false,
                7_200,
            ),
            (
                "while not ready",
                vec![tolerating(not_ready, Some(7_200))],
                false,
                7_200,
            ),
            ("for ever", vec![tolerating(unreachable, None)], false, u32::MAX),
            ("everything", blanket(), false, u32::MAX),
            (
                "the shorter one of two",
                [blanket(), default()].concat(),
                false,
                1_800,
            ),
            ("the pod is leaving", blanket(), true, 1_800),
            ("another taint", vec![tolerating("other", None)], false, 1_800),
        ] {
            let pod = PodFacts {
                scheduling: with_tolerations(tolerations),
                deletion_at: leaving.then(|| at(0)),
                ..job_pod("train")
            };
            assert_eq!(find_patience(1_800, &[pod]), expected, "{name}");
        }
        let daemon = PodFacts {
            scheduling: with_tolerations(blanket()),
            controller: controller("DaemonSet"),
            ..pod("kube-proxy")
        };
        assert_eq!(find_patience(1_800, &[daemon]), 1_800);
        let silent = NodeFacts {
            ready: false,
            not_ready_since: Some(at(0)),
            ..node("a")
        };
        assert_eq!(describe_silence(&node("a"), 60), None);
        for (patience, expected) in [
            (
                60,
                "node a has not been Ready since 2027-01-01T00:00:00Z; it counts as lost at 2027-01-01T00:01:00Z",
            ),
            (
                u32::MAX,
                "node a has not been Ready since 2027-01-01T00:00:00Z; its pods tolerate that without a time limit, so it does not count \
                 as lost",
            ),
        ] {
            assert_eq!(describe_silence(&silent, patience).as_deref(), Some(expected));
        }
    }

    #[test]
    fn the_pods_that_last_held_the_node_are_named() {
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
    fn long_names_are_limited_and_cut() {
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
    fn a_loss_is_described_with_its_cause_and_its_pods() {
        let lost = find_loss(None, 0, at(0)).unwrap();
        let holders = Holders {
            count: 7,
            names: vec!["jobs/a".to_owned(), "jobs/b".to_owned()],
            seen_at: at(0),
        };
        assert_eq!(
            describe_loss("node a (i-1)", &lost, Some("running"), Some(&holders)),
            "node a (i-1) is lost: its Node object is gone, and its instance is running; lost with it: 7 pods (jobs/a, jobs/b, …), \
             last seen at 2027-01-01T00:00:00Z"
        );
        let alone = describe_loss("node a (i-1)", &lost, None, None);
        assert!(
            alone.ends_with("EC2 no longer knows its instance; no pod that matters was seen on it"),
            "{alone}"
        );
    }
}
