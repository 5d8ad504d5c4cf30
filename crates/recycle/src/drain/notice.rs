//! Decides which pods are notified that their node is being retired, and until when it waits for them.
//!
//! A long Job can then write a checkpoint in time.

use jiff::Timestamp;

use crate::base::names::WAITS_UNTIL_ANNOTATION;
use crate::cluster::pod::PodFacts;
use crate::drain::survey::PodSurvey;
use crate::drain::terms::Terms;

/// A change of the annotation `recycle-eks/waits-until` of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub pod: PodFacts,
    /// The time until which the node waits for the pod. None removes the annotation.
    pub until: Option<Timestamp>,
}

/// Returns the pods whose annotation has to change. Awaited pods have it; a pod that is no longer awaited loses it.
/// Pods that are leaving stay as they are.
pub fn find_notices(listed: &[PodFacts], survey: &PodSurvey, terms: &Terms<'_>) -> Vec<Notice> {
    let is_awaited = |pod: &PodFacts| survey.awaited.iter().any(|awaited| awaited.uid == pod.uid);
    let present = listed.iter().filter(|pod| pod.deletion_at.is_none());
    let notices = present.map(|pod| Notice {
        until: is_awaited(pod).then(|| terms.end_of_patience(pod).unwrap_or(terms.deadline.at)),
        pod: pod.clone(),
    });
    notices.filter(Notice::is_news).collect()
}

/// Returns the pods that have the annotation, for a node that is restored.
pub fn withdraw_notices(listed: &[PodFacts]) -> Vec<Notice> {
    let notices = listed.iter().map(|pod| Notice {
        pod: pod.clone(),
        until: None,
    });
    notices.filter(Notice::is_news).collect()
}

impl Notice {
    fn is_news(&self) -> bool {
        let before = self.pod.annotations.get(WAITS_UNTIL_ANNOTATION);
        before.cloned() != self.until.map(|until| until.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::survey::survey_pods;
    use crate::fixtures::{at, job_pod, pod, strings, terms};
    use crate::input::model::OnDrainTimeout;

    fn told(pod: PodFacts, until: &str) -> PodFacts {
        PodFacts {
            annotations: strings([(WAITS_UNTIL_ANNOTATION, until)]),
            ..pod
        }
    }

    #[test]
    fn awaited_pods_are_told_the_end_of_the_wait_and_others_are_not() {
        let leaving = PodFacts {
            deletion_at: Some(at(60)),
            ..told(pod("leaving"), "2027-01-02T00:00:00Z")
        };
        let pods = [
            job_pod("new"),
            told(job_pod("told"), "2027-01-02T00:00:00Z"),
            told(job_pod("moved"), "2027-01-01T12:00:00Z"),
            pod("web"),
            told(pod("no-longer"), "2027-01-02T00:00:00Z"),
            leaving,
        ];
        for (on_timeout, expected) in [
            (
                OnDrainTimeout::Restore,
                vec![
                    ("new", Some(at(86_400))),
                    ("moved", Some(at(86_400))),
                    ("no-longer", None),
                ],
            ),
            (
                OnDrainTimeout::Evict,
                vec![
                    ("new", Some(at(86_310))),
                    ("told", Some(at(86_310))),
                    ("moved", Some(at(86_310))),
                    ("no-longer", None),
                ],
            ),
        ] {
            let terms = Terms {
                on_timeout,
                ..terms()
            };
            let notices = find_notices(&pods, &survey_pods(&pods, &terms), &terms);
            let found: Vec<_> = notices
                .iter()
                .map(|notice| (notice.pod.name.as_str(), notice.until))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_restored_node_takes_the_notices_back() {
        let pods = [told(job_pod("told"), "2027-01-02T00:00:00Z"), job_pod("new")];
        let notices = withdraw_notices(&pods);
        assert_eq!(notices.len(), 1);
        assert_eq!((notices[0].pod.name.as_str(), notices[0].until), ("told", None));
    }
}
