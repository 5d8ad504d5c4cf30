//! Renders the history of one node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maud::{Markup, html};
use recycle::report::parts::{Look, NodeReport, SeenPod, Span};

use crate::report::axis::axis;
use crate::report::parts::{bars, chip, end_of, share, summary, table, time, times};
use crate::report::words::replacement;

/// The height and the width of the picture of the counts, in units of the picture.
const HEIGHT: f64 = 100.0;
const WIDTH: f64 = 1_000.0;

pub(super) fn node_body(node: &NodeReport, now: Timestamp) -> Markup {
    let end = end_of(&node.summary, now);
    html! {
        (summary(&node.summary, now, html! {
            @if let Some(instance) = &node.instance { dt { "Instance" } dd { (instance) } }
            @if let Some(instance) = replacement(node) { dt { "Replaced by" } dd { (instance) } }
            @if let Some(group) = &node.group { dt { "Group" } dd { (group) } }
            @if let Some(cluster) = &node.cluster { dt { "Cluster" } dd { (cluster) } }
            dt { "Checks of the pods" } dd { (node.polls) }
        }))
        @if !node.plan.is_empty() { section { h3 { "Plan" } ol { @for step in &node.plan { li { (step) } } } } }
        @if !node.stages.is_empty() { (timeline(node, end, now)) }
        @if !node.looks.is_empty() { (pods_over_time(&node.looks, node.summary.started_at, end)) }
        @if !node.pods.is_empty() { (named_pods(&node.pods, now)) }
        @if !node.blocked.is_empty() { (blocked(&node.blocked, now)) }
        @if !node.notifications.is_empty() {
            section {
                h3 { "Notifications" }
                (table("Notifications that were sent", &["When", "Event", "Severity", "Subject"], node.notifications.iter().map(|sent| vec![
                    time(sent.at),
                    html! { (sent.event) },
                    html! { (sent.severity) },
                    html! { (sent.subject) },
                ])))
            }
        }
        @if !node.failed_attempts.is_empty() {
            section {
                h3 { "Failed attempts" }
                (table("Attempts that failed; most are retried", &["When", "State", "Error", "Why"], node.failed_attempts.iter().map(|attempt| vec![
                    time(attempt.at),
                    html! { (attempt.state) },
                    html! { (attempt.error) },
                    html! { (attempt.cause) },
                ])))
            }
        }
    }
}

fn timeline(node: &NodeReport, end: Timestamp, now: Timestamp) -> Markup {
    let began = node.summary.started_at;
    html! {
        section {
            h3 { "Stages" }
            (bars(&node.stages, began, end, now))
            (axis(began, end))
            (table("Each stage, one after the other; times in UTC", &["Stage", "Since", "Until", "Took"], node.stages.iter().map(|span| {
                let [since, until, took] = times(span, now);
                vec![chip(span.what), since, until, took]
            })))
        }
    }
}

/// Renders one picture for each class of pods, because the classes are not parts of one whole.
fn pods_over_time(looks: &[Look], from: Timestamp, to: Timestamp) -> Markup {
    let classes: BTreeSet<&String> = looks.iter().flat_map(|look| look.counts.keys()).collect();
    html! {
        section {
            h3 { "Pods over time" }
            div class="charts" {
                @for class in classes {
                    @let counts: Vec<(Timestamp, u32)> = looks.iter().map(|look| (look.at, look.counts.get(class).copied().unwrap_or(0))).collect();
                    @let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
                    figure {
                        figcaption { (class.replace('_', " ")) ": at most " (most) }
                        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(describe(class, &counts)) {
                            title { (describe(class, &counts)) }
                            path d=(draw(&counts, most, from, to)) {}
                        }
                    }
                }
            }
        }
    }
}

fn describe(class: &str, counts: &[(Timestamp, u32)]) -> String {
    let first = counts.first().map_or(0, |(_, count)| *count);
    let last = counts.last().map_or(0, |(_, count)| *count);
    let class = class.replace('_', " ");
    format!("{class}: {first} at the first check, {last} at the last")
}

/// Draws steps, because the counts between two checks are unknown. The count of the last check is drawn until `to`.
fn draw(counts: &[(Timestamp, u32)], most: u32, from: Timestamp, to: Timestamp) -> String {
    let across = |at: Timestamp| share(at, from, to) / 100.0 * WIDTH;
    let height = |count: u32| HEIGHT - f64::from(count) / f64::from(most.max(1)) * HEIGHT;
    let start = counts.first().map_or(0.0, |(at, _)| across(*at));
    let steps = counts.iter();
    let steps = steps.map(|(at, count)| format!("H{:.1}V{:.1}", across(*at), height(*count)));
    let steps: String = steps.collect();
    format!("M{start:.1} {HEIGHT}{steps}H{WIDTH}V{HEIGHT}Z")
}

fn named_pods(pods: &[Span<SeenPod>], now: Timestamp) -> Markup {
    html! {
        section {
            h3 { "Pods" }
            p class="note" { "Each check names the first five pods of a class." }
            (table("Pods and their classes", &["Pod", "Class", "Since", "Until", "For"], pods.iter().map(|span| {
                let [since, until, took] = times(span, now);
                vec![html! { (span.what.name) }, html! { (span.what.class.replace('_', " ")) }, since, until, took]
            })))
        }
    }
}

fn blocked(spans: &[Span<Vec<String>>], now: Timestamp) -> Markup {
    html! {
        section {
            h3 { "Blockers" }
            (table("Blockers of the drain", &["Blocker", "Since", "Until", "For"], spans.iter().map(|span| {
                let [since, until, took] = times(span, now);
                let what = html! { @if span.what.is_empty() { "unknown" } @else { ul { @for what in &span.what { li { (what) } } } } };
                vec![what, since, until, took]
            })))
        }
    }
}
