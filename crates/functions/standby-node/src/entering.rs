//! Calls EnterStandby, after recording it on the Node and the instance.

use futures::future::{join, try_join};
use kubernetes::NodeChange;
use recycle::base::ids::InstanceId;
use recycle::base::names::{CLAIM_TAG, RESTORE_LOG_ANNOTATION, RESTORE_LOG_TAG, STANDBY_TAG};
use recycle::base::poll::next_wait;
use recycle::cluster::group::Member;
use recycle::records::claim::{Claim, Phase};
use recycle::records::node_record::Record;
use recycle::records::schema::SCHEMA;
use recycle::replacement::shortage::count_usable;

use crate::{Answered, Error, FetchedFacts, StandbyNode};

impl StandbyNode {
    pub(crate) async fn enter_standby(&self, mut facts: FetchedFacts) -> Answered {
        let id = &facts.run.input.instance_id;
        let claim = Claim {
            phase: Phase::Standby,
            ..facts.claim.clone()
        };
        let desired_before = facts.group.as_ref().map(|group| group.desired);
        let begin = |record| Record {
            desired_before,
            raised_from: None,
            ..record
        };
        record(&facts, &claim, begin).await?;
        let tags = [
            (STANDBY_TAG, facts.now.to_string()),
            (CLAIM_TAG, claim.to_tag()),
            (RESTORE_LOG_TAG, String::new()),
        ];
        self.instances.tag(id, &tags).await?;
        let text = facts.describe_state("goes into Standby, so that a replacement is launched");
        let (client, node) = (&facts.client, &facts.node.name);
        let (entered, ()) = join(
            self.groups.enter_standby(&facts.run.group, id),
            kubernetes::record_event(client, node, Phase::Standby, &text, facts.now, &facts.me),
        )
        .await;
        match entered {
            // An earlier attempt of the same call has taken effect.
            Err(ec2::Error::WrongState { .. }) if self.is_in_standby(&facts).await? => {}
            called => called?,
        }

        facts.run.replacement_since = Some(facts.now);
        let timeout = i64::from(facts.run.input.replacement_timeout);
        Ok(facts.wait(next_wait(0, timeout, 0, None), text))
    }

    async fn is_in_standby(&self, facts: &FetchedFacts) -> Result<bool, Error> {
        let group = self.groups.fetch(&facts.run.group).await?;
        let member = group
            .as_ref()
            .and_then(|group| group.member(&facts.run.input.instance_id));
        Ok(member.is_some_and(Member::is_in_standby))
    }
}

/// Records the claim, the current members, how many of them are usable, the drivers of the node's devices, and what `begin` adds.
/// Every other member will count as a new member.
/// The same request keeps Cluster Autoscaler from removing the node.
/// The members that an earlier attempt recorded no longer count, because the group has launched nothing for this node.
pub(crate) async fn record(
    facts: &FetchedFacts,
    claim: &Claim,
    begin: impl Fn(Record) -> Record,
) -> Result<(), Error> {
    let group = facts.group.as_ref();
    let members: Vec<InstanceId> = group
        .into_iter()
        .flat_map(|group| &group.members)
        // An instance of the warm pool may become the replacement, so it is not recorded as a member.
        .filter(|member| !member.lifecycle_state.starts_with("Warmed"))
        .map(|member| member.instance.clone())
        .collect();
    let (nodes, drivers) = try_join(
        kubernetes::list_nodes(&facts.client),
        kubernetes::list_drivers(&facts.client, &facts.node.name),
    )
    .await?;
    let nodes = nodes.readable;
    let id = &facts.run.input.instance_id;
    let usable = group.map(|group| count_usable(id, &facts.node, group, &nodes));
    kubernetes::amend_node(&facts.client, facts.node.clone(), |node| {
        kubernetes::check_claim(node, &facts.me, facts.run.input.urgency)?;
        let record = begin(Record {
            schema: SCHEMA,
            members_before: members.clone(),
            usable_before: usable,
            drivers: drivers.clone(),
            replacement: None,
            ..node.record()?
        });
        // The log of an earlier restore no longer applies.
        let change = NodeChange::new()
            .claim(claim)?
            .remove_annotation(RESTORE_LOG_ANNOTATION);
        Ok::<_, Error>(Some(kubernetes::keep_old_node(change, node, &record)?))
    })
    .await
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use recycle::base::names::{
        CLAIM_ANNOTATION, KEPT_BEFORE_ANNOTATION, RECORD_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION,
    };
    use recycle::contract::verdicts::StandbyVerdict;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, described_group, facts, no_nodes, step, stored_node};

    fn kube() -> ScriptedKube {
        ScriptedKube::new()
            .on("GET", "/api/v1/nodes?", 200, no_nodes())
            .on("PATCH", NODE, 200, stored_node(Phase::Standby))
            .on("POST", "/events", 201, json!({}))
    }

    #[tokio::test]
    async fn standby_is_recorded_on_the_node_and_the_instance_before_the_call() {
        let (kube, aws) = (
            kube(),
            ScriptedAws::new().on("CreateTags", "").on("EnterStandby", ""),
        );
        let answer = step(&aws).enter_standby(facts(&kube)).await.unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (StandbyVerdict::Wait, 30));
        assert_eq!(aws.actions(), ["CreateTags", "EnterStandby"]);
        let written = &kube.calls()[1].body["metadata"]["annotations"];
        assert!(
            written[CLAIM_ANNOTATION]
                .as_str()
                .unwrap()
                .contains(r#""phase":"standby""#),
            "{written}"
        );
        assert_eq!(written[SCALE_DOWN_DISABLED_ANNOTATION], "true");
        assert_eq!(written[KEPT_BEFORE_ANNOTATION], "", "no value before");
        let record = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        assert_eq!((record.desired_before, record.kept), (Some(1), true));
        assert_eq!(record.members_before.len(), 1);
    }

    #[tokio::test]
    async fn the_drivers_of_the_devices_are_recorded() {
        let slice = json!({"spec": {"driver": "gpu.example.com", "devices": [{"name": "device-0"}]}});
        let slices = json!({"metadata": {}, "items": [slice]});
        let kube = kube().on("GET", "/resourceslices", 200, slices);
        let aws = ScriptedAws::new().on("CreateTags", "").on("EnterStandby", "");
        step(&aws).enter_standby(facts(&kube)).await.unwrap();
        let record = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        assert_eq!(record.drivers, ["gpu.example.com"]);
    }

    #[tokio::test]
    async fn an_instance_in_the_warm_pool_may_become_the_replacement() {
        let (kube, aws) = (
            kube(),
            ScriptedAws::new().on("CreateTags", "").on("EnterStandby", ""),
        );
        let mut facts = facts(&kube);
        let group = facts.group.as_mut().unwrap();
        group.members.push(Member {
            instance: "i-0fedcba9876543210".parse().unwrap(),
            lifecycle_state: "Warmed:Stopped".to_owned(),
            protected_from_scale_in: false,
        });
        step(&aws).enter_standby(facts).await.unwrap();
        let written = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(written.as_str().unwrap()).unwrap();
        assert_eq!(record.members_before, ["i-0123456789abcdef0".parse().unwrap()]);
    }

    #[tokio::test]
    async fn standby_is_not_entered_without_its_record() {
        let unwritable = ScriptedKube::new()
            .on("GET", "/api/v1/nodes?", 200, no_nodes())
            .refuses("PATCH", NODE, 500, "InternalError", "etcd is away");
        let aws = ScriptedAws::new();
        step(&aws).enter_standby(facts(&unwritable)).await.unwrap_err();
        assert!(aws.calls().is_empty());

        let aws = ScriptedAws::new().breaks_on("CreateTags");
        step(&aws).enter_standby(facts(&kube())).await.unwrap_err();
        assert_eq!(aws.actions(), ["CreateTags"]);
    }

    #[tokio::test]
    async fn a_call_that_took_effect_earlier_is_no_error() {
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses("EnterStandby", 400, "ValidationError", "not in InService")
            .on("DescribeAutoScalingGroups", &described_group("EnteringStandby"));
        let answer = step(&aws).enter_standby(facts(&kube())).await.unwrap();
        assert_eq!(answer.verdict, StandbyVerdict::Wait);
    }

    #[tokio::test]
    async fn any_other_refusal_contains_the_message_of_aws() {
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses(
                "EnterStandby",
                400,
                "ValidationError",
                "the group is being deleted",
            )
            .on("DescribeAutoScalingGroups", &described_group("InService"));
        let error = step(&aws).enter_standby(facts(&kube())).await.unwrap_err();
        let text = recycle::base::failure::with_causes(&error);
        assert!(text.contains("the group is being deleted"), "{text}");
    }
}
