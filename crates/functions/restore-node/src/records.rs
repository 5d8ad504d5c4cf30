//! The records of a restore in the Lease. A principal that may tag instances can write the tags of the same names, so a tag counts only
//! together with the Lease, or while the cluster cannot be read.

use kubernetes::NodeChange;
use recycle::base::names::{RESTORE_LOG_TAG, STOPPED_TAG};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::stopped_taint;
use recycle::records::lease::Lease;
use recycle::records::restore_log::{GaveUp, GroupChange, GroupChanges, LeasedGaveUp, UnreadableGroupChange};

use crate::cluster::Cluster;
use crate::facts::FetchedFacts;
use crate::steps::ignore_refusal;
use crate::{Error, RestoreNode};

/// Removes the tag of a stop that was not made: the Node has no taint of a stop, and the instance runs, or its execution was not about to
/// dispose of it.
pub(crate) fn remove_false_stop(instance: &mut Instance, cluster: Result<&Cluster, &String>) {
    let is_off = instance.state != "running";
    let is_possible = cluster.map_or(is_off, |cluster| {
        let taint = stopped_taint(&instance.id);
        let node = cluster.node.as_ref();
        let is_tainted = node.is_some_and(|node| node.taints.contains(&taint));
        let may_be_stopped = |lease: &Lease| is_off && lease.may_be_disposed_of();
        is_tainted || cluster.lease.as_ref().is_none_or(may_be_stopped)
    });
    if !is_possible {
        instance.tags.remove(STOPPED_TAG);
    }
}

impl RestoreNode {
    /// Records a change of the group before it is called for: in the Lease, if the cluster can be reached, and in the tag.
    pub(crate) async fn record(&self, facts: &FetchedFacts, group_change: GroupChange) -> Result<(), Error> {
        let group_changes = facts.group_changes.with(group_change);
        let write = |node: &_| {
            facts.check_claim(node)?;
            Ok(Some(NodeChange::new().restore_log(&group_changes)))
        };
        let is_recorded = facts.amend_node(write).await?.is_some();
        let tag = (RESTORE_LOG_TAG, group_changes.to_string());
        match self.instances.tag(&facts.id, &[tag]).await {
            // An instance can have so many tags that EC2 refuses another one.
            Err(error) if is_recorded => ignore_refusal(error.into()),
            tagged => Ok(tagged?),
        }
    }
}

impl FetchedFacts {
    fn lease(&self) -> Option<&Lease> {
        self.cluster.as_ref().ok()?.lease.as_ref()
    }

    /// Returns the group changes of this restore so far. While the cluster cannot be read, the tag has them. The only change that a restore
    /// then makes is ExitStandby. So later the tag counts for that alone, if its number fits the records.
    pub(crate) fn read_group_changes(&self) -> Result<GroupChanges, UnreadableGroupChange> {
        let tag = || self.instance.as_ref()?.tags.get(RESTORE_LOG_TAG);
        let read = |text: &str| text.parse::<GroupChanges>();
        if self.cluster.is_err() {
            return tag().map_or_else(|| Ok(GroupChanges::default()), |text| read(text));
        }
        let leased = self.lease().and_then(Lease::restore_log);
        let leased = leased.map_or_else(|| Ok(GroupChanges::default()), read)?;
        let tagged = tag().and_then(|text| read(text).ok());
        Ok(match (tagged, self.record().desired_before) {
            (Some(tagged), Some(before)) => leased.with_exit_of(&tagged, before),
            (Some(_), None) | (None, _) => leased,
        })
    }

    /// Returns since when an operator has to handle the node; None if the node was not given up, or if an operator has removed the tag.
    pub(crate) fn gave_up(&self) -> Option<GaveUp> {
        let tagged = self.instance.as_ref().and_then(Instance::gave_up);
        if self.cluster.is_err() {
            return tagged;
        }
        let leased = self.lease().and_then(Lease::gave_up)?;
        (leased.is_untagged || tagged == Some(leased.gave_up)).then_some(leased.gave_up)
    }

    /// Records in the Lease that the restore gave up the instance.
    pub(crate) async fn record_gave_up(&mut self, gave_up: LeasedGaveUp) -> Result<(), Error> {
        let change = NodeChange::new().gave_up(gave_up);
        match &self.cluster {
            Ok(Cluster {
                node: None,
                client,
                lease,
                ..
            }) => {
                let written =
                    kubernetes::change_without_node(client, &self.id, lease.as_ref(), &change).await?;
                self.replace_lease(written);
            }
            Ok(_) | Err(_) => {
                let amended = self.amend_node(|_| Ok(Some(change.clone()))).await?;
                self.replace_node(amended);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::names::{
        CLAIM_ANNOTATION, GAVE_UP_ANNOTATION, GAVE_UP_TAG, RECORD_ANNOTATION, RESTORE_LOG_ANNOTATION,
    };
    use recycle::records::claim::{Claim, Phase};

    use super::*;
    use crate::fixtures::{claim, facts};

    fn leased(annotations: &[(&str, &str)]) -> FetchedFacts {
        let mut facts = facts(Some(claim("one")), Some(claim("one")));
        let lease = facts.cluster.as_mut().unwrap().lease.as_mut().unwrap();
        for (key, value) in annotations {
            lease.annotations.insert((*key).to_owned(), (*value).to_owned());
        }
        facts
    }

    fn tagged(mut facts: FetchedFacts, key: &str, value: &str) -> FetchedFacts {
        let tags = &mut facts.instance.as_mut().unwrap().tags;
        tags.insert(key.to_owned(), value.to_owned());
        facts
    }

    #[tokio::test]
    async fn group_changes_are_read_from_the_lease_and_of_the_tag_only_an_exit_that_fits() {
        let before = (RECORD_ANNOTATION, r#"{"schema": 1, "desired_before": 3}"#);
        let paid = (RESTORE_LOG_ANNOTATION, "lower:3");
        let whole = (RESTORE_LOG_ANNOTATION, "exit:3 lower:4");
        for (annotations, is_there, tag, expected) in [
            (vec![before, paid], true, "lower:3 exit:2", "lower:3 exit:2"),
            (vec![before, paid], true, "exit:9", "lower:3"),
            (vec![before], true, "exit:3", "exit:3"),
            (vec![before], true, "lower:3 exit:2", ""),
            (vec![before], true, "x", ""),
            (vec![], true, "exit:3", ""),
            (vec![before, paid], false, "exit:9", "exit:9"),
            (vec![before, whole], true, "exit:3", "exit:3 lower:4"),
        ] {
            let mut facts = tagged(leased(&annotations), RESTORE_LOG_TAG, tag);
            if !is_there {
                facts.cluster = Err("away".to_owned());
            }
            let read = facts.read_group_changes().unwrap().to_string();
            assert_eq!(read, expected, "{annotations:?} {is_there} {tag}");
        }
        assert!(
            leased(&[(RESTORE_LOG_ANNOTATION, "lower")])
                .read_group_changes()
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_node_was_given_up_only_if_the_lease_says_the_same() {
        let at = "2027-01-01T00:00:00Z";
        for (leases, is_there, expected) in [
            (Some(at), true, true),
            (Some("2027-01-01T00:01:00Z"), true, false),
            (None, true, false),
            (None, false, true),
        ] {
            let annotations: Vec<(&str, &str)> = leases.iter().map(|at| (GAVE_UP_ANNOTATION, *at)).collect();
            let mut facts = tagged(leased(&annotations), GAVE_UP_TAG, at);
            if !is_there {
                facts.cluster = Err("away".to_owned());
            }
            assert_eq!(facts.gave_up().is_some(), expected, "{leases:?} {is_there}");
        }
        assert_eq!(
            leased(&[(GAVE_UP_ANNOTATION, at)]).gave_up(),
            None,
            "an operator has removed the tag"
        );
    }

    #[tokio::test]
    async fn a_tag_of_a_stop_counts_only_if_the_instance_is_off_and_its_disposal_had_begun() {
        let of_phase = |phase| {
            serde_json::to_string(&Claim {
                phase,
                ..claim("one")
            })
            .unwrap()
        };
        let (draining, disposing) = (of_phase(Phase::Draining), of_phase(Phase::Disposing));
        for (state, phase, is_tainted, expected) in [
            ("running", &disposing, false, false),
            ("running", &draining, true, true),
            ("stopped", &disposing, false, true),
            ("stopped", &draining, false, false),
        ] {
            let mut facts = tagged(
                leased(&[(CLAIM_ANNOTATION, phase)]),
                STOPPED_TAG,
                "2027-01-01T05:00:00Z",
            );
            if is_tainted {
                let node = facts.cluster.as_mut().unwrap().node.as_mut().unwrap();
                node.taints = vec![stopped_taint(&facts.id)];
            }
            let instance = facts.instance.as_mut().unwrap();
            state.clone_into(&mut instance.state);
            remove_false_stop(instance, facts.cluster.as_ref());
            assert_eq!(
                instance.tags.contains_key(STOPPED_TAG),
                expected,
                "{state} {phase}"
            );
        }
    }
}
