//! The restore by the sweep: it claims a node whose execution no longer runs, and restores it under its own claim.

use kubernetes::NodeChange;
use recycle::answer::envelope::{Answer, RestoreBody};
use recycle::base::ids::{ExecutionArn, InstanceId};
use recycle::base::names::{CLAIM_TAG, GROUP_TAG, LIFECYCLE_HOOK};
use recycle::cluster::cluster_tag::has_cluster_tag;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, draining_taint};
use recycle::contract::verdicts::RestoreVerdict;
use recycle::input::model::{Hook, TO_EC2};
use recycle::input::start::Start;
use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, Phase, RUNNING, StoredClaim};
use recycle::records::owner::Owner;
use recycle::records::restore_log::GaveUp;
use recycle::restore::facts::RestoreFacts;
use recycle::restore::next_step::next_restore_step;
use recycle::restore::step::RestoreStep;
use recycle::restore::sweep::{
    BY_HOOK, BY_REQUEST, LeftoverDecision, OWN_TAGS, find_cause, is_done_with, judge_leftover,
};

use crate::cluster::Cluster;
use crate::facts::FetchedFacts;
use crate::steps::ignore_refusal;
use crate::{Error, RestoreNode};

/// Seconds between writing a claim and acting on it.
const AT_ONCE: u32 = 1;

/// The right of the sweep to work on a node, according to the node's claim.
pub(crate) enum Standing {
    /// This sweep holds the claim.
    OwnClaim,
    /// No execution works on the node. Holds the claim that was there, if there was one.
    Free(Option<Claim>),
    /// The sweep does not touch the node now. Holds the answer.
    Leave(Box<Answer<RestoreVerdict>>),
}

impl RestoreNode {
    /// Judges the claim alone: if an execution works on the node, nothing else is read.
    pub(crate) async fn judge_leftover(&self, facts: &mut FetchedFacts) -> Result<Standing, Error> {
        let (found, me, now) = (facts.claim(), facts.me.clone(), facts.now());
        let began = facts.request.context.execution.start_time;
        let judge = |owner: Option<&Owner>| judge_leftover(found.as_ref(), &me, owner, began, now);
        let mut decision = judge(None);
        if let LeftoverDecision::AskOwner(execution) = &decision {
            let owner = self.executions.find_owner(execution).await?;
            decision = judge(Some(&owner));
            facts.request.restore.owner = Some(owner);
        }
        let answer = match decision {
            // A kubelet can remove the copy again, so that one write of it has to be enough.
            LeftoverDecision::Restore
                if facts.request.restore.steps > 0 || facts.node().is_none_or(NodeFacts::shows_claim) =>
            {
                return Ok(Standing::OwnClaim);
            }
            LeftoverDecision::Restore => {
                // An earlier attempt wrote the Lease only. The copy on the Node stops late writes of the previous execution.
                if let Some(claim) = found.and_then(StoredClaim::known) {
                    self.write_claim(facts, &claim).await?;
                }
                facts.wait(AT_ONCE, &facts.describe_state("is claimed by the sweep"))
            }
            LeftoverDecision::Claim(previous) => return Ok(Standing::Free(previous)),
            LeftoverDecision::AskOwner(owner) => {
                let reason = format!("{owner} holds the claim, and it is not known whether it runs");
                Answer::new(RestoreVerdict::Untouched, reason)
            }
            LeftoverDecision::Wait(seconds) => {
                let reason = facts.describe_state("waits: a function of its execution may still be at work");
                Answer::new(RestoreVerdict::Wait, reason).waiting(seconds)
            }
            LeftoverDecision::Leave(reason) => Answer::new(RestoreVerdict::Untouched, reason),
            LeftoverDecision::Unreadable(text) => {
                let verdict = facts.report_once(RestoreVerdict::Kept);
                self.give_up(facts, false).await?;
                let state = format!(
                    "carries {text:?} where its claim should be; remove it if no execution works on the node"
                );
                facts.build_last_answer(verdict, facts.describe_state(&state))
            }
        };
        Ok(Standing::Leave(Box::new(answer)))
    }

    /// Returns the answer for a node that is not restored but started: a member that the hook of recycle-eks holds, or a node with the
    /// request taint.
    /// If an execution has worked on the node before, the taint has been answered.
    /// A member that is drained already, and waits for another tool's hook, is left untouched.
    pub(crate) async fn find_start(
        &self,
        facts: &FetchedFacts,
        previous: Option<&Claim>,
    ) -> Result<Option<Answer<RestoreVerdict>>, Error> {
        let owner = facts.request.restore.owner.as_ref();
        if facts.is_held() && previous.is_some_and(|previous| is_done_with(previous, owner)) {
            let reason = facts.describe_state("is drained, and its group waits for the hook of another tool");
            return Ok(Some(Answer::new(RestoreVerdict::Untouched, reason)));
        }
        let cause = find_cause(previous, facts.now());
        let hook = self.find_hook_to_start(facts, previous).await?;
        let is_requested = facts.node().is_some_and(NodeFacts::is_requested);
        let (trigger, why) = if hook.is_some() {
            (BY_HOOK, "is held by the lifecycle hook of recycle-eks")
        } else if is_requested && previous.is_none() && !facts.is_going() {
            (BY_REQUEST, "is requested by the taint recycle-eks/request")
        } else {
            return Ok(None);
        };
        let start = Start {
            hook,
            ..Start::new(trigger, &facts.id, &cause)
        };
        let reason = facts.describe_state(&format!("{why}, and no execution works on it"));
        Ok(Some(
            Answer::new(RestoreVerdict::Start, reason).with(RestoreBody::Start(start)),
        ))
    }

    /// Returns the hook to start an execution with, for a member that the hook of recycle-eks holds or held.
    /// None if an execution gave the node up before.
    async fn find_hook_to_start(
        &self,
        facts: &FetchedFacts,
        previous: Option<&Claim>,
    ) -> Result<Option<Hook>, Error> {
        let may_go_on = facts.is_held() && facts.gave_up().is_none();
        let Some(group) = facts.group.as_ref().filter(|_| may_go_on) else {
            return Ok(None);
        };
        let was_claimed_for_hook = previous.is_some_and(|previous| previous.urgency == Urgency::Hook);
        if !was_claimed_for_hook && self.groups.find_hook(&group.name).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(Hook {
            name: LIFECYCLE_HOOK.to_owned(),
            auto_scaling_group_name: group.name.clone(),
            destination: TO_EC2.to_owned(),
            fired_at: None,
            retain: None,
        }))
    }

    /// Makes the claim this sweep's, and returns the answer.
    /// A node that was given up is left to an operator while another attempt makes no sense.
    /// None if no group is known, or if the instance is gone or leaving: then nothing can carry a claim, or be held by one.
    pub(crate) async fn claim_leftover(
        &self,
        facts: &FetchedFacts,
        previous: Option<Claim>,
    ) -> Result<Option<Answer<RestoreVerdict>>, Error> {
        let is_final = |gave_up: GaveUp| gave_up.is_final(&facts.next_step_without_marks(), facts.now());
        if facts.gave_up().is_some_and(is_final) && !facts.is_result() {
            facts.release_marked().await?;
            let reason = facts.describe_state("was given up, and an operator was notified");
            return Ok(Some(Answer::new(RestoreVerdict::Untouched, reason)));
        }
        let group = previous.as_ref().map(|claim| claim.group.clone());
        let group = group.or_else(|| facts.group.as_ref().map(|group| group.name.clone()));
        let Some(group) = group.filter(|_| !facts.is_going()) else {
            return Ok(None);
        };
        // The functions may tag only instances of this cluster, so the sweep would fail each time.
        let is_foreign = |instance: &Instance| !has_cluster_tag(&instance.tags, self.access.name());
        if previous.is_none() && facts.instance.as_ref().is_some_and(is_foreign) {
            let reason = facts.describe_state("has no tag of this cluster, and no execution has claimed it");
            return Ok(Some(Answer::new(RestoreVerdict::Untouched, reason)));
        }
        self.check_sweep(&facts.me.execution).await?;
        // The tags of an instance without a Lease count for as long as the sweep holds the claim, too.
        let phase = if facts.is_result() {
            Phase::Disposing
        } else {
            Phase::Standby
        };
        let claim = Claim {
            phase: previous.map_or(phase, |claim| claim.phase),
            ..Claim::new(facts.me.clone(), group, Urgency::Planned, facts.now())
        };
        self.write_claim(facts, &claim).await?;
        Ok(Some(
            facts.wait(AT_ONCE, &facts.describe_state("is claimed by the sweep")),
        ))
    }

    /// Checks with Step Functions that this execution of the sweep runs: any principal that may invoke the function chooses the execution
    /// that its payload names.
    async fn check_sweep(&self, execution: &ExecutionArn) -> Result<(), Error> {
        let status = self.executions.find_status(execution).await?;
        let status = status.ok_or_else(|| Error::UnknownExecution(execution.clone()))?;
        if status == RUNNING && !execution.is_of("recycle-node") {
            return Ok(());
        }
        let execution = execution.clone();
        Err(Error::OtherExecution { execution, status })
    }

    /// Writes the claim against the version of the Lease that was read. If another execution was quicker, it keeps the claim.
    async fn write_claim(&self, facts: &FetchedFacts, claim: &Claim) -> Result<(), Error> {
        match &facts.cluster {
            Ok(Cluster {
                client,
                node: Some(node),
                ..
            }) => {
                kubernetes::change_node(client, node, NodeChange::new().claim(claim)?).await?;
            }
            Ok(Cluster { client, lease, .. }) => {
                let change = NodeChange::new().claim(claim)?;
                kubernetes::change_without_node(client, &facts.id, lease.as_ref(), &change).await?;
            }
            Err(_) => {}
        }
        let tags = [(GROUP_TAG, claim.group.to_string()), (CLAIM_TAG, claim.to_tag())];
        match self.instances.tag(&facts.id, &tags).await {
            // The tags are copies. An instance can have so many tags that EC2 refuses another one.
            Err(error) if facts.cluster.is_ok() => ignore_refusal(error.into()),
            tagged => Ok(tagged?),
        }
    }
}

impl FetchedFacts {
    /// Checks whether nothing but annotations and labels, which the kubelets of Nodes can write, says that an execution has worked on the
    /// instance. An execution also writes a Lease, tags and a taint.
    pub(crate) fn has_marks_of_nodes_only(&self) -> bool {
        let has_taint = |node: &NodeFacts| node.taints.contains(&draining_taint(&self.id));
        let is_tagged = |instance: &Instance| OWN_TAGS.iter().any(|tag| instance.tags.contains_key(*tag));
        let is_clear =
            |cluster: &Cluster| cluster.lease.is_none() && !cluster.node.as_ref().is_some_and(has_taint);
        self.cluster.as_ref().is_ok_and(is_clear) && !self.instance.as_ref().is_some_and(is_tagged)
    }

    /// Returns the next step once no other Node has a mark for this instance.
    fn next_step_without_marks(&self) -> RestoreStep {
        next_restore_step(&RestoreFacts {
            marked: &[],
            ..self.restore_facts()
        })
    }

    /// Removes the marks that other Nodes carry for this instance.
    async fn release_marked(&self) -> Result<(), Error> {
        let marked = self.cluster.as_ref().map_or(&[][..], |cluster| &cluster.marked);
        let ids: Vec<InstanceId> = marked.iter().map(|other| other.instance.clone()).collect();
        self.release_replacements(&ids, true).await
    }

    /// Removes such marks once, without a claim: a claim would take a place in the queue of the group. Kubelets can write them again.
    pub(crate) async fn remove_marks_of_nodes(&self) -> Result<Answer<RestoreVerdict>, Error> {
        if self.next_step() == RestoreStep::UndoKubernetes {
            self.undo_kubernetes().await?;
        }
        self.release(&[]).await?;
        self.release_marked().await?;
        let reason = self.describe_state(
            "has no claim, record or taint of an execution; marks that Nodes carry for it are removed",
        );
        Ok(Answer::new(RestoreVerdict::Untouched, reason))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use recycle::base::failure::{Failure, NamedFailure as _};
    use recycle::base::names::{CLAIM_ANNOTATION, STANDBY_TAG};
    use recycle::cluster::cluster_tag::cluster_tag;
    use recycle::contract::requests::RestoreRequest;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, OLD, claim, facts, facts_in, give_up};

    fn request() -> RestoreRequest {
        serde_json::from_value(json!({
            "context": {
                "Execution": {"Id": claim("one").fence.execution, "Input": {}},
                "State": {"EnteredTime": "2027-01-01T00:30:00Z"},
            },
            "leftover": {"instance_id": OLD, "cluster_name": "world"},
            "restore": {},
        }))
        .unwrap()
    }

    /// Answers DescribeExecution: an execution that runs, or that ended this many seconds before the request.
    fn described(ended_for: Option<i64>) -> String {
        let now: Timestamp = "2027-01-01T00:30:00Z".parse().unwrap();
        let status = ended_for.map_or(RUNNING, |_| "ABORTED");
        let ended_at = ended_for.map(|seconds| now.as_second() - seconds);
        json!({"executionArn": "arn:e", "status": status, "startDate": 1_798_000_000, "stopDate": ended_at})
            .to_string()
    }

    async fn claimed(
        aws: &ScriptedAws,
        mut facts: FetchedFacts,
        request: RestoreRequest,
    ) -> Option<Answer<RestoreVerdict>> {
        facts.request = request;
        let step = RestoreNode::new(&aws.config(), &"world".parse().unwrap());
        match step.judge_leftover(&mut facts).await.unwrap() {
            Standing::OwnClaim => None,
            Standing::Free(previous) => step.claim_leftover(&facts, previous).await.unwrap(),
            Standing::Leave(answer) => Some(*answer),
        }
    }

    #[tokio::test]
    async fn the_claim_is_written_first_against_the_node_that_was_read() {
        let kube = ScriptedKube::new().on(
            "PATCH",
            NODE,
            200,
            json!({"metadata": {"name": "node-a", "resourceVersion": "8"}, "spec": {}}),
        );
        let aws = ScriptedAws::new()
            .on("DescribeExecution", &described(Some(600)))
            .on("DescribeExecution", &described(None))
            .on("CreateTags", "");
        let facts = facts_in(&kube, Some(claim("two")), Some(claim("two")));
        let answer = claimed(&aws, facts, request()).await.unwrap();
        assert_eq!(
            (answer.verdict, answer.wait_seconds),
            (RestoreVerdict::Wait, AT_ONCE)
        );
        let metadata = &kube.calls()[0].body["metadata"];
        assert_eq!(metadata["resourceVersion"], "7");
        let written = metadata["annotations"][CLAIM_ANNOTATION].as_str().unwrap();
        assert!(written.contains(":one#0"), "{written}");
        let [owner, own, tags] = &aws.calls()[..] else {
            panic!("{:?}", aws.calls())
        };
        assert!(owner.contains(":two") && own.contains(":one"), "{owner} {own}");
        assert!(tags.contains("recycle-eks%3Aclaim"), "{tags}");
    }

    #[tokio::test]
    async fn an_owner_is_looked_up_and_given_time_before_its_claim_is_touched() {
        let theirs = || facts(Some(claim("two")), Some(claim("two")));
        for (ended_for, verdict, wait) in [
            (None, RestoreVerdict::Untouched, 0),
            (Some(60), RestoreVerdict::Wait, 240),
        ] {
            let aws = ScriptedAws::new().on("DescribeExecution", &described(ended_for));
            let answer = claimed(&aws, theirs(), request()).await.unwrap();
            assert_eq!(
                (answer.verdict, answer.wait_seconds),
                (verdict, wait),
                "{ended_for:?}"
            );
            assert_eq!(aws.calls().len(), 1);
        }
    }

    /// A principal that may invoke the function names any execution as its own.
    #[tokio::test]
    async fn a_sweep_that_does_not_run_or_is_none_gets_no_claim() {
        let free = || {
            let mut facts = facts(None, None);
            let tags = &mut facts.instance.as_mut().unwrap().tags;
            tags.insert(cluster_tag("world"), "owned".to_owned());
            facts.request = request();
            facts
        };
        for (me, answer, expected) in [
            (
                "recycle-eks-sweep:one",
                Some(described(Some(60))),
                Failure::ClaimLost,
            ),
            (
                "recycle-eks-recycle-node:one",
                Some(described(None)),
                Failure::ClaimLost,
            ),
            ("recycle-eks-sweep:one", None, Failure::ServiceUnavailable),
        ] {
            let aws = ScriptedAws::new();
            let aws = match answer {
                Some(answer) => aws.on("DescribeExecution", &answer),
                None => aws.refuses("DescribeExecution", 400, "ExecutionDoesNotExist", "no"),
            };
            let mut facts = free();
            let arn = format!("arn:aws:states:eu-west-1:123456789012:execution:{me}");
            facts.me.execution = arn.parse().unwrap();
            let step = RestoreNode::new(&aws.config(), &"world".parse().unwrap());
            let error = step.claim_leftover(&facts, None).await.unwrap_err();
            assert_eq!(error.failure(), expected, "{me} {error}");
        }
    }

    #[tokio::test]
    async fn the_sweep_continues_with_its_own_claim() {
        let facts = facts(Some(claim("one")), Some(claim("one")));
        assert_eq!(claimed(&ScriptedAws::new(), facts, request()).await, None);
    }

    #[tokio::test]
    async fn a_node_that_was_given_up_is_left_alone_while_nothing_can_be_done() {
        let aws = ScriptedAws::new();
        let mut facts = facts(None, None);
        give_up(&mut facts, "2027-01-01T00:00:00Z");
        let tags = &mut facts.instance.as_mut().unwrap().tags;
        tags.insert(STANDBY_TAG.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        let group = facts.group.as_mut().unwrap();
        (group.min, group.max) = (group.desired, group.desired);
        let answer = claimed(&aws, facts, request()).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Untouched);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn an_instance_of_another_cluster_is_not_claimed() {
        let aws = ScriptedAws::new();
        let answer = claimed(&aws, facts(None, None), request()).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Untouched);
        assert!(
            answer.reason.contains("has no tag of this cluster"),
            "{}",
            answer.reason
        );
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn an_instance_that_is_gone_needs_no_claim() {
        let mut facts = facts(None, None);
        facts.instance = None;
        assert_eq!(claimed(&ScriptedAws::new(), facts, request()).await, None);
    }

    #[tokio::test]
    async fn an_edited_claim_is_reported_once_and_left_to_an_operator() {
        let edited = |was_given_up: bool| {
            let mut facts = facts(None, None);
            if let Ok(cluster) = &mut facts.cluster {
                let mut lease = crate::fixtures::node(Some(claim("two"))).lease.unwrap();
                lease.annotations = [(CLAIM_ANNOTATION.to_owned(), "mine!".to_owned())].into();
                cluster.lease = Some(lease);
            }
            if was_given_up {
                give_up(&mut facts, "2027-01-01T00:00:00Z");
            }
            facts
        };
        let aws = ScriptedAws::new().on("CreateTags", "");
        let answer = claimed(&aws, edited(false), request()).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Kept);
        assert!(
            answer
                .reason
                .contains("carries \"mine!\" where its claim should be"),
            "{}",
            answer.reason
        );
        assert!(aws.calls()[0].contains("gave-up"), "{}", aws.calls()[0]);

        let aws = ScriptedAws::new();
        let answer = claimed(&aws, edited(true), request()).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Untouched);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn a_report_of_this_very_step_is_repeated() {
        let mut reported = facts(None, None);
        give_up(&mut reported, "2027-01-01T00:30:00Z");
        reported.request = request();
        assert_eq!(reported.report_once(RestoreVerdict::Kept), RestoreVerdict::Kept);
    }

    #[tokio::test]
    async fn a_member_held_by_the_hook_is_started_again_unless_it_was_given_up() {
        const HOOK: &str = "<LifecycleHooks><member><LifecycleHookName>recycle-eks</LifecycleHookName><LifecycleTransition>\
            autoscaling:EC2_INSTANCE_TERMINATING</LifecycleTransition><HeartbeatTimeout>900</HeartbeatTimeout></member></LifecycleHooks>";
        let by_hook = Claim {
            urgency: Urgency::Hook,
            ..claim("two")
        };
        let cases = [
            ("Terminating:Wait", None, HOOK, false, true),
            ("Terminating:Retained", None, HOOK, false, true),
            ("Terminating:Wait", None, "<LifecycleHooks/>", false, false),
            (
                "Terminating:Wait",
                Some(&by_hook),
                "<LifecycleHooks/>",
                false,
                true,
            ),
            ("Terminating:Wait", Some(&by_hook), HOOK, true, false),
            ("Terminating:Proceed", Some(&by_hook), HOOK, false, false),
            ("Standby", None, HOOK, false, false),
        ];
        for (state, previous, hooks, gave_up, expected) in cases {
            let mut facts = facts(None, None);
            facts.request = request();
            state.clone_into(&mut facts.group.as_mut().unwrap().members[0].lifecycle_state);
            if gave_up {
                give_up(&mut facts, "2027-01-01T00:00:00Z");
            }
            let aws = ScriptedAws::new().on("DescribeLifecycleHooks", hooks);
            let step = RestoreNode::new(&aws.config(), &"world".parse().unwrap());
            let answer = step.find_start(&facts, previous).await.unwrap();
            assert_eq!(answer.is_some(), expected, "{state} {previous:?} {hooks}");
            if let Some(answer) = answer {
                assert_eq!(answer.verdict, RestoreVerdict::Start);
                let RestoreBody::Start(start) = answer.body else {
                    panic!("{answer:?}")
                };
                assert!(start.name.starts_with(&format!("hook-{OLD}-")), "{}", start.name);
                assert_eq!(start.hook.unwrap().auto_scaling_group_name.as_str(), "workers");
            }
        }
    }

    #[tokio::test]
    async fn a_node_with_the_request_taint_is_started_unless_it_was_begun_or_leaves() {
        let cases = [
            ("tainted", "Standby", true, None, true),
            ("not tainted", "Standby", false, None, false),
            (
                "begun by an ended execution",
                "Standby",
                true,
                Some(claim("two")),
                false,
            ),
            ("leaving", "Terminating:Proceed", true, None, false),
            ("leaving, and given up", "Terminating:Retained", true, None, false),
        ];
        for (name, state, is_tainted, previous, expected) in cases {
            let mut facts = facts(None, None);
            facts.request = request();
            state.clone_into(&mut facts.group.as_mut().unwrap().members[0].lifecycle_state);
            if let Ok(cluster) = &mut facts.cluster
                && is_tainted
            {
                cluster.node.as_mut().unwrap().taints = vec![crate::fixtures::request_taint()];
            }
            give_up(&mut facts, "2027-01-01T00:00:00Z");
            let step = RestoreNode::new(&ScriptedAws::new().config(), &"world".parse().unwrap());
            let answer = step.find_start(&facts, previous.as_ref()).await.unwrap();
            let is_request = |start: &Start| start.name.starts_with("request-") && start.hook.is_none();
            let is_started = answer
                .is_some_and(|answer| matches!(&answer.body, RestoreBody::Start(start) if is_request(start)));
            assert_eq!(is_started, expected, "{name}");
        }
    }
}
