//! The Lambda `standby-node`: makes the group launch a replacement, and checks at each later call whether it is usable.
//!
//! On the `before` path it puts the instance into Standby for that, on the `surge` path it raises the desired capacity by one.
//! On the `after` path it only checks the replacement, because the old instance is gone by then. It does not touch the pods of the old
//! node.

mod entering;
mod error;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod laws;
mod outage;
mod raising;
mod replacement;
mod successor;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use jiff::Timestamp;
use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::{ClusterName, Fence};
use recycle::cluster::group::Group;
use recycle::cluster::instance::describe_instance;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::StandbyVerdict;
use recycle::input::path::RecyclePath;
use recycle::records::claim::{Claim, check_claim};
use recycle::records::lease::Lease;
use recycle::replacement::next_step::{StandbyStep, choose_step};

pub use error::Error;

type Answered = Result<Answer<StandbyVerdict>, Error>;
/// The group, as Auto Scaling answered.
type GroupAnswer = Result<Option<Group>, ec2::Error>;

#[derive(Debug)]
pub struct StandbyNode {
    access: Access,
    groups: Groups,
    instances: Instances,
}

/// Facts and the carried run of one invocation.
struct FetchedFacts {
    client: kube::Client,
    node: NodeFacts,
    claim: Claim,
    group: Option<Group>,
    run: Run,
    me: Fence,
    now: Timestamp,
}

impl StandbyNode {
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
        }
    }

    /// Makes the group launch a replacement, or checks whether it is usable by now.
    /// If the cluster or the group cannot be read, the answer is to wait, as long as there is time for the replacement.
    pub async fn handle(&self, mut request: StepRequest) -> Result<Answer<StandbyVerdict>, Error> {
        let now = request.context.now();
        let is_gone = request.run.path == RecyclePath::After;
        if is_gone {
            request.run.replacement_since.get_or_insert(now);
        }
        let run = request.run.clone();
        let execution = request.context.execution.id.clone();
        let answer = if is_gone {
            self.await_successor(request).await
        } else {
            self.take_step(request).await
        };
        let answer = answer.map(|answer| answer.with_end_notification(&execution, StandbyVerdict::Recycled));
        answer.or_else(|error| outage::wait_out(error, run, now))
    }

    async fn take_step(&self, request: StepRequest) -> Answered {
        let (client, node, group) = self.open(&request.run).await?;
        self.take_step_in(client, node, group, request).await
    }

    /// Connects to the cluster, and reads the Node and the group at the same time.
    pub(crate) async fn open(
        &self,
        run: &Run,
    ) -> Result<(kube::Client, Option<NodeFacts>, GroupAnswer), kubernetes::Error> {
        let fetch_group = async || self.groups.fetch(&run.group).await;
        kubernetes::open_beside(&self.access, run, fetch_group).await
    }

    /// Takes the next step with the Node and the group that were read.
    async fn take_step_in(
        &self,
        client: kube::Client,
        node: Option<NodeFacts>,
        group: GroupAnswer,
        request: StepRequest,
    ) -> Answered {
        let StepRequest { context, run } = request;
        let (me, now) = (context.fence(), context.now());
        // Node names are reused, so the Node must be this instance's.
        let Some(node) = node.filter(|node| node.instance.as_ref() == Some(&run.input.instance_id)) else {
            return judge_missing_node(&client, run, &me).await;
        };
        let claim = kubernetes::check_claim(&node, &me, run.input.urgency)?;
        let facts = FetchedFacts {
            client,
            node,
            claim,
            group: group?,
            run,
            me,
            now,
        };
        let id = &facts.run.input.instance_id;
        let has_begun = !facts.node.record()?.members_before.is_empty();
        let has_entered = facts.run.replacement_since.is_some();
        let state = facts.group.as_ref().and_then(|group| group.state_of(id));
        match choose_step(facts.run.path, state, facts.claim.phase, has_begun, has_entered) {
            StandbyStep::Enter => self.enter_standby(facts).await,
            StandbyStep::Raise => self.raise_capacity(facts).await,
            StandbyStep::AwaitReplacement => self.await_replacement(facts).await,
            StandbyStep::GiveBack => {
                let state = facts.describe_state("was brought back into service");
                let text = format!("{state}, which recycle-eks did not do: it is not recycled");
                Err(Error::Ended(Failure::ServiceRefused, text))
            }
            StandbyStep::Proceed => {
                let reason = facts.describe_state("is already being disposed of");
                Ok(Answer::new(StandbyVerdict::Taint, reason).carrying(facts.run))
            }
            StandbyStep::Refuse(state) => Err(Error::Ended(
                Failure::PreflightRefused,
                facts.describe_state(&state),
            )),
            StandbyStep::Lose(state) => Err(Error::Ended(Failure::NodeLost, facts.describe_state(&state))),
        }
    }
}

/// Decides on a node without a Node object.
/// In Standby the node is lost, and the steps that follow handle that. Before that nothing was touched, and the execution ends.
async fn judge_missing_node(client: &kube::Client, run: Run, me: &Fence) -> Answered {
    let id = &run.input.instance_id;
    let lease = kubernetes::get_lease(client, id).await?;
    let claim = lease.as_ref().and_then(Lease::claim);
    check_claim(claim, me, run.input.urgency, &describe_instance(id, None))?;
    let lost = format!("the Node object of {} is gone", run.describe_node());
    match run.replacement_since {
        Some(_) => Ok(Answer::new(StandbyVerdict::Taint, lost).carrying(run)),
        None => Err(Error::Ended(Failure::NodeLost, lost)),
    }
}

impl FetchedFacts {
    /// Writes a sentence about the node and its group.
    fn describe_state(&self, state: &str) -> String {
        format!("{} {state} in group {}", self.run.describe_node(), self.run.group)
    }

    fn wait(self, seconds: u32, reason: String) -> Answer<StandbyVerdict> {
        Answer::new(StandbyVerdict::Wait, reason)
            .waiting(seconds)
            .carrying(self.run)
    }
}
