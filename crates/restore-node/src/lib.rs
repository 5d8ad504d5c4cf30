//! After a failure: the claim on a node that nobody touched is released; of any other it is said what state it is in, and by which
//! commands a person puts it back. It works from the records alone.

mod error;
mod request;
mod target;

use aws_config::SdkConfig;
use eks_auth::Access;
use instance_record::autoscaling::Groups;
use instance_record::ec2::Instances;
use recycle::contract::{Answer, RestoreRequest, RestoreVerdict};
use recycle::left_behind::{describe_left_behind, is_untouched};

use crate::request::{first_error, may_have_claimed, read_subject, write_report};

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

    /// Releases the claim, or says what is left.
    pub async fn handle(&self, request: RestoreRequest) -> Result<Answer<RestoreVerdict>, Error> {
        let reason = first_error(&request.failure);
        let subject =
            read_subject(&request.context.execution.input).filter(|_| may_have_claimed(&request.failure));
        let Some(subject) = subject else {
            return Ok(Answer::new(RestoreVerdict::Untouched, reason));
        };
        let target = self.fetch(&subject, request.context.state.retry_count).await?;
        let phases = target.own_phases(&request.context.fence());
        if phases.is_empty() {
            return Ok(Answer::new(RestoreVerdict::Untouched, reason));
        }
        if let Ok(cluster) = &target.cluster
            && is_untouched(&phases, target.lifecycle_state())
        {
            self.release(&target, cluster, &request.context.fence()).await?;
            return Ok(Answer::new(RestoreVerdict::Untouched, reason));
        }
        let left = describe_left_behind(
            &subject.instance,
            target.group_name(),
            target.lifecycle_state(),
            target.instance.as_ref(),
            None,
            target.node(),
        );
        let unseen = target.cluster.as_ref().err().map(String::as_str);
        Ok(Answer::new(
            RestoreVerdict::Kept,
            write_report(&reason, &left, unseen),
        ))
    }
}
