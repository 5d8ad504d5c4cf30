//! The steps themselves: record, then act.

use node_record::NodeChange;
use recycle::claim::{Claim, Phase};
use recycle::contract::{Answer, DisposeVerdict};
use recycle::input::Dispose;
use recycle::names::{CLAIM_TAG, EXCLUDE_FROM_BALANCERS_LABEL, GROUP_TAG, STANDBY_TAG, STOPPED_TAG};
use recycle::node::{NodeFacts, Record};

use crate::case::Case;
use crate::{DetachTerminate, Error};

impl DetachTerminate {
    pub(crate) async fn leave_balancers(
        &self,
        case: Case,
        seconds: u32,
    ) -> Result<Answer<DisposeVerdict>, Error> {
        self.record(&case, |node| {
            let before = node.labels.get(EXCLUDE_FROM_BALANCERS_LABEL).cloned();
            let record = Record {
                excluded_before: before,
                ..node.record()?
            };
            Ok(NodeChange::new()
                .label(EXCLUDE_FROM_BALANCERS_LABEL, "true")
                .record(&record)?)
        })
        .await?;
        Ok(case.wait(seconds, "load balancers forget it"))
    }

    pub(crate) async fn terminate(&self, case: Case, seconds: u32) -> Result<Answer<DisposeVerdict>, Error> {
        self.record(&case, |_| Ok(NodeChange::new())).await?;
        let id = &case.run.input.instance_id;
        match self.groups.terminate(id).await {
            // An earlier try of the same call has taken effect, or the group was quicker.
            Err(instance_record::Error::WrongState { .. }) if self.is_leaving(&case).await? => {}
            called => called?,
        }
        Ok(case.wait(seconds, "its group terminates it"))
    }

    pub(crate) async fn stop(&self, case: Case, seconds: u32) -> Result<Answer<DisposeVerdict>, Error> {
        self.record(&case, |_| Ok(NodeChange::new())).await?;
        self.instances.stop(&case.run.input.instance_id).await?;
        Ok(case.wait(seconds, "it is being stopped"))
    }

    /// Stopped: the tag tells people, the Node goes, and the claim goes last, since it is what lets us do this.
    pub(crate) async fn retire(&self, case: Case) -> Result<Answer<DisposeVerdict>, Error> {
        self.instances
            .tag(
                &case.run.input.instance_id,
                &[(STOPPED_TAG, case.now.to_string())],
            )
            .await?;
        if let Some(node) = &case.node {
            node_record::delete_node(&case.client, node).await?;
        }
        self.finish(case).await
    }

    /// Nothing is left to do. What is terminated takes its tags with it; what is stopped keeps none but the one that says so.
    pub(crate) async fn finish(&self, case: Case) -> Result<Answer<DisposeVerdict>, Error> {
        let outcome = match case.run.input.dispose {
            Dispose::Terminate => "is terminated",
            Dispose::Stop => {
                let id = &case.run.input.instance_id;
                self.instances
                    .untag(id, &[CLAIM_TAG, GROUP_TAG, STANDBY_TAG])
                    .await?;
                "is stopped, and stays in Standby"
            }
            Dispose::Detach => "has left its group",
        };
        Ok(Answer::new(DisposeVerdict::Recycled, case.say(outcome)).carrying(case.run))
    }

    /// Writes the phase, with what else the step wants on the Node in the same request; then the instance's tag.
    async fn record(
        &self,
        case: &Case,
        change: impl Fn(&NodeFacts) -> Result<NodeChange, Error>,
    ) -> Result<(), Error> {
        let Some(claim) = case.claim.clone() else {
            return Ok(());
        };
        let claim = Claim {
            phase: Phase::Disposing,
            ..claim
        };
        if let Some(node) = &case.node {
            node_record::amend_node(&case.client, node.clone(), |node| {
                let found = node_record::check_claim(node, &case.me)?;
                let change = change(node)?;
                let is_recorded = found == claim && change.is_empty();
                Ok::<_, Error>(if is_recorded {
                    None
                } else {
                    Some(change.claim(&claim)?)
                })
            })
            .await?;
            let story = case.say("is drained and leaves");
            node_record::tell(
                &case.client,
                &node.name,
                Phase::Disposing,
                &story,
                case.now,
                &case.me,
            )
            .await;
        }
        let tag = claim.to_tag();
        let tagged = case
            .instance
            .as_ref()
            .and_then(|instance| instance.tags.get(CLAIM_TAG));
        if tagged != Some(&tag) && case.instance.is_some() {
            self.instances
                .tag(&case.run.input.instance_id, &[(CLAIM_TAG, tag)])
                .await?;
        }
        Ok(())
    }

    async fn is_leaving(&self, case: &Case) -> Result<bool, Error> {
        let group = self.groups.fetch(&case.run.group).await?;
        let member = group
            .as_ref()
            .and_then(|group| group.member(&case.run.input.instance_id));
        Ok(member.is_none_or(|member| member.lifecycle_state.starts_with("Terminat")))
    }
}
