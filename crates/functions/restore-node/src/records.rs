//! The records of a restore in the Lease. A principal that may tag instances can write the tags of the same names, so a tag counts only
//! together with the Lease, or while the cluster cannot be read.

use kubernetes::NodeChange;
use recycle::base::names::{RESTORE_LOG_TAG, STOPPED_TAG};
use recycle::cluster::instance::Instance;
use recycle::records::lease::Lease;
use recycle::records::restore_log::{GaveUp, GroupChange, GroupChanges, UnreadableGroupChange};

use crate::cluster::Cluster;
use crate::facts::FetchedFacts;
use crate::{Error, RestoreNode};

/// Removes the tag of a stop that was not made: the instance runs, or its execution was not about to dispose of it.
pub(crate) fn remove_false_stop(instance: &mut Instance, cluster: Result<&Cluster, &String>) {
    let is_possible = match cluster.map(|cluster| cluster.lease.as_ref()) {
        Ok(None) => true,
        Ok(Some(lease)) => instance.state != "running" && lease.may_be_disposed_of(),
        Err(_) => instance.state != "running",
    };
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
        facts.amend_node(write).await?;
        let tag = (RESTORE_LOG_TAG, group_changes.to_string());
        Ok(self.instances.tag(&facts.id, &[tag]).await?)
    }
}

impl FetchedFacts {
    fn lease(&self) -> Option<&Lease> {
        self.cluster.as_ref().ok()?.lease.as_ref()
    }

    /// Checks whether the cluster could not be read in this step or in an earlier one.
    pub(crate) fn was_unseen(&self) -> bool {
        self.cluster.is_err() || self.request.restore.unseen
    }

    /// Returns the group changes of this restore so far. The Lease may lack a change of a step in which the cluster could not be read.
    pub(crate) fn read_group_changes(&self) -> Result<GroupChanges, UnreadableGroupChange> {
        let written = if self.was_unseen() {
            let tags = self.instance.as_ref().map(|instance| &instance.tags);
            tags.and_then(|tags| tags.get(RESTORE_LOG_TAG))
                .map(String::as_str)
        } else {
            self.lease().and_then(Lease::restore_log)
        };
        written.map_or_else(|| Ok(GroupChanges::default()), str::parse)
    }

    /// Returns since when an operator has to handle the node; None if the node was not given up, or if an operator has removed the tag.
    pub(crate) fn gave_up(&self) -> Option<GaveUp> {
        let tagged = self.instance.as_ref().and_then(Instance::gave_up);
        let leased = self.lease().and_then(Lease::gave_up);
        tagged.filter(|_| self.cluster.is_err() || leased == tagged)
    }

    /// Records in the Lease that the restore gave up the instance.
    pub(crate) async fn record_gave_up(&mut self, gave_up: GaveUp) -> Result<(), Error> {
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
    use recycle::base::names::{CLAIM_ANNOTATION, GAVE_UP_ANNOTATION, GAVE_UP_TAG, RESTORE_LOG_ANNOTATION};
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
    async fn group_changes_are_read_from_the_tag_only_if_the_cluster_was_away() {
        for (is_there, was_away, expected) in [
            (true, false, "lower:3"),
            (true, true, "lower:3 exit:2"),
            (false, false, "lower:3 exit:2"),
        ] {
            let mut facts = tagged(
                leased(&[(RESTORE_LOG_ANNOTATION, "lower:3")]),
                RESTORE_LOG_TAG,
                "lower:3 exit:2",
            );
            facts.request.restore.unseen = was_away;
            if !is_there {
                facts.cluster = Err("away".to_owned());
            }
            let read = facts.read_group_changes().unwrap().to_string();
            assert_eq!(read, expected, "{is_there} {was_away}");
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
        for (state, phase, expected) in [
            ("running", &disposing, false),
            ("stopped", &disposing, true),
            ("stopped", &draining, false),
        ] {
            let mut facts = tagged(
                leased(&[(CLAIM_ANNOTATION, phase)]),
                STOPPED_TAG,
                "2027-01-01T05:00:00Z",
            );
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
