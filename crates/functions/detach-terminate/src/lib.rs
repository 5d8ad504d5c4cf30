//! The end of a drained or lost node: out of the balancers, volumes off, then terminated in its group, stopped in Standby, or detached from
//! its group. One step for each call: recorded, then done. It evicts nothing; if pods that matter are there again, or a node is not lost after
//! all, it hands the node back to `check-pods`.

mod case;
mod error;
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
    #[must_use]
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Takes the next step of the disposal.
    /// If AWS or the cluster cannot be asked, the answer is to wait, as long as there is patience.
    pub async fn handle(&self, mut request: StepRequest) -> Result<Answer<DisposeVerdict>, Error> {
        let now = request.context.now();
        request.run.disposing_since.get_or_insert(now);
        let run = request.run.clone();
        let execution = request.context.execution.id.clone();
        let answer = self.take_step(request).await;
        let answer = answer.map(|answer| answer.telling_end(&execution, DisposeVerdict::Recycled));
        answer.or_else(|error| outage::wait_out(error, run, now))
    }

    async fn take_step(&self, request: StepRequest) -> Answered {
        let (client, node) = kubernetes::open(&self.access, &request.run.node).await?;
        self.take_step_in(client, node, request).await
    }

    /// Takes the next step with the Node that was read.
    async fn take_step_in(
        &self,
        client: kube::Client,
        node: Option<NodeFacts>,
        request: StepRequest,
    ) -> Answered {
        let mut case = self.fetch(client, node, request).await?;
        if case.has_recovered() {
            return case.spare("is well again").await;
        }
        if case.is_silent_like_all().await? {
            let state = "is silent like every other node: it is not given up";
            return case.spare(state).await;
        }
        if !case.is_going() {
            case.check_as_left()?;
            let survey = match case.run.lost {
                // No pod of a lost node can be saved.
                Some(_) => PodSurvey::default(),
                None => case.survey_pods().await?,
            };
            case.run.drain.late_pods = EndedPods::late(&survey);
            match &mut case.run.drain.ended_pods {
                Some(ended) => *ended = EndedPods::of(&survey),
                None if survey.is_clear() => {}
                None => return Ok(case.back_to_check_pods(survey).await),
            }
        }
        match case.find_shortage().await? {
            Some(shortage) => return case.await_members(&shortage).await,
            None => case.run.short_since = None,
        }
        if case.has_to_remember() {
            return self.remember(case).await;
        }
        match next_disposal_step(&case.departure()) {
            DisposalStep::LeaveBalancers(seconds) => self.leave_balancers(case, seconds).await,
            DisposalStep::Wait(seconds, reason) => Ok(case.wait(seconds, &reason)),
            DisposalStep::MarkOutOfService => self.mark_out_of_service(case).await,
            DisposalStep::CompleteHook(seconds) => self.complete_hook(case, seconds).await,
            DisposalStep::Terminate(seconds) => self.terminate(case, seconds).await,
            DisposalStep::Stop(seconds) => self.stop(case, seconds).await,
            DisposalStep::Protect(members) => self.protect(case, &members).await,
            DisposalStep::Detach(seconds) => self.detach(case, seconds).await,
            DisposalStep::Unprotect(members) => self.unprotect(case, &members).await,
            DisposalStep::Retire => self.retire(case).await,
            DisposalStep::Done => self.finish(case).await,
            DisposalStep::GiveUp(state) => {
                let state = format!("does not go: {state}");
                Err(Error::Ended(Failure::ServiceRefused, case.say(&state)))
            }
        }
    }
}
