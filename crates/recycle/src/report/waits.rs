//! Reports how long the nodes of a group waited in a rotation until they might start, and for what.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::report::event::{Event, EventKind};

/// A reason for which at least one node of a group waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupWait {
    pub group: String,
    /// The reason, in the words of `select-nodes`.
    pub why: String,
    pub since: Timestamp,
    /// The time since which no node of the group waits for it. None if one still does.
    pub until: Option<Timestamp>,
    /// Seconds in which at least one node waited for it.
    pub seconds: i64,
    pub nodes: usize,
}

/// Lists the waits of a group, from the events of its own execution. The longest comes first. Waits that last are counted until `now`.
pub fn list_waits(events: &[Event], now: Timestamp) -> Vec<GroupWait> {
    let mut reader = Reader::default();
    for event in events {
        reader.read(event);
    }
    let mut waits: Vec<GroupWait> = reader
        .times
        .iter()
        .map(|(why, times)| to_wait(&reader.group, why, times, now))
        .collect();
    waits.sort_by_key(|wait| (std::cmp::Reverse(wait.seconds), wait.since));
    waits
}

/// The wait of one node.
struct Time {
    node: usize,
    since: Timestamp,
    until: Option<Timestamp>,
}

#[derive(Default)]
struct Reader {
    group: String,
    /// The newest event of each iteration, with its index. The next event of the iteration names it as its previous one.
    tips: BTreeMap<i64, usize>,
    times: BTreeMap<String, Vec<Time>>,
}

impl Reader {
    fn read(&mut self, event: &Event) {
        let node = if let EventKind::NodeAsked(index) = event.what {
            Some(index)
        } else {
            self.tips.remove(&event.previous)
        };
        self.tips.extend(node.map(|index| (event.id, index)));
        match (&event.what, node) {
            (EventKind::Started(input), _) => {
                self.group = input["group"].as_str().unwrap_or_default().to_owned();
            }
            (EventKind::Answered(answer), Some(node)) => {
                let why = match answer["verdict"].as_str() {
                    Some("wait" | "pause") => answer["reason"].as_str(),
                    Some(_) | None => None,
                };
                self.see(node, why, event.at);
            }
            (EventKind::NodeDone(_), Some(node)) => self.see(node, None, event.at),
            (EventKind::Ended(_), _) => self.end_all(event.at),
            _ => {}
        }
    }

    /// Records what a node waits for now.
    fn see(&mut self, node: usize, why: Option<&str>, at: Timestamp) {
        let mut is_known = false;
        for (before, times) in &mut self.times {
            for time in times
                .iter_mut()
                .filter(|time| time.node == node && time.until.is_none())
            {
                if why == Some(before) {
                    is_known = true;
                } else {
                    time.until = Some(at);
                }
            }
        }
        if let Some(why) = why.filter(|_| !is_known) {
            let until = None;
            let time = Time {
                node,
                since: at,
                until,
            };
            self.times.entry(why.to_owned()).or_default().push(time);
        }
    }

    fn end_all(&mut self, at: Timestamp) {
        for time in self.times.values_mut().flatten() {
            time.until.get_or_insert(at);
        }
    }
}

fn to_wait(group: &str, why: &str, times: &[Time], now: Timestamp) -> GroupWait {
    let mut spans: Vec<(Timestamp, Timestamp)> = times
        .iter()
        .map(|time| (time.since, time.until.unwrap_or(now).max(time.since)))
        .collect();
    spans.sort();
    let since = spans.first().map_or(now, |(since, _)| *since);
    // Nodes wait at the same time, so their times overlap.
    let (mut waited, mut counted) = (SignedDuration::ZERO, since);
    for (from, to) in spans {
        waited += to.duration_since(from.max(counted)).max(SignedDuration::ZERO);
        counted = counted.max(to);
    }
    let mut nodes: Vec<usize> = times.iter().map(|time| time.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    GroupWait {
        group: group.to_owned(),
        why: why.to_owned(),
        since,
        until: times.iter().all(|time| time.until.is_some()).then_some(counted),
        seconds: waited.as_secs(),
        nodes: nodes.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::at;
    use crate::report::event::End;

    /// Events with the number of the event before, and the time in seconds.
    fn events(whats: Vec<(i64, i64, EventKind)>) -> Vec<Event> {
        let numbered = (1..).zip(whats);
        let events = numbered.map(|(id, (previous, seconds, what))| Event {
            id,
            previous,
            at: at(seconds),
            what,
        });
        events.collect()
    }

    fn answered(verdict: &str, reason: &str) -> EventKind {
        EventKind::Answered(json!({"verdict": verdict, "reason": reason}))
    }

    fn begun() -> Vec<(i64, i64, EventKind)> {
        vec![
            (0, 0, EventKind::Started(json!({"group": "workers"}))),
            (1, 0, EventKind::NodeAsked(0)),
            (1, 0, EventKind::NodeAsked(1)),
            (2, 10, answered("wait", "the group is paused")),
            (3, 20, answered("wait", "the group is paused")),
            (4, 70, answered("wait", "the group is paused")),
            (6, 110, answered("start", "")),
        ]
    }

    #[test]
    fn the_time_in_which_any_node_waits_for_a_reason_counts_once() {
        let mut whats = begun();
        whats.push((5, 150, answered("pause", "wait_between_nodes")));
        whats.push((8, 160, EventKind::NodeDone(Value::Null)));
        let waits = list_waits(&events(whats), at(999));
        let found: Vec<_> = waits
            .iter()
            .map(|wait| {
                (
                    wait.why.as_str(),
                    wait.since,
                    wait.until,
                    wait.seconds,
                    wait.nodes,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("the group is paused", at(10), Some(at(150)), 140, 2),
                ("wait_between_nodes", at(150), Some(at(160)), 10, 1),
            ]
        );
        assert_eq!(waits[0].group, "workers");
    }

    #[test]
    fn a_wait_lasts_until_now_or_the_end_of_the_execution() {
        let running = list_waits(&events(begun()), at(200));
        assert_eq!((running[0].until, running[0].seconds), (None, 190));
        let mut whats = begun();
        whats.push((5, 180, EventKind::Ended(End::default())));
        let ended = list_waits(&events(whats), at(200));
        assert_eq!((ended[0].until, ended[0].seconds), (Some(at(180)), 170));
    }

    #[test]
    fn a_break_between_two_waits_for_the_same_reason_does_not_count() {
        let whats = vec![
            (0, 0, EventKind::NodeAsked(0)),
            (1, 10, answered("wait", "paused")),
            (2, 20, answered("start", "")),
            (3, 50, answered("wait", "paused")),
            (4, 55, EventKind::NodeDone(Value::Null)),
        ];
        let waits = list_waits(&events(whats), at(99));
        assert_eq!((waits[0].seconds, waits[0].until), (15, Some(at(55))));
    }
}
