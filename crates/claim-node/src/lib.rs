//! Pre-flight and claim: everything that can be refused is refused here, before anything is written. Of what the claim allows,
//! it does nothing.

mod claiming;
mod config;
mod error;
mod planning;
mod surroundings;

use aws_config::SdkConfig;
use eks_auth::Access;
use instance_record::autoscaling::Groups;
use instance_record::ec2::Instances;
use recycle::claim::{ClaimDecision, decide_claim};
use recycle::contract::{Answer, ClaimRequest, ClaimVerdict};
use recycle::input::{Input, Settings, parse_input};
use recycle::preflight::{Preflight, check_preflight};

pub use config::read_settings;
pub use error::Error;

/// The step.
#[derive(Debug)]
pub struct ClaimNode {
    settings: Settings,
    access: Access,
    groups: Groups,
    instances: Instances,
}

impl ClaimNode {
    /// The step with clients of `aws`.
    #[must_use]
    pub fn new(settings: Settings, aws: &SdkConfig) -> Self {
        Self {
            settings,
            access: Access::new(aws),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Claims the node, unless somebody else has it or something speaks against it.
    pub async fn handle(&self, request: ClaimRequest) -> Result<Answer<ClaimVerdict>, Error> {
        let input = parse_input(&request.context.execution.input, &self.settings)?;
        match self.claim(&request, &input).await {
            // Somebody wrote to the Node between our read and our write, a rival perhaps: look again, once.
            Err(Error::Node(node_record::Error::Conflict { .. })) => self.claim(&request, &input).await,
            answer => answer,
        }
    }

    async fn claim(&self, request: &ClaimRequest, input: &Input) -> Result<Answer<ClaimVerdict>, Error> {
        let found = self.fetch_surroundings(input).await?;
        let me = request.context.fence();
        let former = match decide_claim(found.claim().as_ref(), &me, request.owner.as_ref()) {
            ClaimDecision::Take => None,
            ClaimDecision::Ours(claim) | ClaimDecision::Resume(claim) => Some(claim),
            ClaimDecision::AskOwner(owner) => return Ok(claiming::ask_owner(owner)),
            ClaimDecision::Duplicate(reason) => return Ok(Answer::new(ClaimVerdict::Duplicate, reason)),
            ClaimDecision::Unreadable(text) => return Err(found.unreadable_claim(&text)),
        };
        let has_begun = former.as_ref().is_some_and(|claim| found.has_begun(claim.phase));
        let notes = match check_preflight(&found.for_preflight(input, has_begun)) {
            Preflight::Go { notes } => notes,
            Preflight::AlreadyGone(reason) => return Ok(Answer::new(ClaimVerdict::AlreadyGone, reason)),
            Preflight::Refused(reason) => return Err(Error::Refused(reason)),
        };
        let target = found.into_target()?;
        if input.dry_run {
            return target.plan(input, notes).await;
        }
        self.write_claim(target, former, request, input).await
    }
}
