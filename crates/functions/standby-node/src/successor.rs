//! The way in `after`: the instance is gone, and with it the Node and its records. What is left to do is to wait for the one that the group
//! launches in its place, to reserve it, and to say that it is usable.

use recycle::answer::envelope::Answer;
use recycle::base::failure::Failure;
use recycle::base::ids::{Fence, InstanceId};
use recycle::base::poll::SHORTEST_WAIT;
use recycle::base::shell::quote;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::StandbyVerdict;
use recycle::records::claim::check_claim;
use recycle::replacement::usable::{Patience, ReplacementVerdict, judge_replacement};

use crate::replacement::{describe_rivalry, reserve};
use crate::{Answered, Error, StandbyNode, describe};

impl StandbyNode {
    pub(crate) async fn await_successor(&self, request: StepRequest) -> Answered {
        let StepRequest { context, run } = request;
        let id = run.input.instance_id.clone();
        let (client, node) = kubernetes::open(&self.access, &run.node).await?;
        self.check_what_is_left(node.as_ref(), &run, &context.fence())
            .await?;

        let old = run.old.clone().unwrap_or_default();
        let group = self.groups.fetch(&run.group).await?;
        let members = group.iter().flat_map(|group| old.new_members(group));
        let candidates = self.fetch_candidates(&client, members.collect()).await?;
        let facts = old.to_facts(&run.node, &id);
        let patience = Patience {
            since: run.replacement_since.unwrap_or(context.now()),
            now: context.now(),
            timeout: run.input.replacement_timeout,
        };
        // No group is passed: a full group matters only while a member is in Standby.
        match judge_replacement(&id, &facts, None, &candidates, None, patience) {
            ReplacementVerdict::Reserve(successor) => {
                if reserve(&client, &id, &candidates, &successor, run.evicted.as_deref()).await? {
                    Ok(end(run, &successor))
                } else {
                    Ok(wait(run, &describe_rivalry(&successor), SHORTEST_WAIT))
                }
            }
            ReplacementVerdict::Ready(successor) => Ok(end(run, &successor)),
            ReplacementVerdict::Wait { reason, wait_seconds } => Ok(wait(run, &reason, wait_seconds)),
            ReplacementVerdict::TimedOut(reason) => {
                let text = format!(
                    "{} is gone, and its place in group {group} is empty: {reason}. There is nothing to put back. What the group says: \
                     aws autoscaling describe-scaling-activities --auto-scaling-group-name {quoted}",
                    describe(&run),
                    group = run.group,
                    quoted = quote(run.group.as_str())
                );
                Err(Error::Ended(Failure::ReplacementTimedOut, text))
            }
        }
    }

    /// Checks that a claim that is left on the Node or on the instance is this execution's. A missing claim is no error.
    async fn check_what_is_left(&self, node: Option<&NodeFacts>, run: &Run, me: &Fence) -> Result<(), Error> {
        let id = &run.input.instance_id;
        let node = node.filter(|node| node.instance.as_ref() == Some(id));
        let found = match node.and_then(NodeFacts::claim) {
            Some(claim) => Some(claim),
            None => self.instances.fetch(id).await?.as_ref().and_then(Instance::claim),
        };
        if found.is_some() {
            check_claim(found, me, run.input.urgency, &describe(run))?;
        }
        Ok(())
    }
}

fn wait(run: Run, reason: &str, seconds: u32) -> Answer<StandbyVerdict> {
    let (subject, group) = (describe(&run), &run.group);
    let reason = format!("{subject} is gone; its place in group {group} is awaited to be filled: {reason}");
    Answer::new(StandbyVerdict::Wait, reason)
        .waiting(seconds)
        .carrying(run)
}

fn end(run: Run, successor: &InstanceId) -> Answer<StandbyVerdict> {
    let reason = format!(
        "{} is terminated, and {successor}, in service and usable, has its place{}",
        describe(&run),
        run.describe_ended()
    );
    Answer::new(StandbyVerdict::Recycled, reason)
        .naming_ended(&run)
        .carrying(run)
}

#[cfg(test)]
mod tests {
    use recycle::input::path::RecyclePath;
    use recycle::replacement::old_node::OldNode;
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{self, case};

    fn request() -> StepRequest {
        let mut run = case(&scripted_kube::ScriptedKube::new()).run;
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
    async fn a_claim_that_is_somebody_elses_by_now_ends_it_and_none_is_none() {
        let theirs = fixtures::claim(recycle::records::claim::Phase::Disposing)
            .to_tag()
            .replace(":one#0", ":two#0");
        let tagged = |value: &str| {
            format!(
                "<reservationSet><item><instancesSet><item><instanceId>{}</instanceId><instanceState><name>terminated</name>\
                 </instanceState><tagSet><item><key>recycle-eks:claim</key><value>{value}</value></item><item><key>recycle-eks:group\
                 </key><value>workers</value></item></tagSet></item></instancesSet></item></reservationSet>",
                fixtures::id()
            )
        };
        let aws = ScriptedAws::new().on("DescribeInstances", &tagged(&theirs));
        let StepRequest { run, .. } = request();
        let lost = fixtures::step(&aws)
            .check_what_is_left(None, &run, &fixtures::me())
            .await;
        assert!(matches!(lost, Err(Error::ClaimLost(_))), "{lost:?}");

        let aws = ScriptedAws::new().refuses(
            "DescribeInstances",
            400,
            "InvalidInstanceID.NotFound",
            "no such instance",
        );
        fixtures::step(&aws)
            .check_what_is_left(None, &run, &fixtures::me())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_is_said_names_who_is_gone_and_who_has_its_place() {
        let StepRequest { run, .. } = request();
        let waits = wait(run.clone(), "the group has no new member yet", 30);
        assert_eq!(
            waits.reason,
            "node node-a (i-0123456789abcdef0) is gone; its place in group workers is awaited to be filled: the group has no new \
             member yet"
        );
        let ends = end(run, &"i-0bbbbbbbbbbbbbbbb".parse().unwrap());
        assert_eq!(ends.verdict, StandbyVerdict::Recycled);
        assert!(
            ends.reason
                .contains("i-0bbbbbbbbbbbbbbbb, in service and usable, has its place"),
            "{}",
            ends.reason
        );
    }
}
