//! The facts of one check: the pods by class, the deadline, and the remarks for operators.

use futures::future::join_all;
use jiff::Timestamp;
use kubernetes::{NodeSurvey, Occasion, read_progress, record_event};
use recycle::base::ids::{Fence, NodeName};
use recycle::base::names::DRAINING_TAINT;
use recycle::claim::obstacle::Refusal;
use recycle::cluster::node::{NodeFacts, is_draining_taint};
use recycle::cluster::pod::PodFacts;
use recycle::drain::blocked::{describe_blockers, describe_update};
use recycle::drain::progress::{build_progress, describe_pods, summarize_pods};
use recycle::drain::survey::PodSurvey;
use recycle::drain::terms::Terms;
use recycle::records::progress::Progress;

use crate::disruption::Disruptions;

/// The remark for a node that would count as lost if any other node were Ready.
pub(crate) const ALL_SILENT: &str =
    "no node of the cluster is Ready, so the fault is the cluster's: this node is not given up";

/// The number of held pods whose volume the answer names. The pods that are held on one node are held for the same reason.
const MOST_HELD: usize = 1;

pub(crate) struct CheckFacts<'a> {
    /// The pods as the API server listed them.
    pub(crate) listed: Vec<PodFacts>,
    pub(crate) survey: PodSurvey,
    pub(crate) terms: Terms<'a>,
    /// The progress that is written on the Node for operators.
    pub(crate) progress: Progress,
    /// The progress of the last check.
    before: Option<Progress>,
    /// Whether an instance refresh would terminate the member in Standby with its pods.
    pub(crate) is_ended_by_refresh: bool,
    /// The acts of other tools that concern the node.
    disruptions: Vec<Refusal>,
    /// Remarks for the reason, one sentence each.
    remarks: Vec<String>,
}

impl<'a> CheckFacts<'a> {
    /// Builds the facts. `emptied_at` is the time since which only pods that tolerate the taint and came after it remain.
    /// `silence` says that the node is not Ready.
    pub(crate) fn new(
        node: &NodeFacts,
        survey: NodeSurvey<'a>,
        emptied_at: Option<Timestamp>,
        silence: Option<String>,
        disruptions: Disruptions,
    ) -> Self {
        let terms = survey.terms.emptied_at(emptied_at);
        let (listed, survey, remark) = (survey.listed, survey.pods, survey.remark);
        let before = read_progress(node);
        // Only `evict-pods` knows what blocks evictions. Its blockers hold as long as there is something to evict.
        let still_blocked = before.as_ref().filter(|_| !survey.evictable.is_empty());
        let blocked = still_blocked.map_or_else(Vec::new, |progress| progress.blocked.clone());
        let update = describe_update(&blocked, terms.now);
        let held = survey.held_because.iter().take(MOST_HELD).cloned();
        let is_tainted = node.taints.iter().any(is_draining_taint);
        let taint_gone =
            (!is_tainted).then(|| format!("an operator or another tool removed the taint {DRAINING_TAINT}"));
        let unread = disruptions.aws_error;
        let unread = unread.map(|why| format!("cannot read the state of its Auto Scaling group: {why}"));
        let outside: Vec<String> = disruptions.remarks.iter().map(ToString::to_string).collect();
        let remarks = [update, remark, taint_gone, silence, unread]
            .into_iter()
            .flatten();
        Self {
            progress: Progress {
                disruptions: outside.clone(),
                ..build_progress(&survey, blocked, &terms)
            },
            listed,
            is_ended_by_refresh: disruptions.is_ended_by_refresh,
            disruptions: disruptions.remarks,
            remarks: held.chain(remarks).chain(outside).collect(),
            survey,
            terms,
            before,
        }
    }

    pub(crate) fn reason(&self) -> String {
        let pods = describe_pods(&self.survey);
        let reasons = std::iter::once(pods).chain(self.remarks.iter().cloned());
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// Describes why the node could not be drained: the reason, and everything that kept pods from leaving.
    pub(crate) fn describe_failure(&self, reason: String) -> String {
        let blockers = describe_blockers(&self.progress.blocked);
        let held = self.progress.held.iter().cloned();
        let reasons = std::iter::once(reason).chain(blockers).chain(held);
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// Writes an Event if there are pods of a class that had none, and one for each remark that is not in the progress yet.
    pub(crate) async fn record_events(&self, client: &kube::Client, node: &NodeName, me: &Fence) {
        let classes: Vec<&str> = self.progress.names.keys().map(String::as_str).collect();
        let classes = classes.join(" ");
        let message = summarize_pods(&self.survey, &self.terms);
        let pods = self.progress.has_update(self.before.as_ref());
        let pods = pods.then_some((Occasion::Pods(&classes), message.as_str()));
        let written = self.before.iter().flat_map(|progress| &progress.disruptions);
        let written: Vec<&String> = written.collect();
        let texts = self.disruptions.iter().zip(&self.progress.disruptions);
        let new = texts.filter(|(_, text)| !written.contains(text));
        let new = new.map(|(remark, text)| (Occasion::Disturbed(remark.obstacle.name()), text.as_str()));
        join_all(
            new.chain(pods)
                .map(|(occasion, message)| record_event(client, node, occasion, message, self.terms.now, me)),
        )
        .await;
    }
}
