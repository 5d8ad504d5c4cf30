//! Waits for the replacement on the `after` path. The old instance is gone, and with it the Node and its records.
//! This step waits for the instance that the group launches in its place, reserves it, and reports that it is usable.

use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::{Fence, InstanceId};
use recycle::base::poll::SHORTEST_WAIT;
use recycle::base::shell::quote;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::{StandbyBody, StandbyVerdict};
use recycle::records::claim::check_claim;
use recycle::records::lease::Lease;
use recycle::replacement::usable::{Patience, ReplacementVerdict, judge_replacement};

use crate::replacement::{add_drivers, describe_rivalry, reserve};
use crate::{Answered, Error, StandbyNode};

impl StandbyNode {
    pub(crate) async fn await_successor(&self, request: StepRequest) -> Answered {
        let StepRequest { context, run } = request;
        let id = run.input.instance_id.clone();
        let (client, node, group) = self.open(&run).await?;
        check_remaining_claim(&client, node.as_ref(), &run, &context.fence()).await?;

        let old = run.old.clone().unwrap_or_default();
        let group = group?;
        let members = group.iter().flat_map(|group| old.new_members(group));
        let candidates = self.fetch_candidates(&client, members.collect()).await?;
        let old_node = old.to_facts(&run.node, &id);
        let candidates = add_drivers(&client, &id, &old_node, candidates).await?;
        let patience = Patience {
            since: run.replacement_since.unwrap_or(context.now()),
            now: context.now(),
            timeout: run.input.replacement_timeout,
        };
        // No group is passed: a full group matters only while a member is in Standby.
        match judge_replacement(&id, &old_node, None, &candidates, None, patience) {
            ReplacementVerdict::Reserve(successor) => {
                if reserve(&client, &id, &candidates, &successor, run.evicted.as_deref()).await? {
                    Ok(answer_recycled(run, &successor))
                } else {
                    Ok(wait(run, &describe_rivalry(&successor), SHORTEST_WAIT))
                }
            }
            ReplacementVerdict::Ready(successor) => Ok(answer_recycled(run, &successor)),
            ReplacementVerdict::Wait { reason, wait_seconds } => Ok(wait(run, &reason, wait_seconds)),
            ReplacementVerdict::TimedOut(reason) => {
                let text = format!(
                    "{} is gone, and its place in group {group} is empty: {reason}. There is nothing to restore. \
                     See the activities of the group: aws autoscaling describe-scaling-activities --auto-scaling-group-name {quoted}",
                    run.describe_node(),
                    group = run.group,
                    quoted = quote(run.group.as_str())
                );
                Err(Error::Ended(Failure::ReplacementTimedOut, text))
            }
        }
    }
}

/// Checks that no other execution holds the claim. This execution's own claim has ended with the disposal.
async fn check_remaining_claim(
    client: &kube::Client,
    node: Option<&NodeFacts>,
    run: &Run,
    me: &Fence,
) -> Result<(), Error> {
    let lease = match node {
        Some(node) => node.lease.clone(),
        None => kubernetes::get_lease(client, &run.input.instance_id).await?,
    };
    let found = lease.as_ref().and_then(Lease::claim);
    if found.is_some() {
        check_claim(found, me, run.input.urgency, &run.describe_node())?;
    }
    Ok(())
}

fn wait(run: Run, reason: &str, seconds: u32) -> Answer<StandbyVerdict> {
    let (subject, group) = (run.describe_node(), &run.group);
    let reason = format!("{subject} is gone, and its place in group {group} is not filled yet: {reason}");
    Answer::new(StandbyVerdict::Wait, reason)
        .waiting(seconds)
        .carrying(run)
}

fn answer_recycled(run: Run, successor: &InstanceId) -> Answer<StandbyVerdict> {
    let reason = format!(
        "{} is terminated, and its replacement {successor} is in service and usable{}",
        run.describe_node(),
        run.describe_ended()
    );
    let body = StandbyBody {
        replacement: Some(successor.clone()),
    };
    Answer::new(StandbyVerdict::Recycled, reason)
        .with(body)
        .naming_ended(&run)
        .carrying(run)
}

#[cfg(test)]
mod tests {
    use recycle::input::path::RecyclePath;
    use recycle::replacement::old_node::OldNode;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{self, facts};

    fn request() -> StepRequest {
        let mut run = facts(&ScriptedKube::new()).run;
        run.path = RecyclePath::After;
        run.replacement_since = Some("2027-01-01T00:00:00Z".parse().unwrap());
        run.old = Some(OldNode::new(None, &[fixtures::id()]));
        StepRequest {
            context: serde_json::from_value(json!({
                "Execution": {"Id": fixtures::me().execution, "Input": {}},
                "State": {"EnteredTime": "2027-01-01T00:05:00Z"},
            }))
            .unwrap(),
            run,
        }
    }

    #[tokio::test]
    async fn the_claim_of_another_execution_is_an_error_and_a_missing_claim_is_not() {
        let claim = fixtures::claim(recycle::records::claim::Phase::Disposing);
        let theirs = serde_json::to_string(&claim).unwrap().replace(":one#0", ":two#0");
        let lease = json!({"metadata": {"name": fixtures::id(), "resourceVersion": "5",
            "annotations": {"recycle-eks/claim": theirs}}});
        let kube = ScriptedKube::new().on("GET", "/leases/", 200, lease);
        let StepRequest { run, .. } = request();
        let lost = check_remaining_claim(&kube.client(), None, &run, &fixtures::me()).await;
        assert!(matches!(lost, Err(Error::ClaimLost(_))), "{lost:?}");
        let kube = ScriptedKube::new();
        check_remaining_claim(&kube.client(), None, &run, &fixtures::me())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn the_reason_names_the_old_instance_and_its_replacement() {
        let StepRequest { run, .. } = request();
        let waits = wait(run.clone(), "the group has no new member yet", 30);
        assert_eq!(
            waits.reason,
            "node node-a (i-0123456789abcdef0) is gone, and its place in group workers is not filled yet: the group has no new \
             member yet"
        );
        let ends = answer_recycled(run, &"i-0bbbbbbbbbbbbbbbb".parse().unwrap());
        assert_eq!(ends.verdict, StandbyVerdict::Recycled);
        assert_eq!(
            ends.body.replacement,
            Some("i-0bbbbbbbbbbbbbbbb".parse().unwrap())
        );
        assert!(
            ends.reason
                .contains("its replacement i-0bbbbbbbbbbbbbbbb is in service and usable"),
            "{}",
            ends.reason
        );
    }
}
