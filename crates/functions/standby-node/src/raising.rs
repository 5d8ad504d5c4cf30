//! Raises the desired capacity of the group by one, after recording it on the Node. The old node stays in service.

use ec2::protection;
use futures::future::join;
use kubernetes::NodeChange;
use recycle::base::failure::Failure;
use recycle::base::ids::InstanceId;
use recycle::base::names::{CLAIM_TAG, RESTORE_LOG_TAG};
use recycle::base::poll::{SHORTEST_WAIT, next_wait};
use recycle::claim::places::{find_restored, size_without_places};
use recycle::cluster::group::Group;
use recycle::records::claim::{Claim, Phase};
use recycle::records::lease::Lease;
use recycle::records::node_record::Record;
use recycle::replacement::protection::{is_to_be_protected, is_to_be_protected_again};
use recycle::restore::step::PATIENCE;

use crate::entering::record;
use crate::{Answered, Error, FetchedFacts, StandbyNode};

/// The most reads of the desired capacity right before it is raised. In a large rotation other executions may change it between two reads.
const MOST_READS: u32 = 5;

impl StandbyNode {
    /// Makes the group one larger. If the record of an earlier attempt says so, and the group shows it, only the wait begins.
    pub(crate) async fn raise_capacity(&self, mut facts: FetchedFacts) -> Answered {
        let group = facts.group.clone();
        let group = group.ok_or_else(|| refuse(&facts, "is in no group".to_owned()))?;
        let text = facts.describe_state("stays in service, and the group launches a replacement");
        let record = facts.node.record()?;
        let size = find_size_without_place(&facts, &record, &group).await?;
        if size.is_some_and(|size| group.desired > size) {
            self.resume(&facts, &group, &record).await?;
        } else if let Some(restored) = find_restore_ahead(&facts, &group).await? {
            let text = format!("waits: {restored} of the group is being restored");
            let reason = facts.describe_state(&text);
            return Ok(facts.wait(SHORTEST_WAIT, reason));
        } else {
            self.raise(&facts, &group, &text).await?;
        }
        facts.run.replacement_since = Some(facts.now);
        let timeout = i64::from(facts.run.input.replacement_timeout);
        Ok(facts.wait(next_wait(0, timeout, 0, None), text))
    }

    /// Goes on after an earlier attempt.
    async fn resume(&self, facts: &FetchedFacts, group: &Group, record: &Record) -> Result<(), Error> {
        let id = &facts.run.input.instance_id;
        let input = &facts.run.input;
        let own = is_to_be_protected_again(input, group, record).then(|| id.clone());
        let own = own.as_slice();
        let claim = Claim {
            phase: facts.claim.phase.max(Phase::Standby),
            ..facts.claim.clone()
        };
        kubernetes::amend_node(&facts.client, facts.node.clone(), |node| {
            kubernetes::check_claim(node, &facts.me, facts.run.input.urgency)?;
            let record = node.record()?.protecting(own);
            Ok::<_, Error>(Some(NodeChange::new().claim(&claim)?.record(&record)?))
        })
        .await?;
        if !own.is_empty() {
            protection::protect(&self.groups, &self.instances, &group.name, own, id).await?;
        }
        Ok(())
    }

    async fn raise(&self, facts: &FetchedFacts, group: &Group, text: &str) -> Result<(), Error> {
        check_room(facts, group)?;
        let id = &facts.run.input.instance_id;
        let claim = Claim {
            phase: Phase::Standby,
            ..facts.claim.clone()
        };
        let own = is_to_be_protected(&facts.run.input, group).then(|| id.clone());
        let own = own.as_slice();
        record_size(facts, group, &claim, own).await?;
        // The log of an earlier restore no longer applies.
        let tags = [(CLAIM_TAG, claim.to_tag()), (RESTORE_LOG_TAG, String::new())];
        self.instances.tag(id, &tags).await?;
        if !own.is_empty() {
            protection::protect(&self.groups, &self.instances, &group.name, own, id).await?;
        }
        let (client, node) = (&facts.client, &facts.node.name);
        let mut desired = group.desired;
        // Nodes of the group that are done take their places away meanwhile, so the last act before the call is a read.
        for _ in 0..MOST_READS {
            let found = self.groups.fetch(&group.name).await?;
            let Some(changed) = found.filter(|found| found.desired != desired) else {
                break;
            };
            check_room(facts, &changed)?;
            desired = changed.desired;
            record_size(facts, &changed, &claim, own).await?;
        }
        let (called, ()) = join(
            self.groups.set_desired_capacity(&group.name, desired + 1),
            kubernetes::record_event(client, node, Phase::Standby, text, facts.now, &facts.me),
        )
        .await;
        Ok(called?)
    }
}

fn check_room(facts: &FetchedFacts, group: &Group) -> Result<(), Error> {
    if group.desired < group.max {
        return Ok(());
    }
    let max = group.max;
    let state = format!("cannot be replaced: the desired capacity is the maximum of {max}");
    Err(refuse(facts, state))
}

/// Returns a node whose restore has begun since this one was admitted, and goes first. A restore that has lasted for longer than restores
/// take holds up nothing.
async fn find_restore_ahead(facts: &FetchedFacts, group: &Group) -> Result<Option<InstanceId>, Error> {
    let leases = kubernetes::list_group(&facts.client, &group.name).await?;
    let restored = find_restored(&leases, &facts.run.input.instance_id, group);
    let is_recent = |lease: &&Lease| {
        let since = lease.restoring_since();
        since.is_some_and(|since| facts.now.duration_since(since).as_secs() < i64::from(2 * PATIENCE))
    };
    Ok(restored.filter(is_recent).map(|lease| lease.instance.clone()))
}

/// Records the desired capacity without the places of other executions, and the protection that this execution sets.
async fn record_size(
    facts: &FetchedFacts,
    group: &Group,
    claim: &Claim,
    own: &[InstanceId],
) -> Result<(), Error> {
    let id = &facts.run.input.instance_id;
    let leases = kubernetes::list_group(&facts.client, &group.name).await?;
    let begin = |record: Record| Record {
        desired_before: None,
        raised_from: Some(size_without_places(&leases, id, group)),
        ..record.protecting(own)
    };
    record(facts, claim, begin).await
}

/// Returns the desired capacity that the group has without the place that the execution has added; None if it has added none.
pub(crate) async fn find_size_without_place(
    facts: &FetchedFacts,
    record: &Record,
    group: &Group,
) -> Result<Option<u32>, Error> {
    let id = &facts.run.input.instance_id;
    Ok(kubernetes::find_size_without_place(&facts.client, record, id, group).await?)
}

/// Ends the execution before anything is changed.
fn refuse(facts: &FetchedFacts, state: String) -> Error {
    Error::Ended(Failure::PreflightRefused, facts.describe_state(&state))
}

#[cfg(test)]
mod tests {
    use recycle::base::names::RECORD_ANNOTATION;
    use recycle::cluster::group::Member;
    use recycle::contract::verdicts::StandbyVerdict;
    use recycle::input::model::Override;
    use recycle::input::path::RecyclePath;
    use scripted_aws::ScriptedAws;
    use scripted_kube::ScriptedKube;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{NODE, described_group, facts, no_nodes, step, stored_node};

    fn kube() -> ScriptedKube {
        ScriptedKube::new()
            .on("GET", "/api/v1/nodes?", 200, no_nodes())
            .on("PATCH", NODE, 200, stored_node(Phase::Standby))
            .on("POST", "/events", 201, json!({}))
    }

    /// Answers to all calls of a raise, by which the group has the desired capacity 1.
    fn raised() -> ScriptedAws {
        ScriptedAws::new()
            .on("CreateTags", "")
            .on("CreateTags", "")
            .on("SetInstanceProtection", "")
            .on("DescribeAutoScalingGroups", &described_group("InService"))
            .on("SetDesiredCapacity", "")
    }

    fn surging(kube: &ScriptedKube) -> FetchedFacts {
        let mut facts = facts(kube);
        facts.run.path = RecyclePath::Surge;
        facts
    }

    #[tokio::test]
    async fn the_old_node_is_recorded_and_protected_before_the_group_is_raised() {
        let kube = kube();
        let aws = raised();
        let answer = step(&aws).raise_capacity(surging(&kube)).await.unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (StandbyVerdict::Wait, 30));
        assert_eq!(
            aws.actions(),
            [
                "CreateTags",
                "CreateTags",
                "SetInstanceProtection",
                "DescribeAutoScalingGroups",
                "SetDesiredCapacity"
            ]
        );
        let record = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        assert_eq!(
            (record.raised_from, record.desired_before, record.kept),
            (Some(1), None, true)
        );
        assert_eq!(record.protected, [crate::fixtures::id()]);
        assert_eq!(record.members_before.len(), 1);
    }

    #[tokio::test]
    async fn places_that_others_give_up_meanwhile_are_not_added_again() {
        let read = "DescribeAutoScalingGroups";
        let described = |desired: u32| {
            let group = described_group("InService").replace("<MaxSize>2<", "<MaxSize>4<");
            group.replace("<DesiredCapacity>1<", &format!("<DesiredCapacity>{desired}<"))
        };
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("CreateTags", "")
            .on("SetInstanceProtection", "")
            .on(read, &described(2))
            .on("CreateTags", "")
            .on(read, &described(1))
            .on("CreateTags", "")
            .on(read, &described(1))
            .on("SetDesiredCapacity", "");
        let patched = |kube: ScriptedKube, _| {
            kube.on("GET", "/api/v1/nodes?", 200, no_nodes()).on(
                "PATCH",
                NODE,
                200,
                stored_node(Phase::Standby),
            )
        };
        let kube = (0..2).fold(kube(), patched);
        let mut facts = surging(&kube);
        let group = facts.group.as_mut().unwrap();
        (group.desired, group.max) = (3, 4);
        step(&aws).raise_capacity(facts).await.unwrap();
        assert!(aws.calls().pop().unwrap().contains("DesiredCapacity=2"));
        let record = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        assert_eq!(record.raised_from, Some(1));
    }

    #[tokio::test]
    async fn no_capacity_is_raised_while_another_node_is_restored() {
        let others = ["i-0fedcba9876543210", "i-0fedcba9876543211"];
        let (early, now) = ("2026-12-31T00:00:30Z", "2027-01-01T00:00:30Z");
        for (begun, waits) in [([now, now], true), ([early, now], true), ([early, early], false)] {
            let lease = |(name, at)| json!({"metadata": {"name": name, "resourceVersion": "1", "annotations": {"recycle-eks/restoring": at}}});
            let leases: Vec<Value> = others.into_iter().zip(begun).map(lease).collect();
            let kube = kube().on("GET", "/leases?", 200, json!({"metadata": {}, "items": leases}));
            let (aws, mut facts) = (raised(), surging(&kube));
            facts
                .group
                .as_mut()
                .unwrap()
                .members
                .extend(others.map(|other| Member {
                    instance: other.parse().unwrap(),
                    lifecycle_state: "InService".to_owned(),
                    protected_from_scale_in: false,
                }));
            let answer = step(&aws).raise_capacity(facts).await.unwrap();
            let since = answer.run.unwrap().replacement_since;
            assert_eq!((answer.verdict, since.is_none()), (StandbyVerdict::Wait, waits));
            assert_eq!(aws.calls().is_empty(), waits, "{begun:?}");
        }
    }

    #[tokio::test]
    async fn a_capacity_that_an_earlier_attempt_has_raised_is_not_raised_again() {
        let protecting = ["CreateTags", "SetInstanceProtection"];
        let by_us = vec![crate::fixtures::id()];
        for (protected, by_operator, expected) in [
            (by_us, false, &[][..]),
            (vec![], false, &protecting[..]),
            (vec![], true, &[][..]),
        ] {
            let kube = kube();
            let aws = ScriptedAws::new()
                .on("CreateTags", "")
                .on("SetInstanceProtection", "");
            let mut facts = surging(&kube);
            let group = facts.group.as_mut().unwrap();
            group.desired = 2;
            group.members[0].protected_from_scale_in = by_operator;
            let record = json!({"schema": 1, "raised_from": 1, "protected": protected}).to_string();
            let lease = facts.node.lease.as_mut().unwrap();
            lease.annotations.insert(RECORD_ANNOTATION.to_owned(), record);
            let answer = step(&aws).raise_capacity(facts).await.unwrap();
            assert_eq!(answer.verdict, StandbyVerdict::Wait);
            assert_eq!(aws.actions(), expected);
        }
    }

    #[tokio::test]
    async fn a_protection_of_an_operator_is_not_recorded_as_ours() {
        let kube = kube();
        let aws = ScriptedAws::new()
            .on("CreateTags", "")
            .on("DescribeAutoScalingGroups", &described_group("InService"))
            .on("SetDesiredCapacity", "");
        let mut facts = surging(&kube);
        facts.group.as_mut().unwrap().members[0].protected_from_scale_in = true;
        facts.run.input.overrides.insert(Override::ScaleInProtection);
        step(&aws).raise_capacity(facts).await.unwrap();
        let actions = ["CreateTags", "DescribeAutoScalingGroups", "SetDesiredCapacity"];
        assert_eq!(aws.actions(), actions);
        let record = kube.lease("i-0123456789abcdef0")[RECORD_ANNOTATION].clone();
        let record: Record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        assert!(record.protected.is_empty());
    }

    #[tokio::test]
    async fn a_group_that_is_full_by_now_is_left_alone() {
        let (kube, aws) = (kube(), ScriptedAws::new());
        let mut facts = surging(&kube);
        facts.group.as_mut().unwrap().desired = 2;
        let refused = step(&aws).raise_capacity(facts).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("the desired capacity is the maximum of 2"),
            "{refused}"
        );
        assert!(aws.calls().is_empty() && kube.calls().is_empty());
    }
}
