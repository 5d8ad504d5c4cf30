//! What people are told of a put-back, and what is counted: by its last answer, and by no other.

use kubernetes::Occasion;
use recycle::answer::envelope::Answer;
use recycle::contract::requests::RestoreRequest;
use recycle::contract::verdicts::RestoreVerdict;
use recycle::notify::metrics::measure_put_back;
use recycle::notify::notification::{About, tell_put_back};
use recycle::restore::sweep::is_by_request;

use crate::Error;
use crate::request::{Report, find_reason, find_subject};
use crate::target::Target;

impl Target {
    /// Answers a person's taint if it started this execution, which ends before it has claimed the node.
    /// Says why in an Event on the Node, and removes the taint. Other executions leave the taint for the sweep.
    pub(crate) async fn turn_down(&self) -> Result<(), Error> {
        let (Ok(cluster), Some(node)) = (&self.cluster, self.node()) else {
            return Ok(());
        };
        if !is_by_request(&self.me.execution) {
            return Ok(());
        }
        let (client, reason, now) = (&cluster.client, find_reason(&self.request), self.now());
        Ok(kubernetes::answer_request(client, node, Occasion::Refused, &reason, now, &self.me).await?)
    }

    pub(crate) fn tell(&self, verdict: RestoreVerdict, report: impl Into<Report>) -> Answer<RestoreVerdict> {
        tell(verdict, report, &self.request, Some(self))
    }
}

/// Returns the last answer, with its notification and metrics. `target` holds the facts that were read, if there are any.
pub(crate) fn tell(
    verdict: RestoreVerdict,
    report: impl Into<Report>,
    request: &RestoreRequest,
    target: Option<&Target>,
) -> Answer<RestoreVerdict> {
    let report = report.into();
    let subject = find_subject(request);
    let claimed = target.and_then(Target::claimed_group);
    let group = target.and_then(|target| target.group.as_ref());
    let about = About {
        execution: &request.context.execution.id,
        cluster: subject.as_ref().map(|subject| &subject.cluster),
        instance: subject.as_ref().map(|subject| &subject.instance),
        node: target.and_then(Target::node).map(|node| &node.name),
        group: group.map(|group| &group.name).or(claimed.as_ref()),
    };
    let since = request.put_back.since.unwrap_or_else(|| request.context.now());
    let error = request.failure.as_ref();
    let answer = Answer::new(verdict, report.text());
    let told = tell_put_back(about, verdict, error, since, &report.story, report.what_to_do);
    let counted = measure_put_back(verdict, error.map(|error| error.error.as_str()));
    answer.telling(told).counting(counted)
}

#[cfg(test)]
mod tests {
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use crate::fixtures::{NODE, claim, request_taint, target_in};

    /// Returns the methods of the calls that an execution of this name makes on a node that a person has tainted.
    async fn written_by(name: &str, is_claimed: bool) -> Vec<String> {
        let event = json!({"metadata": {}, "involvedObject": {}});
        let kube = ScriptedKube::new().on("POST", "/events", 201, event).on(
            "PATCH",
            NODE,
            200,
            json!({"metadata": {"name": "node-a", "resourceVersion": "8"}, "spec": {}}),
        );
        let mut target = target_in(&kube, is_claimed.then(|| claim("two")), None);
        target.me = claim(name).fence;
        if let Ok(cluster) = &mut target.cluster {
            cluster.node.as_mut().unwrap().taints = vec![request_taint()];
        }
        target.turn_down().await.unwrap();
        let calls = kube.calls().into_iter();
        calls.map(|call| call.method).collect()
    }

    #[tokio::test]
    async fn only_the_execution_that_a_taint_has_started_turns_it_down_and_not_where_somebody_is_at_work() {
        let started = "request-i-0123456789abcdef0-1";
        assert_eq!(written_by(started, false).await, ["POST", "PATCH"]);
        assert!(written_by(started, true).await.is_empty());
        assert!(written_by("by-hand", false).await.is_empty());
    }
}
