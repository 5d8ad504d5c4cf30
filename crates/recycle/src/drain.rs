//! The verdict of a drain: dispose, evict, wait, or time is over.
//!
//! What becomes of a node whose time is over is not decided here.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::input::LONGEST_DRAIN;
use crate::names::DRAIN_UNTIL_ANNOTATION;
use crate::pods::{PodFacts, PodSurvey, cut_text, first_names, fit_names};
use crate::poll::{POLL_BUDGET, SHORTEST_WAIT, next_wait};

/// When a drain has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Timestamp,
    /// A person set it by the annotation.
    pub by_person: bool,
}

impl Deadline {
    /// The time is over. An eviction asked for from now on is the last one: record it in [`crate::contract::Run`].
    #[must_use]
    pub fn is_past(&self, now: Timestamp) -> bool {
        now >= self.at
    }
}

/// What `check-pods` does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainVerdict {
    /// Nothing that matters is left.
    Dispose,
    /// There are pods to evict; then wait so many seconds.
    Evict(u32),
    /// Wait so many seconds.
    Wait(u32),
    /// The time, or the poll budget, is over; the text says which, and names what is left.
    TimedOut(String),
}

/// The annotation `recycle-eks/progress`: what is awaited, what blocks, since when, until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// In one sentence.
    pub summary: String,
    /// The first five pods that are waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The first five pods that have been asked to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// What stands in the way, such as a budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// What came up from outside, such as an instance refresh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<String>,
    /// When the drain began.
    pub since: Timestamp,
    /// When it ends at the latest.
    pub until: Timestamp,
}

/// The deadline: `since` plus the input's `drain_timeout` seconds, unless a person wrote `recycle-eks/drain-until`
/// (an RFC 3339 time, or `now`). An annotation that is neither is reported and does not count; one beyond 30 days counts as
/// 30 days, because an execution's history has no room for more.
#[must_use]
pub fn find_deadline(
    since: Timestamp,
    now: Timestamp,
    drain_timeout: u32,
    drain_until: Option<&str>,
) -> (Deadline, Option<String>) {
    let planned = Deadline {
        at: later(since, drain_timeout),
        by_person: false,
    };
    let Some(text) = drain_until.map(str::trim) else {
        return (planned, None);
    };
    if text == "now" {
        return (
            Deadline {
                at: now,
                by_person: true,
            },
            None,
        );
    }
    let Ok(at) = text.parse::<Timestamp>() else {
        let mut text = text.to_owned();
        cut_text(&mut text, 60);
        let report = format!(
            "the annotation {DRAIN_UNTIL_ANNOTATION} must be a time such as 2027-01-31T18:00:00Z, or now, but is {text:?}: \
             it does not count"
        );
        return (planned, Some(report));
    };
    let latest = later(since, LONGEST_DRAIN);
    if at > latest {
        let report = format!(
            "the annotation {DRAIN_UNTIL_ANNOTATION} says {at}, but a drain may last at most 30 days: it ends at {latest}"
        );
        return (
            Deadline {
                at: latest,
                by_person: true,
            },
            Some(report),
        );
    }
    (Deadline { at, by_person: true }, None)
}

/// `from` and so many seconds; the end of time if that is later than time goes.
fn later(from: Timestamp, seconds: u32) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(i64::from(seconds)))
        .unwrap_or(Timestamp::MAX)
}

/// Decides on a drain. `polls` counts the polls so far; `last_eviction_tried` says that the one eviction that is due at the
/// deadline was sent: whoever sends an eviction when [`Deadline::is_past`] records that.
#[must_use]
pub fn judge_drain(
    survey: &PodSurvey,
    since: Timestamp,
    now: Timestamp,
    deadline: Deadline,
    drain_timeout: u32,
    polls: u32,
    last_eviction_tried: bool,
) -> DrainVerdict {
    if survey.is_clear() {
        return DrainVerdict::Dispose;
    }
    let is_over = deadline.is_past(now) || polls >= POLL_BUDGET;
    if is_over && !survey.evictable.is_empty() && !last_eviction_tried {
        return DrainVerdict::Evict(SHORTEST_WAIT);
    }
    if is_over {
        let reason = if deadline.is_past(now) {
            describe_deadline(since, deadline)
        } else {
            format!("the pods were checked {polls} times, which is as often as one execution can")
        };
        return DrainVerdict::TimedOut(format!("{reason}; {}", describe_pods(survey)));
    }
    let wait = pace(since, now, deadline, drain_timeout, polls);
    if survey.evictable.is_empty() {
        DrainVerdict::Wait(wait)
    } else {
        DrainVerdict::Evict(wait)
    }
}

/// The poll law, and where a person moved the deadline so late that the law would spend the poll budget before it, what is
/// left of the budget spread over what is left of the time.
fn pace(since: Timestamp, now: Timestamp, deadline: Deadline, drain_timeout: u32, polls: u32) -> u32 {
    let waited = now.duration_since(since).as_secs();
    let left = deadline.at.duration_since(now).as_secs();
    let length = deadline
        .at
        .duration_since(since)
        .as_secs()
        .clamp(i64::from(drain_timeout), i64::from(LONGEST_DRAIN));
    let by_law = next_wait(waited, left, u32::try_from(length).unwrap_or(LONGEST_DRAIN), None);
    if !deadline.by_person {
        return by_law;
    }
    let polls_left = i64::from(POLL_BUDGET.saturating_sub(polls).max(1));
    by_law.max(u32::try_from(left / polls_left).unwrap_or(by_law))
}

fn describe_deadline(since: Timestamp, deadline: Deadline) -> String {
    if deadline.by_person {
        format!(
            "the annotation {DRAIN_UNTIL_ANNOTATION} ended the drain at {}",
            deadline.at
        )
    } else {
        format!(
            "the drain began at {since} and its time was over at {}",
            deadline.at
        )
    }
}

/// How many bytes the names in a sentence may have together: the sentence travels in every answer.
const SENTENCE_BUDGET: usize = 600;

/// What holds the node, in one sentence: counts, and the first five names of each kind.
#[must_use]
pub fn describe_pods(survey: &PodSurvey) -> String {
    let leaving = only_leaving(survey);
    let mut kinds: Vec<(&str, usize, Vec<String>)> = [
        ("waits for", &survey.awaited),
        ("has still to evict", &survey.evictable),
        ("holds back by zone_mismatch", &survey.zone_mismatch),
        ("sees leaving", &leaving),
    ]
    .into_iter()
    .filter(|(_, pods)| !pods.is_empty())
    .map(|(what, pods)| (what, pods.len(), first_names(pods)))
    .collect();
    if kinds.is_empty() {
        return "no pod holds the node".to_owned();
    }
    fit_names(
        kinds.iter_mut().flat_map(|(_, _, names)| names).collect(),
        SENTENCE_BUDGET,
    );
    let parts: Vec<String> = kinds
        .iter()
        .map(|(what, count, names)| format!("{what} {}", count_and_name(*count, names)))
        .collect();
    format!("it {}", parts.join(", "))
}

/// Whether the drain has come to where it only waits, for pods that end by themselves or for a node in their volumes' zone: nothing is
/// left to evict now, and nothing that was evicted is still leaving.
#[must_use]
pub fn only_waits(survey: &PodSurvey) -> bool {
    !(survey.awaited.is_empty() && survey.zone_mismatch.is_empty())
        && survey.evictable.is_empty()
        && only_leaving(survey).is_empty()
}

/// The story of a node that [`only_waits`].
#[must_use]
pub fn describe_waiting(survey: &PodSurvey) -> String {
    let what = if survey.zone_mismatch.is_empty() {
        "Only waits for pods that end by themselves".to_owned()
    } else {
        let names = first_names(&survey.zone_mismatch);
        let held = count_and_name(survey.zone_mismatch.len(), &names);
        format!("Holds back by zone_mismatch {held} until another node can use their volumes, and only waits")
    };
    format!("{what}; another node of its group may have its turn")
}

/// Pods on their way out that nobody waits for: those that are awaited are named as such.
fn only_leaving(survey: &PodSurvey) -> Vec<PodFacts> {
    let is_awaited = |pod: &PodFacts| survey.awaited.iter().any(|awaited| awaited.uid == pod.uid);
    survey
        .terminating
        .iter()
        .filter(|pod| !is_awaited(pod))
        .cloned()
        .collect()
}

pub(crate) fn count_and_name(count: usize, names: &[String]) -> String {
    let more = if count > names.len() { ", …" } else { "" };
    let noun = if count == 1 { "pod" } else { "pods" };
    format!("{count} {noun} ({}{more})", names.join(", "))
}

/// The story for people. It changes only if something changes: how long it has taken, the reader can see from `since`.
/// `blocked` says what stands in the way of evictions, one sentence each; what holds pods back is added.
#[must_use]
pub fn write_progress(
    survey: &PodSurvey,
    blocked: &[String],
    since: Timestamp,
    deadline: Deadline,
) -> Progress {
    Progress {
        summary: describe_pods(survey),
        waits_for: first_names(&survey.awaited),
        leaving: first_names(&survey.terminating),
        blocked_by: first_obstacles(survey, blocked),
        meanwhile: Vec::new(),
        since,
        until: deadline.at,
    }
}

/// What stands in the way of evictions, and what holds pods back: the first five sentences, in an order that does not change.
#[must_use]
pub fn first_obstacles(survey: &PodSurvey, blocked: &[String]) -> Vec<String> {
    let mut obstacles: Vec<String> = [blocked, &survey.held_because].concat();
    obstacles.sort();
    obstacles.dedup();
    obstacles.truncate(crate::pods::NAMES_PER_CLASS);
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, job_pod, pod};

    const DAY: u32 = 86_400;

    fn until(seconds: i64) -> Deadline {
        Deadline {
            at: at(seconds),
            by_person: false,
        }
    }

    fn waiting() -> PodSurvey {
        PodSurvey {
            awaited: vec![job_pod("job")],
            ..PodSurvey::default()
        }
    }

    fn evicting() -> PodSurvey {
        PodSurvey {
            evictable: vec![pod("web")],
            ..waiting()
        }
    }

    #[test]
    fn the_verdict_follows_from_pods_time_and_budget() {
        let clear = PodSurvey::default;
        let wait = |seconds| DrainVerdict::Wait(seconds);
        let evict = |seconds| DrainVerdict::Evict(seconds);
        let cases = [
            (
                "a clear node is disposed of",
                clear(),
                0,
                1,
                false,
                DrainVerdict::Dispose,
            ),
            (
                "a clear node is disposed of though time is over",
                clear(),
                86_400,
                1,
                false,
                DrainVerdict::Dispose,
            ),
            (
                "a clear node is disposed of though the budget is spent",
                clear(),
                9,
                POLL_BUDGET,
                false,
                DrainVerdict::Dispose,
            ),
            ("awaited pods are waited for", waiting(), 0, 1, false, wait(30)),
            (
                "the wait grows with the time",
                waiting(),
                20_000,
                1,
                false,
                wait(200),
            ),
            (
                "the wait ends at the deadline",
                waiting(),
                86_390,
                1,
                false,
                wait(10),
            ),
            ("what can be evicted is", evicting(), 20_000, 1, false, evict(200)),
            (
                "at the deadline one last eviction is tried",
                evicting(),
                86_400,
                1,
                false,
                evict(SHORTEST_WAIT),
            ),
            (
                "at the end of the budget, too",
                evicting(),
                9,
                POLL_BUDGET,
                false,
                evict(SHORTEST_WAIT),
            ),
        ];
        for (name, survey, now, polls, tried, expected) in cases {
            let verdict = judge_drain(&survey, at(0), at(now), until(86_400), DAY, polls, tried);
            assert_eq!(verdict, expected, "{name}");
        }
    }

    #[test]
    fn a_drain_whose_time_is_over_says_which_time_and_what_is_left() {
        let by_person = Deadline {
            at: at(50),
            by_person: true,
        };
        let leaving = PodSurvey {
            terminating: vec![pod("slow")],
            ..PodSurvey::default()
        };
        let many = PodSurvey {
            awaited: ["f", "e", "d", "c", "b", "a"].map(job_pod).to_vec(),
            ..PodSurvey::default()
        };
        let cases = [
            (
                "nothing can be evicted",
                judge_drain(&waiting(), at(0), at(86_400), until(86_400), DAY, 9, false),
                "the drain began at 2027-01-01T00:00:00Z and its time was over at 2027-01-02T00:00:00Z; it waits for 1 pod \
                 (default/job)",
            ),
            (
                "the last eviction was tried",
                judge_drain(&evicting(), at(0), at(86_430), until(86_400), DAY, 9, true),
                "and its time was over at 2027-01-02T00:00:00Z; it waits for 1 pod (default/job), has still to evict 1 pod \
                 (default/web)",
            ),
            (
                "a person ended it",
                judge_drain(&leaving, at(0), at(60), by_person, DAY, 9, false),
                "the annotation recycle-eks/drain-until ended the drain at 2027-01-01T00:00:50Z; it sees leaving 1 pod (default/slow)",
            ),
            (
                "the budget is spent",
                judge_drain(&waiting(), at(0), at(60), until(86_400), DAY, POLL_BUDGET, false),
                "the pods were checked 1216 times, which is as often as one execution can; it waits for",
            ),
            (
                "many pods",
                judge_drain(&many, at(0), at(86_400), until(86_400), DAY, 9, false),
                "6 pods (default/a, default/b, default/c, default/d, default/e, …)",
            ),
        ];
        for (name, verdict, expected) in cases {
            let DrainVerdict::TimedOut(text) = verdict else {
                panic!("{name}: {verdict:?}")
            };
            assert!(text.contains(expected), "{name}: {text}");
        }
    }

    #[test]
    fn pods_that_are_held_back_hold_the_node_and_are_said() {
        let held = PodSurvey {
            zone_mismatch: vec![pod("db-0")],
            held_because: vec!["default/db-0 is not evicted: why".to_owned()],
            ..PodSurvey::default()
        };
        assert!(!held.is_clear());
        assert!(only_waits(&held), "nothing moves for now");
        assert_eq!(
            describe_waiting(&held),
            "Holds back by zone_mismatch 1 pod (default/db-0) until another node can use their volumes, and only waits; another node of \
             its group may have its turn"
        );
        assert!(
            describe_waiting(&waiting()).starts_with("Only waits for pods that end by themselves; another")
        );
        let verdict =
            |survey: &PodSurvey, now| judge_drain(survey, at(0), at(now), until(86_400), DAY, 1, false);
        assert_eq!(verdict(&held, 0), DrainVerdict::Wait(30));
        let DrainVerdict::TimedOut(text) = verdict(&held, 86_400) else {
            panic!("nobody is evicted at the end either")
        };
        assert!(
            text.ends_with("it holds back by zone_mismatch 1 pod (default/db-0)"),
            "{text}"
        );
        let blocked = vec!["default/web: a budget".to_owned(), held.held_because[0].clone()];
        let progress = write_progress(&held, &blocked, at(0), until(86_400));
        assert_eq!(
            progress.blocked_by,
            ["default/db-0 is not evicted: why", "default/web: a budget"]
        );
        let others_move = PodSurvey {
            evictable: vec![pod("web")],
            ..held
        };
        assert!(!only_waits(&others_move));
        assert_eq!(verdict(&others_move, 0), DrainVerdict::Evict(30));
        assert_eq!(others_move.counts()["zone_mismatch"], 1);
        assert_eq!(others_move.names()["zone_mismatch"], ["default/db-0"]);
    }

    #[test]
    fn a_person_moves_the_deadline_and_a_bad_annotation_is_reported() {
        let planned = until(3_600);
        let person = |seconds| Deadline {
            at: at(seconds),
            by_person: true,
        };
        let cases: [(Option<&str>, Deadline, Option<&str>); 9] = [
            (None, planned, None),
            (Some("now"), person(1_000), None),
            (Some(" now "), person(1_000), None),
            (Some("2027-01-01T12:00:00Z"), person(43_200), None),
            (Some("2027-01-01T12:00:00+01:00"), person(39_600), None),
            (Some("2026-12-31T00:00:00Z"), person(-86_400), None),
            (
                Some("2028-01-01T00:00:00Z"),
                person(30 * 86_400),
                Some("at most 30 days: it ends at 2027-01-31T00:00:00Z"),
            ),
            (
                Some("tomorrow"),
                planned,
                Some("must be a time such as 2027-01-31T18:00:00Z, or now, but is \"tomorrow\""),
            ),
            (Some("2027-01-01"), planned, Some("it does not count")),
        ];
        for (annotation, deadline, reported) in cases {
            let (found, report) = find_deadline(at(0), at(1_000), 3_600, annotation);
            assert_eq!(found, deadline, "{annotation:?}");
            match reported {
                None => assert_eq!(report, None, "{annotation:?}"),
                Some(text) => assert!(
                    report.clone().unwrap().contains(text),
                    "{annotation:?}: {report:?}"
                ),
            }
        }
    }

    #[test]
    fn a_drain_only_waits_when_all_that_was_to_be_evicted_is_gone() {
        let leaving = PodSurvey {
            terminating: vec![pod("web")],
            ..waiting()
        };
        let ends = PodSurvey {
            terminating: vec![job_pod("job")],
            ..waiting()
        };
        for (name, survey, expected) in [
            ("an awaited pod", waiting(), true),
            ("an awaited pod that is on its way out itself", ends, true),
            ("another is to be evicted", evicting(), false),
            ("another was evicted and is still there", leaving, false),
            ("nothing at all", PodSurvey::default(), false),
        ] {
            assert_eq!(only_waits(&survey), expected, "{name}");
        }
    }

    #[test]
    fn now_ends_a_drain_at_once() {
        let (deadline, _) = find_deadline(at(0), at(1_000), DAY, Some("now"));
        assert!(deadline.is_past(at(1_000)));
        assert!(matches!(
            judge_drain(&waiting(), at(0), at(1_000), deadline, DAY, 1, false),
            DrainVerdict::TimedOut(_)
        ));
    }

    #[test]
    fn the_story_changes_only_if_something_changes() {
        let survey = || PodSurvey {
            terminating: vec![pod("old")],
            ..evicting()
        };
        let blocked = ["default/web is held by the budget web".to_owned(), "a".to_owned()];
        let reversed = [blocked[1].clone(), blocked[0].clone()];
        let story = write_progress(&survey(), &blocked, at(0), until(60));
        assert_eq!(story, write_progress(&survey(), &reversed, at(0), until(60)));
        assert_eq!(
            story.summary,
            "it waits for 1 pod (default/job), has still to evict 1 pod (default/web), sees leaving 1 pod (default/old)"
        );
        assert_eq!(story.waits_for, ["default/job"]);
        assert_eq!(story.leaving, ["default/old"]);
        assert_eq!((story.since, story.until), (at(0), at(60)));
        assert_ne!(story, write_progress(&waiting(), &blocked, at(0), until(60)));
    }

    #[test]
    fn a_story_is_read_as_it_was_written() {
        let story = write_progress(&evicting(), &[], at(0), until(60));
        let text = serde_json::to_string(&story).unwrap();
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap(), story);
        assert!(!text.contains("blocked_by"), "{text}");
    }
}
