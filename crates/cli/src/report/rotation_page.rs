//! Renders a rotation: its result in a sentence, what failed, what it waited for, and its nodes.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use recycle::drain::holding::{EVICTABLE, HOLDING, names_pod};
use recycle::report::event::Stage;
use recycle::report::history::RotationReport;
use recycle::report::parts::{NodeReport, SeenPod, Span};
use recycle::report::waits::GroupWait;

use crate::base::times::shortly;
use crate::report::axis::axis;
use crate::report::node_page::node_body;
use crate::report::parts::{bars, chip, end_of, lasted, outcome, summary, table, time, title_of, took};
use crate::report::words::{
    Result, count, describe_next, describe_result, describe_selection, last_attempts, replacement,
};

/// The maximum number of waits that the page lists before the nodes.
const LONGEST_WAITS: usize = 10;

pub(super) fn rotation_body(rotation: &RotationReport, now: Timestamp) -> Markup {
    let nodes = last_attempts(rotation);
    let began = rotation.summary.started_at;
    let end = end_of(&rotation.summary, now);
    html! {
        p class="headline" { (describe_result(rotation, &nodes, &took(&rotation.summary, now))) }
        @if let Some(next) = describe_next(rotation, &nodes) { p { (next) } }
        (summary(&rotation.summary, now, html! {
            dt { "Selection" } dd { (describe_selection(&rotation.selection)) }
            dt { "Nodes" } dd { (nodes.len()) }
            @if rotation.nodes.len() > nodes.len() { dt { "Attempts" } dd { (rotation.nodes.len()) } }
        }))
        @if !rotation.groups.is_empty() { section { h2 { "Groups" } ul { @for group in &rotation.groups { li { (group) } } } } }
        (failures(rotation, now))
        (waits(rotation, now))
        (group_waits(&rotation.waits))
        section aria-labelledby="time" {
            h2 id="time" { "Timeline" }
            ul class="legend" aria-label="Colours of the stages" { @for stage in Stage::ALL { li { (chip(stage)) } } }
            p class="note" { "Times in UTC." }
            div class="lanes" {
                span {} (axis(began, end))
                @for (number, node) in rotation.nodes.iter().enumerate() {
                    a href=(format!("#node-{number}")) { (title_of(node)) }
                    (bars(&node.stages, began, end, now))
                }
                span {} (axis(began, end))
            }
        }
        section aria-labelledby="nodes" {
            h2 id="nodes" { "Nodes" }
            (table(
                "One row for each execution, in the order in which they began",
                &["Node", "Group", "Outcome", "Replaced by", "Took", "Waited for"],
                rotation.nodes.iter().enumerate().map(|(number, node)| vec![
                    html! { a href=(format!("#node-{number}")) { (title_of(node)) } },
                    html! { (node.group.as_deref().unwrap_or("")) },
                    outcome(&node.summary),
                    html! { (replacement(node).unwrap_or("")) },
                    html! { (took(&node.summary, now)) },
                    html! { (describe_wait(node, now)) },
                ]),
            ))
        }
        @for (number, node) in rotation.nodes.iter().enumerate() {
            article id=(format!("node-{number}")) {
                h2 { (title_of(node)) }
                details { summary { "The history of this node" } (node_body(node, now)) }
            }
        }
    }
}

/// Renders the attempts that did not replace their node, with the cause, and with the state of the node afterwards.
fn failures(rotation: &RotationReport, now: Timestamp) -> Markup {
    let failed = rotation
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.summary.is_well);
    let rows: Vec<Vec<Markup>> = failed
        .map(|(number, node)| {
            let (why, afterwards) = node.summary.reason.split_once('\n').unwrap_or((&node.summary.reason, ""));
            vec![
                html! { a href=(format!("#node-{number}")) { (title_of(node)) } },
                html! { (outcome(&node.summary)) " after " (took(&node.summary, now)) },
                html! { (why) },
                html! { @if afterwards.is_empty() { (describe_state(node)) } @else { @for line in afterwards.lines() { div { (line) } } } },
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Failures" }
                (table("Attempts that failed, and the state of the node afterwards", &["Node", "Outcome", "Why", "Afterwards"], rows))
            }
        }
    }
}

fn describe_state(node: &NodeReport) -> &'static str {
    match Result::of(node) {
        Result::Replaced => "The node was replaced.",
        Result::Running => "The execution is under way.",
        Result::Untouched => "Nothing was changed.",
        Result::Stopped => "The execution was stopped. The sweep restores the node.",
        Result::Restored => "The node was restored.",
        Result::NeedsOperator => "The node needs an operator.",
    }
}

/// Renders the longest waits for a pod, in all nodes.
fn waits(rotation: &RotationReport, now: Timestamp) -> Markup {
    let nodes = rotation.nodes.iter().enumerate();
    let mut waits: Vec<(usize, &NodeReport, &Span<SeenPod>)> = nodes
        .flat_map(|(number, node)| list_waits(node).into_iter().map(move |wait| (number, node, wait)))
        .collect();
    waits.sort_by_key(|(_, _, wait)| Reverse(wait.until.unwrap_or(now).duration_since(wait.since)));
    waits.truncate(LONGEST_WAITS);
    html! {
        @if !waits.is_empty() {
            section {
                h2 { "Longest waits" }
                (table("Pods that the rotation waited for the longest", &["Pod", "Waited", "Why", "Node"], waits.iter().map(|(number, node, wait)| vec![
                    html! { (wait.what.name) },
                    html! { (lasted(wait, now)) },
                    html! { (explain_wait(node, wait)) },
                    html! { a href=(format!("#node-{number}")) { (title_of(node)) } },
                ])))
            }
        }
    }
}

/// Renders the reasons for which nodes waited the longest before they started.
fn group_waits(waits: &[GroupWait]) -> Markup {
    html! {
        @if !waits.is_empty() {
            section {
                h2 { "Waits before the start of a node" }
                (table("Reasons for which at least one node of a group waited, the longest first", &["Group", "Waited", "Why", "Since", "Until", "Nodes"],
                    waits.iter().take(LONGEST_WAITS).map(|wait| vec![
                        html! { (wait.group) },
                        html! { (shortly(SignedDuration::from_secs(wait.seconds))) },
                        html! { (wait.why) },
                        time(wait.since),
                        html! { @if let Some(at) = wait.until { (time(at)) } @else { em { "ongoing" } } },
                        html! { (wait.nodes) },
                    ])))
            }
        }
    }
}

/// Lists the pods that held the node: those that were awaited, and those that could not be evicted, or did not end, for a while.
fn list_waits(node: &NodeReport) -> Vec<&Span<SeenPod>> {
    let holds = |span: &&Span<SeenPod>| match span.what.class.as_str() {
        // Each pod that is evicted is in these classes for a moment.
        "terminating" | "leaves_last" => false,
        EVICTABLE => find_blocker(node, &span.what.name).is_some(),
        class => HOLDING.contains(&class),
    };
    node.pods.iter().filter(holds).collect()
}

/// Finds the blocker that names a pod.
fn find_blocker<'a>(node: &'a NodeReport, pod: &str) -> Option<&'a str> {
    let mut blockers = node.blocked.iter().flat_map(|span| &span.what);
    blockers
        .find(|blocker| names_pod(blocker, pod))
        .map(String::as_str)
}

fn explain_wait<'a>(node: &'a NodeReport, wait: &Span<SeenPod>) -> &'a str {
    find_blocker(node, &wait.what.name).unwrap_or(match wait.what.class.as_str() {
        "stuck" => "it had not ended after its grace period",
        "zone_mismatch" => "no other node could use its volume",
        "unreadable" => "it could not be read",
        _ => "it had to end by itself",
    })
}

/// Describes in one line how long a node was drained, and the pods that took the longest.
fn describe_wait(node: &NodeReport, now: Timestamp) -> String {
    let mut waits = list_waits(node);
    waits.sort_by_key(|wait| Reverse(wait.until.unwrap_or(now).duration_since(wait.since)));
    let Some(longest) = waits.first() else {
        return String::new();
    };
    let more = match waits.len() - 1 {
        0 => String::new(),
        others => format!(", and {}", count(others, "other pod")),
    };
    let time = longest.until.unwrap_or(now).duration_since(longest.since);
    format!("{} for {}{more}", shortly(time), longest.what.name)
}
