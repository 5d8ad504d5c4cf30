//! Counts the places that executions with replacement `surge` have added to a group.
//!
//! A group never says why its desired capacity is what it is. The Leases of its members say which executions have raised it. So each of
//! several executions can find out whether its own place is still there, and others may change the desired capacity meanwhile.

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;
use crate::records::claim::{Phase, StoredClaim};
use crate::records::lease::Lease;

/// Returns the Leases of other members in service whose executions have added a place for the replacement and come to the phase `since`.
/// From phase `draining` on the place is there. In phase `standby`, which only one execution of a group has at a time, it may be missing.
/// `leases` are those with the group's label. Labels are short hashes, so two groups may share one.
#[must_use]
pub fn find_added_places<'a>(
    leases: &'a [Lease],
    me: &InstanceId,
    group: &Group,
    since: Phase,
) -> Vec<&'a Lease> {
    let is_in_service = |id: &InstanceId| {
        let member = group.member(id);
        member.is_some_and(|member| member.lifecycle_state == "InService")
    };
    let is_underway = |lease: &Lease| match lease.claim() {
        Some(StoredClaim::Known(claim)) => claim.group == group.name && claim.phase >= since,
        Some(StoredClaim::Newer(_) | StoredClaim::Unreadable(_)) | None => false,
    };
    let has_raised = |lease: &Lease| lease.record().is_ok_and(|record| record.raised_from.is_some());
    leases
        .iter()
        .filter(|lease| lease.instance != *me && is_in_service(&lease.instance))
        .filter(|lease| is_underway(lease) && has_raised(lease))
        .collect()
}

/// Returns the desired capacity that the group has at this moment if the execution of `me` has no place in it.
/// `raised_from` is that of its record. A node that is being restored may have given its place up already, so it counts as without one.
#[must_use]
pub fn size_without_place(raised_from: u32, leases: &[Lease], me: &InstanceId, group: &Group) -> u32 {
    let places = find_added_places(leases, me, group, Phase::Draining);
    let kept = places.iter().filter(|lease| lease.restoring_since().is_none());
    raised_from.saturating_add(u32::try_from(kept.count()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::RESTORING_ANNOTATION;
    use crate::fixtures::{OLD, OTHER, claimed, group, id, leases, node};
    use crate::records::node_record::Record;

    /// The Lease of another node, `OTHER`, that is in this state.
    fn other(phase: Phase, raised_from: Option<u32>) -> Lease {
        let record = Record {
            raised_from,
            ..Record::default()
        };
        let mut node = node("other");
        node.instance = Some(id(OTHER));
        leases(&[claimed(node, phase, &record)]).remove(0)
    }

    #[test]
    fn the_place_of_another_member_counts_from_its_drain_until_it_leaves_or_is_restored() {
        let restored = |mut lease: Lease| {
            let now = "2027-01-01T00:00:00Z".to_owned();
            lease.annotations.insert(RESTORING_ANNOTATION.to_owned(), now);
            lease
        };
        let in_another_group = |mut lease: Lease| {
            let texts = lease.annotations.values_mut();
            texts.for_each(|text| *text = text.replace("workers", "gpu"));
            lease
        };
        let surging = || other(Phase::Draining, Some(5));
        for (name, lease, state, found, size) in [
            ("draining", surging(), "InService", 1, 6),
            ("waiting", other(Phase::Waiting, Some(5)), "InService", 1, 6),
            ("disposing", other(Phase::Disposing, Some(5)), "InService", 1, 6),
            (
                "perhaps not raised",
                other(Phase::Standby, Some(5)),
                "InService",
                0,
                5,
            ),
            ("another mode", other(Phase::Draining, None), "InService", 0, 5),
            ("leaving", surging(), "Terminating:Wait", 0, 5),
            ("perhaps lowered", restored(surging()), "InService", 1, 5),
            ("another group", in_another_group(surging()), "InService", 0, 5),
        ] {
            let mut group = group();
            group.members[1].lifecycle_state = state.to_owned();
            let leases = [lease];
            let places = |me| find_added_places(&leases, &id(me), &group, Phase::Draining).len();
            assert_eq!((places(OLD), places(OTHER)), (found, 0), "{name}");
            assert_eq!(size_without_place(5, &leases, &id(OLD), &group), size, "{name}");
        }
    }
}
