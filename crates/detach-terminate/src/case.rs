//! What one invocation works on: read afresh, and ours.

use jiff::Timestamp;
use recycle::claim::{Claim, check_claim};
use recycle::contract::{Answer, DisposeVerdict, Run, StepRequest, describe_instance};
use recycle::drain::Terms;
use recycle::ids::Fence;
use recycle::input::Dispose;
use recycle::names::STOPPED_TAG;
use recycle::node::{Instance, NodeFacts};
use recycle::pods::{PodSurvey, survey_pods};

use crate::{DetachTerminate, Error};

pub(crate) struct Case {
    pub(crate) client: kube::Client,
    pub(crate) node: Option<NodeFacts>,
    pub(crate) instance: Option<Instance>,
    /// None if the instance is in no group any more.
    pub(crate) lifecycle_state: Option<String>,
    /// None if neither Node nor instance is left to carry it, or if all that was to be done is done.
    pub(crate) claim: Option<Claim>,
    pub(crate) run: Run,
    pub(crate) me: Fence,
    pub(crate) now: Timestamp,
}

impl DetachTerminate {
    pub(crate) async fn fetch(&self, request: StepRequest) -> Result<Case, Error> {
        let StepRequest { context, mut run } = request;
        let (me, now) = (context.fence(), context.now());
        let id = run.input.instance_id.clone();
        let (client, node) = node_record::open(&self.access, &mut run.cluster, &run.node).await?;
        // Names of Nodes are used again, and fast: the Node has to be this instance's.
        let node = node.filter(|node| node.instance.as_ref() == Some(&id));
        let instance = self.instances.fetch(&id).await?;
        let claim = find_own_claim(node.as_ref(), instance.as_ref(), &run, &me)?;
        let group = self.groups.fetch(&run.group).await?;
        let member = group.as_ref().and_then(|group| group.member(&id));
        let lifecycle_state = member.map(|member| member.lifecycle_state.clone());
        Ok(Case {
            client,
            node,
            instance,
            lifecycle_state,
            claim,
            run,
            me,
            now,
        })
    }
}

/// The claim, which has to be ours: the Node's; where there is no Node, the instance's.
fn find_own_claim(
    node: Option<&NodeFacts>,
    instance: Option<&Instance>,
    run: &Run,
    me: &Fence,
) -> Result<Option<Claim>, Error> {
    if let Some(node) = node {
        return Ok(Some(node_record::check_claim(node, me, run.input.urgency)?));
    }
    let Some(instance) = instance else { return Ok(None) };
    let was_retired = run.input.dispose == Dispose::Stop && instance.tags.contains_key(STOPPED_TAG);
    let found = instance.claim();
    // EC2 takes the tags of a terminated instance away before it forgets the instance (EC2 guide, "Terminate an instance").
    if found.is_none() && (was_retired || instance.is_gone()) {
        return Ok(None);
    }
    let subject = describe_instance(&instance.id, None);
    Ok(Some(check_claim(found, me, run.input.urgency, &subject)?))
}

impl Case {
    pub(crate) async fn survey_pods(&self) -> Result<PodSurvey, Error> {
        let tainted_since = match &self.node {
            Some(node) => node_record::tainted_since(node, self.run.draining_since)?,
            None => None,
        };
        let pods = node_record::list_pods(&self.client, &self.run.node).await?;
        let Run {
            input,
            draining_since,
            ..
        } = &self.run;
        let (terms, _) = Terms::find(
            input,
            self.node.as_ref(),
            tainted_since,
            *draining_since,
            self.now,
        );
        Ok(survey_pods(&pods, &terms))
    }

    pub(crate) fn say(&self, state: &str) -> String {
        format!(
            "{} {state}",
            describe_instance(&self.run.input.instance_id, Some(&self.run.node))
        )
    }

    /// The same, with the pods that go with the instance, if there are any.
    pub(crate) fn say_whole(&self, state: &str) -> String {
        let ended = self.run.ended_pods.as_ref().filter(|ended| ended.count > 0);
        let ended = ended.map(|ended| format!("; {}", ended.describe()));
        format!("{}{}", self.say(state), ended.unwrap_or_default())
    }

    /// The disposal begins anew when these pods are gone, its clocks too.
    pub(crate) fn back_to_check_pods(mut self, survey: &PodSurvey) -> Answer<DisposeVerdict> {
        let reason = self.say("has pods again that matter");
        self.run.disposing_since = None;
        Answer {
            counts: survey.counts(),
            names: survey.names(),
            ..Answer::new(DisposeVerdict::CheckPods, reason).carrying(self.run)
        }
    }

    pub(crate) fn wait(self, seconds: u32, reason: &str) -> Answer<DisposeVerdict> {
        let reason = format!("{}: {reason}", self.say("is on its way out"));
        Answer::new(DisposeVerdict::Wait, reason)
            .waiting(seconds)
            .carrying(self.run)
    }
}

#[cfg(test)]
mod tests {
    use recycle::claim::Phase;
    use recycle::contract::EndedPods;
    use recycle::names::{CLAIM_TAG, GROUP_TAG};
    use scripted_kube::ScriptedKube;

    use super::*;
    use crate::fixtures;

    #[tokio::test]
    async fn pods_that_came_back_give_the_disposal_its_time_anew() {
        let mut case = fixtures::case(&ScriptedKube::new(), "terminate", "running");
        case.run.disposing_since = Some(case.now);
        let answer = case.back_to_check_pods(&PodSurvey::default());
        assert_eq!(answer.run.unwrap().disposing_since, None);
    }

    #[tokio::test]
    async fn the_end_names_the_pods_that_go_with_the_instance_if_there_are_any() {
        let mut case = fixtures::case(&ScriptedKube::new(), "terminate", "running");
        assert_eq!(case.say_whole("leaves"), case.say("leaves"));
        let mut ended = EndedPods::of(&PodSurvey::default());
        case.run.ended_pods = Some(ended.clone());
        assert_eq!(case.say_whole("leaves"), case.say("leaves"));
        ended.count = 2;
        ended.names = vec!["jobs/a".to_owned(), "jobs/b".to_owned()];
        case.run.ended_pods = Some(ended);
        assert!(
            case.say_whole("leaves")
                .ends_with(" leaves; 2 pods ran on it when its time was over (jobs/a, jobs/b)"),
            "{}",
            case.say_whole("leaves")
        );
    }

    #[tokio::test]
    async fn without_a_node_the_instance_says_whose_it_is_as_long_as_it_has_tags() {
        let case = fixtures::case(&ScriptedKube::new(), "terminate", "running");
        let find = |state: &str, holder: Option<Claim>| {
            let tags = holder.into_iter().flat_map(|claim| {
                [
                    (CLAIM_TAG.to_owned(), claim.to_tag()),
                    (GROUP_TAG.to_owned(), claim.group.to_string()),
                ]
            });
            let instance = Instance {
                tags: tags.collect(),
                ..fixtures::instance(state)
            };
            find_own_claim(None, Some(&instance), &case.run, &case.me)
        };
        let ours = fixtures::claim(Phase::Disposing);
        let theirs = Claim {
            fence: "arn:aws:states:eu-west-1:123456789012:execution:recycle:two#0"
                .parse()
                .unwrap(),
            ..ours.clone()
        };
        assert_eq!(find("running", Some(ours.clone())).unwrap(), Some(ours));
        assert!(find("running", None).is_err());
        assert!(find("terminated", Some(theirs)).is_err());
        for state in ["shutting-down", "terminated"] {
            assert_eq!(find(state, None).unwrap(), None, "{state}");
        }
    }
}
