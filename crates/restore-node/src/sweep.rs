//! A sweep's put-back: of a node whose execution no longer runs, under a claim of the sweep's own.

use node_record::NodeChange;
use recycle::claim::{Claim, Phase, Urgency};
use recycle::contract::{Answer, RestoreRequest, RestoreVerdict};
use recycle::ids::ExecutionArn;
use recycle::names::{CLAIM_TAG, GROUP_LABEL, GROUP_TAG};
use recycle::put_back::PutBackStep;
use recycle::sweep::{LeftoverDecision, judge_leftover};

use crate::target::Target;
use crate::{Error, RestoreNode, wait};

/// Seconds until a claim that was written is acted on.
const AT_ONCE: u32 = 1;

impl RestoreNode {
    /// Makes the claim this sweep's, unless somebody works on the node. None once it is; before that, or instead, the answer.
    pub(crate) async fn claim_leftover(
        &self,
        target: &Target,
        request: &RestoreRequest,
    ) -> Result<Option<Answer<RestoreVerdict>>, Error> {
        let now = request.context.now();
        let found = target.claim();
        let leave = |reason: &str| Ok(Some(Answer::new(RestoreVerdict::Untouched, reason)));
        let former = match judge_leftover(found.as_ref(), &target.me, request.owner.as_ref(), now) {
            LeftoverDecision::PutBack => return Ok(None),
            LeftoverDecision::Claim(former) => former,
            LeftoverDecision::AskOwner(owner) => return Ok(Some(ask_owner(owner))),
            LeftoverDecision::Wait(seconds) => {
                let reason = target.say("waits: a function of its execution may still be at work");
                return Ok(Some(Answer::new(RestoreVerdict::Wait, reason).waiting(seconds)));
            }
            LeftoverDecision::Leave(reason) => return leave(&reason),
            LeftoverDecision::Unreadable(text) => {
                return Err(Error::UnreadableClaim(target.say(&format!("carries {text:?}"))));
            }
        };
        if target.is_hopeless() {
            return leave(&target.say("is a person's to see to, who was told"));
        }
        let group = former.as_ref().map(|claim| claim.group.clone());
        let group = group.or_else(|| target.group.as_ref().map(|group| group.name.clone()));
        // Where nothing is left to carry a claim, nobody else can hold it.
        let (Some(group), false) = (group, target.is_going()) else {
            return Ok(None);
        };
        let claim = Claim {
            phase: former.as_ref().map_or(Phase::Standby, |claim| claim.phase),
            ..Claim::new(target.me.clone(), group, Urgency::Planned, now)
        };
        self.write_claim(target, &claim).await?;
        Ok(Some(wait(
            request,
            AT_ONCE,
            &target.say("is claimed by the sweep"),
        )))
    }

    /// Against the version of the Node that was read: whoever was quicker keeps it.
    async fn write_claim(&self, target: &Target, claim: &Claim) -> Result<(), Error> {
        if let (Ok(cluster), Some(node)) = (&target.cluster, target.node()) {
            let label = node_record::group_label(&claim.group);
            let change = NodeChange::new().claim(claim)?.label(GROUP_LABEL, label);
            node_record::change_node(&cluster.client, node, change).await?;
        }
        let tags = [(GROUP_TAG, claim.group.to_string()), (CLAIM_TAG, claim.to_tag())];
        Ok(self.instances.tag(&target.subject.instance, &tags).await?)
    }
}

impl Target {
    /// What could not be put back before cannot be put back now.
    fn is_hopeless(&self) -> bool {
        let is_end = matches!(
            self.next_step(),
            PutBackStep::LeaveInStandby(_) | PutBackStep::Report(_)
        );
        is_end && self.has_given_up()
    }
}

fn ask_owner(owner: ExecutionArn) -> Answer<RestoreVerdict> {
    let reason = format!("{owner} holds the claim; whether it still runs is asked");
    Answer {
        owner: Some(owner),
        ..Answer::new(RestoreVerdict::AskOwner, reason)
    }
}

#[cfg(test)]
mod tests {
    use recycle::names::{CLAIM_ANNOTATION, GAVE_UP_TAG, STANDBY_TAG};
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, OLD, claim, target, target_in};

    /// What the sweep sends about an owner who ended so many seconds ago.
    fn request(ended_for: Option<i64>) -> RestoreRequest {
        let owner = ended_for.map_or_else(
            || json!({}),
            |seconds| {
                json!({"execution": claim("two").fence.execution, "status": "ABORTED",
                    "ended_at": format!("2027-01-01T00:{:02}:00Z", 30 - seconds / 60)})
            },
        );
        serde_json::from_value(json!({
            "context": {
                "Execution": {"Id": claim("one").fence.execution, "Input": {}},
                "State": {"EnteredTime": "2027-01-01T00:30:00Z"},
            },
            "leftover": {"instance_id": OLD, "cluster_name": "world"},
            "owner": owner,
            "put_back": {},
        }))
        .unwrap()
    }

    async fn claimed(
        aws: &ScriptedAws,
        target: &Target,
        request: &RestoreRequest,
    ) -> Option<Answer<RestoreVerdict>> {
        RestoreNode::new(&aws.config())
            .claim_leftover(target, request)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn the_claim_is_written_against_the_node_that_was_read_before_anything_is_done() {
        let kube = ScriptedKube::new().on("PATCH", NODE, 200, json!({"metadata": {"name": "node-a"}}));
        let aws = ScriptedAws::new().on("CreateTags", "");
        let target = target_in(&kube, Some(claim("two")), Some(claim("two")));
        let answer = claimed(&aws, &target, &request(Some(600))).await.unwrap();
        assert_eq!(
            (answer.verdict, answer.wait_seconds),
            (RestoreVerdict::Wait, AT_ONCE)
        );
        let metadata = &kube.calls()[0].body["metadata"];
        assert_eq!(metadata["resourceVersion"], "7");
        let written = metadata["annotations"][CLAIM_ANNOTATION].as_str().unwrap();
        assert!(written.contains(":one#0"), "{written}");
        assert!(
            aws.calls()[0].contains("recycle-eks%3Aclaim"),
            "{}",
            aws.calls()[0]
        );
    }

    #[tokio::test]
    async fn an_owner_is_asked_about_and_given_time_before_its_claim_is_touched() {
        let aws = ScriptedAws::new();
        let target = target(Some(claim("two")), Some(claim("two")));
        let answer = claimed(&aws, &target, &request(None)).await.unwrap();
        assert_eq!(answer.owner, Some(claim("two").fence.execution));
        let answer = claimed(&aws, &target, &request(Some(60))).await.unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (RestoreVerdict::Wait, 240));
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn a_claim_of_this_sweep_is_worked_on() {
        let target = target(Some(claim("one")), Some(claim("one")));
        assert_eq!(claimed(&ScriptedAws::new(), &target, &request(None)).await, None);
    }

    #[tokio::test]
    async fn what_people_were_told_of_is_left_alone_as_long_as_nothing_can_be_done() {
        let aws = ScriptedAws::new();
        let mut target = target(None, None);
        let instance = target.instance.as_mut().unwrap();
        for tag in [STANDBY_TAG, GAVE_UP_TAG] {
            instance
                .tags
                .insert(tag.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        }
        let group = target.group.as_mut().unwrap();
        (group.min, group.max) = (group.desired, group.desired);
        let answer = claimed(&aws, &target, &request(None)).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Untouched);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn an_instance_that_is_gone_needs_no_claim() {
        let mut target = target(None, None);
        target.instance = None;
        assert_eq!(claimed(&ScriptedAws::new(), &target, &request(None)).await, None);
    }

    #[tokio::test]
    async fn a_claim_that_somebody_edited_is_a_persons() {
        let mut target = target(None, None);
        if let Ok(cluster) = &mut target.cluster {
            let annotations = &mut cluster.node.as_mut().unwrap().annotations;
            annotations.insert(CLAIM_ANNOTATION.to_owned(), "mine!".to_owned());
        }
        let step = RestoreNode::new(&ScriptedAws::new().config());
        let error = step.claim_leftover(&target, &request(None)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "failed to read the claim: node node-a ({OLD}) carries \"mine!\"; remove it if nobody works on the node"
            )
        );
    }
}
