//! The story of one group of a rotation, read from the history of the group's own execution: which nodes, which of them are done or under
//! way, and what the next ones wait for. Like [`crate::history::node`] it knows no clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use recycle::report::event::{Event, Happened};
use serde_json::Value;

use crate::history::cursor::{Cursor, View};

/// The state in which a node's turn ends. Its input says how the turn ended (`state-machine/rotate-nodes.asl.json`).
pub(crate) const TURN_ENDED: &str = "TurnEnded";

/// The state of a node's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    /// The turn has begun, and there is no answer yet whether the node may start.
    Asks,
    Waits(Wait),
    /// The node's execution of `recycle-node` was started.
    UnderWay,
    Recycled,
    Failed,
    /// The node was not begun, or its execution succeeded without recycling it.
    Left,
}

/// The wait of a node that may not start yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub since: Timestamp,
    /// The time of the next question whether the node may start.
    pub until: Timestamp,
    pub reason: String,
}

/// The numbers of nodes of a group by the state of their turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub nodes: usize,
    /// Recycled.
    pub done: usize,
    /// Nodes whose turn ended as failed. In most cases their last try failed.
    pub failed: usize,
    /// Nodes that are not begun any more, or whose execution succeeded without recycling them.
    pub left: usize,
    /// Nodes that executions work on.
    pub under_way: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupStory {
    pub cursor: Cursor,
    pub group: String,
    /// The group's nodes, in the order of their turns.
    pub nodes: Vec<String>,
    pub has_ended: bool,
    /// For each criterion the places, from 0, of the nodes that meet it. Empty unless the rotation is a dry run.
    criteria: BTreeMap<String, Vec<usize>>,
    /// The newest event of each turn, with the turn's index. The next event of the turn names it as its previous one.
    tips: BTreeMap<i64, usize>,
    turns: BTreeMap<usize, Turn>,
}

impl View for GroupStory {
    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn fold(&mut self, event: Event) {
        if let Happened::TurnBegan(index) = event.what {
            self.turns.insert(index, Turn::Asks);
            self.tips.insert(event.id, index);
            return;
        }
        let turn = self.tips.remove(&event.previous);
        if let Some(index) = turn {
            self.tips.insert(event.id, index);
        }
        match event.what {
            Happened::Started(input) => {
                self.group = input["group"].as_str().unwrap_or_default().to_owned();
            }
            Happened::Answered(answer) => match turn {
                Some(index) => self.hear(index, &answer, event.at),
                None => self.learn_nodes(&answer),
            },
            Happened::TurnEnded(end) => {
                let ended = match end["end"].as_str() {
                    Some("recycled") => Turn::Recycled,
                    Some("failed") => Turn::Failed,
                    Some(_) | None => Turn::Left,
                };
                self.turns.extend(turn.map(|index| (index, ended)));
            }
            Happened::Ended(_) => self.has_ended = true,
            Happened::Entered(_)
            | Happened::Scheduled(_)
            | Happened::Failed { .. }
            | Happened::MapRun(_)
            | Happened::TurnBegan(_)
            | Happened::Other => {}
        }
    }
}

impl GroupStory {
    fn learn_nodes(&mut self, answer: &Value) {
        if let Some(nodes) = answer["nodes"].as_array() {
            let nodes = nodes.iter().filter_map(Value::as_str);
            self.nodes = nodes.map(str::to_owned).collect();
            self.criteria = serde_json::from_value(answer["criteria"].clone()).unwrap_or_default();
        }
    }

    /// Lists the criteria by which a node was selected, in the words of the input.
    pub(crate) fn list_criteria(&self, node: &str) -> Vec<&str> {
        let place = self.nodes.iter().position(|other| other == node);
        let met = self.criteria.iter();
        let met = met.filter(|(_, places)| place.is_some_and(|place| places.contains(&place)));
        met.map(|(criterion, _)| criterion.as_str()).collect()
    }

    fn hear(&mut self, index: usize, answer: &Value, at: Timestamp) {
        let turn = match answer["verdict"].as_str() {
            Some("start") => Turn::UnderWay,
            // A pause lies between two nodes, or before the next try of a node that failed.
            Some("wait" | "pause") => {
                let seconds = answer["wait_seconds"].as_i64().unwrap_or(0);
                let until = at.checked_add(SignedDuration::from_secs(seconds));
                Turn::Waits(Wait {
                    since: match self.turns.get(&index) {
                        Some(Turn::Waits(before)) => before.since,
                        Some(_) | None => at,
                    },
                    until: until.unwrap_or(Timestamp::MAX),
                    reason: answer["reason"].as_str().unwrap_or_default().to_owned(),
                })
            }
            // The end of the turn says how the node is left.
            Some(_) | None => return,
        };
        self.turns.insert(index, turn);
    }

    pub(crate) fn count(&self) -> Counts {
        self.count_on(Counts::default())
    }

    /// Adds this group's nodes to the counts. After the end of the group's execution no node is under way.
    pub(crate) fn count_on(&self, mut counts: Counts) -> Counts {
        counts.nodes += self.nodes.len();
        for turn in self.turns.values() {
            match turn {
                Turn::Recycled => counts.done += 1,
                Turn::Failed => counts.failed += 1,
                Turn::Left => counts.left += 1,
                Turn::UnderWay => counts.under_way += usize::from(!self.has_ended),
                Turn::Asks | Turn::Waits(_) => {}
            }
        }
        counts
    }

    /// Lists the nodes that wait until they may start, in the order of their turns, each with its wait.
    pub(crate) fn list_waits(&self) -> impl Iterator<Item = (&str, &Wait)> {
        let turns = self.turns.iter().filter(|_| !self.has_ended);
        turns.filter_map(|(index, turn)| match turn {
            Turn::Waits(wait) => Some((self.nodes.get(*index)?.as_str(), wait)),
            Turn::Asks | Turn::UnderWay | Turn::Recycled | Turn::Failed | Turn::Left => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use recycle::report::event::End;
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    /// Returns the story of these events. Each has the number of the event that led to it, and its time in seconds.
    fn told(whats: Vec<(i64, i64, Happened)>) -> GroupStory {
        let mut story = GroupStory::default();
        for (id, (previous, seconds, what)) in (1..).zip(whats) {
            story.read(Event {
                id,
                previous,
                at: at(seconds),
                what,
            });
        }
        story
    }

    fn begun(nodes: &[&str]) -> Vec<(i64, i64, Happened)> {
        vec![
            (0, 0, Happened::Started(json!({"group": "workers"}))),
            (
                1,
                0,
                Happened::Answered(json!({"verdict": "mark_nodes", "nodes": nodes})),
            ),
        ]
    }

    fn answered(verdict: &str, reason: &str) -> Happened {
        Happened::Answered(json!({"verdict": verdict, "reason": reason, "wait_seconds": 30}))
    }

    fn over(end: &str) -> Happened {
        Happened::TurnEnded(json!({"end": end}))
    }

    #[test]
    fn each_nodes_events_are_its_own_and_a_wait_lasts_since_its_first_answer() {
        let mut events = begun(&["i-1", "i-2"]);
        events.extend([
            (2, 10, Happened::TurnBegan(0)),
            (2, 10, Happened::TurnBegan(1)),
            (3, 11, answered("start", "")),
            (4, 12, answered("wait", "the first")),
            (6, 13, Happened::Other),
            (7, 40, answered("wait", "the pause")),
        ]);
        let story = told(events);
        assert_eq!(story.group, "workers");
        let waits: Vec<(&str, &Wait)> = story.list_waits().collect();
        let expected = Wait {
            since: at(12),
            until: at(70),
            reason: "the pause".to_owned(),
        };
        assert_eq!(waits, [("i-2", &expected)]);
        assert_eq!((story.count().under_way, story.count().done), (1, 0));
    }

    #[test]
    fn a_node_that_pauses_waits_after_a_failed_try_too() {
        for before in [None, Some("wait"), Some("start")] {
            let mut events = begun(&["i-1"]);
            events.push((2, 0, Happened::TurnBegan(0)));
            events.push((
                3,
                10,
                before.map_or(Happened::Other, |verdict| answered(verdict, "turn")),
            ));
            events.push((4, 20, answered("pause", "wait_between_nodes_seconds")));
            let story = told(events);
            let waits: Vec<(&str, &Wait)> = story.list_waits().collect();
            let expected = Wait {
                since: at(if before == Some("wait") { 10 } else { 20 }),
                until: at(50),
                reason: "wait_between_nodes_seconds".to_owned(),
            };
            assert_eq!(waits, [("i-1", &expected)], "{before:?}");
            assert_eq!(story.count().under_way, 0, "{before:?}");
        }
    }

    #[test]
    fn a_dry_run_tells_what_each_node_was_selected_by() {
        let criteria = json!({"ami": [0, 1], "launch_template": [1]});
        let answer = json!({"nodes": ["i-1", "i-2"], "criteria": criteria});
        let story = told(vec![(0, 0, Happened::Answered(answer))]);
        assert_eq!(story.list_criteria("i-1"), ["ami"]);
        assert_eq!(story.list_criteria("i-2"), ["ami", "launch_template"]);
        assert!(story.list_criteria("i-3").is_empty());
    }

    #[test]
    fn every_end_is_counted_and_after_the_groups_end_nothing_is_under_way() {
        let mut events = begun(&["i-1", "i-2", "i-3", "i-4"]);
        events.extend([
            (2, 0, Happened::TurnBegan(0)),
            (2, 0, Happened::TurnBegan(1)),
            (2, 0, Happened::TurnBegan(2)),
            (2, 0, Happened::TurnBegan(3)),
            (3, 9, over("recycled")),
            (4, 9, over("failed")),
            (5, 9, over("left")),
            (6, 9, answered("start", "")),
        ]);
        let counts = told(events.clone()).count();
        assert_eq!(
            counts,
            Counts {
                nodes: 4,
                done: 1,
                failed: 1,
                left: 1,
                under_way: 1
            }
        );
        events.push((0, 10, Happened::Ended(End::default())));
        assert_eq!(told(events).count().under_way, 0);
    }

    #[test]
    fn the_names_are_those_of_the_state_machine() {
        let machine = include_str!("../../../../state-machine/rotate-nodes.asl.json");
        assert!(machine.contains(&format!("\"{TURN_ENDED}\": {{\"Type\": \"Succeed\"}}")));
        for end in ["\"end\": \"failed\"", "end='recycled'", "end='failed'"] {
            assert!(machine.contains(end), "{end}");
        }
    }
}
