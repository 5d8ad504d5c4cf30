//! Builds the last answer of a restore, with its notification and its metrics.

use kubernetes::Occasion;
use recycle::answer::envelope::Answer;
use recycle::cluster::instance::Instance;
use recycle::contract::requests::RestoreRequest;
use recycle::contract::verdicts::RestoreVerdict;
use recycle::notify::metrics::measure_restore;
use recycle::notify::notification::{About, build_restored_notification};
use recycle::restore::sweep::is_by_request;

use crate::Error;
use crate::facts::FetchedFacts;
use crate::request::{Report, find_node_to_restore, find_reason, find_reason_of_untouched};

impl FetchedFacts {
    /// Answers the request taint if it started this execution, which ends before it has claimed the node.
    /// Writes the reason in an Event on the Node, and removes the taint. Other executions leave the taint for the sweep.
    pub(crate) async fn remove_request(&self) -> Result<(), Error> {
        let (Ok(cluster), Some(node)) = (&self.cluster, self.node()) else {
            return Ok(());
        };
        if !is_by_request(&self.me.execution) {
            return Ok(());
        }
        let (client, reason, now) = (&cluster.client, find_reason(&self.request), self.now());
        Ok(kubernetes::answer_request(client, node, Occasion::Refused, &reason, now, &self.me).await?)
    }

    /// Returns the answer for an execution without a claim. On the path `after`, the instance may be gone already.
    pub(crate) fn answer_unclaimed(&self) -> Answer<RestoreVerdict> {
        let mut reason = find_reason_of_untouched(&self.request);
        let is_gone = self.instance.as_ref().is_some_and(Instance::is_gone);
        if is_gone && self.cluster.is_ok() && self.claim().is_none() {
            reason = format!("{reason}\n{}.", self.describe_state("is gone"));
        }
        self.build_last_answer(RestoreVerdict::Untouched, reason)
    }

    pub(crate) fn build_last_answer(
        &self,
        verdict: RestoreVerdict,
        report: impl Into<Report>,
    ) -> Answer<RestoreVerdict> {
        build_last_answer(verdict, report, &self.request, Some(self))
    }
}

/// Returns the last answer, with its notification and metrics. `facts` holds the facts that were read, if there are any.
pub(crate) fn build_last_answer(
    verdict: RestoreVerdict,
    report: impl Into<Report>,
    request: &RestoreRequest,
    facts: Option<&FetchedFacts>,
) -> Answer<RestoreVerdict> {
    let report = report.into();
    let subject = find_node_to_restore(request);
    let claimed = facts.and_then(FetchedFacts::claimed_group);
    let group = facts.and_then(|facts| facts.group.as_ref());
    let about = About {
        execution: &request.context.execution.id,
        cluster: subject.as_ref().map(|subject| &subject.cluster),
        instance: subject.as_ref().map(|subject| &subject.instance),
        node: facts.and_then(FetchedFacts::node).map(|node| &node.name),
        group: group.map(|group| &group.name).or(claimed.as_ref()),
    };
    let since = request.restore.since.unwrap_or_else(|| request.context.now());
    let error = request.failure.as_ref();
    let answer = Answer::new(verdict, report.to_text());
    let notification =
        build_restored_notification(about, verdict, error, since, &report.text, report.what_to_do);
    let counted = measure_restore(verdict, error.map(|error| error.error.as_str()));
    answer.with_notification(notification).counting(counted)
}

#[cfg(test)]
mod tests {
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use crate::fixtures::{NODE, claim, facts_in, request_taint};

    /// Returns the methods of the calls that an execution of this name makes on a node with the request taint.
    async fn written_by(name: &str, is_claimed: bool) -> Vec<String> {
        let event = json!({"metadata": {}, "involvedObject": {}});
        let kube = ScriptedKube::new().on("POST", "/events", 201, event).on(
            "PATCH",
            NODE,
            200,
            json!({"metadata": {"name": "node-a", "resourceVersion": "8"}, "spec": {}}),
        );
        let mut facts = facts_in(&kube, is_claimed.then(|| claim("two")), None);
        facts.me = claim(name).fence;
        if let Ok(cluster) = &mut facts.cluster {
            cluster.node.as_mut().unwrap().taints = vec![request_taint()];
        }
        facts.remove_request().await.unwrap();
        let calls = kube.calls().into_iter();
        calls.map(|call| call.method).collect()
    }

    #[tokio::test]
    async fn only_the_execution_that_the_taint_started_removes_it_from_an_unclaimed_node() {
        let started = "request-i-0123456789abcdef0-1";
        assert_eq!(written_by(started, false).await, ["POST", "PATCH"]);
        assert!(written_by(started, true).await.is_empty());
        assert!(written_by("by-hand", false).await.is_empty());
    }
}
