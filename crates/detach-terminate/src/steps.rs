//! The steps themselves: record, then act.

use node_record::NodeChange;
use recycle::claim::{Claim, Phase};
use recycle::contract::{Answer, DisposeVerdict, EndedPods};
use recycle::input::Dispose;
use recycle::names::{
    CLAIM_TAG, EXCLUDE_FROM_BALANCERS_LABEL, GAVE_UP_TAG, GROUP_TAG, PUT_BACK_TAG, STANDBY_TAG, STOPPED_TAG,
};
use recycle::node::{NodeFacts, Record};
use recycle::put_back::EXCLUDED;

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
                excluded_at: Some(case.now),
                excluded_before: before,
                ..node.record()?
            };
            Ok(NodeChange::new()
                .label(EXCLUDE_FROM_BALANCERS_LABEL, EXCLUDED)
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
                    .untag(
                        id,
                        &[CLAIM_TAG, GROUP_TAG, STANDBY_TAG, PUT_BACK_TAG, GAVE_UP_TAG],
                    )
                    .await?;
                "is stopped, and stays in Standby"
            }
            Dispose::Detach => "has left its group",
        };
        let reason = case.say_whole(outcome);
        let ended = case.run.ended_pods.iter().filter(|ended| ended.count > 0);
        let named = |ended: &EndedPods| ("ended".to_owned(), ended.names.clone());
        Ok(Answer {
            counts: ended
                .clone()
                .map(|ended| ("ended".to_owned(), ended.count))
                .collect(),
            names: ended.map(named).collect(),
            ..Answer::new(DisposeVerdict::Recycled, reason).carrying(case.run.clone())
        })
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
                let found = node_record::check_claim(node, &case.me, case.run.input.urgency)?;
                let change = change(node)?;
                let is_recorded = found == claim && change.is_empty();
                Ok::<_, Error>(if is_recorded {
                    None
                } else {
                    Some(change.claim(&claim)?)
                })
            })
            .await?;
            let state = match case.run.ended_pods {
                None => "is drained and leaves",
                Some(_) => "leaves",
            };
            let story = case.say_whole(state);
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

#[cfg(test)]
mod tests {
    use recycle::names::{CLAIM_ANNOTATION, RECORD_ANNOTATION};
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, case, step, stored_node};

    fn kube() -> ScriptedKube {
        ScriptedKube::new()
            .on("PATCH", NODE, 200, stored_node(Phase::Disposing))
            .on("POST", "/events", 201, json!({}))
    }

    #[tokio::test]
    async fn the_phase_is_written_on_node_and_instance_before_the_end() {
        let kube = kube();
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("TerminateInstanceInAutoScalingGroup", "");
        let answer = step(&aws)
            .terminate(case(&kube, "terminate", "running"), 30)
            .await
            .unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (DisposeVerdict::Wait, 30));
        assert_eq!(
            aws.actions(),
            ["CreateTags", "TerminateInstanceInAutoScalingGroup"]
        );
        let written = &kube.calls()[0].body["metadata"]["annotations"][CLAIM_ANNOTATION];
        assert!(
            written.as_str().unwrap().contains(r#""phase":"disposing""#),
            "{written}"
        );
        assert!(aws.calls()[0].contains("disposing"), "{}", aws.calls()[0]);
    }

    #[tokio::test]
    async fn a_claim_that_was_lost_on_the_way_ends_nothing() {
        let mut other = stored_node(Phase::Claimed);
        other["metadata"]["annotations"] = json!({});
        let kube = ScriptedKube::new()
            .refuses("PATCH", NODE, 409, "Conflict", "the object has been modified")
            .on("GET", NODE, 200, other);
        let aws = ScriptedAws::new();
        let error = step(&aws)
            .terminate(case(&kube, "terminate", "running"), 30)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::ClaimLost(_)), "{error:?}");
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn a_member_that_is_leaving_already_is_not_an_error() {
        let nobody = "<AutoScalingGroups/>";
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses(
                "TerminateInstanceInAutoScalingGroup",
                400,
                "ValidationError",
                "no managed instance found",
            )
            .on("DescribeAutoScalingGroups", nobody);
        let answer = step(&aws)
            .terminate(case(&kube(), "terminate", "running"), 30)
            .await
            .unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Wait);
    }

    #[tokio::test]
    async fn the_label_is_set_together_with_the_record_of_what_was_there() {
        let kube = kube();
        let aws = ScriptedAws::new().on("CreateTags", "");
        step(&aws)
            .leave_balancers(case(&kube, "terminate", "running"), 60)
            .await
            .unwrap();
        let metadata = &kube.calls()[0].body["metadata"];
        assert_eq!(metadata["labels"][EXCLUDE_FROM_BALANCERS_LABEL], "true");
        assert!(
            metadata["annotations"][RECORD_ANNOTATION].is_string(),
            "{metadata}"
        );
    }

    #[tokio::test]
    async fn a_stopped_instance_loses_its_claim_last() {
        let kube = ScriptedKube::new().on(
            "DELETE",
            NODE,
            200,
            json!({"kind": "Status", "status": "Success"}),
        );
        let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
        let answer = step(&aws).retire(case(&kube, "stop", "stopped")).await.unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Recycled);
        assert_eq!(aws.actions(), ["CreateTags", "DeleteTags"]);
        assert_eq!(kube.requests(), [format!("DELETE {NODE}")]);

        let kube = ScriptedKube::new().breaks_on("DELETE", NODE);
        let aws = ScriptedAws::new().on("CreateTags", "");
        step(&aws)
            .retire(case(&kube, "stop", "stopped"))
            .await
            .unwrap_err();
        assert_eq!(aws.actions(), ["CreateTags"]);
    }

    #[tokio::test]
    async fn a_pod_that_came_before_the_taint_holds_the_instance_whatever_was_decided_earlier() {
        let pod = json!({
            "metadata": {"name": "train", "namespace": "jobs", "creationTimestamp": "2027-01-01T05:50:00Z"},
            "spec": {"restartPolicy": "Never", "containers": []},
        });
        let pods = json!({"metadata": {}, "items": [pod]});
        let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"}).to_string();
        for (draining_since, is_clear) in [("2027-01-01T06:00:00Z", false), ("2027-01-01T05:46:00Z", true)] {
            let kube = ScriptedKube::new().on("GET", "/pods?", 200, pods.clone());
            let mut case = case(&kube, "terminate", "running");
            let node = case.node.as_mut().unwrap();
            node.annotations
                .insert(RECORD_ANNOTATION.to_owned(), record.clone());
            case.run.draining_since = Some(draining_since.parse().unwrap());
            let survey = case.survey_pods().await.unwrap();
            assert_eq!(survey.is_clear(), is_clear, "{survey:?}");
        }
    }
}
