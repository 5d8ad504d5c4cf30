//! After a failure, and for the sweep: puts the node back, step by step, one for each call. It works from the records alone, so that it
//! does not matter who wrote them or how far they came. Where the group allows no way back, it says by which commands a person opens one.

mod error;
#[cfg(test)]
mod fixtures;
mod kubernetes_half;
#[cfg(test)]
mod laws;
mod look;
mod news;
mod request;
mod steps;
mod sweep;
mod target;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::ClusterName;
use recycle::contract::requests::{RestoreCall, RestoreRequest};
use recycle::contract::verdicts::RestoreVerdict;
use recycle::restore::step::{LONG_WAIT, PutBackStep, STEP_WAIT};

use crate::request::{find_reason_of_untouched, find_subject};
use crate::sweep::Standing;

pub use error::Error;

type Answered = Result<Answer<RestoreVerdict>, Error>;

#[derive(Debug)]
pub struct RestoreNode {
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl RestoreNode {
    #[must_use]
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Handles a step of a put-back, or the removal of the marks of rotations that are over.
    pub async fn answer(&self, call: RestoreCall) -> Result<Answer<RestoreVerdict>, Error> {
        match call {
            RestoreCall::Node(request) => self.handle(*request).await,
            RestoreCall::Unmark { unmarking } => {
                self.access.check(&unmarking.cluster_name)?;
                let client = self.access.connect_anew().await?;
                let unmarked = kubernetes::unmark_nodes(&client, &unmarking).await?;
                let reason = format!("{unmarked} nodes were marked by rotations that are over");
                Ok(Answer::new(RestoreVerdict::Unmarked, reason))
            }
        }
    }

    /// Takes the next step of the put-back. A refused call is tried again as long as there is patience.
    /// After that the put-back ends without that call.
    async fn handle(&self, request: RestoreRequest) -> Answered {
        // A node of another cluster is never claimed by this installation.
        let subject = find_subject(&request).filter(|subject| subject.cluster == *self.access.name());
        let Some(subject) = subject else {
            return Ok(untouched(&request));
        };
        let mut target = self.look(subject.instance, request).await?;
        let standing = match target.request.leftover {
            Some(_) => self.judge_leftover(&mut target).await?,
            None if target.may_go_on() => Standing::Ours,
            None => {
                target.turn_down().await?;
                return Ok(untouched(&target.request));
            }
        };
        if let Standing::Leave(answer) = standing {
            return Ok(*answer);
        }
        self.look_around(&mut target).await?;
        if let Standing::Free(former) = standing {
            if let Some(answer) = self.find_start(&target, former.as_ref()).await? {
                return Ok(answer);
            }
            let claimed = self.claim_leftover(&target, former).await;
            if let Some(answer) = claimed.map_err(|error| target.tell_in_error(error))? {
                return Ok(answer);
            }
        }
        if !target.may_act() {
            return Ok(untouched(&target.request));
        }
        let mut step = target.next_step();
        if step == PutBackStep::UndoKubernetes {
            match target.undo_kubernetes().await {
                Ok(()) => return Ok(target.wait(STEP_WAIT, &target.say("is clean in Kubernetes"))),
                Err(error @ Error::ClaimLost(_)) => return Err(error),
                // The group's half does not need the Node.
                Err(error) => {
                    target.cluster = Err(with_causes(&error));
                    step = target.next_step();
                }
            }
        }
        let has_time = target.has_time();
        match self.take(&mut target, step).await {
            Err(error) if error.failure() == Failure::ServiceRefused && has_time => {
                Ok(target.wait(LONG_WAIT, &with_causes(&error)))
            }
            Err(error) if error.failure() == Failure::ServiceRefused => {
                self.leave_after_refusal(&mut target, error).await
            }
            taken => taken,
        }
    }
}

fn untouched(request: &RestoreRequest) -> Answer<RestoreVerdict> {
    news::tell(
        RestoreVerdict::Untouched,
        find_reason_of_untouched(request),
        request,
        None,
    )
}
