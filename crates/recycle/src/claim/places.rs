//! Counts the places that executions with replacement `surge` have added to a group.
//!
//! A group never says why its desired capacity is what it is. The Leases of its members say which executions have raised it. So each of
//! several executions can find out whether its own place is still there, and others may change the desired capacity meanwhile.

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;
use crate::records::claim::{Phase, StoredClaim};
use crate::records::lease::Lease;

/// Returns the Leases of other members in service whose executions have added a place for the replacement and come to the phase `since`.
/// In phase `standby`, which only one execution of a group has at a time, the place may not be there yet.
/// `leases` are those with the group's label. Labels are short hashes, so two groups may share one.
pub fn find_added_places<'a>(
    leases: &'a [Lease],
    me: &InstanceId,
    group: &Group,
    since: Phase,
) -> Vec<&'a Lease> {
    let is_underway = |lease: &Lease| match lease.claim() {
        // Another execution has claimed the node again, and waits in the queue. The place of the earlier one is still there.
        Some(StoredClaim::Known(claim)) => {
            claim.group == group.name && (claim.phase >= since || claim.phase < Phase::Standby)
        }
        Some(StoredClaim::Newer(_) | StoredClaim::Unreadable(_)) => false,
        // An operator has removed the claim: only the Lease with its label and its record is there. A release removes the label.
        None => true,
    };
    let has_raised = |lease: &Lease| lease.record().is_ok_and(|record| record.was_raised());
    leases
        .iter()
        .filter(|lease| lease.instance != *me && group.is_in_service(&lease.instance))
        .filter(|lease| is_underway(lease) && has_raised(lease))
        .collect()
}

/// Returns another member of the group that is being restored. Its restore may change the desired capacity and the protection of members.
/// If there are several, returns the one whose restore has begun last: an old mark may be that of a restore that ended early.
pub fn find_restored<'a>(leases: &'a [Lease], me: &InstanceId, group: &Group) -> Option<&'a Lease> {
    let others = leases
        .iter()
        .filter(|lease| lease.instance != *me && group.member(&lease.instance).is_some());
    others
        .filter(|lease| lease.restoring_since().is_some())
        .max_by_key(|lease| lease.restoring_since())
}

/// Returns the desired capacity of the group without the places that other executions have added.
/// It is not less than what one of them has recorded: another client may have taken their places away.
pub fn size_without_places(leases: &[Lease], me: &InstanceId, group: &Group) -> u32 {
    let places = find_added_places(leases, me, group, Phase::Draining);
    let sizes = places.iter().filter_map(|lease| lease.record().ok()?.raised_from);
    let least = sizes.min().unwrap_or(0).min(group.desired);
    let added = u32::try_from(places.len()).unwrap_or(u32::MAX);
    group.desired.saturating_sub(added).max(least)
}

/// Returns the desired capacity that the group has at this moment if the execution of `me` has no place in it.
/// `raised_from` is that of its record. A node that is being restored may have given its place up already, so it counts as without one.
pub fn size_without_place(raised_from: u32, leases: &[Lease], me: &InstanceId, group: &Group) -> u32 {
    let places = find_added_places(leases, me, group, Phase::Draining);
    let kept = places.iter().filter(|lease| lease.restoring_since().is_none());
    raised_from.saturating_add(u32::try_from(kept.count()).unwrap_or(u32::MAX))
}

/// Returns how many members the group wants besides the nodes whose executions have added places, and besides the node of this execution.
/// `size` is the desired capacity without its own place. With the other replacements a node that is being replaced is in no desired capacity.
pub fn count_wanted(group: &Group, raised_from: Option<u32>, size: Option<u32>) -> u32 {
    let Some((from, size)) = raised_from.zip(size) else {
        return group.desired;
    };
    group.desired.saturating_sub(1 + size.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_ANNOTATION, RESTORING_ANNOTATION};
    use crate::fixtures::{OLD, OTHER, claimed, group, id, leases, member, node};
    use crate::records::node_record::Record;

    #[test]
    fn a_raise_records_the_size_without_the_places_of_others_if_those_are_still_there() {
        let size = |desired, raised_from: &[u32]| {
            let mut group = Group { desired, ..group() };
            let others = ["i-00000001", "i-00000002"];
            let lease = |(instance, from): (&&str, &u32)| {
                group.members.push(member(instance, "InService"));
                Lease {
                    instance: id(instance),
                    ..other(Phase::Waiting, Some(*from))
                }
            };
            let leases: Vec<Lease> = others.iter().zip(raised_from).map(lease).collect();
            size_without_places(&leases, &id(OLD), &group)
        };
        for (name, desired, raised_from, expected) in [
            ("alone", 3, &[][..], 3),
            ("one place", 4, &[3], 3),
            ("two places", 5, &[3, 3], 3),
            ("another client has set the group back", 3, &[3], 3),
            ("another client has taken one of two places away", 4, &[3, 3], 3),
            ("another client has made the group smaller", 2, &[3], 2),
            ("another client has made the group larger", 6, &[3], 5),
        ] {
            assert_eq!(size(desired, raised_from), expected, "{name}");
        }
    }

    #[test]
    fn a_group_wants_its_desired_capacity_without_the_places_of_surging_nodes() {
        for (name, desired, raised_from, size, wanted) in [
            ("not with surge", 3, None, None, 3),
            ("raised from 3", 4, Some(3), Some(3), 3),
            ("a scale-in has taken one place", 3, Some(3), Some(3), 2),
            ("another node is also underway", 5, Some(3), Some(4), 3),
        ] {
            let group = Group { desired, ..group() };
            assert_eq!(count_wanted(&group, raised_from, size), wanted, "{name}");
        }
    }

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
        let unclaimed = |mut lease: Lease| {
            lease.annotations.remove(CLAIM_ANNOTATION);
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
            (
                "its claim was removed by hand",
                unclaimed(surging()),
                "InService",
                1,
                6,
            ),
            (
                "claimed anew, and in the queue",
                other(Phase::Claimed, Some(5)),
                "InService",
                1,
                6,
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

    #[test]
    fn of_several_restores_of_other_members_the_last_one_is_found() {
        let restored = |instance: &str, since: &str| {
            let mut lease = Lease {
                instance: id(instance),
                ..other(Phase::Draining, None)
            };
            let key = RESTORING_ANNOTATION.to_owned();
            lease.annotations.insert(key, since.to_owned());
            lease
        };
        let mut group = group();
        group.members.push(member("i-00000001", "InService"));
        let leases = [
            restored(OLD, "2027-01-01T00:05:00Z"),
            restored(OTHER, "2027-01-01T00:01:00Z"),
            restored("i-00000001", "2027-01-01T00:02:00Z"),
            restored("i-00000002", "2027-01-01T00:03:00Z"),
            other(Phase::Draining, None),
        ];
        let found = find_restored(&leases, &id(OLD), &group);
        assert_eq!(found.map(|lease| &lease.instance), Some(&id("i-00000001")));
        assert!(find_restored(&leases[..1], &id(OLD), &group).is_none());
    }
}
