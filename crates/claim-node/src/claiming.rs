//! Writing the claim, Node first, then instance; and the answers.

use node_record::NodeChange;
use recycle::claim::{Claim, Phase};
use recycle::contract::{Answer, ClaimRequest, ClaimVerdict, Run, WayIn, describe_instance};
use recycle::ids::ExecutionArn;
use recycle::input::{Input, Replacement};
use recycle::names::{CLAIM_TAG, GROUP_LABEL, GROUP_TAG};

use crate::surroundings::Target;
use crate::{ClaimNode, Error};

impl ClaimNode {
    /// Takes the claim by compare-and-swap on the Node. `former` is ours, or a dead owner's: its phase and the records stay.
    pub(crate) async fn write_claim(
        &self,
        target: Target,
        former: Option<Claim>,
        request: &ClaimRequest,
        input: &Input,
    ) -> Result<Answer<ClaimVerdict>, Error> {
        let (fence, now) = (request.context.fence(), request.context.now());
        let group = target.group.name;
        let mut claim = Claim::new(fence.clone(), group.clone(), input.urgency, now);
        if let Some(former) = &former {
            claim.phase = former.phase;
            if former.fence == fence {
                claim.claimed_at = former.claimed_at;
            }
        }
        let change = NodeChange::new()
            .claim(&claim)?
            .label(GROUP_LABEL, node_record::group_label(&group));
        node_record::change_node(&target.client, &target.node, change).await?;
        let tags = [(GROUP_TAG, group.to_string()), (CLAIM_TAG, claim.to_tag())];
        self.instances.tag(&target.instance.id, &tags).await?;

        let subject = describe_instance(&target.instance.id, Some(&target.node.name));
        let reason = match former {
            Some(former) if former.fence != fence => {
                format!(
                    "{subject} is ours; {}, which had claimed it, no longer runs",
                    former.fence.execution
                )
            }
            Some(_) | None => format!("{subject} is ours"),
        };
        node_record::tell(
            &target.client,
            &target.node.name,
            Phase::Claimed,
            &reason,
            now,
            &fence,
        )
        .await;

        let (way_in, verdict) = match input.replacement {
            Replacement::Before => (WayIn::Before, ClaimVerdict::Standby),
            Replacement::After => (WayIn::After, ClaimVerdict::Taint),
        };
        Ok(Answer::new(verdict, reason).carrying(Run {
            input: input.clone(),
            way_in,
            cluster: target.cluster,
            group,
            node: target.node.name,
            claimed_at: claim.claimed_at,
            replacement_since: None,
            draining_since: None,
            drain_until: None,
            polls: 0,
            last_eviction: None,
            disposing_since: None,
        }))
    }
}

pub(crate) fn ask_owner(owner: ExecutionArn) -> Answer<ClaimVerdict> {
    let reason = format!("{owner} holds the claim; whether it still runs is asked");
    Answer {
        owner: Some(owner),
        ..Answer::new(ClaimVerdict::AskOwner, reason)
    }
}
