//! Pod classes: which pods a drain ignores, waits for, or evicts (DESIGN §3).
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
const NAMES_BUDGET: usize = 3_000;
/// To how many characters a name is cut if the full names are over the budget: five names in each of eight classes fit then.
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
/// `tolerates_taint` and the pods that are only `terminating` are disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSurvey {
    /// Pods to wait for.
    pub awaited: Vec<PodFacts>,
    /// Pods to evict that have not been asked to go yet.
    pub evictable: Vec<PodFacts>,
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

/// Decides a pod's class; the first rule that matches wins (DESIGN §3).
#[must_use]
pub fn classify_pod(pod: &PodFacts, awaited: &Awaited, evict: Evict) -> PodClass {
    if pod.is_finished() || pod.is_controlled_by(&["DaemonSet"]) || pod.is_mirror() {
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
        self.awaited.is_empty() && self.evictable.is_empty() && self.terminating.is_empty()
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
        if names.values().flatten().map(String::len).sum::<usize>() > NAMES_BUDGET {
            for name in names.values_mut().flatten() {
                cut_name(name, CUT_NAME);
            }
        }
        names
    }

    fn classes(&self) -> [(&'static str, &[PodFacts]); 7] {
        [
            ("awaited", &self.awaited),
            ("evictable", &self.evictable),
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

fn cut_name(name: &mut String, length: usize) {
    if name.chars().count() > length {
        *name = name.chars().take(length - 1).chain(['…']).collect();
    }
}
