//! Notes the controllers of evicted pods, as short hashes of their uids, on the Node of the replacement.
//!
//! A rotation checks with these notes whether Pending pods belong to controllers whose pods it evicted.

use std::collections::BTreeSet;

use crate::base::ids::short_hash;
use crate::cluster::pod::PodFacts;

/// The number of controllers that are noted on a Node: as many as it usually has pods.
pub const MOST: usize = 110;
/// The number of controllers that an answer carries as long as there is no replacement. An answer of 8 KB has no room for more.
pub const MOST_CARRIED: usize = 5;

/// Returns the note with the controllers of `pods`, which are about to be evicted, at most `most` in total.
/// None if no controller is new, or if `before` is full.
pub fn note_evicted(before: Option<&str>, pods: &[PodFacts], most: usize) -> Option<String> {
    let noted: BTreeSet<String> = before
        .into_iter()
        .flat_map(|text| text.split(' '))
        .map(str::to_owned)
        .collect();
    let hashes = pods.iter().filter_map(hash_controller);
    let all: BTreeSet<String> = noted.iter().cloned().chain(hashes).collect();
    let fitting: Vec<String> = all.iter().take(most).cloned().collect();
    (all.len() > noted.len() && noted.len() < most).then(|| fitting.join(" "))
}

/// Checks whether a pod's controller was noted.
pub fn is_noted(noted: &BTreeSet<&str>, pod: &PodFacts) -> bool {
    hash_controller(pod).is_some_and(|hash| noted.contains(hash.as_str()))
}

/// Hashes the uid of a pod's controller. None for a bare pod, which no controller starts again.
fn hash_controller(pod: &PodFacts) -> Option<String> {
    let controller = pod.controller.as_ref()?;
    Some(short_hash(&controller.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::pod::Controller;
    use crate::fixtures::pod;

    fn of(uid: &str) -> PodFacts {
        let controller = Controller {
            api_group: "apps".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
        };
        PodFacts {
            controller: Some(controller),
            ..pod("web")
        }
    }

    #[test]
    fn each_controller_is_noted_once_and_no_more_than_fit() {
        let first = note_evicted(None, &[of("a"), of("a")], MOST).unwrap();
        assert_eq!(first, short_hash("a"));
        assert_eq!(note_evicted(Some(&first), &[of("a")], MOST), None);
        let second = note_evicted(Some(&first), &[of("b")], MOST).unwrap();
        assert_eq!(second.split(' ').count(), 2);
        assert_eq!(
            note_evicted(
                None,
                &[PodFacts {
                    controller: None,
                    ..pod("bare")
                }],
                MOST
            ),
            None
        );
        let many: Vec<PodFacts> = (0..200).map(|n| of(&n.to_string())).collect();
        let full = note_evicted(None, &many, MOST).unwrap();
        assert_eq!(full.split(' ').count(), MOST);
        assert_eq!(note_evicted(Some(&full), &[of("new")], MOST), None);
    }

    #[test]
    fn a_pod_is_known_by_its_controller() {
        let noted = note_evicted(None, &[of("a")], MOST).unwrap();
        let noted = noted.split(' ').collect();
        assert!(is_noted(&noted, &of("a")) && !is_noted(&noted, &of("b")));
        assert!(!is_noted(
            &noted,
            &PodFacts {
                controller: None,
                ..pod("bare")
            }
        ));
    }
}
