//! Sorts the pods of a node by class.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::text::{NAMES_PER_CLASS, fit_names};
use crate::cluster::pod::PodFacts;
use crate::drain::classify::{PodClass, class_of_others, explain_class, find_asked_class};
use crate::drain::terms::Terms;

/// How many bytes all names of an answer may have together: with the longest input, group and certificate an answer stays under
/// 8 KB.
pub const NAMES_BUDGET: usize = 1_300;

/// Every reading of the pods of one node, for one moment. A pod may be in several lists; `ignored`, `unreadable`, `awaited`, `evictable`,
/// `zone_mismatch`, `tolerates_taint` and the pods that are only `terminating` or `stuck` are disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSurvey {
    /// Pods that cannot be read. They hold the node, and are never asked to go: each may be one that has to be waited for.
    pub unreadable: Vec<PodFacts>,
    /// Pods to wait for.
    pub awaited: Vec<PodFacts>,
    /// Pods to evict that have not been asked to go yet.
    pub evictable: Vec<PodFacts>,
    /// Pods that would be evicted, but for a volume that no other node can use now ([`crate::drain::volumes`]): they hold the node.
    pub zone_mismatch: Vec<PodFacts>,
    /// Of each of them, which volume and which nodes; of each pod that cannot be read, which field: one sentence.
    pub held_because: Vec<String>,
    /// Pods that are on their way out, and have time left; those that are waited for are also among `awaited`.
    pub terminating: Vec<PodFacts>,
    /// Pods that should have been gone five minutes ago; those that are waited for are also among `awaited`.
    pub stuck: Vec<PodFacts>,
    /// Pods that tolerate our taint and came after it, and that no selector or annotation asks to wait for: they are asked to go when nothing else holds
    /// the node, for [`LATE_PATIENCE`].
    pub tolerates_taint: Vec<PodFacts>,
    /// What people should know of some of these pods.
    pub remarks: PodRemarks,
    /// Pods that do not matter.
    pub ignored: u32,
}

/// Lists for people: they change neither the class of a pod nor the verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRemarks {
    /// Pods that were waited for until their time was over (`on_drain_timeout`); also among `evictable`.
    pub out_of_time: Vec<PodFacts>,
    /// Pods that may need longer to end than the drain has time left: to be evicted, or on their way out.
    pub grace_too_long: Vec<PodFacts>,
    /// Awaited pods that cannot end by themselves; also among `awaited`.
    pub never_ends: Vec<PodFacts>,
    /// Bare pods that are waited for because nothing would bring them back; also among `awaited`.
    pub bare: Vec<PodFacts>,
    /// Pods that are waited for because they run to completion, and no selector or annotation says more; also among `awaited`.
    pub to_completion: Vec<PodFacts>,
    /// Pods to evict that have an emptyDir, whose content is lost; also among `evictable`.
    pub empty_dir: Vec<PodFacts>,
    /// Pods into which somebody looks with a debug container. Their class is what it would be without.
    pub debugged: Vec<PodFacts>,
    /// Pods that are bound to the node and have not begun. Their class is what it would be if they had.
    pub pending: Vec<PodFacts>,
    /// Pods whose annotation `recycle-eks/drain` says nothing that we know: classed as if they had none.
    pub bad_annotation: Vec<PodFacts>,
}

#[must_use]
pub fn survey_pods(pods: &[PodFacts], terms: &Terms<'_>) -> PodSurvey {
    let mut survey = PodSurvey::default();
    for pod in pods {
        add_pod(&mut survey, pod, terms);
    }
    survey
}

fn add_pod(survey: &mut PodSurvey, pod: &PodFacts, terms: &Terms<'_>) {
    if let Some(why) = &pod.unreadable {
        survey.unreadable.push(pod.clone());
        survey
            .held_because
            .push(format!("cannot read pod {}: {why}", pod.full_name()));
        return;
    }
    let asked = find_asked_class(pod, terms.awaited, terms.now);
    let is_late = terms.is_late(pod);
    let (class, _) = match asked {
        Some(asked) => asked,
        None if is_late => class_of_others(terms.evict),
        None => explain_class(pod, terms.awaited, terms.evict, terms.now),
    };
    if pod.annotated_class().is_err() && !pod.is_finished() {
        survey.remarks.bad_annotation.push(pod.clone());
    }
    if class == PodClass::Ignore {
        survey.ignored += 1;
        return;
    }
    if is_late && class != PodClass::Wait {
        survey.tolerates_taint.push(pod.clone());
        return;
    }
    survey.add_remarks(pod, terms);
    let is_leaving = pod.deletion_at.is_some();
    match class {
        PodClass::Wait if !is_leaving && terms.is_out_of_time(pod) => {
            survey.remarks.out_of_time.push(pod.clone());
            survey.add_evictable(pod, terms);
        }
        PodClass::Wait => survey.add_awaited(pod, terms),
        PodClass::Evict if !is_leaving => survey.add_evictable(pod, terms),
        PodClass::Evict | PodClass::Ignore => {}
    }
}

impl PodSurvey {
    /// What has nothing to do with the pod's class.
    fn add_remarks(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        if pod.is_stuck(terms.now) {
            self.stuck.push(pod.clone());
        } else if pod.deletion_at.is_some() {
            self.terminating.push(pod.clone());
            self.compare_grace(pod, terms);
        }
        if pod.containers.is_debugged {
            self.remarks.debugged.push(pod.clone());
        }
        if pod.is_pending() {
            self.remarks.pending.push(pod.clone());
        }
    }

    fn add_awaited(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        self.awaited.push(pod.clone());
        if !pod.can_end() && pod.deletion_at.is_none() {
            self.remarks.never_ends.push(pod.clone());
        }
        if find_asked_class(pod, terms.awaited, terms.now).is_none() {
            let class = if pod.is_bare() {
                &mut self.remarks.bare
            } else {
                &mut self.remarks.to_completion
            };
            class.push(pod.clone());
        }
    }

    fn add_evictable(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        self.evictable.push(pod.clone());
        self.compare_grace(pod, terms);
        if pod.volumes.has_empty_dir {
            self.remarks.empty_dir.push(pod.clone());
        }
    }

    /// Once the time is over, it is too late for every pod, and nothing is said of it any more.
    fn compare_grace(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        if !terms.is_time_over() && pod.ends_at(terms.now) > terms.deadline.at {
            self.remarks.grace_too_long.push(pod.clone());
        }
    }

    /// Nothing is left that holds the node.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.holding().is_empty()
    }

    /// Whom to ask to go: once nothing else holds the node, those that tolerate our taint.
    #[must_use]
    pub fn to_evict(&self) -> Vec<PodFacts> {
        if !self.is_clear() {
            return self.evictable.clone();
        }
        let late = self.tolerates_taint.iter();
        late.filter(|pod| pod.deletion_at.is_none()).cloned().collect()
    }

    /// The pods that hold the node, each once.
    #[must_use]
    pub fn holding(&self) -> Vec<PodFacts> {
        let mut holding: Vec<PodFacts> = [
            &self.unreadable,
            &self.awaited,
            &self.evictable,
            &self.zone_mismatch,
            &self.terminating,
            &self.stuck,
        ]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
        // Pods whose uid cannot be read differ in their names.
        holding.sort_by_key(|pod| (pod.uid.clone(), pod.full_name()));
        holding.dedup_by_key(|pod| (pod.uid.clone(), pod.full_name()));
        holding
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
        self.names_within(NAMES_BUDGET)
    }

    /// The same within so many bytes.
    pub(crate) fn names_within(&self, budget: usize) -> BTreeMap<String, Vec<String>> {
        name_lists(self.classes(), budget)
    }

    fn classes(&self) -> [(&'static str, &[PodFacts]); 16] {
        [
            ("unreadable", &self.unreadable),
            ("awaited", &self.awaited),
            ("evictable", &self.evictable),
            ("zone_mismatch", &self.zone_mismatch),
            ("terminating", &self.terminating),
            ("stuck", &self.stuck),
            ("out_of_time", &self.remarks.out_of_time),
            ("grace_too_long", &self.remarks.grace_too_long),
            ("never_ends", &self.remarks.never_ends),
            ("bare", &self.remarks.bare),
            ("to_completion", &self.remarks.to_completion),
            ("empty_dir", &self.remarks.empty_dir),
            ("debugged", &self.remarks.debugged),
            ("pending", &self.remarks.pending),
            ("tolerates_taint", &self.tolerates_taint),
            ("bad_annotation", &self.remarks.bad_annotation),
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

/// The first five names of each list that has any, cut if together they have more than so many bytes.
#[must_use]
pub fn name_lists<'a>(
    lists: impl IntoIterator<Item = (&'a str, &'a [PodFacts])>,
    budget: usize,
) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = lists
        .into_iter()
        .filter(|(_, pods)| !pods.is_empty())
        .map(|(list, pods)| (list.to_owned(), first_names(pods)))
        .collect();
    fit_names(&mut names.values_mut().flatten().collect::<Vec<_>>(), budget);
    names
}

/// The pods of each controller in turn: the API server works on the evictions of one budget one after the other, and on those of
/// several at the same time.
#[must_use]
pub fn take_turns(pods: Vec<PodFacts>) -> Vec<PodFacts> {
    let mut seen: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    let mut turns: Vec<(usize, PodFacts)> = pods
        .into_iter()
        .map(|pod| {
            let controller = pod.controller.as_ref().map(|controller| controller.name.clone());
            let turn = seen.entry((pod.namespace.clone(), controller)).or_default();
            *turn += 1;
            (*turn, pod)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, pod)| pod).collect()
}

impl Terms<'_> {
    /// When the first of the pods that are waited for is asked to go after all, if one is before the deadline.
    pub(crate) fn next_end_of_patience(&self, survey: &PodSurvey) -> Option<Timestamp> {
        let waiting = survey.awaited.iter().filter(|pod| pod.deletion_at.is_none());
        waiting.filter_map(|pod| self.end_of_patience(pod)).min()
    }
}
