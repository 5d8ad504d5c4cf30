//! Parts that the pages of nodes and rotations share: the summary, times, bars and tables.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use recycle::report::event::Stage;
use recycle::report::parts::{NodeReport, Span, Summary};
use serde_json::Value;

use crate::base::times::{moment, shortly};

pub(super) fn title_of(node: &NodeReport) -> &str {
    let name = node.node.as_deref().or(node.instance.as_deref());
    name.unwrap_or("An unknown node")
}

pub(super) fn end_of(summary: &Summary, now: Timestamp) -> Timestamp {
    summary.ended_at.unwrap_or(now).max(summary.started_at)
}

pub(super) fn summary(summary: &Summary, now: Timestamp, more: Markup) -> Markup {
    html! {
        dl class="summary" {
            dt { "Outcome" } dd { (outcome(summary)) }
            @if !summary.reason.is_empty() {
                dt { "Why" }
                dd { @for line in summary.reason.lines() { div { (line) } } }
            }
            dt { "Began" } dd { (time(summary.started_at)) }
            @if let Some(end) = summary.ended_at { dt { "Ended" } dd { (time(end)) } }
            dt { "Took" } dd { (took(summary, now)) }
            (more)
            @if !summary.settings.is_empty() { dt { "Settings" } dd { (describe_settings(&summary.settings)) } }
            dt { "Execution" } dd { code { (summary.execution) } }
            dt { "History" } dd { (summary.events) " of 25,000 events" }
        }
    }
}

fn describe_settings(settings: &BTreeMap<String, Value>) -> String {
    let texts = settings.iter().map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name} {text}"),
        None => format!("{name} {value}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

pub(super) fn outcome(summary: &Summary) -> Markup {
    let class = if summary.is_well { "well" } else { "ill" };
    html! { strong class=(class) { (summary.outcome) } }
}

pub(super) fn took(summary: &Summary, now: Timestamp) -> String {
    shortly(end_of(summary, now).duration_since(summary.started_at))
}

pub(super) fn time(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (moment(at)) } }
}

/// Renders a stage with its colour.
pub(super) fn chip(stage: Stage) -> Markup {
    html! { span class=(format!("chip {}", stage.name())) {} (stage.name()) }
}

/// Returns the place of `at` between `from` and `to`, in percent from 0 to 100. If `from` and `to` are equal, the place is 0.
pub(super) fn share(at: Timestamp, from: Timestamp, to: Timestamp) -> f64 {
    let whole = to.duration_since(from).as_secs_f64();
    if whole <= 0.0 {
        0.0
    } else {
        (at.duration_since(from).as_secs_f64() / whole * 100.0).clamp(0.0, 100.0)
    }
}

pub(super) fn bars(stages: &[Span<Stage>], from: Timestamp, to: Timestamp, now: Timestamp) -> Markup {
    let described = stages.iter();
    let described = described.map(|span| format!("{} {}", span.what.name(), lasted(span, now)));
    html! {
        div class="bars" role="img" aria-label=(described.collect::<Vec<_>>().join(", ")) {
            @for span in stages {
                @let left = share(span.since, from, to);
                @let width = share(span.until.unwrap_or(now), from, to) - left;
                span class=(span.what.name()) style=(format!("left:{left:.3}%;width:{width:.3}%")) {}
            }
        }
    }
}

pub(super) fn lasted<What>(span: &Span<What>, now: Timestamp) -> String {
    shortly(span.until.unwrap_or(now).duration_since(span.since))
}

/// Renders three cells: since when, until when, and how long.
pub(super) fn times<What>(span: &Span<What>, now: Timestamp) -> [Markup; 3] {
    [
        time(span.since),
        html! { @if let Some(at) = span.until { (time(at)) } @else { em { "ongoing" } } },
        html! { (lasted(span, now)) },
    ]
}

/// Renders a table. On a phone each row is a block, in which each cell has its title beside it.
pub(super) fn table(caption: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<Markup>>) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for title in head { th scope="col" { (title) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (number, (cell, title)) in row.into_iter().zip(head).enumerate() {
                                @if number == 0 { th scope="row" { (cell) } } @else { td data-title=(title) { div { (cell) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}
