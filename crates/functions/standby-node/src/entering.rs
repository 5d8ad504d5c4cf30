//! EnterStandby: recorded on Node and instance first, then called.

use kubernetes::NodeChange;
use recycle::base::ids::InstanceId;
use recycle::base::names::{CLAIM_TAG, RESTORE_LOG_TAG, SCALE_DOWN_DISABLED_ANNOTATION, STANDBY_TAG};
use recycle::base::poll::next_wait;
use recycle::cluster::autoscaler::{DISABLED, keep_old_node};
use recycle::records::claim::{Claim, Phase};
use recycle::records::node_record::Record;
use recycle::records::schema::SCHEMA;
use recycle::replacement::shortage::count_usable;

use crate::{Answered, Error, FetchedFacts, StandbyNode, find_lifecycle_state};

impl StandbyNode {
    pub(crate) async fn enter_standby(&self, mut case: FetchedFacts) -> Answered {
        let id = &case.run.input.instance_id;
        let claim = Claim {
            phase: Phase::Standby,
            ..case.claim.clone()
        };
        record(&case, &claim).await?;
        let tags = [
            (STANDBY_TAG, case.now.to_string()),
            (CLAIM_TAG, claim.to_tag()),
            // The log of what an earlier put-back did to the group no longer applies.
            (RESTORE_LOG_TAG, String::new()),
        ];
        self.instances.tag(id, &tags).await?;
        let history = case.say("goes into Standby, so that a replacement is launched");
        let (client, node) = (&case.client, &case.node.name);
        kubernetes::record_event(client, node, Phase::Standby, &history, case.now, &case.me).await;

        match self.groups.enter_standby(&case.run.group, id).await {
            // An earlier try of the same call has taken effect.
            Err(ec2::Error::WrongState { .. }) if self.is_in_standby(&case).await? => {}
            called => called?,
        }

        case.run.replacement_since = Some(case.now);
        let timeout = i64::from(case.run.input.replacement_timeout);
        Ok(case.wait(next_wait(0, timeout, 0, None), history))
    }

    async fn is_in_standby(&self, case: &FetchedFacts) -> Result<bool, Error> {
        let group = self.groups.fetch(&case.run.group).await?;
        let state = find_lifecycle_state(group.as_ref(), &case.run.input.instance_id);
        Ok(matches!(state, Some("EnteringStandby" | "Standby")))
    }
}

/// Records the claim, the current members and how many of them are usable. Every other member will count as a newcomer.
/// The same request keeps Cluster Autoscaler from removing the node.
/// What an earlier attempt recorded about members no longer holds, since the instance is in service.
async fn record(case: &FetchedFacts, claim: &Claim) -> Result<(), Error> {
    let group = case.group.as_ref();
    let members: Vec<InstanceId> = group
        .into_iter()
        .flat_map(|group| &group.members)
        // An instance of the warm pool may become the replacement, so it is not recorded as a member.
        .filter(|member| !member.lifecycle_state.starts_with("Warmed"))
        .map(|member| member.instance.clone())
        .collect();
    let nodes = kubernetes::list_nodes(&case.client).await?.readable;
    let id = &case.run.input.instance_id;
    let usable = group.map(|group| count_usable(id, &case.node, group, &nodes));
    kubernetes::amend_node(&case.client, case.node.clone(), |node| {
        kubernetes::check_claim(node, &case.me, case.run.input.urgency)?;
        let record = Record {
            schema: SCHEMA,
            members_before: members.clone(),
            usable_before: usable,
            replacement: None,
            desired_before: group.map(|group| group.desired),
            ..node.record()?
        };
        let change = NodeChange::new().claim(claim)?;
        let change = match keep_old_node(node, &record) {
            Some(kept) => change
                .record(&kept)?
                .annotate(SCALE_DOWN_DISABLED_ANNOTATION, DISABLED),
            None => change.record(&record)?,
        };
        Ok::<_, Error>(Some(change))
    })
    .await
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use recycle::base::names::{CLAIM_ANNOTATION, RECORD_ANNOTATION};
    use recycle::contract::verdicts::StandbyVerdict;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, case, described_group, no_nodes, step, stored_node};

    fn kube() -> ScriptedKube {
        ScriptedKube::new()
            .on("GET", "/api/v1/nodes?", 200, no_nodes())
            .on("PATCH", NODE, 200, stored_node(Phase::Standby))
            .on("POST", "/events", 201, json!({}))
    }

    #[tokio::test]
    async fn node_and_instance_know_of_standby_before_it_is_entered() {
        let (kube, aws) = (
            kube(),
            ScriptedAws::new().on("CreateTags", "").on("EnterStandby", ""),
        );
        let answer = step(&aws).enter_standby(case(&kube)).await.unwrap();
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
        assert!(
            written[RECORD_ANNOTATION]
                .as_str()
                .unwrap()
                .contains("i-0123456789abcdef0"),
            "{written}"
        );
        assert_eq!(written[SCALE_DOWN_DISABLED_ANNOTATION], "true");
        let record: Record = serde_json::from_str(written[RECORD_ANNOTATION].as_str().unwrap()).unwrap();
        assert_eq!((record.desired_before, record.kept), (Some(1), true));
    }

    #[tokio::test]
    async fn who_waits_in_the_warm_pool_may_be_the_replacement() {
        let (kube, aws) = (
            kube(),
            ScriptedAws::new().on("CreateTags", "").on("EnterStandby", ""),
        );
        let mut case = case(&kube);
        let group = case.group.as_mut().unwrap();
        group.members.push(recycle::cluster::group::Member {
            instance: "i-0fedcba9876543210".parse().unwrap(),
            lifecycle_state: "Warmed:Stopped".to_owned(),
            protected_from_scale_in: false,
        });
        step(&aws).enter_standby(case).await.unwrap();
        let written = &kube.calls()[1].body["metadata"]["annotations"][RECORD_ANNOTATION];
        let record: Record = serde_json::from_str(written.as_str().unwrap()).unwrap();
        assert_eq!(record.members_before, ["i-0123456789abcdef0".parse().unwrap()]);
    }

    #[tokio::test]
    async fn standby_is_not_entered_without_its_record() {
        let unwritable = ScriptedKube::new()
            .on("GET", "/api/v1/nodes?", 200, no_nodes())
            .refuses("PATCH", NODE, 500, "InternalError", "etcd is away");
        let aws = ScriptedAws::new();
        step(&aws).enter_standby(case(&unwritable)).await.unwrap_err();
        assert!(aws.calls().is_empty());

        let aws = ScriptedAws::new().breaks_on("CreateTags");
        step(&aws).enter_standby(case(&kube())).await.unwrap_err();
        assert_eq!(aws.actions(), ["CreateTags"]);
    }

    #[tokio::test]
    async fn a_call_that_had_taken_effect_before_is_no_error() {
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses("EnterStandby", 400, "ValidationError", "not in InService")
            .on("DescribeAutoScalingGroups", &described_group("EnteringStandby"));
        let answer = step(&aws).enter_standby(case(&kube())).await.unwrap();
        assert_eq!(answer.verdict, StandbyVerdict::Wait);
    }

    #[tokio::test]
    async fn any_other_refusal_is_told_in_the_words_of_aws() {
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses(
                "EnterStandby",
                400,
                "ValidationError",
                "the group is being deleted",
            )
            .on("DescribeAutoScalingGroups", &described_group("InService"));
        let error = step(&aws).enter_standby(case(&kube())).await.unwrap_err();
        let text = recycle::base::failure::with_causes(&error);
        assert!(text.contains("the group is being deleted"), "{text}");
    }
}
