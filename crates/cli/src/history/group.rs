//! The history of one group of a rotation: its nodes, their states, and the waits of those that may not start yet.
//!
//! It is built from the events of the group's own execution. It does not read a clock, like [`crate::history::node`].

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use recycle::report::event::{Event, EventKind};
use serde_json::Value;

use crate::history::cursor::{Cursor, View};

/// The state in which the iteration of a node ends. Its input says how it ended (`state-machine/rotate-nodes.asl.json`).
pub(crate) const NODE_DONE: &str = "NodeDone";

/// The state of a node in the rotation. Each node has its own iteration of the Map.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NodeState {
    /// The iteration has begun, and there is no answer yet whether the node may start.
    Asks,
    Waits(Wait),
    /// The node's execution of `recycle-node` was started.
    UnderWay,
    Recycled,
    Failed,
    /// The node is skipped: it was not started, or its execution succeeded without recycling it.
    Left,
    /// The node is left for the group's next pass.
    NextPass,
}

/// The wait of a node that may not start yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub since: Timestamp,
    /// The time of the next check whether the node may start.
    pub until: Timestamp,
    pub reason: String,
}

/// Returns the part of a selection's reason that counts the nodes on which other executions work. Empty if there is none.
pub(crate) fn find_left_out(reason: &str) -> &str {
    let mut parts = reason.split("; ");
    let is_count = |part: &&str| part.starts_with("executions already work on ") && part.ends_with(" more");
    parts.find(is_count).unwrap_or_default()
}

/// The numbers of nodes of a group by their states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub nodes: usize,
    /// Recycled.
    pub done: usize,
    /// Nodes whose iteration ended as failed. In most cases their last attempt failed.
    pub failed: usize,
    /// Skipped nodes: nodes that were not started, or whose execution succeeded without recycling them.
    pub left: usize,
    /// Nodes that executions work on.
    pub under_way: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupHistory {
    pub cursor: Cursor,
    pub group: String,
    /// The group's nodes, in the order of their iterations.
    pub nodes: Vec<String>,
    pub has_ended: bool,
    /// The time at which the pass began.
    pub started: Option<Timestamp>,
    /// The number of selected nodes that are left for the group's next pass, which has an execution of its own.
    more: usize,
    /// The number of nodes for which the next pass begins, after the end of this one.
    left_for_next: usize,
    /// Nodes that the selection leaves out, such as those on which other executions work, in words. Empty if there are none.
    left_out: String,
    /// For each criterion the places, from 0, of the nodes that meet it. Empty unless the rotation is a dry run.
    criteria: BTreeMap<String, Vec<usize>>,
    /// The newest event of each iteration, with its index. The next event of the iteration names it as its previous one.
    tips: BTreeMap<i64, usize>,
    node_states: BTreeMap<usize, NodeState>,
}

impl View for GroupHistory {
    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn fold(&mut self, event: Event) {
        if let EventKind::NodeAsked(index) = event.what {
            self.node_states.insert(index, NodeState::Asks);
            self.tips.insert(event.id, index);
            return;
        }
        let node_state = self.tips.remove(&event.previous);
        if let Some(index) = node_state {
            self.tips.insert(event.id, index);
        }
        match event.what {
            EventKind::Started(input) => {
                self.started = Some(event.at);
                self.group = input["group"].as_str().unwrap_or_default().to_owned();
            }
            EventKind::Answered(answer) => match node_state {
                Some(index) => self.learn_wait(index, &answer, event.at),
                None => self.learn_nodes(&answer),
            },
            EventKind::NodeDone(end) => {
                let ended = match end["end"].as_str() {
                    Some("recycled") => NodeState::Recycled,
                    Some("failed") => NodeState::Failed,
                    Some("next_pass") => NodeState::NextPass,
                    Some(_) | None => NodeState::Left,
                };
                self.node_states.extend(node_state.map(|index| (index, ended)));
            }
            EventKind::Ended(end) => self.learn_end(&end.output),
            EventKind::Entered(_)
            | EventKind::Scheduled(_)
            | EventKind::Failed { .. }
            | EventKind::MapRun(_)
            | EventKind::NodeAsked(_)
            | EventKind::Other => {}
        }
    }
}

impl GroupHistory {
    fn learn_nodes(&mut self, answer: &Value) {
        if let Some(nodes) = answer["nodes"].as_array() {
            let nodes = nodes.iter().filter_map(Value::as_str);
            self.nodes = nodes.map(str::to_owned).collect();
            self.more = read_more(answer);
            let reason = answer["reason"].as_str().unwrap_or_default();
            self.left_out = find_left_out(reason).to_owned();
            self.criteria = serde_json::from_value(answer["criteria"].clone()).unwrap_or_default();
        }
    }

    /// Without a next pass, its nodes are skipped.
    fn learn_end(&mut self, output: &Value) {
        self.has_ended = true;
        self.left_for_next = read_more(output);
        if self.left_for_next > 0 {
            self.more = 0;
            return;
        }
        let node_states = self.node_states.values_mut();
        for node_state in node_states.filter(|node_state| **node_state == NodeState::NextPass) {
            *node_state = NodeState::Left;
        }
    }

    /// Lists the criteria by which a node was selected, in the words of the input.
    pub(crate) fn list_criteria(&self, node: &str) -> Vec<&str> {
        let place = self.nodes.iter().position(|other| other == node);
        let met = self.criteria.iter();
        let met = met.filter(|(_, places)| place.is_some_and(|place| places.contains(&place)));
        met.map(|(criterion, _)| criterion.as_str()).collect()
    }

    fn learn_wait(&mut self, index: usize, answer: &Value, at: Timestamp) {
        let node_state = match answer["verdict"].as_str() {
            Some("start") => NodeState::UnderWay,
            // A pause lies between two nodes, or before the next attempt of a node that failed.
            Some("wait" | "pause") => {
                let seconds = answer["wait_seconds"].as_i64().unwrap_or(0);
                let until = at.checked_add(SignedDuration::from_secs(seconds));
                NodeState::Waits(Wait {
                    since: match self.node_states.get(&index) {
                        Some(NodeState::Waits(before)) => before.since,
                        Some(_) | None => at,
                    },
                    until: until.unwrap_or(Timestamp::MAX),
                    reason: answer["reason"].as_str().unwrap_or_default().to_owned(),
                })
            }
            // The end of the iteration says what became of the node.
            Some(_) | None => return,
        };
        self.node_states.insert(index, node_state);
    }

    /// Adds the nodes of this pass to the counts. After the end of the group's execution no node is under way.
    fn count_on(&self, mut counts: Counts) -> Counts {
        counts.nodes += self.nodes.len() + self.more;
        if self.has_ended {
            counts.left += self.more;
        }
        for node_state in self.node_states.values() {
            match node_state {
                NodeState::Recycled => counts.done += 1,
                NodeState::Failed => counts.failed += 1,
                NodeState::Left => counts.left += 1,
                NodeState::UnderWay => counts.under_way += usize::from(!self.has_ended),
                NodeState::NextPass if self.has_ended => counts.nodes -= 1,
                NodeState::NextPass => {}
                NodeState::Asks | NodeState::Waits(_) => {}
            }
        }
        counts
    }

    /// Lists the nodes that wait until they may start, in the order of their iterations, each with its wait.
    fn list_waits(&self) -> impl Iterator<Item = (&str, &Wait)> {
        let node_states = self.node_states.iter().filter(|_| !self.has_ended);
        node_states.filter_map(|(index, node_state)| match node_state {
            NodeState::Waits(wait) => Some((self.nodes.get(*index)?.as_str(), wait)),
            NodeState::Asks
            | NodeState::UnderWay
            | NodeState::Recycled
            | NodeState::Failed
            | NodeState::Left
            | NodeState::NextPass => None,
        })
    }
}

/// A group with its passes, each of which has an execution of its own.
pub(crate) struct Passes<'a> {
    pub group: &'a str,
    /// The oldest first.
    passes: Vec<&'a GroupHistory>,
}

impl<'a> Passes<'a> {
    /// Sorts the passes of a rotation by their groups. A pass whose nodes are not known yet is left out.
    pub(crate) fn list(histories: impl Iterator<Item = &'a GroupHistory>) -> Vec<Self> {
        let mut by_group: BTreeMap<&str, Vec<&GroupHistory>> = BTreeMap::new();
        for history in histories.filter(|history| !history.nodes.is_empty()) {
            by_group.entry(&history.group).or_default().push(history);
        }
        let groups = by_group.into_iter().map(|(group, mut passes)| {
            passes.sort_by_key(|pass| pass.started);
            Self { group, passes }
        });
        groups.collect()
    }

    /// The number of passes that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.passes.len()
    }

    fn last(&self) -> Option<&'a GroupHistory> {
        self.passes.last().copied()
    }

    /// The number of nodes for which the next pass has not begun yet. Nonzero only between two passes.
    pub(crate) fn count_next(&self) -> usize {
        let last = self.last().filter(|last| last.has_ended);
        last.map_or(0, |last| last.left_for_next)
    }

    /// The nodes that the selection of the last pass leaves out, in words. Empty if there are none.
    pub(crate) fn left_out(&self) -> &'a str {
        self.last().map_or("", |last| &last.left_out)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.last().is_some_and(|last| last.has_ended) && self.count_next() == 0
    }

    pub(crate) fn count(&self) -> Counts {
        self.count_on(Counts::default())
    }

    /// Adds the nodes of all passes to the counts.
    pub(crate) fn count_on(&self, mut counts: Counts) -> Counts {
        counts.nodes += self.count_next();
        let passes = self.passes.iter();
        passes.fold(counts, |counts, pass| pass.count_on(counts))
    }

    /// Lists the nodes that wait until they may start, each with its wait. Only those of the last pass can wait.
    pub(crate) fn list_waits(&self) -> impl Iterator<Item = (&'a str, &'a Wait)> {
        self.last().into_iter().flat_map(GroupHistory::list_waits)
    }
}

fn read_more(value: &Value) -> usize {
    let more = value["more"].as_u64().unwrap_or_default();
    usize::try_from(more).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use recycle::report::event::End;
    use serde_json::json;

    use super::*;

    impl GroupHistory {
        fn count(&self) -> Counts {
            self.count_on(Counts::default())
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    /// Returns the history of these events. Each has the number of the event that led to it, and its time in seconds.
    fn history_of(whats: Vec<(i64, i64, EventKind)>) -> GroupHistory {
        let mut history = GroupHistory::default();
        for (id, (previous, seconds, what)) in (1..).zip(whats) {
            history.read(Event {
                id,
                previous,
                at: at(seconds),
                what,
            });
        }
        history
    }

    fn begun(nodes: &[&str]) -> Vec<(i64, i64, EventKind)> {
        vec![
            (0, 0, EventKind::Started(json!({"group": "workers"}))),
            (
                1,
                0,
                EventKind::Answered(json!({"verdict": "mark_nodes", "nodes": nodes})),
            ),
        ]
    }

    fn answered(verdict: &str, reason: &str) -> EventKind {
        EventKind::Answered(json!({"verdict": verdict, "reason": reason, "wait_seconds": 30}))
    }

    fn over(end: &str) -> EventKind {
        EventKind::NodeDone(json!({"end": end}))
    }

    #[test]
    fn events_belong_to_their_node_and_a_wait_begins_with_its_first_answer() {
        let mut events = begun(&["i-1", "i-2"]);
        events.extend([
            (2, 10, EventKind::NodeAsked(0)),
            (2, 10, EventKind::NodeAsked(1)),
            (3, 11, answered("start", "")),
            (4, 12, answered("wait", "the first")),
            (6, 13, EventKind::Other),
            (7, 40, answered("wait", "the pause")),
        ]);
        let history = history_of(events);
        assert_eq!(history.group, "workers");
        let waits: Vec<(&str, &Wait)> = history.list_waits().collect();
        let expected = Wait {
            since: at(12),
            until: at(70),
            reason: "the pause".to_owned(),
        };
        assert_eq!(waits, [("i-2", &expected)]);
        assert_eq!((history.count().under_way, history.count().done), (1, 0));
    }

    #[test]
    fn a_pause_is_a_wait_also_after_a_failed_attempt() {
        for before in [None, Some("wait"), Some("start")] {
            let mut events = begun(&["i-1"]);
            events.push((2, 0, EventKind::NodeAsked(0)));
            events.push((
                3,
                10,
                before.map_or(EventKind::Other, |verdict| answered(verdict, "first")),
            ));
            events.push((4, 20, answered("pause", "wait_between_nodes")));
            let history = history_of(events);
            let waits: Vec<(&str, &Wait)> = history.list_waits().collect();
            let expected = Wait {
                since: at(if before == Some("wait") { 10 } else { 20 }),
                until: at(50),
                reason: "wait_between_nodes".to_owned(),
            };
            assert_eq!(waits, [("i-1", &expected)], "{before:?}");
            assert_eq!(history.count().under_way, 0, "{before:?}");
        }
    }

    #[test]
    fn a_dry_run_lists_the_criteria_of_each_node() {
        let criteria = json!({"ami": [0, 1], "launch_template": [1]});
        let answer = json!({"nodes": ["i-1", "i-2"], "criteria": criteria});
        let history = history_of(vec![(0, 0, EventKind::Answered(answer))]);
        assert_eq!(history.list_criteria("i-1"), ["ami"]);
        assert_eq!(history.list_criteria("i-2"), ["ami", "launch_template"]);
        assert!(history.list_criteria("i-3").is_empty());
    }

    #[test]
    fn every_end_is_counted_and_no_node_is_under_way_after_the_groups_end() {
        let mut events = begun(&["i-1", "i-2", "i-3", "i-4"]);
        events.extend([
            (2, 0, EventKind::NodeAsked(0)),
            (2, 0, EventKind::NodeAsked(1)),
            (2, 0, EventKind::NodeAsked(2)),
            (2, 0, EventKind::NodeAsked(3)),
            (3, 9, over("recycled")),
            (4, 9, over("failed")),
            (5, 9, over("left")),
            (6, 9, answered("start", "")),
        ]);
        let counts = history_of(events.clone()).count();
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
        events.push((0, 10, EventKind::Ended(End::default())));
        assert_eq!(history_of(events).count().under_way, 0);
    }

    #[test]
    fn the_nodes_of_the_next_pass_count_once_or_are_skipped() {
        let events = |end: Option<Value>| {
            let answer = json!({"nodes": ["i-1", "i-2"], "more": 3});
            let mut events = vec![
                (0, 0, EventKind::Answered(answer)),
                (1, 0, EventKind::NodeAsked(0)),
                (1, 0, EventKind::NodeAsked(1)),
                (2, 9, over("recycled")),
                (3, 9, over("next_pass")),
            ];
            events.extend(end.map(|output| {
                let end = End {
                    output,
                    ..End::default()
                };
                (0, 10, EventKind::Ended(end))
            }));
            events
        };
        for (end, nodes, left) in [
            (None, 5, 0),
            (Some(json!({"more": 4})), 1, 0),
            (Some(json!({"more": 0})), 5, 4),
            (Some(Value::Null), 5, 4),
        ] {
            let counts = history_of(events(end.clone())).count();
            assert_eq!(
                (counts.nodes, counts.done, counts.left),
                (nodes, 1, left),
                "{end:?}"
            );
        }
    }

    #[test]
    fn the_passes_of_a_group_count_as_one_and_its_nodes_do_not_shrink_between_two() {
        let pass = |begin: i64, nodes: &[&str], more: u64, ended: &[&str], end: Option<u64>| {
            let mut events = vec![
                (0, begin, EventKind::Started(json!({"group": "workers"}))),
                (
                    1,
                    begin,
                    EventKind::Answered(json!({"nodes": nodes, "more": more})),
                ),
            ];
            for index in 0..ended.len() {
                events.push((2, begin, EventKind::NodeAsked(index)));
            }
            for (id, became) in (3..).zip(ended) {
                events.push((id, begin + 9, over(became)));
            }
            events.extend(end.map(|more| {
                let end = End {
                    output: json!({"more": more}),
                    ..End::default()
                };
                (0, begin + 10, EventKind::Ended(end))
            }));
            history_of(events)
        };
        let first = |end| pass(0, &["i-1", "i-2"], 3, &["recycled", "next_pass"], end);
        let second = pass(20, &["i-2", "i-3"], 2, &["recycled"], None);
        let last = pass(40, &["i-2", "i-3", "i-4", "i-5"], 0, &["recycled"; 4], Some(0));
        for (passes, begun, nodes, done, has_ended) in [
            (vec![first(None)], 1, 5, 1, false),
            (vec![first(Some(4))], 1, 5, 1, false),
            (vec![second, first(Some(4))], 2, 5, 2, false),
            (vec![last, first(Some(4))], 2, 5, 5, true),
        ] {
            let groups = Passes::list(passes.iter());
            let [group] = groups.as_slice() else {
                panic!("one group")
            };
            let counts = group.count();
            assert_eq!(
                (group.begun(), counts.nodes, counts.done, group.has_ended()),
                (begun, nodes, done, has_ended)
            );
        }
    }

    #[test]
    fn the_state_machine_has_the_names_that_are_read_here() {
        let machine = include_str!("../../../../state-machine/rotate-nodes.asl.json");
        assert!(machine.contains(&format!("\"{NODE_DONE}\": {{\"Type\": \"Succeed\"}}")));
        for end in ["\"end\": \"failed\"", "end='recycled'", "end='failed'"] {
            assert!(machine.contains(end), "{end}");
        }
    }
}
