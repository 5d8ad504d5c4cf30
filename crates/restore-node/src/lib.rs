//! After a failure, and for the sweep: puts the node back, step by step, one for each call. It works from the records alone, so that it
//! does not matter who wrote them or how far they came. Where the group allows no way back, it says by which commands a person opens one.

mod error;
#[cfg(test)]
mod fixtures;
mod request;
mod steps;
mod sweep;
mod target;

use aws_config::SdkConfig;
use eks_auth::Access;
use instance_record::autoscaling::Groups;
use instance_record::ec2::Instances;
use recycle::contract::{Answer, RestoreRequest, RestoreVerdict};
use recycle::failure::{Failure, NamedFailure as _, with_causes};
use recycle::put_back::{LONG_WAIT, PutBackStep, STEP_WAIT};

use crate::request::{find_reason, find_subject};
use crate::target::Target;

pub use error::Error;

/// The step.
#[derive(Debug)]
pub struct RestoreNode {
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl RestoreNode {
    /// The step with clients of `aws`.
    #[must_use]
    pub fn new(aws: &SdkConfig) -> Self {
        Self {
            access: Access::new(aws),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Takes the next step of the put-back. A call that is refused is tried again as long as there is patience; what comes then is
    /// decided without it.
    pub async fn handle(&self, request: RestoreRequest) -> Result<Answer<RestoreVerdict>, Error> {
        let Some(subject) = find_subject(&request) else {
            return Ok(untouched(&request));
        };
        let mut target = self.fetch(subject, &request).await?;
        if request.leftover.is_some() {
            if let Some(answer) = self.claim_leftover(&target, &request).await? {
                return Ok(answer);
            }
        } else if !target.is_ours() && !target.has_been_released(&request) {
            return Ok(untouched(&request));
        }
        let mut step = target.next_step();
        if step == PutBackStep::UndoKubernetes {
            match self.undo_kubernetes(&target).await {
                Ok(()) => return Ok(wait(&request, STEP_WAIT, &target.say("is clean in Kubernetes"))),
                Err(error @ Error::ClaimLost(_)) => return Err(error),
                // The group's half does not need the Node.
                Err(error) => {
                    target.lose_sight(with_causes(&error));
                    step = target.next_step();
                }
            }
        }
        let has_time = target.has_time();
        match self.take(target, step, &request).await {
            Err(error) if error.failure() == Failure::ServiceRefused && has_time => {
                Ok(wait(&request, LONG_WAIT, &with_causes(&error)))
            }
            taken => taken,
        }
    }

    async fn take(
        &self,
        target: Target,
        step: PutBackStep,
        request: &RestoreRequest,
    ) -> Result<Answer<RestoreVerdict>, Error> {
        let done = match step {
            PutBackStep::Wait(seconds, reason) => {
                return Ok(wait(request, seconds, &target.say(&format!("waits: {reason}"))));
            }
            PutBackStep::Done(note) => return self.finish(target, note, request).await,
            PutBackStep::LeaveInStandby(stuck) => {
                return self.leave_in_standby(target, &stuck, request).await;
            }
            PutBackStep::Report(note) => return self.report(target, note, request).await,
            PutBackStep::UndoKubernetes => {
                self.undo_kubernetes(&target).await?;
                "is clean in Kubernetes".to_owned()
            }
            PutBackStep::Protect(ids) => {
                self.protect(&target, &ids).await?;
                format!(
                    "goes back; {} members are protected from scale-in meanwhile",
                    ids.len()
                )
            }
            PutBackStep::Unprotect(ids) => {
                self.unprotect(&target, &ids).await?;
                "has left no member protected".to_owned()
            }
            PutBackStep::CordonReplacement(id) => {
                target.cordon_replacement(&id).await?;
                format!("goes back; its replacement {id}, which is empty, is kept so")
            }
            PutBackStep::ReleaseReplacements {
                newcomers,
                reservation,
            } => {
                target.release_replacements(&newcomers, reservation).await?;
                "has left no mark on its replacement".to_owned()
            }
            PutBackStep::TerminateReplacement(id) => {
                self.terminate_replacement(&target, &id).await?;
                format!("goes back; its replacement {id}, which is empty, is terminated")
            }
            PutBackStep::Lower { from } => {
                self.lower(&target, from).await?;
                format!(
                    "goes back; the desired capacity is {} instead of {from}",
                    from.saturating_sub(1)
                )
            }
            PutBackStep::Raise { to } => {
                self.raise(&target, to).await?;
                format!("is back; the desired capacity is {to}, so that no member has to go")
            }
            PutBackStep::ExitStandby { from } => {
                self.exit_standby(&target, from).await?;
                "goes back into service".to_owned()
            }
        };
        // What stood in the way to the end is told by the last answer: cleaning up does not hide it.
        let reason = if target.has_time() {
            target.say(&done)
        } else {
            request.put_back.reason.clone()
        };
        Ok(wait(request, STEP_WAIT, &reason))
    }
}

fn untouched(request: &RestoreRequest) -> Answer<RestoreVerdict> {
    Answer::new(RestoreVerdict::Untouched, find_reason(request))
}

fn wait(request: &RestoreRequest, seconds: u32, reason: &str) -> Answer<RestoreVerdict> {
    let now = request.context.now();
    Answer {
        since: Some(request.put_back.since.unwrap_or(now)),
        steps: Some(request.put_back.steps + 1),
        ..Answer::new(RestoreVerdict::Wait, reason).waiting(seconds)
    }
}
