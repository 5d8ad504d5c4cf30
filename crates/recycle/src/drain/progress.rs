//! Writes the progress of a drain for operators: the annotation, Events and sentences.

use crate::base::text::{count_and_name, fit_names};
use crate::cluster::hook::HeldByHook;
use crate::cluster::pod::PodFacts;
use crate::drain::survey::{PodSurvey, first_names};
use crate::drain::terms::Terms;
use crate::input::model::OnDrainTimeout;
use crate::records::blocker::{Blocker, count_all};
use crate::records::progress::Progress;

/// The bytes that the names in a sentence may have together: the sentence travels in every answer.
const SENTENCE_BUDGET: usize = 450;

/// Describes in one sentence the pods that hold the node: counts, and the first five names of each kind.
pub fn describe_pods(survey: &PodSurvey) -> String {
    let leaving = survey.leaving();
    let mut kinds: Vec<(&str, usize, Vec<String>, &str)> = [
        ("cannot read", &survey.unreadable, ""),
        ("waits for", &survey.awaited, ""),
        ("still has to evict", &survey.evictable, ""),
        ("evicts last", &survey.leaves_last, ""),
        ("holds back", &survey.zone_mismatch, " because of zone_mismatch"),
        ("finds", &leaving, " still leaving"),
        ("finds", &survey.stuck, " stuck"),
    ]
    .into_iter()
    .filter(|(_, pods, _)| !pods.is_empty())
    .map(|(before, pods, after)| (before, pods.len(), first_names(pods), after))
    .collect();
    if kinds.is_empty() {
        return "no pod holds the node".to_owned();
    }
    let mut names: Vec<&mut String> = kinds.iter_mut().flat_map(|(_, _, names, _)| names).collect();
    fit_names(&mut names, SENTENCE_BUDGET);
    let parts: Vec<String> = kinds
        .iter()
        .map(|(before, count, names, after)| format!("{before} {}{after}", count_and_name(*count, names)))
        .collect();
    format!("it {}", parts.join(", "))
}

/// Checks whether the drain only waits: for pods that end by themselves, for a node in the zone of a volume,
/// or for pods that cannot be read. There is no pod left to evict now, and no evicted pod is still leaving.
pub fn only_waits(survey: &PodSurvey) -> bool {
    !(survey.awaited.is_empty() && survey.zone_mismatch.is_empty() && survey.unreadable.is_empty())
        && survey.evictable.is_empty()
        && survey.leaving().is_empty()
        && survey.without_awaited(&survey.stuck).is_empty()
}

/// Describes a node that [`only_waits`], for an Event.
pub fn describe_waiting(survey: &PodSurvey) -> String {
    let name = |pods: &[PodFacts]| count_and_name(pods.len(), &first_names(pods));
    let what = if !survey.zone_mismatch.is_empty() {
        let held = name(&survey.zone_mismatch);
        format!("Only waits, and holds back {held} until another node can use their volumes (zone_mismatch)")
    } else if !survey.unreadable.is_empty() {
        let unreadable = name(&survey.unreadable);
        format!("Only waits, because {unreadable} cannot be read")
    } else {
        "Only waits for pods that end by themselves".to_owned()
    };
    format!("{what}; another node of its group may be admitted")
}

/// Builds the progress of the drain. The text changes only if something changes. Readers see from `since` how long it has taken.
pub fn build_progress(survey: &PodSurvey, blocked: Vec<Blocker>, terms: &Terms<'_>) -> Progress {
    let summary = summarize(survey, &blocked);
    let until = terms.deadline.at;
    Progress {
        hook_until: terms.hook.and_then(|hook| hook.ends_before(until)),
        then: describe_end(survey, terms),
        blocked,
        held: describe_held(survey),
        counts: survey.counts(),
        names: survey.names(),
        ..Progress::new(summary, terms.since, until)
    }
}

/// Puts the present blockers into the progress. Only `evict-pods` knows them, because it asks for the evictions.
pub fn add_blockers(progress: Progress, survey: &PodSurvey, blocked: Vec<Blocker>) -> Progress {
    Progress {
        summary: summarize(survey, &blocked),
        blocked,
        held: describe_held(survey),
        ..progress
    }
}

/// Returns what holds pods back: the first five sentences in alphabetical order, so that the order does not change.
fn describe_held(survey: &PodSurvey) -> Vec<String> {
    let mut held = survey.held_because.clone();
    held.sort();
    held.dedup();
    held.truncate(crate::base::text::NAMES_PER_CLASS);
    held
}

/// Summarizes in a few words what holds the node: `kubectl describe node` shows no more.
fn summarize(survey: &PodSurvey, blocked: &[Blocker]) -> String {
    let blocked = usize::try_from(count_all(blocked)).unwrap_or(usize::MAX);
    let parts: Vec<String> = [
        ("unreadable", survey.unreadable.len()),
        ("awaited", survey.awaited.len()),
        ("evictable", survey.evictable.len()),
        ("blocked", blocked),
        ("leaves_last", survey.leaves_last.len()),
        ("terminating", survey.leaving().len()),
        ("stuck", survey.stuck.len()),
        ("zone_mismatch", survey.zone_mismatch.len()),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{count} {what}"))
    .collect();
    if parts.is_empty() {
        return "no pod holds the node".to_owned();
    }
    format!("pods: {}", parts.join(", "))
}

/// Describes what happens at the deadline, and which evictions come before it.
pub fn describe_end(survey: &PodSurvey, terms: &Terms<'_>) -> String {
    if let Some(at) = terms.interrupted_at {
        return format!(
            "EC2 takes the instance away at {at}; if it is still there at the end, the node is restored"
        );
    }
    let warning = terms.hook.and_then(|hook| hook.warn(terms.deadline.at));
    let kept = terms.hook.map(HeldByHook::describe_end);
    let kept = kept.unwrap_or_else(|| "the node is restored".to_owned());
    let end = match terms.on_timeout {
        OnDrainTimeout::Restore => kept,
        OnDrainTimeout::Evict => match terms.next_end_of_patience(survey) {
            Some(due) => format!("awaited pods are evicted, the first at {due}"),
            None => format!("{PODS_KEEP_RUNNING}{kept}"),
        },
        OnDrainTimeout::Terminate => "the instance is disposed of, even if pods still run on it".to_owned(),
    };
    std::iter::once(end).chain(warning).collect::<Vec<_>>().join("; ")
}

/// The words before the end of a drain with `on_drain_timeout: evict` if no awaited pod is left to evict.
const PODS_KEEP_RUNNING: &str = "remaining pods keep running, and ";

/// The openings of the sentences in [`Progress::then`], with a word for each.
/// The words for the three values of `on_drain_timeout` are those values.
const ENDS: [(&str, &str); 6] = [
    ("the node is restored", "restore"),
    ("awaited pods are evicted", "evict"),
    ("the instance is disposed of", "terminate"),
    ("the hook is no longer kept alive", "group terminates"),
    ("the instance is kept", "kept"),
    ("EC2 takes the instance away", "EC2 takes it"),
];

/// Names the end of a drain in a word or two for a table, from the sentence in [`Progress::then`].
/// Other tools and users can write a Node's annotations too: any other sentence gives `?`.
pub fn name_end(then: &str) -> &'static str {
    let then = then.strip_prefix(PODS_KEEP_RUNNING).unwrap_or(then);
    let known = ENDS.iter().find(|(sentence, _)| then.starts_with(sentence));
    known.map_or("?", |(_, word)| word)
}

/// The bytes that the names in an Event may have together: the API server takes messages of up to 1,024.
const EVENT_BUDGET: usize = 600;

/// Describes every class of pods with its first five names: the text of an Event.
pub fn summarize_pods(survey: &PodSurvey, terms: &Terms<'_>) -> String {
    let counts = survey.counts();
    let classes: Vec<String> = survey
        .names_within(EVENT_BUDGET)
        .iter()
        .map(|(class, names)| {
            let count = counts.get(class).unwrap_or(&0);
            format!("{class} {count} ({})", names.join(", "))
        })
        .collect();
    format!("Pods until {}: {}", terms.deadline.at, classes.join("; "))
}
