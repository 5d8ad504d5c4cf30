//! Lists the pods that hold a node, by name and with the reason, from the progress on the Node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::drain::classify::Rule;
use crate::input::model::Evict;
use crate::records::progress::Progress;

/// The classes of pods that hold a node, as in `counts` and `names`.
pub const HOLDING: [&str; 7] = [
    "unreadable",
    "awaited",
    EVICTABLE,
    "leaves_last",
    "zone_mismatch",
    "terminating",
    "stuck",
];

/// The class of pods that do not hold the node and end with it.
pub const ENDS_WITH_NODE: &str = "tolerates_taint";

/// The class of pods whose eviction is not asked for yet, or was refused.
pub const EVICTABLE: &str = "evictable";

/// The word for an evictable pod whose eviction was refused.
pub const BLOCKED: &str = "blocked";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HoldingPod {
    /// The namespace and the name.
    pub name: String,
    /// A class of [`HOLDING`], or [`BLOCKED`].
    pub state: &'static str,
    /// The reason, as a sentence without its subject.
    pub why: String,
    /// The obstacle to the eviction, such as `budget shop/web`. Only for a blocked pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The time since which the obstacle has blocked evictions. Only for a blocked pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Lists the named pods that hold the node, each once. A progress names the first five pods of each class.
pub fn list_holding(progress: &Progress) -> Vec<HoldingPod> {
    let mut seen = BTreeSet::new();
    let mut listed = Vec::new();
    // A pod that is leaving or stuck may also be awaited, and a blocked one is also to be evicted: the later class says more.
    let blocked = progress.blocked.iter();
    listed.extend(blocked.flat_map(|blocker| {
        blocker.names.iter().map(|name| HoldingPod {
            name: name.clone(),
            state: BLOCKED,
            why: blocker.says.clone(),
            blocked_by: Some(blocker.what.clone()),
            since: Some(blocker.since),
        })
    }));
    for class in HOLDING.into_iter().rev() {
        let named = progress.names.get(class).into_iter().flatten();
        listed.extend(named.map(|name| HoldingPod {
            name: name.clone(),
            state: class,
            why: explain(class, name, progress),
            blocked_by: None,
            since: None,
        }));
    }
    listed.retain(|pod| seen.insert(pod.name.clone()));
    let place = |pod: &HoldingPod| HOLDING.iter().position(|class| *class == pod.state);
    listed.sort_by_key(|pod| (place(pod), pod.name.clone()));
    listed
}

/// Lists how many pods of each class the progress does not name. A blocked pod counts as blocked, and not as evictable.
pub fn count_unnamed(progress: &Progress) -> Vec<(&'static str, u32)> {
    let blocked: BTreeSet<&String> = progress
        .blocked
        .iter()
        .flat_map(|blocker| &blocker.names)
        .collect();
    let all_blocked = progress.blocked.iter().map(|blocker| blocker.count).sum();
    let counted = HOLDING.into_iter().map(|class| {
        let names = progress.names.get(class).into_iter().flatten();
        let all = progress.counts.get(class).copied().unwrap_or(0);
        if class == EVICTABLE {
            let named = names.filter(|name| !blocked.contains(name)).count();
            (class, left(all.saturating_sub(all_blocked), named))
        } else {
            (class, left(all, names.count()))
        }
    });
    let counted = std::iter::once((BLOCKED, left(all_blocked, blocked.len()))).chain(counted);
    counted.filter(|(_, count)| *count > 0).collect()
}

fn left(all: u32, named: usize) -> u32 {
    all.saturating_sub(u32::try_from(named).unwrap_or(u32::MAX))
}

pub fn names_pod(text: &str, name: &str) -> bool {
    let words = text.split([' ', ',', ':', ';', '(', ')']);
    words
        .map(|word| word.trim_end_matches('.'))
        .any(|word| word == name)
}

/// Explains why a pod is in its class, in the words of the plan where it has them.
fn explain(class: &str, name: &str, progress: &Progress) -> String {
    let is_in = |class: &str| {
        let names = progress.names.get(class);
        names.is_some_and(|names| names.iter().any(|other| other == name))
    };
    let is_held = |text: &&String| names_pod(text, name);
    let text = match class {
        "awaited" => explain_wait(is_in),
        EVICTABLE => Rule::Other.reason(Evict::Others),
        "leaves_last" => Rule::LeavesLast.reason(Evict::Others),
        "terminating" if is_in("grace_too_long") => "its grace period ends after the drain",
        "terminating" => "it is within its grace period",
        "stuck" => "it should have been gone five minutes ago",
        // Unreadable, or held back by the zone of its volume.
        _ => {
            let held = progress.held.iter().find(is_held);
            held.map_or("see docs/pods.md", String::as_str)
        }
    };
    text.to_owned()
}

/// Explains why a pod is awaited, by the classes of the remarks about it. The first one that applies counts.
fn explain_wait(is_in: impl Fn(&str) -> bool) -> &'static str {
    let reasons = [
        ("owner_protected", Rule::OwnerProtected.reason(Evict::Others)),
        (
            "half_completed",
            "one of its containers has completed, only its sidecars still run",
        ),
        ("never_ends", "it was asked for, and it never ends by itself"),
        ("bare", Rule::Bare.reason(Evict::Others)),
        ("to_completion", Rule::ToCompletion.reason(Evict::Others)),
    ];
    let found = reasons.into_iter().find(|(remark, _)| is_in(remark));
    found.map_or("a selector or an annotation asks to wait for it", |(_, why)| why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::pod::PodFacts;
    use crate::drain::survey::PodSurvey;
    use crate::fixtures::pod;

    fn progress(more: &serde_json::Value) -> Progress {
        let mut text =
            json!({"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": "2027-01-02T00:00:00Z"});
        let fields = text.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        serde_json::from_value(text).unwrap()
    }

    /// A class that is added to the survey and holds nodes must be added here.
    #[test]
    fn the_classes_that_hold_a_node_are_those_of_the_survey() {
        let put: [fn(&mut PodSurvey) -> &mut Vec<PodFacts>; 9] = [
            |survey| &mut survey.unreadable,
            |survey| &mut survey.awaited,
            |survey| &mut survey.evictable,
            |survey| &mut survey.leaves_last,
            |survey| &mut survey.zone_mismatch,
            |survey| &mut survey.terminating,
            |survey| &mut survey.stuck,
            |survey| &mut survey.tolerates_taint,
            |survey| &mut survey.skipped,
        ];
        for list in put {
            let mut survey = PodSurvey::default();
            list(&mut survey).push(pod("a"));
            let class = survey.counts().into_keys().next().unwrap();
            let is_known = HOLDING.contains(&class.as_str());
            assert_eq!(is_known, !survey.is_clear(), "{class}");
        }
    }

    #[test]
    fn each_pod_is_listed_once_with_its_reason() {
        let says = "The disruption budget web needs 2 healthy pods and has 2 currently";
        let progress = progress(&json!({
            "blocked": [{"what": "budget shop/web", "says": says, "since": "2027-01-01T01:00:00Z", "count": 1, "names": ["shop/web-1"]}],
            "held": ["volume data of pod shop/db-1 needs a node in zone eu-west-1a"],
            "counts": {"awaited": 8, "evictable": 2, "terminating": 1, "zone_mismatch": 1, "ignored": 4},
            "names": {"awaited": ["jobs/a", "jobs/b", "jobs/c", "jobs/d", "jobs/e"], "evictable": ["shop/web-1", "shop/web-2"],
                      "owner_protected": ["jobs/a"], "half_completed": ["jobs/b"], "to_completion": ["jobs/c", "jobs/b"],
                      "terminating": ["jobs/d"], "zone_mismatch": ["shop/db-1"]},
        }));
        let listed = list_holding(&progress);
        let listed: Vec<(&str, &str, &str)> = listed
            .iter()
            .map(|pod| (pod.name.as_str(), pod.state, pod.why.as_str()))
            .collect();
        assert_eq!(
            listed,
            [
                ("shop/web-1", "blocked", says),
                ("jobs/a", "awaited", "its owner's annotation protects it"),
                (
                    "jobs/b",
                    "awaited",
                    "one of its containers has completed, only its sidecars still run"
                ),
                ("jobs/c", "awaited", "it runs to completion"),
                (
                    "jobs/e",
                    "awaited",
                    "a selector or an annotation asks to wait for it"
                ),
                ("shop/web-2", "evictable", "its controller starts it elsewhere"),
                (
                    "shop/db-1",
                    "zone_mismatch",
                    "volume data of pod shop/db-1 needs a node in zone eu-west-1a"
                ),
                ("jobs/d", "terminating", "it is within its grace period"),
            ]
        );
        assert_eq!(count_unnamed(&progress), [("awaited", 3)]);
    }

    #[test]
    fn a_held_pod_has_the_sentence_that_names_it_and_a_pod_that_leaves_last_its_rule() {
        let held = ["a/other waits for its zone", "cannot use a volume (a/web)"];
        let progress = progress(
            &json!({"held": held, "counts": {"zone_mismatch": 1, "leaves_last": 1},
            "names": {"zone_mismatch": ["a/web"], "leaves_last": ["a/logs"]}}),
        );
        let why = |class: &str, name: &str| explain(class, name, &progress);
        assert_eq!(why("zone_mismatch", "a/web"), held[1]);
        assert_eq!(why("zone_mismatch", "a/we"), "see docs/pods.md");
        assert_eq!(
            why("leaves_last", "a/logs"),
            Rule::LeavesLast.reason(Evict::Others)
        );
    }
}
