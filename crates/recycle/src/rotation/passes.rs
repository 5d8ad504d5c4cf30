//! Splits a large group into passes, because the history of one execution has room for a limited number of nodes.
//!
//! The first nodes of a pass may wait for a day, as in a small group. Any other node waits for minutes, and is then left for the next
//! pass, whose execution has a history of its own.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::rotation::admission::{Admission, Ended, WaitReason, WaitingNode};
use crate::rotation::fleet::Machine;
use crate::rotation::outdated::Chosen;
use crate::rotation::terms::{MOST_AT_ONCE, Terms};

/// Events that the nodes of a pass may take together in the history of the group's execution.
/// Step Functions ends the execution at 25,000 events. The rest is for the retries of Tasks, the marks, and the waits of the first nodes.
/// These waits may last as long as a drain.
const EVENTS: usize = 20_000;
/// Events of one node: 23 for its iteration, one check, and one execution of `recycle-node` that ends `duplicate`, and 9 for a pause.
const EVENTS_OF_A_NODE: usize = 23 + 9;
/// Events of a wait and the check after it.
const EVENTS_OF_A_WAIT: usize = 9;
/// Waits in a day (see [`crate::rotation::admission`]).
const WAITS_OF_A_DAY: usize = 20;
/// Events of reading the alarms before a check: a Task, and one more check (see [`crate::rotation::hold`]).
const EVENTS_OF_ALARMS: usize = 12;
/// Checks of a node that no wait leads to: the first one, and the one after the pause.
const OTHER_CHECKS: usize = 2;
/// Events of another attempt: one more execution of `recycle-node` and one more check (16), and the pause before it (9).
const EVENTS_OF_A_RETRY: usize = 16 + 9;
/// Seconds that a node waits in all for each attempt, after the first nodes of its pass, before it is left for the next pass.
const BRIEF: u32 = 300;
/// Waits before another attempt. Each is half as long as all before it, so [`BRIEF`] seconds more are no more than two.
const WAITS_OF_A_RETRY: usize = 2;
/// Waits in [`BRIEF`] seconds.
const BRIEF_WAITS: usize = 6;
/// Nodes at the beginning of a pass that may wait for a day. At least those that ask from the beginning, which wait for the group's
/// first replacement.
const FIRST_NODES: usize = MOST_AT_ONCE as usize;
/// Nodes of a dry run. Its answer also has the criteria of each node, and room for 8 KB.
const OF_A_DRY_RUN: usize = 90;
/// Nodes of later passes that are marked in advance, so that evicted pods do not prefer them. Their ids, of 22 bytes each, travel once to
/// `taint-node` and once to `restore-node`, in a state of at most 256 KB.
pub const MOST_LATER: usize = 2_000;

/// The number of nodes of a group that one execution works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassSize {
    /// Nodes that may wait for a day.
    first: usize,
    pub nodes: usize,
}

impl PassSize {
    /// Returns the size for these terms. The history has room for the worst case.
    pub fn of(terms: &Terms) -> Self {
        let (of_first, of_other) = (cost(terms, WAITS_OF_A_DAY), cost(terms, BRIEF_WAITS));
        let first = FIRST_NODES.min(EVENTS / of_first);
        let others = EVENTS.saturating_sub(first * of_first) / of_other;
        let most = if terms.dry_run { OF_A_DRY_RUN } else { usize::MAX };
        Self {
            first,
            nodes: most.min(first + others),
        }
    }

    /// Leaves a node that would wait like those before it, and all nodes after it: for the next pass, or after the first nodes' day for the
    /// next rotation.
    pub fn give_up(self, waiting_node: &WaitingNode, reason: &str) -> Admission {
        if waiting_node.index < self.first {
            return Admission::stop(reason);
        }
        Admission::Skip(Ended::next_pass(reason))
    }

    /// Turns the wait of a node into its end in this pass, if the history has no room for more of its checks.
    /// A node whose execution runs already is followed to its end.
    pub fn limit_wait(self, admission: Admission, waiting_node: &WaitingNode) -> Admission {
        let is_over = waiting_node.index >= self.first
            && waiting_node.waited >= BRIEF.saturating_mul(waiting_node.attempt);
        match admission {
            Admission::Wait(WaitReason::Execution, _) => admission,
            Admission::Wait(_, reason) | Admission::Await(reason) if is_over => {
                Admission::Skip(Ended::next_pass(reason))
            }
            admission @ (Admission::Start
            | Admission::Wait(..)
            | Admission::Await(_)
            | Admission::DescribeAlarms
            | Admission::Pause(..)
            | Admission::Skip(_)
            | Admission::Stop(_)) => admission,
        }
    }
}

/// Returns the events of a node with this many waits.
fn cost(terms: &Terms, waits: usize) -> usize {
    let retries = usize::try_from(terms.retries).unwrap_or_default();
    let waits = waits + WAITS_OF_A_RETRY * retries;
    let alarms = if terms.alarms.is_empty() {
        0
    } else {
        EVENTS_OF_ALARMS * (waits + OTHER_CHECKS + retries)
    };
    EVENTS_OF_A_NODE + EVENTS_OF_A_WAIT * waits + alarms + EVENTS_OF_A_RETRY * retries
}

impl Chosen {
    /// Leaves out what a later pass of a rotation finds again: instances that were launched after the rotation began, and nodes that
    /// failed in an earlier pass. `failed` are the names of failed executions, and `name` names a node's first attempt.
    pub fn leave_out_earlier(
        &mut self,
        machines: &[Machine],
        began_at: Timestamp,
        failed: &BTreeSet<String>,
        name: impl Fn(&InstanceId) -> String,
    ) {
        let is_new = |id: &InstanceId| {
            let mut machines = machines.iter();
            machines.any(|machine| machine.instance.id == *id && machine.launched_at > began_at)
        };
        let stays = |id: &InstanceId| !is_new(id) && !failed.contains(&name(id));
        self.nodes.retain(stays);
        self.undecided.retain(stays);
        self.criteria.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::instance::Instance;
    use crate::fixtures::{NEW, OLD, OTHER, at, id, instance};
    use crate::rotation::terms::{MOST_RETRIES, read_terms};

    fn terms(fields: Value) -> Terms {
        let Value::Object(fields) = fields else {
            panic!("{fields} is no object")
        };
        read_terms(fields, false).unwrap()
    }

    #[test]
    fn a_pass_has_as_many_nodes_as_the_history_has_room_for() {
        let named = json!(["errors"]);
        for (given, nodes) in [
            (json!({}), 173),
            (json!({"retries": 10}), 31),
            (json!({"alarms": named}), 45),
            (json!({"alarms": named, "retries": 10}), 16),
        ] {
            assert_eq!(PassSize::of(&terms(given.clone())).nodes, nodes, "{given}");
        }
        for retries in 0..=MOST_RETRIES {
            let terms = terms(json!({"retries": retries}));
            let size = PassSize::of(&terms);
            let others = size.nodes - size.first;
            let events = size.first * cost(&terms, WAITS_OF_A_DAY) + others * cost(&terms, BRIEF_WAITS);
            assert!(events <= EVENTS, "{retries}: {events}");
        }
    }

    #[test]
    fn only_the_first_nodes_of_a_pass_wait_for_longer_than_minutes() {
        let size = PassSize::of(&terms(json!({})));
        let wait = || Admission::Wait(WaitReason::Paused, "paused".to_owned());
        let runs = || Admission::Wait(WaitReason::Execution, "runs".to_owned());
        let next = Admission::Skip(Ended::next_pass("paused"));
        for (index, waited, attempt, admission, expected) in [
            (39, 86_000, 1, wait(), wait()),
            (40, 299, 1, wait(), wait()),
            (40, 300, 1, wait(), next.clone()),
            (40, 599, 2, wait(), wait()),
            (40, 600, 2, wait(), next.clone()),
            (40, 300, 1, runs(), runs()),
            (40, 300, 1, Admission::Await("paused".to_owned()), next),
            (40, 300, 1, Admission::Start, Admission::Start),
            (40, 300, 1, Admission::Pause(600, "p"), Admission::Pause(600, "p")),
            (40, 300, 1, Admission::DescribeAlarms, Admission::DescribeAlarms),
            (40, 300, 1, Admission::stop("over"), Admission::stop("over")),
        ] {
            let waiting_node = WaitingNode {
                instance_id: id(OLD),
                index,
                began_at: at(0),
                waited,
                waits_for: None,
                waited_for_it: 0,
                attempt,
                status: None,
                error: None,
                exists: false,
                alarms: None,
            };
            let limited = size.limit_wait(admission, &waiting_node);
            assert_eq!(limited, expected, "{index} {waited} {attempt}");
            let gives_up = size.give_up(&waiting_node, "paused");
            let is_stopped = matches!(gives_up, Admission::Stop(_));
            assert_eq!(is_stopped, index < 40, "{index}");
        }
    }

    #[test]
    fn a_later_pass_leaves_out_replacements_and_failed_nodes() {
        let machine = |name: &str, launched: i64| Machine {
            instance: Instance {
                id: id(name),
                ..instance()
            },
            launched_at: at(launched),
            image: "ami-1".to_owned(),
        };
        let mut chosen = Chosen {
            nodes: vec![id(OLD), id(NEW), id(OTHER)],
            ..Chosen::default()
        };
        let machines = [machine(OLD, -5), machine(NEW, 1), machine(OTHER, 0)];
        let failed = BTreeSet::from([format!("manual-{OLD}")]);
        chosen.leave_out_earlier(&machines, at(0), &failed, |id| format!("manual-{id}"));
        assert_eq!(chosen.nodes, [id(OTHER)]);
    }
}
