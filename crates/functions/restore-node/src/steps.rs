//! The steps of a restore. Each change of the group is recorded before the call that makes it.

use ec2::protection;
use kubernetes::NodeChange;
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::base::ids::InstanceId;
use recycle::base::names::{
    CLAIM_ANNOTATION, CLAIM_TAG, DRAIN_UNTIL_ANNOTATION, FIELD_MANAGER, GAVE_UP_ANNOTATION, GAVE_UP_TAG,
    GROUP_TAG, PROGRESS_ANNOTATION, RECORD_ANNOTATION, RESTORE_LOG_ANNOTATION, RESTORE_LOG_TAG,
    RESTORING_ANNOTATION, STANDBY_TAG,
};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::RestoreRequest;
use recycle::contract::verdicts::RestoreVerdict;
use recycle::input::urgency::Urgency;
use recycle::records::claim::Claim;
use recycle::records::lease::Lease;
use recycle::records::node_record::Record;
use recycle::records::restore_log::{GaveUp, GroupChange, LeasedGaveUp};
use recycle::restore::step::{RestoreStep, STEP_WAIT, Stuck};

use crate::cluster::Cluster;
use crate::facts::FetchedFacts;
use crate::request::{LONGEST_WHY, find_reason, find_reason_of_untouched, name_reason, write_report};
use crate::{Answered, Error, RestoreNode};

impl RestoreNode {
    /// Takes one step, and returns the answer that says how long to wait after it. The last step ends the restore.
    pub(crate) async fn take(&self, facts: &mut FetchedFacts, step: RestoreStep) -> Answered {
        let done = match step {
            RestoreStep::Wait(seconds, reason) => {
                return Ok(facts.wait(seconds, &facts.describe_state(&format!("waits: {reason}"))));
            }
            RestoreStep::Done(note) => return self.finish(facts, note).await,
            RestoreStep::LeaveInStandby(stuck) => return self.leave_in_standby(facts, &stuck).await,
            RestoreStep::Report(note) => return self.report(facts, note).await,
            RestoreStep::UndoKubernetes => {
                facts.undo_kubernetes().await?;
                "is restored in Kubernetes".to_owned()
            }
            RestoreStep::Queue => {
                facts.queue().await?;
                "is about to return to service".to_owned()
            }
            RestoreStep::Protect(ids) => {
                if facts.record_protected(&ids).await? {
                    let members = ids.len();
                    let named = format!("waits: {members} members are about to be protected from scale-in");
                    return Ok(facts.wait(STEP_WAIT, &facts.describe_state(&named)));
                }
                let group = facts.group_name()?;
                protection::protect(&self.groups, &self.instances, group, &ids, &facts.id).await?;
                let members = ids.len();
                format!("returns to service; {members} members are protected from scale-in until then")
            }
            RestoreStep::Unprotect(ids) => {
                let (cluster, group) = (self.access.name(), facts.group.as_ref());
                protection::unprotect(&self.groups, &self.instances, cluster, group, &ids, &facts.id).await?;
                facts.record_unprotected(&ids).await?;
                "no longer needs protected members".to_owned()
            }
            RestoreStep::CordonReplacement(id) => {
                facts.cordon_replacement(&id).await?;
                format!("returns to service; its replacement {id}, which has no pods, is cordoned")
            }
            RestoreStep::ReleaseReplacements {
                new_members,
                reservation,
            } => {
                facts.release_replacements(&new_members, reservation).await?;
                "no longer needs a mark on its replacement".to_owned()
            }
            RestoreStep::TerminateReplacement(id) => {
                self.terminate_replacement(facts, &id).await?;
                format!("returns to service; its replacement {id}, which has no pods, is terminated")
            }
            RestoreStep::ForgetDead => {
                self.groups.terminate(&facts.id).await?;
                "is terminated, and its group removes it".to_owned()
            }
            RestoreStep::Lower { from } => {
                // Another node of the group may have taken its place away since the group was read.
                let group = self.groups.fetch(facts.group_name()?).await?;
                if group.is_none_or(|group| group.desired != from) {
                    let changed = facts.describe_state("returns to service; its group has just changed");
                    return Ok(facts.wait(STEP_WAIT, &changed));
                }
                self.record(facts, GroupChange::Lower(from)).await?;
                let to = from.saturating_sub(1);
                self.groups.set_desired_capacity(facts.group_name()?, to).await?;
                format!("returns to service; the desired capacity is {to} instead of {from}")
            }
            RestoreStep::Raise { to } => {
                let group = facts.group_name()?;
                self.groups.set_desired_capacity(group, to).await?;
                format!("is in service again; the desired capacity is {to}, so that no member is terminated")
            }
            RestoreStep::ExitStandby { from } => {
                self.record(facts, GroupChange::Exit(from)).await?;
                self.groups.exit_standby(facts.group_name()?, &facts.id).await?;
                "returns to service".to_owned()
            }
        };
        // Once the time is over, the answer keeps the earlier reason.
        // The last answer reports what prevented the restore, and the cleanup must not hide that.
        let reason = if facts.has_time() {
            facts.describe_state(&done)
        } else {
            facts.request.restore.reason.clone()
        };
        Ok(facts.wait(STEP_WAIT, &reason))
    }

    async fn terminate_replacement(&self, facts: &FetchedFacts, id: &InstanceId) -> Result<(), Error> {
        self.record(facts, GroupChange::Terminate(id.clone())).await?;
        self.groups.remove(id).await?;
        // If the call above makes the hook of recycle-eks fire, it is completed here. If the hook fires later, its execution or the sweep
        // handles that.
        let group = facts.group_name()?;
        if self.groups.find_hook(group).await?.is_some() {
            self.groups.complete_hook(group, id).await?;
        }
        Ok(())
    }

    /// Ends the restore of a node that is as it was before, and also removes the records.
    async fn finish(&self, facts: &FetchedFacts, note: Option<String>) -> Answered {
        self.release_whole(facts).await?;
        let request = &facts.request;
        // A sweep's first step is its claim.
        let steps_before = u32::from(request.leftover.is_some());
        if request.restore.steps <= steps_before && note.is_none() {
            return Ok(facts.build_last_answer(RestoreVerdict::Untouched, find_reason_of_untouched(request)));
        }
        let mut state = facts.describe_state("is in service");
        if let Some(node) = facts.node().filter(|node| node.unschedulable) {
            let why = match node.cordoned_by.as_deref() {
                Some(FIELD_MANAGER) => "it is not known whether it was cordoned before",
                Some(_) | None => "recycle-eks did not cordon it",
            };
            state = format!("{state}, and stays cordoned: {why}");
        }
        if let Some(note) = note {
            state = format!("{state}; {note}");
        }
        let text = format!("{}\nThe node was restored: {state}.", find_reason(request));
        Ok(facts.build_last_answer(RestoreVerdict::Restored, text))
    }

    /// Leaves the node in Standby, and schedulable. The record and the Standby tag stay, because another execution needs them to go on from
    /// there. The tag shows that recycle-eks put the instance into Standby.
    async fn leave_in_standby(&self, facts: &mut FetchedFacts, stuck: &Stuck) -> Answered {
        let verdict = facts.report_once(RestoreVerdict::LeftInStandby);
        self.give_up(facts, *stuck == Stuck::TooLong).await?;
        let node = self.release(facts, &[], &[]).await?;
        facts.forget_claim(node);
        let group = facts.group.as_ref();
        let mut why = group.map_or_else(String::new, |group| stuck.describe(group));
        let obstacle = &facts.request.restore.reason;
        if *stuck == Stuck::TooLong && !obstacle.is_empty() {
            let obstacle: String = obstacle.chars().take(LONGEST_WHY).collect();
            why = format!("{why} ({obstacle})");
        }
        let (reason, manual) = (name_reason(&facts.request), facts.find_manual_commands());
        let done = format!("The node stays in Standby: {why}.");
        Ok(facts.build_last_answer(verdict, write_report(&reason, &done, &manual, None)))
    }

    /// Ends the restore, and reports the state of the node and the manual commands.
    /// For a stopped or detached instance, and for a sweep's instance that is gone or leaving, there is nothing to report.
    async fn report(&self, facts: &mut FetchedFacts, note: Option<String>) -> Answered {
        if facts.request.leftover.is_some() && facts.is_going() {
            facts.forget_gone().await?;
            let mut answer = facts.answer_all_removed();
            if let Some(note) = note {
                answer.reason = format!("{}; {note}", answer.reason);
            }
            return Ok(answer);
        }
        if facts.is_result() {
            facts.retire_if_stopped().await?;
            self.release_whole(facts).await?;
            return Ok(facts.answer_all_removed());
        }
        let verdict = facts.report_once(RestoreVerdict::Kept);
        // A member that the hook of recycle-eks holds is not given up, so that a sweep goes on with it, unless its drain has timed out.
        if !(facts.is_held_and_urgent() && may_be_tried_again(&facts.request)) {
            self.give_up(facts, false).await?;
        }
        if facts.cluster.is_ok() {
            // The claim would hold the node, and a place in the queue of its group. A record is of use only as long as the instance exists.
            let record: &[&str] = if facts.is_gone() {
                &[RECORD_ANNOTATION]
            } else {
                &[]
            };
            let node = self.release(facts, record, &[]).await?;
            facts.forget_claim(node);
        }
        Ok(facts.answer_with_manual_commands(verdict, note))
    }

    /// Ends the restore after a refused call, when the time is over.
    /// The claim is removed, because it would hold up its whole group. Everything else that is refused now stays.
    /// A sweep fails, which sends a notification, and the next sweep tries again.
    pub(crate) async fn leave_after_refusal(&self, facts: &mut FetchedFacts, refusal: Error) -> Answered {
        self.give_up(facts, true).await?;
        match facts.release(&[]).await {
            Ok(node) => facts.replace_node(node),
            Err(error) => ignore_refusal(error)?,
        }
        if facts.request.leftover.is_some() {
            return Err(facts.add_state_to_error(refusal));
        }
        Ok(facts.answer_refusal(&refusal))
    }

    /// Tags the instance as given up, so that an operator has to handle it. Operators are notified once, but after a refusal each time.
    /// An instance that is gone or leaving is not tagged, unless `is_held_and_urgent`.
    pub(crate) async fn give_up(&self, facts: &mut FetchedFacts, was_refused: bool) -> Result<(), Error> {
        let is_going = facts.is_going() && !facts.is_held_and_urgent();
        let is_reported = is_going || (facts.gave_up().is_some() && !was_refused);
        let gave_up = GaveUp {
            at: facts.now(),
            was_refused,
        };
        if is_reported || facts.instance.is_none() {
            return Ok(());
        }
        let tag = (GAVE_UP_TAG, gave_up.to_string());
        let tagged = self.instances.tag(&facts.id, std::slice::from_ref(&tag)).await;
        let is_untagged = tagged.is_err();
        if let Err(error) = tagged {
            ignore_refusal(error.into())?;
        }
        let recorded = facts.record_gave_up(LeasedGaveUp { gave_up, is_untagged }).await;
        recorded.or_else(ignore_refusal)?;
        if let Some(instance) = facts.instance.as_mut().filter(|_| !is_untagged) {
            instance.tags.insert(tag.0.to_owned(), tag.1);
        }
        Ok(())
    }

    /// Removes the claim and its marks, from the cluster first. Tags that stay on the instance belong to an execution that has
    /// ended. Returns the Node as it is then.
    async fn release(
        &self,
        facts: &FetchedFacts,
        annotations: &[&str],
        tags: &[&str],
    ) -> Result<Option<NodeFacts>, Error> {
        let annotations = [annotations, &[RESTORE_LOG_ANNOTATION]].concat();
        let released = facts.release(&annotations).await?;
        let always = [CLAIM_TAG, GROUP_TAG, RESTORE_LOG_TAG];
        let keys: Vec<&str> = always.iter().chain(tags).copied().collect();
        self.instances.untag(&facts.id, &keys).await?;
        Ok(released)
    }

    /// Removes the claim and the records.
    async fn release_whole(&self, facts: &FetchedFacts) -> Result<(), Error> {
        let tags = [STANDBY_TAG, GAVE_UP_TAG];
        let annotations = [RECORD_ANNOTATION, GAVE_UP_ANNOTATION];
        self.release(facts, &annotations, &tags).await.map(|_| ())
    }
}

impl FetchedFacts {
    /// Records the members before they are protected. If the record cannot be written, the state of the restore names them, and the answer
    /// is true: they are protected in the next step. (The state is lost if the answer of the call that protects is lost.)
    async fn record_protected(&mut self, ids: &[InstanceId]) -> Result<bool, Error> {
        self.amend_record(|record| record.protecting(ids)).await?;
        let named = self.find_protected();
        let left: Vec<InstanceId> = ids.iter().filter(|id| !named.contains(id)).cloned().collect();
        let is_any_left = !left.is_empty();
        self.request.restore.protected.extend(left);
        Ok(is_any_left)
    }

    async fn record_unprotected(&mut self, ids: &[InstanceId]) -> Result<(), Error> {
        self.request.restore.protected.retain(|id| !ids.contains(id));
        self.amend_record(|record| record.unprotecting(ids)).await
    }

    /// Changes the record, if there is one that can be read, or none yet.
    async fn amend_record(&mut self, change: impl Fn(Record) -> Record) -> Result<(), Error> {
        if let Some((client, lease)) = self.lease_alone()
            && let Ok(record) = lease.record()
        {
            let change = NodeChange::new().record(&change(record))?;
            let written = kubernetes::change_without_node(client, &self.id, Some(lease), &change).await?;
            self.replace_lease(written);
            return Ok(());
        }
        let amended = self
            .amend_node(|node| {
                self.check_claim(node)?;
                let Ok(record) = node.record() else {
                    return Ok(None);
                };
                let changed = change(record.clone());
                Ok(NodeChange::of_record(&record, &changed)?)
            })
            .await?;
        self.replace_node(amended);
        Ok(())
    }

    /// Writes to the Lease since when the node is being restored.
    /// If two nodes of a group are being restored, the one with the earlier time goes first.
    async fn queue(&self) -> Result<(), Error> {
        self.amend_node(|node| {
            self.check_claim(node)?;
            let is_queued = node.restoring_since().is_some();
            Ok((!is_queued).then(|| NodeChange::new().restoring(self.now())))
        })
        .await
        .map(|_| ())
    }

    /// Makes the last write on the Node of a stopped instance, which its own execution was refused.
    async fn retire_if_stopped(&self) -> Result<(), Error> {
        if self.instance.as_ref().and_then(Instance::stopped_at).is_none() {
            return Ok(());
        }
        self.amend_node(|node| {
            self.check_claim(node)?;
            Ok(kubernetes::retire_stopped(node, &self.id)?)
        })
        .await
        .map(|_| ())
    }

    /// Returns this execution's claim; None if no claim is left. Another execution's claim is an error.
    pub(crate) fn check_claim(&self, node: &NodeFacts) -> Result<Option<Claim>, Error> {
        if node.claim().is_none() {
            return Ok(None);
        }
        // No claim is more urgent than this, so that a lost claim is always `ClaimLost`. By that name the sweep's state machine recognizes
        // that there is nothing to restore. An execution ends with the error that led to its restore.
        Ok(Some(kubernetes::check_claim(
            node,
            &self.me,
            Urgency::Interruption,
        )?))
    }

    /// Removes the claim and its marks from the Lease and the Node. Returns the Node as it is then; None if there is no Node or the cluster
    /// could not be read.
    pub(crate) async fn release(&self, annotations: &[&str]) -> Result<Option<NodeFacts>, Error> {
        let always = [
            CLAIM_ANNOTATION,
            PROGRESS_ANNOTATION,
            RESTORING_ANNOTATION,
            DRAIN_UNTIL_ANNOTATION,
        ];
        let keys: Vec<&str> = always.iter().chain(annotations).copied().collect();
        if let Some((client, lease)) = self.lease_without_node().filter(|_| self.owns_claim()) {
            kubernetes::forget_without_node(client, lease, &keys).await?;
        }
        self.amend_node(|node| {
            // A claim that is left on the Node alone is a copy.
            if self.check_claim(node)?.is_none() && node.shows_claim() {
                return Ok(None);
            }
            let change = keys
                .iter()
                .fold(NodeChange::new(), |change, key| change.remove_annotation(key));
            // A member on its way into service is unprotected later, by a sweep that finds the record.
            let remainder = node.record().ok().and_then(|record| record.remainder());
            match remainder.filter(|_| annotations.contains(&RECORD_ANNOTATION)) {
                Some(remainder) => Ok(Some(change.record(&remainder)?)),
                None => Ok(Some(change)),
            }
        })
        .await
    }

    fn lease_without_node(&self) -> Option<(&kube::Client, &Lease)> {
        let cluster = self.cluster.as_ref().ok()?;
        let lease = cluster.lease.as_ref().filter(|_| cluster.node.is_none())?;
        Some((&cluster.client, lease))
    }

    /// Returns the Lease if it is written without the Node: there is none, or the instance is gone, which a sweep does not claim.
    fn lease_alone(&self) -> Option<(&kube::Client, &Lease)> {
        let cluster = self.cluster.as_ref().ok()?;
        let lease = cluster.lease.as_ref()?;
        let is_left = self.request.leftover.is_some() && self.is_going();
        let is_own = cluster.node.is_none() && self.owns_claim();
        (is_left || is_own).then_some((&cluster.client, lease))
    }

    /// Ends the Lease of an instance that is gone.
    async fn forget_gone(&self) -> Result<(), Error> {
        match &self.cluster {
            Ok(Cluster {
                client,
                lease: Some(lease),
                ..
            }) if self.is_gone() => Ok(kubernetes::end_lease(client, lease).await?),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

pub(crate) fn ignore_refusal(error: Error) -> Result<(), Error> {
    if error.failure() == Failure::ServiceRefused {
        Ok(())
    } else {
        Err(error)
    }
}

/// Checks whether the execution ended by another error than the drain's time-out.
fn may_be_tried_again(request: &RestoreRequest) -> bool {
    let failure = request.failure.as_ref();
    failure.is_some_and(|failure| failure.error != Failure::DrainTimedOut.name())
}

#[cfg(test)]
mod tests {
    use recycle::records::restore_log::GroupChanges;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, OLD, claim, facts, facts_in, id, request};

    fn step(aws: &ScriptedAws) -> RestoreNode {
        RestoreNode::new(&aws.config(), &"world".parse().unwrap())
    }

    async fn take(aws: &ScriptedAws, facts: &mut FetchedFacts, step_to_take: RestoreStep) -> Answered {
        step(aws).take(facts, step_to_take).await
    }

    fn released() -> ScriptedKube {
        ScriptedKube::new().on(
            "PATCH",
            NODE,
            200,
            json!({"metadata": {"name": "node-a", "resourceVersion": "8"}, "spec": {}}),
        )
    }

    #[tokio::test]
    async fn each_change_of_the_group_is_recorded_before_its_call() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        let aws = ScriptedAws::new().on("CreateTags", "").on("ExitStandby", "");
        take(&aws, &mut facts, RestoreStep::ExitStandby { from: 2 })
            .await
            .unwrap();
        assert_eq!(aws.actions(), ["CreateTags", "ExitStandby"]);
        assert!(aws.calls()[0].contains("exit%3A2"), "{}", aws.calls()[0]);

        let described = "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
                         <MaxSize>4</MaxSize><DesiredCapacity>3</DesiredCapacity></member></AutoScalingGroups>";
        let read = "DescribeAutoScalingGroups";
        let aws = ScriptedAws::new()
            .on(read, described)
            .on("CreateTags", "")
            .on("SetDesiredCapacity", "");
        take(&aws, &mut facts, RestoreStep::Lower { from: 3 })
            .await
            .unwrap();
        assert_eq!(aws.actions(), [read, "CreateTags", "SetDesiredCapacity"]);
        assert!(aws.calls()[2].contains("DesiredCapacity=2"), "{}", aws.calls()[2]);
        // Another execution has lowered it meanwhile.
        let aws = ScriptedAws::new().on(read, described);
        let lowered = take(&aws, &mut facts, RestoreStep::Lower { from: 4 }).await;
        assert!(lowered.unwrap().reason.contains("has just changed"));
        assert_eq!(aws.actions(), [read]);

        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("TerminateInstanceInAutoScalingGroup", "")
            .on("DescribeLifecycleHooks", "<LifecycleHooks/>");
        take(&aws, &mut facts, RestoreStep::TerminateReplacement(id()))
            .await
            .unwrap();
        assert!(
            aws.calls()[1].contains("ShouldDecrementDesiredCapacity=true"),
            "{}",
            aws.calls()[1]
        );

        let aws = ScriptedAws::new().breaks_on("CreateTags");
        take(&aws, &mut facts, RestoreStep::ExitStandby { from: 2 })
            .await
            .unwrap_err();
        assert_eq!(aws.actions(), ["CreateTags"]);
    }

    #[tokio::test]
    async fn members_are_recorded_before_they_are_protected_and_until_they_are_not() {
        let kube = ScriptedKube::new();
        let mut facts = facts_in(&kube, Some(claim("one")), Some(claim("one")));
        let aws = ScriptedAws::new().breaks_on("CreateTags");
        take(&aws, &mut facts, RestoreStep::Protect(vec![id()]))
            .await
            .unwrap_err();
        let written = kube.lease(OLD)[RECORD_ANNOTATION].to_string();
        assert!(written.contains(OLD), "{written}");
        assert_eq!(facts.find_protected(), [id()]);

        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("SetInstanceProtection", "");
        let answer = take(&aws, &mut facts, RestoreStep::Protect(vec![id()]))
            .await
            .unwrap();
        assert_eq!(aws.actions(), ["CreateTags", "SetInstanceProtection"]);
        assert!(
            aws.calls()[0].contains("recycle-eks%3Aprotected-for"),
            "{}",
            aws.calls()[0]
        );
        assert!(serde_json::to_value(&answer).unwrap().get("protected").is_none());

        let tagged = "<reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><instanceState>\
            <name>running</name></instanceState></item></instancesSet></item></reservationSet>";
        let aws = ScriptedAws::new()
            .on("SetInstanceProtection", "")
            .on("DescribeInstances", tagged)
            .on("DeleteTags", "");
        take(&aws, &mut facts, RestoreStep::Unprotect(vec![id()]))
            .await
            .unwrap();
        assert_eq!(
            aws.actions(),
            ["SetInstanceProtection", "DescribeInstances", "DeleteTags"]
        );
        assert!(
            aws.calls()[0].contains("ProtectedFromScaleIn=false"),
            "{}",
            aws.calls()[0]
        );
        assert!(
            aws.calls()[1].contains("kubernetes.io%2Fcluster%2Fworld"),
            "{}",
            aws.calls()[1]
        );
        assert!(facts.find_protected().is_empty());
    }

    #[tokio::test]
    async fn a_sweep_clears_the_record_of_an_instance_that_is_gone_and_that_it_does_not_claim() {
        for has_node in [false, true] {
            let kube = ScriptedKube::new();
            let mut facts = facts_in(&kube, Some(claim("two")), None);
            (facts.instance, facts.group) = (None, None);
            facts.request.leftover =
                serde_json::from_value(json!({"instance_id": OLD, "cluster_name": "world"})).unwrap();
            if let Ok(cluster) = &mut facts.cluster {
                let record = Record::default().protecting(&[id()]);
                let text = serde_json::to_string(&record).unwrap();
                let lease = cluster.lease.as_mut().unwrap();
                lease.annotations.insert(RECORD_ANNOTATION.to_owned(), text);
                cluster.node = cluster.node.take().filter(|_| has_node);
            }
            let aws = ScriptedAws::new().on("DescribeInstances", "<reservationSet/>");
            take(&aws, &mut facts, RestoreStep::Unprotect(vec![id()]))
                .await
                .unwrap();
            assert!(facts.find_protected().is_empty(), "{has_node}");
        }
    }

    #[tokio::test]
    async fn the_lease_of_an_instance_that_ec2_does_not_know_stays_while_its_node_is_there() {
        for has_node in [true, false] {
            let kube = ScriptedKube::new();
            let mut facts = facts_in(&kube, Some(claim("two")), None);
            (facts.instance, facts.group) = (None, None);
            facts.request.leftover =
                serde_json::from_value(json!({"instance_id": OLD, "cluster_name": "world"})).unwrap();
            take(&ScriptedAws::new(), &mut facts, RestoreStep::Protect(vec![id()]))
                .await
                .unwrap_err();
            assert_ne!(kube.lease(OLD), json!(null));
            let cluster = facts.cluster.as_mut().unwrap();
            cluster.node = cluster.node.take().filter(|_| has_node);
            take(&ScriptedAws::new(), &mut facts, RestoreStep::Report(None))
                .await
                .unwrap();
            assert_eq!(kube.lease(OLD) != json!(null), has_node);
        }
    }

    #[tokio::test]
    async fn without_a_record_the_state_of_the_restore_names_the_protected_members() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        facts.cluster = Err("away".to_owned());
        let aws = ScriptedAws::new();
        let answer = take(&aws, &mut facts, RestoreStep::Protect(vec![id()]))
            .await
            .unwrap();
        assert_eq!(serde_json::to_value(&answer).unwrap()["protected"], json!([OLD]));
        assert!(aws.actions().is_empty(), "{:?}", aws.actions());
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("SetInstanceProtection", "");
        let answer = take(&aws, &mut facts, RestoreStep::Protect(vec![id()]))
            .await
            .unwrap();
        assert_eq!(serde_json::to_value(&answer).unwrap()["protected"], json!([OLD]));
        assert_eq!(aws.actions(), ["CreateTags", "SetInstanceProtection"]);
        let aws = ScriptedAws::new()
            .on("SetInstanceProtection", "")
            .on("DescribeInstances", "<reservationSet/>");
        let answer = take(&aws, &mut facts, RestoreStep::Unprotect(vec![id()]))
            .await
            .unwrap();
        assert!(serde_json::to_value(&answer).unwrap().get("protected").is_none());
    }

    #[tokio::test]
    async fn the_record_stays_while_it_names_protected_members() {
        let kube = released();
        let mut facts = facts_in(&kube, Some(claim("one")), Some(claim("one")));
        let record = json!({"schema": 1, "desired_before": 2, "protected": [OLD]}).to_string();
        if let Ok(cluster) = &mut facts.cluster {
            let lease = cluster.node.as_mut().unwrap().lease.as_mut().unwrap();
            lease.annotations.insert(RECORD_ANNOTATION.to_owned(), record);
        }
        step(&ScriptedAws::new().on("DeleteTags", ""))
            .finish(&facts, None)
            .await
            .unwrap();
        let written = &kube.lease(OLD)[RECORD_ANNOTATION];
        let left: Record = serde_json::from_str(written.as_str().unwrap()).unwrap();
        assert_eq!(
            (left.protected.as_slice(), left.desired_before),
            (&[id()][..], None)
        );
    }

    #[tokio::test]
    async fn a_second_change_is_recorded_behind_the_first() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        facts.group_changes = GroupChanges::default().with(GroupChange::Lower(2));
        let aws = ScriptedAws::new().on("CreateTags", "").on("ExitStandby", "");
        take(&aws, &mut facts, RestoreStep::ExitStandby { from: 1 })
            .await
            .unwrap();
        assert!(
            aws.calls()[0].contains("lower%3A2%20exit%3A1"),
            "{}",
            aws.calls()[0]
        );
    }

    #[tokio::test]
    async fn the_claim_is_removed_last_from_the_node_and_then_from_the_instance() {
        let kube = released();
        let aws = ScriptedAws::new().on("DeleteTags", "");
        let mut facts = facts_in(&kube, Some(claim("one")), Some(claim("one")));
        facts.request = request(Some(60));
        let answer = step(&aws).finish(&facts, None).await.unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::Restored);
        assert_eq!(
            answer.reason,
            format!("two pods are left\nThe node was restored: node node-a ({OLD}) is in service.")
        );
        let metadata = &kube.calls()[0].body["metadata"];
        for annotation in [CLAIM_ANNOTATION, RECORD_ANNOTATION, PROGRESS_ANNOTATION] {
            assert_eq!(
                metadata["annotations"].get(annotation),
                Some(&json!(null)),
                "{annotation}"
            );
        }
        assert_eq!(metadata["resourceVersion"], "7");
        for tag in ["claim", "group", "standby", "restore-log"] {
            assert!(
                aws.calls()[0].contains(&format!("recycle-eks%3A{tag}")),
                "{}",
                aws.calls()[0]
            );
        }
    }

    #[tokio::test]
    async fn a_restore_without_changes_answers_untouched() {
        let aws = ScriptedAws::new().on("DeleteTags", "");
        let facts = facts_in(&released(), Some(claim("one")), Some(claim("one")));
        let answer = step(&aws).finish(&facts, None).await.unwrap();
        assert_eq!(
            (answer.verdict, answer.reason.as_str()),
            (RestoreVerdict::Untouched, "two pods are left")
        );
    }

    #[tokio::test]
    async fn a_node_left_in_standby_keeps_the_records_for_another_execution() {
        let kube = released();
        let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
        let mut facts = facts_in(&kube, Some(claim("one")), Some(claim("one")));
        facts.request = request(Some(60));
        let answer = step(&aws)
            .leave_in_standby(&mut facts, &Stuck::AtMaximum)
            .await
            .unwrap();
        assert_eq!(answer.verdict, RestoreVerdict::LeftInStandby);
        assert!(
            answer.reason.starts_with(
                "DrainTimedOut: two pods are left\nThe node stays in Standby: group workers has"
            ),
            "{}",
            answer.reason
        );
        let annotations = &kube.calls()[0].body["metadata"]["annotations"];
        assert_eq!(annotations.get(RECORD_ANNOTATION), None);
        assert!(aws.calls()[0].contains("gave-up"), "{}", aws.calls()[0]);
        assert!(!aws.calls()[1].contains("standby"), "{}", aws.calls()[1]);
    }

    #[tokio::test]
    async fn a_claim_that_another_execution_took_in_between_is_left_alone() {
        let theirs = serde_json::to_string(&claim("two")).unwrap();
        let kube = ScriptedKube::new()
            .refuses("PATCH", NODE, 409, "Conflict", "the object has been modified")
            .on(
                "GET",
                NODE,
                200,
                json!({"metadata": {"name": "node-a", "resourceVersion": "8", "annotations": {CLAIM_ANNOTATION: theirs}},
                    "spec": {"providerID": format!("aws:///eu-west-1a/{}", OLD)}}),
            );
        let aws = ScriptedAws::new();
        let facts = facts_in(&kube, Some(claim("one")), Some(claim("one")));
        let error = step(&aws).finish(&facts, None).await.unwrap_err();
        assert!(matches!(error, Error::ClaimLost(_)), "{error:?}");
        assert!(aws.calls().is_empty());
    }
}
