//! What is seen at this moment: the pods by class, the deadline, and what a person should know.

use jiff::Timestamp;
use node_record::read_progress;
use recycle::contract::Run;
use recycle::drain::{Deadline, Progress, describe_pods, find_deadline, write_progress};
use recycle::names::{DRAIN_UNTIL_ANNOTATION, DRAINING_TAINT};
use recycle::node::{NodeFacts, is_draining_taint};
use recycle::pods::PodSurvey;

use crate::midway::Meanwhile;

/// Of how many pods the answer says which volume holds them back: pods of one node that are held are so for the same reason.
const MOST_HELD: usize = 1;

/// What is seen at this moment.
pub(crate) struct View {
    pub(crate) survey: PodSurvey,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Deadline,
    /// One sentence each.
    remarks: Vec<String>,
    /// What came up from outside, one sentence each.
    meanwhile: Vec<String>,
}

impl View {
    pub(crate) fn new(node: &NodeFacts, survey: PodSurvey, run: &Run, now: Timestamp) -> Self {
        let since = run.draining_since.unwrap_or(now);
        let drain_until = node.annotations.get(DRAIN_UNTIL_ANNOTATION).map(String::as_str);
        let (deadline, remark) = find_deadline(since, now, run.input.drain_timeout_seconds, drain_until);
        let is_tainted = node.taints.iter().any(is_draining_taint);
        let taint_gone = (!is_tainted).then(|| format!("somebody removed the taint {DRAINING_TAINT}"));
        let held = survey.held_because.iter().take(MOST_HELD).cloned();
        Self {
            remarks: held.chain(remark).chain(taint_gone).collect(),
            survey,
            since,
            deadline,
            meanwhile: Vec::new(),
        }
    }

    /// The same with what came up from outside.
    pub(crate) fn and(mut self, found: &Meanwhile) -> Self {
        self.meanwhile = found.remarks.iter().map(ToString::to_string).collect();
        let unseen = found.unseen.as_ref();
        self.remarks
            .extend(unseen.map(|why| format!("what its group is at cannot be asked: {why}")));
        self
    }

    /// Why the verdict is what it is.
    pub(crate) fn reason(&self) -> String {
        let pods = describe_pods(&self.survey);
        std::iter::once(pods)
            .chain(self.remarks.iter().chain(&self.meanwhile).cloned())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The story for people. What blocks evictions is known to `evict-pods`; it holds as long as there is something to evict.
    pub(crate) fn progress(&self, node: &NodeFacts) -> Progress {
        let before = read_progress(node).filter(|_| !self.survey.evictable.is_empty());
        let blocked = before.map(|progress| progress.blocked_by).unwrap_or_default();
        Progress {
            meanwhile: self.meanwhile.clone(),
            ..write_progress(&self.survey, &blocked, self.since, self.deadline)
        }
    }
}
