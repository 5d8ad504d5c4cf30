//! Fetches the facts of a restore: the node, its instance, and its group. They are read again for every step.

use jiff::Timestamp;
use kubernetes::NodeChange;
use recycle::answer::envelope::{Answer, RestoreBody};
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::{Fence, GroupName, InstanceId};
use recycle::base::names::{CLAIM_TAG, GROUP_TAG, RESTORE_LOG_TAG};
use recycle::cluster::group::{Group, Member};
use recycle::cluster::hook::is_held;
use recycle::cluster::instance::{Instance, describe_instance};
use recycle::cluster::node::{NodeFacts, draining_taint, has_entered_standby};
use recycle::contract::requests::RestoreRequest;
use recycle::contract::verdicts::RestoreVerdict;
use recycle::drain::lost::{LOST_AFTER, find_loss};
use recycle::input::urgency::Urgency;
use recycle::records::claim::{StoredClaim, holds_claim};
use recycle::records::lease::Lease;
use recycle::records::node_record::Record;
use recycle::records::restore_log::GroupChanges;
use recycle::restore::facts::{KubernetesHalf, RestoreFacts};
use recycle::restore::manual_commands::{ManualCommands, describe_manual_commands};
use recycle::restore::next_step::next_restore_step;
use recycle::restore::step::RestoreStep;
use recycle::restore::sweep::{OWN_TAGS, is_result};
use recycle::restore::undo::undo_kubernetes;

use crate::cluster::Cluster;
use crate::records::remove_false_stop;
use crate::request::{LONGEST_WHY, describe_protected, find_reason, name_reason, write_report};
use crate::{Error, RestoreNode};

pub(crate) struct FetchedFacts {
    pub(crate) id: InstanceId,
    pub(crate) me: Fence,
    pub(crate) request: RestoreRequest,
    pub(crate) instance: Option<Instance>,
    /// The cluster, or why it could not be read.
    pub(crate) cluster: Result<Cluster, String>,
    // `fetch_group_facts` reads the fields from here on.
    pub(crate) group: Option<Group>,
    pub(crate) group_changes: GroupChanges,
    /// The instances that recycle-eks protects from scale-in because of this one.
    protected: Vec<InstanceId>,
    /// Seconds without Ready after which the node counts as lost.
    lost_after: u32,
}

impl RestoreNode {
    /// Reads the instance and the Node, and with them the claim.
    /// A cluster that does not answer is left out, because the restore in AWS does not need it.
    pub(crate) async fn fetch_facts(
        &self,
        id: InstanceId,
        request: RestoreRequest,
    ) -> Result<FetchedFacts, Error> {
        let mut instance = self.instances.fetch(&id).await?;
        let cluster = self.open(&id, instance.as_ref()).await;
        let cluster = cluster.map_err(|error| with_causes(&error));
        if let Some(instance) = &mut instance {
            remove_false_stop(instance, cluster.as_ref());
        }
        Ok(FetchedFacts::new(id, request, instance, cluster))
    }

    async fn open(&self, id: &InstanceId, instance: Option<&Instance>) -> Result<Cluster, Error> {
        let client = self.access.connect_anew().await?;
        let hint = instance.and_then(|instance| instance.private_dns_name.as_deref());
        let (node, lease) = kubernetes::find_node_and_lease(&client, id, hint).await?;
        Ok(Cluster {
            client,
            node,
            lease,
            new_members: None,
            marked: Vec::new(),
            raised_from: None,
            ahead: None,
        })
    }

    /// Reads the group, and the marks of a restore on its members.
    pub(crate) async fn fetch_group_facts(&self, facts: &mut FetchedFacts) -> Result<(), Error> {
        facts.protected = facts.find_protected();
        facts.group = self.fetch_group(facts).await?;
        facts.group_changes = facts.read_group_changes()?;
        if let Ok(cluster) = &mut facts.cluster {
            match cluster.fetch_group_nodes(&facts.id, facts.group.as_ref()).await {
                Ok(lost_after) => facts.lost_after = lost_after,
                // The restore goes on as if the cluster had not answered.
                Err(error) => facts.cluster = Err(with_causes(&error)),
            }
        }
        Ok(())
    }

    /// Fetches the group that lists the instance, or the group in which it was claimed.
    /// For a sweep, the last resort is the group of a member that is protected because of it.
    async fn fetch_group(&self, facts: &FetchedFacts) -> Result<Option<Group>, Error> {
        if let Some(found) = self.groups.find(&facts.id).await? {
            return Ok(Some(found));
        }
        if let Some(group) = facts.claimed_group() {
            return Ok(self.groups.fetch(&group).await?);
        }
        for member in facts
            .protected
            .iter()
            .filter(|_| facts.request.leftover.is_some())
        {
            if let Some(found) = self.groups.find(member).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl FetchedFacts {
    pub(crate) fn new(
        id: InstanceId,
        request: RestoreRequest,
        instance: Option<Instance>,
        cluster: Result<Cluster, String>,
    ) -> Self {
        Self {
            id,
            me: request.context.fence(),
            request,
            instance,
            cluster,
            group: None,
            group_changes: GroupChanges::default(),
            protected: Vec::new(),
            lost_after: LOST_AFTER,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.request.context.now()
    }

    /// Returns the start of the restore. At its first step, that is now.
    fn since(&self) -> Timestamp {
        self.request.restore.since.unwrap_or_else(|| self.now())
    }

    /// Returns the claim in the Lease. If the cluster cannot be read, returns the copy in the instance's tag. A principal that may write
    /// tags can thereby delay a restore, or let an execution go on that has lost its claim, but only as long as the cluster is away.
    pub(crate) fn claim(&self) -> Option<StoredClaim> {
        match &self.cluster {
            Ok(cluster) => cluster.lease.as_ref()?.claim(),
            Err(_) => self.instance.as_ref()?.claim(),
        }
    }

    /// Returns the group that the claim names, for an instance that no group lists.
    pub(crate) fn claimed_group(&self) -> Option<GroupName> {
        Some(self.claim()?.known()?.group)
    }

    /// Checks whether this execution holds the claim.
    pub(crate) fn owns_claim(&self) -> bool {
        holds_claim(self.claim().as_ref(), &self.me)
    }

    /// Checks whether to go on: this execution holds the claim, or an earlier attempt of the very last step removed the claim and its
    /// answer was lost. A redriven execution does not go on without its claim.
    pub(crate) fn may_go_on(&self) -> bool {
        let was_released = self.request.restore.since.is_some() && self.claim().is_none();
        self.owns_claim() || (was_released && self.me.redrive_count == 0)
    }

    /// Checks whether the instance is gone. While its Node is there, EC2's answer that it does not know the instance proves nothing.
    pub(crate) fn is_gone(&self) -> bool {
        let is_unknown = || self.node().is_none();
        self.instance.as_ref().map_or_else(is_unknown, Instance::is_gone)
    }

    /// Checks whether the instance is gone or leaving its group.
    pub(crate) fn is_going(&self) -> bool {
        let is_gone = self.instance.as_ref().is_none_or(Instance::is_gone);
        is_gone || self.member().is_some_and(Member::is_leaving)
    }

    /// Checks whether the instance was stopped or detached as asked. Its Node can show otherwise, so the cluster must have been read.
    pub(crate) fn is_result(&self) -> bool {
        let is_result = |instance| is_result(self.node(), instance, self.lifecycle_state());
        self.cluster.is_ok() && self.instance.as_ref().is_some_and(is_result)
    }

    fn member(&self) -> Option<&Member> {
        self.group.as_ref()?.member(&self.id)
    }

    /// Returns the member's state; None if no group lists the instance.
    fn lifecycle_state(&self) -> Option<&str> {
        self.group.as_ref()?.state_of(&self.id)
    }

    /// Checks whether the group still lists the instance and it is in Standby or entering it.
    pub(crate) fn is_in_standby(&self) -> bool {
        self.member().is_some_and(Member::is_in_standby)
    }

    /// Checks whether the group is terminating the instance, and holds it until its hook is completed.
    pub(crate) fn is_held(&self) -> bool {
        let is_there = self.instance.as_ref().is_some_and(|instance| !instance.is_gone());
        is_there && is_held(self.lifecycle_state())
    }

    /// Checks whether the group holds the member, and its claim was made for the hook or for a warning of EC2.
    /// No other execution ends such a member.
    pub(crate) fn is_held_and_urgent(&self) -> bool {
        let claim = self.claim().and_then(StoredClaim::known);
        self.is_held() && claim.is_some_and(|claim| claim.urgency > Urgency::Planned)
    }

    /// Checks whether the next step may be taken. A sweep always may. An execution without its claim may only repeat the end.
    pub(crate) fn may_act(&self) -> bool {
        self.request.leftover.is_some() || self.next_step().is_end() || self.owns_claim()
    }

    /// Returns the verdict. If a sweep would repeat a report that was made before it began, returns `Untouched`.
    pub(crate) fn report_once(&self, verdict: RestoreVerdict) -> RestoreVerdict {
        let was_reported = self.gave_up().is_some_and(|gave_up| gave_up.at < self.since());
        if self.request.leftover.is_some() && was_reported {
            RestoreVerdict::Untouched
        } else {
            verdict
        }
    }

    pub(crate) fn next_step(&self) -> RestoreStep {
        next_restore_step(&self.restore_facts())
    }

    pub(crate) fn has_time(&self) -> bool {
        self.restore_facts().has_time()
    }

    /// Returns the members that the record names as protected, and those that this restore has protected without a record.
    pub(crate) fn find_protected(&self) -> Vec<InstanceId> {
        let record = self.record();
        record.protecting(&self.request.restore.protected).protected
    }

    /// Returns the record in the Lease; an empty one if there is none, or it cannot be read.
    pub(crate) fn record(&self) -> Record {
        let cluster = self.cluster.as_ref().ok();
        let lease = cluster.and_then(|cluster| cluster.lease.as_ref());
        lease.and_then(|lease| lease.record().ok()).unwrap_or_default()
    }

    pub(crate) fn restore_facts(&self) -> RestoreFacts<'_> {
        let cluster = self.cluster.as_ref().ok();
        RestoreFacts {
            id: &self.id,
            instance: self.instance.as_ref(),
            group: self.group.as_ref(),
            kubernetes: self.kubernetes_half(),
            has_entered_standby: has_entered_standby(self.node(), self.instance.as_ref()),
            raised_from: cluster.and_then(|cluster| cluster.raised_from),
            is_lost: self.is_lost(),
            new_members: cluster.and_then(|cluster| cluster.new_members.as_deref()),
            marked: cluster.map_or(&[], |cluster| cluster.marked.as_slice()),
            restoring_since: cluster.and_then(|cluster| cluster.lease.as_ref()?.restoring_since()),
            ahead: cluster.and_then(|cluster| cluster.ahead.as_ref()),
            protected: &self.protected,
            group_changes: &self.group_changes,
            waited: self.now().duration_since(self.since()).as_secs(),
            steps: self.request.restore.steps,
        }
    }

    /// Checks whether the Node has not been Ready for too long. A missing Node is [`KubernetesHalf::Vanished`] instead.
    fn is_lost(&self) -> bool {
        self.node()
            .is_some_and(|node| find_loss(Some(node), self.lost_after, self.now()).is_some())
    }

    fn kubernetes_half(&self) -> KubernetesHalf {
        let Ok(cluster) = &self.cluster else {
            return KubernetesHalf::Unseen;
        };
        let Some(node) = &cluster.node else {
            return KubernetesHalf::Vanished;
        };
        // Everything that keeps pods from a stopped instance's Node stays. Its execution was refused the last write, and `report` makes it.
        let stopped_at = self.instance.as_ref().and_then(Instance::stopped_at);
        let is_kept = stopped_at.is_some() && self.is_result();
        let undo = undo_kubernetes(node, &draining_taint(&self.id), self.is_in_standby());
        match undo.filter(|_| !is_kept) {
            Some(undo) if undo.has_to_be_done(node, self.request.restore.steps) => KubernetesHalf::Undo,
            Some(_) | None => KubernetesHalf::Clean,
        }
    }

    /// Returns the Node, if there is one and the cluster could be read.
    pub(crate) fn node(&self) -> Option<&NodeFacts> {
        self.cluster.as_ref().ok()?.node.as_ref()
    }

    /// Changes the Node, if there is one and the cluster could be read. Returns the Node as it is then.
    pub(crate) async fn amend_node(
        &self,
        decide: impl Fn(&NodeFacts) -> Result<Option<NodeChange>, Error>,
    ) -> Result<Option<NodeFacts>, Error> {
        let (Ok(cluster), Some(node)) = (&self.cluster, self.node()) else {
            return Ok(None);
        };
        let amended = kubernetes::amend_node(&cluster.client, node.clone(), decide).await?;
        Ok(Some(amended))
    }

    pub(crate) fn group_name(&self) -> Result<&GroupName, Error> {
        let group = self.group.as_ref().map(|group| &group.name);
        group.ok_or_else(|| Error::NoGroup(self.describe_state("is no longer in a group")))
    }

    pub(crate) fn describe_state(&self, state: &str) -> String {
        let subject = describe_instance(&self.id, self.node().map(|node| &node.name));
        format!("{subject} {state}")
    }

    pub(crate) fn wait(&self, seconds: u32, reason: &str) -> Answer<RestoreVerdict> {
        let body = RestoreBody::Step {
            since: self.since(),
            steps: self.request.restore.steps.saturating_add(1),
            protected: self.request.restore.protected.clone(),
            owner: self.request.restore.owner.clone(),
        };
        Answer::new(RestoreVerdict::Wait, reason)
            .waiting(seconds)
            .with(body)
    }

    /// Replaces the Lease by the one after a change, for an instance that has no Node.
    pub(crate) fn replace_lease(&mut self, lease: Option<Lease>) {
        if let Ok(cluster) = &mut self.cluster {
            cluster.lease = lease;
        }
    }

    /// Replaces the Node by the one after a change, so that the report describes it as it is now.
    pub(crate) fn replace_node(&mut self, node: Option<NodeFacts>) {
        if let (Ok(cluster), Some(node)) = (&mut self.cluster, node) {
            cluster.lease.clone_from(&node.lease);
            cluster.node = Some(node);
        }
    }

    /// Removes the claim from these facts after it was removed, so that the report needs no second read.
    pub(crate) fn forget_claim(&mut self, node: Option<NodeFacts>) {
        self.replace_node(node);
        if let Some(instance) = &mut self.instance {
            for tag in [CLAIM_TAG, GROUP_TAG, RESTORE_LOG_TAG] {
                instance.tags.remove(tag);
            }
        }
    }

    pub(crate) fn find_manual_commands(&self) -> ManualCommands {
        describe_manual_commands(
            &self.id,
            self.group.as_ref(),
            self.lifecycle_state(),
            self.instance.as_ref(),
            None,
            self.node(),
            self.is_lost() || matches!(&self.cluster, Ok(cluster) if cluster.node.is_none()),
        )
    }

    /// Returns the answer that reports the state of the node and the manual commands.
    pub(crate) fn answer_with_manual_commands(
        &self,
        verdict: RestoreVerdict,
        note: Option<String>,
    ) -> Answer<RestoreVerdict> {
        let mut manual = self.find_manual_commands();
        if let Some(note) = note {
            manual.state = format!("{}; {note}", manual.state);
        }
        let report = write_report(&find_reason(&self.request), "", &manual, self.cluster_error());
        self.build_last_answer(verdict, report)
    }

    /// Returns the error of the cluster, if it could not be read.
    fn cluster_error(&self) -> Option<&str> {
        self.cluster.as_ref().err().map(String::as_str)
    }

    /// Adds the state of the node to a refusal, for a sweep, which fails with it. Other errors stay as they are.
    pub(crate) fn add_state_to_error(&self, error: Error) -> Error {
        if error.failure() == Failure::ServiceRefused {
            Error::Left(self.find_manual_commands().state, Box::new(error))
        } else {
            error
        }
    }

    /// Returns the answer after a call was refused until the time was over: the state of the node and the manual commands.
    pub(crate) fn answer_refusal(&self, refusal: &Error) -> Answer<RestoreVerdict> {
        let (verdict, reason) = if self.is_in_standby() {
            (RestoreVerdict::LeftInStandby, name_reason(&self.request))
        } else {
            (RestoreVerdict::Kept, find_reason(&self.request))
        };
        let why: String = with_causes(refusal).chars().take(LONGEST_WHY).collect();
        let left = describe_protected(&self.protected, &self.request.restore.protected);
        let done = format!("The node is not restored: {why}.{left}");
        let manual = self.find_manual_commands();
        self.build_last_answer(
            verdict,
            write_report(&reason, &done, &manual, self.cluster_error()),
        )
    }

    /// Returns the answer for an instance that is gone or has ended as asked, after everything for it is removed from other members.
    pub(crate) fn answer_all_removed(&self) -> Answer<RestoreVerdict> {
        let is_tagged = |instance: &Instance| OWN_TAGS.iter().any(|tag| instance.tags.contains_key(*tag));
        let were_tags_removed = !self.is_going() && self.instance.as_ref().is_some_and(is_tagged);
        let verdict = if self.request.restore.since.is_some() || were_tags_removed {
            RestoreVerdict::Restored
        } else {
            RestoreVerdict::Untouched
        };
        let end = if self.is_going() {
            "is gone"
        } else {
            "has gone as asked"
        };
        let state = self.describe_state(&format!(
            "{end}, and nothing of recycle-eks remains on the members of its group"
        ));
        self.build_last_answer(verdict, format!("{}\n{state}.", find_reason(&self.request)))
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::fetch_new_members;
    use recycle::base::names::{EXCLUDE_FROM_BALANCERS_LABEL, RECORD_ANNOTATION, STANDBY_TAG, STOPPED_TAG};
    use recycle::records::claim::Claim;
    use scripted_kube::ScriptedKube;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{OLD, claim, facts, node};

    /// A new member without pods is terminated if it makes its group too large.
    #[tokio::test]
    async fn a_new_member_whose_node_cannot_be_read_counts_as_one_with_pods() {
        let item = |name: &str, instance: &str, taints: Value| {
            json!({
                "metadata": {"name": name, "resourceVersion": "1"},
                "spec": {"providerID": format!("aws:///eu-west-1a/{instance}"), "taints": taints},
            })
        };
        let forged = json!([{"key": "x", "effect": "NoSchedule", "timeAdded": "9999-12-31T23:59:59Z"}]);
        let items = [
            item("a", "i-00000001", json!([])),
            item("b", "i-00000002", forged),
        ];
        let kube = ScriptedKube::new()
            .on("GET", "/nodes?", 200, json!({"metadata": {}, "items": items}))
            .on("GET", "/pods?", 200, json!({"metadata": {}, "items": []}));
        let nodes = kubernetes::list_nodes(&kube.client()).await.unwrap();
        let members = ["i-00000001", "i-00000002", "i-00000003"].map(|instance| Member {
            instance: instance.parse().unwrap(),
            lifecycle_state: "InService".to_owned(),
            protected_from_scale_in: false,
        });
        let new_members = fetch_new_members(&kube.client(), members.iter().collect(), &nodes)
            .await
            .unwrap();
        let has_pods: Vec<bool> = new_members.iter().map(|new_member| new_member.has_pods).collect();
        assert_eq!(has_pods, [false, true, false]);
        assert_eq!(new_members[1].node, None);
    }

    #[tokio::test]
    async fn only_the_own_claim_in_the_lease_counts_unless_the_cluster_is_away() {
        let owns_claim = |on_node: Option<&str>, on_instance: Option<&str>| {
            facts(on_node.map(claim), on_instance.map(claim)).owns_claim()
        };
        assert!(!owns_claim(None, None));
        assert!(!owns_claim(Some("two"), Some("two")));
        assert!(!owns_claim(Some("two"), Some("one")));
        assert!(
            !owns_claim(None, Some("one")),
            "anyone with the permission writes a tag"
        );
        assert!(owns_claim(Some("one"), Some("one")));
        let mut unseen = facts(Some(claim("two")), Some(claim("one")));
        unseen.cluster = Err("away".to_owned());
        assert!(unseen.owns_claim());
    }

    /// The sweep's state machine recognizes by this name alone that there is nothing to restore.
    #[tokio::test]
    async fn a_claim_that_another_execution_took_is_lost_at_any_urgency() {
        let before = facts(None, None);
        for urgency in [
            Urgency::Planned,
            Urgency::Spot,
            Urgency::Hook,
            Urgency::Interruption,
        ] {
            let theirs = Claim {
                urgency,
                ..claim("two")
            };
            let error = before.check_claim(&node(Some(theirs))).unwrap_err();
            assert_eq!(error.failure(), Failure::ClaimLost, "{urgency}: {error}");
        }
    }

    #[tokio::test]
    async fn after_the_release_the_report_has_only_the_remaining_commands() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        if let Some(instance) = &mut facts.instance {
            instance
                .tags
                .insert(STANDBY_TAG.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        }
        let record = r#"{"schema": 1, "desired_before": 2}"#.to_owned();
        let mut released = node(None);
        let mut lease = node(Some(claim("one"))).lease.unwrap();
        lease.annotations = [(RECORD_ANNOTATION.to_owned(), record)].into();
        released.lease = Some(lease);
        released.labels = [(EXCLUDE_FROM_BALANCERS_LABEL.to_owned(), "theirs".to_owned())].into();
        facts.forget_claim(Some(released));
        let manual = facts.find_manual_commands();
        let (last, before) = manual.commands.split_last().unwrap();
        assert_eq!(
            *last,
            format!(
                "state_is InService && aws ec2 delete-tags --resources {OLD} --tags Key=recycle-eks:standby"
            )
        );
        let exit =
            format!("aws autoscaling exit-standby --auto-scaling-group-name workers --instance-ids {OLD}");
        assert!(before.contains(&exit), "{before:?}");
        assert!(
            !before.iter().any(|command| command.contains("recycle-eks/claim")),
            "{before:?}"
        );
    }

    #[tokio::test]
    async fn a_tag_makes_no_standby_and_no_protection_of_recycle_eks() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        let tags = &mut facts.instance.as_mut().unwrap().tags;
        tags.insert(STANDBY_TAG.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        assert_eq!(facts.next_step(), RestoreStep::Report(None));
        assert!(facts.find_protected().is_empty());
        facts.cluster = Err("away".to_owned());
        facts.request.restore.protected = vec![facts.id.clone()];
        assert!(facts.restore_facts().has_entered_standby);
        assert_eq!(facts.find_protected(), [facts.id.clone()]);
    }

    /// Cluster Autoscaler's annotation, the cordon and the taint stay until the last write of the instance's execution has been made.
    #[tokio::test]
    async fn the_marks_that_keep_pods_from_a_stopped_instance_are_not_undone() {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        let Cluster { node, .. } = facts.cluster.as_mut().unwrap();
        let node = node.as_mut().unwrap();
        node.taints = vec![draining_taint(&facts.id)];
        node.unschedulable = true;
        let instance = facts.instance.as_mut().unwrap();
        instance
            .tags
            .insert(STANDBY_TAG.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        assert_eq!(facts.next_step(), RestoreStep::UndoKubernetes);
        let instance = facts.instance.as_mut().unwrap();
        instance
            .tags
            .insert(STOPPED_TAG.to_owned(), "2027-01-01T05:00:00Z".to_owned());
        instance.state = "stopped".to_owned();
        assert_eq!(facts.next_step(), RestoreStep::Report(None));
    }
}
