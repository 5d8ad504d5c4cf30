//! Pod classes: decides which pods a drain ignores, waits for, or evicts.
//!
//! A class does not show whether an eviction is blocked. Only the API server's answer to the eviction does ([`crate::drain::blocked`]).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::names::{DO_NOT_DISRUPT_ANNOTATION, DRAIN_ANNOTATION, SAFE_TO_EVICT_ANNOTATION};
use crate::base::time::later;
use crate::cluster::pod::PodFacts;
use crate::input::model::{Awaited, Evict};

/// Seconds past its deletionTimestamp, which includes the grace period, after which a pod counts as stuck.
/// A healthy kubelet removes a pod within a minute of its last second.
const STUCK_AFTER: u32 = 300;

/// Seconds for which late pods, which came after the draining taint and tolerate it, are evicted once nothing else holds the node.
/// Without a limit their controllers could keep the node indefinitely. An example is an hourly CronJob that tolerates every taint.
pub const LATE_PATIENCE: u32 = 300;

/// The treatment of a pod by a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodClass {
    /// The pod is left alone and does not hold the node.
    Ignore,
    /// The pod is waited for: it ends by itself.
    Wait,
    /// The pod is evicted through the Eviction API.
    Evict,
}

/// Decides a pod's class and names the rule: the first that matches wins.
#[must_use]
pub fn explain_class(
    pod: &PodFacts,
    awaited: &Awaited,
    evict: Evict,
    now: Timestamp,
) -> (PodClass, &'static str) {
    if let Some(asked) = find_asked_class(pod, awaited, now) {
        asked
    } else if pod.is_bare() {
        (PodClass::Wait, "no controller would start it again")
    } else if pod.runs_to_completion() && evict != Evict::OthersAndJobs {
        (PodClass::Wait, "it runs to completion")
    } else {
        class_of_others(evict)
    }
}

/// Returns the class that a selector or an annotation asks for, or that a pod of this kind has on every node. None if no rule applies.
pub(crate) fn find_asked_class(
    pod: &PodFacts,
    awaited: &Awaited,
    now: Timestamp,
) -> Option<(PodClass, &'static str)> {
    Some(if pod.unreadable.is_some() {
        (PodClass::Wait, "it cannot be read")
    } else if pod.is_finished() {
        (PodClass::Ignore, "it has finished")
    } else if pod.is_mirror() {
        (PodClass::Ignore, "it is a mirror pod of the kubelet")
    } else if pod.leaves_nothing() {
        (PodClass::Ignore, "it belongs to a DaemonSet")
    } else if let Ok(Some(class)) = pod.annotated_class() {
        (class, "its annotation recycle-eks/drain")
    } else if is_selected(pod, awaited) {
        (PodClass::Wait, "label_selector matches it")
    } else if pod.is_not_to_be_disturbed(now) && pod.can_end() {
        (PodClass::Wait, "an annotation protects it, and it can end")
    } else {
        return None;
    })
}

pub(crate) fn class_of_others(evict: Evict) -> (PodClass, &'static str) {
    match evict {
        Evict::Others | Evict::OthersAndJobs => (PodClass::Evict, "its controller starts it elsewhere"),
        Evict::None => (PodClass::Ignore, "evict is none"),
    }
}

fn is_selected(pod: &PodFacts, awaited: &Awaited) -> bool {
    let in_namespace = awaited.namespaces.is_empty() || awaited.namespaces.contains(&pod.namespace);
    let selector = awaited.selector.as_ref();
    in_namespace && selector.is_some_and(|selector| selector.matches(&pod.labels))
}

/// Checks whether a node has only pods that every node has: DaemonSets' and mirrors. Finished pods do not count.
#[must_use]
pub fn is_empty_node(pods: &[PodFacts]) -> bool {
    pods.iter().all(PodFacts::leaves_nothing)
}

impl PodFacts {
    /// Checks whether the pod should have been gone five minutes ago.
    pub(crate) fn is_stuck(&self, now: Timestamp) -> bool {
        self.deletion_at.is_some_and(|at| now > later(at, STUCK_AFTER))
    }

    /// Checks whether an annotation for Karpenter or Cluster Autoscaler protects the pod.
    pub(crate) fn is_not_to_be_disturbed(&self, now: Timestamp) -> bool {
        let value = |annotation: &str| self.annotations.get(annotation).map(String::as_str);
        let is_protected = match value(DO_NOT_DISRUPT_ANNOTATION) {
            None => false,
            Some("true") => true,
            Some(text) => text.parse::<SignedDuration>().is_ok_and(|protection| {
                let end = self.started_at.map(|start| start.checked_add(protection));
                end.is_none_or(|end| end.is_ok_and(|end| now < end))
            }),
        };
        is_protected || matches!(value(SAFE_TO_EVICT_ANNOTATION), Some("false" | "on-completion"))
    }

    /// Checks whether the pod's annotation `recycle-eks/drain` is `evict`.
    pub(crate) fn is_marked_evict(&self) -> bool {
        self.annotated_class() == Ok(Some(PodClass::Evict))
    }

    /// Returns what the pod's annotation `recycle-eks/drain` says; None if there is none, an error if the value is unknown.
    pub(crate) fn annotated_class(&self) -> Result<Option<PodClass>, ()> {
        match self.annotations.get(DRAIN_ANNOTATION).map(String::as_str) {
            None => Ok(None),
            Some("wait") => Ok(Some(PodClass::Wait)),
            Some("evict") => Ok(Some(PodClass::Evict)),
            Some("ignore") => Ok(Some(PodClass::Ignore)),
            Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::names::DRAIN_ANNOTATION;
    use crate::base::text::NAMES_PER_CLASS;
    use crate::base::text::fit_names;
    use crate::cluster::pod::{Controller, PodContainers, PodVolumes, Toleration};
    use crate::drain::survey::alternate_controllers;
    use crate::drain::survey::first_names;
    use crate::drain::survey::survey_pods;
    use crate::drain::terms::Terms;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    use super::*;
    use crate::answer::envelope::Answer;
    use crate::base::ids::InstanceId;
    use crate::cluster::node::draining_taint;
    use crate::contract::run::{DrainState, EndedPods, Run};
    use crate::contract::verdicts::CheckVerdict;
    use crate::drain::blocked::{Refusal, RefusalKind, describe_update, find_blockers};
    use crate::drain::lost::Holders;
    use crate::drain::progress::{build_progress, describe_pods};
    use crate::drain::terms::find_deadline;
    use crate::fixtures::restarted;
    use crate::fixtures::{
        ARN, NEW, NO_AWAITED, OLD, at, blanket, controller, id, input, job_pod, pod, strings, terms,
    };
    use crate::input::model::OnDrainTimeout;
    use crate::input::path::RecyclePath;
    use crate::notify::blockage::{list_blocks, update_blockage};
    use crate::records::blockage::Blockage;
    use crate::replacement::old_node::OldNode;

    fn awaiting(selector: &str, namespaces: &[&str]) -> Awaited {
        Awaited {
            selector: Some(selector.parse().unwrap()),
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn with_annotation(pod: PodFacts, annotation: &str, value: &str) -> PodFacts {
        PodFacts {
            annotations: strings([(annotation, value)]),
            ..pod
        }
    }

    fn with_label(pod: PodFacts, label: &str, value: &str) -> PodFacts {
        PodFacts {
            labels: strings([(label, value)]),
            ..pod
        }
    }

    fn bare(name: &str) -> PodFacts {
        PodFacts {
            controller: None,
            ..pod(name)
        }
    }

    #[test]
    fn a_node_is_empty_if_it_has_only_finished_pods_and_pods_of_daemon_sets() {
        let of_node = PodFacts {
            controller: controller("DaemonSet"),
            ..pod("log")
        };
        let finished = PodFacts {
            phase: "Succeeded".to_owned(),
            ..job_pod("done")
        };
        assert!(is_empty_node(&[]) && is_empty_node(&[of_node.clone(), finished]));
        assert!(!is_empty_node(&[of_node, pod("web")]));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let all = || awaiting("*", &[]);
        let none = Awaited::default;
        let batch = || with_label(pod("a"), "app", "batch");
        let finished = |phase: &str| PodFacts {
            phase: phase.to_owned(),
            ..job_pod("a")
        };
        let daemon = PodFacts {
            controller: controller("DaemonSet"),
            ..pod("a")
        };
        let static_pod = PodFacts {
            controller: controller("Node"),
            ..pod("a")
        };
        let mirror = with_annotation(pod("a"), "kubernetes.io/config.mirror", "x");
        let no_disrupt = |pod| with_annotation(pod, "karpenter.sh/do-not-disrupt", "true");
        let unsafe_to_evict =
            |pod| with_annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
        let drain = |pod, value| with_annotation(pod, "recycle-eks/drain", value);
        let custom = PodFacts {
            controller: controller("Workflow"),
            ..pod("a")
        };
        let workflow = PodFacts {
            containers: restarted("OnFailure"),
            ..custom.clone()
        };
        use Evict::{None as NoPod, Others, OthersAndJobs as AndJobs};
        use PodClass::{Evict as Go, Ignore, Wait};
        let cases = [
            (
                "a succeeded pod is ignored though selected",
                finished("Succeeded"),
                all(),
                Others,
                Ignore,
            ),
            (
                "a failed pod is ignored though selected",
                finished("Failed"),
                all(),
                Others,
                Ignore,
            ),
            (
                "a DaemonSet's pod is ignored though selected",
                daemon.clone(),
                all(),
                Others,
                Ignore,
            ),
            (
                "a DaemonSet's pod is ignored though annotated",
                drain(daemon, "wait"),
                all(),
                Others,
                Ignore,
            ),
            ("a mirror pod is ignored", mirror, all(), Others, Ignore),
            ("a static pod is ignored", static_pod, all(), Others, Ignore),
            (
                "the annotation wait wins over no selector",
                drain(pod("a"), "wait"),
                none(),
                Others,
                Wait,
            ),
            (
                "the annotation evict wins over the selector",
                drain(pod("a"), "evict"),
                all(),
                Others,
                Go,
            ),
            (
                "the annotation ignore wins over the selector",
                drain(pod("a"), "ignore"),
                all(),
                Others,
                Ignore,
            ),
            (
                "the annotation evict wins over evict none",
                drain(pod("a"), "evict"),
                none(),
                NoPod,
                Go,
            ),
            (
                "the annotation evict wins over being bare",
                drain(bare("a"), "evict"),
                none(),
                Others,
                Go,
            ),
            (
                "an annotation with an unknown value does not count",
                drain(pod("a"), "Wait"),
                none(),
                Others,
                Go,
            ),
            (
                "a selected pod is awaited",
                batch(),
                awaiting("app=batch", &[]),
                Others,
                Wait,
            ),
            (
                "a selected pod is awaited without evictions",
                batch(),
                awaiting("app=batch", &[]),
                NoPod,
                Wait,
            ),
            (
                "an unselected pod is evicted",
                batch(),
                awaiting("app=web", &[]),
                Others,
                Go,
            ),
            (
                "a pod in its namespace is awaited",
                batch(),
                awaiting("app=batch", &["default"]),
                Others,
                Wait,
            ),
            (
                "a pod in another namespace is evicted",
                batch(),
                awaiting("app=batch", &["jobs"]),
                Others,
                Go,
            ),
            (
                "do-not-disrupt counts for a Job",
                no_disrupt(job_pod("a")),
                none(),
                Others,
                Wait,
            ),
            (
                "do-not-disrupt does not count for a pod that never ends",
                no_disrupt(pod("a")),
                none(),
                Others,
                Go,
            ),
            (
                "safe-to-evict false counts for a Job",
                unsafe_to_evict(job_pod("a")),
                none(),
                Others,
                Wait,
            ),
            (
                "safe-to-evict false does not count for a pod that never ends",
                unsafe_to_evict(pod("a")),
                none(),
                Others,
                Go,
            ),
            (
                "safe-to-evict false counts for an unknown controller",
                unsafe_to_evict(custom),
                none(),
                Others,
                Wait,
            ),
            (
                "do-not-disrupt counts without evictions",
                no_disrupt(job_pod("a")),
                none(),
                NoPod,
                Wait,
            ),
            (
                "safe-to-evict true does not protect",
                with_annotation(
                    job_pod("a"),
                    "cluster-autoscaler.kubernetes.io/safe-to-evict",
                    "true",
                ),
                none(),
                AndJobs,
                Go,
            ),
            ("a bare pod is awaited", bare("a"), none(), Others, Wait),
            (
                "a bare pod is awaited without evictions",
                bare("a"),
                none(),
                NoPod,
                Wait,
            ),
            ("any other pod is evicted", pod("a"), none(), Others, Go),
            ("a Job's pod is awaited", job_pod("a"), none(), Others, Wait),
            (
                "a pod that runs to completion under an unknown controller is awaited",
                workflow.clone(),
                none(),
                Others,
                Wait,
            ),
            (
                "a Job's pod is evicted if asked",
                job_pod("a"),
                none(),
                AndJobs,
                Go,
            ),
            (
                "a workflow's pod is evicted if asked",
                workflow,
                none(),
                AndJobs,
                Go,
            ),
            (
                "a Job's pod is awaited without evictions",
                job_pod("a"),
                none(),
                NoPod,
                Wait,
            ),
            (
                "any other pod is ignored without evictions",
                pod("a"),
                none(),
                NoPod,
                Ignore,
            ),
        ];
        for (name, pod, awaited, evict, expected) in cases {
            assert_eq!(explain_class(&pod, &awaited, evict, at(0)).0, expected, "{name}");
        }
    }

    #[test]
    fn annotations_of_other_tools_are_read_as_these_tools_read_them() {
        let protected = |annotation: &str, value: &str, now: i64| {
            let pod = PodFacts {
                started_at: Some(at(0)),
                ..with_annotation(job_pod("a"), annotation, value)
            };
            explain_class(&pod, &NO_AWAITED, Evict::OthersAndJobs, at(now)).0 == PodClass::Wait
        };
        for (annotation, value, now, expected) in [
            (DO_NOT_DISRUPT_ANNOTATION, "true", 0, true),
            (DO_NOT_DISRUPT_ANNOTATION, "false", 0, false),
            (DO_NOT_DISRUPT_ANNOTATION, "4h", 4 * 3_600 - 1, true),
            (DO_NOT_DISRUPT_ANNOTATION, "4h", 4 * 3_600, false),
            (DO_NOT_DISRUPT_ANNOTATION, "1h30m", 5_399, true),
            (DO_NOT_DISRUPT_ANNOTATION, "1.5h", 5_400, false),
            (DO_NOT_DISRUPT_ANNOTATION, "-4h", 0, false),
            (DO_NOT_DISRUPT_ANNOTATION, "soon", 0, false),
            (SAFE_TO_EVICT_ANNOTATION, "false", 0, true),
            (SAFE_TO_EVICT_ANNOTATION, "on-completion", 0, true),
            (SAFE_TO_EVICT_ANNOTATION, "true", 0, false),
        ] {
            assert_eq!(
                protected(annotation, value, now),
                expected,
                "{annotation} {value} {now}"
            );
        }
    }

    /// The cases are from Kubernetes' own `TestTolerationToleratesTaint`, as far as they are about key, value and effect.
    #[test]
    fn a_toleration_is_read_as_the_scheduler_reads_it() {
        let tolerates = |key: &str, operator: &str, value: &str, effect: &str| {
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let toleration = Toleration {
                key: given(key),
                operator: given(operator),
                value: given(value),
                effect: given(effect),
                seconds: None,
            };
            toleration.tolerates(&draining_taint(&id(OLD)))
        };
        let key = "recycle-eks/draining";
        for (key, operator, value, effect, expected) in [
            (key, "Exists", "", "NoSchedule", true),
            (key, "Exists", "", "", true),
            ("", "Exists", "", "NoSchedule", true),
            ("", "Exists", "", "", true),
            ("", "Exists", "", "NoExecute", false),
            (key, "Equal", OLD, "NoSchedule", true),
            (key, "", OLD, "", true),
            (key, "Equal", NEW, "NoSchedule", false),
            (key, "Equal", OLD, "NoExecute", false),
            ("other", "Exists", "", "NoSchedule", false),
            (key, "Gt", "1", "NoSchedule", false),
        ] {
            assert_eq!(
                tolerates(key, operator, value, effect),
                expected,
                "{key} {operator} {value} {effect}"
            );
        }
    }

    /// An unreadable pod has this effect whatever the input asks for, after the end of the drain, and if EC2 takes the instance away.
    #[test]
    fn a_pod_that_cannot_be_read_holds_the_node_and_is_never_evicted() {
        let broken =
            |name: &str| PodFacts::unreadable("shop".to_owned(), name.to_owned(), String::new(), "why");
        let pods = [broken("a"), broken("b"), pod("web")];
        for on_timeout in [
            OnDrainTimeout::Restore,
            OnDrainTimeout::Evict,
            OnDrainTimeout::Terminate,
        ] {
            for (now, interrupted_at) in [(0, None), (10_000_000, None), (0, Some(at(60)))] {
                let terms = Terms {
                    on_timeout,
                    now: at(now),
                    interrupted_at,
                    evict: Evict::OthersAndJobs,
                    ..terms()
                };
                let survey = survey_pods(&pods, &terms);
                assert!(!survey.is_clear());
                assert_eq!(first_names(&survey.to_evict()), ["default/web"]);
                assert_eq!(survey.names()["unreadable"], ["shop/a", "shop/b"]);
                assert_eq!(
                    first_names(&survey.holding()),
                    ["default/web", "shop/a", "shop/b"]
                );
                assert_eq!(
                    survey.held_because,
                    ["cannot read pod shop/a: why", "cannot read pod shop/b: why"]
                );
            }
        }
        assert!(!is_empty_node(&[broken("a")]));
    }

    #[test]
    fn a_pod_from_after_the_taint_holds_the_node_unless_it_tolerates_the_taint_and_is_not_awaited() {
        let terms = Terms {
            tainted_since: Some(at(10)),
            ..terms()
        };
        let late = |pod: PodFacts, tolerations: Vec<Toleration>| PodFacts {
            created_at: Some(at(11)),
            tolerations,
            ..pod
        };
        let wait = |pod| with_annotation(pod, DRAIN_ANNOTATION, "wait");
        for (name, pod, class) in [
            (
                "bound from a stale cache",
                late(pod("a"), Vec::new()),
                "evictable",
            ),
            (
                "a Job from a stale cache",
                late(job_pod("a"), Vec::new()),
                "to_completion",
            ),
            ("tolerates all", late(pod("a"), blanket()), "tolerates_taint"),
            (
                "a Job that tolerates all",
                late(job_pod("a"), blanket()),
                "tolerates_taint",
            ),
            (
                "a bare pod that tolerates all",
                late(bare("a"), blanket()),
                "tolerates_taint",
            ),
            ("annotated wait", late(wait(job_pod("a")), blanket()), "awaited"),
            (
                "from before the taint",
                PodFacts {
                    tolerations: blanket(),
                    ..pod("a")
                },
                "evictable",
            ),
        ] {
            let survey = survey_pods(&[pod], &terms);
            assert!(
                survey.counts().contains_key(class),
                "{name}: {:?}",
                survey.counts()
            );
            assert_eq!(survey.is_clear(), class == "tolerates_taint", "{name}");
            let evicted = matches!(class, "evictable" | "tolerates_taint");
            assert_eq!(survey.to_evict().len(), usize::from(evicted), "{name}");
        }
    }

    #[test]
    fn a_survey_has_remarks_about_pods() {
        let pods = [
            with_label(job_pod("job"), "app", "batch"),
            with_label(pod("endless"), "app", "batch"),
            bare("lonely"),
            PodFacts {
                containers: restarted("Never"),
                ..bare("script")
            },
            with_label(bare("chosen"), "app", "batch"),
            with_annotation(bare("asked"), "recycle-eks/drain", "wait"),
            pod("web"),
            PodFacts {
                deletion_at: Some(at(60)),
                ..pod("leaving")
            },
            PodFacts {
                deletion_at: Some(at(60)),
                ..with_label(job_pod("finishing"), "app", "batch")
            },
            PodFacts {
                created_at: Some(at(11)),
                tolerations: blanket(),
                ..pod("tolerant")
            },
            PodFacts {
                created_at: Some(at(10)),
                ..pod("same-second")
            },
            PodFacts {
                created_at: Some(at(11)),
                controller: controller("DaemonSet"),
                ..pod("daemon")
            },
            with_annotation(pod("typo"), "recycle-eks/drain", "evicted"),
        ];
        let awaited = awaiting("app=batch", &[]);
        let terms = Terms {
            awaited: &awaited,
            tainted_since: Some(at(10)),
            ..terms()
        };
        let survey = survey_pods(&pods, &terms);
        assert_eq!(
            names(&survey.awaited),
            [
                "job",
                "endless",
                "lonely",
                "script",
                "chosen",
                "asked",
                "finishing"
            ]
        );
        assert_eq!(names(&survey.evictable), ["web", "same-second", "typo"]);
        assert_eq!(names(&survey.terminating), ["leaving", "finishing"]);
        assert_eq!(
            names(&survey.remarks.never_ends),
            ["endless", "lonely", "chosen", "asked"]
        );
        assert_eq!(names(&survey.remarks.bare), ["lonely", "script"]);
        assert_eq!(names(&survey.tolerates_taint), ["tolerant"]);
        assert_eq!(names(&survey.remarks.bad_annotation), ["typo"]);
        assert_eq!(survey.ignored, 1);
    }

    fn names(pods: &[PodFacts]) -> Vec<String> {
        pods.iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn a_pod_is_stuck_five_minutes_after_the_end_of_its_grace_period_and_not_before() {
        let leaving = PodFacts {
            deletion_at: Some(at(72_000)),
            grace_seconds: 72_000,
            ..pod("a")
        };
        for (now, terminating, stuck) in [
            (0, true, false),
            (72_000, true, false),
            (72_300, true, false),
            (72_301, false, true),
        ] {
            let terms = Terms {
                now: at(now),
                ..terms()
            };
            let survey = survey_pods(std::slice::from_ref(&leaving), &terms);
            assert_eq!(
                (!survey.terminating.is_empty(), !survey.stuck.is_empty()),
                (terminating, stuck),
                "{now}"
            );
            assert!(!survey.is_clear() && survey.evictable.is_empty(), "{now}");
        }
    }

    #[test]
    fn remarks_about_a_pod_do_not_change_its_class() {
        let pending = |pod: PodFacts| PodFacts {
            phase: "Pending".to_owned(),
            ..pod
        };
        let debugged = |pod: PodFacts| PodFacts {
            containers: PodContainers {
                is_debugged: true,
                ..pod.containers
            },
            ..pod
        };
        let scratch = |pod: PodFacts| PodFacts {
            volumes: PodVolumes {
                has_empty_dir: true,
                ..pod.volumes
            },
            ..pod
        };
        let daemon = PodFacts {
            controller: controller("DaemonSet"),
            ..debugged(pod("daemon"))
        };
        let awaited = awaiting("app=batch", &[]);
        let batch = |name: &str| with_label(job_pod(name), "app", "batch");
        let pods = [
            pending(batch("waits-to-begin")),
            pending(pod("goes-before-it-begins")),
            debugged(batch("waits-with-a-shell")),
            debugged(pod("goes-with-a-shell")),
            scratch(batch("keeps-its-files")),
            scratch(pod("loses-its-files")),
            PodFacts {
                deletion_at: Some(at(30)),
                ..pending(scratch(pod("never-began")))
            },
            daemon,
        ];
        let terms = Terms {
            awaited: &awaited,
            ..terms()
        };
        let survey = survey_pods(&pods, &terms);
        assert_eq!(
            names(&survey.awaited),
            ["waits-to-begin", "waits-with-a-shell", "keeps-its-files"]
        );
        assert_eq!(
            names(&survey.evictable),
            ["goes-before-it-begins", "goes-with-a-shell", "loses-its-files"]
        );
        assert_eq!(
            names(&survey.remarks.pending),
            ["waits-to-begin", "goes-before-it-begins"]
        );
        assert_eq!(
            names(&survey.remarks.debugged),
            ["waits-with-a-shell", "goes-with-a-shell"]
        );
        assert_eq!(names(&survey.remarks.empty_dir), ["loses-its-files"]);
        assert_eq!(names(&survey.terminating), ["never-began"]);
        assert_eq!(survey.ignored, 1);
    }

    #[test]
    fn a_grace_period_that_is_longer_than_the_remaining_time_is_a_remark_until_the_time_is_over() {
        let slow = PodFacts {
            grace_seconds: 3_600,
            ..pod("slow")
        };
        let leaving = PodFacts {
            deletion_at: Some(at(86_401)),
            ..pod("leaving")
        };
        let in_time = PodFacts {
            deletion_at: Some(at(86_400)),
            ..pod("in-time")
        };
        let waits = PodFacts {
            grace_seconds: 864_000,
            ..job_pod("waits")
        };
        let waits = with_annotation(waits, "recycle-eks/drain", "wait");
        let pods = [slow, leaving, in_time, waits];
        for (now, expected) in [
            (82_800, vec!["leaving"]),
            (82_801, vec!["slow", "leaving"]),
            (86_400, vec![]),
        ] {
            let survey = survey_pods(
                &pods,
                &Terms {
                    now: at(now),
                    ..terms()
                },
            );
            assert_eq!(names(&survey.remarks.grace_too_long), expected, "{now}");
        }
    }

    #[test]
    fn an_awaited_pod_is_evicted_in_time_for_its_grace_period_if_the_input_asks_for_it() {
        use OnDrainTimeout::{Evict as Early, Restore, Terminate};
        let waits = |name: &str, grace_seconds| PodFacts {
            grace_seconds,
            ..with_annotation(job_pod(name), "recycle-eks/drain", "wait")
        };
        let leaving = PodFacts {
            deletion_at: Some(at(100_000)),
            ..waits("leaving", 30)
        };
        let pods = [waits("long", 3_600), waits("short", 30), leaving];
        let long = || vec!["long"];
        let both = || vec!["long", "short"];
        let cases: [(&str, OnDrainTimeout, i64, Vec<&str>); 9] = [
            ("restore evicts no awaited pod", Restore, 86_400, vec![]),
            ("long before, no pod is due", Early, 82_709, vec![]),
            ("one check before it would be too late", Early, 82_710, long()),
            ("an hour and a minute before", Early, 82_740, long()),
            ("the other has more time", Early, 86_279, long()),
            ("at the end both are due", Early, 86_310, both()),
            (
                "terminate evicts no awaited pod before the end",
                Terminate,
                86_399,
                vec![],
            ),
            ("and then all", Terminate, 86_400, both()),
            ("also later", Terminate, 90_000, both()),
        ];
        for (name, on_timeout, now, expected) in cases {
            let terms = Terms {
                on_timeout,
                now: at(now),
                ..terms()
            };
            let survey = survey_pods(&pods, &terms);
            assert_eq!(names(&survey.remarks.out_of_time), expected, "{name}");
            assert_eq!(names(&survey.evictable), expected, "{name}");
            assert_eq!(survey.awaited.len(), 3 - expected.len(), "{name}");
        }
    }

    #[test]
    fn names_are_cut_no_more_than_they_have_to_be() {
        let lengths = |name: usize, count: usize, budget: usize| {
            let mut names = vec!["n".repeat(name); count];
            fit_names(&mut names.iter_mut().collect::<Vec<_>>(), budget);
            names.first().unwrap().chars().count()
        };
        assert_eq!(lengths(300, 5, 1_500), 300);
        assert_eq!(lengths(300, 5, 1_499), 120);
        assert_eq!(lengths(300, 5, 500), 80);
        assert_eq!(lengths(300, 5, 100), 16);
        assert_eq!(lengths(20, 50, 100), 12);
    }

    #[test]
    fn pods_of_one_controller_are_not_evicted_in_a_row() {
        let of = |controller_name: &str, name: &str| PodFacts {
            controller: Some(Controller {
                kind: "ReplicaSet".to_owned(),
                name: controller_name.to_owned(),
                uid: "c-1".to_owned(),
            }),
            ..pod(name)
        };
        let pods = vec![
            of("a", "a1"),
            of("a", "a2"),
            of("a", "a3"),
            of("b", "b1"),
            bare("c"),
            bare("d"),
        ];
        assert_eq!(
            names(&alternate_controllers(pods)),
            ["a1", "b1", "c", "a2", "d", "a3"]
        );
        assert!(alternate_controllers(Vec::new()).is_empty());
    }

    #[test]
    fn counts_and_names_leave_out_empty_classes() {
        let pods: Vec<PodFacts> = ["g", "c", "a", "b", "f", "e"]
            .iter()
            .map(|name| pod(name))
            .collect();
        let survey = survey_pods(&pods, &terms());
        assert_eq!(survey.counts(), BTreeMap::from([("evictable".to_owned(), 6)]));
        assert_eq!(
            survey.names(),
            BTreeMap::from([(
                "evictable".to_owned(),
                ["a", "b", "c", "e", "f"]
                    .map(|name| format!("default/{name}"))
                    .to_vec()
            )])
        );
    }

    #[test]
    fn a_node_is_clear_when_only_pods_that_do_not_hold_it_remain() {
        let tolerant = PodFacts {
            created_at: Some(at(11)),
            tolerations: blanket(),
            ..pod("tolerant")
        };
        let daemon = PodFacts {
            controller: controller("DaemonSet"),
            ..pod("daemon")
        };
        let tainted = Terms {
            tainted_since: Some(at(10)),
            ..terms()
        };
        assert!(survey_pods(&[tolerant, daemon], &tainted).is_clear());
        let leaving = PodFacts {
            deletion_at: Some(at(0)),
            ..pod("leaving")
        };
        assert!(!survey_pods(&[leaving], &terms()).is_clear());
    }

    /// More pods than any node has, with the longest names.
    fn longest_pods() -> Vec<PodFacts> {
        let name = |number: u32| format!("{:p<243}{number:010}", "");
        (0..200)
            .map(|number| PodFacts {
                namespace: "n".repeat(63),
                ..pod(&name(number))
            })
            .collect()
    }

    /// The longest values of everything that an answer carries besides the pods.
    fn longest_run() -> Run {
        let namespaces: Vec<String> = (0..16).map(|number| format!("{:a<61}{number:02}", "")).collect();
        let selector = format!("{},b", vec!["a=b"; 127].join(","));
        assert!(selector.len() <= 512 && selector.len() > 500);
        let asked = json!({"label_selector": selector, "namespaces": namespaces,
            "override": ["scale_in_protection", "suspended_process"]});
        let (group, node) = ("g".repeat(255).parse().unwrap(), "n".repeat(253).parse().unwrap());
        Run {
            replacement_since: Some(at(1)),
            short_since: Some(at(5)),
            disposing_since: Some(at(4)),
            evicted: Some(["1a2b3c4d"; crate::drain::evicted::MOST_CARRIED].join(" ")),
            drain: DrainState {
                draining_since: Some(at(2)),
                polls: u32::MAX,
                last_eviction: Some(at(3)),
                emptied_at: Some(at(3_600)),
                ended_pods: Some(EndedPods::of(&survey_pods(&longest_pods(), &terms()))),
                holders: Some(Holders {
                    count: u32::MAX,
                    names: vec!["ü".repeat(15); NAMES_PER_CLASS],
                    seen_at: at(5),
                }),
                ..DrainState::default()
            },
            ..Run::new(input(asked), RecyclePath::Before, group, node, at(0))
        }
    }

    #[test]
    fn an_answer_stays_under_8_kb_with_the_marks_of_500_members() {
        let members: Vec<InstanceId> = (0..500).map(|n| id(&format!("i-{n:017x}"))).collect();
        let mut node = crate::fixtures::node("old");
        node.extended_resources = (0..50).map(|n| format!("example.com/{n:040}")).collect();
        let mut run = longest_run();
        run.old = Some(OldNode::new(Some(&node), &members));
        let answer = Answer::new(CheckVerdict::Wait, "x".repeat(400)).carrying(run);
        let bytes = serde_json::to_string(&answer).unwrap().len();
        assert!(bytes <= 8_192, "{bytes} bytes");
    }

    fn any_pod() -> impl Strategy<Value = PodFacts> {
        (
            any::<u32>(),
            prop::sample::select(vec![
                None,
                controller("ReplicaSet"),
                controller("Job"),
                controller("DaemonSet"),
            ]),
            prop::sample::select(vec!["Always", "Never"]),
            prop::option::of(prop::sample::select(vec!["wait", "evict", "ignore", "nonsense"])),
            prop::option::of(prop::sample::select(vec![at(60), at(86_399)])),
            prop::sample::select(vec![at(0), at(20)]),
            any::<[bool; 3]>(),
            prop::sample::select(vec![0, 30, 3_600, u32::MAX]),
        )
            .prop_map(
                |(
                    number,
                    controller,
                    restart_policy,
                    annotation,
                    deletion_at,
                    created_at,
                    is,
                    grace_seconds,
                )| {
                    let [is_pending, is_debugged, has_empty_dir] = is;
                    let name = format!("{:p<243}{number:010}", "");
                    let pod = PodFacts {
                        namespace: "n".repeat(63),
                        controller,
                        containers: PodContainers {
                            restart_policy: restart_policy.to_owned(),
                            is_debugged,
                        },
                        deletion_at,
                        created_at: Some(created_at),
                        phase: if is_pending { "Pending" } else { "Running" }.to_owned(),
                        grace_seconds,
                        volumes: PodVolumes {
                            claims: Vec::new(),
                            has_empty_dir,
                        },
                        ..pod(&name)
                    };
                    match annotation {
                        Some(value) => with_annotation(pod, "recycle-eks/drain", value),
                        None => pod,
                    }
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn an_answer_stays_under_8_kb_with_200_pods_of_the_longest_names(
            pods in prop::collection::vec(any_pod(), 200),
            evicts in any::<bool>(),
        ) {
            let all = awaiting("*", &[]);
            let on_timeout = if evicts { OnDrainTimeout::Evict } else { OnDrainTimeout::Restore };
            let terms = Terms {
                awaited: if evicts { &NO_AWAITED } else { &all },
                on_timeout,
                tainted_since: Some(at(10)),
                now: at(80_000),
                ..terms()
            };
            let survey = survey_pods(&pods, &terms);
            let (_, remark) = find_deadline(at(0), at(0), 60, Some(&"x".repeat(999)));
            let refusals: Vec<Refusal> = pods.iter().map(|pod| Refusal {
                kind: RefusalKind::BudgetFull,
                namespace: pod.namespace.clone(),
                pod: pod.full_name(),
                says: format!("The disruption budget {:b<253} {}", "", "x".repeat(500)),
            }).collect();
            let blockers = find_blockers(&refusals, &[], at(0));
            let update = describe_update(&blockers, terms.now).unwrap();
            let reason = format!("{}; {}; {update}", describe_pods(&survey), remark.unwrap());
            let progress = serde_json::to_string(&build_progress(&survey, blockers.clone(), &terms)).unwrap();
            prop_assert!(progress.len() < 32_768, "{} bytes", progress.len());
            let mut answer = Answer::new(CheckVerdict::Wait, reason).carrying(longest_run());
            answer.counts = survey.counts();
            answer.names = survey.names();
            let bytes = serde_json::to_string(&answer).unwrap().len();
            prop_assert!(bytes <= 8_192, "{} bytes: {} of names, {} of reason, {} of run", bytes,
                serde_json::to_string(&answer.names).unwrap().len(), answer.reason.len(),
                serde_json::to_string(&answer.run).unwrap().len());
            // An answer with a notification about blockers carries neither the names nor the whole progress.
            let mut run = longest_run();
            run.drain.blockage = Some(Blockage { since: Some(at(0)), reported_at: None });
            let execution = format!("{}{}", ARN.trim_end_matches("run-1"), "x".repeat(80)).parse().unwrap();
            let blocks = list_blocks(&survey, &build_progress(&survey, blockers, &terms));
            let notification = update_blockage(&mut run, &blocks, &execution, terms.now, terms.now, &answer.reason);
            notification.as_ref().unwrap().reason().clone_into(&mut answer.reason);
            answer.names.clear();
            let bytes = serde_json::to_string(&answer.with_notification(notification).carrying(run)).unwrap().len();
            prop_assert!(bytes <= 8_192, "{} bytes with a notification", bytes);
        }

        #[test]
        fn every_pod_is_counted_in_exactly_one_of_the_disjoint_lists(
            pods in prop::collection::vec(any_pod(), 0..50),
            selected in any::<bool>(),
        ) {
            let awaited = if selected { awaiting("*", &[]) } else { Awaited::default() };
            let terms = Terms {
                awaited: &awaited,
                on_timeout: OnDrainTimeout::Evict,
                tainted_since: Some(at(10)),
                now: at(80_000),
                ..terms()
            };
            let survey = survey_pods(&pods, &terms);
            prop_assert!(survey.terminating.iter().all(|pod| !survey.stuck.contains(pod)));
            let leaving = survey.terminating.iter().chain(&survey.stuck);
            let only_leaving = leaving.filter(|pod| !survey.awaited.contains(pod)).count();
            let counted = survey.ignored as usize
                + survey.awaited.len()
                + survey.evictable.len()
                + survey.tolerates_taint.len()
                + only_leaving;
            prop_assert_eq!(counted, pods.len());
        }
    }
}
