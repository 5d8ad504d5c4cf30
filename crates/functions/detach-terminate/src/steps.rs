//! The steps of the disposal. Each step is recorded before the call that it makes.

use ec2::protection;
use futures::future::join;
use kubernetes::{NodeChange, Occasion};
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::InstanceId;
use recycle::base::names::{
    CLAIM_TAG, DETACHED_TAG, EXCLUDE_FROM_BALANCERS_LABEL, GAVE_UP_TAG, GROUP_TAG, RESTORE_LOG_TAG,
    STANDBY_TAG, STOPPED_TAG,
};
use recycle::cluster::group::Member;
use recycle::cluster::instance::Instance;
use recycle::cluster::node::{NodeFacts, out_of_service_taint};
use recycle::contract::verdicts::DisposeVerdict;
use recycle::disposal::next_step::describe_volumes_left;
use recycle::drain::lost::{Lost, describe_loss};
use recycle::input::model::Dispose;
use recycle::records::claim::{Claim, Phase};
use recycle::records::lease::Lease;
use recycle::records::node_record::Record;
use recycle::records::schema::SCHEMA;
use recycle::replacement::old_node::OldNode;
use recycle::restore::undo::EXCLUDED;

use crate::facts::FetchedFacts;
use crate::{AT_ONCE, Answered, DetachTerminate, Error};

impl DetachTerminate {
    /// Records the facts by which the replacement is recognized, before the instance is ended: in the run, and in the Lease for an execution
    /// that resumes. If an execution that no longer runs has ended the instance, the facts come from its record.
    pub(crate) async fn record_members(&self, mut facts: FetchedFacts) -> Answered {
        let members = if facts.lifecycle_state() == Some("InService") {
            let members = facts.group.iter().flat_map(|group| &group.members);
            let members: Vec<InstanceId> = members.map(|member| member.instance.clone()).collect();
            self.record(&facts, |node| {
                let record = Record {
                    schema: SCHEMA,
                    members_before: members.clone(),
                    ..node.record()?
                };
                Ok(NodeChange::new().record(&record)?)
            })
            .await?;
            members
        } else {
            match &facts.lease {
                Some(lease) => lease.record()?.members_before,
                None => Vec::new(),
            }
        };
        let record = facts.lease.as_ref().map(Lease::record).transpose()?;
        let drivers = record.unwrap_or_default().drivers;
        let node = facts.node.clone().map(|node| node.with_drivers(drivers));
        facts.run.old = Some(OldNode::new(node.as_ref(), &members));
        let reason = "the members of its group are recorded, so that its replacement can be recognized";
        Ok(facts.wait(AT_ONCE, reason))
    }

    pub(crate) async fn leave_balancers(&self, facts: FetchedFacts, seconds: u32) -> Answered {
        self.record(&facts, |node| {
            let record = Record {
                excluded_at: Some(facts.now),
                excluded_before: node.labels.get(EXCLUDE_FROM_BALANCERS_LABEL).cloned(),
                ..node.record()?
            };
            Ok(NodeChange::new()
                .label(EXCLUDE_FROM_BALANCERS_LABEL, EXCLUDED)
                .record(&record)?)
        })
        .await?;
        Ok(facts.wait(seconds, "load balancers remove it"))
    }

    pub(crate) async fn terminate(&self, facts: FetchedFacts, seconds: u32) -> Answered {
        self.record_phase(&facts).await?;
        let called = self.groups.terminate(&facts.run.input.instance_id).await;
        self.await_termination(facts, called, "its group terminates it", seconds)
            .await
    }

    /// Terminates the instance together with its place in the group.
    pub(crate) async fn remove(&self, mut facts: FetchedFacts, seconds: u32) -> Answered {
        self.record_phase(&facts).await?;
        let called = self.groups.remove(&facts.run.input.instance_id).await;
        facts.run.gave_place_up |= called.is_ok();
        let what = "its group terminates it, and is as large as before";
        self.await_termination(facts, called, what, seconds).await
    }

    async fn await_termination(
        &self,
        facts: FetchedFacts,
        called: Result<(), ec2::Error>,
        what: &str,
        seconds: u32,
    ) -> Answered {
        match called {
            // An earlier attempt of the same call has taken effect, or the group was quicker.
            Err(ec2::Error::WrongState { .. }) if self.is_leaving(&facts).await? => {}
            called => called?,
        }
        let reason = with_attached_volumes(what, &facts);
        Ok(facts.wait(seconds, &reason))
    }

    /// Completes the hook of recycle-eks, even for a termination that recycle-eks has requested itself.
    /// The call names the instance, so that it needs no token.
    pub(crate) async fn complete_hook(&self, facts: FetchedFacts, seconds: u32) -> Answered {
        self.record_phase(&facts).await?;
        let id = &facts.run.input.instance_id;
        self.groups.complete_hook(&facts.run.group, id).await?;
        let reason = with_attached_volumes("the lifecycle hook of recycle-eks is completed", &facts);
        Ok(facts.wait(seconds, &reason))
    }

    pub(crate) async fn stop(&self, facts: FetchedFacts, seconds: u32) -> Answered {
        self.record_phase(&facts).await?;
        self.instances.stop(&facts.run.input.instance_id).await?;
        let reason = with_attached_volumes("it is being stopped", &facts);
        Ok(facts.wait(seconds, &reason))
    }

    /// Sets the out-of-service taint and keeps the other taints. Kubernetes removes this one together with the Node.
    pub(crate) async fn mark_out_of_service(&self, facts: FetchedFacts) -> Answered {
        self.record(&facts, |node| {
            let taints = node.taints.iter().cloned().chain([out_of_service_taint()]);
            Ok(NodeChange::new().taints(taints.collect()))
        })
        .await?;
        let reason = "its machine is off, so its Node is tainted to release its volumes";
        Ok(facts.wait(AT_ONCE, reason))
    }

    /// Protects the other members. The record names them first, because only those lose the protection again.
    pub(crate) async fn protect(&self, facts: FetchedFacts, members: &[InstanceId]) -> Answered {
        self.record(&facts, |node| {
            let record = node.record()?.protecting(members);
            Ok(NodeChange::new().record(&record)?)
        })
        .await?;
        if facts.node.is_none() {
            amend_record_alone(&facts, |record| record.protecting(members)).await?;
        }
        let (group, cause) = (&facts.run.group, &facts.run.input.instance_id);
        protection::protect(&self.groups, &self.instances, group, members, cause).await?;
        let count = members.len();
        let reason = format!("{count} members of its group are protected from scale-in until it has left");
        Ok(facts.wait(AT_ONCE, &reason))
    }

    pub(crate) async fn detach(&self, facts: FetchedFacts, seconds: u32) -> Answered {
        self.record_phase(&facts).await?;
        let id = &facts.run.input.instance_id;
        match self.groups.detach(&facts.run.group, id).await {
            Err(ec2::Error::WrongState { .. }) if self.is_leaving(&facts).await? => {}
            called => called?,
        }
        Ok(facts.wait(seconds, "it is being detached from its group"))
    }

    pub(crate) async fn unprotect(&self, facts: FetchedFacts, protected: &[InstanceId]) -> Answered {
        let (cluster, cause) = (self.access.name(), &facts.run.input.instance_id);
        let group = facts.group.as_ref();
        protection::unprotect(&self.groups, &self.instances, cluster, group, protected, cause).await?;
        if facts.node.is_none() && facts.lease.is_some() {
            amend_record_alone(&facts, |record| record.unprotecting(protected)).await?;
        }
        if let (Some(node), true) = (&facts.node, facts.claim.is_some()) {
            kubernetes::amend_node(&facts.client, node.clone(), |node| {
                facts.check_claim(node)?;
                let record = node.record()?;
                let changed = record.clone().unprotecting(protected);
                Ok::<_, Error>(NodeChange::of_record(&record, &changed)?)
            })
            .await?;
        }
        Ok(facts.wait(
            AT_ONCE,
            "the other members of its group are no longer protected from scale-in",
        ))
    }

    /// Finishes the disposal of a stopped or detached instance. The result tag comes first, to inform operators, and then the Node.
    /// The claim goes last, because it is what permits these steps.
    pub(crate) async fn retire(&self, facts: FetchedFacts) -> Answered {
        let is_stopped = facts.run.input.dispose == Dispose::Stop;
        let tag = if is_stopped { STOPPED_TAG } else { DETACHED_TAG };
        let id = &facts.run.input.instance_id;
        self.instances.tag(id, &[(tag, facts.now.to_string())]).await?;
        if let Some(node) = &facts.node {
            let amended = kubernetes::amend_node(&facts.client, node.clone(), |node| {
                let change = if is_stopped {
                    kubernetes::retire_stopped(node, id)?
                } else {
                    kubernetes::retire_detached(node, id)?
                };
                if change.is_some() {
                    facts.check_claim(node)?;
                }
                Ok::<_, Error>(change)
            });
            let amended = amended.await.map(|_| ());
            if is_stopped {
                leave_to_the_sweep(amended)?;
            } else {
                amended?;
            }
        }
        self.finish(facts).await
    }

    /// Ends the disposal, and allows Cluster Autoscaler to remove the replacement again. For a lost node the end is the error `NodeLost`.
    /// The claim ends with the instance, or with the disposal of one that stays. A terminated instance takes its tags with it. An instance that stays keeps only the tag of its result.
    pub(crate) async fn finish(&self, mut facts: FetchedFacts) -> Answered {
        let old = &facts.run.input.instance_id;
        leave_to_the_sweep(kubernetes::let_go_of_all(&facts.client, old).await)?;
        if let Some(lost) = &facts.run.lost {
            return Err(report_loss(&facts, lost).await);
        }
        let dispose = facts.run.input.dispose;
        let there = facts.instance.as_ref().filter(|instance| !instance.is_gone());
        let is_over = there.is_none() || dispose != Dispose::Terminate;
        if let Some(lease) = facts.lease.as_ref().filter(|_| is_over && facts.claim.is_some()) {
            leave_to_the_sweep(end_claim(&facts, lease).await)?;
        }
        if let Some(instance) = there.filter(|_| dispose != Dispose::Terminate) {
            let own_tags = [CLAIM_TAG, GROUP_TAG, STANDBY_TAG, RESTORE_LOG_TAG, GAVE_UP_TAG];
            let is_set = |tag: &&str| instance.tags.contains_key(*tag);
            let left: Vec<&str> = own_tags.into_iter().filter(is_set).collect();
            if !left.is_empty() {
                leave_to_the_sweep(self.instances.untag(&instance.id, &left).await)?;
            }
        }
        let outcome = match dispose {
            Dispose::Terminate | Dispose::Stop | Dispose::Detach if there.is_none() => {
                "is terminated".to_owned()
            }
            Dispose::Terminate => "is being terminated by its group".to_owned(),
            Dispose::Stop => "is stopped, and stays in Standby".to_owned(),
            Dispose::Detach => format!("has left group {}, and runs", facts.run.group),
        };
        let mut reason = facts.describe_with_pods(&outcome);
        if let Some(note) = facts.note_larger_group() {
            reason = format!("{reason}; {note}");
        }
        let verdict = match &facts.run.old {
            Some(old) if old.knows_members() => DisposeVerdict::AwaitReplacement,
            Some(_) => {
                reason = format!(
                    "{reason}; the disposal was begun by an execution that has ended, so its replacement is not known"
                );
                DisposeVerdict::Recycled
            }
            None => DisposeVerdict::Recycled,
        };
        // After the end no function asks which pods held the node.
        facts.run.drain.holders = None;
        let answer = Answer::new(verdict, reason).naming_ended(&facts.run);
        Ok(answer.carrying(facts.run))
    }

    async fn record_phase(&self, facts: &FetchedFacts) -> Result<(), Error> {
        self.record(facts, |_| Ok(NodeChange::new())).await
    }

    /// Writes the phase, and what else the step changes on the Node. Then writes the instance's tag.
    /// Without a claim nothing is written.
    async fn record(
        &self,
        facts: &FetchedFacts,
        change: impl Fn(&NodeFacts) -> Result<NodeChange, Error>,
    ) -> Result<(), Error> {
        let Some(claim) = facts.claim.clone() else {
            return Ok(());
        };
        let claim = Claim {
            phase: Phase::Disposing,
            ..claim
        };
        if let Some(node) = &facts.node {
            kubernetes::amend_node(&facts.client, node.clone(), |node| {
                let found = facts.check_claim(node)?;
                let change = change(node)?;
                if found == claim && change.is_empty() {
                    return Ok(None);
                }
                Ok::<_, Error>(Some(change.claim(&claim)?))
            })
            .await?;
        }
        let event = async {
            if facts.node.is_some() {
                let state = match facts.run.drain.ended_pods {
                    None => "is drained and leaves",
                    Some(_) => "leaves",
                };
                let text = facts.describe_with_pods(state);
                facts.record_event(Phase::Disposing, &text).await;
            }
        };
        let tag = claim.to_tag();
        let is_untagged = |instance: &&Instance| instance.tags.get(CLAIM_TAG) != Some(&tag);
        let tagging = async {
            match facts.instance.as_ref().filter(is_untagged) {
                Some(instance) => {
                    self.instances
                        .tag(&instance.id, &[(CLAIM_TAG, tag.clone())])
                        .await
                }
                None => Ok(()),
            }
        };
        let ((), tagged) = join(event, tagging).await;
        Ok(tagged?)
    }

    async fn is_leaving(&self, facts: &FetchedFacts) -> Result<bool, Error> {
        let group = self.groups.fetch(&facts.run.group).await?;
        let id = &facts.run.input.instance_id;
        let member = group.as_ref().and_then(|group| group.member(id));
        Ok(member.is_none_or(Member::is_leaving))
    }
}

/// Changes the record of an instance that has no Node. A Lease that an operator has deleted is created again, for the sweep.
async fn amend_record_alone(facts: &FetchedFacts, change: impl Fn(Record) -> Record) -> Result<(), Error> {
    let lease = facts.lease.as_ref();
    let record = lease.map_or_else(|| Ok(Record::default()), Lease::record)?;
    let id = &facts.run.input.instance_id;
    let change = NodeChange::new().record(&change(record))?;
    kubernetes::change_without_node(&facts.client, id, lease, &change).await?;
    Ok(())
}

/// Ends the Lease of an instance that is disposed of. A Lease that another client has changed or deleted stays.
async fn end_claim(facts: &FetchedFacts, lease: &Lease) -> Result<(), kubernetes::Error> {
    match kubernetes::end_lease(&facts.client, lease).await {
        Err(kubernetes::Error::Conflict { .. }) => Ok(()),
        deleted => deleted,
    }
}

async fn report_loss(facts: &FetchedFacts, lost: &Lost) -> Error {
    let state = facts.instance.as_ref().map(|instance| instance.state.as_str());
    let subject = facts.describe_state("").trim_end().to_owned();
    let text = describe_loss(&subject, lost, state, facts.run.drain.holders.as_ref());
    facts.record_event(Occasion::Lost, &text).await;
    Error::Ended(Failure::NodeLost, text)
}

fn with_attached_volumes(what: &str, facts: &FetchedFacts) -> String {
    match describe_volumes_left(facts.node.as_ref()) {
        Some(left) => format!("{what}, {left}"),
        None => what.to_owned(),
    }
}

/// Logs a refusal and goes on. The disposal is done, and the sweep removes the rest.
fn leave_to_the_sweep<E: Into<Error>>(tidied: Result<(), E>) -> Result<(), Error> {
    match tidied.map_err(Into::into) {
        Err(error) if error.failure() == Failure::ServiceRefused => {
            tracing::warn!(
                error = with_causes(&error),
                "tags or marks of recycle-eks remain, and the next sweep removes them"
            );
            Ok(())
        }
        tidied => tidied,
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::names::{CLAIM_ANNOTATION, RECORD_ANNOTATION};
    use recycle::cluster::node::detached_taint;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, facts, step, stored_node};

    fn kube() -> ScriptedKube {
        ScriptedKube::new()
            .on("PATCH", NODE, 200, stored_node(Phase::Disposing))
            .on("POST", "/events", 201, json!({}))
    }

    /// Adds an empty answer to the request for the Nodes that this execution protects from Cluster Autoscaler.
    fn with_no_kept_node(kube: ScriptedKube) -> ScriptedKube {
        kube.on("GET", "/api/v1/nodes?", 200, json!({"metadata": {}, "items": []}))
    }

    #[tokio::test]
    async fn the_phase_is_written_on_node_and_instance_before_the_end() {
        let kube = kube();
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("TerminateInstanceInAutoScalingGroup", "");
        let answer = step(&aws)
            .terminate(facts(&kube, "terminate", "running"), 30)
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
    async fn a_claim_that_is_lost_during_the_step_ends_no_instance() {
        let mut other = stored_node(Phase::Claimed);
        other["metadata"]["annotations"] = json!({});
        let kube = ScriptedKube::new()
            .refuses("PATCH", NODE, 409, "Conflict", "the object has been modified")
            .on("GET", NODE, 200, other);
        let aws = ScriptedAws::new();
        let error = step(&aws)
            .terminate(facts(&kube, "terminate", "running"), 30)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::ClaimLost(_)), "{error:?}");
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn a_member_that_is_already_leaving_is_no_error() {
        let no_group = "<AutoScalingGroups/>";
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .refuses(
                "TerminateInstanceInAutoScalingGroup",
                400,
                "ValidationError",
                "no managed instance found",
            )
            .on("DescribeAutoScalingGroups", no_group);
        let answer = step(&aws)
            .terminate(facts(&kube(), "terminate", "running"), 30)
            .await
            .unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Wait);
    }

    #[tokio::test]
    async fn the_label_is_set_together_with_the_record_of_its_earlier_value() {
        let kube = kube();
        let aws = ScriptedAws::new().on("CreateTags", "");
        step(&aws)
            .leave_balancers(facts(&kube, "terminate", "running"), 60)
            .await
            .unwrap();
        let metadata = &kube.calls()[0].body["metadata"];
        assert_eq!(metadata["labels"][EXCLUDE_FROM_BALANCERS_LABEL], "true");
        let lease = kube.lease(crate::fixtures::id().as_str());
        assert!(lease[RECORD_ANNOTATION].is_string(), "{lease}");
    }

    #[tokio::test]
    async fn a_stopped_instance_loses_its_claim_last() {
        let kept = json!({"metadata": {}, "items": [{
            "metadata": {
                "name": "new",
                "resourceVersion": "3",
                "labels": {"recycle-eks/kept-for": "i-0123456789abcdef0"},
                "annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
            },
            "spec": {},
        }]});
        let kube = ScriptedKube::new()
            .on("PATCH", NODE, 200, stored_node(Phase::Disposing))
            .on("GET", "/api/v1/nodes?", 200, kept)
            .on(
                "PATCH",
                "/api/v1/nodes/new",
                200,
                json!({"metadata": {"name": "new", "resourceVersion": "4"}, "spec": {}}),
            );
        let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
        let answer = step(&aws).retire(facts(&kube, "stop", "stopped")).await.unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Recycled);
        assert_eq!(aws.actions(), ["CreateTags", "DeleteTags"]);
        assert_eq!(
            kube.requests(),
            [
                format!("PATCH {NODE}"),
                "GET /api/v1/nodes".to_owned(),
                "PATCH /api/v1/nodes/new".to_owned()
            ]
        );
        let retired = &kube.calls()[0].body;
        assert_eq!(
            retired["spec"]["taints"],
            json!([
                {"key": "recycle-eks/stopped", "value": crate::fixtures::id(), "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/out-of-service", "value": "recycle-eks", "effect": "NoExecute"},
            ])
        );
        let annotations = &retired["metadata"]["annotations"];
        assert_eq!(
            (
                &annotations[CLAIM_ANNOTATION],
                &annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"]
            ),
            (&json!(null), &json!("true"))
        );
        let released = &kube.calls()[2].body["metadata"];
        assert_eq!(
            (
                &released["labels"]["recycle-eks/kept-for"],
                &released["annotations"]["cluster-autoscaler.kubernetes.io/scale-down-disabled"]
            ),
            (&json!(null), &json!(null))
        );
        assert!(
            released["labels"]
                .as_object()
                .unwrap()
                .contains_key("recycle-eks/kept-for"),
            "{released}"
        );

        let kube = ScriptedKube::new()
            .refuses("PATCH", NODE, 403, "Forbidden", "no")
            .refuses("GET", "/api/v1/nodes?", 403, "Forbidden", "no");
        let aws =
            ScriptedAws::new()
                .on("CreateTags", "")
                .refuses("DeleteTags", 403, "UnauthorizedOperation", "no");
        let answer = step(&aws).retire(facts(&kube, "stop", "stopped")).await.unwrap();
        assert_eq!(
            answer.verdict,
            DisposeVerdict::Recycled,
            "the sweep does the rest"
        );
        assert_eq!(aws.actions(), ["CreateTags", "DeleteTags"]);

        let kube = ScriptedKube::new().breaks_on("PATCH", NODE);
        let aws = ScriptedAws::new().on("CreateTags", "");
        step(&aws)
            .retire(facts(&kube, "stop", "stopped"))
            .await
            .unwrap_err();
        assert_eq!(aws.actions(), ["CreateTags"]);
    }

    #[tokio::test]
    async fn a_detached_instance_keeps_its_tainted_node_and_loses_its_claim_last() {
        let kube = with_no_kept_node(kube());
        let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
        let answer = step(&aws)
            .retire(facts(&kube, "detach", "running"))
            .await
            .unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Recycled);
        assert_eq!(aws.actions(), ["CreateTags", "DeleteTags"]);
        assert!(
            aws.calls()[0].contains("recycle-eks%3Adetached"),
            "{}",
            aws.calls()[0]
        );
        let body = &kube.calls()[0].body;
        assert_eq!(
            body["spec"],
            json!({"taints": [{"key": "recycle-eks/detached", "value": crate::fixtures::id(), "effect": "NoSchedule"}]})
        );
        assert_eq!(body["metadata"]["annotations"][CLAIM_ANNOTATION], json!(null));

        // The earlier call was killed before the tags were removed. The Node shows that its part was done.
        let mut done = facts(&with_no_kept_node(ScriptedKube::new()), "detach", "running");
        let node = done.node.as_mut().unwrap();
        node.annotations.clear();
        node.lease = None;
        node.taints = vec![detached_taint(&crate::fixtures::id())];
        let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
        step(&aws).retire(done).await.unwrap();
        assert_eq!(aws.actions(), ["CreateTags", "DeleteTags"]);
    }

    #[tokio::test]
    async fn members_are_recorded_and_tagged_before_they_are_protected_and_untagged_afterwards() {
        let others = [crate::fixtures::OTHER.parse().unwrap()];
        let kube = kube();
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("CreateTags", "")
            .on("SetInstanceProtection", "");
        step(&aws)
            .protect(facts(&kube, "detach", "running"), &others)
            .await
            .unwrap();
        assert_eq!(
            aws.actions(),
            ["CreateTags", "CreateTags", "SetInstanceProtection"]
        );
        let written = kube.lease(crate::fixtures::id().as_str())[RECORD_ANNOTATION].to_string();
        assert!(written.contains(crate::fixtures::OTHER), "{written}");
        assert!(aws.calls()[1].contains("protected-for"), "{}", aws.calls()[1]);

        let tagged = "<reservationSet><item><instancesSet><item><instanceId>i-0bbbbbbbbbbbbbbbb</instanceId><instanceState>\
            <name>running</name></instanceState></item></instancesSet></item></reservationSet>";
        let aws = ScriptedAws::new()
            .on("SetInstanceProtection", "")
            .on("DescribeInstances", tagged)
            .on("DeleteTags", "");
        let mut facts = facts(&kube, "detach", "running");
        let node = facts.node.as_mut().unwrap();
        node.lease.as_mut().unwrap().annotations.insert(
            RECORD_ANNOTATION.to_owned(),
            serde_json::to_string(&Record::default().protecting(&others)).unwrap(),
        );
        step(&aws).unprotect(facts, &others).await.unwrap();
        assert!(
            aws.calls()[0].contains("ProtectedFromScaleIn=false"),
            "{}",
            aws.calls()[0]
        );
        assert_eq!(
            aws.actions(),
            ["SetInstanceProtection", "DescribeInstances", "DeleteTags"]
        );
        let written = kube.lease(crate::fixtures::id().as_str())[RECORD_ANNOTATION].to_string();
        assert!(!written.contains(crate::fixtures::OTHER), "{written}");
    }

    #[tokio::test]
    async fn without_a_node_the_record_in_the_lease_names_the_members_before_they_are_protected() {
        let others: [InstanceId; 1] = [crate::fixtures::OTHER.parse().unwrap()];
        for has_lease in [true, false] {
            let kube = ScriptedKube::new();
            let mut facts = facts(&kube, "detach", "running");
            facts.node = None;
            facts.lease = facts.lease.filter(|_| has_lease);
            let aws = ScriptedAws::new().on("CreateTags", "").breaks_on("CreateTags");
            step(&aws).protect(facts, &others).await.unwrap_err();
            let written = kube.lease(crate::fixtures::id().as_str())[RECORD_ANNOTATION].to_string();
            assert!(written.contains(crate::fixtures::OTHER), "{written}");
        }
    }

    #[tokio::test]
    async fn without_a_node_the_record_in_the_lease_is_cleared() {
        let others: [InstanceId; 1] = [crate::fixtures::OTHER.parse().unwrap()];
        let kube = kube();
        let mut facts = facts(&kube, "detach", "running");
        facts.node = None;
        let record = Record::default().protecting(&others);
        let lease = facts.lease.as_mut().unwrap();
        let text = serde_json::to_string(&record).unwrap();
        lease.annotations.insert(RECORD_ANNOTATION.to_owned(), text);
        let aws = ScriptedAws::new()
            .on("SetInstanceProtection", "")
            .on("DescribeInstances", "<reservationSet/>");
        step(&aws).unprotect(facts, &others).await.unwrap();
        let written = kube.lease(crate::fixtures::id().as_str())[RECORD_ANNOTATION].to_string();
        assert!(!written.contains(crate::fixtures::OTHER), "{written}");
    }

    #[tokio::test]
    async fn the_out_of_service_taint_of_a_lost_node_keeps_the_other_taints() {
        let (kube, aws) = (kube(), ScriptedAws::new().on("CreateTags", ""));
        step(&aws)
            .mark_out_of_service(facts(&kube, "terminate", "stopped"))
            .await
            .unwrap();
        let taints = &kube.calls()[0].body["spec"]["taints"];
        assert_eq!(taints[0]["key"], "recycle-eks/draining");
        assert_eq!(
            taints[1],
            json!({"key": "node.kubernetes.io/out-of-service", "value": "recycle-eks", "effect": "NoExecute"})
        );
    }

    #[tokio::test]
    async fn a_lost_node_ends_with_an_error_and_an_event_that_name_its_pods() {
        let kube = with_no_kept_node(ScriptedKube::new()).on("POST", "/events", 201, json!({}));
        let mut facts = facts(&kube, "terminate", "terminated");
        facts.run.lost = recycle::drain::lost::find_loss(None, 0, facts.now);
        facts.run.drain.holders = Some(recycle::drain::lost::Holders {
            count: 1,
            names: vec!["jobs/train".to_owned()],
            seen_at: facts.now,
        });
        let error = step(&ScriptedAws::new()).finish(facts).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Ended(Failure::NodeLost, _)), "{error:?}");
        assert!(
            text.contains("its instance is terminated; lost with it: 1 pod (jobs/train)"),
            "{text}"
        );
        let event = &kube.calls()[1].body;
        assert_eq!(
            (&event["reason"], &event["type"]),
            (&json!("RecycleNodeLost"), &json!("Warning"))
        );
        assert_eq!(event["message"], json!(text));
    }

    fn after(kube: &ScriptedKube, lifecycle_state: &str) -> FetchedFacts {
        let mut facts = facts(kube, "terminate", "running");
        facts.run.path = recycle::input::path::RecyclePath::After;
        facts.group = Some(crate::fixtures::group(lifecycle_state));
        facts
    }

    #[tokio::test]
    async fn the_members_are_recorded_before_an_instance_that_is_replaced_afterwards() {
        let (kube, aws) = (kube(), ScriptedAws::new().on("CreateTags", ""));
        let answer = step(&aws)
            .record_members(after(&kube, "InService"))
            .await
            .unwrap();
        assert_eq!(
            (answer.verdict, answer.wait_seconds),
            (DisposeVerdict::Wait, AT_ONCE)
        );
        let run = answer.run.unwrap();
        assert!(run.old.as_ref().unwrap().knows_members());
        let record = kube.lease(crate::fixtures::id().as_str())[RECORD_ANNOTATION].to_string();
        assert!(record.contains(crate::fixtures::OTHER), "{record}");

        let mut gone = after(&with_no_kept_node(ScriptedKube::new()), "Terminating");
        gone.run.old = run.old;
        gone.group = None;
        gone.instance = None;
        let answer = step(&ScriptedAws::new()).finish(gone).await.unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::AwaitReplacement);
    }

    #[tokio::test]
    async fn after_an_ended_execution_the_members_are_known_only_from_its_record() {
        let mut facts = after(&ScriptedKube::new(), "Terminating");
        let record = json!({"schema": 1, "members_before": [crate::fixtures::OTHER]}).to_string();
        let lease = facts.lease.as_mut().unwrap();
        lease.annotations.insert(RECORD_ANNOTATION.to_owned(), record);
        let answer = step(&ScriptedAws::new()).record_members(facts).await.unwrap();
        assert!(answer.run.unwrap().old.unwrap().knows_members());

        let mut unknown = after(&ScriptedKube::new(), "Terminating");
        unknown.node = None;
        unknown.lease = None;
        let answer = step(&ScriptedAws::new()).record_members(unknown).await.unwrap();
        let mut gone = after(&with_no_kept_node(ScriptedKube::new()), "Terminating");
        gone.run.old = answer.run.unwrap().old;
        let answer = step(&ScriptedAws::new()).finish(gone).await.unwrap();
        assert_eq!(answer.verdict, DisposeVerdict::Recycled);
        assert!(
            answer.reason.contains("its replacement is not known"),
            "{}",
            answer.reason
        );
    }

    #[tokio::test]
    async fn a_pod_that_came_before_the_taint_holds_the_instance() {
        let pod = json!({
            "metadata": {"name": "train", "namespace": "jobs", "uid": "1", "creationTimestamp": "2027-01-01T05:50:00Z"},
            "spec": {"restartPolicy": "Never", "containers": [], "tolerations": [{"operator": "Exists"}]},
            "status": {"phase": "Running"},
        });
        let pods = json!({"metadata": {}, "items": [pod]});
        let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"}).to_string();
        for (draining_since, is_clear) in [("2027-01-01T06:00:00Z", false), ("2027-01-01T05:46:00Z", true)] {
            let kube = ScriptedKube::new().on("GET", "/pods?", 200, pods.clone());
            let mut facts = facts(&kube, "terminate", "running");
            let lease = facts.node.as_mut().unwrap().lease.as_mut().unwrap();
            lease
                .annotations
                .insert(RECORD_ANNOTATION.to_owned(), record.clone());
            facts.run.drain.draining_since = Some(draining_since.parse().unwrap());
            let survey = facts.survey_pods().await.unwrap();
            assert_eq!(survey.is_clear(), is_clear, "{survey:?}");
        }
    }
}
