//! The end of a drained node: out of the balancers, volumes off, then terminated in its group, or stopped in Standby. One step for
//! each call: recorded, then done. It evicts nothing; if pods that matter are there again, it hands the node back to `check-pods`.

mod case;
mod error;
#[cfg(test)]
mod fixtures;
mod guard;
mod outage;
mod steps;

use aws_config::SdkConfig;
use eks_auth::Access;
use instance_record::autoscaling::Groups;
use instance_record::ec2::Instances;
use jiff::Timestamp;
use recycle::contract::{Answer, DisposeVerdict, EndedPods, StepRequest};
use recycle::disposal::{DisposalStep, next_disposal_step};

use crate::guard::{check_as_left, is_going};

pub use error::Error;
pub use guard::NotAsLeft;

/// The step.
#[derive(Debug)]
pub struct DetachTerminate {
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl DetachTerminate {
    /// The step with clients of `aws`.
    #[must_use]
    pub fn new(aws: &SdkConfig) -> Self {
        Self {
            access: Access::new(aws),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Takes the next step of the disposal. AWS or a cluster that cannot be asked is a reason to wait, as long as there is
    /// patience.
    pub async fn handle(&self, mut request: StepRequest) -> Result<Answer<DisposeVerdict>, Error> {
        let now = request.context.now();
        let since = *request.run.disposing_since.get_or_insert(now);
        let run = request.run.clone();
        let answer = self.take_step(request, since).await;
        answer.or_else(|error| outage::wait_out(error, run, since, now))
    }

    async fn take_step(
        &self,
        request: StepRequest,
        since: Timestamp,
    ) -> Result<Answer<DisposeVerdict>, Error> {
        let mut case = self.fetch(request).await?;
        let input = &case.run.input;
        let (node, instance, state) = (
            case.node.as_ref(),
            case.instance.as_ref(),
            case.lifecycle_state.as_deref(),
        );
        if !is_going(input.dispose, instance, state) {
            check_as_left(&input.instance_id, case.run.way_in, state, node)?;
            let survey = case.survey_pods().await?;
            match &mut case.run.ended_pods {
                Some(ended) => *ended = EndedPods::of(&survey),
                None if survey.is_clear() => {}
                None => return Ok(case.back_to_check_pods(&survey)),
            }
        }
        let grace = input.load_balancer_grace_seconds;
        let step = next_disposal_step(input.dispose, node, instance, state, since, case.now, grace);
        match step {
            DisposalStep::LeaveBalancers(seconds) => self.leave_balancers(case, seconds).await,
            DisposalStep::Wait(seconds, reason) => Ok(case.wait(seconds, &reason)),
            DisposalStep::Terminate(seconds) => self.terminate(case, seconds).await,
            DisposalStep::Stop(seconds) => self.stop(case, seconds).await,
            DisposalStep::Retire => self.retire(case).await,
            DisposalStep::Done => self.finish(case).await,
            DisposalStep::GiveUp(state) => Err(Error::DoesNotGo(case.say(&format!("does not go: {state}")))),
        }
    }
}
