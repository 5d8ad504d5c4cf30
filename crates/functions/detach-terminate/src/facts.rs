//! Fetches the facts of one invocation, and checks that this execution holds the claim.

use futures::future::join;
use jiff::Timestamp;
use kubernetes::{NodeChange, NodeSurvey, Occasion};
use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::{Fence, InstanceId};
use recycle::base::names::{DETACHED_TAG, STOPPED_TAG};
use recycle::claim::obstacle::Obstacle;
use recycle::cluster::group::{Group, Member, is_leaving};
use recycle::cluster::hook::{WAITING, is_held};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, Taint, is_out_of_service_taint};
use recycle::contract::requests::StepRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::DisposeVerdict;
use recycle::disposal::next_step::{DisposalFacts, find_balancer_grace};
use recycle::drain::lost::find_loss;
use recycle::drain::survey::PodSurvey;
use recycle::input::model::Dispose;
use recycle::input::path::RecyclePath;
use recycle::records::claim::{Claim, ClaimLost, check_claim};
use recycle::records::lease::Lease;
use recycle::replacement::shortage::{Shortage, find_shortage, is_usable};
use recycle::replacement::usable::Patience;

use crate::{Answered, DetachTerminate, Error};

pub(crate) struct FetchedFacts {
    pub(crate) client: kube::Client,
    pub(crate) node: Option<NodeFacts>,
    /// The Lease of the instance, with or without a Node.
    pub(crate) lease: Option<Lease>,
    pub(crate) instance: Option<Instance>,
    pub(crate) group: Option<Group>,
    /// Whether the instance waits for a hook and its group has the hook of recycle-eks.
    pub(crate) waits_for_recycle_eks_hook: bool,
    /// The instances that are protected from scale-in while this one is detached.
    pub(crate) protected: Vec<InstanceId>,
    /// The desired capacity that the group has without the place that the execution has added; None if it has added none.
    pub(crate) raised_from: Option<u32>,
    /// The claim of this execution; None if the disposal is complete.
    pub(crate) claim: Option<Claim>,
    pub(crate) run: Run,
    pub(crate) me: Fence,
    pub(crate) now: Timestamp,
}

/// The instance, as EC2 answered, and its group, as Auto Scaling answered.
pub(crate) type AwsAnswer = (
    Result<Option<Instance>, ec2::Error>,
    Result<Option<Group>, ec2::Error>,
);

impl DetachTerminate {
    pub(crate) async fn ask_aws(&self, run: &Run) -> AwsAnswer {
        let instance = self.instances.fetch(&run.input.instance_id);
        join(instance, self.groups.fetch(&run.group)).await
    }

    pub(crate) async fn fetch(
        &self,
        client: kube::Client,
        node: Option<NodeFacts>,
        (instance, group): AwsAnswer,
        request: StepRequest,
    ) -> Result<FetchedFacts, Error> {
        let StepRequest { context, run } = request;
        let (me, now) = (context.fence(), context.now());
        let id = &run.input.instance_id;
        // Node names are soon reused, so the Node must be this instance's.
        // A Node that names no instance belongs to the execution that has claimed it.
        // Without that Node, its taint, its balancers and its volumes would not be checked.
        let belongs = |node: &NodeFacts| match &node.instance {
            Some(instance) => instance == id,
            None => node.claim().is_some(),
        };
        let (instance, group) = (instance?, group?);
        let state = group.as_ref().and_then(|group| group.state_of(id));
        let (node, lease) = match (node.filter(belongs), &instance) {
            (Some(node), _) => {
                let lease = node.lease.clone();
                (Some(node), lease)
            }
            // Its end has not begun, so the Node is missing for another reason, or the payload names another one.
            (None, Some(living)) if !living.is_gone() && !state.is_some_and(is_leaving) => {
                let hint = living.private_dns_name.as_deref();
                kubernetes::find_node_and_lease(&client, id, hint).await?
            }
            (None, _) => (None, kubernetes::get_lease(&client, id).await?),
        };
        if let Some(found) = node.as_ref().filter(|node| node.name != run.node) {
            let text = format!("the Node of {id} is {}, and not {}", found.name, run.node);
            return Err(Error::Ended(Failure::ServiceRefused, text));
        }
        let claim = find_own_claim(lease.as_ref(), instance.as_ref(), &run, &me)?;
        if let (None, Some(node)) = (&instance, &node) {
            // EC2 is eventually consistent, so one such answer must not end a member with its pods, or release volumes that it uses.
            let text = format!(
                "EC2 does not know {id}, but its Node {} is there. If aws ec2 describe-instances does not find the instance either, delete \
                 the Node",
                node.name
            );
            return Err(Error::Ended(Failure::ServiceUnavailable, text));
        }
        let is_waiting = state == Some(WAITING);
        let waits_for_recycle_eks_hook = is_waiting && self.groups.find_hook(&run.group).await?.is_some();
        let record = lease
            .as_ref()
            .and_then(|lease| lease.record().ok())
            .unwrap_or_default();
        let raised_from = match &group {
            Some(group) => kubernetes::find_size_without_place(&client, &record, id, group).await?,
            None => None,
        };
        let protected = match run.input.dispose {
            Dispose::Detach => record.protected,
            Dispose::Terminate | Dispose::Stop => Vec::new(),
        };
        Ok(FetchedFacts {
            client,
            node,
            lease,
            instance,
            group,
            waits_for_recycle_eks_hook,
            protected,
            raised_from,
            claim,
            run,
            me,
            now,
        })
    }
}

/// Returns this execution's claim. None if its disposal is complete, which ends the claim, or if the instance is gone.
/// Any other claim, or a missing one, is an error.
fn find_own_claim(
    lease: Option<&Lease>,
    instance: Option<&Instance>,
    run: &Run,
    me: &Fence,
) -> Result<Option<Claim>, ClaimLost> {
    let found = lease.and_then(Lease::claim);
    let is_over = was_retired(instance, run) || instance.is_none_or(Instance::is_gone);
    if found.is_none() && is_over {
        return Ok(None);
    }
    check_claim(found, me, run.input.urgency, &run.describe_node()).map(Some)
}

/// Checks whether this execution has tagged its result on the instance. A result that is older than the claim is from an earlier run:
/// the instance was, for example, detached, attached again, and is recycled once more.
fn was_retired(instance: Option<&Instance>, run: &Run) -> bool {
    let result = match run.input.dispose {
        Dispose::Terminate => return false,
        Dispose::Stop => STOPPED_TAG,
        Dispose::Detach => DETACHED_TAG,
    };
    let tag = instance.and_then(|instance| instance.tags.get(result));
    tag.and_then(|time| time.parse::<Timestamp>().ok())
        .is_some_and(|time| time >= run.claimed_at)
}

impl FetchedFacts {
    /// Returns the group's member; None if the group no longer lists the instance.
    fn member(&self) -> Option<&Member> {
        self.group.as_ref()?.member(&self.run.input.instance_id)
    }

    /// Describes that the group keeps the added place, because the instance has ended in another way. None if it does not.
    pub(crate) fn note_larger_group(&self) -> Option<String> {
        let (from, group) = (self.raised_from?, self.group.as_ref()?);
        (!self.run.gave_place_up && group.desired > from).then(|| group.describe_larger())
    }

    pub(crate) fn lifecycle_state(&self) -> Option<&str> {
        self.group.as_ref()?.state_of(&self.run.input.instance_id)
    }

    /// Checks whether the node was given up as lost while its instance runs.
    fn is_lost_but_runs(&self) -> bool {
        let instance = self.instance.as_ref();
        self.run.lost.is_some() && instance.is_some_and(|instance| instance.state == "running")
    }

    pub(crate) fn disposal_facts(&self) -> DisposalFacts<'_> {
        let input = &self.run.input;
        DisposalFacts {
            id: &input.instance_id,
            dispose: input.dispose,
            path: self.run.path,
            was_retired: was_retired(self.instance.as_ref(), &self.run),
            waits_for_recycle_eks_hook: self.waits_for_recycle_eks_hook,
            is_lost: self.run.lost.is_some(),
            node: self.node.as_ref(),
            instance: self.instance.as_ref(),
            group: self.group.as_ref(),
            protected: &self.protected,
            raised_from: self.raised_from,
            since: self.run.disposing_since.unwrap_or(self.now),
            now: self.now,
            balancer_grace: find_balancer_grace(&self.run.input, self.now),
        }
    }

    /// Checks whether a node that was given up as lost has recovered.
    /// Its Node is back, or Ready again, and its instance runs as a member of its group.
    pub(crate) fn has_recovered(&self) -> bool {
        // A member that the hook of recycle-eks holds stays until the hook is completed.
        let is_held =
            |member: &Member| self.run.path == RecyclePath::Hook && is_held(Some(&member.lifecycle_state));
        let is_staying = |member: &Member| !member.is_leaving() || is_held(member);
        let patience = self.run.input.node_lost_after;
        let loss = find_loss(self.node.as_ref(), patience, self.now);
        self.is_lost_but_runs() && self.member().is_some_and(is_staying) && loss.is_none()
    }

    /// Checks whether a node that was given up as not Ready still runs, while no other node is Ready either.
    /// Then the fault lies in the cluster, not in this node.
    pub(crate) async fn is_unready_like_all(&self) -> Result<bool, Error> {
        match self.node.as_ref().filter(|node| !node.ready) {
            Some(node) if self.is_lost_but_runs() && !self.is_going() => {
                Ok(!kubernetes::is_another_ready(&self.client, &node.name).await?)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Returns the shortage if the replacement can no longer be used and the group has too few usable members.
    /// Only a Ready node whose replacement came first waits for that.
    /// A lost node, a node that goes with its pods, a node on the hook path and a Spot interruption do not wait.
    pub(crate) async fn find_shortage(&self) -> Result<Option<Shortage>, Error> {
        let run = &self.run;
        let waits_in = match run.path {
            RecyclePath::Before => Some("Standby"),
            RecyclePath::Surge => Some("InService"),
            RecyclePath::After | RecyclePath::Hook => None,
        };
        let may_wait = waits_in.is_some()
            && self.lifecycle_state() == waits_in
            && run.input.interrupted_at.is_none()
            && run.lost.is_none()
            && run.drain.ended_pods.is_none()
            && !self.is_going();
        let node = self.node.as_ref().filter(|node| may_wait && node.ready);
        let (Some(node), Some(group)) = (node, &self.group) else {
            return Ok(None);
        };
        let record = node.record()?;
        let Some(before) = record.usable_before else {
            return Ok(None);
        };
        let nodes = kubernetes::list_nodes(&self.client).await?.readable;
        let is_there = is_usable(record.replacement.as_ref(), node, group, &nodes);
        let shortage = find_shortage(&run.input.instance_id, node, before, group, &nodes);
        Ok(shortage.filter(|_| !is_there))
    }

    /// Waits for another replacement, as long as for the first one, and ends nothing. After that the error is `ReplacementTimedOut`.
    pub(crate) async fn await_members(mut self, shortage: &Shortage) -> Answered {
        let reason = format!(
            "{}: its replacement can no longer be used, and {}",
            self.describe_state("is drained and waits"),
            shortage.describe()
        );
        let patience = Patience {
            since: *self.run.short_since.get_or_insert(self.now),
            now: self.now,
            timeout: self.run.input.replacement_timeout,
        };
        let Some(seconds) = patience.next_wait_of_drained() else {
            return Err(Error::Ended(Failure::ReplacementTimedOut, reason));
        };
        if patience.since == self.now {
            let occasion = Occasion::Disturbed(Obstacle::ReplacementGone.name());
            self.record_event(occasion, &reason).await;
        }
        self.run.disposing_since = None;
        Ok(Answer::new(DisposeVerdict::Wait, reason)
            .waiting(seconds)
            .carrying(self.run))
    }

    /// Checks whether the facts by which the replacement is recognized still have to be recorded.
    /// On the `after` path they are needed before anything is ended, unless the node is lost.
    pub(crate) fn needs_member_record(&self) -> bool {
        self.run.path == RecyclePath::After && self.run.old.is_none() && self.run.lost.is_none()
    }

    pub(crate) async fn survey_pods(&self) -> Result<PodSurvey, Error> {
        let (name, node) = (&self.run.node, self.node.as_ref());
        let drain = (&self.run).into();
        let survey = NodeSurvey::fetch::<Error>(&self.client, name, node, drain, self.now).await?;
        Ok(survey.pods)
    }

    pub(crate) fn check_claim(&self, node: &NodeFacts) -> Result<Claim, ClaimLost> {
        kubernetes::check_claim(node, &self.me, self.run.input.urgency)
    }

    /// Writes an Event on the Node.
    pub(crate) async fn record_event(&self, occasion: impl Into<Occasion<'_>>, message: &str) {
        kubernetes::record_event(
            &self.client,
            &self.run.node,
            occasion,
            message,
            self.now,
            &self.me,
        )
        .await;
    }

    pub(crate) fn describe_state(&self, state: &str) -> String {
        format!("{} {state}", self.run.describe_node())
    }

    /// Writes a sentence about the node, with the pods that go with the instance, if there are any.
    pub(crate) fn describe_with_pods(&self, state: &str) -> String {
        format!("{}{}", self.describe_state(state), self.run.describe_ended())
    }

    /// Hands the node back to `check-pods`, because pods hold it again.
    /// Once they are gone, the disposal and its clocks start anew.
    /// The answer names the pods by the classes of `check-pods`, which also reads their volumes.
    /// If the volumes cannot be read, the answer goes without them, since they decide nothing here.
    pub(crate) async fn back_to_check_pods(mut self, survey: PodSurvey) -> Answer<DisposeVerdict> {
        let survey = match &self.node {
            Some(node) if self.run.input.interrupted_at.is_none() => {
                let held = kubernetes::hold_back(&self.client, node, survey.clone()).await;
                held.unwrap_or(survey)
            }
            Some(_) | None => survey,
        };
        let reason = self.describe_state("has pods again that hold it");
        self.reset_disposal();
        Answer {
            counts: survey.counts(),
            names: survey.names(),
            ..Answer::new(DisposeVerdict::CheckPods, reason).carrying(self.run)
        }
    }

    /// Hands a node back to `check-pods` that is not given up after all. `state` gives the reason.
    /// The taint that would release its volumes is removed first.
    pub(crate) async fn hand_back(mut self, state: &str) -> Answered {
        if let Some(node) = self.node.clone() {
            kubernetes::amend_node(&self.client, node, |node| {
                let others = node.taints.iter().filter(|taint| !is_out_of_service_taint(taint));
                let others: Vec<Taint> = others.cloned().collect();
                if others.len() == node.taints.len() {
                    return Ok(None);
                }
                self.check_claim(node)?;
                Ok::<_, Error>(Some(NodeChange::new().taints(others)))
            })
            .await?;
        }
        let reason = self.describe_state(state);
        self.reset_disposal();
        Ok(Answer::new(DisposeVerdict::CheckPods, reason).carrying(self.run))
    }

    fn reset_disposal(&mut self) {
        self.run.disposing_since = None;
        self.run.lost = None;
        self.run.drain.late_pods = None;
        self.run.drain.skipped_pods = None;
        self.run.old = None;
        self.run.short_since = None;
    }

    pub(crate) fn wait(self, seconds: u32, reason: &str) -> Answer<DisposeVerdict> {
        let reason = format!("{}: {reason}", self.describe_state("is being disposed of"));
        Answer::new(DisposeVerdict::Wait, reason)
            .waiting(seconds)
            .carrying(self.run)
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::names::CLAIM_ANNOTATION;
    use recycle::contract::run::EndedPods;
    use recycle::records::claim::Phase;
    use scripted_kube::ScriptedKube;

    use super::*;
    use crate::fixtures;

    #[tokio::test]
    async fn pods_that_came_back_reset_the_clock_of_the_disposal() {
        let mut facts = fixtures::facts(&ScriptedKube::new(), "terminate", "running");
        facts.run.disposing_since = Some(facts.now);
        let answer = facts.back_to_check_pods(PodSurvey::default()).await;
        assert_eq!(answer.run.unwrap().disposing_since, None);
    }

    #[tokio::test]
    async fn a_lost_node_has_recovered_if_it_is_ready_and_runs_as_a_member() {
        let recovered = |change: &dyn Fn(&mut FetchedFacts)| {
            let mut facts = fixtures::facts(&ScriptedKube::new(), "terminate", "running");
            facts.run.lost = find_loss(None, 0, facts.now);
            change(&mut facts);
            facts.has_recovered()
        };
        assert!(recovered(&|_| {}));
        type Change = dyn Fn(&mut FetchedFacts);
        let cases: [(&str, &Change); 6] = [
            ("it was never lost", &|facts| facts.run.lost = None),
            ("gone", &|facts| facts.node = None),
            ("not Ready", &|facts| {
                let since = facts.now - jiff::SignedDuration::from_mins(31);
                facts.node.as_mut().unwrap().not_ready_since = Some(since);
            }),
            ("stopped", &|facts| {
                facts.instance = Some(fixtures::instance("stopped"))
            }),
            ("terminating", &|facts| {
                facts.group = Some(fixtures::group("Terminating"))
            }),
            ("out of its group", &|facts| facts.group = None),
        ];
        for (name, change) in cases {
            assert!(!recovered(change), "{name}");
        }
        let mut facts = fixtures::facts(&ScriptedKube::new(), "terminate", "running");
        facts.run.lost = find_loss(None, 0, facts.now);
        facts.run.disposing_since = Some(facts.now);
        let answer = facts.hand_back("has recovered").await.unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::CheckPods);
        let run = answer.run.unwrap();
        assert_eq!((run.lost, run.disposing_since), (None, None));
    }

    #[tokio::test]
    async fn a_detached_instance_whose_node_is_released_needs_no_claim() {
        let facts = fixtures::facts(&ScriptedKube::new(), "detach", "running");
        let find = |tag: &str, time: &str| {
            let instance = Instance {
                tags: [(tag.to_owned(), time.to_owned())].into(),
                ..fixtures::instance("running")
            };
            find_own_claim(None, Some(&instance), &facts.run, &facts.me)
        };
        let (claimed, before) = ("2027-01-01T00:00:00Z", "2026-12-31T23:59:59Z");
        assert_eq!(find(DETACHED_TAG, claimed).unwrap(), None);
        for (tag, time, name) in [
            (STOPPED_TAG, claimed, "the tag of another disposal"),
            (DETACHED_TAG, before, "the tag of an earlier disposal"),
            (DETACHED_TAG, "yes", "a tag that an operator wrote"),
        ] {
            assert!(find(tag, time).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn the_description_names_the_pods_that_end_with_the_instance() {
        let mut facts = fixtures::facts(&ScriptedKube::new(), "terminate", "running");
        assert_eq!(facts.describe_with_pods("leaves"), facts.describe_state("leaves"));
        let mut ended = EndedPods::of(&PodSurvey::default());
        facts.run.drain.ended_pods = Some(ended.clone());
        assert_eq!(facts.describe_with_pods("leaves"), facts.describe_state("leaves"));
        ended.count = 2;
        ended.names = vec!["jobs/a".to_owned(), "jobs/b".to_owned()];
        facts.run.drain.ended_pods = Some(ended);
        assert!(
            facts
                .describe_with_pods("leaves")
                .ends_with(" leaves; 2 pods still ran on it when its drain timed out (jobs/a, jobs/b)"),
            "{}",
            facts.describe_with_pods("leaves")
        );
    }

    #[tokio::test]
    async fn without_a_node_the_lease_shows_the_holder_of_the_claim() {
        let facts = fixtures::facts(&ScriptedKube::new(), "terminate", "running");
        let find = |state: &str, holder: Option<Claim>| {
            let lease = holder.map(|claim| Lease {
                annotations: [(
                    CLAIM_ANNOTATION.to_owned(),
                    serde_json::to_string(&claim).unwrap(),
                )]
                .into(),
                ..fixtures::node().lease.unwrap()
            });
            let instance = fixtures::instance(state);
            find_own_claim(lease.as_ref(), Some(&instance), &facts.run, &facts.me)
        };
        let own = fixtures::claim(Phase::Disposing);
        let theirs = Claim {
            fence: "arn:aws:states:eu-west-1:123456789012:execution:recycle:two#0"
                .parse()
                .unwrap(),
            ..own.clone()
        };
        assert_eq!(find("running", Some(own.clone())).unwrap(), Some(own));
        assert!(find("running", None).is_err());
        assert!(find("terminated", Some(theirs)).is_err());
        for state in ["shutting-down", "terminated"] {
            assert_eq!(find(state, None).unwrap(), None, "{state}");
        }
    }
}
