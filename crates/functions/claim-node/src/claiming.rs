//! Writes the claim to the Lease, with copies on the Node and on the instance, and builds the answer.

use ec2::instances::Instances;
use jiff::Timestamp;
use kubernetes::NodeChange;
use recycle::answer::envelope::Answer;
use recycle::base::names::{CLAIM_TAG, GROUP_TAG, RESTORING_ANNOTATION};
use recycle::claim::facts::GroupState;
use recycle::claim::queue::{pace_queue, waits_in_queue, write_queue_progress};
use recycle::cluster::hook::find_path;
use recycle::cluster::instance::describe_instance;
use recycle::contract::requests::ClaimRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::ClaimVerdict;
use recycle::drain::terms::Terms;
use recycle::input::model::{Input, Replacement};
use recycle::input::path::RecyclePath;
use recycle::notify::notification::{About, Severity, build_started_notification};
use recycle::records::claim::{Claim, Phase, StoredClaim, holds_claim};

use crate::facts::ClaimFacts;
use crate::{Answered, ClaimNode, Error};

/// The claim that was found and from which this execution goes on. Its phase and the records stay.
pub(crate) struct PreviousClaim {
    pub(crate) claim: Claim,
    /// The reason why this execution may go on from the claim; None if the claim is its own.
    why: Option<&'static str>,
}

impl PreviousClaim {
    pub(crate) fn own(claim: Claim) -> Self {
        Self { claim, why: None }
    }

    pub(crate) fn dead(claim: Claim) -> Self {
        let why = Some("no longer runs");
        Self { claim, why }
    }

    pub(crate) fn less_urgent(claim: Claim) -> Self {
        let why = Some("is less urgent and ends by itself");
        Self { claim, why }
    }

    pub(crate) fn is_own(&self) -> bool {
        self.why.is_none()
    }

    fn explain(&self) -> Option<String> {
        let why = self.why?;
        Some(format!(
            "{}, which had claimed it, {why}",
            self.claim.fence.execution
        ))
    }
}

impl ClaimNode {
    /// Writes the parts of the claim that are not written yet. Then the node is admitted, or waits in the queue.
    pub(crate) async fn claim_and_queue(
        &self,
        mut facts: ClaimFacts,
        previous: Option<PreviousClaim>,
        request: &ClaimRequest,
        input: &Input,
        group_state: &GroupState,
    ) -> Answered {
        let now = request.context.now();
        let claim = facts.build_claim(previous.as_ref(), request, input);
        facts.write_claim(&claim, &self.instances).await?;
        let limits = self.settings.limits;
        let queue = facts.wait_in_queue(&claim, limits, input, group_state).await?;

        let subject = describe_instance(&facts.instance.id, Some(&facts.node.name));
        let group = facts.group.name.clone();
        let warning = facts.warn_of_hook(input, now);
        let remarks: Vec<String> = facts.remark.clone().into_iter().chain(warning).collect();
        let severity = if remarks.is_empty() {
            Severity::Info
        } else {
            Severity::Warning
        };
        let summary = queue
            .as_ref()
            .map(|queue| format!("it waits in the queue of group {group}: {queue}"));
        let reasons = std::iter::once(format!("{subject} is claimed by this execution"))
            .chain(previous.as_ref().and_then(PreviousClaim::explain))
            .chain(remarks)
            .chain(summary.clone());
        let reason = reasons.collect::<Vec<_>>().join("; ");
        // Later calls write no Event: operators know everything in them from the first Event or from the progress.
        if request.run.is_none() {
            let (client, node) = (&facts.client, &facts.node.name);
            kubernetes::record_event(client, node, Phase::Claimed, &reason, now, &claim.fence).await;
        }
        let (Some(queue), Some(summary)) = (queue, summary) else {
            let run = facts.into_run(&claim, input);
            let verdict = ClaimVerdict::first_step(run.path, input.replacement);
            let notification =
                build_started_notification(About::run(&claim.fence.execution, &run), &run, &reason, severity);
            return Ok(Answer::new(verdict, reason)
                .with_notification(Some(notification))
                .carrying(run));
        };
        let Some(wait) = pace_queue(claim.claimed_at, now) else {
            return Err(Error::QueueTimedOut(format!(
                "{subject} has waited in the queue of group {group} since {}, the longest time allowed: {queue}",
                claim.claimed_at
            )));
        };
        let progress = write_queue_progress(summary, claim.claimed_at);
        kubernetes::write_progress(&facts.client, &facts.node, &progress).await?;
        Ok(Answer::new(ClaimVerdict::Wait, reason)
            .waiting(wait)
            .carrying(facts.into_run(&claim, input)))
    }
}

impl ClaimFacts {
    /// Returns a warning if the hook ends long before the drain's deadline.
    pub(crate) fn warn_of_hook(&self, input: &Input, now: Timestamp) -> Option<String> {
        let (terms, _) = Terms::find(input, Some(&self.node), None, None, now);
        self.hook.as_ref()?.warn(terms.deadline.at)
    }

    /// Builds the claim to write on the Node. A claim that is already this execution's stays as it is.
    /// Otherwise a new claim continues from the phase of the previous claim, unless the work on the node starts over.
    fn build_claim(&self, previous: Option<&PreviousClaim>, request: &ClaimRequest, input: &Input) -> Claim {
        let (fence, group) = (request.context.fence(), self.group.name.clone());
        let mut claim = Claim::new(fence, group, input.urgency, request.context.now());
        if let Some(previous) = previous.map(|previous| &previous.claim) {
            if previous.fence == claim.fence {
                claim = previous.clone();
            } else if !self.begins_anew(previous.phase, input) {
                claim.phase = previous.phase;
            }
        }
        if !waits_in_queue(claim.urgency) {
            claim.phase = claim.phase.max(Phase::Admitted);
        }
        claim
    }

    /// Checks whether the node has to be replaced once more, because it was brought back into service after its pods had been moved.
    /// Such a node also has to be admitted once more.
    fn begins_anew(&self, phase: Phase, input: &Input) -> bool {
        let began = match input.replacement {
            Replacement::Before => Phase::Waiting,
            Replacement::Surge if !self.was_raised() => Phase::Standby,
            Replacement::Surge | Replacement::After => return false,
        };
        self.group.is_in_service(&self.instance.id) && phase >= began
    }

    /// Writes the claim to the Lease by compare-and-swap. Then copies it to the Node, and to the instance as tags.
    /// The parts that an earlier call has written are not written again.
    async fn write_claim(&mut self, claim: &Claim, instances: &Instances) -> Result<(), Error> {
        if self.node.claim() != Some(StoredClaim::Known(claim.clone())) || !self.node.shows_claim() {
            // The mark of a restore that ended early would hold up the other nodes of the group.
            let change = NodeChange::new()
                .claim(claim)?
                .remove_annotation(RESTORING_ANNOTATION);
            self.node = kubernetes::change_node(&self.client, &self.node, change).await?;
        }
        if !holds_claim(self.instance.claim().as_ref(), &claim.fence) {
            let tags = [(GROUP_TAG, claim.group.to_string()), (CLAIM_TAG, claim.to_tag())];
            instances.tag(&self.instance.id, &tags).await?;
        }
        Ok(())
    }

    fn was_raised(&self) -> bool {
        self.node.record().is_ok_and(|record| record.was_raised())
    }

    fn into_run(self, claim: &Claim, input: &Input) -> Run {
        let was_raised = self.was_raised();
        let path = match find_path(input, Some(&self.lifecycle_state)) {
            // The instance takes the place that was added for its replacement away.
            RecyclePath::After if was_raised => RecyclePath::Surge,
            path @ (RecyclePath::Before | RecyclePath::After | RecyclePath::Surge | RecyclePath::Hook) => {
                path
            }
        };
        let (group, node) = (self.group.name, self.node.name);
        Run {
            hook: self.hook,
            ..Run::new(input.clone(), path, group, node, claim.claimed_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::{Failure, NamedFailure as _};
    use recycle::base::names::{CLAIM_ANNOTATION, PROGRESS_ANNOTATION};
    use recycle::input::parse::parse_input;
    use recycle::input::urgency::Urgency;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{LIST, NODE, NOW, claim, claim_of, facts, list, node, request, run, settings};

    const TAGS: [&str; 1] = ["CreateTags"];

    /// Runs `claim_and_queue` for a node, given as the API server has it.
    async fn claim_and_queue(
        kube: &ScriptedKube,
        aws: &ScriptedAws,
        node: &Value,
        previous: Option<PreviousClaim>,
        request: &ClaimRequest,
    ) -> Result<Answer<ClaimVerdict>, Error> {
        let input = parse_input(&request.context.execution.input, &settings()).unwrap();
        let step = ClaimNode::new(settings(), &aws.config());
        let facts = facts(kube, node).await;
        step.claim_and_queue(facts, previous, request, &input, &GroupState::default())
            .await
    }

    fn claims_written(kube: &ScriptedKube) -> Vec<Claim> {
        let text = |body: Value| {
            body["metadata"]["annotations"][CLAIM_ANNOTATION]
                .as_str()
                .map(str::to_owned)
        };
        kube.calls()
            .into_iter()
            .filter_map(|call| serde_json::from_str(&text(call.body)?).ok())
            .collect()
    }

    #[tokio::test]
    async fn a_node_is_claimed_and_admitted_if_no_other_node_is_admitted() {
        let kube = ScriptedKube::new()
            .on("PATCH", NODE, 200, node(Some(&claim(Phase::Claimed))))
            .on("GET", LIST, 200, list(&[]))
            .on("PATCH", NODE, 200, node(Some(&claim(Phase::Admitted))))
            .on("GET", LIST, 200, list(&[]))
            .on("POST", "/events", 201, json!({}));
        let aws = ScriptedAws::new().on("CreateTags", "");
        let answer = claim_and_queue(&kube, &aws, &node(None), None, &request(&json!({})))
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Standby);
        assert_eq!(answer.run.unwrap().claimed_at.to_string(), NOW);
        assert_eq!(
            claims_written(&kube),
            [claim(Phase::Claimed), claim(Phase::Admitted)]
        );
        assert_eq!(aws.actions(), TAGS);
        assert_eq!(kube.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn writes_of_an_earlier_call_are_not_repeated() {
        let previous = || Some(PreviousClaim::own(claim(Phase::Admitted)));
        let kube = ScriptedKube::new()
            .on("GET", LIST, 200, list(&[]))
            .on("POST", "/events", 409, json!({}));
        let aws = ScriptedAws::new().on("CreateTags", "");
        let on_node = node(Some(&claim(Phase::Admitted)));
        let answer = claim_and_queue(&kube, &aws, &on_node, previous(), &request(&json!({})))
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Standby);
        assert!(claims_written(&kube).is_empty());
        assert_eq!(aws.actions(), TAGS, "the tags were missing");
    }

    #[tokio::test]
    async fn a_node_waits_while_another_is_admitted_and_writes_that_once() {
        let busy = node(Some(&claim_of("two", Phase::Draining, -600)));
        let rivals = || list(std::slice::from_ref(&busy));
        let waiting = node(Some(&claim(Phase::Claimed)));
        let kube = ScriptedKube::new()
            .on("PATCH", NODE, 200, waiting.clone())
            .on("GET", LIST, 200, rivals())
            .on("POST", "/events", 201, json!({}))
            .on("PATCH", NODE, 200, waiting.clone());
        let aws = ScriptedAws::new().on("CreateTags", "");
        let answer = claim_and_queue(&kube, &aws, &node(None), None, &request(&json!({})))
            .await
            .unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (ClaimVerdict::Wait, 30));
        let queued =
            "it waits in the queue of group workers: node two (i-0123456789abcdef1) is being recycled";
        assert!(answer.reason.ends_with(queued), "{}", answer.reason);
        let calls = kube.calls();
        let event = calls.iter().find(|call| call.method == "POST").unwrap();
        assert!(
            event.body["message"].as_str().unwrap().ends_with(queued),
            "{event:?}"
        );
        let progress = calls[3].body["metadata"]["annotations"][PROGRESS_ANNOTATION].clone();
        let written: Value = serde_json::from_str(progress.as_str().unwrap()).unwrap();
        assert_eq!(
            written,
            json!({"summary": queued, "since": NOW, "until": "2027-01-02T00:00:00Z"})
        );

        let mut queued_before = waiting;
        queued_before["metadata"]["annotations"][PROGRESS_ANNOTATION] = progress;
        let kube = ScriptedKube::new().on("GET", LIST, 200, rivals());
        let aws = ScriptedAws::new().on("CreateTags", "");
        let run = serde_json::to_value(answer.run.unwrap()).unwrap();
        let previous = Some(PreviousClaim::own(claim(Phase::Claimed)));
        let answer = claim_and_queue(&kube, &aws, &queued_before, previous, &request(&run))
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Wait);
        let list = "GET /apis/coordination.k8s.io/v1/namespaces/recycle-eks/leases";
        assert_eq!(kube.requests(), [list]);
    }

    #[tokio::test]
    async fn a_queued_node_times_out_after_a_day() {
        let rival = list(&[node(Some(&claim_of("two", Phase::Standby, -600)))]);
        let mut request = request(&serde_json::to_value(run()).unwrap());
        request.context.state.entered_time = "2027-01-02T00:00:00Z".parse().unwrap();
        let on_node = node(Some(&claim(Phase::Claimed)));
        let previous = || Some(PreviousClaim::own(claim(Phase::Claimed)));
        let aws = || ScriptedAws::new().on("CreateTags", "");

        let kube = ScriptedKube::new().on("GET", LIST, 200, rival);
        let error = claim_and_queue(&kube, &aws(), &on_node, previous(), &request)
            .await
            .unwrap_err();
        assert_eq!(error.failure(), Failure::QueueTimedOut);
        assert!(
            error.to_string().contains("node two (i-0123456789abcdef1)"),
            "{error}"
        );

        let kube = ScriptedKube::new()
            .on("GET", LIST, 200, list(&[]))
            .on("PATCH", NODE, 200, node(Some(&claim(Phase::Admitted))))
            .on("GET", LIST, 200, list(&[]));
        let answer = claim_and_queue(&kube, &aws(), &on_node, previous(), &request)
            .await
            .unwrap();
        assert_eq!(
            answer.verdict,
            ClaimVerdict::Standby,
            "it was admitted at the last moment"
        );
    }

    #[tokio::test]
    async fn a_claim_that_is_taken_over_continues_from_its_phase_with_the_new_fence() {
        let theirs = claim_of("two", Phase::Standby, -600);
        let mut on_node = node(None);
        on_node["metadata"]["annotations"][CLAIM_ANNOTATION] = json!(serde_json::to_string(&theirs).unwrap());
        // A restore has failed before its end.
        on_node["metadata"]["annotations"]["recycle-eks/restoring"] = json!("2027-01-01T00:00:00Z");
        for (previous, text) in [
            (
                PreviousClaim::dead(theirs.clone()),
                "two, which had claimed it, no longer runs",
            ),
            (
                PreviousClaim::less_urgent(theirs.clone()),
                "two, which had claimed it, is less urgent and ends by itself",
            ),
        ] {
            let kube = ScriptedKube::new()
                .on("PATCH", NODE, 200, node(Some(&claim(Phase::Standby))))
                .on("POST", "/events", 201, json!({}));
            let aws = ScriptedAws::new().on("CreateTags", "");
            let answer = claim_and_queue(&kube, &aws, &on_node, Some(previous), &request(&json!({})))
                .await
                .unwrap();
            assert_eq!(answer.verdict, ClaimVerdict::Standby);
            assert!(answer.reason.ends_with(text), "{}", answer.reason);
            assert_eq!(
                claims_written(&kube),
                [claim(Phase::Standby)],
                "claimed at this moment"
            );
            let written = kube.lease("i-0123456789abcdef0");
            assert!(written.get("recycle-eks/restoring").is_none(), "{written}");
        }
    }

    #[tokio::test]
    async fn an_urgent_execution_is_admitted_with_its_claim_and_lists_no_nodes() {
        let mut request = request(&json!({}));
        request.context.execution.input["urgency"] = json!("spot");
        let kube = ScriptedKube::new()
            .on("PATCH", NODE, 200, node(Some(&claim(Phase::Admitted))))
            .on("POST", "/events", 201, json!({}));
        let aws = ScriptedAws::new().on("CreateTags", "");
        let previous = Some(PreviousClaim::less_urgent(claim_of("two", Phase::Claimed, -600)));
        let answer = claim_and_queue(&kube, &aws, &node(None), previous, &request)
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Standby);
        let urgent = Claim {
            urgency: Urgency::Spot,
            ..claim(Phase::Admitted)
        };
        assert_eq!(claims_written(&kube), [urgent]);
        assert_eq!(kube.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn only_a_node_that_is_in_service_again_after_its_drain_is_queued_again() {
        let kube = ScriptedKube::new();
        let input = parse_input(&request(&json!({})).context.execution.input, &settings()).unwrap();
        for (phase, state, expected) in [
            (Phase::Standby, "InService", Phase::Standby),
            (Phase::Draining, "InService", Phase::Draining),
            (Phase::Waiting, "InService", Phase::Claimed),
            (Phase::Disposing, "InService", Phase::Claimed),
            (Phase::Waiting, "Standby", Phase::Waiting),
            (Phase::Disposing, "Terminating:Wait", Phase::Disposing),
        ] {
            let mut facts = facts(&kube, &node(None)).await;
            facts.group.members[0].lifecycle_state = state.to_owned();
            let previous = PreviousClaim::dead(claim_of("two", phase, -600));
            let claim = facts.build_claim(Some(&previous), &request(&json!({})), &input);
            assert_eq!(claim.phase, expected, "{phase} {state}");
        }
    }
}
