//! Pod classes: which pods a drain ignores, waits for, or evicts.
//!
//! Nothing here knows how long a pod has been what it is: `stuck` and `blocked` need timers and live elsewhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::input::{Awaited, Evict};
use crate::names::DRAIN_ANNOTATION;

/// How many names of a class an answer gives.
pub const NAMES_PER_CLASS: usize = 5;
/// How many bytes all names of an answer may have together: with the longest input, group and certificate an answer stays under
/// 8 KB.
const NAMES_BUDGET: usize = 2_400;
/// To how many characters a name is cut if the full names are over a budget: five names in each class fit then.
const CUT_NAME: usize = 60;

/// Set by the kubelet on pods that it runs from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Karpenter's "leave this pod alone".
const DO_NOT_DISRUPT_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";
/// Cluster Autoscaler's "leave this pod alone", if it is `false`.
const SAFE_TO_EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Who controls a pod (`metadata.ownerReferences`, the one with `controller: true`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its kind, such as `ReplicaSet`, `DaemonSet`, `Job` or `Node`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What we need to know of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, the precondition of an eviction.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Who controls it; none for a bare pod.
    pub controller: Option<Controller>,
    /// `status.phase`: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// `spec.restartPolicy`: `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: it includes the grace period.
    pub deletion_at: Option<Timestamp>,
    /// The PersistentVolumeClaims in `spec.volumes`, which outlive it.
    pub volume_claims: Vec<String>,
}

impl PodFacts {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn is_controlled_by(&self, kinds: &[&str]) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|controller| kinds.contains(&controller.kind.as_str()))
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    fn is_mirror(&self) -> bool {
        self.annotations.contains_key(MIRROR_ANNOTATION) || self.is_controlled_by(&["Node"])
    }

    /// Its node's end takes nothing away: it has finished, or every node has one like it.
    fn leaves_nothing(&self) -> bool {
        self.is_finished() || self.is_controlled_by(&["DaemonSet"]) || self.is_mirror()
    }

    /// Nothing would bring it back elsewhere.
    fn is_bare(&self) -> bool {
        self.controller.is_none()
    }

    /// It may come to an end without anybody asking. With restartPolicy Always it is restarted for ever, unless a controller
    /// that we do not know removes it when its work is done.
    fn can_end(&self) -> bool {
        self.restart_policy != "Always"
            || !(self.is_bare()
                || self.is_controlled_by(&["ReplicaSet", "StatefulSet", "ReplicationController"]))
    }

    /// Another tool was told to leave it alone.
    fn is_not_to_be_disturbed(&self) -> bool {
        let is = |annotation: &str, value: &str| {
            self.annotations
                .get(annotation)
                .is_some_and(|given| given == value)
        };
        is(DO_NOT_DISRUPT_ANNOTATION, "true") || is(SAFE_TO_EVICT_ANNOTATION, "false")
    }

    /// Our annotation says `evict`.
    pub(crate) fn is_told_to_go(&self) -> bool {
        self.annotated_class() == Ok(Some(PodClass::Evict))
    }

    /// What our annotation says; none if there is none, an error if it says nothing that we know.
    fn annotated_class(&self) -> Result<Option<PodClass>, ()> {
        match self.annotations.get(DRAIN_ANNOTATION).map(String::as_str) {
            None => Ok(None),
            Some("wait") => Ok(Some(PodClass::Wait)),
            Some("evict") => Ok(Some(PodClass::Evict)),
            Some("ignore") => Ok(Some(PodClass::Ignore)),
            Some(_) => Err(()),
        }
    }
}

/// What a drain does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodClass {
    /// Left alone; it does not hold the node.
    Ignore,
    /// Waited for: it ends by itself.
    Wait,
    /// Evicted through the Eviction API.
    Evict,
}

/// Every reading of the pods of one node, for one moment. A pod may be in several lists; `ignored`, `awaited`, `evictable`,
/// `zone_mismatch`, `tolerates_taint` and the pods that are only `terminating` are disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSurvey {
    /// Pods to wait for.
    pub awaited: Vec<PodFacts>,
    /// Pods to evict that have not been asked to go yet.
    pub evictable: Vec<PodFacts>,
    /// Pods that would be evicted, but for a volume that no other node can use now ([`crate::zones`]): they hold the node.
    pub zone_mismatch: Vec<PodFacts>,
    /// Of each of them, which volume and which nodes: one sentence.
    pub held_because: Vec<String>,
    /// Pods that are on their way out; those that are waited for are also among `awaited`.
    pub terminating: Vec<PodFacts>,
    /// Awaited pods that cannot end by themselves; also among `awaited`.
    pub never_ends: Vec<PodFacts>,
    /// Bare pods that are waited for because nothing would bring them back; also among `awaited`.
    pub bare: Vec<PodFacts>,
    /// Pods created after our taint: neither evicted nor waited for.
    pub tolerates_taint: Vec<PodFacts>,
    /// Pods whose annotation `recycle-eks/drain` says nothing that we know: classed as if they had none.
    pub bad_annotation: Vec<PodFacts>,
    /// Pods that do not matter.
    pub ignored: u32,
}

/// Decides a pod's class; the first rule that matches wins.
#[must_use]
pub fn classify_pod(pod: &PodFacts, awaited: &Awaited, evict: Evict) -> PodClass {
    if pod.leaves_nothing() {
        return PodClass::Ignore;
    }
    if let Ok(Some(class)) = pod.annotated_class() {
        return class;
    }
    if is_selected(pod, awaited) || (pod.is_not_to_be_disturbed() && pod.can_end()) || pod.is_bare() {
        return PodClass::Wait;
    }
    match evict {
        Evict::Others => PodClass::Evict,
        Evict::None => PodClass::Ignore,
    }
}

fn is_selected(pod: &PodFacts, awaited: &Awaited) -> bool {
    let in_namespace = awaited.namespaces.is_empty() || awaited.namespaces.contains(&pod.namespace);
    in_namespace
        && awaited
            .selector
            .as_ref()
            .is_some_and(|selector| selector.matches(&pod.labels))
}

/// A bare pod that is waited for only because it is bare.
fn waits_as_bare(pod: &PodFacts, awaited: &Awaited) -> bool {
    pod.is_bare() && !matches!(pod.annotated_class(), Ok(Some(_))) && !is_selected(pod, awaited)
}

/// Whether a node has no pods but those that every node has: DaemonSets' and mirrors. Finished ones do not count.
#[must_use]
pub fn is_empty_node(pods: &[PodFacts]) -> bool {
    pods.iter().all(PodFacts::leaves_nothing)
}

/// Sorts the pods of a node. `tainted_at` is when our taint was set, if it was.
#[must_use]
pub fn survey_pods(
    pods: &[PodFacts],
    awaited: &Awaited,
    evict: Evict,
    tainted_at: Option<Timestamp>,
) -> PodSurvey {
    let mut survey = PodSurvey::default();
    for pod in pods {
        add_pod(&mut survey, pod, awaited, evict, tainted_at);
    }
    survey
}

fn add_pod(
    survey: &mut PodSurvey,
    pod: &PodFacts,
    awaited: &Awaited,
    evict: Evict,
    tainted_at: Option<Timestamp>,
) {
    let class = classify_pod(pod, awaited, evict);
    if pod.annotated_class().is_err() && !pod.is_finished() {
        survey.bad_annotation.push(pod.clone());
    }
    if class == PodClass::Ignore {
        survey.ignored += 1;
        return;
    }
    let came_after_taint =
        tainted_at.is_some_and(|taint| pod.created_at.is_some_and(|created| created > taint));
    if came_after_taint {
        survey.tolerates_taint.push(pod.clone());
        return;
    }
    let is_terminating = pod.deletion_at.is_some();
    if is_terminating {
        survey.terminating.push(pod.clone());
    }
    match class {
        PodClass::Wait => {
            survey.awaited.push(pod.clone());
            if !pod.can_end() && !is_terminating {
                survey.never_ends.push(pod.clone());
            }
            if waits_as_bare(pod, awaited) {
                survey.bare.push(pod.clone());
            }
        }
        PodClass::Evict if !is_terminating => survey.evictable.push(pod.clone()),
        PodClass::Evict | PodClass::Ignore => {}
    }
}

impl PodSurvey {
    /// Nothing is left that holds the node.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.awaited.is_empty()
            && self.evictable.is_empty()
            && self.zone_mismatch.is_empty()
            && self.terminating.is_empty()
    }

    /// How many pods of each class: the `counts` of an answer. A class without pods is left out.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts: BTreeMap<String, u32> = self
            .classes()
            .into_iter()
            .map(|(class, pods)| (class.to_owned(), u32::try_from(pods.len()).unwrap_or(u32::MAX)))
            .collect();
        counts.insert("ignored".to_owned(), self.ignored);
        counts.retain(|_, count| *count > 0);
        counts
    }

    /// The first five names of each class: the `names` of an answer. All of them are cut if together they would be too long.
    #[must_use]
    pub fn names(&self) -> BTreeMap<String, Vec<String>> {
        let mut names: BTreeMap<String, Vec<String>> = self
            .classes()
            .into_iter()
            .map(|(class, pods)| (class.to_owned(), first_names(pods)))
            .collect();
        names.retain(|_, of_class| !of_class.is_empty());
        fit_names(names.values_mut().flatten().collect(), NAMES_BUDGET);
        names
    }

    fn classes(&self) -> [(&'static str, &[PodFacts]); 8] {
        [
            ("awaited", &self.awaited),
            ("evictable", &self.evictable),
            ("zone_mismatch", &self.zone_mismatch),
            ("terminating", &self.terminating),
            ("never_ends", &self.never_ends),
            ("bare", &self.bare),
            ("tolerates_taint", &self.tolerates_taint),
            ("bad_annotation", &self.bad_annotation),
        ]
    }
}

/// The first five full names in the order of the alphabet, so that they do not change with the API server's order.
#[must_use]
pub fn first_names(pods: &[PodFacts]) -> Vec<String> {
    let mut names: Vec<String> = pods.iter().map(PodFacts::full_name).collect();
    names.sort();
    names.truncate(NAMES_PER_CLASS);
    names
}

/// Cuts all names if together they have more than so many bytes: answers are small by construction, whatever pods are called.
pub(crate) fn fit_names(names: Vec<&mut String>, budget: usize) {
    if names.iter().map(|name| name.len()).sum::<usize>() > budget {
        for name in names {
            cut_text(name, CUT_NAME);
        }
    }
}

/// Cuts a text to so many characters, the last of which tells that it was cut.
pub(crate) fn cut_text(text: &mut String, length: usize) {
    if text.chars().count() > length {
        *text = text.chars().take(length - 1).chain(['…']).collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::contract::{Answer, CheckVerdict, Cluster, Run, WayIn};
    use crate::drain::{describe_pods, find_deadline};
    use crate::fixtures::{at, controller, input, job_pod, pod, strings};

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
        use Evict::{None as Nobody, Others};
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
                "our annotation wait wins over no selector",
                drain(pod("a"), "wait"),
                none(),
                Others,
                Wait,
            ),
            (
                "our annotation evict wins over the selector",
                drain(pod("a"), "evict"),
                all(),
                Others,
                Go,
            ),
            (
                "our annotation ignore wins over the selector",
                drain(pod("a"), "ignore"),
                all(),
                Others,
                Ignore,
            ),
            (
                "our annotation evict wins over evict none",
                drain(pod("a"), "evict"),
                none(),
                Nobody,
                Go,
            ),
            (
                "our annotation evict wins over being bare",
                drain(bare("a"), "evict"),
                none(),
                Others,
                Go,
            ),
            (
                "an annotation that says nothing does not count",
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
                Nobody,
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
                "do-not-disrupt does not count for what never ends",
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
                "safe-to-evict false does not count for what never ends",
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
                Nobody,
                Wait,
            ),
            (
                "safe-to-evict true says nothing",
                with_annotation(
                    job_pod("a"),
                    "cluster-autoscaler.kubernetes.io/safe-to-evict",
                    "true",
                ),
                none(),
                Others,
                Go,
            ),
            ("a bare pod is awaited", bare("a"), none(), Others, Wait),
            (
                "a bare pod is awaited without evictions",
                bare("a"),
                none(),
                Nobody,
                Wait,
            ),
            ("everything else is evicted", pod("a"), none(), Others, Go),
            (
                "a Job's pod that nobody selected is evicted",
                job_pod("a"),
                none(),
                Others,
                Go,
            ),
            (
                "everything else is left alone if asked",
                pod("a"),
                none(),
                Nobody,
                Ignore,
            ),
        ];
        for (name, pod, awaited, evict, expected) in cases {
            assert_eq!(classify_pod(&pod, &awaited, evict), expected, "{name}");
        }
    }

    #[test]
    fn a_survey_names_what_people_should_know() {
        let pods = [
            with_label(job_pod("job"), "app", "batch"),
            with_label(pod("endless"), "app", "batch"),
            bare("lonely"),
            PodFacts {
                restart_policy: "Never".to_owned(),
                ..bare("script")
            },
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
        let survey = survey_pods(&pods, &awaiting("app=batch", &[]), Evict::Others, Some(at(10)));
        let names = |pods: &[PodFacts]| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            names(&survey.awaited),
            ["job", "endless", "lonely", "script", "finishing"]
        );
        assert_eq!(names(&survey.evictable), ["web", "same-second", "typo"]);
        assert_eq!(names(&survey.terminating), ["leaving", "finishing"]);
        assert_eq!(names(&survey.never_ends), ["endless", "lonely"]);
        assert_eq!(names(&survey.bare), ["lonely", "script"]);
        assert_eq!(names(&survey.tolerates_taint), ["tolerant"]);
        assert_eq!(names(&survey.bad_annotation), ["typo"]);
        assert_eq!(survey.ignored, 1);
    }

    #[test]
    fn counts_and_names_leave_out_empty_classes() {
        let pods: Vec<PodFacts> = ["g", "c", "a", "b", "f", "e"]
            .iter()
            .map(|name| pod(name))
            .collect();
        let survey = survey_pods(&pods, &Awaited::default(), Evict::Others, None);
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
    fn a_node_is_clear_when_only_what_does_not_matter_is_left() {
        let tolerant = PodFacts {
            created_at: Some(at(11)),
            ..pod("tolerant")
        };
        let daemon = PodFacts {
            controller: controller("DaemonSet"),
            ..pod("daemon")
        };
        let survey = survey_pods(
            &[tolerant, daemon],
            &Awaited::default(),
            Evict::Others,
            Some(at(10)),
        );
        assert!(survey.is_clear());
        let leaving = PodFacts {
            deletion_at: Some(at(0)),
            ..pod("leaving")
        };
        assert!(!survey_pods(&[leaving], &Awaited::default(), Evict::Others, None).is_clear());
    }

    /// The longest of everything that travels in an answer beside the pods.
    fn longest_run() -> Run {
        let namespaces: Vec<String> = (0..16).map(|number| format!("{:a<61}{number:02}", "")).collect();
        let selector = format!("{},b", vec!["a=b"; 127].join(","));
        assert!(selector.len() <= 512 && selector.len() > 500);
        Run {
            input: input(json!({"label_selector": selector, "namespaces": namespaces,
                "force": ["scale_in_protection", "suspended_process"]})),
            way_in: WayIn::Before,
            cluster: Cluster {
                name: "c".repeat(100).parse().unwrap(),
                endpoint: format!("https://{}.gr7.eu-west-1.eks.amazonaws.com", "A".repeat(32)),
                certificate_authority: "A".repeat(1_600),
            },
            group: "g".repeat(255).parse().unwrap(),
            node: "n".repeat(253).parse().unwrap(),
            claimed_at: at(0),
            replacement_since: Some(at(1)),
            draining_since: Some(at(2)),
            drain_until: None,
            polls: u32::MAX,
            last_eviction: Some(at(3)),
            disposing_since: Some(at(4)),
            holders: None,
            lost: None,
            old: None,
        }
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
            prop::option::of(Just(at(60))),
            prop::sample::select(vec![at(0), at(20)]),
        )
            .prop_map(
                |(number, controller, restart_policy, annotation, deletion_at, created_at)| {
                    let name = format!("{:p<243}{number:010}", "");
                    let pod = PodFacts {
                        namespace: "n".repeat(63),
                        controller,
                        restart_policy: restart_policy.to_owned(),
                        deletion_at,
                        created_at: Some(created_at),
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
        ) {
            let survey = survey_pods(&pods, &awaiting("*", &[]), Evict::Others, Some(at(10)));
            let (_, remark) = find_deadline(at(0), at(0), 60, Some(&"x".repeat(999)));
            let reason = format!("{}; {}", describe_pods(&survey), remark.unwrap());
            let mut answer = Answer::new(CheckVerdict::Wait, reason).carrying(longest_run());
            answer.counts = survey.counts();
            answer.names = survey.names();
            let bytes = serde_json::to_string(&answer).unwrap().len();
            prop_assert!(bytes <= 8_192, "{} bytes", bytes);
        }

        #[test]
        fn every_pod_is_counted_in_exactly_one_of_the_disjoint_lists(
            pods in prop::collection::vec(any_pod(), 0..50),
            selected in any::<bool>(),
        ) {
            let awaited = if selected { awaiting("*", &[]) } else { Awaited::default() };
            let survey = survey_pods(&pods, &awaited, Evict::Others, Some(at(10)));
            let only_leaving = survey.terminating.iter().filter(|pod| !survey.awaited.contains(pod)).count();
            let counted = survey.ignored as usize
                + survey.awaited.len()
                + survey.evictable.len()
                + survey.tolerates_taint.len()
                + only_leaving;
            prop_assert_eq!(counted, pods.len());
        }
    }
}
