//! Sorts the pods of a node by class, with remarks such as `half_completed`.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::text::{NAMES_PER_CLASS, fit_names};
use crate::cluster::pod::PodFacts;
use crate::drain::classify::{PodClass, Rule, find_rule};
use crate::drain::terms::Terms;

/// The bytes that all names of an answer may have together.
/// With the longest input, group and certificate an answer stays under 8 KB.
pub const NAMES_BUDGET: usize = 1_300;

/// The pods of one node by class, at one time. A pod may be in several lists.
/// `ignored`, `unreadable`, `awaited`, `evictable`, `leaves_last`, `zone_mismatch`, `tolerates_taint`, `skipped`
/// and the pods that are only `terminating` or `stuck` are disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSurvey {
    /// Pods that cannot be read. They hold the node and are never evicted, because each may be a pod that has to be waited for.
    pub unreadable: Vec<PodFacts>,
    pub awaited: Vec<PodFacts>,
    /// Pods to evict that are not leaving yet.
    pub evictable: Vec<PodFacts>,
    /// Pods of DaemonSets that are evicted once no other pod holds the node, because their owner asks for it.
    pub leaves_last: Vec<PodFacts>,
    /// Pods that are not evicted because no other node can use one of their volumes now ([`crate::drain::volumes`]). They hold the node.
    pub zone_mismatch: Vec<PodFacts>,
    /// One sentence for each pod in `zone_mismatch`, with the volume and the nodes it needs.
    /// One sentence for each pod in `unreadable`, with the field that cannot be read.
    pub held_because: Vec<String>,
    /// Pods that are leaving and have time left. Awaited pods are also among `awaited`.
    pub terminating: Vec<PodFacts>,
    /// Pods that should have been gone five minutes ago. Awaited pods are also among `awaited`.
    pub stuck: Vec<PodFacts>,
    /// Late pods: they tolerate the draining taint, came after it, and no selector or annotation asks to wait for them.
    /// They are evicted for [`crate::drain::terms::LATE_PATIENCE`] seconds once nothing else holds the node.
    pub tolerates_taint: Vec<PodFacts>,
    /// Pods that have been stuck for so long that they no longer hold the node (`skip_stuck_after`).
    pub skipped: Vec<PodFacts>,
    /// Whether all pods are evicted at once: the drain's time is over, or EC2 takes the instance away.
    pub hurries: bool,
    /// Remarks about some of these pods.
    pub remarks: PodRemarks,
    /// The number of pods that do not matter.
    pub ignored: u32,
}

/// Lists that only inform: they change neither the class of a pod nor the verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRemarks {
    /// Pods that were awaited until their time was over (`on_drain_timeout`).
    /// Also among `evictable`, or among `zone_mismatch` if a volume holds them back.
    pub out_of_time: Vec<PodFacts>,
    /// Pods to evict and pods that are leaving, if they may need more time to end than the drain has left.
    pub grace_too_long: Vec<PodFacts>,
    /// Awaited pods that cannot end by themselves and are not leaving; also among `awaited`.
    pub never_ends: Vec<PodFacts>,
    /// Bare pods, awaited because no controller would start them again; also among `awaited`.
    pub bare: Vec<PodFacts>,
    /// Pods that are awaited because they run to completion, without a selector or an annotation that asks for it;
    /// also among `awaited`.
    pub to_completion: Vec<PodFacts>,
    /// Pods that are awaited because an annotation of their owner protects them; also among `awaited`.
    pub owner_protected: Vec<PodFacts>,
    /// Awaited pods of which a container has completed while another one still runs, as an injected sidecar does;
    /// also among `awaited`.
    pub half_completed: Vec<PodFacts>,
    /// Pods to evict that have data on the machine (an emptyDir, a hostPath, an ephemeral volume), which is lost.
    /// Also among `evictable`, or among `zone_mismatch` if a volume holds them back.
    pub local_storage: Vec<PodFacts>,
    /// Pods with a debug container. It does not change their class.
    pub debugged: Vec<PodFacts>,
    /// Pods that are bound to the node and have not begun. That does not change their class.
    pub pending: Vec<PodFacts>,
    /// Pods with an annotation whose value does not count: an unknown one, or one that a pod of this kind cannot have.
    pub bad_annotation: Vec<PodFacts>,
}

pub fn survey_pods(pods: &[PodFacts], terms: &Terms<'_>) -> PodSurvey {
    let mut survey = PodSurvey {
        hurries: terms.hurries(),
        ..PodSurvey::default()
    };
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
    let rule = find_rule(pod, terms);
    let class = rule.class(terms.evict);
    if pod.has_bad_annotation(rule) {
        survey.remarks.bad_annotation.push(pod.clone());
    }
    if class == PodClass::Ignore {
        survey.ignored += 1;
        return;
    }
    if terms.is_late(pod) && class != PodClass::Wait {
        survey.tolerates_taint.push(pod.clone());
        return;
    }
    if terms.skips(pod) {
        survey.skipped.push(pod.clone());
        return;
    }
    survey.add_remarks(pod, terms);
    let is_leaving = pod.deletion_at.is_some();
    match class {
        PodClass::Wait if !is_leaving && terms.is_out_of_time(pod) => {
            survey.remarks.out_of_time.push(pod.clone());
            survey.add_evictable(pod, terms);
        }
        PodClass::Wait => survey.add_awaited(pod, rule),
        PodClass::Evict if is_leaving => {}
        PodClass::Evict if rule == Rule::LeavesLast => survey.leaves_last.push(pod.clone()),
        PodClass::Evict => survey.add_evictable(pod, terms),
        PodClass::Ignore => {}
    }
}

impl PodSurvey {
    /// Adds the remarks that do not depend on the pod's class.
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

    fn add_awaited(&mut self, pod: &PodFacts, rule: Rule) {
        self.awaited.push(pod.clone());
        let remarks = &mut self.remarks;
        if !pod.can_end() && pod.deletion_at.is_none() {
            remarks.never_ends.push(pod.clone());
        }
        if pod.containers.is_half_completed {
            remarks.half_completed.push(pod.clone());
        }
        match rule {
            Rule::Bare => remarks.bare.push(pod.clone()),
            Rule::ToCompletion => remarks.to_completion.push(pod.clone()),
            Rule::OwnerProtected => remarks.owner_protected.push(pod.clone()),
            Rule::Unreadable
            | Rule::Finished
            | Rule::Mirror
            | Rule::LeavesLast
            | Rule::OfDaemonSet
            | Rule::Marked(_)
            | Rule::Selected
            | Rule::Late
            | Rule::SafeToEvict
            | Rule::Other => {}
        }
    }

    fn add_evictable(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        self.evictable.push(pod.clone());
        self.compare_grace(pod, terms);
        if pod.volumes.has_local_storage {
            self.remarks.local_storage.push(pod.clone());
        }
    }

    /// Notes a pod that may end only after the deadline. Once the time is over this is true of every pod, so none is noted.
    fn compare_grace(&mut self, pod: &PodFacts, terms: &Terms<'_>) {
        if !terms.is_time_over() && terms.ends_at(pod) > terms.deadline.at {
            self.remarks.grace_too_long.push(pod.clone());
        }
    }

    /// Checks whether no pod holds the node.
    pub fn is_clear(&self) -> bool {
        self.holding_lists().into_iter().all(<[PodFacts]>::is_empty)
    }

    /// Returns the pods to evict now. Critical pods, on which others may depend, go once no other pod is left to evict or leaving.
    /// Pods of DaemonSets go once no other pod holds the node. The late pods follow. If there is no time left, all go at once.
    pub fn to_evict(&self) -> Vec<PodFacts> {
        if self.is_clear() {
            let late = self.tolerates_taint.iter();
            return late.filter(|pod| pod.deletion_at.is_none()).cloned().collect();
        }
        if self.hurries {
            return [self.evictable.as_slice(), &self.leaves_last].concat();
        }
        let is_last = |pod: &PodFacts| self.leaves_last.iter().any(|last| last.uid == pod.uid);
        if self.holding().iter().all(is_last) {
            return self.leaves_last.clone();
        }
        let (critical, others): (Vec<PodFacts>, Vec<PodFacts>) =
            self.evictable.iter().cloned().partition(PodFacts::is_critical);
        let leaving = self.leaving();
        let has_others = !others.is_empty() || leaving.iter().any(|pod| !pod.is_critical());
        if has_others { others } else { critical }
    }

    /// Returns the pods that are leaving and have time left, except awaited pods.
    pub fn leaving(&self) -> Vec<PodFacts> {
        self.without_awaited(&self.terminating)
    }

    /// Leaves out the awaited pods. They are counted and named as such.
    pub(crate) fn without_awaited(&self, pods: &[PodFacts]) -> Vec<PodFacts> {
        let is_awaited = |pod: &PodFacts| self.awaited.iter().any(|awaited| awaited.uid == pod.uid);
        pods.iter().filter(|pod| !is_awaited(pod)).cloned().collect()
    }

    /// Returns the pods that hold the node, each once.
    pub fn holding(&self) -> Vec<PodFacts> {
        let mut holding = self.holding_lists().concat();
        holding.sort_by(|one, other| identify(one).cmp(&identify(other)));
        holding.dedup_by(|one, other| identify(one) == identify(other));
        holding
    }

    fn holding_lists(&self) -> [&[PodFacts]; 7] {
        [
            &self.unreadable,
            &self.awaited,
            &self.evictable,
            &self.leaves_last,
            &self.zone_mismatch,
            &self.terminating,
            &self.stuck,
        ]
    }

    /// Returns the number of pods of each class: the `counts` of an answer. A class without pods is left out.
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

    /// Returns the first five names of each class: the `names` of an answer. All of them are cut if they are too long together.
    pub fn names(&self) -> BTreeMap<String, Vec<String>> {
        self.names_within(NAMES_BUDGET)
    }

    /// Returns the first five names of each class, cut if they have more than `budget` bytes together.
    pub(crate) fn names_within(&self, budget: usize) -> BTreeMap<String, Vec<String>> {
        name_lists(self.classes(), budget)
    }

    fn classes(&self) -> [(&'static str, &[PodFacts]); 20] {
        [
            ("unreadable", &self.unreadable),
            ("awaited", &self.awaited),
            ("evictable", &self.evictable),
            ("leaves_last", &self.leaves_last),
            ("zone_mismatch", &self.zone_mismatch),
            ("terminating", &self.terminating),
            ("stuck", &self.stuck),
            ("out_of_time", &self.remarks.out_of_time),
            ("grace_too_long", &self.remarks.grace_too_long),
            ("never_ends", &self.remarks.never_ends),
            ("bare", &self.remarks.bare),
            ("to_completion", &self.remarks.to_completion),
            ("owner_protected", &self.remarks.owner_protected),
            ("half_completed", &self.remarks.half_completed),
            ("local_storage", &self.remarks.local_storage),
            ("debugged", &self.remarks.debugged),
            ("pending", &self.remarks.pending),
            ("tolerates_taint", &self.tolerates_taint),
            ("skipped", &self.skipped),
            ("bad_annotation", &self.remarks.bad_annotation),
        ]
    }
}

/// If the uid of pods cannot be read, only their names distinguish them.
fn identify(pod: &PodFacts) -> [&str; 3] {
    [&pod.uid, &pod.namespace, &pod.name]
}

/// Returns the first five full names in alphabetical order, so that they do not change with the API server's order.
pub fn first_names(pods: &[PodFacts]) -> Vec<String> {
    let mut names: Vec<String> = pods.iter().map(PodFacts::full_name).collect();
    names.sort();
    names.truncate(NAMES_PER_CLASS);
    names
}

/// Returns the first five names of each list that has any, cut if they have more than `budget` bytes together.
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

/// Orders pods so that their controllers alternate. The API server works on evictions under one budget one after the other,
/// and on evictions under several budgets at the same time.
pub fn alternate_controllers(pods: Vec<PodFacts>) -> Vec<PodFacts> {
    let mut seen: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut rounds: Vec<(usize, PodFacts)> = pods
        .into_iter()
        .map(|pod| {
            let controller = pod.controller.as_ref().map(|controller| controller.uid.clone());
            let round = seen.entry(controller).or_default();
            *round += 1;
            (*round, pod)
        })
        .collect();
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, pod)| pod).collect()
}

impl Terms<'_> {
    /// Returns when the first awaited pod is evicted. That is at the latest at the deadline.
    /// None with `on_drain_timeout: restore`, or if every awaited pod is leaving.
    pub(crate) fn next_end_of_patience(&self, survey: &PodSurvey) -> Option<Timestamp> {
        let waiting = survey.awaited.iter().filter(|pod| pod.deletion_at.is_none());
        waiting.filter_map(|pod| self.end_of_patience(pod)).min()
    }
}
