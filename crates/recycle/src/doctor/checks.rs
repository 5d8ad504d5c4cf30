//! Examines the facts about an installation, and returns the findings, each with its remedy.
//!
//! `serve-operator` gathers the facts that only a function sees. The command line gathers the others.

use crate::doctor::access::examine_entries;
use crate::doctor::events::{
    examine_dead_letters, examine_logs, examine_rules, examine_sweeps, examine_topic,
};
use crate::doctor::facts::{Inside, Installation, Seen};
use crate::doctor::finding::Finding;
use crate::doctor::functions::{examine_functions, examine_machines};
use crate::doctor::groups::examine_groups;
use crate::doctor::inside::examine_inside;

/// Returns all findings, in the order in which an operator would look: the code first, the groups last.
pub fn examine(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
    [
        examine_functions(seen),
        examine_machines(seen),
        examine_inside(seen, inside),
        examine_entries(seen, inside),
        vec![examine_sweeps(seen)],
        examine_rules(seen),
        vec![examine_topic(seen), examine_dead_letters(seen)],
        examine_logs(seen),
        examine_groups(seen),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
