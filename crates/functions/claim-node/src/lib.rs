//! The Lambda `claim-node`: runs pre-flight, claims the node, and queues it in its group.
//!
//! Every refusal that is possible before the node is touched happens here. Pre-flight runs again each time that the node has waited in
//! the queue. The functions of the later steps act on the node.

mod balancers;
mod claiming;
mod config;
mod error;
mod facts;
#[cfg(test)]
mod fixtures;
mod group_state;
#[cfg(test)]
mod laws;
mod outage;
mod planning;
mod queueing;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use recycle::answer::envelope::{Answer, ClaimBody};
use recycle::claim::facts::GroupState;
use recycle::claim::obstacle::Obstacle;
use recycle::claim::preflight::{Preflight, check_preflight, list_refusals};
use recycle::contract::requests::ClaimRequest;
use recycle::contract::verdicts::ClaimVerdict;
use recycle::input::fields::Settings;
use recycle::input::model::{Dispose, Input, Replacement};
use recycle::input::parse::parse_input;
use recycle::plan::dry_run::Plan;
use recycle::records::claim::{ClaimDecision, RUNNING, decide_claim};
use recycle::records::owner::Owner;
use step_functions::Executions;

use crate::claiming::PreviousClaim;
use crate::facts::FetchedFacts;

pub use config::read_settings;
pub use error::Error;

/// The reason why a redriven execution is refused. Its records are from an earlier run, and may belong to another execution by now.
const REDRIVEN: &str = "this execution was redriven, so it does nothing: start another execution, which resumes from the records";

type Answered = Result<Answer<ClaimVerdict>, Error>;

#[derive(Debug)]
pub struct ClaimNode {
    settings: Settings,
    config: SdkConfig,
    access: Access,
    groups: Groups,
    instances: Instances,
    executions: Executions,
}

impl ClaimNode {
    pub fn new(settings: Settings, aws: &SdkConfig) -> Self {
        Self {
            config: aws.clone(),
            access: Access::new(aws, &settings.cluster_name),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
            executions: Executions::new(aws),
            settings,
        }
    }

    /// Claims the node, unless another execution holds it or something forbids it. Then the node is admitted, or waits in the queue.
    pub async fn handle(&self, request: ClaimRequest) -> Result<Answer<ClaimVerdict>, Error> {
        if request.context.execution.redrive_count > 0 {
            return Err(Error::refused(Obstacle::Redriven, REDRIVEN));
        }
        let input = parse_input(&request.context.execution.input, &self.settings)?;
        let claimed = match self.claim(&request, &input).await {
            // Another client changed the Node between the read and the write, perhaps a rival execution. Read it again, once.
            Err(Error::Node(kubernetes::Error::Conflict { .. })) => self.claim(&request, &input).await,
            claimed => claimed,
        };
        claimed.or_else(|error| outage::wait_out(error, request))
    }

    async fn claim(&self, request: &ClaimRequest, input: &Input) -> Answered {
        let found = self.fetch_facts(input, request).await?;
        self.claim_in(found, request, input).await
    }

    /// Decides and acts on the claim after all facts are read.
    async fn claim_in(&self, found: FetchedFacts, request: &ClaimRequest, input: &Input) -> Answered {
        let previous = match self.decide(&found, request, input).await? {
            ClaimDecision::Take => None,
            ClaimDecision::AlreadyHeld(claim) => Some(PreviousClaim::own(claim)),
            ClaimDecision::Resume(claim) => Some(PreviousClaim::dead(claim)),
            ClaimDecision::TakeOver(claim) => Some(PreviousClaim::less_urgent(claim)),
            ClaimDecision::AskOwner(owner) => {
                let reason = format!("{owner} holds the claim, and it is not known whether it runs");
                return Ok(Answer::new(ClaimVerdict::Duplicate, reason));
            }
            ClaimDecision::Duplicate(reason) => return Ok(Answer::new(ClaimVerdict::Duplicate, reason)),
            ClaimDecision::Foreign(what) => return Err(found.foreign_claim(&what)),
            ClaimDecision::Unreadable(text) => return Err(found.unreadable_claim(&text)),
        };
        // A queued node has its own claim, and is asked about once. A hook could be completed in any call.
        let is_own = previous.as_ref().is_some_and(PreviousClaim::is_own);
        if !input.dry_run && (!is_own || input.hook.is_some()) {
            self.check_execution(request, input).await?;
        }
        if let Some(reason) = found.find_release(input) {
            return self.release(input, reason).await;
        }
        let node_group = self.fetch_node_group(&found, input).await?;
        // A node that waits in the queue keeps the replacement with which it was queued.
        let queued = request.run.as_ref();
        let was_queued_so = queued.is_some_and(|run| run.input.replacement == Replacement::Surge);
        let is_better_with_surge = was_queued_so || node_group.is_some() || found.rebalances_capacity();
        let input = &found.settle_path(
            &self.choose_replacement(input, request, is_better_with_surge)?,
            is_better_with_surge,
        );
        let has_begun = previous
            .as_ref()
            .is_some_and(|previous| found.has_begun(previous.claim.phase, input));
        // Skip the start checks when resuming.
        let group_state = if has_begun {
            GroupState::default()
        } else {
            self.fetch_group_state(&found, input, node_group).await?
        };
        let hook = self.fetch_hook(&found, input).await?;
        let mut notes = match check_preflight(&found.for_preflight(input, &group_state, has_begun)) {
            Preflight::Go { notes } => notes,
            Preflight::AlreadyGone(reason) => {
                self.complete_hook(input).await?;
                return Ok(Answer::new(ClaimVerdict::AlreadyGone, reason));
            }
            Preflight::Refused(refusals) => return Err(Error::Refused(list_refusals(&refusals))),
        };
        let remark = found.note_retention(input);
        notes.extend(remark.clone());
        let facts = found.into_claim_facts(hook, remark)?;
        if input.dry_run {
            let answer = facts
                .plan(input, notes, group_state.added_places, request.context.now())
                .await?;
            facts.record_plan(&answer, &request.context).await?;
            return Ok(answer);
        }
        self.claim_and_queue(facts, previous, request, input, &group_state)
            .await
    }

    /// Decides about the claim that was found. Step Functions says whether its owner runs.
    async fn decide(
        &self,
        found: &FetchedFacts,
        request: &ClaimRequest,
        input: &Input,
    ) -> Result<ClaimDecision, Error> {
        let me = request.context.fence();
        if request.run.is_some() {
            return Ok(found.decide_queued(&me, input.urgency)?);
        }
        let (claim, now) = (found.claim(), request.context.now());
        let decide = |owner: Option<&Owner>| decide_claim(claim.as_ref(), &me, input.urgency, owner, now);
        let decision = decide(None);
        let ClaimDecision::AskOwner(execution) = &decision else {
            return Ok(decision);
        };
        let owner = self.executions.find_owner(execution).await?;
        Ok(decide(Some(&owner)))
    }

    /// Checks with Step Functions that this execution runs, and with this input. Any principal that may invoke the function chooses what
    /// its payload says, and all later functions believe the claim.
    async fn check_execution(&self, request: &ClaimRequest, input: &Input) -> Result<(), Error> {
        let execution = &request.context.execution.id;
        let described = self.executions.describe(execution).await?;
        let described = described.ok_or_else(|| Error::UnknownExecution(execution.clone()))?;
        let given = described
            .input
            .as_ref()
            .map(|given| parse_input(given, &self.settings));
        let is_same = given.is_some_and(|given| given.as_ref() == Ok(input));
        if described.status == RUNNING && is_same {
            return Ok(());
        }
        Err(Error::OtherExecution {
            execution: execution.clone(),
            status: described.status,
        })
    }

    /// Returns the input with the default replacement of the group. Stopping and detaching need Standby.
    fn choose_replacement(
        &self,
        input: &Input,
        request: &ClaimRequest,
        is_better_with_surge: bool,
    ) -> Result<Input, Error> {
        if !is_better_with_surge || input.dispose != Dispose::Terminate {
            return Ok(input.clone());
        }
        let given = &request.context.execution.input;
        Ok(parse_input(given, &self.settings.preferring_surge())?)
    }

    /// Completes the hook of recycle-eks, because the instance has nothing to wait for. A dry run returns the plan instead.
    async fn release(&self, input: &Input, reason: String) -> Answered {
        if input.dry_run {
            let plan = Plan {
                steps: vec![format!("complete the lifecycle action at once: {reason}")],
                ..Plan::default()
            };
            return Ok(Answer::new(ClaimVerdict::Planned, reason).with(ClaimBody::Plan(plan)));
        }
        self.complete_hook(input).await?;
        Ok(Answer::new(ClaimVerdict::Released, reason))
    }

    async fn complete_hook(&self, input: &Input) -> Result<(), Error> {
        if let Some(hook) = input.hook.as_ref().filter(|_| !input.dry_run) {
            let group = &hook.auto_scaling_group_name;
            self.groups.complete_hook(group, &input.instance_id).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{request, settings};

    #[tokio::test]
    async fn a_redriven_execution_is_refused_before_anything_is_read() {
        let aws = ScriptedAws::new();
        let step = ClaimNode::new(settings(), &aws.config());
        for run in [json!({}), serde_json::to_value(fixtures::run()).unwrap()] {
            let mut request = request(&run);
            request.context.execution.redrive_count = 1;
            let error = step.handle(request).await.unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{error:?}");
            assert!(error.to_string().contains("start another execution"), "{error}");
        }
        assert!(aws.calls().is_empty());
    }
}
