//! The Lambda `restore-node`: restores a node after a failure, and for the sweep. Each call takes one step.
//!
//! It works from the records alone, whichever execution wrote them and however far it came. If the group does not allow the restore, it
//! reports the commands for an operator.

mod cluster;
mod error;
mod facts;
#[cfg(test)]
mod fixtures;
mod kubernetes_half;
#[cfg(test)]
mod laws;
mod notification;
mod records;
mod request;
mod steps;
mod sweep;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::ClusterName;
use recycle::contract::requests::{RestoreCall, RestoreRequest};
use recycle::contract::verdicts::RestoreVerdict;
use recycle::restore::step::{LONG_WAIT, RestoreStep, STEP_WAIT};
use step_functions::Executions;

use crate::request::{find_node_to_restore, find_reason_of_untouched};
use crate::sweep::Standing;

pub use error::Error;

type Answered = Result<Answer<RestoreVerdict>, Error>;

#[derive(Debug)]
pub struct RestoreNode {
    access: Access,
    groups: Groups,
    instances: Instances,
    executions: Executions,
}

impl RestoreNode {
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
            executions: Executions::new(aws),
        }
    }

    /// Handles a step of a restore, or the removal of the marks of ended rotations.
    pub async fn handle_call(&self, call: RestoreCall) -> Result<Answer<RestoreVerdict>, Error> {
        match call {
            RestoreCall::Node(request) => self.restore(*request).await,
            RestoreCall::Unmark { unmarking } => {
                self.access.check(&unmarking.cluster_name)?;
                let client = self.access.connect_anew().await?;
                let unmarked = kubernetes::unmark_nodes(&client, &unmarking).await?;
                let reason = format!("the marks of ended rotations are removed from {unmarked} nodes");
                Ok(Answer::new(RestoreVerdict::Unmarked, reason))
            }
        }
    }

    /// Takes the next step of the restore. A refused call is tried again as long as there is time.
    /// After that the restore ends without that call.
    async fn restore(&self, request: RestoreRequest) -> Answered {
        // A node of another cluster is never claimed by this installation.
        let subject = find_node_to_restore(&request).filter(|subject| subject.cluster == *self.access.name());
        let Some(subject) = subject else {
            return Ok(untouched(&request));
        };
        let mut facts = self.fetch_facts(subject.instance, request).await?;
        let standing = match facts.request.leftover {
            Some(_) => self.judge_leftover(&mut facts).await?,
            None if facts.may_go_on() => Standing::OwnClaim,
            None => {
                facts.remove_request().await?;
                return Ok(facts.answer_unclaimed());
            }
        };
        if let Standing::Leave(answer) = standing {
            return Ok(*answer);
        }
        self.fetch_group_facts(&mut facts).await?;
        if let Standing::Free(previous) = standing {
            if let Some(answer) = self.find_start(&facts, previous.as_ref()).await? {
                return Ok(answer);
            }
            if previous.is_none() && facts.has_marks_of_nodes_only() {
                return facts.remove_marks_of_nodes().await;
            }
            let claimed = self.claim_leftover(&facts, previous).await;
            if let Some(answer) = claimed.map_err(|error| facts.add_state_to_error(error))? {
                return Ok(answer);
            }
        }
        if !facts.may_act() {
            return Ok(untouched(&facts.request));
        }
        let mut step = facts.next_step();
        if step == RestoreStep::UndoKubernetes {
            match facts.undo_kubernetes().await {
                Ok(()) => {
                    return Ok(facts.wait(STEP_WAIT, &facts.describe_state("is restored in Kubernetes")));
                }
                Err(error @ Error::ClaimLost(_)) => return Err(error),
                // The restore of the group does not need the Node.
                Err(error) => {
                    facts.cluster = Err(with_causes(&error));
                    step = facts.next_step();
                }
            }
        }
        let has_time = facts.has_time();
        match self.take(&mut facts, step).await {
            Err(error) if error.failure() == Failure::ServiceRefused && has_time => {
                Ok(facts.wait(LONG_WAIT, &with_causes(&error)))
            }
            Err(error) if error.failure() == Failure::ServiceRefused => {
                self.leave_after_refusal(&mut facts, error).await
            }
            taken => taken,
        }
    }
}

fn untouched(request: &RestoreRequest) -> Answer<RestoreVerdict> {
    notification::build_last_answer(
        RestoreVerdict::Untouched,
        find_reason_of_untouched(request),
        request,
        None,
    )
}
