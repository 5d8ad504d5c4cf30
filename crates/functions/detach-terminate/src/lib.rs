//! The Lambda `detach-terminate`: disposes of a drained or lost node.
//!
//! It takes the node out of the load balancers and waits until its volumes are detached. Then the instance is terminated in its group,
//! stopped in Standby, or detached from its group. Each call takes one step: it records the step, then acts.
//!
//! It evicts nothing. If pods hold the node again, or if the node is not lost after all, it hands the node back to `check-pods`.

mod error;
mod facts;
#[cfg(test)]
mod fixtures;
mod guard;
#[cfg(test)]
mod laws;
mod outage;
mod steps;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::ClusterName;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::EndedPods;
use recycle::contract::verdicts::DisposeVerdict;
use recycle::disposal::next_step::{DisposalStep, next_disposal_step};
use recycle::drain::survey::PodSurvey;

use crate::facts::AwsAnswer;

pub use error::Error;

/// Seconds until the next call if there is nothing to wait for.
const AT_ONCE: u32 = 1;

type Answered = Result<Answer<DisposeVerdict>, Error>;

#[derive(Debug)]
pub struct DetachTerminate {
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl DetachTerminate {
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Takes the next step of the disposal.
    /// If AWS or the cluster cannot be read, the answer is to wait, as long as there is time.
    pub async fn handle(&self, mut request: StepRequest) -> Result<Answer<DisposeVerdict>, Error> {
        let now = request.context.now();
        request.run.disposing_since.get_or_insert(now);
        let run = request.run.clone();
        let execution = request.context.execution.id.clone();
        let answer = self.take_step(request).await;
        let answer = answer.map(|answer| answer.with_end_notification(&execution, DisposeVerdict::Recycled));
        answer.or_else(|error| outage::wait_out(error, run, now))
    }

    async fn take_step(&self, request: StepRequest) -> Answered {
        let ask = async || self.ask_aws(&request.run).await;
        let (client, node, found) = kubernetes::open_beside(&self.access, &request.run, ask).await?;
        self.take_step_in(client, node, found, request).await
    }

    /// Takes the next step with the Node and the answers of AWS.
    async fn take_step_in(
        &self,
        client: kube::Client,
        node: Option<NodeFacts>,
        found: AwsAnswer,
        request: StepRequest,
    ) -> Answered {
        let mut facts = self.fetch(client, node, found, request).await?;
        if facts.has_recovered() {
            return facts.hand_back("has recovered").await;
        }
        if facts.is_unready_like_all().await? {
            let state = "is not Ready, like every other node, so it is not given up";
            return facts.hand_back(state).await;
        }
        if !facts.is_going() {
            facts.check_unchanged()?;
            let survey = match facts.run.lost {
                // No pod of a lost node can be saved.
                Some(_) => PodSurvey::default(),
                None => facts.survey_pods().await?,
            };
            facts.run.drain.late_pods = EndedPods::late(&survey);
            facts.run.drain.skipped_pods = EndedPods::skipped(&survey);
            match &mut facts.run.drain.ended_pods {
                Some(ended) => *ended = EndedPods::of(&survey),
                None if survey.is_clear() => {}
                None => return Ok(facts.back_to_check_pods(survey).await),
            }
        }
        match facts.find_shortage().await? {
            Some(shortage) => return facts.await_members(&shortage).await,
            None => facts.run.short_since = None,
        }
        if facts.needs_member_record() {
            return self.record_members(facts).await;
        }
        match next_disposal_step(&facts.disposal_facts()) {
            DisposalStep::LeaveBalancers(seconds) => self.leave_balancers(facts, seconds).await,
            DisposalStep::Wait(seconds, reason) => Ok(facts.wait(seconds, &reason)),
            DisposalStep::MarkOutOfService => self.mark_out_of_service(facts).await,
            DisposalStep::CompleteHook(seconds) => self.complete_hook(facts, seconds).await,
            DisposalStep::Terminate(seconds) => self.terminate(facts, seconds).await,
            DisposalStep::Remove(seconds) => self.remove(facts, seconds).await,
            DisposalStep::Stop(seconds) => self.stop(facts, seconds).await,
            DisposalStep::Protect(members) => self.protect(facts, &members).await,
            DisposalStep::Detach(seconds) => self.detach(facts, seconds).await,
            DisposalStep::Unprotect(members) => self.unprotect(facts, &members).await,
            DisposalStep::Retire => self.retire(facts).await,
            DisposalStep::Done => self.finish(facts).await,
            DisposalStep::GiveUp(state) => {
                let state = format!("cannot be disposed of: {state}");
                Err(Error::Ended(
                    Failure::ServiceRefused,
                    facts.describe_state(&state),
                ))
            }
        }
    }
}
