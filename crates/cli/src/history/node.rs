//! The view of one execution of `recycle-node`: its state, the last answer of a function, and its pods.
//!
//! It is built from the events of the execution's history, and reads no clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use recycle::cluster::hook::HeldByHook;
use recycle::drain::blocked::RefusalKind;
use recycle::drain::holding::{BLOCKED, ENDS_WITH_NODE, EVICTABLE, HOLDING};
use recycle::report::event::{End, Event, EventKind, find_box};
use serde::Deserialize as _;
use serde_json::Value;

use crate::history::cursor::{Cursor, View};

/// The word for a pod that was on the node before and is gone.
pub(crate) const GONE: &str = "gone";

/// Lists the classes of pods that the view shows. If a pod is in several classes, the last one counts, because it says more.
fn classes() -> impl Iterator<Item = &'static str> {
    std::iter::once(ENDS_WITH_NODE).chain(HOLDING)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drain {
    pub since: Timestamp,
    /// The time at which the drain ends at the latest.
    pub until: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History {
    pub cursor: Cursor,
    pub started: Option<Timestamp>,
    /// The time of the newest event.
    pub at: Option<Timestamp>,
    pub input: Value,
    pub state: String,
    /// The box of the picture in which the execution is: the box of the newest state that has one.
    pub place: Option<&'static str>,
    /// How often the execution entered each state.
    pub entered: BTreeMap<String, u32>,
    /// The last answer of a function.
    pub answer: Value,
    pub node: Option<String>,
    pub group: Option<String>,
    pub drain: Option<Drain>,
    /// The ARNs of the Map Runs of the Distributed Maps.
    pub map_runs: Vec<String>,
    /// Every pod that an answer has named in one of the [`classes`], with its class, [`BLOCKED`] or [`GONE`].
    pub pods: BTreeMap<String, &'static str>,
    /// The pods whose evictions were refused by the last answer of `evict-pods`.
    blocked: Vec<String>,
    pub end: Option<End>,
}

impl View for History {
    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn fold(&mut self, event: Event) {
        self.at = Some(event.at);
        match event.what {
            EventKind::Started(input) => {
                self.started = Some(event.at);
                self.input = input;
            }
            EventKind::Entered(state) => {
                *self.entered.entry(state.clone()).or_default() += 1;
                self.place = find_box(&state).map(|(name, _)| name).or(self.place);
                self.state = state;
            }
            EventKind::Answered(answer) => self.learn(answer),
            EventKind::MapRun(arn) => self.map_runs.push(arn),
            EventKind::Ended(end) => self.end = Some(end),
            EventKind::Scheduled(_)
            | EventKind::Failed { .. }
            | EventKind::NodeAsked(_)
            | EventKind::NodeDone(_)
            | EventKind::Other => {}
        }
    }
}

impl History {
    fn learn(&mut self, answer: Value) {
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        self.node = text("/run/node").or_else(|| self.node.take());
        self.group = text("/run/group").or_else(|| self.group.take());
        self.drain = read_drain(&answer).or(self.drain);
        if self.state == "EvictPods" {
            let blocked = RefusalKind::BLOCKING
                .iter()
                .flat_map(|kind| names(&answer, kind.name()));
            self.blocked = blocked.map(str::to_owned).collect();
            self.mark_blocked();
        }
        // Pods are named only by `check-pods` and by a dry run.
        if self.state == "CheckPods" || answer["verdict"] == "planned" {
            self.learn_pods(&answer);
        }
        self.answer = answer;
    }

    /// Takes in the pods of an answer. A pod that is no longer named is gone, unless a class has more pods than it names.
    fn learn_pods(&mut self, answer: &Value) {
        let named: BTreeMap<String, &str> = classes()
            .flat_map(|class| names(answer, class).map(move |name| (name.to_owned(), class)))
            .collect();
        let all_are_named = classes().all(|class| {
            answer["counts"][class].as_u64().unwrap_or(0) <= names(answer, class).count() as u64
        });
        if all_are_named {
            for word in self.pods.values_mut() {
                *word = GONE;
            }
        }
        self.pods.extend(named);
        self.mark_blocked();
    }

    fn mark_blocked(&mut self) {
        for name in &self.blocked {
            if let Some(word) = self.pods.get_mut(name).filter(|word| **word == EVICTABLE) {
                *word = BLOCKED;
            }
        }
    }

    /// Returns why the execution is in its state, in the words of the last function.
    pub(crate) fn reason(&self) -> &str {
        self.answer["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn instance(&self) -> &str {
        self.input["instance_id"].as_str().unwrap_or_default()
    }

    /// Returns how long the execution has taken, until `now` or its end.
    pub(crate) fn elapsed(&self, now: Timestamp) -> SignedDuration {
        let until = self.at.max(self.end.is_none().then_some(now));
        match (self.started, until) {
            (Some(started), Some(until)) => until.duration_since(started),
            (None, _) | (_, None) => SignedDuration::ZERO,
        }
    }
}

fn names<'a>(answer: &'a Value, class: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let listed = answer["names"][class].as_array();
    listed.into_iter().flatten().filter_map(Value::as_str)
}

fn read_drain(answer: &Value) -> Option<Drain> {
    let run = &answer["run"];
    let since: Timestamp = run["draining_since"].as_str()?.parse().ok()?;
    let by_operator = run["drain_until"].as_str().and_then(|time| time.parse().ok());
    let seconds = run["input"]["drain_timeout"].as_i64()?;
    let until = by_operator.or_else(|| since.checked_add(SignedDuration::from_secs(seconds)).ok())?;
    let hook = HeldByHook::deserialize(&run["hook"]).ok();
    let until = hook.and_then(|hook| hook.ends_before(until)).unwrap_or(until);
    Some(Drain { since, until })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    fn history_of(whats: Vec<EventKind>) -> History {
        let mut history = History::default();
        for (id, what) in (1..).zip(whats) {
            let event = Event {
                id,
                previous: id - 1,
                at: at(id * 10),
                what,
            };
            history.read(event.clone());
            history.read(event);
        }
        history
    }

    fn entered(state: &str) -> EventKind {
        EventKind::Entered(state.to_owned())
    }

    #[test]
    fn a_history_has_the_state_of_its_execution_and_an_event_counts_once() {
        let history = history_of(vec![
            EventKind::Started(json!({"instance_id": "i-1"})),
            entered("ClaimNode"),
            EventKind::Answered(json!({"reason": "admitted", "run": {"node": "ip-1", "group": "workers"}})),
            entered("StandbyNode"),
            entered("WaitForReplacement"),
            entered("StandbyNode"),
        ]);
        assert_eq!(
            (history.state.as_str(), history.instance()),
            ("StandbyNode", "i-1")
        );
        assert_eq!(history.entered["StandbyNode"], 2);
        assert_eq!(
            (history.node.as_deref(), history.group.as_deref()),
            (Some("ip-1"), Some("workers"))
        );
        assert_eq!(history.elapsed(at(100)).as_secs(), 90);
    }

    #[test]
    fn a_pod_that_is_not_named_any_more_is_gone_unless_some_pods_are_unnamed() {
        let first = json!({"counts": {"awaited": 1, "evictable": 1}, "names": {"awaited": ["a/job"], "evictable": ["a/web"]}});
        let all = json!({"counts": {"awaited": 1}, "names": {"awaited": ["a/job"]}});
        let some = json!({"counts": {"awaited": 9}, "names": {"awaited": ["a/job"]}});
        for (second, web) in [(all, "gone"), (some, "evictable")] {
            let history = history_of(vec![
                entered("CheckPods"),
                EventKind::Answered(first.clone()),
                EventKind::Answered(second),
            ]);
            assert_eq!(history.pods["a/job"], "awaited");
            assert_eq!(history.pods["a/web"], web);
        }
    }

    #[test]
    fn a_pod_whose_eviction_was_refused_is_blocked_until_it_leaves() {
        let checked =
            |class: &str| EventKind::Answered(json!({"counts": {class: 1}, "names": {class: ["a/web"]}}));
        let refused = |kind: &str| EventKind::Answered(json!({"names": {kind: ["a/web"]}}));
        for (kind, word) in [
            ("blocked", "blocked"),
            ("several_budgets", "blocked"),
            ("throttled", "evictable"),
        ] {
            let mut events = vec![
                entered("CheckPods"),
                checked("evictable"),
                entered("EvictPods"),
                refused(kind),
            ];
            assert_eq!(history_of(events.clone()).pods["a/web"], word, "{kind}");
            events.extend([entered("CheckPods"), checked("evictable")]);
            assert_eq!(history_of(events.clone()).pods["a/web"], word, "{kind}");
            events.extend([entered("CheckPods"), checked("terminating")]);
            assert_eq!(history_of(events).pods["a/web"], "terminating", "{kind}");
        }
    }

    #[test]
    fn every_class_that_holds_a_node_is_shown() {
        for class in HOLDING {
            let answer = json!({"counts": {class: 1}, "names": {class: ["a/pod"]}});
            let history = history_of(vec![entered("CheckPods"), EventKind::Answered(answer)]);
            assert_eq!(history.pods["a/pod"], class);
        }
    }

    #[test]
    fn a_drain_ends_when_its_operator_or_its_hook_says_or_else_after_the_drain_timeout() {
        let run = |more: Value| {
            let mut run = json!({"draining_since": at(0).to_string(), "input": {"drain_timeout": 3600}});
            run.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            history_of(vec![EventKind::Answered(json!({"run": run}))])
                .drain
                .unwrap()
        };
        assert_eq!(run(json!({})).until, at(3600));
        assert_eq!(run(json!({"drain_until": at(7200).to_string()})).until, at(7200));
        let hook = json!({"name": "recycle-eks", "heartbeat_timeout": 900, "ends_at": at(1800).to_string()});
        assert_eq!(run(json!({"hook": hook})).until, at(1800));
    }

    #[test]
    fn the_outcome_of_an_end_is_that_of_its_output_or_its_error_or_its_status() {
        for (output, error, outcome) in [
            (json!({"outcome": "recycled", "reason": "gone"}), "", "recycled"),
            (Value::Null, "DrainTimedOut", "DrainTimedOut"),
            (Value::Null, "", "ABORTED"),
        ] {
            let end = End {
                status: "ABORTED".to_owned(),
                output,
                error: error.to_owned(),
                cause: String::new(),
            };
            assert_eq!(end.outcome(), outcome);
        }
    }
}
