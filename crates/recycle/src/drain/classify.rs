//! Pod classes: decides which pods a drain ignores, waits for, or evicts.
//!
//! A class does not show whether an eviction is blocked. Only the API server's answer to the eviction does ([`crate::drain::blocked`]).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::names::{
    CYCLOPS_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION, DRAIN_ANNOTATION, SAFE_TO_EVICT_ANNOTATION,
};
use crate::base::time::later;
use crate::cluster::pod::PodFacts;
use crate::drain::terms::Terms;
use crate::input::model::{Awaited, Evict, Override};

/// Seconds past its deletionTimestamp, which includes the grace period, after which a pod counts as stuck.
/// A healthy kubelet removes a pod within a minute of its last second.
const STUCK_AFTER: u32 = 300;

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

/// The rules that decide the class of a pod, in the order in which they are tried. The first that matches wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Unreadable,
    Finished,
    Mirror,
    /// The pod of a DaemonSet asks to be evicted once no other pod holds the node.
    LeavesLast,
    OfDaemonSet,
    /// The annotation `recycle-eks/drain` names the class.
    Marked(PodClass),
    Selected,
    /// An annotation for Karpenter, Cluster Autoscaler or Cyclops forbids to disrupt the pod.
    OwnerProtected,
    /// The pod came after the draining taint and tolerates it.
    Late,
    /// No controller starts the pod again, and its owner allows the eviction all the same.
    SafeToEvict,
    Bare,
    ToCompletion,
    Other,
}

impl Rule {
    pub const ALL: [Self; 15] = [
        Self::Unreadable,
        Self::Finished,
        Self::Mirror,
        Self::LeavesLast,
        Self::OfDaemonSet,
        Self::Marked(PodClass::Wait),
        Self::Marked(PodClass::Evict),
        Self::Marked(PodClass::Ignore),
        Self::Selected,
        Self::OwnerProtected,
        Self::Late,
        Self::SafeToEvict,
        Self::Bare,
        Self::ToCompletion,
        Self::Other,
    ];

    /// Returns the class that the rule gives to a pod under this setting.
    pub fn class(self, evict: Evict) -> PodClass {
        match (self, evict) {
            (Self::Marked(class), _) => class,
            (Self::Unreadable | Self::Selected | Self::OwnerProtected, _)
            | (Self::Bare, Evict::None | Evict::Others | Evict::OthersAndJobs)
            | (Self::ToCompletion, Evict::None | Evict::Others) => PodClass::Wait,
            (Self::Finished | Self::Mirror | Self::OfDaemonSet, _)
            | (Self::Late | Self::SafeToEvict | Self::Other, Evict::None) => PodClass::Ignore,
            (Self::LeavesLast, _)
            | (Self::Bare, Evict::All)
            | (Self::ToCompletion, Evict::OthersAndJobs | Evict::All)
            | (
                Self::Late | Self::SafeToEvict | Self::Other,
                Evict::Others | Evict::OthersAndJobs | Evict::All,
            ) => PodClass::Evict,
        }
    }

    /// Describes the rule in a few words, for a plan.
    pub fn reason(self, evict: Evict) -> &'static str {
        match (self, self.class(evict)) {
            (Self::Unreadable, _) => "it cannot be read",
            (Self::Finished, _) => "it has finished",
            (Self::Mirror, _) => "it is a static pod of the kubelet",
            (Self::LeavesLast, _) => "its annotation recycle-eks/drain, after all other pods",
            (Self::OfDaemonSet, _) => "it belongs to a DaemonSet",
            (Self::Marked(_), _) => "its annotation recycle-eks/drain",
            (Self::Selected, _) => "label_selector matches it",
            (Self::OwnerProtected, _) => "its owner's annotation protects it",
            (Self::Late, PodClass::Evict | PodClass::Wait) => "it came after the taint and tolerates it",
            (Self::SafeToEvict, PodClass::Evict | PodClass::Wait) => "its annotation safe-to-evict allows it",
            (Self::Bare, PodClass::Evict) => "evict is all, and no controller starts it again",
            (Self::Bare, PodClass::Wait | PodClass::Ignore) => "no controller would start it again",
            (Self::ToCompletion, PodClass::Wait | PodClass::Ignore) => "it runs to completion",
            (Self::ToCompletion | Self::Other, PodClass::Evict) | (Self::Other, PodClass::Wait) => {
                "its controller starts it elsewhere"
            }
            (Self::Late | Self::SafeToEvict | Self::Other, PodClass::Ignore) => "evict is none",
        }
    }
}

/// Finds the rule that decides the pod's class.
pub fn find_rule(pod: &PodFacts, terms: &Terms<'_>) -> Rule {
    let mark = pod.annotated_class();
    if pod.unreadable.is_some() {
        Rule::Unreadable
    } else if pod.is_finished() {
        Rule::Finished
    } else if pod.is_mirror() {
        Rule::Mirror
    } else if pod.is_of_daemon_set() {
        // A DaemonSet that tolerates every taint starts its pod again at once. That one ends with the machine.
        let leaves = mark == Ok(Some(PodClass::Evict)) && !terms.is_late(pod);
        if leaves {
            Rule::LeavesLast
        } else {
            Rule::OfDaemonSet
        }
    } else if let Ok(Some(class)) = mark {
        Rule::Marked(class)
    } else if is_selected(pod, terms.awaited) {
        Rule::Selected
    } else if pod.is_not_to_be_disturbed(terms.now) && !terms.overrides.contains(&Override::OwnerProtected) {
        Rule::OwnerProtected
    } else if terms.is_late(pod) {
        Rule::Late
    } else if pod.is_bare() && pod.annotation(SAFE_TO_EVICT_ANNOTATION) == Some("true") {
        Rule::SafeToEvict
    } else if pod.is_bare() {
        Rule::Bare
    } else if pod.runs_to_completion() {
        Rule::ToCompletion
    } else {
        Rule::Other
    }
}

pub(crate) fn is_selected(pod: &PodFacts, awaited: &Awaited) -> bool {
    let in_namespace = awaited.namespaces.is_empty() || awaited.namespaces.contains(&pod.namespace);
    let selector = awaited.selector.as_ref();
    in_namespace && selector.is_some_and(|selector| selector.matches(&pod.labels))
}

/// Checks whether a node has only pods that every node has: DaemonSets' and mirrors. Finished pods do not count.
pub fn is_empty_node(pods: &[PodFacts]) -> bool {
    pods.iter().all(PodFacts::leaves_nothing)
}

impl PodFacts {
    /// Checks whether the pod should have been gone five minutes ago.
    pub(crate) fn is_stuck(&self, now: Timestamp) -> bool {
        self.deletion_at.is_some_and(|at| now > later(at, STUCK_AFTER))
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Checks whether an annotation for Karpenter, Cluster Autoscaler or Cyclops protects the pod.
    pub(crate) fn is_not_to_be_disturbed(&self, now: Timestamp) -> bool {
        let until_completion = matches!(
            self.annotation(SAFE_TO_EVICT_ANNOTATION),
            Some("false" | "on-completion")
        );
        let by_karpenter = match self.annotation(DO_NOT_DISRUPT_ANNOTATION) {
            None => false,
            Some("true") => true,
            Some(text) => text.parse::<SignedDuration>().is_ok_and(|protection| {
                let end = self.started_at.map(|start| start.checked_add(protection));
                end.is_none_or(|end| end.is_ok_and(|end| now < end))
            }),
        };
        until_completion || by_karpenter || self.annotation(CYCLOPS_ANNOTATION) == Some("true")
    }

    /// Checks whether the pod's annotation `recycle-eks/drain` is `evict`.
    pub(crate) fn is_marked_evict(&self) -> bool {
        self.annotated_class() == Ok(Some(PodClass::Evict))
    }

    /// Returns what the pod's annotation `recycle-eks/drain` says; None if there is none, an error if the value is unknown.
    fn annotated_class(&self) -> Result<Option<PodClass>, ()> {
        match self.annotation(DRAIN_ANNOTATION) {
            None => Ok(None),
            Some("wait") => Ok(Some(PodClass::Wait)),
            Some("evict") => Ok(Some(PodClass::Evict)),
            Some("ignore") => Ok(Some(PodClass::Ignore)),
            Some(_) => Err(()),
        }
    }

    /// Checks whether an annotation has a value that does not count: an unknown one, or one that a pod of this kind cannot have.
    pub(crate) fn has_bad_annotation(&self, rule: Rule) -> bool {
        let is_known = match rule {
            Rule::Unreadable | Rule::Finished => return false,
            Rule::Mirror | Rule::OfDaemonSet => {
                !matches!(self.annotated_class(), Ok(Some(PodClass::Wait)) | Err(()))
            }
            Rule::LeavesLast
            | Rule::Marked(_)
            | Rule::Selected
            | Rule::OwnerProtected
            | Rule::Late
            | Rule::SafeToEvict
            | Rule::Bare
            | Rule::ToCompletion
            | Rule::Other => self.annotated_class().is_ok(),
        };
        let is_flag = |value: &str| matches!(value, "true" | "false");
        let karpenter = self.annotation(DO_NOT_DISRUPT_ANNOTATION);
        let autoscaler = self.annotation(SAFE_TO_EVICT_ANNOTATION);
        !(is_known
            && karpenter.is_none_or(|value| is_flag(value) || value.parse::<SignedDuration>().is_ok())
            && autoscaler.is_none_or(|value| is_flag(value) || value == "on-completion")
            && self.annotation(CYCLOPS_ANNOTATION).is_none_or(is_flag))
    }
}

#[cfg(test)]
mod tests {
    use crate::base::names::DRAIN_ANNOTATION;
    use crate::base::text::NAMES_PER_CLASS;
    use crate::base::text::fit_names;
    use crate::cluster::pod::{Controller, PodContainers, PodScheduling, PodVolumes, Toleration};
    use crate::drain::survey::alternate_controllers;
    use crate::drain::survey::first_names;
    use crate::drain::survey::survey_pods;
    use crate::drain::terms::Terms;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::{BTreeMap, BTreeSet};

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
        with_tolerations,
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

    fn class_of(pod: &PodFacts, awaited: &Awaited, evict: Evict, now: i64) -> PodClass {
        let terms = Terms {
            awaited,
            now: at(now),
            ..terms()
        };
        find_rule(pod, &terms).class(evict)
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
        let safe_to_evict =
            |pod| with_annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict", "true");
        let drain = |pod, value| with_annotation(pod, "recycle-eks/drain", value);
        let custom = PodFacts {
            controller: controller("Workflow"),
            ..pod("a")
        };
        let workflow = PodFacts {
            containers: restarted("OnFailure"),
            ..custom.clone()
        };
        use Evict::{All as AndAll, None as NoPod, Others, OthersAndJobs as AndJobs};
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
                drain(daemon.clone(), "wait"),
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
                "do-not-disrupt counts for a Deployment",
                no_disrupt(pod("a")),
                none(),
                Others,
                Wait,
            ),
            (
                "safe-to-evict false counts for a Job",
                unsafe_to_evict(job_pod("a")),
                none(),
                Others,
                Wait,
            ),
            (
                "safe-to-evict false counts for a Deployment",
                unsafe_to_evict(pod("a")),
                none(),
                AndAll,
                Wait,
            ),
            (
                "Cyclops' annotation counts for a Deployment",
                with_annotation(pod("a"), "cyclops.atlassian.com/do-not-disrupt", "true"),
                none(),
                Others,
                Wait,
            ),
            (
                "a bare pod that is safe to evict is evicted",
                safe_to_evict(bare("a")),
                none(),
                Others,
                Go,
            ),
            (
                "a bare pod that is safe to evict is ignored without evictions",
                safe_to_evict(bare("a")),
                none(),
                NoPod,
                Ignore,
            ),
            (
                "a selected bare pod is awaited although it is safe to evict",
                safe_to_evict(bare("a")),
                all(),
                Others,
                Wait,
            ),
            ("a bare pod is evicted if asked", bare("a"), none(), AndAll, Go),
            (
                "a Job's pod is evicted with all",
                job_pod("a"),
                none(),
                AndAll,
                Go,
            ),
            (
                "the annotation wait wins over all",
                drain(bare("a"), "wait"),
                none(),
                AndAll,
                Wait,
            ),
            (
                "a DaemonSet's pod goes if it asks for it",
                drain(daemon.clone(), "evict"),
                none(),
                NoPod,
                Go,
            ),
            (
                "a pod of a DaemonSet of OpenKruise is evicted",
                PodFacts {
                    controller: Some(Controller {
                        api_group: "apps.kruise.io".to_owned(),
                        ..daemon.controller.clone().unwrap()
                    }),
                    ..daemon.clone()
                },
                none(),
                Others,
                Go,
            ),
            (
                "a pod that is marked as a DaemonSet's for Cluster Autoscaler is ignored",
                with_annotation(pod("a"), "cluster-autoscaler.kubernetes.io/daemonset-pod", "true"),
                all(),
                Others,
                Ignore,
            ),
            (
                "any other value of that mark does not count",
                with_annotation(pod("a"), "cluster-autoscaler.kubernetes.io/daemonset-pod", "yes"),
                none(),
                Others,
                Go,
            ),
            (
                "a bare pod from a file of the kubelet is ignored",
                with_annotation(bare("a"), "kubernetes.io/config.source", "file"),
                none(),
                Others,
                Ignore,
            ),
            (
                "a bare pod from the API server is awaited",
                with_annotation(bare("a"), "kubernetes.io/config.source", "api"),
                none(),
                Others,
                Wait,
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
            assert_eq!(class_of(&pod, &awaited, evict, 0), expected, "{name}");
        }
    }

    #[test]
    fn annotations_of_other_tools_are_read_as_these_tools_read_them() {
        let protected = |annotation: &str, value: &str, now: i64| {
            let pod = PodFacts {
                started_at: Some(at(0)),
                ..with_annotation(job_pod("a"), annotation, value)
            };
            class_of(&pod, &NO_AWAITED, Evict::OthersAndJobs, now) == PodClass::Wait
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
            scheduling: with_tolerations(tolerations),
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
                    scheduling: with_tolerations(blanket()),
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
                containers: PodContainers {
                    is_half_completed: true,
                    ..restarted("Never")
                },
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
                scheduling: with_tolerations(blanket()),
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
            with_annotation(pod("protected"), SAFE_TO_EVICT_ANNOTATION, "false"),
            with_annotation(pod("vague"), SAFE_TO_EVICT_ANNOTATION, "maybe"),
            PodFacts {
                controller: controller("StrimziPodSet"),
                ..with_annotation(pod("managed"), "recycle-eks/drain", "wait")
            },
            PodFacts {
                controller: controller("DaemonSet"),
                ..with_annotation(pod("logs"), "recycle-eks/drain", "evict")
            },
            PodFacts {
                controller: controller("DaemonSet"),
                ..with_annotation(pod("forever"), "recycle-eks/drain", "wait")
            },
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
                "finishing",
                "protected",
                "managed"
            ]
        );
        assert_eq!(names(&survey.evictable), ["web", "same-second", "typo", "vague"]);
        assert_eq!(names(&survey.terminating), ["leaving", "finishing"]);
        assert_eq!(
            names(&survey.remarks.never_ends),
            ["endless", "lonely", "chosen", "asked", "protected", "managed"]
        );
        assert_eq!(names(&survey.remarks.owner_protected), ["protected"]);
        assert_eq!(names(&survey.remarks.half_completed), ["script"]);
        assert_eq!(names(&survey.leaves_last), ["logs"]);
        assert_eq!(names(&survey.remarks.bare), ["lonely", "script"]);
        assert_eq!(names(&survey.tolerates_taint), ["tolerant"]);
        assert_eq!(
            names(&survey.remarks.bad_annotation),
            ["typo", "vague", "forever"]
        );
        assert_eq!(survey.ignored, 2);
    }

    #[test]
    fn only_a_value_that_its_tool_does_not_know_is_a_bad_annotation() {
        for (annotation, value, is_bad) in [
            (DO_NOT_DISRUPT_ANNOTATION, "true", false),
            (DO_NOT_DISRUPT_ANNOTATION, "30m", false),
            (DO_NOT_DISRUPT_ANNOTATION, "soon", true),
            (SAFE_TO_EVICT_ANNOTATION, "false", false),
            (SAFE_TO_EVICT_ANNOTATION, "on-completion", false),
            (SAFE_TO_EVICT_ANNOTATION, "maybe", true),
            (CYCLOPS_ANNOTATION, "true", false),
            (CYCLOPS_ANNOTATION, "yes", true),
        ] {
            let annotated = with_annotation(pod("web"), annotation, value);
            assert_eq!(
                annotated.has_bad_annotation(Rule::Other),
                is_bad,
                "{annotation} {value}"
            );
        }
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
                has_local_storage: true,
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
        assert_eq!(names(&survey.remarks.local_storage), ["loses-its-files"]);
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
    fn the_grace_period_of_the_input_counts_and_not_the_pods_own() {
        let pods = [0, 3_600].map(|grace_seconds| PodFacts {
            grace_seconds,
            ..pod("web")
        });
        for (grace, noted) in [(None, 1), (Some(60), 0), (Some(3_600), 2)] {
            let terms = Terms {
                now: at(86_000),
                grace,
                ..terms()
            };
            let survey = survey_pods(&pods, &terms);
            assert_eq!(survey.remarks.grace_too_long.len(), noted, "{grace:?}");
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
    fn an_owners_protection_can_be_overridden_and_other_rules_then_decide() {
        let protect = |pod| with_annotation(pod, DO_NOT_DISRUPT_ANNOTATION, "true");
        let overrides = BTreeSet::from([Override::OwnerProtected]);
        let terms = Terms {
            overrides: &overrides,
            ..terms()
        };
        for (pod, expected) in [
            (protect(pod("a")), Rule::Other),
            (protect(job_pod("a")), Rule::ToCompletion),
            (protect(bare("a")), Rule::Bare),
        ] {
            assert_eq!(find_rule(&pod, &terms), expected);
        }
    }

    #[test]
    fn every_rule_gives_a_reason_that_fits_its_class() {
        for evict in [Evict::Others, Evict::OthersAndJobs, Evict::All, Evict::None] {
            for rule in Rule::ALL {
                let is_left_alone = rule.reason(evict) == "evict is none";
                assert!(
                    !is_left_alone || rule.class(evict) == PodClass::Ignore,
                    "{rule:?} {evict:?}"
                );
            }
        }
    }

    /// The order is Karpenter's, except that awaited pods do not keep critical pods, because they may take hours.
    #[test]
    fn critical_pods_go_after_the_others_and_pods_of_daemon_sets_last() {
        let critical = |name: &str| PodFacts {
            scheduling: PodScheduling {
                priority_class: "system-cluster-critical".to_owned(),
                ..PodScheduling::default()
            },
            ..pod(name)
        };
        let of_system = PodFacts {
            namespace: "kube-system".to_owned(),
            ..pod("dns")
        };
        let leaving = |pod: PodFacts| PodFacts {
            deletion_at: Some(at(60)),
            ..pod
        };
        let logs = || PodFacts {
            controller: controller("DaemonSet"),
            ..with_annotation(pod("logs"), DRAIN_ANNOTATION, "evict")
        };
        let wait = || job_pod("train");
        let late = || PodFacts {
            created_at: Some(at(11)),
            scheduling: with_tolerations(blanket()),
            ..pod("late")
        };
        for (name, pods, expected) in [
            (
                "others first",
                vec![pod("web"), critical("api"), of_system.clone(), logs(), wait()],
                vec!["web"],
            ),
            (
                "while others leave",
                vec![leaving(pod("web")), critical("api"), logs()],
                vec![],
            ),
            (
                "critical pods beside awaited ones",
                vec![wait(), critical("api"), of_system.clone(), logs()],
                vec!["api", "dns"],
            ),
            (
                "critical pods do not wait for each other",
                vec![leaving(of_system), critical("api"), logs()],
                vec!["api"],
            ),
            ("awaited pods keep DaemonSets' pods", vec![wait(), logs()], vec![]),
            (
                "DaemonSets' pods before late pods",
                vec![logs(), late()],
                vec!["logs"],
            ),
            ("late pods", vec![leaving(logs()), late()], vec![]),
            ("only late pods", vec![late()], vec!["late"]),
        ] {
            let tainted = Terms {
                tainted_since: Some(at(10)),
                ..terms()
            };
            let survey = survey_pods(&pods, &tainted);
            assert_eq!(names(&survey.to_evict()), expected, "{name}");
            let over = Terms {
                now: at(86_400),
                ..tainted
            };
            let all = survey_pods(&pods, &over);
            assert!(
                all.to_evict().len() >= all.evictable.len() + all.leaves_last.len(),
                "{name}"
            );
        }
        let again = PodFacts {
            created_at: Some(at(11)),
            scheduling: with_tolerations(blanket()),
            ..logs()
        };
        let tainted = Terms {
            tainted_since: Some(at(10)),
            ..terms()
        };
        assert_eq!(
            survey_pods(&[again], &tainted).ignored,
            1,
            "started again by its DaemonSet"
        );
    }

    #[test]
    fn a_stuck_pod_holds_the_node_until_it_is_skipped() {
        let leaving = |pod: PodFacts| PodFacts {
            deletion_at: Some(at(0)),
            ..pod
        };
        let pods = [leaving(pod("web")), leaving(job_pod("job"))];
        for (skip_stuck_after, now, skipped) in [
            (None, 80_000, 0),
            (Some(600), 600, 0),
            (Some(600), 601, 2),
            (Some(300), 301, 2),
        ] {
            let terms = Terms {
                skip_stuck_after,
                now: at(now),
                ..terms()
            };
            let survey = survey_pods(&pods, &terms);
            assert_eq!(survey.skipped.len(), skipped, "{skip_stuck_after:?} {now}");
            assert_eq!(survey.is_clear(), skipped == 2, "{skip_stuck_after:?} {now}");
            assert_eq!(
                survey.awaited.len(),
                usize::from(skipped == 0),
                "{skip_stuck_after:?} {now}"
            );
        }
    }

    #[test]
    fn a_crash_looping_pod_is_deleted_past_its_budget_if_the_input_asks_for_it() {
        let looping = |is_crash_looping, is_ready| {
            let mut pod = pod("a");
            (pod.containers.is_crash_looping, pod.containers.is_ready) = (is_crash_looping, is_ready);
            pod
        };
        for (name, asked, pod, kind, expected) in [
            ("asked", true, looping(true, false), RefusalKind::BudgetFull, true),
            (
                "several budgets",
                true,
                looping(true, false),
                RefusalKind::SeveralBudgets,
                true,
            ),
            (
                "not asked",
                false,
                looping(true, false),
                RefusalKind::BudgetFull,
                false,
            ),
            (
                "only not Ready",
                true,
                looping(false, false),
                RefusalKind::BudgetFull,
                false,
            ),
            (
                "Ready again",
                true,
                looping(true, true),
                RefusalKind::BudgetFull,
                false,
            ),
            (
                "a webhook",
                true,
                looping(true, false),
                RefusalKind::Admission,
                false,
            ),
            (
                "a budget that was not processed yet",
                true,
                looping(true, false),
                RefusalKind::BudgetNotReady,
                false,
            ),
        ] {
            let overrides: BTreeSet<Override> =
                asked.then_some(Override::UnhealthyBudget).into_iter().collect();
            let terms = Terms {
                overrides: &overrides,
                ..terms()
            };
            assert_eq!(terms.may_delete(&pod, kind), expected, "{name}");
        }
    }

    #[test]
    fn pods_of_one_controller_are_not_evicted_in_a_row() {
        let of = |controller_name: &str, name: &str| PodFacts {
            controller: Some(Controller {
                kind: "ReplicaSet".to_owned(),
                name: controller_name.to_owned(),
                uid: format!("uid-{controller_name}"),
                api_group: "apps".to_owned(),
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
            scheduling: with_tolerations(blanket()),
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
                    let [is_pending, is_debugged, has_local_storage] = is;
                    let name = format!("{:p<243}{number:010}", "");
                    let pod = PodFacts {
                        namespace: "n".repeat(63),
                        controller,
                        containers: PodContainers {
                            restart_policy: restart_policy.to_owned(),
                            is_debugged,
                            is_half_completed: is_debugged,
                            ..PodContainers::default()
                        },
                        deletion_at,
                        created_at: Some(created_at),
                        phase: if is_pending { "Pending" } else { "Running" }.to_owned(),
                        grace_seconds,
                        volumes: PodVolumes {
                            claims: Vec::new(),
                            has_local_storage,
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
                + survey.leaves_last.len()
                + survey.skipped.len()
                + survey.tolerates_taint.len()
                + only_leaving;
            prop_assert_eq!(counted, pods.len());
        }
    }
}
